"""Rows brought to a common scale: softmax and the normalisations.

The gradients of the normalisations are rows too, so that a backend can do each in one kernel. Their own
derivatives are taken through the same formula written in tensor operators (`through`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod as product
from typing import Any

import numpy as np

from .. import tape
from ..tensor import Tensor
from ..view import normal_axes, normal_axis
from .elementwise import exp
from .parallel import each
from .reduce import count, fold_mean, fold_sum
from .table import Family, broadcast, define, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs, dtype = met(op, inputs)
    shape = inputs[0].layout.shape
    if "axis" in params:
        params["axis"] = normal_axis(params["axis"], len(shape))
    else:
        params["axes"] = normal_axes(params["axes"], len(shape))
    for x in inputs[1:]:
        if x.ndim == len(shape) + 1:  # statistics of rows
            if x.shape[:-1] != kept_shape(shape, params["axes"]) or x.shape[-1] not in WORDS.values():
                raise ValueError(f"{op.name}: statistics of shape {x.shape} for an input of shape {shape}")
        elif broadcast(op.name, shape, x.layout.shape) != shape or x.ndim != len(shape):
            raise ValueError(f"{op.name}: shape {x.shape} does not broadcast to {shape}, axis by axis")
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
#
# What several steps need to know of each row is a tensor: the folded axes have length 1, and a last axis has
#   moments          mean, what its rounding lost, variance, variance with Bessel's correction
#   normalize_sums   mean, what its rounding lost, 1/σ, slope = mean(g · x̂)/σ, mean g, Σ g, Σ g · x̂, 0
# so that batch normalisation looks at its input twice, and at the input and the gradient twice.

WORDS = {"moments": 4, "normalize_sums": 8}
PIECE = 1 << 16  # elements that are gone through at once, so that they stay in a core's cache
WORTH = 1 << 18  # elements from which all cores share the work
FEW = 1 << 12  # elements of which the calls cost more than the arithmetic


def kept_shape(shape: tuple, axes: tuple) -> tuple:
    return tuple([1 if axis in axes else n for axis, n in enumerate(shape)])


def infer_words(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs, shape, dtype = infer(op, inputs, params)
    return inputs, (*kept_shape(shape, params["axes"]), WORDS[op.name]), dtype


statistics = Family("statistics", infer_words)


def in_pieces(
    work: Callable[..., None], axes: tuple, out: np.ndarray, *arrays: np.ndarray | None
) -> np.ndarray:
    """Call ``work(out, *arrays)`` for parts of them that hold whole rows, and return `out`.

    All have the axes of the first array, or length 1 there; words may follow.
    """
    shape = arrays[0].shape  # type: ignore[union-attr]
    longest = max((a for a in range(len(shape)) if a not in axes), key=lambda a: shape[a], default=None)
    if longest is None or product(shape) <= PIECE:
        work(out, *arrays)
        return out
    n = shape[longest]
    step = max(1, n * PIECE // product(shape))

    def one(start: int) -> None:
        part = (slice(None),) * longest + (slice(start, start + step),)
        with np.errstate(all="ignore"):  # which each thread is told
            work(*(x if x is None or x.shape[longest] == 1 else x[part] for x in (out, *arrays)))

    each(one, range(0, n, step), product(shape) >= WORTH)
    return out


def moments_of(a: np.ndarray, axes: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and what its rounding lost, as the elements are, and the variance in float64."""
    exact = fold_mean(a, axes)
    mean = exact.astype(a.dtype)
    lost = exact - mean
    apart = np.subtract(a, mean, out=np.empty(a.shape, a.dtype))
    variance = fold_mean(np.square(apart, out=apart), axes) - np.square(lost)
    return mean, lost.astype(a.dtype), np.maximum(variance, 0)


def apart_from(
    mean: np.ndarray, lost: np.ndarray, a: np.ndarray, out: np.ndarray | None = None
) -> np.ndarray:
    """a - mean, where large means cost no digits."""
    out = np.subtract(a, mean, out=np.empty(a.shape, a.dtype) if out is None else out)
    out -= lost
    return out


def np_moments(a: np.ndarray, axes: tuple) -> np.ndarray:
    def work(out: np.ndarray, a: np.ndarray) -> None:
        out[..., 0], out[..., 1], variance = moments_of(a, axes)
        out[..., 2], out[..., 3] = variance, variance * bessel

    n = count(a.shape, axes)
    bessel = n / (n - 1) if n > 1 else np.nan
    return in_pieces(work, axes, np.empty((*kept_shape(a.shape, axes), WORDS["moments"]), a.dtype), a)


def np_normalize(
    a: np.ndarray,
    w: np.ndarray | None = None,
    b: np.ndarray | None = None,
    m: np.ndarray | None = None,
    *,
    axes: tuple,
    eps: float,
) -> np.ndarray:
    def work(out: np.ndarray, a: np.ndarray, w: Any, b: Any, m: Any) -> None:
        if m is None and a.size <= FEW:
            in_float64(out, a, w, b, axes, eps)
            return
        mean, lost, variance = moments_of(a, axes) if m is None else (m[..., 0], m[..., 1], m[..., 2])
        apart_from(mean, lost, a, out)
        scaled(out, variance, eps, w, axes)
        if b is not None:
            out += b

    return in_pieces(work, axes, np.empty(a.shape, a.dtype), a, w, b, m)


def in_float64(out: np.ndarray, a: np.ndarray, w: Any, b: Any, axes: tuple, eps: float) -> None:
    """The same with fewer calls, each of which costs more here than the elements do."""
    wide, n = a.astype(np.float64), count(a.shape, axes)
    wide -= np.add.reduce(wide, axes, keepdims=True) / n
    wide *= 1 / np.sqrt(np.add.reduce(np.square(wide), axes, keepdims=True) / n + eps)
    if w is not None:
        wide *= w
    if b is not None:
        wide += b
    out[...] = wide


def scaled(x: np.ndarray, variance: np.ndarray, eps: float, w: np.ndarray | None, axes: tuple) -> None:
    """Multiply in place by w / √(variance + eps)."""
    scale = one_over(variance, eps)
    if w is not None and constant_along(w.shape, axes):
        scale, w = scale * w, None
    x *= scale.astype(x.dtype)
    if w is not None:
        x *= w


def one_over(variance: np.ndarray, eps: float) -> np.ndarray:
    return 1 / np.sqrt(variance.astype(np.float64) + eps)


def constant_along(shape: tuple, axes: tuple) -> bool:
    """Whether a weight of this shape has one value for all that is brought to a common scale."""
    return all(shape[axis] == 1 for axis in axes)


def np_normalize_sums(g: np.ndarray, a: np.ndarray, m: np.ndarray, axes: tuple, eps: float) -> np.ndarray:
    def work(out: np.ndarray, g: np.ndarray, a: np.ndarray, m: np.ndarray) -> None:
        apart = apart_from(m[..., 0], m[..., 1], a)
        apart *= g
        scale, total, along = one_over(m[..., 2], eps), fold_sum(g, axes), fold_sum(apart, axes)
        out[..., :2], out[..., 2], out[..., 3] = m[..., :2], scale, along * np.square(scale) / n
        out[..., 4], out[..., 5], out[..., 6], out[..., 7] = total / n, total, along * scale, 0

    n = count(a.shape, axes)
    out = np.empty((*kept_shape(a.shape, axes), WORDS["normalize_sums"]), a.dtype)
    return in_pieces(work, axes, out, g, a, m)


def np_normalize_input(
    g: np.ndarray,
    a: np.ndarray,
    w: np.ndarray | None = None,
    s: np.ndarray | None = None,
    *,
    axes: tuple,
    eps: float,
) -> np.ndarray:
    def work(out: np.ndarray, g: np.ndarray, a: np.ndarray, w: Any, s: Any) -> None:
        mean, lost, *others = moments_of(a, axes) if s is None else (s[..., at] for at in range(5))
        apart = apart_from(mean, lost, a)
        if s is None:  # most of g may be its mean, which is taken away before anything is rounded
            scale, average = one_over(others[0], eps), fold_mean(g, axes)
            slope = fold_mean(g * apart, axes) * np.square(scale)
        else:
            scale, slope, average = others
        np.subtract(g, average, out=out, casting="same_kind")
        apart *= slope.astype(a.dtype)
        out -= apart
        out *= (scale if w is None else scale * w).astype(a.dtype)

    if w is not None and not constant_along(w.shape, axes):
        g, w = g * w, None
    return in_pieces(work, axes, np.empty(a.shape, a.dtype), g, a, w, s)


def normalize_input_formula(a: Tensor, g: Tensor, *w: Tensor, axes: tuple, eps: float) -> Tensor:
    apart = a - a.mean(axes, keepdim=True)
    scale = ((apart * apart).mean(axes, keepdim=True) + eps).rsqrt()
    hat = apart * scale
    g = g * w[0] if w else g
    return scale * (g - g.mean(axes, keepdim=True) - hat * (g * hat).mean(axes, keepdim=True))


def scale_of(g: Tensor, a: Tensor, shape: tuple, axes: tuple, eps: float) -> Tensor:
    """The gradient of the weight: Σ g · x̂ over what it is repeated along."""
    return (g * normalize(a, axes=axes, eps=eps)).sum_to(shape)


def normalize_rule(
    g: Tensor,
    out: Tensor,
    a: Tensor,
    w: Tensor | None = None,
    b: Tensor | None = None,
    m: Tensor | None = None,
    *,
    needs: Sequence[bool],
    axes: tuple,
    eps: float,
) -> tuple:
    """Of all inputs; from shared sums where the moments are known, and nothing differentiates further."""
    p = {"axes": axes, "eps": eps}
    if w is None or m is None or tape.mode.grad or w.shape != kept_shape(a.shape, axes):
        slope = scale_of(g, a, w.shape, **p) if w is not None and needs[1] else None
        return normalize_input(g, a, *given(w), **p) if needs[0] else None, slope, g, None
    sums = normalize_sums(g, a, m, **p)
    return normalize_input(g, a, w, sums, **p) if needs[0] else None, sums[..., 6], sums[..., 5], None


moments = define(statistics, "moments", np_moments, None, takes="strict float")
normalize_sums = define(
    statistics, "normalize_sums", np_normalize_sums, None, None, None, takes="strict float"
)
normalize = define(  # m: the moments of a where they are known, no input of their own
    rows, "normalize", np_normalize, normalize_rule, takes="strict float", joint=True
)
normalize_input = define(  # s: the sums of g and a where they are known; they are not differentiated
    rows,
    "normalize_input",
    np_normalize_input,
    # Linear in g; without a weight, symmetric as well.
    lambda h, out, g, a, w=None, s=None, **p: weighted(normalize_input(h, a, **p), w),
    lambda h, out, g, a, w=None, s=None, **p: through(
        lambda a, g, *w: normalize_input_formula(a, g, *w, **p), h, a, g, *given(w)
    ),
    lambda h, out, g, a, w, s=None, **p: normalize_input(h, a, **p) * g,
    None,
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


def np_rms_normalize(a: np.ndarray, w: np.ndarray | None = None, *, axes: tuple, eps: float) -> np.ndarray:
    out = a * rms_scale(a, axes, eps)
    return out if w is None else np.multiply(out, w, out=out)


rms_normalize = define(
    rows,
    "rms_normalize",
    np_rms_normalize,
    lambda g, out, a, w=None, **p: rms_normalize_input(weighted(g, w), a, **p),
    lambda g, out, a, w, **p: (g * rms_normalize(a, **p)).sum_to(w.shape),
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
