"""Floats as integers with a scale and a zero point, and back."""

from __future__ import annotations

from typing import Any

from onnx import TensorProto as P

from ...functional import repeat_interleave
from ...operators import multiplied
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import operator
from ..types import SATURATING, SMALL_FLOATS, name_of
from .convolution import conv, shifted


def along(x: Tensor, rank: int, axis: int) -> Tensor:
    """A vector laid along one of so many axes."""
    return x.reshape(*(-1 if a == axis % rank else 1 for a in range(rank)))


def spread(node: Any, parameter: Tensor | None, x: Tensor) -> Tensor | None:
    """A scale or a zero point laid over x: one for all, for each entry of an axis, or for each block."""
    if parameter is None or parameter.numel() == 1:
        return parameter if parameter is None else parameter.reshape(())
    axis, block = int(node.get("axis", 1)), int(node.get("block_size", 0))
    if parameter.ndim == 1 and not block:
        return along(parameter, x.ndim, axis)
    axis = axis % x.ndim
    each = block or -(-x.shape[axis] // parameter.shape[axis])
    return repeat_interleave(parameter, each, axis).narrow(axis, 0, x.shape[axis])


LIMITS: dict[int, tuple[int, int]] = {
    P.UINT8: (0, 255),
    P.INT8: (-128, 127),
    P.UINT16: (0, 65535),
    P.INT16: (-32768, 32767),
    P.UINT4: (0, 15),
    P.INT4: (-8, 7),
}
if hasattr(P, "INT2"):  # newer than the oldest onnx that this works with
    LIMITS |= {P.UINT2: (0, 3), P.INT2: (-2, 1)}


def quantised(node: Any, x: Tensor, scale: Tensor, zero: Tensor | None, element: int) -> Tensor:
    """round(x / scale) + zero, ties to even, limited to the type's numbers."""
    if element in SATURATING or element == P.FLOAT4E2M1:  # what rounds results does the rest
        largest = SMALL_FLOATS[element][2]
        return (x / scale).clamp(-largest, largest) if node.get("saturate", 1) else x / scale
    if element not in LIMITS:
        node.refuse(f"numbers are quantised to {name_of(element)}: expected up to 16 bits")
    low, high = LIMITS[element]
    y = (x / scale).round()
    y = y if zero is None else y + zero.to(y.dtype)
    return y.clamp(float(low), float(high)).to("uint8" if element == P.UINT8 else "int32")


def result_type(node: Any, zero_at: int) -> int:
    """The integer type that a node makes: that of its zero point, or what an attribute says, or uint8."""
    given = node.input_types[zero_at] if len(node.input_types) > zero_at else 0
    return given or int(node.get("output_dtype", 0)) or P.UINT8


@operator("QuantizeLinear", since=10)
def quantize_linear(node: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    element = result_type(node, 2)
    factor = spread(node, scale, x)
    assert factor is not None
    return quantised(node, x.to(scale.dtype), factor, spread(node, zero, x), element)


@operator("DequantizeLinear", since=10)
def dequantize_linear(node: Any, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    factor, offset = spread(node, scale, x), spread(node, zero, x)
    assert factor is not None
    if not x.is_floating_point:
        x = x.to("int32")
        x = x if offset is None else x - offset.to("int32")
    return x.to(scale.dtype) * factor


@operator("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(node: Any, x: Tensor) -> tuple[Tensor, ...]:
    low, high = x.amin().clamp(max=0.0), x.amax().clamp(min=0.0)
    scale = where(high == low, 1.0, (high - low) / 255.0)
    zero = (-low / scale).clamp(0.0, 255.0).round()
    return quantised(node, x, scale, zero, P.UINT8), scale, zero.to("uint8")


@operator("QLinearMatMul", since=10)
def qlinear_matmul(
    node: Any,
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
) -> Tensor:
    whole = multiplied(shifted(a, a_zero, -2), shifted(b, b_zero, -1))
    rows, columns = (
        s.reshape(()) if s.numel() == 1 else along(s, whole.ndim, axis)
        for s, axis in ((a_scale, -2), (b_scale, -1))
    )
    y = whole.to(y_scale.dtype) * (rows * columns)
    return quantised(node, y, y_scale, y_zero, result_type(node, 7))


@operator("QLinearConv", since=10)
def qlinear_conv(
    node: Any,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    w: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    b: Tensor | None = None,
) -> Tensor:
    whole = conv(node, shifted(x, x_zero), shifted(w, w_zero, 0), b)
    scale = w_scale.reshape(()) if w_scale.numel() == 1 else along(w_scale, x.ndim, 1)
    y = whole.to(y_scale.dtype) * (x_scale.reshape(()) * scale)
    return quantised(node, y, y_scale.reshape(()), y_zero.reshape(()), result_type(node, 7))
