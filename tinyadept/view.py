"""Views: how a shape is read out of a flat buffer. No arithmetic on values, no backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

Shape = tuple[int, ...]


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a dense array of this shape: the last axis is fastest."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def normal_axis(axis: int, rank: int) -> int:
    """Count a negative axis from the end; refuse one that does not exist."""
    if isinstance(axis, bool):
        raise TypeError(f"an axis is an int, got {axis}")
    bound = max(rank, 1)  # a 0-d tensor accepts the axes 0 and -1
    if not -bound <= axis < bound:
        raise IndexError(
            f"axis {axis} is out of range: expected {-bound} to {bound - 1} for {rank} dimensions"
        )
    return axis % bound


def normal_axes(axes: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Sorted non-negative axes; None means all of them, and so does an empty sequence."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return tuple(range(rank))
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    found = sorted(normal_axis(axis, rank) for axis in listed)
    if len(set(found)) < len(found):
        raise ValueError(f"an axis appears twice in {listed}: name each axis once")
    return tuple(found) if rank else ()


@dataclass(frozen=True)
class View:
    """Element (i, j, …) lies at ``offset + i * strides[0] + j * strides[1] + …`` of a flat buffer.

    Parameters
    ----------
    shape : tuple of int
    strides : tuple of int
        In elements, not bytes. Zero repeats an axis; negative walks backwards.
    offset : int
        Position of the first element, in elements.
    """

    shape: Shape
    strides: Shape
    offset: int = 0

    @staticmethod
    @lru_cache(maxsize=4096)
    def dense(shape: Shape) -> View:
        """The view of a fresh buffer: row-major, nothing skipped."""
        return View(shape, row_major(shape))

    @cached_property
    def size(self) -> int:
        """How many elements are read."""
        return prod(self.shape)

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one after another, wherever they begin."""
        step = 1
        for n, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and stride != step:
                return self.size == 0
            step *= n
        return True

    @cached_property
    def span(self) -> tuple[int, int]:
        """First cell touched and one past the last; (0, 0) when there are no elements."""
        if self.size == 0:
            return (0, 0)
        reach = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(r for r in reach if r < 0)
        return low, self.offset + sum(r for r in reach if r > 0) + 1

    @cached_property
    def overlaps(self) -> bool:
        """Whether two positions may share a cell (exact for everything but exotic strides)."""
        if self.size == 0:
            return False
        reach = 0
        for stride, n in sorted((abs(s), n) for s, n in zip(self.strides, self.shape, strict=True) if n > 1):
            if stride <= reach:
                return True
            reach += stride * (n - 1)
        return False

    def permute(self, order: Sequence[int]) -> View:
        """Reorder the axes: axis k of the result is axis ``order[k]``."""
        return View(tuple(self.shape[a] for a in order), tuple(self.strides[a] for a in order), self.offset)

    def expand(self, shape: Shape) -> View:
        """Repeat without copying: a broadcast axis has stride 0.

        Raises
        ------
        ValueError
            If an axis that is not 1 would have to change its length.
        """
        lead = len(shape) - len(self.shape)
        if lead < 0 or any(n not in (1, m) for n, m in zip(self.shape, shape[lead:], strict=True)):
            raise ValueError(
                f"cannot expand shape {self.shape} to {shape}: only axes of length 1 can be repeated"
            )
        strides = (0 if n != m else s for n, m, s in zip(self.shape, shape[lead:], self.strides, strict=True))
        return View(shape, (0,) * lead + tuple(strides), self.offset)

    def reshape(self, shape: Shape) -> View | None:
        """The same elements in the same order under another shape, or None where that needs a copy."""
        if self.is_contiguous:
            return View(shape, row_major(shape), self.offset) if self.offset else View.dense(shape)
        if self.size == 0:
            return View(shape, row_major(shape), self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides, todo = [0] * len(shape), len(shape) - 1
        while old:  # from the last axis: gather old axes that are dense in each other, then cut them anew
            n, step = old.pop()
            while old and old[-1][1] == n * step:
                n *= old.pop()[0]
            cut = 1
            while todo >= 0 and n % (cut * shape[todo]) == 0 and (cut < n or shape[todo] == 1):
                strides[todo] = step * cut
                cut *= shape[todo]
                todo -= 1
            if cut != n:
                return None
        return View(shape, tuple(strides), self.offset)

    def index(self, key: tuple) -> View:
        """Apply ints, slices and None (a new axis), one for every axis in order.

        Raises
        ------
        IndexError
            If an int lies outside its axis.
        """
        shape, strides, offset, axis = [], [], self.offset, 0
        for k in key:
            if k is None:
                shape.append(1)
                strides.append(0)
                continue
            n, stride = self.shape[axis], self.strides[axis]
            if isinstance(k, slice):
                start, stop, step = k.indices(n)
                count = len(range(start, stop, step))
                offset += start * stride if count else 0
                shape.append(count)
                strides.append(stride * step)
            else:
                if not -n <= k < n:
                    raise IndexError(f"index {k} is out of range for axis {axis} of length {n}")
                offset += (k % n) * stride
            axis += 1
        return View(tuple(shape), tuple(strides), offset)

    def diagonal(self, offset: int, axis1: int, axis2: int) -> View:
        """The cells (i, i + offset) of two axes, as a new last axis."""
        down, right = max(-offset, 0), max(offset, 0)
        length = max(0, min(self.shape[axis1] - down, self.shape[axis2] - right))
        rest = [a for a in range(len(self.shape)) if a not in (axis1, axis2)]
        start = down * self.strides[axis1] + right * self.strides[axis2] if length else 0
        return View(
            tuple(self.shape[a] for a in rest) + (length,),
            tuple(self.strides[a] for a in rest) + (self.strides[axis1] + self.strides[axis2],),
            self.offset + start,
        )

    def windows(self, axis: int, size: int, step: int) -> View:
        """Every window of `size` along an axis, `step` apart, as a new last axis; windows may overlap.

        Raises
        ------
        ValueError
            If the axis is shorter than a window, or the step is not positive.
        """
        n, stride = self.shape[axis], self.strides[axis]
        if step <= 0 or not 0 <= size <= n:
            raise ValueError(f"cannot cut windows of {size} every {step} from an axis of length {n}")
        shape = (*self.shape[:axis], (n - size) // step + 1, *self.shape[axis + 1 :], size)
        strides = (*self.strides[:axis], stride * step, *self.strides[axis + 1 :], stride)
        return View(shape, strides, self.offset)
