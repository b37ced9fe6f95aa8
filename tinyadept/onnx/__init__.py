"""Other people's models: ONNX files as modules. Needs the package onnx (``pip install tinyadept[onnx]``)."""

from .exporting import export
from .model import Model, load
from .reading import Value
from .registry import ModelError, Node, Refused, operator
