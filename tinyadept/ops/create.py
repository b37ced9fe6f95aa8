"""Ops without inputs: they say what a fresh tensor holds."""

from __future__ import annotations

from math import copysign
from typing import Any

import numpy as np

from .. import device as devices
from ..tensor import Tensor
from ..view import Shape
from .table import Family, apply, define


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    shape = params["shape"]
    if any(n < 0 for n in shape):
        raise ValueError(f"{op.name}: shape {shape} has a negative length")
    return (), shape, params["dtype"]


creation = Family("create", infer)


def np_full(shape: Shape, value: Any, dtype: np.dtype) -> np.ndarray:
    """Zeros take no memory before they are written."""
    zero = value == 0 and copysign(1, value) > 0
    return np.zeros(shape, dtype) if zero else np.full(shape, value, dtype)


full = define(creation, "full", np_full)
arange = define(  # from the double product, rounded once, so that every device can agree
    creation,
    "arange",
    lambda shape, start, step, dtype: (start + step * np.arange(shape[0])).astype(dtype),
)


def create(make: Any, device: Any, **params: Any) -> Tensor:
    """Run a creation op on a device given by name or backend."""
    return apply(make.op, (), params, devices.resolve(device))


def zeros(shape: Shape, like: Tensor) -> Tensor:
    """Zeros with the dtype and on the device of another tensor."""
    return apply(full.op, (), {"shape": shape, "value": 0, "dtype": like.dtype}, like.backend)
