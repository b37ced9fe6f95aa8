"""Reductions over axes, and running ones along an axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ... import dtypes
from ...functional import cat
from ...ops import reduce as rows
from ...tensor import Tensor
from ...view import normal_axes, normal_axis
from ..registry import Node, operator

Axes = tuple[int, ...]


def total(x: Tensor, axes: Axes) -> Tensor:
    return rows.sum(x, axes=axes)


def average(x: Tensor, axes: Axes) -> Tensor:
    return rows.mean(x, axes=axes)


def product(x: Tensor, axes: Axes) -> Tensor:
    for axis in axes:
        x = rows.prod(x, axes=axis)
    return x


def largest(x: Tensor, axes: Axes) -> Tensor:
    if x.dtype == dtypes.bool_:
        return rows.any(x, axes=axes)
    return rows.amax(x, axes=axes) if x.numel() else nothing(x, axes, limits(x)[0])


def smallest(x: Tensor, axes: Axes) -> Tensor:
    if x.dtype == dtypes.bool_:
        return rows.all(x, axes=axes)
    return rows.amin(x, axes=axes) if x.numel() else nothing(x, axes, limits(x)[1])


def limits(x: Tensor) -> tuple[float, float]:
    """The smallest and the largest number of a dtype."""
    if x.is_floating_point:
        return -float("inf"), float("inf")
    info = np.iinfo(x.dtype)
    return int(info.min), int(info.max)


def nothing(x: Tensor, axes: Axes, value: float) -> Tensor:
    """What a reduction of no elements gives."""
    shape = tuple(1 if axis in axes else n for axis, n in enumerate(x.shape))
    return total(x, axes).to(x.dtype) * 0 + value if 0 not in shape else x.reshape(*shape)


def log_sum_exp(x: Tensor, axes: Axes) -> Tensor:
    if not x.numel():
        return total(x, axes).log()
    return rows.logsumexp(x, axes=axes)


# What is reduced, and what is done before and after.
FUNCTIONS: dict[str, Callable[[Tensor, Axes], Tensor]] = {
    "ReduceSum": total,
    "ReduceMean": average,
    "ReduceProd": product,
    "ReduceMax": largest,
    "ReduceMin": smallest,
    "ReduceL1": lambda x, axes: total(x.abs(), axes),
    "ReduceL2": lambda x, axes: total(x * x, axes).sqrt(),
    "ReduceSumSquare": lambda x, axes: total(x * x, axes),
    "ReduceLogSum": lambda x, axes: total(x, axes).log(),
    "ReduceLogSumExp": log_sum_exp,
}
ALONE: dict[str, Callable[[Tensor], Tensor]] = {
    "ReduceL1": Tensor.abs,
    "ReduceL2": Tensor.abs,
    "ReduceSumSquare": lambda x: x * x,
    "ReduceLogSum": Tensor.log,
}


def reduced(node: Node, x: Tensor, named: Axes | None) -> Tensor:
    """Over the axes named, or all; over none with noop_with_empty_axes."""
    axes = normal_axes(named, x.ndim) if named else tuple(range(x.ndim))
    if not named and node.get("noop_with_empty_axes", 0):
        out = ALONE.get(node.op, lambda x: x)(x)
    else:
        out = FUNCTIONS[node.op](x, axes)
        if not node.get("keepdims", 1):
            out = out.reshape(*(n for axis, n in enumerate(out.shape) if axis not in axes))
    return out if out.dtype == x.dtype else out.to(x.dtype)


def by_attribute(node: Node, x: Tensor) -> Tensor:
    axes = node.get("axes")
    return reduced(node, x, None if axes is None else tuple(axes))


def by_input(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return reduced(node, x, None if axes is None else node.integers(axes))


for _name in FUNCTIONS:
    operator(_name)(by_attribute)
    operator(_name, since=13 if _name == "ReduceSum" else 18, reads=(1,))(by_input)


# --- running ------------------------------------------------------------------------------------------------


def running(
    node: Node, x: Tensor, axis: int, function: Callable[[Tensor, int], Tensor], neutral: int
) -> Tensor:
    axis, n = normal_axis(axis, x.ndim), x.shape[normal_axis(axis, x.ndim)]
    back = bool(node.get("reverse", 0))
    x = x.flip(axis) if back else x
    if node.get("exclusive", 0) and n:
        first = (x.narrow(axis, 0, 1) * 0 + neutral).to(x.dtype)
        x = cat([first, x.narrow(axis, 0, n - 1)], axis)
    out = function(x, axis).to(x.dtype)
    return out.flip(axis) if back else out


def running_product(x: Tensor, axis: int) -> Tensor:
    """By doubling: log2 n products of whole tensors."""
    n, apart = x.shape[axis], 1
    while apart < n:
        later = x.narrow(axis, apart, n - apart) * x.narrow(axis, 0, n - apart)
        x = cat([x.narrow(axis, 0, apart), later], axis)
        apart *= 2
    return x


@operator("CumSum", since=11, reads=(1,))
def cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return running(node, x, node.integer(axis), Tensor.cumsum, 0)


@operator("CumProd", since=26, reads=(1,))
def cumulative_product(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    return running(node, x, node.integer(axis), running_product, 1)
