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
from .table import Family, define, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs, dtype = met(op, inputs)
    shape = inputs[0].layout.shape
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


def np_normalize(a: np.ndarray, axes: tuple, eps: float) -> np.ndarray:
    apart, scale = centred(a, axes, eps)
    return np.multiply(apart, scale, out=apart)


def centred(a: np.ndarray, axes: tuple, eps: float) -> tuple[np.ndarray, np.ndarray]:
    mean = fold_mean(a, axes)
    apart = np.subtract(a, mean, out=np.empty_like(a, order="C"), casting="same_kind")  # rounded once
    square = fold_mean(np.square(apart), axes)
    return apart, (1 / np.sqrt(square + eps)).astype(a.dtype)


def np_normalize_input(g: np.ndarray, a: np.ndarray, axes: tuple, eps: float) -> np.ndarray:
    apart, scale = centred(a, axes, eps)
    apart *= scale  # x̂
    along = fold_mean(g * apart, axes).astype(a.dtype)
    return scale * (g - fold_mean(g, axes).astype(a.dtype) - apart * along)


def normalize_input_formula(a: Tensor, g: Tensor, axes: tuple, eps: float) -> Tensor:
    apart = a - a.mean(axes, keepdim=True)
    scale = ((apart * apart).mean(axes, keepdim=True) + eps).rsqrt()
    hat = apart * scale
    return scale * (g - g.mean(axes, keepdim=True) - hat * (g * hat).mean(axes, keepdim=True))


normalize = define(
    rows,
    "normalize",
    np_normalize,
    lambda g, out, a, axes, eps: normalize_input(g, a, axes=axes, eps=eps),
    takes="strict float",
)
normalize_input = define(
    rows,
    "normalize_input",
    np_normalize_input,
    lambda h, out, g, a, axes, eps: normalize_input(h, a, axes=axes, eps=eps),  # linear and symmetric in g
    lambda h, out, g, a, axes, eps: through(lambda a, g: normalize_input_formula(a, g, axes, eps), h, a, g),
    takes="strict float",
)


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
