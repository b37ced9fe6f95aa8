"""Convolution and its transpose in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from ..ops import window
from ..ops.im2col import Pairs
from ..tensor import Tensor
from ..view import Shape

Size = int | tuple[int, ...]


def spread(value: Any, rank: int, name: str, lowest: int = 1) -> tuple[int, ...]:
    """One int for all axes, or one for each.

    Raises
    ------
    ValueError
        If there are too many or too few, or one is below `lowest`.
    """
    sizes = (value,) * rank if isinstance(value, (int, np.integer)) else tuple(value)
    sizes = sizes * rank if len(sizes) == 1 else sizes
    if len(sizes) != rank or any(n < lowest for n in sizes):
        raise ValueError(f"{name}: expected one int or {rank}, each at least {lowest}, got {value}")
    return tuple(int(n) for n in sizes)


def batched(name: str, x: Tensor, rank: int, run: Callable[[Tensor], Tensor]) -> Tensor:
    """Run on (N, C, …), or on (C, …) as a batch of one."""
    if x.ndim == rank + 2:
        return run(x)
    if x.ndim != rank + 1:
        raise ValueError(
            f"{name} takes {rank + 1} or {rank + 2} axes, (C, …) or (N, C, …), got shape {x.shape}"
        )
    return run(x.unsqueeze(0)).squeeze(0)


@lru_cache(maxsize=1024)
def geometry(
    name: str, kernel: Shape, stride: Any, padding: Any, dilation: Any
) -> tuple[Shape, Pairs, Shape]:
    """Stride, padding before and after, and dilation, for each axis.

    Raises
    ------
    ValueError
        If one does not fit the kernel.
    """
    rank = len(kernel)
    stride, dilation = spread(stride, rank, name), spread(dilation, rank, name)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ValueError(f"{name}: padding 'same' keeps the size only with stride 1, got {stride}")
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return stride, tuple((t // 2, t - t // 2) for t in total), dilation
    if isinstance(padding, str) and padding != "valid":
        raise ValueError(f"{name}: padding must be ints, 'same' or 'valid', got {padding!r}")
    sizes = spread(0 if padding == "valid" else padding, rank, name, 0)
    return stride, tuple((p, p) for p in sizes), dilation


def convolve(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    activation: str | None,
) -> Tensor:
    name = f"conv{rank}d"
    if weight.ndim != rank + 2:
        raise ValueError(
            f"{name} takes a weight of {rank + 2} axes, (O, C/groups, …), got shape {weight.shape}"
        )
    if bias is not None and bias.shape != weight.shape[:1]:
        raise ValueError(f"{name}: a bias of shape {bias.shape} for {weight.shape[0]} channels")
    sizes = (tuple(n) if isinstance(n, list) else n for n in (stride, padding, dilation))
    stride, pairs, dilation = geometry(name, weight.layout.shape[2:], *sizes)

    def run(x: Tensor) -> Tensor:
        given = (x, weight) if bias is None else (x, weight, bias)
        after = {"activation": activation} if activation else {}
        return window.conv(*given, stride=stride, padding=pairs, dilation=dilation, groups=groups, **after)

    return batched(name, x, rank, run)


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
) -> Tensor:
    """Cross-correlation: (N, C, L) with (O, C/groups, K) gives (N, O, L')."""
    return convolve(1, input, weight, bias, stride, padding, dilation, groups, activation)


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
) -> Tensor:
    """Cross-correlation: (N, C, H, W) with (O, C/groups, KH, KW) gives (N, O, H', W').

    Parameters
    ----------
    input, weight : Tensor
    bias : Tensor, optional
        (O,), added to every position.
    stride, dilation : int or pair of int
        Cells between windows, and between the cells of one window.
    padding : int, pair of int, "same" or "valid"
        Zeros before and after each axis. "same" keeps the size, with the odd cell after.
    groups : int
        Channels fall into so many groups that see only each other.
    activation : str, optional
        "relu", "silu", "gelu", "gelu_tanh", "sigmoid" or "tanh", applied to the result as it is written.
        Beyond PyTorch.

    Raises
    ------
    ValueError
        If shapes do not fit each other, the groups, or a single window, or there is no such activation.
    """
    return convolve(2, input, weight, bias, stride, padding, dilation, groups, activation)


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size | str = 0,
    dilation: Size = 1,
    groups: int = 1,
    *,
    activation: str | None = None,
) -> Tensor:
    """Cross-correlation: (N, C, D, H, W) with (O, C/groups, KD, KH, KW) gives (N, O, D', H', W')."""
    return convolve(3, input, weight, bias, stride, padding, dilation, groups, activation)


def conv_transpose(
    rank: int,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
) -> Tensor:
    name = f"conv_transpose{rank}d"
    if weight.ndim != rank + 2:
        raise ValueError(
            f"{name} takes a weight of {rank + 2} axes, (C, O/groups, …), got shape {weight.shape}"
        )
    if groups < 1 or weight.shape[0] % groups:
        raise ValueError(f"{name}: {weight.shape[0]} channels do not divide into {groups} groups")
    channels = weight.shape[1] * groups
    if bias is not None and bias.shape != (channels,):
        raise ValueError(f"{name}: a bias of shape {bias.shape} for {channels} channels")
    stride, dilation = spread(stride, rank, name), spread(dilation, rank, name)
    padding, extra = spread(padding, rank, name, 0), spread(output_padding, rank, name, 0)
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise ValueError(
            f"{name}: output_padding {extra} must be smaller than the stride {stride} or dilation {dilation}"
        )

    def run(x: Tensor) -> Tensor:
        if x.shape[1] != weight.shape[0]:
            raise ValueError(f"{name}: input {x.shape} and weight {weight.shape} do not fit")
        sizes = zip(x.shape[2:], weight.shape[2:], stride, padding, dilation, extra, strict=True)
        out = tuple((n - 1) * s - 2 * p + d * (k - 1) + e + 1 for n, k, s, p, d, e in sizes)
        if any(n < 1 for n in out):
            raise ValueError(f"{name}: an input of shape {x.shape} gives positions {out}: nothing is left")
        y = window.conv_input(
            x,
            weight,
            shape=(x.shape[0], channels, *out),
            stride=stride,
            padding=tuple((p, p) for p in padding),
            dilation=dilation,
            groups=groups,
        )
        return y if bias is None else y + bias.reshape(-1, *(1,) * rank)

    return batched(name, x, rank, run)


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The transpose of `conv1d`: (N, C, L) with (C, O/groups, K) gives (N, O, L'). See `conv_transpose2d`."""
    return conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The transpose of `conv2d`, which spreads each cell over a window: (N, C, H, W) gives (N, O, H', W').

    Parameters
    ----------
    input, weight : Tensor
        The weight is (C, O/groups, KH, KW).
    bias : Tensor, optional
        (O,), added to every cell.
    stride, padding, dilation : int or pair of int
        Those of the convolution whose gradient this is: H' = (H - 1) · stride - 2 · padding + dilation ·
        (KH - 1) + output_padding + 1.
    output_padding : int or pair of int
        Cells more at the far ends, of several sizes that the convolution takes to the same one.
    groups : int
        Channels fall into so many groups that see only each other.

    Raises
    ------
    ValueError
        If shapes do not fit each other or the groups, or `output_padding` reaches stride and dilation.
    """
    return conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Size = 1,
    padding: Size = 0,
    output_padding: Size = 0,
    groups: int = 1,
    dilation: Size = 1,
) -> Tensor:
    """The transpose of `conv3d`: (N, C, D, H, W) with (C, O/groups, …). See `conv_transpose2d`."""
    return conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)
