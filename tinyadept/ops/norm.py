"""Rows brought to a common scale: softmax and the normalisations.

The gradients of the normalisations are rows too, so that a backend can do each in one kernel. Their own
derivatives are taken through the same formula written in tensor operators (`through`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import tape
from ..tensor import Tensor
from ..view import normal_axes, normal_axis
from .elementwise import exp
from .reduce import fold_mean
from .table import Family, broadcast, define, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs, dtype = met(op, inputs)
    shape = inputs[0].layout.shape
    for x in inputs[1:]:
        if broadcast(op.name, shape, x.layout.shape) != shape or x.ndim != len(shape):
            raise ValueError(f"{op.name}: shape {x.shape} does not broadcast to {shape}, axis by axis")
    if "axis" in params:
        params["axis"] = normal_axis(params["axis"], len(shape))
    else:
        params["axes"] = normal_axes(params["axes"], len(shape))
    return inputs, shape, dtype


rows = Family("norm", infer)


def through(formula: Callable[..., Tensor], g: Tensor, *inputs: Tensor) -> Tensor:
    """The gradient of ``formula(*inputs)`` with respect to its first input, differentiable again."""
    with tape.enable_grad():
        if inputs[
            0
        ].requires_grad:  # through a step of its own, so that hooks of the input see nothing of this
            first = inputs[0].permute(*range(inputs[0].ndim))
        else:
            first = inputs[0].detach().requires_grad_()
        out = formula(first, *inputs[1:])
    return tape.grad(out, first, g, create_graph=tape.mode.grad)[0]


def np_softmax(a: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(a - top(a, axis))
    return e / e.sum(axis if a.ndim else None, dtype=np.float64, keepdims=True).astype(a.dtype)


def np_log_softmax(a: np.ndarray, axis: int) -> np.ndarray:
    shifted = a - top(a, axis)
    total = np.exp(shifted).sum(axis if a.ndim else None, dtype=np.float64, keepdims=True)
    return shifted - np.log(total)


def top(a: np.ndarray, axis: int) -> np.ndarray:
    return a.max(axis, keepdims=True, initial=-np.inf) if a.ndim else a


softmax = define(
    rows,
    "softmax",
    np_softmax,
    lambda g, out, a, axis: out * (g - (g * out).sum(axis, keepdim=True)),
    takes="strict float",
    ulps=8.0,
)
log_softmax = define(
    rows,
    "log_softmax",
    np_log_softmax,
    lambda g, out, a, axis: g - exp(out) * g.sum(axis, keepdim=True),
    takes="strict float",
    ulps=8.0,
)


# --- x̂ = (x - mean) / √(var + eps): layer, group, instance and batch normalisation differ in axes


def np_normalize(
    a: np.ndarray, w: np.ndarray | None = None, b: np.ndarray | None = None, *, axes: tuple, eps: float
) -> np.ndarray:
    apart, scale = centred(a, axes, eps)
    if w is None:
        apart *= scale
    elif constant_along(w.shape, axes):
        apart *= scale * w
    else:
        apart *= scale
        apart *= w
    return apart if b is None else np.add(apart, b, out=apart)


def centred(a: np.ndarray, axes: tuple, eps: float) -> tuple[np.ndarray, np.ndarray]:
    mean = fold_mean(a, axes)
    apart = np.subtract(a, mean, out=np.empty_like(a, order="C"), casting="same_kind")  # rounded once
    square = fold_mean(np.square(apart), axes)
    return apart, (1 / np.sqrt(square + eps)).astype(a.dtype)


def constant_along(shape: tuple, axes: tuple) -> bool:
    """Whether a weight of this shape has one value for all that is brought to a common scale."""
    return all(shape[axis] == 1 for axis in axes)


def np_normalize_input(
    g: np.ndarray, a: np.ndarray, w: np.ndarray | None = None, *, axes: tuple, eps: float
) -> np.ndarray:
    apart, scale = centred(a, axes, eps)
    apart *= scale  # x̂
    if w is not None and not constant_along(w.shape, axes):
        g, w = g * w, None
    along = fold_mean(g * apart, axes).astype(a.dtype)
    # Most of g may be its mean, which is taken away before anything is rounded.
    rest = np.subtract(g, fold_mean(g, axes), out=np.empty_like(apart), casting="same_kind")
    apart *= along
    rest -= apart
    rest *= scale if w is None else scale * w
    return rest


def normalize_input_formula(a: Tensor, g: Tensor, *w: Tensor, axes: tuple, eps: float) -> Tensor:
    apart = a - a.mean(axes, keepdim=True)
    scale = ((apart * apart).mean(axes, keepdim=True) + eps).rsqrt()
    hat = apart * scale
    g = g * w[0] if w else g
    return scale * (g - g.mean(axes, keepdim=True) - hat * (g * hat).mean(axes, keepdim=True))


def scale_of(g: Tensor, a: Tensor, shape: tuple, axes: tuple, eps: float) -> Tensor:
    """The gradient of the weight: Σ g · x̂ over what it is repeated along."""
    return (g * normalize(a, axes=axes, eps=eps)).sum_to(shape)


normalize = define(
    rows,
    "normalize",
    np_normalize,
    lambda g, out, a, w=None, b=None, **p: normalize_input(g, a, *given(w), **p),
    lambda g, out, a, w, b=None, **p: scale_of(g, a, w.shape, **p),
    lambda g, out, a, w, b, **p: g,
    takes="strict float",
)
normalize_input = define(
    rows,
    "normalize_input",
    np_normalize_input,
    # Linear in g; without a weight, symmetric as well.
    lambda h, out, g, a, w=None, **p: weighted(normalize_input(h, a, **p), w),
    lambda h, out, g, a, w=None, **p: through(
        lambda a, g, *w: normalize_input_formula(a, g, *w, **p), h, a, g, *given(w)
    ),
    lambda h, out, g, a, w, **p: normalize_input(h, a, **p) * g,
    takes="strict float",
)


def given(w: Tensor | None) -> tuple[Tensor, ...]:
    return () if w is None else (w,)


def weighted(x: Tensor, w: Tensor | None) -> Tensor:
    return x if w is None else x * w


# --- x̂ = x / √(mean x² + eps) -------------------------------------------------------------------------


def rms_scale(a: np.ndarray, axes: tuple, eps: float) -> np.ndarray:
    return (1 / np.sqrt(fold_mean(np.square(a), axes) + eps)).astype(a.dtype)


def np_rms_normalize_input(g: np.ndarray, a: np.ndarray, axes: tuple, eps: float) -> np.ndarray:
    scale = rms_scale(a, axes, eps)
    hat = a * scale
    return scale * (g - hat * fold_mean(g * hat, axes).astype(a.dtype))


def rms_normalize_input_formula(a: Tensor, g: Tensor, axes: tuple, eps: float) -> Tensor:
    scale = ((a * a).mean(axes, keepdim=True) + eps).rsqrt()
    hat = a * scale
    return scale * (g - hat * (g * hat).mean(axes, keepdim=True))


rms_normalize = define(
    rows,
    "rms_normalize",
    lambda a, axes, eps: a * rms_scale(a, axes, eps),
    lambda g, out, a, axes, eps: rms_normalize_input(g, a, axes=axes, eps=eps),
    takes="strict float",
)
rms_normalize_input = define(
    rows,
    "rms_normalize_input",
    np_rms_normalize_input,
    lambda h, out, g, a, axes, eps: rms_normalize_input(h, a, axes=axes, eps=eps),
    lambda h, out, g, a, axes, eps: through(
        lambda a, g: rms_normalize_input_formula(a, g, axes, eps), h, a, g
    ),
    takes="strict float",
)
