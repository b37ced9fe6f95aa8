"""What stands between brackets: ints, slices, None and ... move the view; tensors gather and scatter."""

from __future__ import annotations

import operator
from math import prod
from typing import Any

import numpy as np

from . import dtypes
from .ops import index as rows
from .ops import move
from .ops.elementwise import copy, where
from .ops.table import Move, begin_write, check_writable, lift
from .tape import as_view
from .tensor import Tensor


def parsed(x: Tensor, key: Any) -> list:
    """One entry for every axis, in order, with None between them for new axes.

    Raises
    ------
    IndexError
        If there are more entries than axes, or two ellipses.
    TypeError
        If an entry is none of int, slice, None, ellipsis, or integer or boolean tensor, array or list.
    """
    entries = [entry_of(x, entry) for entry in (key if isinstance(key, tuple) else (key,))]
    used = sum(axes_of(entry) for entry in entries)
    if used > x.ndim:
        raise IndexError(f"too many indices for a tensor of {x.ndim} axes: got {used}")
    dots = [position for position, entry in enumerate(entries) if entry is Ellipsis]
    if len(dots) > 1:
        raise IndexError("an index can have only one ellipsis (...)")
    at = dots[0] if dots else len(entries)
    return entries[:at] + [slice(None)] * (x.ndim - used) + entries[at + len(dots) :]


def entry_of(x: Tensor, entry: Any) -> Any:
    if entry is None or entry is Ellipsis:
        return entry
    if isinstance(entry, slice):
        return slice(
            *(
                None if part is None else operator.index(part)
                for part in (entry.start, entry.stop, entry.step)
            )
        )
    if isinstance(entry, (int, np.integer)) and not isinstance(entry, (bool, np.bool_)):
        return int(entry)
    if isinstance(entry, (list, np.ndarray)):
        entry = Tensor(entry, dtypes.int32 if np.size(entry) == 0 else None, x.backend)
    if isinstance(entry, Tensor) and (entry.dtype == dtypes.bool_ or entry.dtype in dtypes.INTEGERS):
        return entry
    got = entry.dtype.name + " tensor" if isinstance(entry, Tensor) else type(entry).__name__
    raise TypeError(
        f"cannot index with {got}: expected ints, slices, None, ..., or integer or boolean tensors"
    )


def axes_of(entry: Any) -> int:
    """How many axes an entry uses up."""
    if entry is None or entry is Ellipsis:
        return 0
    return entry.ndim if isinstance(entry, Tensor) and entry.dtype == dtypes.bool_ else 1


def is_basic(key: list) -> bool:
    return not any(isinstance(entry, Tensor) for entry in key)


def split_key(x: Tensor, key: list) -> tuple[tuple, list[int], list[Tensor]]:
    """The part that only moves the view; then, in the moved tensor, which axes are indexed and by what."""
    basic, axes, indices, old, new = [], [], [], 0, 0
    for entry in key:
        if not isinstance(entry, Tensor):
            basic.append(entry)
            new += not isinstance(entry, int)
            old += entry is not None
            continue
        columns, along = [entry], slice(None)
        if entry.dtype == dtypes.bool_:
            if entry.shape != x.shape[old : old + entry.ndim]:
                raise IndexError(
                    f"a mask of shape {entry.shape} does not fit axes {x.shape[old : old + entry.ndim]}"
                )
            columns = list(mask_columns(entry if entry.shape else entry.reshape(1)))
            along = slice(None) if entry.shape else None  # a 0-d mask makes an axis of its own
        for column in columns:
            basic.append(along)
            axes.append(new)
            indices.append(column)
            new, old = new + 1, old + (along is not None)
    return tuple(basic), axes, indices


def mask_columns(mask: Tensor) -> tuple[Tensor, ...]:
    """The coordinates of the true elements, one int32 tensor for each axis."""
    where_true = rows.nonzero(mask, count=int(mask.sum().item()))
    return tuple(where_true[:, axis] for axis in range(mask.ndim))


def gathered_axis(x: Tensor, axes: list[int], indices: list[Tensor]) -> tuple[Tensor, Tensor, int, tuple]:
    """Bring several indexed axes together as one, and their indices to one number each.

    Returns the rearranged tensor, the index, the axis, and the order of axes that was applied.
    """
    order = tuple(range(x.ndim))
    at = axes[0]
    if axes != list(range(at, at + len(axes))):  # indexed axes that are apart go to the front
        order = tuple(axes) + tuple(a for a in order if a not in axes)
        x, at = x.permute(*order), 0
    flat = None
    for position, index in enumerate(indices):
        index = rows.in_range(index, size=x.shape[at + position])
        flat = index if flat is None else flat * x.shape[at + position] + index
    assert flat is not None
    merged = x.reshape(*x.shape[:at], prod(x.shape[at : at + len(axes)]), *x.shape[at + len(axes) :])
    return merged, flat, at, order


def get(x: Tensor, key: Any) -> Tensor:
    entries = parsed(x, key)
    if is_basic(entries):
        return move.index(x, key=tuple(entries))
    basic, axes, indices = split_key(x, entries)
    merged, index, axis, _ = gathered_axis(move.index(x, key=basic), axes, indices)
    return rows.take(merged, index, axis=axis)


def set(x: Tensor, key: Any, value: Any) -> None:
    entries = parsed(x, key)
    if not isinstance(value, Tensor):
        value = (
            lift(value, x.dtype, x.backend)
            if isinstance(value, (bool, int, float))
            else Tensor(value, device=x.backend)
        )
    value = value.to(x.backend).to(x.dtype)
    if is_basic(entries):
        write(x, Move(move.index.op, (("key", tuple(entries)),)), value)
        return
    masks = [entry for entry in entries if isinstance(entry, Tensor)]
    if len(masks) == 1 and masks[0].dtype == dtypes.bool_ and value.numel() == 1:
        set_where(x, entries, masks[0], value.reshape(()))
        return
    basic, axes, indices = split_key(x, entries)
    region = move.index(x, key=basic)
    merged, index, axis, order = gathered_axis(region, axes, indices)
    value = value.broadcast_to(*merged.shape[:axis], *index.shape, *merged.shape[axis + 1 :])
    changed = rows.put(merged, index, value, axis=axis)
    changed = changed.reshape(*(region.shape[a] for a in order)).permute(*move.inverse(order))
    write(x, Move(move.index.op, (("key", basic),)), changed)


def set_where(x: Tensor, entries: list, mask: Tensor, value: Tensor) -> None:
    """One number where a mask is true: no need to know how many there are."""
    position = next(i for i, entry in enumerate(entries) if isinstance(entry, Tensor))
    basic = tuple(entries[:position] + [slice(None)] * mask.ndim + entries[position + 1 :])
    region = move.index(x, key=basic)
    before = sum(1 for entry in entries[:position] if not isinstance(entry, int))
    if mask.shape != region.shape[before : before + mask.ndim]:
        raise IndexError(
            f"a mask of shape {mask.shape} does not fit axes {region.shape[before : before + mask.ndim]}"
        )
    mask = mask.reshape(*mask.shape, *(1,) * (region.ndim - before - mask.ndim))
    write(x, Move(move.index.op, (("key", basic),)), where(mask, value, region))


def write(x: Tensor, spot: Move, value: Tensor) -> None:
    """Copy a value over one region of a tensor, whose history then continues from this step."""
    region = as_view(x, spot.op.forward(x.layout, **dict(spot.params)))
    value = squeezed_to(value, region.ndim).broadcast_to(*region.shape)
    check_writable(move.assign.op, x)
    in_place_already = value.buffer is x.buffer and value.layout == region.layout
    if in_place_already and x.version == value.version - 1:
        x.version = value.version  # x[i] += y: Python wrote through x[i], and now hands it back
    rewrite = begin_write(move.assign.op, x, (x, value), {"move": spot})
    if not in_place_already:
        x.backend.run(copy.op, (value,), value.shape, x.dtype, {}, into=region)
    rewrite()


def squeezed_to(value: Tensor, rank: int) -> Tensor:
    """Leading axes of length 1 beyond the region's rank do not matter."""
    while value.ndim > rank and value.shape[0] == 1:
        value = value.select(0, 0)
    return value
