"""Pooling: the largest, the mean or the p-norm of each window, or of each whole channel."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ... import functional as F
from ...creation import arange, zeros
from ...dtypes import int32
from ...ops import window
from ...tensor import Tensor
from ...view import row_major
from ..registry import operator
from .windows import Windows, windows


@operator("MaxPool")
def max_pool(node: Any, x: Tensor) -> Any:
    at = windows(node, x.shape[2:], tuple(node.attributes["kernel_shape"]))
    geometry = {
        "kernel": at.kernel,
        "stride": at.stride,
        "padding": tuple(before for before, _ in at.padding),
        "dilation": at.dilation,
        "windows": at.counts,
    }
    if node.wanted < 2:
        return window.max_pool(x, **geometry)
    index = window.pool_index(x, **geometry)
    values = window.pool_take(x, index, apart=window.are_apart(geometry), geometry=geometry)
    n, c, *cells = x.shape
    if node.get("storage_order", 0) == 1:
        index = transposed(index, tuple(cells))
    plane = arange(n * c, device=x.backend).reshape(n, c, *(1,) * len(cells))
    return values, index + plane * prod(cells)


def transposed(index: Tensor, cells: tuple[int, ...]) -> Tensor:
    """Positions counted along the first axis first, from positions counted along the last one first."""
    flipped, found = row_major(cells[::-1])[::-1], 0
    for n, pitch, new in zip(cells, row_major(cells), flipped):
        found = (index // pitch % n) * new + found
    return found  # type: ignore[return-value]


@operator("AveragePool")
def average_pool(node: Any, x: Tensor) -> Tensor:
    at = windows(node, x.shape[2:], tuple(node.attributes["kernel_shape"]))
    padded = bool(node.get("count_include_pad", 0)) and any(map(any, at.padding))
    if all(d == 1 for d in at.dilation) and not padded:
        return averages(x, at, "inside")
    total = sums(x, at)
    return total * Tensor(shares(x.shape[2:], at, padded), total.dtype, total.backend)


def averages(x: Tensor, at: Windows, divisor: Any) -> Tensor:
    before = tuple(before for before, _ in at.padding)
    return window.avg_pool(
        x, kernel=at.kernel, stride=at.stride, padding=before, divisor=divisor, windows=at.counts
    )


def sums(x: Tensor, at: Windows) -> Tensor:
    """The sum of each window; where its cells lie apart by a convolution with ones."""
    if all(d == 1 for d in at.dilation):
        return averages(x, at, 1)
    n, c, *cells = x.shape
    reach = [
        (m - 1) * s + d * (k - 1) + 1 for m, s, d, k in zip(at.counts, at.stride, at.dilation, at.kernel)
    ]
    padding = tuple((p[0], max(r - m - p[0], 0)) for p, r, m in zip(at.padding, reach, cells))
    ones = Tensor(np.ones((1, 1, *at.kernel)), x.dtype, x.backend)
    planes = x.reshape(n * c, 1, *cells)
    total = window.conv(planes, ones, stride=at.stride, padding=padding, dilation=at.dilation, groups=1)
    return total[(..., *(slice(0, m) for m in at.counts))].reshape(n, c, *at.counts)


@lru_cache(maxsize=256)
def shares(cells: tuple[int, ...], at: Windows, padded: bool) -> np.ndarray:
    """One over the cells of each window that lie in the input, or in its padding too."""
    counts = []
    for n, k, s, d, (before, after), m in zip(
        cells, at.kernel, at.stride, at.dilation, at.padding, at.counts
    ):
        cell = np.arange(m)[:, None] * s - before + np.arange(k) * d
        low, high = (-before, n + after) if padded else (0, n)
        counts.append(((cell >= low) & (cell < high)).sum(1))
    return 1 / np.maximum(prod(np.ix_(*counts), start=np.ones(at.counts)), 1)


@operator("LpPool")
def lp_pool(node: Any, x: Tensor) -> Tensor:
    at = windows(node, x.shape[2:], tuple(node.attributes["kernel_shape"]))
    p = node.get("p", 2)
    return sums(x.abs() ** p, at) ** (1 / p)


@operator("GlobalAveragePool")
def global_average_pool(node: Any, x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(node: Any, x: Tensor) -> Tensor:
    return x.amax(tuple(range(2, x.ndim)), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(node: Any, x: Tensor) -> Tensor:
    p = node.get("p", 2)
    return (x.abs() ** p).sum(tuple(range(2, x.ndim)), keepdim=True) ** (1 / p)


@operator("MaxUnpool", reads=(2,))
def max_unpool(node: Any, x: Tensor, index: Tensor, output_shape: Tensor | None = None) -> Tensor:
    """Values at positions of the flattened tensor before pooling, at whose far ends zeros may follow."""
    kernel = tuple(node.attributes["kernel_shape"])
    stride = tuple(node.get("strides") or (1,) * len(kernel))
    pads = tuple(node.get("pads") or (0,) * 2 * len(kernel))
    both = [a + b for a, b in zip(pads, pads[len(kernel) :])]
    cells = [(n - 1) * s + k - p for n, s, k, p in zip(x.shape[2:], stride, kernel, both)]
    shape = (*x.shape[:2], *cells)
    flat = zeros(prod(shape), dtype=x.dtype, device=x.backend)
    y = flat.scatter(0, index.to(int32).flatten(), x.flatten()).reshape(*shape)
    if output_shape is None:
        return y
    wanted = node.integers(output_shape)
    more = [m - n for n, m in zip(shape, wanted)]
    return F.pad(y, [n for after in more[::-1] for n in (0, after)])
