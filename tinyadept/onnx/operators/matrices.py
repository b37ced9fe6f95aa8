"""Products of matrices."""

from __future__ import annotations

from math import prod
from typing import Any

from ... import creation
from ... import functional as F
from ...ops.table import apply, registry
from ...tensor import Tensor
from ..registry import operator
from .convolution import shifted


@operator("MatMul")
def matmul(node: Any, a: Tensor, b: Tensor) -> Tensor:
    return F.matmul(a, b)


@operator("Gemm", since=7)
def gemm(node: Any, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    get = node.get
    a, b = (a.T if get("transA", 0) else a), (b if get("transB", 0) else b.T)
    alpha, beta = get("alpha", 1.0), get("beta", 1.0)
    if not a.is_floating_point:
        alpha, beta = int(alpha), int(beta)
    rows = b.shape[0]
    bias = c if c is None or beta == 1 else c * beta
    plain = alpha == 1 and (bias is None or bias.shape == (rows,))
    after = {"activation": node.activation} if node.activation else {}
    if plain:
        return F.linear(a, b, bias, **after)
    y = F.matmul(a, b.T)
    y = y if alpha == 1 else y * alpha
    y = y if bias is None else y + bias
    return apply(registry[node.activation], (y,), {}) if after else y


@operator("MatMulInteger", since=10)
def matmul_integer(
    node: Any, a: Tensor, b: Tensor, az: Tensor | None = None, bz: Tensor | None = None
) -> Tensor:
    return F.matmul(shifted(a, az, -2), shifted(b, bz, -1))


@operator("Einsum", since=12)
def einsum(node: Any, *operands: Tensor) -> Tensor:
    return F.einsum(node.attributes["equation"].replace(" ", ""), *operands)


@operator("Det", since=11)
def det(node: Any, x: Tensor) -> Tensor:
    """By elimination with partial pivoting, all matrices at once (Golub and Van Loan)."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2] or not x.shape[-1]:
        node.refuse(f"the determinant of shape {x.shape}: expected square matrices")
    lead, n = x.shape[:-2], x.shape[-1]
    x, result = x.reshape(prod(lead), n, n), None
    for left in range(n, 0, -1):
        pivot = x[:, :, 0].abs().argmax(1, keepdim=True).unsqueeze(2)  # (B, 1, 1)
        row = x.take_along_dim(pivot, 1)  # (B, 1, left)
        head = row[:, :, :1]
        factor = F.where(pivot == 0, head, -head).reshape(-1)
        result = factor if result is None else result * factor
        here = creation.arange(left, device=x.backend).reshape(1, left, 1) == pivot
        rest = F.where(here, x[:, :1], x)[:, 1:]  # the first row where the pivot's was
        x = rest[:, :, 1:] - rest[:, :, :1] / F.where(head == 0, 1.0, head) * row[:, :, 1:]
    assert result is not None
    return result.reshape(*lead)
