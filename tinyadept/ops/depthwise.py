"""Convolution whose groups have one channel each: for every cell of the window one pass over the planes.

Shapes: N batch, C channels, K window cells; weights are (C, 1, K…), inputs are padded. With steps of one,
what a cell of the window meets is one run of a plane, a few cells of which belong to no position because rows
end.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod

import numpy as np

from ..view import Shape, row_major
from .im2col import seen
from .parallel import each, scratch

BLOCK = 1 << 15  # elements of planes that are walked through together, so that they stay in the cache
SHARED = 1 << 19  # results from which two cores are worth it


class Planes:
    """How the planes of images (N, C, …) are walked through for windows at `out` positions."""

    def __init__(self, wide: Shape, out: Shape, stride: Shape, dilation: Shape):
        self.out, self.stride, self.dilation, self.pitch = out, stride, dilation, row_major(wide)
        self.runs = all(s == 1 for s in stride)
        self.run = sum((o - 1) * p for o, p in zip(out, self.pitch)) + 1

    def met(self, x: np.ndarray, cell: tuple[int, ...]) -> np.ndarray:
        """What a cell of the window meets in planes (C, …): (C, run), or (C, positions…)."""
        if not self.runs:
            return x[seen(cell, self.stride, self.dilation, self.out)]
        first = sum(k * d * p for k, d, p in zip(cell, self.dilation, self.pitch))
        return x.reshape(len(x), -1)[:, first : first + self.run]

    def taken(self, name: str, channels: int, dtype: np.dtype) -> np.ndarray:
        """Memory for what `met` returns."""
        return scratch.take(name, (channels, self.run) if self.runs else (channels, *self.out), dtype)

    def spots(self, runs: np.ndarray) -> np.ndarray:
        """Positions among runs, (C, positions…)."""
        if not self.runs:
            return runs
        steps = (runs.strides[0], *(p * runs.itemsize for p in self.pitch))
        return np.ndarray((len(runs), *self.out), runs.dtype, runs, 0, steps)

    def laid_out(self, g: np.ndarray) -> np.ndarray:
        """Values of positions (C, positions…) as runs, zero between rows."""
        if not self.runs:
            return g
        runs = self.taken("gradient", len(g), g.dtype)
        runs[...] = 0
        self.spots(runs)[...] = g
        return runs


def blocks(shape: Shape) -> Iterator[tuple[int, slice]]:
    """A sample and some of its channels."""
    several = max(1, BLOCK // prod(shape[2:]))
    for sample in range(shape[0]):
        yield from ((sample, slice(at, at + several)) for at in range(0, shape[1], several))


def forward(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray, out: Shape, stride: Shape, dilation: Shape
) -> np.ndarray:
    """Of a padded input (N, C, …): (N, C, …)."""
    planes, y = Planes(x.shape[2:], out, stride, dilation), np.empty((*x.shape[:2], *out), x.dtype)
    cells = list(product(*map(range, w.shape[2:])))

    def work(block: tuple[int, slice]) -> None:
        part = x[block]
        total, term = (planes.taken(name, len(part), x.dtype) for name in ("total", "term"))
        for at, cell in enumerate(cells):
            met = planes.met(part, cell)
            weight = w[(block[1], 0, *cell)].reshape(-1, *(1,) * (met.ndim - 1))
            np.multiply(met, weight, out=term if at else total)
            if at:
                total += term
        np.add(planes.spots(total), bias[block[1]].reshape(-1, *(1,) * len(out)), out=y[block])

    each(work, blocks(x.shape), y.size >= SHARED)
    return y


def to_input(g: np.ndarray, w: np.ndarray, wide: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the padded input: (N, C, …)."""
    planes, dx = Planes(wide, g.shape[2:], stride, dilation), np.zeros((*g.shape[:2], *wide), g.dtype)
    cells = list(product(*map(range, w.shape[2:])))

    def work(block: tuple[int, slice]) -> None:
        runs = planes.laid_out(g[block])
        term = planes.taken("term", len(runs), g.dtype)
        for cell in cells:
            weight = w[(block[1], 0, *cell)].reshape(-1, *(1,) * (runs.ndim - 1))
            met = planes.met(dx[block], cell)
            met += np.multiply(runs, weight, out=term)

    each(work, blocks(dx.shape), dx.size >= SHARED)
    return dx


def to_weight(g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the weight (C, 1, …), from a padded input."""
    planes = Planes(x.shape[2:], g.shape[2:], stride, dilation)
    cells = list(product(*map(range, shape[2:])))

    def work(block: tuple[int, slice]) -> np.ndarray:
        runs = planes.laid_out(g[block])
        flat = runs.reshape(len(runs), -1)
        found = np.empty((len(runs), len(cells)), g.dtype)
        for at, cell in enumerate(cells):
            np.einsum("cr,cr->c", flat, planes.met(x[block], cell).reshape(flat.shape), out=found[:, at])
        return found

    every = list(blocks(x.shape))
    dw = np.zeros((shape[0], len(cells)), g.dtype)
    for (_, channels), found in zip(every, each(work, every, x.size >= SHARED), strict=True):
        dw[channels] += found
    return dw.reshape(shape)
