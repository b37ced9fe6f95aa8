"""Reductions: over all axes, or over those named, which stay with length 1 if `keepdim`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..ops import elementwise, norm, reduce
from ..ops.index import take_along
from ..tensor import Tensor
from ..view import normal_axes, normal_axis
from .lookups import Extremum
from .moves import Axes


def dropped(x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    """Remove axes that were folded to length 1."""
    if keepdim:
        return x
    gone = normal_axes(axes, x.ndim)
    return x.reshape(*(n for a, n in enumerate(x.shape) if a not in gone))


def zero_at_zero(function: Callable, x: Tensor) -> Tensor:
    """A root of x whose gradient at zero is zero instead of infinite."""
    zero = x == 0
    return elementwise.where(zero, 0.0, function(elementwise.where(zero, 1.0, x)))


def extremum(x: Tensor, dim: Any, keepdim: bool, value: Callable, arg: Callable, pair: Callable) -> Any:
    if dim is None:
        return dropped(value(x, axes=None), None, False)
    if isinstance(dim, Tensor):
        return pair(x, dim)
    axis = normal_axis(dim, x.ndim)
    where = arg(x, axes=axis)
    return Extremum(dropped(take_along(x, where, axis=axis), axis, keepdim), dropped(where, axis, keepdim))


def arg_extremum(x: Tensor, dim: int | None, keepdim: bool, arg: Callable) -> Tensor:
    if dim is None:
        found = arg(x.flatten(), axes=0)
        return found.reshape(*(1,) * x.ndim) if keepdim else found.reshape(())
    return dropped(arg(x, axes=dim), dim, keepdim)


class Reductions:
    """Axes folded into one element."""

    def sum(self: Any, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.sum(x, axes=dim), dim, keepdim).to(dtype=dtype)

    def mean(self: Any, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.mean(x, axes=dim), dim, keepdim)

    def prod(self: Any, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.prod(x, axes=dim), dim, keepdim).to(dtype=dtype)

    def amax(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Largest elements; ties share the gradient evenly."""
        return dropped(reduce.amax(self, axes=dim), dim, keepdim)

    def amin(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Smallest elements; ties share the gradient evenly."""
        return dropped(reduce.amin(self, axes=dim), dim, keepdim)

    def max(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The largest element; along an axis (values, indices) of the first; with a tensor, maximum."""
        return extremum(self, dim, keepdim, reduce.amax, reduce.argmax, elementwise.maximum)

    def min(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The smallest element; along an axis (values, indices) of the first; with a tensor, minimum."""
        return extremum(self, dim, keepdim, reduce.amin, reduce.argmin, elementwise.minimum)

    def argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return arg_extremum(self, dim, keepdim, reduce.argmax)

    def argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return arg_extremum(self, dim, keepdim, reduce.argmin)

    def any(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        return dropped(reduce.any(self, axes=dim), dim, keepdim)

    def all(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        return dropped(reduce.all(self, axes=dim), dim, keepdim)

    def var(
        self: Any,
        dim: Axes = None,
        correction: float | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Tensor:
        """Variance: the squares' sum divided by n - correction, that is by n - 1 unless said otherwise.

        ``unbiased=False`` is another way to say ``correction=0``.
        """
        if isinstance(dim, bool):  # PyTorch's oldest spelling, x.var(False)
            dim, unbiased = None, dim
        if unbiased is not None:
            correction = int(unbiased)
        correction = 1 if correction is None else correction
        return dropped(reduce.var(self, axes=dim, correction=correction), dim, keepdim)

    def std(
        self: Any,
        dim: Axes = None,
        correction: float | None = 1,
        keepdim: bool = False,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The square root of `var`. Its gradient at zero is zero."""
        return zero_at_zero(elementwise.root, self.var(dim, correction, keepdim, unbiased))

    def norm(self: Any, p: Any = 2, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The p-norm over axes; p is "fro" (2), 0, 1, ±inf or any number. Its gradient at zero is zero."""
        if p in (2, "fro"):
            return dropped(reduce.norm(self, axes=dim), dim, keepdim)
        if not self.is_floating_point:
            raise TypeError(f"norm takes floating-point tensors, got {self.dtype.name}")
        if isinstance(p, str):
            raise ValueError(f"norm: p is a number or 'fro', got {p!r}")
        size = elementwise.abs(self)
        if p == float("inf"):
            return size.amax(dim, keepdim)
        if p == -float("inf"):
            return size.amin(dim, keepdim)
        if p == 0:
            return (self != 0).sum(dim, keepdim).to(self.dtype)
        if p == 1:
            return size.sum(dim, keepdim)
        return zero_at_zero(lambda total: total ** (1 / p), (size**p).sum(dim, keepdim))

    def logsumexp(self: Any, dim: Axes, keepdim: bool = False) -> Tensor:
        return dropped(reduce.logsumexp(self, axes=dim), dim, keepdim)

    def cumsum(self: Any, dim: int, dtype: Any = None) -> Tensor:
        return reduce.cumsum(self.to(dtype=dtype), axis=dim).to(dtype=dtype)

    def softmax(self: Any, dim: int = -1, dtype: Any = None) -> Tensor:
        return norm.softmax(self.to(dtype=dtype), axis=dim)

    def log_softmax(self: Any, dim: int = -1, dtype: Any = None) -> Tensor:
        return norm.log_softmax(self.to(dtype=dtype), axis=dim)
