"""Pooling along one, two and three axes: each function is written once, for any number of them."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..ops import window
from ..ops.index import take
from ..tape import is_grad_enabled, no_grad
from ..tensor import Tensor
from .convolution import Size, batched, spread
from .ranks import of_ranks


def pooled_length(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """Window positions along an axis; ceil_mode keeps a last window that starts in the axis or before."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    count = (room + (stride - 1 if ceil_mode else 0)) // stride + 1
    if ceil_mode and (count - 1) * stride >= n + padding:
        count -= 1
    if count < 1 or (room < 0 and not ceil_mode):
        raise ValueError(
            f"a pooling window of {kernel} cells does not fit an axis of {n} padded by {padding}"
        )
    return count


def pool_geometry(
    name: str, rank: int, x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> dict[str, tuple]:
    kernel = spread(kernel, rank, name)
    stride = kernel if stride is None or stride == () or stride == [] else spread(stride, rank, name)
    padding, dilation = spread(padding, rank, name, 0), spread(dilation, rank, name)
    if any(2 * p > k for p, k in zip(padding, kernel, strict=True)):
        raise ValueError(f"{name}: padding {padding} exceeds half of the window {kernel}")
    something(name, x)
    out = tuple(
        pooled_length(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "windows": out}


def something(name: str, x: Tensor) -> None:
    if any(n == 0 for n in x.shape[1:]):
        raise ValueError(f"{name}: an input of shape {x.shape} has nothing to pool")


# --- windows of one size ------------------------------------------------------------------------------------


def max_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window: (N, C, …) gives (N, C, …').

    The first of equals wins, NaN wins over all, padding never. With `return_indices` also the int32
    positions among the flattened cells of each channel. The stride is the window's size by default.

    Raises
    ------
    ValueError
        If a window does not fit, or the padding exceeds half of it.
    """
    name, found = f"max_pool{rank}d", []

    def run(x: Tensor) -> Tensor:
        geometry = pool_geometry(name, rank, x, kernel_size, stride, padding, dilation, ceil_mode)
        if not return_indices and not (x.requires_grad and is_grad_enabled()):
            return window.max_pool(x, **geometry)
        found.append(window.pool_index(x, **geometry))  # which a gradient needs too
        return window.pool_take(x, found[0], apart=window.are_apart(geometry), geometry=geometry)

    values = batched(name, input, rank, run)
    return (values, found[0].reshape(*values.shape)) if return_indices else values


def max_unpool(
    rank: int,
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
) -> Tensor:
    """Put maxima back where they were, and zeros elsewhere: (N, C, …') gives (N, C, …).

    Parameters
    ----------
    input : Tensor
        What max pooling returned.
    indices : Tensor
        The positions that it returned with `return_indices`, int32. Where windows overlapped and one cell won
        in several, any of the values is kept.
    kernel_size, stride, padding
        Those of the pooling.
    output_size : sequence of int, optional
        The size before pooling, of several that lead to the same one.

    Raises
    ------
    ValueError
        If the shapes do not fit, or `output_size` cannot have been pooled like this.
    IndexError
        If a position lies outside of its channel.
    """
    name = f"max_unpool{rank}d"
    kernel = spread(kernel_size, rank, name)
    step = kernel if stride is None else spread(stride, rank, name)
    before = spread(padding, rank, name, 0)
    if indices.shape != input.shape:
        raise ValueError(f"{name}: indices of shape {indices.shape} for values of shape {input.shape}")

    def run(values: Tensor) -> Tensor:
        index = indices if indices.ndim == rank + 2 else indices.unsqueeze(0)
        usual = tuple(
            (n - 1) * s - 2 * p + k for n, s, p, k in zip(values.shape[2:], step, before, kernel, strict=True)
        )
        out = usual if output_size is None else tuple(output_size)[-rank:]
        if len(out) != rank or any(abs(n - m) >= s for n, m, s in zip(out, usual, step, strict=True)):
            raise ValueError(
                f"{name}: output_size {output_size} must lie within a stride of {usual} on every axis"
            )
        return window.pool_put(values, index, shape=(*values.shape[:2], *out), apart=True)

    return batched(name, input, rank, run)


def avg_pool(
    rank: int,
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window: (N, C, …) gives (N, C, …').

    Sums are divided by the cells of a window that lie in the input or its padding, without the padding if
    `count_include_pad` is false, or by `divisor_override`.

    Raises
    ------
    ValueError
        If a window does not fit, or the padding exceeds half of it.
    """
    name = f"avg_pool{rank}d"
    if divisor_override == 0:
        raise ValueError(f"{name}: divisor_override must not be zero")
    divisor = divisor_override or ("padded" if count_include_pad else "inside")

    def run(x: Tensor) -> Tensor:
        geometry = pool_geometry(name, rank, x, kernel_size, stride, padding, 1, ceil_mode)
        del geometry["dilation"]
        return window.avg_pool(x, divisor=divisor, **geometry)

    return batched(name, input, rank, run)


max_pool1d, max_pool2d, max_pool3d = of_ranks(max_pool)
max_unpool1d, max_unpool2d, max_unpool3d = of_ranks(max_unpool)
avg_pool1d, avg_pool2d, avg_pool3d = of_ranks(avg_pool)


# --- windows that tile the input as evenly as they can, from ⌊i·n/m⌋ to ⌈(i+1)·n/m⌉ -------------------------


def tile(n: int, m: int, i: int) -> range:
    """The cells of window i of m along an axis of n."""
    return range(i * n // m, -(-(i + 1) * n // m))


def adaptive_sizes(name: str, rank: int, x: Tensor, output_size: Any) -> tuple[int, ...]:
    """Windows along each axis; None stands for the axis' own length."""
    if isinstance(output_size, int) or output_size is None:
        output_size = (output_size,) * rank
    sizes = tuple(output_size)
    if len(sizes) != rank or any(m is not None and m < 0 for m in sizes):
        raise ValueError(
            f"{name}: expected an output size of {rank} non-negative ints or None, got {output_size}"
        )
    something(name, x)
    return tuple(n if m is None else m for n, m in zip(x.shape[2:], sizes, strict=True))


def even(x: Tensor, out: tuple[int, ...]) -> tuple[int, ...] | None:
    """The size of the windows, if they are all alike."""
    lengths = x.shape[2:]
    if not all(m and n % m == 0 for n, m in zip(lengths, out, strict=True)):
        return None
    return tuple(n // m for n, m in zip(lengths, out, strict=True))


def adaptive_avg_pool(rank: int, input: Tensor, output_size: Any) -> Tensor:
    """Means over windows that tile the input evenly: (N, C, …) gives (N, C, *output_size).

    A mean over a box is a mean along each axis in turn. Uneven windows are laid side by side first, each as
    long as the longest, and a cell that is there twice counts half: zeros would make NaN of what is infinite.

    Parameters
    ----------
    input : Tensor
    output_size : int or one per axis
        None keeps an axis. Window i of m along n cells is from ⌊i · n / m⌋ to ⌈(i + 1) · n / m⌉.

    Raises
    ------
    ValueError
        If `output_size` does not fit the axes, or there is nothing to pool.
    """
    name = f"adaptive_avg_pool{rank}d"

    def run(x: Tensor) -> Tensor:
        out = adaptive_sizes(name, rank, x, output_size)
        if (alike := even(x, out)) is not None:
            return avg_pool(rank, x, alike)
        for axis, m in enumerate(out, 2):
            cells = side_by_side(x.shape[axis], m)  # (m, longest)
            line = (*cells.shape, *(1,) * (x.ndim - axis - 1))
            weights = Tensor(shares(cells).reshape(line), x.dtype, x.backend)
            x = (take(x, Tensor(cells, "int32", x.backend), axis=axis) * weights).sum(axis + 1)
        return x

    return batched(name, input, rank, run)


def shares(cells: np.ndarray) -> np.ndarray:
    """What each cell of windows side by side has in the mean of its window."""
    times = (cells[:, :, None] == cells[:, None, :]).sum(2)  # a cell is in its window
    return 1 / (times * (1 / times).sum(1, keepdims=True))


def adaptive_max_pool(rank: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The largest element of each of the windows that tile the input evenly; see `adaptive_avg_pool2d`.

    Of equals the first wins, and NaN over all. With `return_indices` also the int32 positions among the
    flattened cells of each channel. Uneven windows are laid side by side first, each as long as the longest.

    Raises
    ------
    ValueError
        If `output_size` does not fit the axes, or there is nothing to pool.
    """
    name, found = f"adaptive_max_pool{rank}d", []

    def run(x: Tensor) -> Tensor:
        out = adaptive_sizes(name, rank, x, output_size)
        alike = even(x, out)
        if alike is not None:
            values, index = max_pool(rank, x, alike, return_indices=True)
        else:
            index = uneven_maxima(rank, x, out)
            values = window.pool_take(x, index, apart=False)
        found.append(index)
        return values

    values = batched(name, input, rank, run)
    return (values, found[0].reshape(*values.shape)) if return_indices else values


@no_grad()
def uneven_maxima(rank: int, x: Tensor, out: tuple[int, ...]) -> Tensor:
    """Flat positions of the maxima of windows that differ in size."""
    lengths = x.shape[2:]
    sides = [side_by_side(n, m) for n, m in zip(lengths, out, strict=True)]
    for axis, cells in enumerate(sides, 2):
        x = take(x, Tensor(cells.ravel(), "int32", x.backend), axis=axis)
    kernel = tuple(cells.shape[1] for cells in sides)
    none, one = (0,) * rank, (1,) * rank
    index = window.pool_index(x, kernel=kernel, stride=kernel, padding=none, dilation=one, windows=out)
    flat = reduce(lambda far, pair: np.add.outer(far * pair[0], pair[1].ravel()), zip(lengths, sides), 0)
    return take(Tensor(np.ravel(flat), "int32", x.backend), index, axis=0)


def side_by_side(n: int, m: int) -> np.ndarray:
    """The cells of m windows, (m, longest), the last one of a shorter window repeated."""
    windows = [tile(n, m, i) for i in range(m)]
    longest = max(map(len, windows), default=1)
    cells = [[min(tiled.start + cell, tiled[-1]) for cell in range(longest)] for tiled in windows]
    return np.array(cells, np.int32).reshape(m, longest)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = of_ranks(adaptive_avg_pool)
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = of_ranks(adaptive_max_pool)
