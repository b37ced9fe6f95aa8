"""Elements found by integer or boolean tensors, and sorting."""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import indexing
from ..ops import index as rows
from ..ops import table
from ..tensor import Tensor
from ..view import normal_axis
from .arithmetic import Operand


class Extremum(NamedTuple):
    """What max, min, sort and topk along an axis return."""

    values: Tensor
    indices: Tensor


def drop(shape: tuple, axis: int) -> tuple:
    return shape[:axis] + shape[axis + 1 :]


def scattered(x: Tensor, dim: int, where: Tensor, src: Operand) -> Tensor:
    if not isinstance(src, Tensor):
        src = table.lift(src, x.dtype, x.backend).expand(where.shape)
    return rows.put_along(x, where, fitted(src, where), axis=dim)


def scatter_sum(x: Tensor, dim: int, where: Tensor, src: Tensor) -> Tensor:
    axis = normal_axis(dim, x.ndim)
    if src.dtype != x.dtype:
        raise TypeError(
            f"scatter_add: src is {src.dtype.name}, the tensor {x.dtype.name}: convert one with .to()"
        )
    return x + rows.put_along_add(fitted(src, where), where, axis=axis, shape=x.shape)


def fitted(src: Tensor, where: Tensor) -> Tensor:
    """The leading part of src that the index covers."""
    if src.ndim != where.ndim or any(m > n for m, n in zip(where.shape, src.shape, strict=False)):
        raise ValueError(
            f"scatter: src of shape {src.shape} is smaller than the index of shape {where.shape}"
        )
    return src if src.shape == where.shape else src[tuple(slice(n) for n in where.shape)]


def selected(x: Tensor, dim: int, where: Tensor) -> Tensor:
    if where.ndim > 1:
        raise ValueError(f"index_select takes a vector of indices, got shape {where.shape}")
    taken = rows.take(x, where.reshape(where.numel()), axis=dim)
    return taken if x.shape else taken.reshape(())


class Lookups:
    """Gathering, scattering, sorting."""

    def gather(self: Any, dim: int, index: Tensor) -> Tensor:
        return rows.take_along(self, index, axis=dim)

    def take_along_dim(self: Any, indices: Tensor, dim: int | None = None) -> Tensor:
        """As gather, with the other axes broadcast; without an axis both are flattened."""
        if dim is None:
            return self.flatten().take_along_dim(indices.flatten(), 0)
        if indices.ndim != self.ndim:
            raise ValueError(
                f"take_along_dim: indices {indices.shape} and input {self.shape} need equally many axes"
            )
        axis = normal_axis(dim, self.ndim)
        shape = list(table.broadcast("take_along_dim", drop(self.shape, axis), drop(indices.shape, axis)))
        wide_x, wide_i = shape.copy(), shape.copy()
        wide_x.insert(axis, self.shape[axis])
        wide_i.insert(axis, indices.shape[axis])
        inside = rows.in_range(indices.expand(*wide_i), size=self.shape[axis] if self.shape else 1)
        return rows.take_along(self.expand(*wide_x), inside, axis=axis)

    def scatter(self: Any, dim: int, index: Tensor, src: Operand) -> Tensor:
        """A copy with src written where the index points; of duplicates the last wins."""
        return scattered(self, dim, index, src)

    def scatter_add(self: Any, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """A copy with src added where the index points."""
        return scatter_sum(self, dim, index, src)

    def index_select(self: Any, dim: int, index: Tensor) -> Tensor:
        return selected(self, dim, index)

    def masked_select(self: Any, mask: Tensor) -> Tensor:
        """The elements where the mask holds, in a row. The number of them is read back."""
        shape = table.broadcast("masked_select", self.shape, mask.shape)
        return indexing.get(self.expand(*shape), mask.expand(*shape))

    def nonzero(self: Any, as_tuple: bool = False) -> Any:
        """Coordinates of the elements that are not zero, int32 (count, axes), or a vector for each axis.

        The number of them is read back.
        """
        if as_tuple:
            return (self if self.shape else self.reshape(1)).nonzero().unbind(1)
        mask = self != 0
        return rows.nonzero(mask, count=int(mask.sum().item()))

    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        return rows.argsort(self, axis=dim, descending=descending)

    def sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Extremum:
        """(values, indices), always stable."""
        order = rows.argsort(self, axis=dim, descending=descending)
        return Extremum(rows.take_along(self, order, axis=dim), order)

    def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extremum:
        axis = normal_axis(dim, self.ndim)
        if not 0 <= k <= (self.shape[axis] if self.shape else 1):
            raise ValueError(f"topk: k = {k} of an axis of length {self.shape[axis] if self.shape else 1}")
        order = rows.argsort(self, axis=axis, descending=largest)
        order = order.narrow(axis, 0, k).contiguous() if self.shape else order
        return Extremum(rows.take_along(self, order, axis=axis), order)
