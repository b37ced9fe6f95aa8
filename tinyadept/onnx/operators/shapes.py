"""Operators that move elements or ask for shapes; most of them only change the view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from ... import dtypes
from ...functional import pad
from ...ops import move
from ...ops.index import take
from ...tensor import Tensor, from_numpy
from ...view import normal_axes, normal_axis
from ..registry import Node, operator


def on_host(values: Any) -> Tensor:
    """Shape arithmetic: int64 on the host."""
    return from_numpy(np.array(values, np.int64))


@operator("Shape", reads=None)
def shape(node: Node, x: Tensor) -> Tensor:
    return on_host(x.shape[slice(node.get("start"), node.get("end"))])


@operator("Size", reads=None)
def size(node: Node, x: Tensor) -> Tensor:
    return on_host(x.numel())


@operator("Identity", prepare=True)
def identity(node: Node) -> Callable:
    return lambda x: x


# --- shapes -------------------------------------------------------------------------------------------------


def reshaped(node: Node, x: Tensor, wanted: Sequence[int], keep_zero: bool = False) -> Tensor:
    """Zeros keep the input's length unless `keep_zero`, one -1 stands for what is left."""
    lengths = list(wanted)
    for axis, n in enumerate(lengths):
        if n == 0 and not keep_zero:
            if axis >= x.ndim:
                node.fail(f"shape {tuple(wanted)} keeps axis {axis} of an input of shape {x.shape}")
            lengths[axis] = x.shape[axis]
    if lengths.count(-1) == 1:
        rest = prod(n for n in lengths if n != -1)
        lengths[lengths.index(-1)] = x.numel() // rest if rest else 0
    if any(n < 0 for n in lengths) or prod(lengths) != x.numel():
        node.fail(f"an input of shape {x.shape} does not fit shape {tuple(wanted)}")
    return x.reshape(*lengths)


@operator("Reshape", since=5, reads=(1,))
def reshape(node: Node, x: Tensor, wanted: Tensor) -> Tensor:
    return reshaped(node, x, node.integers(wanted), bool(node.get("allowzero", 0)))


@operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    axis = node.get("axis", 1)
    axis += x.ndim if axis < 0 else 0
    return x.reshape(prod(x.shape[:axis]), prod(x.shape[axis:]))


@operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    order = node.get("perm") or range(x.ndim)[::-1]
    return x.permute(*order) if x.ndim else x


def without(x: Tensor, axes: Sequence[int] | None) -> Tensor:
    """Axes of length 1 removed; None: all of them."""
    if axes is None:
        return x.squeeze()
    gone = normal_axes(tuple(axes), x.ndim)
    if any(x.shape[axis] != 1 for axis in gone):
        raise ValueError(f"axes {tuple(axes)} of shape {x.shape} are not all of length 1")
    return x.reshape(*(n for axis, n in enumerate(x.shape) if axis not in gone))


def with_axes(x: Tensor, axes: Sequence[int]) -> Tensor:
    """Axes of length 1, at these positions of the result."""
    rank = x.ndim + len(axes)
    new = normal_axes(tuple(axes), rank)
    lengths = iter(x.shape)
    return x.reshape(*(1 if axis in new else next(lengths) for axis in range(rank)))


@operator("Squeeze")
def squeeze_by_attribute(node: Node, x: Tensor) -> Tensor:
    return without(x, node.get("axes"))


@operator("Squeeze", since=13, reads=(1,))
def squeeze(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    return without(x, None if axes is None else node.integers(axes))


@operator("Unsqueeze")
def unsqueeze_by_attribute(node: Node, x: Tensor) -> Tensor:
    return with_axes(x, node.get("axes", ()))


@operator("Unsqueeze", since=13, reads=(1,))
def unsqueeze(node: Node, x: Tensor, axes: Tensor) -> Tensor:
    return with_axes(x, node.integers(axes))


@operator("Expand", since=8, reads=(1,))
def expand(node: Node, x: Tensor, wanted: Tensor) -> Tensor:
    lengths = node.integers(wanted)
    rank = max(x.ndim, len(lengths))
    own = (1,) * (rank - x.ndim) + x.shape
    lengths = (1,) * (rank - len(lengths)) + lengths
    for n, m in zip(own, lengths):
        if 1 not in (n, m) and n != m:
            node.fail(f"an input of shape {x.shape} does not expand to {node.integers(wanted)}")
    return x.expand(*(m if n == 1 else n for n, m in zip(own, lengths)))


# --- joining, cutting, repeating ----------------------------------------------------------------------------


@operator("Concat", since=4)
def concat(node: Node, *inputs: Tensor) -> Tensor:
    return move.cat(*inputs, axis=normal_axis(node.get("axis", 1), inputs[0].ndim))


def equal_parts(n: int, count: int) -> list[int]:
    """Lengths of so many parts, as even as can be said by one length: the last may be shorter."""
    part = -(-n // count) if count else 0
    return [max(0, min(part, n - i * part)) for i in range(count)]


@operator("Split", since=2)
def split_by_attribute(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    axis = normal_axis(node.get("axis", 0), x.ndim)
    parts = node.get("split") or equal_parts(x.shape[axis], len(node.outputs))
    return x.split(list(parts), axis)


@operator("Split", since=13, reads=(1,))
def split(node: Node, x: Tensor, parts: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = normal_axis(node.get("axis", 0), x.ndim)
    count = node.get("num_outputs") or len(node.outputs)
    return x.split(
        list(node.integers(parts)) if parts is not None else equal_parts(x.shape[axis], count), axis
    )


def sliced(x: Tensor, starts: Any, ends: Any, axes: Any, steps: Any) -> Tensor:
    key = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = normal_axis(axis, x.ndim)
        n = x.shape[axis]
        if step == 0:
            raise ValueError("a slice has step 0")
        if step < 0 and end < -n:  # -1 would count from the end in Python
            key[axis] = slice(start, None, step)
        else:
            key[axis] = slice(start, end, step)
    return move.index(x, key=tuple(key))


@operator("Slice")
def slice_by_attributes(node: Node, x: Tensor) -> Tensor:
    starts, ends = node.get("starts", ()), node.get("ends", ())
    return sliced(x, starts, ends, node.get("axes") or range(len(starts)), (1,) * len(starts))


@operator("Slice", since=10, reads=(1, 2, 3, 4))
def slice_(
    node: Node,
    x: Tensor,
    starts: Tensor,
    ends: Tensor,
    axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> Tensor:
    first, last = node.integers(starts), node.integers(ends)
    along = range(len(first)) if axes is None else node.integers(axes)
    return sliced(x, first, last, along, (1,) * len(first) if steps is None else node.integers(steps))


@operator("Tile", since=6, reads=(1,))
def tile(node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    counts = node.integers(repeats)
    if len(counts) != x.ndim:
        node.fail(f"{len(counts)} repeats for an input of shape {x.shape}")
    for axis, count in enumerate(counts):  # one by one: all at once has twice as many axes
        if count != 1:
            x = x.repeat(*(count if a == axis else 1 for a in range(x.ndim)))
    return x


def padded(node: Node, x: Tensor, pads: Sequence[int], value: Any, axes: Sequence[int]) -> Tensor:
    """All beginnings before all ends in `pads`; negative numbers take cells away."""
    along = [normal_axis(axis, x.ndim) for axis in axes]
    if len(pads) != 2 * len(along):
        node.fail(f"{len(pads)} pads for {len(along)} axes")
    mode = node.get("mode", "constant")
    pairs = {axis: (pads[i], pads[i + len(along)]) for i, axis in enumerate(along)}
    if mode == "constant":
        flat = [n for axis in range(x.ndim)[::-1] for n in pairs.get(axis, (0, 0))]
        return pad(x, flat, value=value)
    if mode not in ("reflect", "edge", "wrap"):
        node.fail(f"attribute 'mode' is {mode!r}, expected constant, reflect, edge or wrap")
    for axis, (before, after) in pairs.items():
        if before or after:
            cells = np.pad(np.arange(x.shape[axis]), (max(before, 0), max(after, 0)), mode)  # type: ignore
            cells = cells[max(-before, 0) : len(cells) - max(-after, 0)]
            x = take(x, Tensor(cells, dtypes.int32, x.backend), axis=axis)
    return x


@operator("Pad", since=2)
def pad_by_attributes(node: Node, x: Tensor) -> Tensor:
    return padded(node, x, node.get("pads", ()), node.get("value", 0.0), range(x.ndim))


@operator("Pad", since=11, reads=(1, 2, 3))
def pad_(
    node: Node, x: Tensor, pads: Tensor, value: Tensor | None = None, axes: Tensor | None = None
) -> Tensor:
    along = range(x.ndim) if axes is None else node.integers(axes)
    return padded(node, x, node.integers(pads), 0 if value is None else value.item(), along)


# --- by position --------------------------------------------------------------------------------------------


@operator("Trilu", since=14, reads=(1,))
def trilu(node: Node, x: Tensor, k: Tensor | None = None) -> Tensor:
    offset = 0 if k is None else node.integer(k)
    return x.triu(offset) if node.get("upper", 1) else x.tril(offset)


@operator("ReverseSequence", since=10, reads=(1,))
def reverse_sequence(node: Node, x: Tensor, lengths: Tensor) -> Tensor:
    batch, time = node.get("batch_axis", 1), node.get("time_axis", 0)
    places = np.tile(np.arange(x.shape[time]), (x.shape[batch], 1))
    for row, n in zip(places, node.integers(lengths), strict=True):
        row[:n] = row[:n][::-1]
    shape = [x.shape[axis] if axis in (batch, time) else 1 for axis in range(x.ndim)]
    places = (places if batch < time else places.T).reshape(shape)
    return x.take_along_dim(Tensor(places, dtypes.int32, x.backend), time)
