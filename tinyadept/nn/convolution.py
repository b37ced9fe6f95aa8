"""Layers that slide a window over one or two axes: convolutions and pooling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..creation import zeros
from ..tensor import Tensor
from .layers import reset
from .module import Module, Parameter

Size = int | tuple[int, ...]


def per_axis(name: str, value: Size, rank: int, lowest: int) -> tuple[int, ...]:
    """One int for all axes, or one for each."""
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank or any(n < lowest for n in sizes):
        raise ValueError(f"{name} must be one int or {rank}, each at least {lowest}, got {value}")
    return sizes


class Convolution(Module):
    """What `Conv1d` and `Conv2d` share."""

    rank: int
    convolve: Callable[..., Tensor]
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
    ):
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} and {out_channels} channels do not divide into {groups} groups")
        if isinstance(padding, str) and padding not in ("same", "valid"):
            raise ValueError(f"padding must be ints, 'same' or 'valid', got {padding!r}")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis("kernel_size", kernel_size, self.rank, 1)
        self.stride = per_axis("stride", stride, self.rank, 1)
        self.padding = padding if isinstance(padding, str) else per_axis("padding", padding, self.rank, 0)
        self.dilation = per_axis("dilation", dilation, self.rank, 1)
        if padding == "same" and any(s != 1 for s in self.stride):
            raise ValueError(f"padding 'same' keeps the size only with stride 1, got stride {stride}")
        self.weight = Parameter(zeros(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = Parameter(zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform within 1 / √(in_channels / groups · kernel cells)."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return self.convolve(
            input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups
        )

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        text += f", kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


class Conv1d(Convolution):
    """Cross-correlation along one axis.

    Shapes: (N, in_channels, L) gives (N, out_channels, L'); the weight is (out_channels, in_channels /
    groups, K). Parameters and errors are those of `Conv2d`.
    """

    rank = 1
    convolve = staticmethod(F.conv1d)


class Conv2d(Convolution):
    """Cross-correlation along two axes.

    Shapes: (N, in_channels, H, W) gives (N, out_channels, H', W') with H' = ⌊(H + 2 · padding - dilation ·
    (kernel_size - 1) - 1) / stride⌋ + 1; the weight is (out_channels, in_channels / groups, kernel height,
    kernel width). Initial weights are uniform within 1 / √fan_in.

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, dilation : int or one per axis
    padding : int, one per axis, "same" or "valid"
        Zeros before and after each axis; "same" keeps the size, "valid" is 0.
    groups : int
        Channels are divided into so many groups, each convolved by itself.
    bias : bool

    Raises
    ------
    ValueError
        If the channels do not divide into groups, a size is too small, or "same" meets a stride other than 1.
    """

    rank = 2
    convolve = staticmethod(F.conv2d)


class MaxPool(Module):
    """What `MaxPool1d` and `MaxPool2d` share."""

    pool: Callable[..., Any]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        dilation: Size = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation = padding, dilation
        self.return_indices, self.ceil_mode = return_indices, ceil_mode

    def forward(self, input: Tensor) -> Any:
        return self.pool(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
            self.ceil_mode,
            self.return_indices,
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class MaxPool1d(MaxPool):
    """The largest element of each window: (N, C, L) gives (N, C, L'). Parameters are those of `MaxPool2d`."""

    pool = staticmethod(F.max_pool1d)


class MaxPool2d(MaxPool):
    """The largest element of each window: (N, C, H, W) gives (N, C, H', W').

    Parameters
    ----------
    kernel_size : int or one per axis
    stride : int or one per axis, optional
        The window's size by default.
    padding, dilation : int or one per axis
    return_indices : bool
        Return also where in the flattened plane each element was, int32.
    ceil_mode : bool
        Round the number of windows up, so that the last may reach over the edge.
    """

    pool = staticmethod(F.max_pool2d)


class AvgPool(Module):
    """What `AvgPool1d` and `AvgPool2d` share."""

    pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        return self.pool(
            input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AvgPool1d(AvgPool):
    """The mean of each window: (N, C, L) gives (N, C, L'). Parameters are those of `AvgPool2d`."""

    pool = staticmethod(F.avg_pool1d)


class AvgPool2d(AvgPool):
    """The mean of each window: (N, C, H, W) gives (N, C, H', W').

    Parameters
    ----------
    kernel_size : int or one per axis
    stride : int or one per axis, optional
        The window's size by default.
    padding : int or one per axis
    ceil_mode : bool
        Round the number of windows up, so that the last may reach over the edge.
    count_include_pad : bool
        Count the padding among the cells that are averaged.
    """

    pool = staticmethod(F.avg_pool2d)


class AdaptiveAvgPool1d(Module):
    """Means over windows that tile the axis evenly: (N, C, L) gives (N, C, output_size)."""

    def __init__(self, output_size: int):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool1d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool2d(Module):
    """Means over windows that tile the plane evenly: (N, C, H, W) gives (N, C, *output_size).

    In `output_size` None keeps an axis as it is.
    """

    def __init__(self, output_size: int | tuple[int | None, int | None] | None):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
