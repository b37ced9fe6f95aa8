"""Layers that change the resolution: pooling, resampling, and channels traded for cells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import functional as F
from ..tensor import Tensor
from .convolution import Size
from .module import Module

AdaptiveSize = int | tuple[int | None, ...] | None


class MaxPool(Module):
    """What `MaxPool1d`, `MaxPool2d` and `MaxPool3d` share."""

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


class MaxPool3d(MaxPool):
    """The largest element of each window: (N, C, D, H, W) gives (N, C, D', H', W'). See `MaxPool2d`."""

    pool = staticmethod(F.max_pool3d)


class MaxUnpool(Module):
    """What `MaxUnpool1d`, `MaxUnpool2d` and `MaxUnpool3d` share."""

    pool: Callable[..., Tensor]

    def __init__(self, kernel_size: Size, stride: Size | None = None, padding: Size = 0):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding = padding

    def forward(self, input: Tensor, indices: Tensor, output_size: tuple[int, ...] | None = None) -> Tensor:
        return self.pool(input, indices, self.kernel_size, self.stride, self.padding, output_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class MaxUnpool1d(MaxUnpool):
    """Maxima back where they were: (N, C, L') gives (N, C, L). Parameters are those of `MaxUnpool2d`."""

    pool = staticmethod(F.max_unpool1d)


class MaxUnpool2d(MaxUnpool):
    """Maxima back where they were, and zeros elsewhere: (N, C, H', W') gives (N, C, H, W).

    It is called with what a `MaxPool2d` with `return_indices` gave, and perhaps an `output_size`.

    Parameters
    ----------
    kernel_size, stride, padding : int or one per axis
        Those of the pooling.
    """

    pool = staticmethod(F.max_unpool2d)


class MaxUnpool3d(MaxUnpool):
    """Maxima back where they were: (N, C, D', H', W') gives (N, C, D, H, W). See `MaxUnpool2d`."""

    pool = staticmethod(F.max_unpool3d)


class AvgPool(Module):
    """What `AvgPool1d`, `AvgPool2d` and `AvgPool3d` share."""

    pool: Callable[..., Tensor]

    def __init__(
        self,
        kernel_size: Size,
        stride: Size | None = None,
        padding: Size = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ):
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.ceil_mode, self.count_include_pad = padding, ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        counting = self.count_include_pad, self.divisor_override
        return self.pool(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, *counting)

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
    divisor_override : int, optional
        By what sums are divided, instead of the number of cells.
    """

    pool = staticmethod(F.avg_pool2d)


class AvgPool3d(AvgPool):
    """The mean of each window: (N, C, D, H, W) gives (N, C, D', H', W'). See `AvgPool2d`."""

    pool = staticmethod(F.avg_pool3d)


class AdaptiveAvgPool(Module):
    """What `AdaptiveAvgPool1d`, `AdaptiveAvgPool2d` and `AdaptiveAvgPool3d` share."""

    pool: Callable[..., Tensor]

    def __init__(self, output_size: AdaptiveSize):
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return self.pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveAvgPool1d(AdaptiveAvgPool):
    """Means over windows that tile the axis evenly: (N, C, L) gives (N, C, output_size)."""

    pool = staticmethod(F.adaptive_avg_pool1d)


class AdaptiveAvgPool2d(AdaptiveAvgPool):
    """Means over windows that tile the plane evenly: (N, C, H, W) gives (N, C, *output_size).

    In `output_size` None keeps an axis as it is.
    """

    pool = staticmethod(F.adaptive_avg_pool2d)


class AdaptiveAvgPool3d(AdaptiveAvgPool):
    """Means over windows that tile the space evenly: (N, C, D, H, W) gives (N, C, *output_size)."""

    pool = staticmethod(F.adaptive_avg_pool3d)


class AdaptiveMaxPool(Module):
    """What `AdaptiveMaxPool1d`, `AdaptiveMaxPool2d` and `AdaptiveMaxPool3d` share."""

    pool: Callable[..., Any]

    def __init__(self, output_size: AdaptiveSize, return_indices: bool = False):
        super().__init__()
        self.output_size, self.return_indices = output_size, return_indices

    def forward(self, input: Tensor) -> Any:
        return self.pool(input, self.output_size, self.return_indices)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class AdaptiveMaxPool1d(AdaptiveMaxPool):
    """Maxima of windows that tile the axis evenly: (N, C, L) gives (N, C, output_size)."""

    pool = staticmethod(F.adaptive_max_pool1d)


class AdaptiveMaxPool2d(AdaptiveMaxPool):
    """Maxima of windows that tile the plane evenly: (N, C, H, W) gives (N, C, *output_size).

    In `output_size` None keeps an axis as it is. With `return_indices` also where each was, int32.
    """

    pool = staticmethod(F.adaptive_max_pool2d)


class AdaptiveMaxPool3d(AdaptiveMaxPool):
    """Maxima of windows that tile the space evenly: (N, C, D, H, W) gives (N, C, *output_size)."""

    pool = staticmethod(F.adaptive_max_pool3d)


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
