"""Ops that slide a window over the last axes: convolution and pooling, in any number of dimensions.

Shapes: N batch, C channels in, O channels out, G groups, K window cells, P window positions. Convolution is
a matrix product over the cells that each window sees (im2col), done for a few samples at a time so that
memory stays bounded. Its three forms close under differentiation: conv, conv_input (a transposed
convolution) and conv_weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, product
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..view import Shape, row_major
from . import banded
from .parallel import cores, each, scratch
from .table import Family, define, met, operands

Pairs = tuple[tuple[int, int], ...]
CHUNK_BYTES = 4 << 20  # of unfolded windows held at a time by a core
SKINNY = 1024  # results of a product below which long sums are cut
SHARED_OUT = 16 << 20


def positions(length: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """How many windows fit along an axis.

    Raises
    ------
    ValueError
        If not even one does.
    """
    count = (length + pad[0] + pad[1] - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ValueError(
            f"a window of {kernel} cells, dilation {dilation}, exceeds an axis of {length} padded by {pad}"
        )
    return count


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


convolution = Family("conv", infer_conv)
convolution_back = Family("conv_back", infer_given_shape)
pooling = Family("pool", infer_pool)
pooling_back = Family("pool_back", infer_given_shape)
pool_picking = Family("pool_take", infer_pool_take)


# --- convolution --------------------------------------------------------------------------------------------


def padded(x: np.ndarray, padding: Pairs, fill: float = 0) -> np.ndarray:
    """The last axes, dense in memory, with cells added before and after; negative counts take cells away."""
    if not any(map(any, padding)):
        return np.ascontiguousarray(x)
    lead = x.ndim - len(padding)
    out = np.full(
        x.shape[:lead] + tuple(n + a + b for n, (a, b) in zip(x.shape[lead:], padding)), fill, x.dtype
    )
    into = tuple(slice(max(a, 0), a + n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    taken = tuple(slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    out[(..., *into)] = x[(..., *taken)]
    return out


@dataclass(frozen=True)
class Piece:
    """Some samples and some rows of window positions: what is unfolded at a time.

    With stride 1 a window cell sees, for all positions of a plane, one run of consecutive cells, a few of
    which belong to no position because rows end: copying whole runs is several times faster than copying row
    by row. So `pitch` says how far positions lie apart in a run, and `run` how long that is.
    """

    samples: slice
    rows: slice
    out: Shape  # positions of this piece along each axis
    pitch: Shape
    run: int
    dense: bool  # whether the run holds positions only

    @property
    def count(self) -> int:
        return self.samples.stop - self.samples.start

    def window(self, x: np.ndarray, kernel: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
        """The part of the padded input that this piece sees."""
        first = self.rows.start * stride[0]
        return x[
            self.samples, :, first : first + (self.out[0] - 1) * stride[0] + (kernel[0] - 1) * dilation[0] + 1
        ]

    def spots(self, runs: np.ndarray) -> np.ndarray:
        """Runs (channels, n, run) seen as (n, channels, positions…)."""
        channels, n, run = runs.strides
        shape = (self.count, runs.shape[0], *self.out)
        return np.ndarray(shape, runs.dtype, runs, 0, (n, channels, *(p * run for p in self.pitch)))


def pieces(
    samples: int, out: Shape, wide: Shape, cells: int, itemsize: int, stride: Shape, dense: bool = False
) -> Iterator[Piece]:
    """Cut a convolution into pieces that unfold to at most about `CHUNK_BYTES`, or to one row of a sample."""
    dense = dense or any(s != 1 for s in stride)
    pitch = row_major((1, *out[1:]) if dense else (1, *wide[1:]))
    row_bytes = max(1, cells * pitch[0] * itemsize)
    rows = min(out[0], max(1, CHUNK_BYTES // row_bytes))
    share = min(CHUNK_BYTES, -(-samples * out[0] * row_bytes // (2 * cores())))  # two pieces for each core
    several = max(1, share // (row_bytes * rows)) if rows == out[0] else 1
    for first in range(0, samples, several):
        for top in range(0, out[0], rows):
            part = (min(rows, out[0] - top), *out[1:])
            run = sum((o - 1) * p for o, p in zip(part, pitch)) + 1
            yield Piece(
                slice(first, min(first + several, samples)),
                slice(top, top + part[0]),
                part,
                pitch,
                run,
                dense,
            )


def columns(
    x: np.ndarray, piece: Piece, kernel: Shape, stride: Shape, dilation: Shape, groups: int
) -> np.ndarray:
    """What the windows of a piece see, one column a position: (G, C/G·K, n·run)."""
    x = piece.window(x, kernel, stride, dilation)
    n, c, *steps = x.strides
    cells = tuple(s * d for s, d in zip(steps, dilation))
    if piece.dense:
        shape, jumps = piece.out, tuple(s * d for s, d in zip(steps, stride))
    else:
        shape, jumps = (piece.run,), (x.itemsize,)
    view = np.lib.stride_tricks.as_strided(
        x, (x.shape[1], *kernel, piece.count, *shape), (c, *cells, n, *jumps), writeable=False
    )
    cols = scratch.take("columns", view.shape, x.dtype)
    np.copyto(cols, view)
    return cols.reshape(groups, -1, piece.count * piece.run)


def is_pointwise(kernel: Shape, stride: Shape, padding: Pairs) -> bool:
    """Whether windows are single cells, so that nothing needs to be unfolded."""
    return prod(kernel) == 1 and all(s == 1 for s in stride) and not any(map(any, padding))


def np_conv(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
) -> np.ndarray:
    kernel, (n, c), o = w.shape[2:], x.shape[:2], w.shape[0]
    out = tuple(map(positions, x.shape[2:], kernel, stride, padding, dilation))
    flat = w.reshape(groups, o // groups, prod(w.shape[1:]))  # (G, O/G, C/G·K)
    if is_pointwise(kernel, stride, padding):
        y = np.matmul(flat, x.reshape(n, groups, c // groups, prod(out))).reshape(n, o, *out)
        if bias is not None:
            y += bias.reshape(-1, *(1,) * len(out))
        return y
    bias = np.zeros(o, x.dtype) if bias is None else bias
    x = padded(x, padding)
    if banded.fits(kernel, x.shape[2:], o, groups):
        y = banded.forward(x, w, bias, out, stride, dilation)
        if np.isfinite(y).all():  # zeros of the band meet cells that no window sees: zero times infinity
            return y
    y = np.empty((n, o, *out), x.dtype)

    def work(piece: Piece) -> None:
        cols = columns(x, piece, kernel, stride, dilation, groups)
        runs = scratch.take("runs", (*flat.shape[:2], cols.shape[2]), x.dtype)  # (G, O/G, n·run)
        np.matmul(flat, cols, out=runs)
        spots = piece.spots(runs.reshape(o, piece.count, piece.run))
        np.add(spots, bias.reshape(-1, *(1,) * len(out)), out=y[piece.samples, :, piece.rows])

    cells = c * prod(kernel)
    each(work, pieces(n, out, x.shape[2:], cells, x.itemsize, stride), cells * y[:, :1].nbytes > SHARED_OUT)
    return y


def gradient_runs(g: np.ndarray, piece: Piece, groups: int) -> np.ndarray:
    """A piece of the outer gradient laid out as runs, zero between rows: (G, O/G, n·run)."""
    runs = scratch.take("runs", (g.shape[1], piece.count, piece.run), g.dtype)
    runs[...] = 0
    piece.spots(runs)[...] = g[piece.samples, :, piece.rows]
    return runs.reshape(groups, g.shape[1] // groups, piece.count * piece.run)


def np_conv_input(
    g: np.ndarray, w: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    kernel, out, (n, c) = w.shape[2:], g.shape[2:], shape[:2]
    flat = w.reshape(groups, w.shape[0] // groups, prod(w.shape[1:])).swapaxes(1, 2)  # (G, C/G·K, O/G)
    if is_pointwise(kernel, stride, padding) and out == shape[2:]:
        return np.matmul(flat, g.reshape(n, groups, w.shape[0] // groups, prod(out))).reshape(shape)
    wide = tuple(m + a + b for m, (a, b) in zip(shape[2:], padding))
    crop = (..., *(slice(a, a + m) for m, (a, _) in zip(shape[2:], padding)))
    if banded.fits(kernel, wide, w.shape[0], groups):
        dx = banded.to_input(g, w, wide, stride, dilation)
        if np.isfinite(dx).all():
            return dx[crop]
    dx = np.zeros((c, n, *wide), g.dtype)

    def work(some: list[Piece]) -> None:
        for piece in some:
            runs = gradient_runs(g, piece, groups)
            cols = scratch.take("columns", (*flat.shape[:2], runs.shape[2]), g.dtype)  # (G, C/G·K, n·run)
            np.matmul(flat, runs, out=cols)
            cols = cols.reshape(c, *kernel, piece.count, piece.run)
            for cell in product(*map(range, kernel)):
                add_cell(dx, cols[(slice(None), *cell)], piece, cell, stride, dilation)

    cells = c * prod(kernel)
    cut = pieces(n, out, wide, cells, g.itemsize, stride)
    # Rows of one sample overlap in the input, and so they are done one after another.
    by_sample = [list(some) for _, some in groupby(cut, key=lambda piece: piece.samples.start)]
    each(work, by_sample, cells * g[:, :1].nbytes > SHARED_OUT)
    return np.ascontiguousarray(dx[crop].swapaxes(0, 1))


def add_cell(
    dx: np.ndarray, runs: np.ndarray, piece: Piece, cell: tuple, stride: Shape, dilation: Shape
) -> None:
    """Add what one window cell contributes, (C, n, run), to the cells of the input that it saw, (C, N, …)."""
    top = piece.rows.start * stride[0]
    if piece.dense:
        part = dx[:, piece.samples, top:]
        part[seen(cell, stride, dilation, piece.out)] += runs.reshape(*runs.shape[:2], *piece.out)
        return
    channels, n, *steps = dx.strides
    corner = (top + cell[0] * dilation[0], *(k * d for k, d in zip(cell[1:], dilation[1:])))
    offset = piece.samples.start * n + sum(c * s for c, s in zip(corner, steps))
    view = np.ndarray(runs.shape, dx.dtype, dx, offset, (channels, n, dx.itemsize))
    view += runs


def np_conv_weight(
    g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    kernel, out, n = shape[2:], g.shape[2:], x.shape[0]
    x = padded(x, padding)

    def work(piece: Piece) -> np.ndarray:
        cols = columns(x, piece, kernel, stride, dilation, groups)
        runs = gradient_runs(g, piece, groups)
        if cols.shape[1] * runs.shape[1] > SKINNY:
            return np.matmul(cols, runs.swapaxes(1, 2)).swapaxes(1, 2)  # (G, O/G, C/G·K)
        # Few results of very many terms each: BLAS is several times faster on a batch of shorter sums.
        runs, cols = (a.reshape(*a.shape[:2], piece.count, piece.run) for a in (runs, cols))
        return np.matmul(runs.swapaxes(1, 2), cols.transpose(0, 2, 3, 1)).sum(1)

    def total(dense: bool) -> np.ndarray:
        cells = x.shape[1] * prod(kernel)
        cut = pieces(n, out, x.shape[2:], cells, x.itemsize, stride, dense)
        parts = each(work, cut, cells * g[:, :1].nbytes > SHARED_OUT)
        return sum(parts, start=np.zeros((), g.dtype)).reshape(shape) if parts else np.zeros(shape, g.dtype)

    if banded.fits(kernel, x.shape[2:], shape[0], groups):
        dw = banded.to_weight(g, x, shape, stride, dilation)
        if np.isfinite(dw).all():
            return dw
    dw = total(dense=False)
    # Between rows a run meets zeros of g, and zero times infinity is not zero: without runs nothing foreign
    # is met.
    return dw if np.isfinite(dw).all() else total(dense=True)


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


def seen(cell: tuple, stride: Shape, dilation: Shape, windows: Shape) -> tuple:
    """Where in the padded input each window has this cell."""
    steps = zip(cell, stride, dilation, windows)
    return (..., *(slice(k * d, k * d + s * (o - 1) + 1, s) for k, s, d, o in steps))


def np_pool_index(
    x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape
) -> np.ndarray:
    """Flat position, within the last axes, of each window's maximum: the first of equals, NaN before all.

    The maximum of a box is taken axis by axis, the last first; each stage remembers the cell that won, and
    carries along those that won in the stages before.
    """
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min if x.dtype.kind != "b" else False
    best = spread(x, kernel, stride, padding, dilation, windows, lowest)
    watch_nan = x.dtype.kind == "f" and bool(np.isnan(x).any())
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
    index, corner, pitch = np.zeros((), np.int32), np.zeros((), np.int32), 1
    for axis in axes:
        cells = np.multiply(winners[axis], dilation[axis] * pitch, dtype=np.int32)
        index = np.add(index, cells, out=cells)
        corner = corner + begins(axis, stride, padding, windows) * np.int32(pitch)
        pitch *= x.shape[axis]
    return np.add(index, corner, out=index)


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


def np_pool_take(x: np.ndarray, index: np.ndarray, apart: bool) -> np.ndarray:
    planes, cells = x.shape[0] * x.shape[1], prod(x.shape[2:])
    return np.take(x.ravel(), flat_spots(index, planes, cells)).reshape(index.shape)


def np_pool_put(g: np.ndarray, index: np.ndarray, shape: Shape, apart: bool) -> np.ndarray:
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
    total = np.zeros((*x.shape[:2], *windows), x.dtype)
    for cell in product(*map(range, kernel)):
        total += wide[seen(cell, stride, ones, windows)]
    return total / shares(x.shape[2:], kernel, stride, padding, divisor, windows).astype(x.dtype)


def np_avg_pool_input(
    g: np.ndarray, shape: Shape, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape
) -> np.ndarray:
    ones = (1,) * len(kernel)
    each = g / shares(shape[2:], kernel, stride, padding, divisor, windows).astype(g.dtype)
    wide = spread(np.zeros(shape, g.dtype), kernel, stride, padding, ones, windows, 0)
    for cell in product(*map(range, kernel)):
        wide[seen(cell, stride, ones, windows)] += each
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
    lambda g, out, x, index, apart: pool_put(g, index, shape=x.shape, apart=apart),
    None,
)
pool_put = define(
    pooling_back,
    "pool_put",
    np_pool_put,
    lambda h, out, g, index, shape, apart: pool_take(h, index, apart=apart),
    None,
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
