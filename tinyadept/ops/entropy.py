"""Cross-entropy of logits with classes, row by row, without storing the softmax."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from .elementwise import where
from .norm import softmax
from .table import Family, define


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    """Logits (N, C) and labels (N,) give losses (N,); a gradient (N,) before them gives one of the logits."""
    *g, logits, labels = inputs
    n = logits.layout.shape[:1]
    if logits.ndim != 2 or labels.shape != n or any(x.shape != n for x in g):
        got = ", ".join(str(x.shape) for x in inputs)
        raise ValueError(f"{op.name}: expected shapes (N, C) and (N,), got {got}")
    if labels.dtype not in (dtypes.int32, dtypes.int64) or logits.dtype not in dtypes.FLOATS:
        got = f"{logits.dtype.name} and {labels.dtype.name}"
        raise TypeError(f"{op.name} takes floating-point logits and labels of int32 or int64, got {got}")
    return inputs, logits.shape if g else n, logits.dtype


entropy = Family("entropy", infer)


def known(labels: np.ndarray, classes: int, ignore: int) -> tuple[np.ndarray, np.ndarray]:
    """Which labels count, and all of them with 0 for the others.

    Raises
    ------
    IndexError
        If one that counts is no class.
    """
    counts = labels != ignore
    wrong = counts & ((labels < 0) | (labels >= classes))
    if wrong.any():
        label = labels[wrong][0]
        raise IndexError(f"cross_entropy: index {label} is out of range for an axis of length {classes}")
    return counts, np.where(counts, labels, 0)


def np_cross_entropy(logits: np.ndarray, labels: np.ndarray, ignore: int, smoothing: float) -> np.ndarray:
    counts, labels = known(labels, logits.shape[1], ignore)
    if not logits.size:
        return np.zeros(len(labels), logits.dtype)
    apart = logits - logits.max(1, keepdims=True)
    total = np.log(np.exp(apart).sum(1, dtype=np.float64))
    wanted = (1 - smoothing) * np.take_along_axis(apart, labels[:, None], 1)[:, 0]
    if smoothing:
        wanted = wanted + smoothing * apart.mean(1, dtype=np.float64)
    return np.where(counts, total - wanted, 0).astype(logits.dtype)


def np_cross_entropy_input(
    g: np.ndarray, logits: np.ndarray, labels: np.ndarray, ignore: int, smoothing: float
) -> np.ndarray:
    counts, labels = known(labels, logits.shape[1], ignore)
    if not logits.size:
        return np.zeros_like(logits)
    grad = np.exp(logits - logits.max(1, keepdims=True))
    grad /= grad.sum(1, dtype=np.float64, keepdims=True).astype(grad.dtype)
    if smoothing:
        grad -= grad.dtype.type(smoothing / logits.shape[1])
    grad[np.arange(len(labels)), labels] -= grad.dtype.type(1 - smoothing)
    grad *= np.where(counts, g, 0)[:, None].astype(grad.dtype)
    grad[~counts] = 0  # whatever the logits are
    return grad


def bent(h: Tensor, g: Tensor, logits: Tensor, labels: Tensor, ignore: int) -> Tensor:
    """The gradient of `cross_entropy_input` with respect to the logits."""
    p = softmax(logits, axis=1)
    along = p * (h - (p * h).sum(1, keepdim=True))
    return where((labels == ignore).unsqueeze(1), 0.0, along * g.unsqueeze(1))


cross_entropy = define(
    entropy,
    "cross_entropy",
    np_cross_entropy,
    lambda g, out, logits, labels, **p: cross_entropy_input(g, logits, labels, **p),
    None,
    takes="strict float",
    ulps=8.0,
)
cross_entropy_input = define(
    entropy,
    "cross_entropy_input",
    np_cross_entropy_input,
    lambda h, out, g, logits, labels, **p: (h * unit(logits, labels, **p)).sum(1),
    lambda h, out, g, logits, labels, ignore, smoothing: bent(h, g, logits, labels, ignore),
    None,
    takes="strict float",
    ulps=8.0,
)


def unit(logits: Tensor, labels: Tensor, **params: Any) -> Tensor:
    """The gradient for an incoming one of ones."""
    ones = (logits[:, 0] * 0.0 + 1.0).detach() if logits.shape[1] else logits.sum(1)
    return cross_entropy_input(ones, logits, labels, **params)
