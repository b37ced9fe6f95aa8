"""Planes at another resolution: nearest neighbours, or linear interpolation between two along each axis.

Each axis is resampled by itself: result i takes the cells low[i] and high[i] of the axis, with the weights
1 - share[i] and share[i]. Both only grow with i, so the results that take a cell lie side by side.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ..view import Shape
from .table import Family, define, met

MODES = ("nearest", "nearest-exact", "linear")


class Taps(NamedTuple):
    """What each result of an axis takes.

    Attributes
    ----------
    low, high : ndarray of int32, (results,)
    share : ndarray of float32, (results,)
        Weight of `high`.
    """

    low: np.ndarray
    high: np.ndarray
    share: np.ndarray

    def reach(self, cells: int) -> tuple[np.ndarray, np.ndarray]:
        """The first result that takes each cell, and one past the last; int32, (cells,) each."""
        cell = np.arange(cells)
        first = np.searchsorted(self.high, cell, "left").astype(np.int32)
        return first, np.searchsorted(self.low, cell, "right").astype(np.int32)


@lru_cache(maxsize=256)
def taps(cells: int, results: int, mode: str, corners: bool, scale: float | None) -> Taps:
    """What each of so many results of an axis takes, computed in float32 as PyTorch does.

    Parameters
    ----------
    cells, results : int
    mode : str
        One of `MODES`.
    corners : bool
        For linear interpolation: whether the outermost centres meet, instead of the outermost edges.
    scale : float, optional
        Results to a cell, where that is not the quotient of the lengths.
    """
    i = np.arange(results, dtype=np.float32)
    step = np.float32(1 / scale) if scale else np.float32(cells) / np.float32(max(results, 1))
    if mode != "linear":
        spot = i * step if mode == "nearest" else (i + np.float32(0.5)) * step
        low = np.minimum(np.floor(spot), cells - 1).astype(np.int32)
        return Taps(low, low, np.zeros(results, np.float32))
    if corners:
        spot = i * np.float32((cells - 1) / (results - 1) if results > 1 else 0.0)
    else:
        spot = np.maximum((i + np.float32(0.5)) * step - np.float32(0.5), np.float32(0.0))
    low = np.minimum(spot.astype(np.int32), cells - 1)
    share = np.clip(spot - low, 0, 1).astype(np.float32)
    return Taps(low, np.minimum(low + 1, cells - 1).astype(np.int32), share)


def axes_of(cells: Shape, results: Shape, mode: str, corners: bool, scales: tuple) -> list[Taps]:
    """The taps of every spatial axis."""
    return [taps(n, m, mode, corners, s) for n, m, s in zip(cells, results, scales, strict=True)]


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (N, C, cells…) gives (N, C, results…); the gradient takes the other way."""
    ready, dtype = met(op, inputs)
    return ready, (*ready[0].shape[:2], *params["sizes"]), dtype


resampling = Family("resample", infer)


def np_resample(x: np.ndarray, sizes: Shape, mode: str, corners: bool, scales: tuple) -> np.ndarray:
    for axis, t in enumerate(axes_of(x.shape[2:], sizes, mode, corners, scales), 2):
        low = x.take(t.low, axis)
        if mode == "linear":
            share = t.share.reshape(-1, *(1,) * (x.ndim - axis - 1)).astype(x.dtype)
            x = low * (1 - share) + x.take(t.high, axis) * share
        else:
            x = low
    return x


def np_resample_input(g: np.ndarray, sizes: Shape, mode: str, corners: bool, scales: tuple) -> np.ndarray:
    for axis, t in enumerate(axes_of(sizes, g.shape[2:], mode, corners, scales), 2):
        share = t.share.reshape(-1, *(1,) * (g.ndim - axis - 1)).astype(g.dtype)
        n = sizes[axis - 2]
        if mode == "linear":
            g = gathered(g * (1 - share), t.low, n, axis) + gathered(g * share, t.high, n, axis)
        else:
            g = gathered(g, t.low, n, axis)
    return g


def gathered(g: np.ndarray, cell: np.ndarray, cells: int, axis: int) -> np.ndarray:
    """For each cell the sum over the results that take it; `cell` only grows."""
    first = np.searchsorted(cell, np.arange(cells + 1))
    total = np.zeros((*g.shape[:axis], cells, *g.shape[axis + 1 :]), g.dtype)
    taken = first[:-1] < first[1:]
    if taken.any():
        total[(slice(None),) * axis + (taken,)] = np.add.reduceat(g, first[:-1][taken], axis)
    return total


resample = define(
    resampling,
    "resample",
    np_resample,
    lambda g, out, x, **p: resample_input(g, **{**p, "sizes": x.shape[2:]}),
    takes="strict float",
)
resample_input = define(
    resampling,
    "resample_input",
    np_resample_input,
    lambda h, out, g, **p: resample(h, **{**p, "sizes": g.shape[2:]}),
    takes="strict float",
)
