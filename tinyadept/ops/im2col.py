"""Convolution as a matrix product over the cells that each window sees, for a few rows or samples at a time.

Shapes: N batch, C channels in, O channels out, G groups, K window cells. Inputs are padded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import groupby, product
from math import prod

import numpy as np

from ..view import Shape, row_major
from .activation import activate
from .parallel import cores, each, scratch

Pairs = tuple[tuple[int, int], ...]
CHUNK_BYTES = 8 << 20  # of unfolded windows held at a time by a core
ENOUGH = 512  # positions that are unfolded even if they take more: a matrix product of fewer is slower
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


def padded(x: np.ndarray, padding: Pairs, fill: float = 0, memory: Callable = np.empty) -> np.ndarray:
    """The last axes, dense in memory, with cells added before and after; negative counts take cells away."""
    if not any(map(any, padding)):
        return np.ascontiguousarray(x)
    lead = x.ndim - len(padding)
    out = memory(x.shape[:lead] + tuple(n + a + b for n, (a, b) in zip(x.shape[lead:], padding)), x.dtype)
    into = tuple(slice(max(a, 0), a + n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    taken = tuple(slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    for axis, part in enumerate(into, lead):  # around it
        around = (slice(None),) * axis
        out[(*around, slice(0, part.start))] = fill
        out[(*around, slice(part.stop, None))] = fill
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

    def spots(self, runs: np.ndarray) -> np.ndarray:
        """Runs (channels, n, run) seen as (n, channels, positions…)."""
        channels, n, run = runs.strides
        shape = (self.count, runs.shape[0], *self.out)
        return np.ndarray(shape, runs.dtype, runs, 0, (n, channels, *(p * run for p in self.pitch)))


def pieces(
    samples: int, out: Shape, wide: Shape, cells: int, itemsize: int, stride: Shape, dense: bool = False
) -> list[Piece]:
    """Cut a convolution into pieces that unfold to about `CHUNK_BYTES`, or to `ENOUGH` positions."""
    dense = dense or any(s != 1 for s in stride)
    pitch = row_major((1, *out[1:]) if dense else (1, *wide[1:]))
    positions = max(ENOUGH, CHUNK_BYTES // max(1, cells * itemsize))
    rows = min(out[0], -(-positions // max(1, pitch[0])))
    rows = -(-out[0] // -(-out[0] // rows))  # as many pieces, all of about the same size
    several = max(1, positions // max(1, pitch[0] * rows)) if rows == out[0] else 1
    found = []
    for first in range(0, samples, several):
        for top in range(0, out[0], rows):
            part = (min(rows, out[0] - top), *out[1:])
            run = sum((o - 1) * p for o, p in zip(part, pitch)) + 1
            chosen = slice(first, min(first + several, samples)), slice(top, top + part[0])
            found.append(Piece(*chosen, part, pitch, run, dense))
    return found


def shares(cut: list[Piece]) -> list[list[Piece]]:
    """Neighbours together, two shares for each core: handing over a piece costs as much as some take."""
    size = max(1, -(-len(cut) // (2 * cores())))
    return [cut[at : at + size] for at in range(0, len(cut), size)]


def columns(
    x: np.ndarray,
    piece: Piece,
    kernel: Shape,
    stride: Shape,
    dilation: Shape,
    groups: int,
    ahead: int = 0,
    one: bool = False,
) -> np.ndarray:
    """What the windows of a piece see, one column a position, perhaps above a `one`: (G, C/G·K, n·run)."""
    n, c, *steps = x.strides
    start = (piece.samples.start - ahead) * n + piece.rows.start * stride[0] * steps[0]
    cells = tuple(s * d for s, d in zip(steps, dilation))
    if piece.dense:
        runs, jumps = piece.out, tuple(s * d for s, d in zip(steps, stride))
    else:
        runs, jumps = (piece.run,), (x.itemsize,)
    share = x.shape[1] // groups
    each = share * prod(kernel)  # rows of a group
    shape = (groups, share, *kernel, piece.count, *runs)
    view = np.ndarray(shape, x.dtype, x, start, (share * c, c, *cells, n, *jumps))
    cols = scratch.take("columns", (groups, each + one, piece.count * piece.run), x.dtype)
    cols[:, each:] = 1
    into = (cols.strides[0], *(s * x.itemsize for s in row_major(shape[1:])))
    np.ndarray(shape, x.dtype, cols, 0, into)[...] = view
    return cols


def seen(cell: tuple, stride: Shape, dilation: Shape, windows: Shape) -> tuple:
    """Where in the padded input each window has this cell."""
    steps = zip(cell, stride, dilation, windows)
    return (..., *(slice(k * d, k * d + s * (o - 1) + 1, s) for k, s, d, o in steps))


def forward(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None,
    out: Shape,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    activation: str = "",
) -> np.ndarray:
    """Of an input that is not padded yet (N, C, …): (N, O, …)."""
    kernel, (n, c), o = w.shape[2:], x.shape[:2], w.shape[0]
    flat = w.reshape(groups, o // groups, prod(w.shape[1:]))  # (G, O/G, C/G·K)
    one = bias is not None and flat.size < n * o * prod(out) // 8
    if bias is not None and one:  # the weight of a cell that is always one
        flat = np.concatenate([flat, bias.reshape(groups, -1, 1)], -1)
    y = np.empty((n, o, *out), x.dtype)
    cells, wide = c * prod(kernel), tuple(m + a + b for m, (a, b) in zip(x.shape[2:], padding))
    cut = shares(pieces(n, out, wide, cells, x.itemsize, stride))
    if len(cut) > n:
        x, padding = padded(x, padding), ()

    def work(some: list[Piece]) -> None:
        ahead = some[0].samples.start
        mine = padded(x[ahead : some[-1].samples.stop], padding, memory=scratch.named("padded"))
        for piece in some:
            cols = columns(mine, piece, kernel, stride, dilation, groups, ahead, one)
            runs = scratch.take("runs", (*flat.shape[:2], cols.shape[2]), x.dtype)  # (G, O/G, n·run)
            np.matmul(flat, cols, out=runs)
            activate(runs.reshape(o, runs.shape[2]), activation, None if one else bias)
            y[piece.samples, :, piece.rows] = piece.spots(runs.reshape(o, piece.count, piece.run))

    each(work, cut, cells * y[:, :1].nbytes > SHARED_OUT)
    return y


def gradient_runs(g: np.ndarray, piece: Piece, groups: int) -> np.ndarray:
    """A piece of the outer gradient laid out as runs, zero between rows: (G, O/G, n·run)."""
    runs = scratch.take("runs", (g.shape[1], piece.count, piece.run), g.dtype)
    runs[...] = 0
    piece.spots(runs)[...] = g[piece.samples, :, piece.rows]
    return runs.reshape(groups, g.shape[1] // groups, piece.count * piece.run)


def to_input(
    g: np.ndarray, w: np.ndarray, shape: Shape, stride: Shape, dilation: Shape, groups: int
) -> np.ndarray:
    """Gradient of the padded input, of shape (N, C, …)."""
    dx = spread(g, w, shape, stride, dilation, groups, dense=False)
    # Between rows a run has zeros, and zero times infinity is not zero: without runs nothing foreign is met.
    return dx if np.isfinite(dx).all() else spread(g, w, shape, stride, dilation, groups, dense=True)


def spread(
    g: np.ndarray, w: np.ndarray, shape: Shape, stride: Shape, dilation: Shape, groups: int, dense: bool
) -> np.ndarray:
    """Add up what each position gives to the cells that its window sees, by runs or (`dense`) row by row."""
    kernel, out, (n, c), wide = w.shape[2:], g.shape[2:], shape[:2], shape[2:]
    flat = w.reshape(groups, w.shape[0] // groups, prod(w.shape[1:])).swapaxes(1, 2)  # (G, C/G·K, O/G)
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
    cut = pieces(n, out, wide, cells, g.itemsize, stride, dense)
    # Rows of one sample overlap in the input, and so they are done one after another.
    by_sample = [list(some) for _, some in groupby(cut, key=lambda piece: piece.samples.start)]
    each(work, by_sample, cells * g[:, :1].nbytes > SHARED_OUT)
    return dx.swapaxes(0, 1)


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


def to_weight(
    g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    """Gradient of the weight, of shape (O, C/G, …), from an input that is not padded yet."""
    kernel, n, out = shape[2:], x.shape[0], g.shape[2:]
    wide = tuple(m + a + b for m, (a, b) in zip(x.shape[2:], padding))

    def product(cols: np.ndarray, runs: np.ndarray, piece: Piece) -> np.ndarray:
        if cols.shape[1] * runs.shape[1] > SKINNY:
            return np.matmul(cols, runs.swapaxes(1, 2)).swapaxes(1, 2)  # (G, O/G, C/G·K)
        # Few results of very many terms each: BLAS is several times faster on a batch of shorter sums.
        runs, cols = (a.reshape(*a.shape[:2], piece.count, piece.run) for a in (runs, cols))
        return np.matmul(runs.swapaxes(1, 2), cols.transpose(0, 2, 3, 1)).sum(1)

    def total(dense: bool) -> np.ndarray:
        cells = x.shape[1] * prod(kernel)
        cut = shares(pieces(n, out, wide, cells, x.itemsize, stride, dense))
        whole = padded(x, padding) if len(cut) > n else None

        def work(some: list[Piece]) -> np.ndarray:
            ahead = some[0].samples.start if whole is None else 0
            mine = whole
            if mine is None:
                mine = padded(x[ahead : some[-1].samples.stop], padding, memory=scratch.named("padded"))
            found = np.zeros((), x.dtype)
            for piece in some:
                cols = columns(mine, piece, kernel, stride, dilation, groups, ahead)
                found = found + product(cols, gradient_runs(g, piece, groups), piece)
            return found

        parts = each(work, cut, cells * g[:, :1].nbytes > SHARED_OUT)
        return sum(parts, start=np.zeros((), g.dtype)).reshape(shape) if parts else np.zeros(shape, g.dtype)

    dw = total(dense=False)
    # Between rows a run meets zeros of g, and zero times infinity is not zero: without runs nothing foreign
    # is met.
    return dw if np.isfinite(dw).all() else total(dense=True)
