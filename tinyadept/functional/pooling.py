"""Pooling in one and two dimensions."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops import window
from ..ops.matmul import matmul
from ..tensor import Tensor
from .convolution import Size, batched, spread


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
    if any(n == 0 for n in x.shape[1:]):
        raise ValueError(f"{name}: an input of shape {x.shape} has nothing to pool")
    out = tuple(
        pooled_length(n, k, s, p, d, ceil_mode)
        for n, k, s, p, d in zip(x.shape[2:], kernel, stride, padding, dilation, strict=True)
    )
    return {"kernel": kernel, "stride": stride, "padding": padding, "dilation": dilation, "windows": out}


def max_pool(
    rank: int,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    ceil_mode: bool,
    return_indices: bool,
) -> Any:
    name, found = f"max_pool{rank}d", []

    def run(x: Tensor) -> Tensor:
        geometry = pool_geometry(name, rank, x, kernel, stride, padding, dilation, ceil_mode)
        index = window.pool_index(x, **geometry)
        found.append(index)
        reach = (d * (k - 1) + 1 for k, d in zip(geometry["kernel"], geometry["dilation"], strict=True))
        apart = all(s >= r for s, r in zip(geometry["stride"], reach, strict=True))
        return window.pool_take(x, index, apart=apart)

    values = batched(name, x, rank, run)
    return (values, found[0].reshape(*values.shape)) if return_indices else values


def max_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window: (N, C, L) gives (N, C, L'). See `max_pool2d`."""
    return max_pool(1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """The largest element of each window: (N, C, H, W) gives (N, C, H', W').

    The first of equals wins, NaN wins over all, padding never. With `return_indices` also the int32
    positions in the flattened plane. The stride is the window's size by default.

    Raises
    ------
    ValueError
        If a window does not fit, or the padding exceeds half of it.
    """
    return max_pool(2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_unpool(
    rank: int, x: Tensor, indices: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any
) -> Tensor:
    name = f"max_unpool{rank}d"
    kernel = spread(kernel, rank, name)
    stride = kernel if stride is None else spread(stride, rank, name)
    padding = spread(padding, rank, name, 0)
    if indices.shape != x.shape:
        raise ValueError(f"{name}: indices of shape {indices.shape} for values of shape {x.shape}")

    def run(values: Tensor) -> Tensor:
        index = indices if indices.ndim == rank + 2 else indices.unsqueeze(0)
        usual = tuple(
            (n - 1) * s - 2 * p + k
            for n, s, p, k in zip(values.shape[2:], stride, padding, kernel, strict=True)
        )
        out = usual if output_size is None else tuple(output_size)[-rank:]
        if len(out) != rank or any(abs(n - m) >= s for n, m, s in zip(out, usual, stride, strict=True)):
            raise ValueError(
                f"{name}: output_size {output_size} must lie within a stride of {usual} on every axis"
            )
        return window.pool_put(values, index, shape=(*values.shape[:2], *out), apart=True)

    return batched(name, x, rank, run)


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
) -> Tensor:
    """The inverse of `max_pool1d` as far as there is one. See `max_unpool2d`."""
    return max_unpool(1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    output_size: Any = None,
) -> Tensor:
    """Put maxima back where they were, and zeros elsewhere: (N, C, H', W') gives (N, C, H, W).

    Parameters
    ----------
    input : Tensor
        What `max_pool2d` returned.
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
        If a position lies outside of its plane.
    """
    return max_unpool(2, input, indices, kernel_size, stride, padding, output_size)


def avg_pool(
    rank: int,
    x: Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    include_pad: bool,
    divisor: int | None,
) -> Tensor:
    name = f"avg_pool{rank}d"
    if divisor == 0:
        raise ValueError(f"{name}: divisor_override must not be zero")

    def run(x: Tensor) -> Tensor:
        geometry = pool_geometry(name, rank, x, kernel, stride, padding, 1, ceil_mode)
        del geometry["dilation"]
        return window.avg_pool(x, divisor=divisor or ("padded" if include_pad else "inside"), **geometry)

    return batched(name, x, rank, run)


def avg_pool1d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """The mean of each window: (N, C, L) gives (N, C, L'). See `avg_pool2d`."""
    return avg_pool(1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(
    input: Tensor,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """The mean of each window: (N, C, H, W) gives (N, C, H', W').

    Sums are divided by the cells of a window that lie in the input or its padding, without the padding if
    `count_include_pad` is false, or by `divisor_override`.

    Raises
    ------
    ValueError
        If a window does not fit, or the padding exceeds half of it.
    """
    return avg_pool(2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def adaptive_avg_pool(rank: int, x: Tensor, output_size: Any) -> Tensor:
    """Means over windows that tile the input as evenly as they can: from ⌊i·n/m⌋ to ⌈(i+1)·n/m⌉.

    A mean over a box is a mean along each axis in turn, so uneven windows are small matrix products.
    """
    name = f"adaptive_avg_pool{rank}d"
    sizes = (
        (output_size,) * rank if isinstance(output_size, int) or output_size is None else tuple(output_size)
    )
    if len(sizes) != rank or any(m is not None and m < 0 for m in sizes):
        raise ValueError(
            f"{name}: expected an output size of {rank} non-negative ints or None, got {output_size}"
        )

    def run(x: Tensor) -> Tensor:
        out = tuple(n if m is None else m for n, m in zip(x.shape[2:], sizes, strict=True))
        if any(n == 0 for n in x.shape[1:]):
            raise ValueError(f"{name}: an input of shape {x.shape} has nothing to pool")
        if all(m and n % m == 0 for n, m in zip(x.shape[2:], out, strict=True)):
            return avg_pool(
                rank,
                x,
                tuple(n // m for n, m in zip(x.shape[2:], out, strict=True)),
                None,
                0,
                False,
                True,
                None,
            )
        for axis, m in enumerate(out, 2):
            weights = Tensor(averaging(x.shape[axis], m), x.dtype, x.backend)  # (n, m)
            x = matmul(x.transpose(axis, -1), weights).transpose(axis, -1)
        return x

    return batched(name, x, rank, run)


def averaging(n: int, m: int) -> np.ndarray:
    """The (n, m) matrix whose column i averages the cells of window i."""
    matrix = np.zeros((n, m))
    for i in range(m):
        start, end = i * n // m, -(-(i + 1) * n // m)
        matrix[start:end, i] = 1 / (end - start)
    return matrix


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """(N, C, L) averaged to (N, C, output_size)."""
    return adaptive_avg_pool(1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """(N, C, H, W) averaged to (N, C, *output_size); None keeps an axis."""
    return adaptive_avg_pool(2, input, output_size)
