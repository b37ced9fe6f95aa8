"""Ops that fold axes into one element, and running sums. Folded axes stay, with length 1."""

from __future__ import annotations

from math import prod as product
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..view import normal_axes, normal_axis
from .elementwise import exp, where
from .table import Family, define, met, operands


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    (x,), dtype = met(op, inputs)
    before = x.layout.shape
    axes = params["axes"] = normal_axes(params["axes"], len(before))
    if op.name in NEEDS_ELEMENTS and 0 in [before[a] for a in axes]:
        raise ValueError(f"{op.name} over axes {axes} of shape {before}: there is nothing to choose from")
    shape = tuple([1 if axis in axes else n for axis, n in enumerate(before)])
    return (x,), shape, op.gives(dtype) if callable(op.gives) else op.gives or dtype


def infer_scan(op: Any, inputs: tuple, params: dict) -> tuple:
    (x,) = operands(op, inputs)
    params["axis"] = normal_axis(params["axis"], x.ndim)
    return (x,), x.shape, op.gives(x.dtype)


reduction = Family("reduce", infer)
scan = Family("scan", infer_scan)
NEEDS_ELEMENTS = {"amax", "amin", "argmax", "argmin"}


def total_dtype(dtype: np.dtype) -> np.dtype:
    """Sums of booleans and of small integers are int32."""
    return dtypes.int32 if dtypes.RUNG[dtype] < dtypes.RUNG[dtypes.int32] else dtype


def accumulator(a: np.ndarray) -> type:
    return np.float64 if a.dtype.kind == "f" else np.int64


def fold_sum(a: np.ndarray, axes: tuple) -> np.ndarray:
    return a.sum(axes, dtype=accumulator(a), keepdims=True)


def count(shape: tuple, axes: tuple) -> int:
    return product(shape[a] for a in axes)


def fold_mean(a: np.ndarray, axes: tuple) -> np.ndarray:
    return fold_sum(a, axes) / count(a.shape, axes)


def fold_var(a: np.ndarray, axes: tuple, correction: float) -> np.ndarray:
    """Two passes: the mean first, so that large means cost no digits."""
    apart = a - fold_mean(a, axes)
    return np.true_divide(
        np.square(apart).sum(axes, keepdims=True), max(count(a.shape, axes) - correction, 0)
    )


def fold_norm(a: np.ndarray, axes: tuple) -> np.ndarray:
    return np.sqrt(np.square(a, dtype=np.float64).sum(axes, keepdims=True))


def fold_logsumexp(a: np.ndarray, axes: tuple) -> np.ndarray:
    top = np.max(a, axis=axes, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0)
    return np.log(np.exp(np.subtract(a, shift, dtype=np.float64)).sum(axes, keepdims=True)) + shift


def fold_arg(pick: Any) -> Any:
    return lambda a, axes: pick(a, axis=axes[0] if axes else None, keepdims=True).astype(np.int32)


def others(out: Tensor, a: Tensor, axes: tuple) -> Tensor:
    """The product of all elements but this one, right also where some are zero."""
    zero = a == 0
    zeros, safe = zero.sum(axes, keepdim=True), where(zero, 1.0, a)
    alone = where(zeros == 1, prod(safe, axes=axes), 0.0)
    return where(zero, alone, where(zeros == 0, out / safe, 0.0))


def shared(g: Tensor, out: Tensor, a: Tensor, axes: tuple) -> Tensor:
    """Elements that tie for the extreme get equal parts; NaN ties with NaN."""
    best = (a == out) | (a.isnan() & out.isnan())
    return where(best, g / best.sum(axes, keepdim=True), 0.0)


sum = define(reduction, "sum", fold_sum, lambda g, out, a, axes: g.expand(a.shape), gives=total_dtype)
mean = define(
    reduction,
    "mean",
    fold_mean,
    lambda g, out, a, axes: (g * (1 / max(count(a.shape, axes), 1))).expand(a.shape),
    takes="strict float",
)
prod = define(
    reduction,
    "prod",
    lambda a, axes: a.prod(axes, dtype=accumulator(a), keepdims=True),
    lambda g, out, a, axes: g * others(out, a, axes),
    gives=total_dtype,
)
amax = define(
    reduction,
    "amax",
    lambda a, axes: a.max(axes, keepdims=True),
    lambda g, out, a, axes: shared(g, out, a, axes),
)
amin = define(
    reduction,
    "amin",
    lambda a, axes: a.min(axes, keepdims=True),
    lambda g, out, a, axes: shared(g, out, a, axes),
)
argmax = define(reduction, "argmax", fold_arg(np.argmax), None, gives=dtypes.int32)
argmin = define(reduction, "argmin", fold_arg(np.argmin), None, gives=dtypes.int32)
any = define(reduction, "any", lambda a, axes: a.any(axes, keepdims=True), None, gives=dtypes.bool_)
all = define(reduction, "all", lambda a, axes: a.all(axes, keepdims=True), None, gives=dtypes.bool_)
var = define(
    reduction,
    "var",
    fold_var,
    lambda g, out, a, axes, correction: (
        (
            g
            * (
                2 / max(count(a.shape, axes) - correction, 0)
                if count(a.shape, axes) > correction
                else float("nan")
            )
        )
        * (a - a.mean(axes, keepdim=True))
    ),
    takes="strict float",
)
norm = define(  # Euclidean; its gradient at zero is zero
    reduction,
    "norm",
    fold_norm,
    lambda g, out, a, axes: a * (g / where(out == 0, 1.0, out)),
    takes="strict float",
)
logsumexp = define(
    reduction,
    "logsumexp",
    fold_logsumexp,
    lambda g, out, a, axes: g * exp(a - where(out == -float("inf"), 0.0, out)),
    takes="float",
    ulps=8.0,
)
cumsum = define(
    scan,
    "cumsum",
    lambda a, axis: a.cumsum(axis if a.ndim else None, dtype=accumulator(a)).reshape(a.shape),
    lambda g, out, a, axis: cumsum(g.flip(axis), axis=axis).flip(axis),
    gives=total_dtype,
)
