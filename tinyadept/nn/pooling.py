"""Layers that change the resolution: pooling, resampling, and channels traded for cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .convolution import Size
from .module import Module


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


class Upsample(Module):
    """Resampled spatial axes: (N, C, …) gives (N, C, size…).

    Parameters
    ----------
    size, scale_factor, mode, align_corners
        As in `tinyadept.functional.interpolate`, for errors as well.
    """

    def __init__(
        self,
        size: int | tuple[int, ...] | None = None,
        scale_factor: float | tuple[float, ...] | None = None,
        mode: str = "nearest",
        align_corners: bool | None = None,
    ):
        super().__init__()
        self.size, self.scale_factor, self.mode, self.align_corners = size, scale_factor, mode, align_corners

    def forward(self, input: Tensor) -> Tensor:
        return F.interpolate(input, self.size, self.scale_factor, self.mode, self.align_corners)

    def extra_repr(self) -> str:
        given = f"size={self.size}" if self.scale_factor is None else f"scale_factor={self.scale_factor}"
        return f"{given}, mode={self.mode!r}"


class PixelShuffle(Module):
    """Channels as finer cells: (…, C · r², H, W) gives (…, C, H · r, W · r)."""

    def __init__(self, upscale_factor: int):
        super().__init__()
        self.upscale_factor = upscale_factor

    def forward(self, input: Tensor) -> Tensor:
        return F.pixel_shuffle(input, self.upscale_factor)

    def extra_repr(self) -> str:
        return f"upscale_factor={self.upscale_factor}"
