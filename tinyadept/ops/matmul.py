"""Matrix products, batched and broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

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
