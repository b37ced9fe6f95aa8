"""Convolutions along one to three axes, and their transposes."""

from __future__ import annotations

from collections.abc import Callable

from .. import functional as F
from ..creation import zeros
from ..tensor import Tensor
from .layers import activation_repr, reset
from .module import Module, Parameter

Size = int | tuple[int, ...]


def per_axis(name: str, value: Size, rank: int, lowest: int) -> tuple[int, ...]:
    """One int for all axes, or one for each."""
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank or any(n < lowest for n in sizes):
        raise ValueError(f"{name} must be one int or {rank}, each at least {lowest}, got {value}")
    return sizes


class Convolution(Module):
    """What `Conv1d`, `Conv2d` and `Conv3d` share."""

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
        *,
        activation: str | None = None,
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
        self.activation = activation
        self.weight = Parameter(zeros(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = Parameter(zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform within 1 / √(in_channels / groups · kernel cells)."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        geometry = self.stride, self.padding, self.dilation, self.groups
        return self.convolve(input, self.weight, self.bias, *geometry, activation=self.activation)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        text += f", kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        text += "" if self.bias is not None else ", bias=False"
        return text + activation_repr(self.activation)


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
    activation : str, optional
        See `tinyadept.functional.conv2d`. Beyond PyTorch.

    Raises
    ------
    ValueError
        If the channels do not divide into groups, a size is too small, or "same" meets a stride other than 1.
    """

    rank = 2
    convolve = staticmethod(F.conv2d)


class Conv3d(Convolution):
    """Cross-correlation along three axes.

    Shapes: (N, in_channels, D, H, W) gives (N, out_channels, D', H', W'); the weight is (out_channels,
    in_channels / groups, *kernel_size). Parameters and errors are those of `Conv2d`.
    """

    rank = 3
    convolve = staticmethod(F.conv3d)


class TransposedConvolution(Module):
    """What `ConvTranspose1d`, `ConvTranspose2d` and `ConvTranspose3d` share."""

    rank: int
    convolve: Callable[..., Tensor]
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
    ):
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ValueError(f"{in_channels} and {out_channels} channels do not divide into {groups} groups")
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = per_axis("kernel_size", kernel_size, self.rank, 1)
        self.stride = per_axis("stride", stride, self.rank, 1)
        self.padding = per_axis("padding", padding, self.rank, 0)
        self.output_padding = per_axis("output_padding", output_padding, self.rank, 0)
        self.dilation = per_axis("dilation", dilation, self.rank, 1)
        self.weight = Parameter(zeros(in_channels, out_channels // groups, *self.kernel_size))
        self.bias = Parameter(zeros(out_channels)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights, uniform within 1 / √(out_channels / groups · kernel cells)."""
        reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        geometry = self.stride, self.padding, self.output_padding, self.groups, self.dilation
        return self.convolve(input, self.weight, self.bias, *geometry)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}"
        text += f", kernel_size={self.kernel_size}, stride={self.stride}"
        for name, usual in (("padding", 0), ("output_padding", 0), ("dilation", 1)):
            if getattr(self, name) != (usual,) * self.rank:
                text += f", {name}={getattr(self, name)}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        return text if self.bias is not None else f"{text}, bias=False"


class ConvTranspose1d(TransposedConvolution):
    """The transpose of a convolution along one axis: (N, C, L). Parameters are those of `ConvTranspose2d`."""

    rank = 1
    convolve = staticmethod(F.conv_transpose1d)


class ConvTranspose2d(TransposedConvolution):
    """The transpose of a convolution along two axes, which spreads each cell over a window.

    Shapes: (N, in_channels, H, W) gives (N, out_channels, H', W') with H' = (H - 1) · stride - 2 · padding +
    dilation · (kernel_size - 1) + output_padding + 1; the weight is (in_channels, out_channels / groups,
    kernel height, kernel width). Initial weights are uniform within 1 / √(out_channels / groups · cells).

    Parameters
    ----------
    in_channels, out_channels : int
    kernel_size, stride, padding, output_padding, dilation : int or one per axis
        See `tinyadept.functional.conv_transpose2d`.
    groups : int
        Channels are divided into so many groups, each convolved by itself.
    bias : bool

    Raises
    ------
    ValueError
        If the channels do not divide into groups, or a size is too small.
    """

    rank = 2
    convolve = staticmethod(F.conv_transpose2d)


class ConvTranspose3d(TransposedConvolution):
    """The transpose of a convolution along three axes. Parameters are those of `ConvTranspose2d`."""

    rank = 3
    convolve = staticmethod(F.conv_transpose3d)
