"""Operators that change element types, and those that make tensors of nothing but numbers."""

from __future__ import annotations

from math import ceil

import numpy as np
from onnx import TensorProto

from ... import creation, dtypes
from ...tensor import Tensor, from_numpy
from .. import types
from ..registry import Node, operator

SMALL = 1024  # integers up to so many stay on the host


def cast_to(node: Node, x: Tensor, element: int) -> Tensor:
    """A tensor with another element type, as far as the engine's dtypes go; the caller rounds the rest."""
    if element not in types.BITS or element in types.COMPLEX or element == TensorProto.FLOAT8E8M0:
        node.refuse(f"a cast to {types.name_of(element)}")
    wanted = types.held(element, x.backend.name == "numpy")
    if wanted == dtypes.bool_:
        return x != 0
    if x.is_floating_point and wanted == dtypes.uint8:
        return (x.to(dtypes.int32) & 255).to(wanted)
    x = x.to(wanted)
    if element in types.SATURATING and node.get("saturate", 1):
        largest = types.SMALL_FLOATS[element][2]
        x = x.clamp(-largest, largest)
    return x


@operator("Cast")
def cast(node: Node, x: Tensor) -> Tensor:
    return cast_to(node, x, node.get("to", 0))


@operator("CastLike", since=15, reads=(1,))
def cast_like(node: Node, x: Tensor, like: Tensor) -> Tensor:
    return cast_to(node, x, node.input_types[1])


def placed(node: Node, x: Tensor) -> Tensor:
    """A tensor made on the host where it belongs: small integers stay."""
    if x.backend is node.device or (x.numel() <= SMALL and not x.is_floating_point):
        return x
    return types.narrowed(x, node.device)


@operator("ConstantOfShape", since=9, reads=(0,))
def constant_of_shape(node: Node, shape: Tensor) -> Tensor:
    lengths = node.integers(shape)
    if any(n < 0 for n in lengths):
        node.fail(f"shape {lengths} has a negative length")
    value = node.attributes.get("value")
    element = node.tensor_types.get("value", TensorProto.FLOAT)
    number = 0.0 if value is None else types.to_held(np.asarray(value), element, "value").reshape(()).item()
    small = int(np.prod(lengths)) <= SMALL and types.held(element) not in dtypes.FLOATS
    device = "numpy" if small else node.device
    return creation.full(lengths, number, types.held(element, small or on_numpy(node)), device)


def on_numpy(node: Node) -> bool:
    return node.device.name == "numpy"


@operator("Range", since=11, reads=(0, 1, 2))
def range_(node: Node, start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, last, step = (x.item() for x in (start, limit, delta))
    if step == 0:
        node.fail("delta is 0")
    count = max(ceil((last - first) / step), 0)
    if count > 1 << 40:
        node.fail(f"{count} numbers from {first} to {last}")
    dtype = start.dtype.type
    made = (np.arange(count) * step + first).astype(dtype) if count else np.zeros(0, dtype)
    return placed(node, from_numpy(made))


@operator("EyeLike", since=9, reads=(0,))
def eye_like(node: Node, x: Tensor) -> Tensor:
    if x.ndim != 2:
        node.fail(f"an input of shape {x.shape}, expected two axes")
    element = node.get("dtype") or node.input_types[0] or TensorProto.FLOAT
    rows = creation.arange(x.shape[0], device=node.device).unsqueeze(1)
    ones = rows + int(node.get("k", 0)) == creation.arange(x.shape[1], device=node.device)
    return ones.to(types.held(element, on_numpy(node)))
