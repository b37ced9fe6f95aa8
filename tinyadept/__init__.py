"""tinyadept: a tensor engine that reads in an afternoon, defined by NumPy and run on any Vulkan GPU."""

from pathlib import Path

# Run from a checkout, backends/ and models/ lie beside this folder; installed, they lie in it.
if not (Path(__file__).parent / "backends").exists():
    __path__.append(str(Path(__file__).parent.parent))

from . import data, functional, nn, operators, optim, random
from .capture import capture
from .creation import arange, eye, full, full_like, linspace, ones, ones_like, zeros, zeros_like
from .dtypes import bool_, float32, float64, int32, int64, uint8
from .errors import DeviceError, OutOfMemory, Unsupported
from .functional import cat, einsum, stack, where
from .gradcheck import gradcheck
from .io import load, save
from .oracle import fuzz
from .random import manual_seed, rand, randint, randn, randperm
from .tape import detect_anomaly, enable_grad, grad, is_grad_enabled, no_grad, set_grad_enabled
from .tensor import Tensor, from_dlpack, from_numpy, tensor

__version__ = "0.1.0"
