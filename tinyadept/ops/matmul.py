"""Matrix products, batched and broadcast."""

from __future__ import annotations

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
    if len(x) != 2 or len(w) != 2 or x[1] != w[1]:
        raise ValueError(f"linear: input {x} and weight {w}: expected (n, I) and (O, I)")
    if len(ready) > 2 and ready[2].shape != w[:1]:
        raise ValueError(f"linear: a bias of shape {ready[2].shape} for {w[0]} outputs")
    return ready, (x[0], w[0]), dtype


def np_linear(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None, *, activation: str = ""
) -> np.ndarray:
    y = np.matmul(x, w.T)
    return activate(y if b is None else np.add(y, b, out=y), activation)


layer = Family("linear", infer_linear, activated=activated)

linear = define(  # act(x @ w.T + b): x (n, I), w (O, I) and perhaps b (O,) give (n, O)
    layer,
    "linear",
    np_linear,
    lambda g, out, x, w, b=None: matmul(g, w),
    lambda g, out, x, w, b=None: matmul(g.mT, x),
    lambda g, out, x, w, b: g.sum(0),
    takes="number",
)
