"""Normalisations, and softmax with its relatives."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import functional as F
from ...creation import arange
from ...dtypes import float32
from ...ops import window
from ...tensor import Tensor
from ...view import normal_axis
from ..registry import operator


@operator("BatchNormalization", since=7)
def batch_normalization(node: Any, x: Tensor, scale: Tensor, b: Tensor, mean: Tensor, var: Tensor) -> Any:
    eps = node.get("epsilon", 1e-5)
    if not node.get("training_mode", 0):
        return F.batch_norm(x, mean, var, scale, b, eps=eps)
    axes = tuple(a for a in range(x.ndim) if a != 1)
    own, spread = x.mean(axes), x.var(axes, correction=0)
    y = F.batch_norm(x, own, spread, scale, b, eps=eps)
    share = node.get("momentum", 0.9)
    return y, mean * share + own * (1 - share), var * share + spread * (1 - share)


@operator("InstanceNormalization")
def instance_normalization(node: Any, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
    return F.instance_norm(x, scale, b, node.get("epsilon", 1e-5))


@operator("GroupNormalization", since=18)
def group_normalization(node: Any, x: Tensor, scale: Tensor, b: Tensor) -> Tensor:
    groups = node.attributes["num_groups"]
    if node.opset < 21:  # one scale and bias for each group
        each = x.shape[1] // groups
        scale, b = F.repeat_interleave(scale, each), F.repeat_interleave(b, each)
    return F.group_norm(x, groups, scale, b, node.get("epsilon", 1e-5))


@operator("LayerNormalization", since=17)
@operator("LayerNormalization", since=1, domain="com.microsoft")
def layer_normalization(node: Any, x: Tensor, scale: Tensor, b: Tensor | None = None) -> Any:
    axis = normal_axis(node.get("axis", -1), x.ndim)
    shape, eps = x.shape[axis:], node.get("epsilon", 1e-5)
    if scale.shape == shape and (b is None or b.shape == shape):
        y = F.layer_norm(x, shape, scale, b, eps)
    else:
        y = F.layer_norm(x, shape, None, None, eps) * scale
        y = y if b is None else y + b
    if node.wanted < 2:
        return y
    axes = tuple(range(axis, x.ndim))
    return y, x.mean(axes, keepdim=True), (x.var(axes, correction=0, keepdim=True) + eps).rsqrt()


@operator("RMSNormalization", since=23)
def rms_normalization(node: Any, x: Tensor, scale: Tensor) -> Tensor:
    axis = normal_axis(node.get("axis", -1), x.ndim)
    shape, eps = x.shape[axis:], node.get("epsilon", 1e-5)
    if scale.shape == shape:
        return F.rms_norm(x, shape, scale, eps)
    return F.rms_norm(x, shape, None, eps) * scale


@operator("LpNormalization")
def lp_normalization(node: Any, x: Tensor) -> Tensor:
    p, axis = node.get("p", 2), node.get("axis", -1)
    norm = x.norm(p, axis, keepdim=True)
    return x / F.where(norm == 0, 1.0, norm)


@operator("MeanVarianceNormalization", since=9)
def mean_variance_normalization(node: Any, x: Tensor) -> Tensor:
    axes = tuple(node.get("axes", (0, 2, 3)))
    centred = x - x.mean(axes, keepdim=True)
    return centred / (x.var(axes, correction=0, keepdim=True).sqrt() + 1e-9)


@operator("LRN")
def local_response_normalization(node: Any, x: Tensor) -> Tensor:
    get, size = node.get, node.attributes["size"]
    n, c, rest = x.shape[0], x.shape[1], prod(x.shape[2:])
    squares = (x * x).reshape(n, 1, c, rest)
    total = window.avg_pool(
        squares, kernel=(size, 1), stride=(1, 1), padding=((size - 1) // 2, 0), divisor=1, windows=(c, rest)
    )
    total = total.reshape(*x.shape) * (get("alpha", 1e-4) / size) + get("bias", 1.0)
    return x * total ** -get("beta", 0.75)


def softmax_like(node: Any, x: Tensor, run: Any) -> Tensor:
    """Along one axis; before opset 13 over all axes from one on, taken together."""
    if node.opset >= 13:
        return run(x, node.get("axis", -1))
    axis = normal_axis(node.get("axis", 1), max(x.ndim, 1))
    return run(x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:])), 1).reshape(*x.shape)


@operator("Softmax")
def softmax(node: Any, x: Tensor) -> Tensor:
    return softmax_like(node, x, F.softmax)


@operator("LogSoftmax")
def log_softmax(node: Any, x: Tensor) -> Tensor:
    return softmax_like(node, x, F.log_softmax)


@operator("Hardmax")
def hardmax(node: Any, x: Tensor) -> Tensor:
    return softmax_like(node, x, first_largest)


def first_largest(x: Tensor, axis: int) -> Tensor:
    """1 at the first of the largest elements along an axis, 0 elsewhere."""
    axis = normal_axis(axis, x.ndim)
    line = arange(x.shape[axis], device=x.backend).reshape(-1, *(1,) * (x.ndim - axis - 1))
    dtype = x.dtype if x.is_floating_point else float32
    return (x.argmax(axis, keepdim=True) == line).to(dtype)
