"""Winograd's convolution with windows of 3 × 3 cells and steps of one.

`side` × `side` results are made from `edge` × `edge` cells, edge = side + 2, by edge² products for each pair
of channels instead of 9 · side²: A [(G w Gᵀ) ⊙ (Bᵀ d B)] Aᵀ (Lavin and Gray, Fast algorithms for
convolutional neural networks, 2016). docs/convolution.md says what that costs in accuracy. Shapes as in
`im2col`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np

from ..view import Shape
from .im2col import Pairs, padded
from .parallel import each, scratch

Matrices = tuple[np.ndarray, np.ndarray, np.ndarray]
CHUNK_BYTES = 4 << 20  # of transformed cells held at a time by a core
INPUT = {
    2: [[1, 0, -1, 0], [0, 1, 1, 0], [0, -1, 1, 0], [0, 1, 0, -1]],
    4: [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ],
}
WEIGHT = {
    2: [[1, 0, 0], [1 / 2, 1 / 2, 1 / 2], [1 / 2, -1 / 2, 1 / 2], [0, 0, 1]],
    4: [
        [1 / 4, 0, 0],
        [-1 / 6, -1 / 6, -1 / 6],
        [-1 / 6, 1 / 6, -1 / 6],
        [1 / 24, 1 / 12, 1 / 6],
        [1 / 24, -1 / 12, 1 / 6],
        [0, 0, 1],
    ],
}
OUTPUT = {
    2: [[1, 1, 1, 0], [0, 1, -1, -1]],
    4: [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]],
}


@cache
def transforms(side: int, dtype: np.dtype) -> Matrices:
    """Of input, weight and output, each for both axes at once, as a matrix over flattened cells."""
    one, two, three = (np.array(table[side], np.float64) for table in (INPUT, WEIGHT, OUTPUT))
    return tuple(np.kron(m, m).astype(dtype) for m in (one, two, three))  # type: ignore[return-value]


def fits(kind: str, kernel: Shape, stride: Shape, dilation: Shape) -> bool:
    """Whether windows of floats are 3 × 3 cells side by side, one further at each position."""
    return kind == "f" and kernel == (3, 3) and all(s == 1 for s in (*stride, *dilation))


def forward(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    padding: Pairs,
    out: Shape,
    groups: int,
    side: int,
    matrices: Matrices | None = None,
) -> np.ndarray:
    """Of an unpadded input (N, C, H, W): (N, O, H', W'); `matrices` in place of the `transforms`."""
    (n, c), o, edge = x.shape[:2], w.shape[0], side + 2
    into, weights, back = matrices or transforms(side, x.dtype)
    u = (weights @ w.reshape(-1, 9).T).reshape(edge * edge, groups, o // groups, c // groups)
    tiles = tuple(-(-p // side) for p in out)
    sides = zip(padding, tiles, x.shape[2:], strict=True)
    x = padded(x, tuple((a, t * side + 2 - a - m) for (a, _), t, m in sides))
    y = np.empty((n, o, *out), x.dtype)

    def work(piece: tuple[slice, slice]) -> None:
        d = cells_of(x[piece[0]], piece[1], tiles[1], side)  # (edge², C·T)
        v = np.matmul(into, d, out=scratch.take("v", d.shape, d.dtype)).reshape(
            edge * edge, groups, c // groups, -1
        )
        products = scratch.take("products", (edge * edge, groups, o // groups, v.shape[-1]), x.dtype)
        np.matmul(u, v, out=products)
        results = scratch.take("results", (side * side, o * v.shape[-1]), x.dtype)
        np.matmul(back, products.reshape(edge * edge, -1), out=results)
        place(results, y, bias, piece, tiles[1], side)

    cut = list(pieces(n, tiles, max(c, o) * edge * edge * x.itemsize))
    each(work, cut, len(cut) > 1)
    return y


def pieces(samples: int, tiles: Shape, tile_bytes: int) -> Iterator[tuple[slice, slice]]:
    """Some samples, and some rows of their tiles."""
    row_bytes = tile_bytes * tiles[1]
    rows = min(tiles[0], max(1, CHUNK_BYTES // row_bytes))
    several = max(1, CHUNK_BYTES // (row_bytes * rows)) if rows == tiles[0] else 1
    for first in range(0, samples, several):
        for top in range(0, tiles[0], rows):
            yield slice(first, min(first + several, samples)), slice(top, min(top + rows, tiles[0]))


def cells_of(x: np.ndarray, rows: slice, across: int, side: int) -> np.ndarray:
    """The cells of some rows of tiles, (edge², C·n·rows·across)."""
    (n, c), (sn, sc, sh, sw), edge = x.shape[:2], x.strides, side + 2
    shape = (edge, edge, c, n, rows.stop - rows.start, across)
    steps = (sh, sw, sc, sn, side * sh, side * sw)
    view = np.lib.stride_tricks.as_strided(x[:, :, rows.start * side :], shape, steps, writeable=False)
    cells = scratch.take("cells", shape, x.dtype)
    np.copyto(cells, view)
    return cells.reshape(edge * edge, -1)


def place(
    results: np.ndarray, y: np.ndarray, bias: np.ndarray, piece: tuple[slice, slice], across: int, side: int
) -> None:
    """Put tiles (side², O·n·rows·across) where they belong, with the bias; beyond the edges they are cut."""
    samples, rows = piece
    o, height = y.shape[1:3]
    tiles = results.reshape(side, side, o, samples.stop - samples.start, rows.stop - rows.start, across)
    for i in range(side):
        for j in range(side):
            spots = y[samples, :, rows.start * side + i : min(rows.stop * side, height) : side, j::side]
            found = tiles[i, j].swapaxes(0, 1)[:, :, : spots.shape[2], : spots.shape[3]]
            np.add(found, bias.reshape(-1, 1, 1), out=spots)


def to_input(
    g: np.ndarray, w: np.ndarray, shape: Shape, padding: Pairs, groups: int, side: int
) -> np.ndarray:
    """Gradient of an input of shape (N, C, H, W): a convolution with the kernels turned around."""
    o, c = w.shape[0] // groups, w.shape[1]
    turned = w.reshape(groups, o, c, 3, 3)[..., ::-1, ::-1].swapaxes(1, 2).reshape(groups * c, o, 3, 3)
    around = tuple((2 - low, 0) for low, _ in padding)
    return forward(g, turned, np.zeros(shape[1], g.dtype), around, shape[2:], groups, side)
