"""Other people's models: ONNX files as modules. Needs the package onnx (``pip install tinyadept[onnx]``)."""

try:
    import onnx
except ImportError as error:
    raise ImportError("tinyadept.onnx needs the package onnx: pip install 'tinyadept[onnx]'") from error

from .exporting import export
from .model import Model, load
from .reading import Value
from .registry import ModelError, Node, Refused, operator
