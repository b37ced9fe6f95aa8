"""Ops that slide a window over the last axes: convolution and pooling, in any number of dimensions.

Shapes: N batch, C channels in, O channels out, G groups, K window cells, P window positions. Convolution has
three forms, which close under differentiation: conv, conv_input (a transposed convolution) and conv_weight;
convolution.py computes them.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..view import Shape, row_major
from .activation import activated
from .convolution import np_conv, np_conv_input, np_conv_weight
from .im2col import padded, positions, seen
from .table import Family, define, met, operands

AT_ONCE = 9  # cells of a window up to which comparing all of them is faster than going axis by axis


def infer_conv(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (N, C, …), w (O, C/G, …) and perhaps a bias (O,) give (N, O, …)."""
    ready, dtype = met(op, inputs)
    x, w, groups = ready[0], ready[1], params["groups"]
    if x.ndim != w.ndim or x.ndim < 3:
        raise ValueError(
            f"conv: input {x.shape} and weight {w.shape}: expected shapes (N, C, …) and (O, C/G, …)"
        )
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(f"conv: input {x.shape} and weight {w.shape} do not fit {groups} groups")
    if len(ready) > 2 and ready[2].shape != w.shape[:1]:
        raise ValueError(f"conv: a bias of shape {ready[2].shape} for {w.shape[0]} channels")
    spatial = tuple(
        map(positions, x.shape[2:], w.shape[2:], params["stride"], params["padding"], params["dilation"])
    )
    return ready, (x.shape[0], w.shape[0], *spatial), dtype


def infer_given_shape(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs = tuple(operands(op, inputs))
    return tuple(inputs), params["shape"], inputs[0].dtype


def infer_pool(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (N, C, …) gives (N, C, positions…)."""
    (x,), dtype = met(op, inputs)
    return (x,), x.shape[:2] + params["windows"], op.gives or dtype


def infer_pool_take(op: Any, inputs: tuple, params: dict) -> tuple:
    return inputs, inputs[1].shape, inputs[0].dtype


convolution = Family("conv", infer_conv, activated=activated)
convolution_back = Family("conv_back", infer_given_shape)
pooling = Family("pool", infer_pool)
pooling_back = Family("pool_back", infer_given_shape)
pool_picking = Family("pool_take", infer_pool_take)


def first_positions(x: Tensor, shape: Shape) -> Tensor:
    """Without those at the far ends that a transposed convolution with output padding leaves unused."""
    return x if x.layout.shape == shape else x[tuple(slice(0, n) for n in shape)]


conv = define(
    convolution,
    "conv",
    np_conv,
    lambda g, out, x, w, b=None, **p: conv_input(g, w, shape=x.shape, **p),
    lambda g, out, x, w, b=None, **p: conv_weight(g, x, shape=w.shape, **p),
    lambda g, out, x, w, b, **p: g.sum((0, *range(2, g.ndim))),  # (N, O, …) to (O,)
    takes="number",
)
conv_input = define(
    convolution_back,
    "conv_input",
    np_conv_input,
    lambda h, out, g, w, shape, **p: first_positions(conv(h, w, **p), g.shape),
    lambda h, out, g, w, shape, **p: conv_weight(g, h, shape=w.shape, **p),
)
conv_weight = define(
    convolution_back,
    "conv_weight",
    np_conv_weight,
    lambda h, out, g, x, shape, **p: first_positions(conv(x, h, **p), g.shape),
    lambda h, out, g, x, shape, **p: conv_input(g, h, shape=x.shape, **p),
)


# --- pooling: `windows` tells how many there are, so that ceil_mode needs no second rule --------------


def spread(
    x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape, fill: float
):
    """The input padded so far that every window, also one that ceil_mode added, lies inside."""
    reach = (s * (o - 1) + d * (k - 1) + 1 for s, o, d, k in zip(stride, windows, dilation, kernel))
    after = (max(r - n - p, 0) for r, n, p in zip(reach, x.shape[2:], padding))
    return padded(x, tuple(zip(padding, after)), fill)


def gathered(x: np.ndarray, kernel: Shape, stride: Shape, dilation: Shape, windows: Shape) -> np.ndarray:
    """The cells of every window of a spread input, (K, N, C, windows…)."""
    n, c, *steps = x.strides
    within = (s * d for s, d in zip(steps, dilation))
    between = (s * m for s, m in zip(steps, stride))
    shape = (*kernel, *x.shape[:2], *windows)
    cells = np.lib.stride_tricks.as_strided(x, shape, (*within, n, c, *between), writeable=False)
    return np.ascontiguousarray(cells).reshape(prod(kernel), *shape[len(kernel) :])


def np_pool_index(
    x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape
) -> np.ndarray:
    """Flat position, within the last axes, of each window's maximum: the first of equals, NaN before all."""
    wide = spread(x, kernel, stride, padding, dilation, windows, lowest_of(x.dtype))
    pitches = row_major(x.shape[2:])
    corner: Any = np.zeros((), np.int32)
    for axis, pitch in zip(range(-len(kernel), 0), pitches):
        corner = corner + begins(axis, stride, padding, windows) * np.int32(pitch)
    if wide.shape == x.shape and prod(kernel) <= AT_ONCE:
        cell = winner(gathered(wide, kernel, stride, dilation, windows))
        steps = [sum(k * d * p for k, d, p in zip(cell, dilation, pitches)) for cell in np.ndindex(kernel)]
        index = np.array(steps, np.int32).take(cell)
    else:
        index = np.zeros((), np.int32)
        winners = axis_winners(wide, kernel, stride, padding, dilation, windows)
        for cell, d, pitch in zip(winners, dilation, pitches):
            cells = np.multiply(cell, d * pitch, dtype=np.int32)
            index = np.add(index, cells, out=cells)
    return np.add(index, corner, out=index)


def winner(cells: np.ndarray) -> np.ndarray:
    """Which of a few cells (K, …) is the maximum."""
    best = cells.max(0)
    lost = cells != best
    if np.isnan(best.sum()):
        lost &= ~np.isnan(cells)  # then the first NaN
    number = np.full(best.shape, len(cells) - 1, np.uint8)
    for k in range(len(cells) - 2, -1, -1):  # k where it won, otherwise what is there
        number -= np.uint8(k)
        number *= lost[k]
        number += np.uint8(k)
    return number


def axis_winners(
    best: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape
) -> list[np.ndarray]:
    """Along each axis the cell of each window's maximum.

    The maximum of a box is taken axis by axis, the last first; each stage remembers the cell that won, and
    carries along those that won in the stages before.
    """
    watch_nan = best.dtype.kind == "f" and bool(np.isnan(best).any())
    axes = range(-1, -len(kernel) - 1, -1)
    winners: list[np.ndarray] = []
    for axis in axes:
        # A window may begin in the padding, which never wins: its first real cell is what it begins with.
        start = begins(axis, stride, padding, windows)
        first = np.where(start < 0, -(start // dilation[axis]), 0)
        rest = (slice(None),) * (-axis - 1)
        reach = stride[axis] * (windows[axis] - 1) + 1
        offsets = [cell * dilation[axis] for cell in range(kernel[axis])]
        spots = [(..., slice(offset, offset + reach, stride[axis]), *rest) for offset in offsets]
        best, winners = leaders(best, winners, spots, first, watch_nan)
    return winners


def begins(axis: int, stride: Shape, padding: Shape, windows: Shape) -> np.ndarray:
    """Where along an axis each window begins, shaped to broadcast over the axes behind it."""
    start = stride[axis] * np.arange(windows[axis], dtype=np.int32) - np.int32(padding[axis])
    return start.reshape(-1, *(1,) * (-axis - 1))


def leaders(
    x: np.ndarray, carried: list, spots: list, first: np.ndarray, watch_nan: bool
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Of each window along one axis the maximum; which cell it is, and what was carried with that cell."""
    kind = np.uint8 if len(spots) < 256 else np.int32
    best = np.array(x[spots[0]])
    cell = np.empty(best.shape, kind)
    cell[...] = first
    chosen = [np.array(c[spots[0]]) for c in carried]
    for number, spot in enumerate(spots[1:], 1):
        found = np.ascontiguousarray(x[spot])
        better = found > best
        if watch_nan:
            better |= np.isnan(found) & ~np.isnan(best)
        bits = np.negative(better.view(np.int8))  # all or none
        for to, source in zip([cell, *chosen], [kind(number), *(c[spot] for c in carried)]):
            # Choosing by bits: a branch for each element of a random mask costs several times more.
            change = to ^ source
            change &= bits.view(np.uint8) if to.dtype == np.uint8 else bits.astype(to.dtype)
            to ^= change
        np.maximum(best, found, out=best)
    return best, [cell, *chosen]


def np_max_pool(
    x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape
) -> np.ndarray:
    """The maximum of each window, one axis after another."""
    best = spread(x, kernel, stride, padding, dilation, windows, lowest_of(x.dtype))
    for axis, (k, s, d, count) in enumerate(zip(kernel, stride, dilation, windows), 2):
        cells = [
            best[(slice(None),) * axis + (slice(c * d, c * d + (count - 1) * s + 1, s),)] for c in range(k)
        ]
        best = np.maximum(cells[0], cells[-1])
        for cell in cells[1:-1]:
            np.maximum(best, cell, out=best)
    return best


def are_apart(geometry: dict) -> bool:
    """Whether no two windows share a cell."""
    sizes = zip(geometry["stride"], geometry["kernel"], geometry["dilation"])
    return all(s > d * (k - 1) for s, k, d in sizes)


def lowest_of(dtype: np.dtype) -> Any:
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind != "b" else False


def flat_spots(index: np.ndarray, planes: int, cells: int) -> np.ndarray:
    """Positions in the flattened input, of positions in each flattened plane.

    Raises
    ------
    IndexError
        If one lies outside its plane.
    """
    if index.size and (index.min() < 0 or index.max() >= cells):
        raise IndexError(
            f"pool: a position between {index.min()} and {index.max()} in planes of {cells} cells"
        )
    return index.reshape(planes, prod(index.shape[2:])) + np.arange(planes, dtype=np.intp)[:, None] * cells


def np_pool_take(x: np.ndarray, index: np.ndarray, apart: bool, geometry: dict | None = None) -> np.ndarray:
    planes, cells = x.shape[0] * x.shape[1], prod(x.shape[2:])
    return np.take(x.ravel(), flat_spots(index, planes, cells)).reshape(index.shape)


def np_pool_put(
    g: np.ndarray, index: np.ndarray, shape: Shape, apart: bool, geometry: dict | None = None
) -> np.ndarray:
    """The gradient of each window at the cell that its index names.

    `apart` says that no two windows share a cell; `geometry` is that of the windows, if `pool_index` gave the
    index, so that a backend may look for a cell's windows instead of for a window's cell.
    """
    if g.size == 0:
        return np.zeros(shape, g.dtype)
    planes, cells = shape[0] * shape[1], prod(shape[2:])
    spots = flat_spots(index, planes, cells).ravel()
    if not apart:
        return np.bincount(spots, g.ravel(), planes * cells).reshape(shape).astype(g.dtype)
    out = np.zeros(planes * cells, g.dtype)  # windows share no cell, so that nothing needs to be added
    out[spots] = g.ravel()
    return out.reshape(shape)


def np_avg_pool(
    x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape
) -> np.ndarray:
    ones = (1,) * len(kernel)
    wide = spread(x, kernel, stride, padding, ones, windows, 0)
    first, *rest = product(*map(range, kernel))
    total = np.array(wide[seen(first, stride, ones, windows)])
    for cell in rest:
        total += wide[seen(cell, stride, ones, windows)]
    total /= shares(x.shape[2:], kernel, stride, padding, divisor, windows).astype(x.dtype)
    return total


def np_avg_pool_input(
    g: np.ndarray, shape: Shape, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape
) -> np.ndarray:
    ones = (1,) * len(kernel)
    each = g / shares(shape[2:], kernel, stride, padding, divisor, windows).astype(g.dtype)
    wide = spread(np.zeros(shape, g.dtype), kernel, stride, padding, ones, windows, 0)
    apart = all(k <= s for k, s in zip(kernel, stride))
    for cell in product(*map(range, kernel)):
        spots = wide[seen(cell, stride, ones, windows)]
        np.copyto(spots, each) if apart else np.add(spots, each, out=spots)
    return wide[(..., *(slice(p, p + n) for p, n in zip(padding, shape[2:])))]


def shares(
    spatial: Shape, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape
) -> np.ndarray:
    """By what each window's sum is divided: a fixed number, or the cells it covers with or without padding.

    Cells beyond the far padding, which ceil_mode may reach, never count.
    """
    if not isinstance(divisor, str):
        return np.full(windows, divisor)
    counts = []
    for n, k, s, p, o in zip(spatial, kernel, stride, padding, windows):
        start = s * np.arange(o) - p
        end = np.minimum(start + k, n + p)
        if divisor == "inside":
            start, end = np.maximum(start, 0), np.minimum(end, n)
        counts.append(np.maximum(end - start, 0))
    return prod(np.ix_(*counts), start=np.ones(windows))


pool_index = define(pooling, "pool_index", np_pool_index, None, gives=dtypes.int32)
pool_take = define(
    pool_picking,
    "pool_take",
    np_pool_take,
    lambda g, out, x, index, **p: pool_put(g, index, shape=x.shape, **p),
    None,
)
pool_put = define(
    pooling_back,
    "pool_put",
    np_pool_put,
    lambda h, out, g, index, shape, **p: pool_take(h, index, **p),
    None,
)
max_pool = define(
    pooling,
    "max_pool",
    np_max_pool,
    lambda g, out, x, **p: pool_put(g, pool_index(x, **p), shape=x.shape, apart=are_apart(p), geometry=p),
)
avg_pool = define(
    pooling,
    "avg_pool",
    np_avg_pool,
    lambda g, out, x, **p: avg_pool_input(g, shape=x.shape, **p),
    takes="strict float",
)
avg_pool_input = define(
    pooling_back,
    "avg_pool_input",
    np_avg_pool_input,
    lambda h, out, g, shape, **p: avg_pool(h, **p),
)
