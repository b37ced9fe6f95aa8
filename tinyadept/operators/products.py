"""Matrix products."""

from __future__ import annotations

from math import prod
from typing import Any

from ..ops.matmul import matmul
from ..tensor import Tensor


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    if not isinstance(b, Tensor):
        b = Tensor(b, device=a.backend)
    if len(a.layout.shape) == len(b.layout.shape) == 2:
        return matmul(a, b)
    if not a.shape or not b.shape:
        raise ValueError(f"matmul takes no 0-d tensors, got shapes {a.shape} and {b.shape}")
    left, right = a.ndim == 1, b.ndim == 1
    a = a.unsqueeze(0) if left else a
    b = b.unsqueeze(1) if right else b
    if a.ndim > 2 and b.ndim == 2 and a.shape[-1] == b.shape[0]:  # one large product instead of a batch
        out = matmul(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    else:
        out = matmul(a, b)
    rows, columns = () if left else out.shape[-2:-1], () if right else out.shape[-1:]
    return out.reshape(*out.shape[:-2], *rows, *columns) if left or right else out


class Products:
    """Sums of products."""

    def matmul(self: Any, other: Tensor) -> Tensor:
        """Matrix product: vectors, matrices, and batches of matrices that broadcast."""
        return multiplied(self, other)

    def dot(self: Any, other: Tensor) -> Tensor:
        if self.ndim != 1 or other.ndim != 1:
            raise ValueError(f"dot takes two vectors, got shapes {self.shape} and {other.shape}")
        return multiplied(self, other)
