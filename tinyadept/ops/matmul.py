"""Matrix products, batched and broadcast."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from .activation import activate, activated
from .table import Family, broadcast, define, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    (a, b), dtype = met(op, inputs)
    left, right = a.layout.shape, b.layout.shape
    if len(left) < 2 or len(right) < 2 or left[-1] != right[-2]:
        raise ValueError(f"matmul: shapes {left} and {right} do not fit: expected (…, n, k) and (…, k, m)")
    batch = broadcast("matmul", left[:-2], right[:-2]) if len(left) > 2 or len(right) > 2 else ()
    return (a, b), (*batch, left[-2], right[-1]), dtype


product = Family("matmul", infer)

matmul = define(
    product,
    "matmul",
    np.matmul,
    lambda g, out, a, b: matmul(g, b.mT),  # (…, n, m) @ (…, m, k)
    lambda g, out, a, b: matmul(a.mT, g),  # (…, k, n) @ (…, n, m)
    takes="number",
)


def infer_linear(op: Any, inputs: tuple, params: dict) -> tuple:
    ready, dtype = met(op, inputs)
    x, w = ready[0].layout.shape, ready[1].layout.shape
    if len(x) < 2 or len(w) != 2 or x[-1] != w[1]:
        raise ValueError(f"linear: input {x} and weight {w}: expected (…, n, I) and (O, I)")
    out = (*x[:-1], w[0])
    added = tuple(more.layout.shape for more in ready[2:])
    if added not in ((), (w[:1],), (out,), (w[:1], out)):
        raise ValueError(f"linear: bias and residual {added}, expected one of {w[:1]} and one of {out}")
    return ready, out, dtype


def flat(x: Any) -> Any:
    """All rows (…, n, I) below each other, of a tensor or an array."""
    return x if x.ndim == 2 else x.reshape(prod(x.shape[:-1]), x.shape[-1])


def np_linear(x: np.ndarray, w: np.ndarray, *added: np.ndarray, activation: str = "") -> np.ndarray:
    y = np.matmul(flat(x), w.T)
    for more in added:
        y += flat(more) if more.ndim > 1 else more
    y = activate(y, activation) if activation else y
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], len(w))


layer = Family("linear", infer_linear, activated=activated)

linear = define(  # act(x @ w.T + b + r): x (…, n, I), w (O, I), perhaps b (O,), perhaps r, give (…, n, O)
    layer,
    "linear",
    np_linear,
    lambda g, out, x, w, b=None, r=None: matmul(flat(g), w).reshape(x.shape),
    lambda g, out, x, w, b=None, r=None: matmul(flat(g).mT, flat(x)),
    lambda g, out, x, w, b, r=None: flat(g).sum(0) if b.ndim == 1 else g,
    lambda g, out, x, w, b, r: g,
    takes="number",
)
