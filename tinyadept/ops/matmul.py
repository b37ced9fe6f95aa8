"""Matrix products, batched and broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np

from .table import Family, backend_of, broadcast, compute_dtype, define, lifted, operands


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    a, b = operands(op, inputs)
    if a.ndim < 2 or b.ndim < 2 or a.shape[-1] != b.shape[-2]:
        raise ValueError(
            f"matmul: shapes {a.shape} and {b.shape} do not fit: expected (…, n, k) and (…, k, m)"
        )
    backend, dtype = backend_of(op, [a, b]), compute_dtype(op, [a, b])
    batch = broadcast("matmul", a.shape[:-2], b.shape[:-2]) if a.ndim > 2 or b.ndim > 2 else ()
    return tuple(lifted(op, [a, b], dtype, backend)), (*batch, a.shape[-2], b.shape[-1]), dtype


product = Family("matmul", infer)

matmul = define(
    product,
    "matmul",
    np.matmul,
    lambda g, out, a, b: matmul(g, b.mT),  # (…, n, m) @ (…, m, k)
    lambda g, out, a, b: matmul(a.mT, g),  # (…, k, n) @ (…, n, m)
    takes="number",
)
