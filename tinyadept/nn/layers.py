"""Layers that multiply, look up, drop or reshape."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from .. import functional as F
from ..creation import zeros
from ..tape import no_grad
from ..tensor import Tensor
from . import init
from .module import Module, Parameter


def reset(weight: Tensor, bias: Tensor | None) -> None:
    """Uniform numbers within 1 / √fan_in, for the weight (He's rule with slope √5) and for the bias."""
    init.kaiming_uniform_(weight, a=sqrt(5))
    if bias is not None:
        bound = 1 / sqrt(max(init.fans(weight)[0], 1))
        init.uniform_(bias, -bound, bound)


def activation_repr(activation: str | None) -> str:
    return f", activation={activation!r}" if activation else ""


class Identity(Module):
    """Gives back its input; takes and ignores any arguments."""

    def __init__(self, *args: object, **kwargs: object):
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Linear(Module):
    """``activation(input @ weight.T + bias + residual)``, of which a call may be given the last.

    Shapes: (…, in_features) gives (…, out_features); the weight is (out_features, in_features).

    Parameters
    ----------
    in_features, out_features : int
    bias : bool
    activation : str, optional
        See `tinyadept.functional.conv2d`. Beyond PyTorch.
    """

    bias: Parameter | None

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, activation: str | None = None
    ):
        super().__init__()
        self.in_features, self.out_features, self.activation = in_features, out_features, activation
        self.weight = Parameter(zeros(out_features, in_features))
        self.bias = Parameter(zeros(out_features)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform within 1 / √in_features."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor, residual: Tensor | None = None) -> Tensor:
        return F.linear(input, self.weight, self.bias, residual=residual, activation=self.activation)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}" + activation_repr(self.activation)


class Embedding(Module):
    """Rows of a table, looked up by integers.

    Shapes: (…) indices give (…, embedding_dim); the weight is (num_embeddings, embedding_dim).

    Parameters
    ----------
    num_embeddings, embedding_dim : int
    padding_idx : int, optional
        A row that starts at zero and gets no gradient; negative counts from the end.

    Raises
    ------
    ValueError
        If the table has no row `padding_idx`.
    IndexError
        On use, if an index lies outside the table.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None):
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx must name one of {num_embeddings} embeddings, got {padding_idx}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(zeros(num_embeddings, embedding_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new rows, normal of mean 0 and variance 1."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"


class Dropout(Module):
    """In training, zero each element with probability p and scale the others by 1 / (1 - p).

    Parameters
    ----------
    p : float

    Raises
    ------
    ValueError
        If p lies outside [0, 1].
    """

    def __init__(self, p: float = 0.5):
        super().__init__()
        if not 0 <= p <= 1:
            raise ValueError(f"a probability lies between 0 and 1, got {p}")
        self.p = p

    def forward(self, input: Tensor) -> Tensor:
        return F.dropout(input, self.p, self.training)

    def extra_repr(self) -> str:
        return f"p={self.p}"


class Flatten(Module):
    """Axes from `start_dim` to `end_dim` merged into one: (N, C, H, W) gives (N, C · H · W)."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1):
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return input.flatten(self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """The axis `dim` cut into several of the lengths given; one of them may be -1."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]):
        super().__init__()
        self.dim, self.unflattened_size = dim, tuple(unflattened_size)

    def forward(self, input: Tensor) -> Tensor:
        return input.unflatten(self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
