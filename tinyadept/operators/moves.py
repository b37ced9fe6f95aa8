"""Shapes: views wherever a view can express the result."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..ops import create, elementwise, move
from ..tensor import Tensor
from ..view import normal_axes, normal_axis

Axes = int | Sequence[int] | None


def sizes(given: tuple, named: Any = None) -> tuple[int, ...]:
    """A shape given as several ints, as one sequence, or by name."""
    if named is not None:
        given = (named,)
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = tuple(given[0])
    return tuple(int(n) for n in given)


def filled_in(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with its -1, if any, computed.

    Raises
    ------
    ValueError
        If the elements do not fill the shape exactly.
    """
    known = prod(n for n in shape if n != -1)
    wild = shape.count(-1)
    if wild > 1 or any(n < -1 for n in shape):
        raise ValueError(f"reshape: {shape} may hold one -1 and no other negative length")
    if wild and known and x.numel() % known == 0:
        shape = tuple(x.numel() // known if n == -1 else n for n in shape)
    if prod(shape) != x.numel() or -1 in shape:
        raise ValueError(f"reshape: {x.numel()} elements of shape {x.shape} do not fill shape {shape}")
    return shape


def on_axis(x: Tensor, dim: int, entry: Any) -> tuple:
    """An index key that leaves all axes but one alone."""
    axis = normal_axis(dim, x.ndim)
    return (slice(None),) * axis + (entry,) + (slice(None),) * (x.ndim - axis - 1)


def extent(x: Tensor, axis: int, name: str) -> int:
    """How long an axis is; a 0-d tensor has none.

    Raises
    ------
    IndexError
        If the tensor is 0-d.
    """
    if not x.shape:
        raise IndexError(f"{name}: a 0-d tensor has no axes")
    return x.shape[axis]


def below(x: Tensor, diagonal: int) -> Tensor:
    """True at and below a diagonal of the last two axes."""
    if x.ndim < 2:
        raise ValueError(f"tril and triu need at least two axes, got shape {x.shape}")
    n, m = x.shape[-2:]
    row = create.create(create.arange, x.backend, shape=(n,), start=diagonal, step=1, dtype=dtypes.int32)
    column = create.create(create.arange, x.backend, shape=(m,), start=0, step=1, dtype=dtypes.int32)
    return column <= row.reshape(n, 1)


class Moves:
    """Other shapes for the same elements."""

    def reshape(self: Any, *sizes_: Any, shape: Any = None) -> Tensor:
        """Another shape for the same elements: a view where one exists, else a copy. One length may be -1."""
        new = filled_in(self, sizes(sizes_, shape))
        if new == self.layout.shape:
            return self
        x = self if self.layout.reshape(new) is not None else elementwise.copy(self)
        return move.reshape(x, shape=new)

    def view(self: Any, *shape: Any) -> Tensor:
        """Another shape for the same memory. One length may be -1.

        Raises
        ------
        ValueError
            If the elements do not fill the shape, or the strides cannot express it without a copy.
        """
        new = filled_in(self, sizes(shape))
        if self.layout.reshape(new) is None:
            raise ValueError(f"view: {new} of a tensor with shape {self.shape} needs a copy: use reshape")
        return move.reshape(self, shape=new)

    def view_as(self: Any, other: Tensor) -> Tensor:
        return self.view(*other.shape)

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        if not self.shape:
            return self.reshape(1)
        first, last = normal_axis(start_dim, self.ndim), normal_axis(end_dim, self.ndim)
        if first > last:
            raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape(*self.shape[:first], prod(self.shape[first : last + 1]), *self.shape[last + 1 :])

    def unflatten(self: Any, dim: int, sizes: Sequence[int]) -> Tensor:
        axis = normal_axis(dim, self.ndim)
        known = prod(n for n in sizes if n != -1)
        full = [extent(self, axis, "unflatten") // known if n == -1 and known else n for n in sizes]
        return self.reshape(*self.shape[:axis], *full, *self.shape[axis + 1 :])

    def permute(self: Any, *order: Any, dims: Any = None) -> Tensor:
        """The axes in another order; a view."""
        order = tuple(normal_axis(d, self.ndim) for d in sizes(order, dims))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute: {order} does not name each of the {self.ndim} axes once")
        return move.permute(self, order=order)

    def transpose(self: Any, dim0: int, dim1: int) -> Tensor:
        a, b = normal_axis(dim0, self.ndim), normal_axis(dim1, self.ndim)
        order = list(range(self.ndim))
        if order:
            order[a], order[b] = b, a
        return move.permute(self, order=tuple(order))

    @property
    def mT(self: Any) -> Tensor:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ValueError(f"mT needs at least two axes, got shape {self.shape}")
        return move.permute(self, order=(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def T(self: Any) -> Tensor:
        """All axes reversed."""
        return move.permute(self, order=tuple(reversed(range(self.ndim))))

    def t(self: Any) -> Tensor:
        if self.ndim > 2:
            raise ValueError(f"t() takes at most two axes, got shape {self.shape}")
        return self.T

    def expand(self: Any, *shape: Any) -> Tensor:
        """Repeat axes of length 1 without copying; -1 keeps an axis."""
        new, lead = sizes(shape), len(sizes(shape)) - self.ndim
        if any(n == -1 and a < lead for a, n in enumerate(new)) or any(n < -1 for n in new):
            raise ValueError(
                f"expand: {new} has a negative length that stands for no axis of shape {self.shape}"
            )
        new = tuple(self.shape[a - lead] if n == -1 else n for a, n in enumerate(new))
        return self if new == self.layout.shape else move.expand(self, shape=new)

    broadcast_to = expand

    def expand_as(self: Any, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    def squeeze(self: Any, dim: Axes = None) -> Tensor:
        """Remove axes of length 1: all of them, or those named that have it."""
        axes = range(self.ndim) if dim is None else () if dim == () else normal_axes(dim, self.ndim)
        return self.reshape(*(n for a, n in enumerate(self.shape) if a not in axes or n != 1))

    def unsqueeze(self: Any, dim: int) -> Tensor:
        axis = normal_axis(dim, self.ndim + 1)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def select(self: Any, dim: int, index: int) -> Tensor:
        if not self.shape:
            raise IndexError("select: a 0-d tensor has no axes")
        return move.index(self, key=on_axis(self, dim, int(index)))

    def narrow(self: Any, dim: int, start: int, length: int) -> Tensor:
        axis = normal_axis(dim, self.ndim)
        n = extent(self, axis, "narrow")
        start += n if start < 0 else 0
        if not 0 <= start <= start + length <= n:
            raise ValueError(f"narrow: {length} from {start} does not lie inside axis {axis} of length {n}")
        return move.index(self, key=on_axis(self, axis, slice(start, start + length)))

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of one size (the last may be shorter), or of the sizes given."""
        axis = normal_axis(dim, self.ndim)
        n = extent(self, axis, "split")
        if isinstance(split_size, int):
            if split_size < 0 or (split_size == 0 and n):
                raise ValueError(f"split: cannot cut an axis of {n} into pieces of {split_size}")
            count = max(1, -(-n // split_size)) if split_size else 1
            split_size = [min(split_size, n - i * split_size) for i in range(count)]
        if sum(split_size) != n or any(size < 0 for size in split_size):
            raise ValueError(
                f"split: pieces {list(split_size)} do not add up to {n}, the length of axis {axis}"
            )
        starts = [sum(split_size[:i]) for i in range(len(split_size))]
        return tuple(self.narrow(axis, start, size) for start, size in zip(starts, split_size, strict=True))

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        if chunks < 1:
            raise ValueError(f"chunk: expected at least one chunk, got {chunks}")
        n = extent(self, normal_axis(dim, self.ndim), "chunk")
        return self.split(max(1, -(-n // chunks)), dim) if n else self.split([0] * chunks, dim)

    def unbind(self: Any, dim: int = 0) -> tuple[Tensor, ...]:
        axis = normal_axis(dim, self.ndim)
        return tuple(self.select(axis, i) for i in range(extent(self, axis, "unbind")))

    def flip(self: Any, *axes: Any, dims: Any = None) -> Tensor:
        """Axes read backwards; a view."""
        named = sizes(axes, dims)
        axes = normal_axes(named, self.ndim) if named else ()
        back = slice(None, None, -1)
        return move.index(self, key=tuple(back if a in axes else slice(None) for a in range(self.ndim)))

    def roll(self: Any, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
        """Shift along axes, or along the flattened tensor; what leaves at one end enters at the other."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(*self.shape)
        if not self.shape:
            raise IndexError("roll: a 0-d tensor has no axes")
        shifts = [shifts] if isinstance(shifts, int) else list(shifts)
        dims = [dims] if isinstance(dims, int) else list(dims)
        if len(shifts) != len(dims):
            raise ValueError(f"roll: {len(shifts)} shifts for {len(dims)} axes")
        x = self
        for shift, dim in zip(shifts, dims, strict=True):
            axis = normal_axis(dim, x.ndim)
            n = x.shape[axis]
            if n and shift % n:
                cut = n - shift % n
                x = move.cat(x.narrow(axis, cut, n - cut), x.narrow(axis, 0, cut), axis=axis)
        return x

    def repeat(self: Any, *repeats: Any) -> Tensor:
        """Lay copies beside each other, so many along each axis; new axes come in front."""
        times = sizes(repeats)
        if len(times) < self.ndim or any(t < 0 for t in times):
            raise ValueError(
                f"repeat: {times} must name a count of at least 0 for each axis of shape {self.shape}"
            )
        shape = (1,) * (len(times) - self.ndim) + self.shape
        pairs = [n for t, s in zip(times, shape, strict=True) for n in (t, s)]
        spread = self.reshape(*[n for s in shape for n in (1, s)]).expand(*pairs)
        return spread.contiguous().reshape(*(t * s for t, s in zip(times, shape, strict=True)))

    def tile(self: Any, *repeats: Any, dims: Any = None) -> Tensor:
        """As repeat, but fewer counts than axes are allowed."""
        times = sizes(repeats, dims)
        return self.repeat((1,) * (self.ndim - len(times)) + times)

    def unfold(self: Any, dimension: int, size: int, step: int) -> Tensor:
        """Windows along an axis, as a new last axis; a view, and windows may overlap."""
        if not self.shape:
            return self.reshape(1).unfold(dimension, size, step).select(0, 0)
        return move.windows(self, axis=normal_axis(dimension, self.ndim), size=size, step=step)

    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        a, b = normal_axis(dim1, self.ndim), normal_axis(dim2, self.ndim)
        if self.ndim < 2 or a == b:
            raise ValueError(
                f"diagonal needs two different axes, got {dim1} and {dim2} of shape {self.shape}"
            )
        return move.diagonal(self, offset=offset, axis1=a, axis2=b)

    def tril(self: Any, diagonal: int = 0) -> Tensor:
        """Zeros above a diagonal of the last two axes."""
        return elementwise.where(below(self, diagonal), self, False)

    def triu(self: Any, diagonal: int = 0) -> Tensor:
        """Zeros below a diagonal of the last two axes."""
        return elementwise.where(below(self, diagonal - 1), False, self)

    def sum_to(self: Any, shape: tuple) -> Tensor:
        """Fold broadcast axes back: the gradient of expand."""
        return move.sum_to(self, tuple(shape))
