"""How far a result may lie from the truth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from ..ops import attention, registry, winograd
from ..ops.update import updating

if TYPE_CHECKING:
    from .case import Case

EPS = float(np.finfo(np.float32).eps)
ROUNDINGS = 16  # in one step of an optimiser
SMALLEST = 2.0**-126  # of the normal float32 numbers
STEEPEST = {"silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}  # slopes; those of other activations are 1 at most


def bound(case: Case, truth: np.ndarray) -> np.ndarray:
    """How far each element of a float32 result may lie from the truth.

    So many ulps, and for sums the rounding bound n · eps · Σ|terms| of n terms.
    """
    allowed = case.op.ulps * EPS * np.abs(truth) + SMALLEST
    if (activation := case.params.get("activation")) is not None:
        return allowed + activated_bound(case, activation)
    if case.op.name in SUMS:
        return allowed + case.op.ulps * EPS * SUMS[case.op.name](case)
    terms, params = TERMS.get(case.op.name), case.params
    if case.op.family is updating:
        first, *others = params["numbers"]
        if case.op.forward.numbers[0] in ("lr", "rate"):  # type: ignore[attr-defined]
            first = -first  # what is subtracted counts too
        terms, params = lambda case: ROUNDINGS, {"numbers": (first, *others)}
    if terms is None:
        return allowed
    sizes = tuple(replace(x, memory=np.abs(x.memory)) if x.is_float else x for x in case.inputs)
    return allowed + terms(case) * EPS * np.abs(replace(case, inputs=sizes, params=params).truth())


def activated_bound(case: Case, activation: str) -> np.ndarray:
    """What an activation makes of a product's bound: its steepest slope times as much, and its own ulps."""
    product = replace(case, params={name: x for name, x in case.params.items() if name != "activation"})
    truth = product.truth()
    if not activation:
        return bound(product, truth)
    after = registry[activation]
    with np.errstate(all="ignore"):
        own = after.ulps * EPS * np.abs(after.forward(truth))
    return STEEPEST.get(activation, 1.0) * bound(product, truth) + own


def mismatch(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray | float) -> np.ndarray:
    """Where a result is wrong: NaN must meet NaN and infinity the same infinity."""
    with np.errstate(all="ignore"):
        rounded = truth.astype(got.dtype)
        if got.dtype.kind != "f":
            return got != rounded
        close = np.abs(got.astype(np.float64) - truth) <= allowed
        return ~(close | (got == rounded) | (np.isnan(got) & np.isnan(truth)))


def ulps(got: np.generic, truth: np.generic) -> float:
    """How far a number lies from the truth, in units of the last place that float32 has there."""
    if got == truth:
        return 0.0
    with np.errstate(all="ignore"):
        apart = abs(float(got) - float(truth))
        if got.dtype.kind != "f":
            return apart
        unit = float(np.spacing(np.float32(max(abs(float(truth)), SMALLEST))))
    return apart / unit if np.isfinite(apart) else float("inf")


def folded(case: Case) -> int:
    shape = case.inputs[0].view.shape
    return prod(shape[a] for a in case.params["axes"])


def everything(case: Case) -> int:
    return prod(case.inputs[0].view.shape)


# Of how many terms an element is the sum. Σ|terms| is then what the op makes of the inputs' absolute values.
TERMS: dict[str, Callable[[Case], int]] = {
    "sum": folded,
    "mean": folded,
    "cumsum": lambda case: (case.inputs[0].view.shape or (1,))[case.params["axis"]],
    "matmul": lambda case: case.inputs[0].view.shape[-1] + 1,
    "linear": lambda case: case.inputs[0].view.shape[-1] + 3,
    "conv": lambda case: prod(case.inputs[1].view.shape[1:]) + len(case.inputs) - 1,  # with a bias or without
    "conv_input": lambda case: prod(case.inputs[1].view.shape) + 1,
    "conv_weight": everything,
    "put_add": everything,
    "put_along_add": everything,
    "pool_put": everything,
    "avg_pool": lambda case: prod(case.params["kernel"]) + 1,
    "avg_pool_input": lambda case: prod(case.params["kernel"]) + 1,
    "resample": lambda case: 4 * len(case.params["sizes"]),
    "resample_input": everything,
    "silu_input": lambda case: 6,
    "addcmul": lambda case: 2,
    "lerp": lambda case: 3,
}


# Roundings of all of Winograd's transforms together, by the side of the tiles: terms of a row of each.
WINOGRAD = {2: 4 + 9 + 9, 4: 16 + 9 + 25}


def winograd_bound(case: Case, side: int) -> np.ndarray:
    """How far a convolution made of such tiles may lie from the truth, `conv` with steps of one.

    n · eps · Σ|terms| again, of the terms that are added this way, in which weights meet cells that the
    definition does not multiply them with: |A| [(|G| |w| |Gᵀ|) ⊙ (|Bᵀ| |d| |B|)] |Aᵀ|.
    """
    x, w, *more = (np.abs(given.values.astype(np.float64)) for given in case.inputs)
    bias = more[0] if more else np.zeros(len(w))
    padding, groups = case.params["padding"], case.params["groups"]
    out = tuple(n + a + b - 2 for n, (a, b) in zip(x.shape[2:], padding, strict=True))
    cells, weights, back = map(np.abs, winograd.transforms(side, np.dtype(np.float64)))
    terms = winograd.forward(x, w, bias, padding, out, groups, side, (cells, weights, back))
    return (w.shape[1] + WINOGRAD[side]) * EPS * terms + SMALLEST


def normalised_terms(case: Case) -> np.ndarray:
    """Of a normalisation's gradient: scale · (|g| + mean |g| + |x̂| · mean |g · x̂|)."""
    g, a, *w = (x.values.astype(np.float64) for x in case.inputs)
    g = g * w[0] if w else g
    axes, centred = case.params["axes"], not case.op.name.startswith("rms")
    apart = a - a.mean(axes, keepdims=True) if centred else a
    scale = 1 / np.sqrt(np.square(apart).mean(axes, keepdims=True) + case.params["eps"])
    hat = np.abs(apart * scale)
    g = np.abs(g)
    return scale * (g + g.mean(axes, keepdims=True) + hat * (g * hat).mean(axes, keepdims=True))


def moments_terms(case: Case) -> np.ndarray:
    """Of moments: the mean of |a| for the mean, and for what its rounding lost."""
    (a,), axes = (x.values.astype(np.float64) for x in case.inputs), case.params["axes"]
    size = np.abs(a).mean(axes, keepdims=True)
    return np.stack([size, size, np.zeros_like(size), np.zeros_like(size)], -1)


def sums_terms(case: Case) -> np.ndarray:
    """Of the sums of a normalisation's gradient: those of absolute values, and what is made of them."""
    g, a, m = (x.values.astype(np.float64) for x in case.inputs)
    axes, scale = case.params["axes"], 1 / np.sqrt(m[..., 2] + case.params["eps"])
    n = folded(case)
    total = np.abs(g).sum(axes, keepdims=True)
    along = np.abs(g * (a - m[..., 0] - m[..., 1])).sum(axes, keepdims=True) * scale
    none, mean = np.zeros_like(scale), np.abs(m[..., 0])
    return np.stack([mean, mean, none, along * scale / n, total / n, total, along, none], -1)


def affine_terms(case: Case) -> np.ndarray:
    """Of a normalisation: what the mean is off by, times the scale, and with weight and bias |x̂ · w| + |b|.

    The mean is kept as two float32 numbers, so that it is off by eps² of what is summed.
    """
    a, *others = (x.values.astype(np.float64) for x in case.inputs)
    axes = case.params["axes"]
    if not a.size:
        return np.zeros(a.shape)
    scale = 1 / np.sqrt(a.var(axes, keepdims=True) + case.params["eps"])
    apart = EPS * np.abs(a).mean(axes, keepdims=True) * scale * np.ones_like(a)
    if not others:
        return apart
    scaled = np.abs(replace(case, inputs=case.inputs[:2]).truth())
    return apart * np.abs(others[0]) + scaled + sum(np.abs(x) for x in others[1:2])


def entropy_terms(case: Case) -> np.ndarray:
    """Of a cross-entropy: log Σ exp and the logits that are subtracted, all from the largest one on."""
    logits = case.inputs[0].values.astype(np.float64)
    return 2 * np.ptp(logits, 1) + np.log(logits.shape[1])


def entropy_input_terms(case: Case) -> np.ndarray:
    """Of its gradient: |g| · (softmax + what is subtracted from it, 1 in all)."""
    g, logits, _ = (x.values.astype(np.float64) for x in case.inputs)
    parts = np.exp(logits - logits.max(1, keepdims=True, initial=-np.inf))
    return np.abs(g)[:, None] * (parts / parts.sum(1, keepdims=True) + 1)


def attention_terms(case: Case) -> np.ndarray:
    """Of an attention: weights times |values|, for each key and for each rounding of the scores."""
    q, k, v, *rest = (x.values for x in case.inputs)
    p, roundings = attention_weights(q, k, rest, case.params["scale"])
    terms = p @ np.abs(v[:, :, None].astype(np.float64)) * (k.shape[2] + roundings)
    return terms.reshape(*q.shape[:3], v.shape[3])


def attention_weights(q: np.ndarray, k: np.ndarray, rest: list, scale: float) -> tuple:
    """The weights (B, K, H/K, T, S) in float64, and how many roundings their relative error amounts to."""
    (b, h, t, d), heads = q.shape, k.shape[1]
    q, k = q.reshape(b, heads, h // heads, t, d).astype(np.float64), k[:, :, None].astype(np.float64)
    start, mask = (*rest, None, None)[:2]
    with np.errstate(all="ignore"):
        p = attention.weights(q, k, start, mask, slice(0, t), scale)
    largest = scale * np.max(np.abs(q) @ np.abs(k).swapaxes(-1, -2), initial=0)
    if mask is not None:
        largest += np.max(np.abs(mask), initial=0, where=np.isfinite(mask))
    return p, 2 * (d + 4) * largest + 8


def attention_input_terms(case: Case) -> np.ndarray:
    """Of its gradients, flattened one behind another."""
    g, q, k, v, *rest = (x.values for x in case.inputs)
    p, roundings = attention_weights(q, k, rest, case.params["scale"])
    g, q = (np.abs(x.astype(np.float64)).reshape(*p.shape[:4], x.shape[3]) for x in (g, q))
    k, v = (np.abs(x[:, :, None].astype(np.float64)) for x in (k, v))
    slope = g @ v.swapaxes(-1, -2)
    slope = case.params["scale"] * p * (slope + (slope * p).sum(-1, keepdims=True))
    dq, dk = slope @ k, (slope.swapaxes(-1, -2) @ q).sum(2)
    dv = (p.swapaxes(-1, -2) @ g).sum(2)
    terms = np.concatenate([x.ravel() for x in (dq, dk, dv)])
    return terms * (2 * roundings + k.shape[3] + g.shape[3] * g.shape[4] * g.shape[2] + 8)


def rotary_terms(case: Case) -> np.ndarray:
    """Of a rotation: |a · cos| + |b · sin|."""
    x, table, positions = case.inputs
    sizes = (replace(y, memory=np.abs(y.memory)) for y in (x, table))
    params = {**case.params, "inverse": False}
    turned = replace(case, inputs=(*sizes, positions), params=params)
    opposite = replace(turned, params={**params, "inverse": True})
    return np.maximum(np.abs(turned.truth()), np.abs(opposite.truth()))


def bce_terms(case: Case) -> np.ndarray:
    """Of a binary cross-entropy of logits: |x · (step(x) - t)| + log(1 + exp(-|x|))."""
    x, t = (x.values.astype(np.float64) for x in case.inputs)
    with np.errstate(all="ignore"):
        return np.abs(x * ((x > 0) - t)) + np.log1p(np.exp(-np.abs(x)))


# Σ|terms| of ops whose terms cannot be had that way.
SUMS: dict[str, Callable[[Case], np.ndarray]] = {
    "attention": attention_terms,
    "attention_input": attention_input_terms,
    "rotary": rotary_terms,
    "bce_logits": bce_terms,
    "bce_slope": lambda case: np.ones(case.inputs[0].view.shape),
    "cross_entropy": entropy_terms,
    "cross_entropy_input": entropy_input_terms,
    "moments": moments_terms,
    "normalize": affine_terms,
    "normalize_input": normalised_terms,
    "normalize_sums": sums_terms,
    "rms_normalize_input": normalised_terms,
}
