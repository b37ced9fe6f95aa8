"""Activations: functions of one element with constants of their own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ... import functional as F
from ...ops import elementwise as rows
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import Node, operator

Function = Callable[[Tensor], Tensor]


@operator("LeakyRelu", prepare=True)
def leaky_relu(node: Node) -> Function:
    return partial(rows.leaky_relu, slope=node.get("alpha", 0.01))


@operator("PRelu")
def prelu_of_channels(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    return prelu(node, x, slope.reshape(-1, *(1,) * (x.ndim - 2)) if x.ndim > 2 else slope)


@operator("PRelu", since=7)
def prelu(node: Node, x: Tensor, slope: Tensor) -> Tensor:
    return where(x < 0, x * slope, x)


@operator("Elu", prepare=True)
def elu(node: Node) -> Function:
    return partial(rows.elu, alpha=node.get("alpha", 1.0))


@operator("Celu", prepare=True)
def celu(node: Node) -> Function:
    alpha = node.get("alpha", 1.0)
    return lambda x: (
        rows.maximum(x, 0.0) + rows.minimum(rows.expm1(rows.minimum(x, 0.0) / alpha) * alpha, 0.0)
    )


@operator("Selu", prepare=True)
def selu(node: Node) -> Function:
    alpha, gamma = node.get("alpha", 1.67326319217681884765625), node.get("gamma", 1.05070102214813232421875)
    return lambda x: rows.elu(x, alpha=alpha) * gamma


@operator("ThresholdedRelu", prepare=True)
def thresholded_relu(node: Node) -> Function:
    alpha = node.get("alpha", 1.0)
    return lambda x: where(x > alpha, x, 0.0)


@operator("HardSigmoid", prepare=True)
def hard_sigmoid(node: Node) -> Function:
    alpha, beta = node.get("alpha", 0.2), node.get("beta", 0.5)
    return lambda x: (x * alpha + beta).clamp(0.0, 1.0)


@operator("HardSwish", prepare=True)
def hard_swish(node: Node) -> Function:
    return lambda x: x * (x * (1 / 6) + 0.5).clamp(0.0, 1.0)


@operator("Softplus", prepare=True)
def softplus(node: Node) -> Function:
    return F.softplus


@operator("Softsign", prepare=True)
def softsign(node: Node) -> Function:
    return lambda x: x / (x.abs() + 1)


@operator("Mish", prepare=True)
def mish(node: Node) -> Function:
    return F.mish


@operator("Gelu", prepare=True)
def gelu(node: Node) -> Function:
    return partial(F.gelu, approximate=node.get("approximate", "none"))


@operator("Swish", prepare=True)
def swish(node: Node) -> Function:
    alpha = node.get("alpha", 1.0)
    return rows.silu if alpha == 1 else lambda x: x * rows.sigmoid(x * alpha)


@operator("Shrink", prepare=True)
def shrink(node: Node) -> Function:
    bias, border = node.get("bias", 0.0), node.get("lambd", 0.5)

    def run(x: Tensor) -> Tensor:
        moved = where(x < -border, x + bias, where(x > border, x - bias, 0))
        return moved.to(x.dtype)

    return run


@operator("Clip", prepare=True)
def clip_by_attributes(node: Node) -> Function:
    low, high = node.get("min", -3.4028234663852886e38), node.get("max", 3.4028234663852886e38)
    return lambda x: x.clamp(low, high)


@operator("Clip", since=11)
def clip(node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    if low is not None:
        x = rows.maximum(x, low)
    return x if high is None else rows.minimum(x, high)
