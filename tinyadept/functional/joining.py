"""Functions that join, pad, pair or sort whole tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import dtypes
from ..creation import arange, full, ones
from ..ops import index, move
from ..ops.table import Move, broadcast
from ..tensor import Tensor
from ..view import normal_axis


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join along an axis that exists.

    Empty vectors beside tensors of more axes are passed over, as in PyTorch.

    Raises
    ------
    ValueError
        If there are no tensors, or their other axes differ.
    """
    tensors = list(tensors)
    if not all(isinstance(x, Tensor) for x in tensors):
        raise TypeError(f"cat takes tensors, got {', '.join(type(x).__name__ for x in tensors)}")
    sized = [x for x in tensors if x.shape != (0,)]
    return move.cat(*(sized if sized and any(x.ndim > 1 for x in sized) else tensors), axis=dim)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors of one shape along a new axis.

    Raises
    ------
    ValueError
        If there are no tensors, or their shapes differ.
    """
    shapes = {x.shape for x in tensors}
    if len(shapes) != 1:
        raise ValueError(f"stack takes tensors of one shape, got {sorted(shapes) or 'none'}")
    return move.cat(*(x.unsqueeze(dim) for x in tensors), axis=normal_axis(dim, len(shapes.pop()) + 1))


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Add cells before and after axes; negative counts take cells away (constant mode).

    Parameters
    ----------
    input : Tensor
    pad : sequence of int
        Before and after the last axis, before and after the one in front of it, and so on.
    mode : str
        ``"constant"``, ``"reflect"``, ``"replicate"`` or ``"circular"``.
    value : float, optional
        What constant mode fills with; 0 by default.

    Raises
    ------
    ValueError
        If the mode is unknown, or an axis is too short for what it shall reflect.
    """
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ValueError(f"pad: {list(pad)} must hold a pair for each padded axis of shape {input.shape}")
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    axes = range(input.ndim - 1, input.ndim - 1 - len(pairs), -1)
    if mode == "constant":
        return pad_constant(input, dict(zip(axes, pairs, strict=True)), 0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise ValueError(f"pad: mode must be constant, reflect, replicate or circular, got {mode!r}")
    if value not in (None, 0):
        raise ValueError(f"pad: mode {mode!r} takes no value, got {value}")
    if not len(pairs) < input.ndim <= len(pairs) + 2:
        raise ValueError(
            f"pad: mode {mode!r} with {len(pairs)} pairs takes {len(pairs) + 1} or {len(pairs) + 2} axes"
        )
    for axis, (before, after) in zip(axes, pairs, strict=True):
        cells = mirrored(input.shape[axis], before, after, mode)
        input = index.take(input, Tensor(cells, dtypes.int32, input.backend), axis=axis)
    return input


def pad_constant(x: Tensor, pairs: dict[int, tuple[int, int]], value: float) -> Tensor:
    for axis, (before, after) in pairs.items():
        n = x.shape[axis]
        if n + before + after < 0:
            raise ValueError(f"pad: axis {axis} of length {n} cannot lose {-before - after} cells")
        x = x.narrow(axis, max(-before, 0), n + min(before, 0) + min(after, 0))
    shape, key = list(x.shape), [slice(None)] * x.ndim
    for axis, (before, after) in pairs.items():
        key[axis] = slice(max(before, 0), max(before, 0) + x.shape[axis])
        shape[axis] += max(before, 0) + max(after, 0)
    spot = Move(move.index.op, (("key", tuple(key)),))
    return move.place(x, shape=tuple(shape), move=spot, fill=value) if tuple(shape) != x.shape else x.clone()


def mirrored(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """For each cell of a padded axis, the cell of the input that it shows."""
    cells = np.arange(-before, n + after)
    if len(cells) < 1:
        raise ValueError(f"pad: an axis of length {n} padded by {before} and {after} has no cells")
    if mode == "replicate" and n > 0:
        return np.clip(cells, 0, n - 1)
    first, last = (
        max(-before, 0),
        n + min(after, 0),
    )  # negative counts take cells away before the rest is repeated
    if mode == "circular" and max(before, after) <= last - first:
        return first + (cells - first) % (last - first)
    if mode == "reflect" and max(before, after) < n:
        return n - 1 - np.abs(n - 1 - np.abs(cells))
    raise ValueError(f"pad: an axis of length {n} is too short to {mode} by {before} and {after}")


def repeat_interleave(input: Tensor, repeats: int, dim: int | None = None) -> Tensor:
    """Each element repeated in place along an axis, or of the flattened tensor."""
    x = input.flatten() if dim is None else input
    axis = normal_axis(0 if dim is None else dim, x.ndim)
    if not isinstance(repeats, int):
        raise TypeError(f"repeat_interleave takes one count for all elements, got {type(repeats).__name__}")
    if repeats < 0:
        raise ValueError(f"repeat_interleave: expected a count of at least 0, got {repeats}")
    spread = x.unsqueeze(axis + 1).expand(*x.shape[: axis + 1], repeats, *x.shape[axis + 1 :])
    return spread.contiguous().reshape(*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1 :])


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements, or slices along an axis, in ascending order. Their number is read back.

    Returns
    -------
    Tensor or tuple
        The elements; then, where asked for, for each element of the input where it stands among them, and
        how often each occurs (both int32).
    """
    x = input.flatten() if dim is None else input
    axis = 0 if dim is None else normal_axis(dim, x.ndim)
    front = x.permute(axis, *(a for a in range(x.ndim) if a != axis))
    rows = front.reshape(x.shape[axis], -1) if x.numel() else x.reshape(x.shape[axis], 0)
    order = arange(rows.shape[0], device=x.backend)
    for column in reversed(range(rows.shape[1])):
        order = order[rows[order, column].argsort()]
    ranked = rows[order]
    fresh = ones(rows.shape[0], dtype=dtypes.bool_, device=x.backend)
    if rows.shape[0] > 1:
        fresh[1:] = (ranked[1:] != ranked[:-1]).any(1)
    first = fresh.nonzero().flatten()
    results = [index.take(x, order[first], axis=axis)]
    if return_inverse:
        number = fresh.to(dtypes.int32).cumsum(0) - 1
        inverse = number.scatter(0, order, number)
        results.append(inverse.reshape(*input.shape) if dim is None else inverse)
    if return_counts:
        end = full((1,), rows.shape[0], device=x.backend)
        results.append(cat([first[1:], end]) - first if first.numel() else first)
    return results[0] if len(results) == 1 else tuple(results)


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Vectors spread over a common grid; "xy" exchanges the first two axes."""
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    shape = tuple(x.numel() for x in tensors)
    grids = [
        x.reshape(*(x.numel() if a == i else 1 for a in range(len(shape)))).expand(shape)
        for i, x in enumerate(tensors)
    ]
    return tuple(g.transpose(0, 1) for g in grids) if indexing == "xy" and len(shape) > 1 else tuple(grids)


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    shape = broadcast("broadcast_tensors", *(x.shape for x in tensors))
    return tuple(x.expand(shape) for x in tensors)
