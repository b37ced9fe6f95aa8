"""Functions of one element at a time, reductions and moves: the methods of Tensor, and activations."""

from __future__ import annotations

from .. import dtypes
from ..creation import arange
from ..operators import Operators
from ..ops import elementwise
from ..ops.index import take
from ..random import bernoulli
from ..tensor import Tensor

abs, neg, sign, square = elementwise.abs, elementwise.neg, elementwise.sign, elementwise.square
reciprocal, pow, mul, floor_divide = (
    elementwise.reciprocal,
    elementwise.pow,
    elementwise.mul,
    elementwise.floor_divide,
)
remainder, floor, ceil, trunc = elementwise.remainder, elementwise.floor, elementwise.ceil, elementwise.trunc
exp, expm1, log = elementwise.exp, elementwise.expm1, elementwise.log
log1p, rsqrt, sin, cos = elementwise.log1p, elementwise.rsqrt, elementwise.sin, elementwise.cos
tan, atan, tanh, erf = elementwise.tan, elementwise.atan, elementwise.tanh, elementwise.erf
sigmoid, eq, ne, lt = elementwise.sigmoid, elementwise.eq, elementwise.ne, elementwise.lt
le, gt, ge, logical_and = elementwise.le, elementwise.gt, elementwise.ge, elementwise.logical_and
logical_or, logical_xor, logical_not, isnan = (
    elementwise.logical_or,
    elementwise.logical_xor,
    elementwise.logical_not,
    elementwise.isnan,
)
isinf, isfinite, where, maximum = (
    elementwise.isinf,
    elementwise.isfinite,
    elementwise.where,
    elementwise.maximum,
)
minimum, relu, silu, mish = elementwise.minimum, elementwise.relu, elementwise.silu, elementwise.mish
hardsigmoid, hardswish = elementwise.hardsigmoid, elementwise.hardswish
bitwise_and, bitwise_or = elementwise.bitwise_and, elementwise.bitwise_or
bitwise_xor, bitwise_not = elementwise.bitwise_xor, elementwise.bitwise_not
sqrt, true_divide = elementwise.root, elementwise.div
add, sub, div = Operators.add, Operators.sub, Operators.div
clamp, round, masked_fill = Operators.clamp, Operators.round, Operators.masked_fill
sum, mean, prod, any, all = Operators.sum, Operators.mean, Operators.prod, Operators.any, Operators.all
max, min, amax, amin = Operators.max, Operators.min, Operators.amax, Operators.amin
argmax, argmin, var, std, norm = (
    Operators.argmax,
    Operators.argmin,
    Operators.var,
    Operators.std,
    Operators.norm,
)
logsumexp, cumsum = Operators.logsumexp, Operators.cumsum
softmax, log_softmax = Operators.softmax, Operators.log_softmax
reshape, flatten, transpose, permute = (
    Operators.reshape,
    Operators.flatten,
    Operators.transpose,
    Operators.permute,
)
broadcast_to, squeeze, unsqueeze = Operators.broadcast_to, Operators.squeeze, Operators.unsqueeze
flip, roll, tile, diagonal = Operators.flip, Operators.roll, Operators.tile, Operators.diagonal
tril, triu, split, chunk, unbind = (
    Operators.tril,
    Operators.triu,
    Operators.split,
    Operators.chunk,
    Operators.unbind,
)
select, narrow, unflatten = Operators.select, Operators.narrow, Operators.unflatten
gather, scatter, scatter_add = Operators.gather, Operators.scatter, Operators.scatter_add
take_along_dim, index_select = Operators.take_along_dim, Operators.index_select
masked_select, nonzero = Operators.masked_select, Operators.nonzero
argsort, sort, topk = Operators.argsort, Operators.sort, Operators.topk


def leaky_relu(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """x where positive, else negative_slope · x."""
    return elementwise.leaky_relu(input, slope=negative_slope)


def elu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where positive, else alpha · (exp(x) - 1)."""
    return elementwise.elu(input, alpha=alpha)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x), or its approximation by tanh (Hendrycks and Gimpel, 2016).

    Raises
    ------
    ValueError
        If `approximate` is neither "none" nor "tanh".
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f"gelu: approximate must be 'none' or 'tanh', got {approximate!r}")
    return elementwise.gelu(input) if approximate == "none" else elementwise.gelu_tanh(input)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x exceeds the threshold."""
    return elementwise.softplus(input, beta=beta, threshold=threshold)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """``silu(gate) * up`` in one pass, the gated unit of Llama's layers (Shazeer, 2020). Beyond PyTorch."""
    return elementwise.swiglu(gate, up)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    return -softplus(-input)


def dropout(input: Tensor, p: float = 0.5, training: bool = True) -> Tensor:
    """Zero each element with probability p and scale the others by 1 / (1 - p); nothing when not training.

    Raises
    ------
    ValueError
        If p lies outside [0, 1].
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: a probability lies between 0 and 1, got {p}")
    if not training or p == 0:
        return input
    if p == 1:
        return input * 0.0
    return where(bernoulli(1 - p, input.shape, device=input.backend), input * (1 / (1 - p)), 0.0)


def one_hot(input: Tensor, num_classes: int = -1) -> Tensor:
    """int32 with a new last axis: 1 where the class is, else 0.

    Raises
    ------
    ValueError
        If a class lies outside [0, num_classes).
    """
    if input.dtype not in dtypes.INTEGERS:
        raise TypeError(f"one_hot takes integer classes, got {input.dtype.name}")
    if input.numel():
        low, high = int(input.min().item()), int(input.max().item())
        num_classes = high + 1 if num_classes == -1 else num_classes
        if low < 0 or high >= num_classes:
            raise ValueError(
                f"one_hot: classes lie between {low} and {high}, expected 0 to {num_classes - 1}"
            )
    if num_classes < 1:
        raise ValueError(f"one_hot: expected at least one class, got {num_classes}")
    return (input.unsqueeze(-1) == arange(num_classes, device=input.backend)).to(dtypes.int32)


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of a table: (…) indices and (V, D) weights give (…, D). The row `padding_idx` gets no gradient.

    Raises
    ------
    IndexError
        If an index lies outside the table.
    """
    if weight.ndim != 2:
        raise ValueError(f"embedding takes a table of two axes, got shape {weight.shape}")
    out = take(weight, input, axis=0)
    if padding_idx is None:
        return out
    if not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueError(
            f"embedding: padding_idx {padding_idx} lies outside a table of {weight.shape[0]} rows"
        )
    return where((input == padding_idx % weight.shape[0]).unsqueeze(-1), out.detach(), out)
