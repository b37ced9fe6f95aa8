"""UNet: a class for every pixel, from a path down to coarse maps and one up again that joins the finer ones.

Ronneberger, Fischer and Brox, U-Net: convolutional networks for biomedical image segmentation, MICCAI 2015;
with padding and batch normalisation, as is usual today. Shapes in comments are (N, C, H, W) for width 32,
depth 4 and pictures of 256 × 256.
"""

from __future__ import annotations

from itertools import pairwise

import tinyadept.functional as F
from tinyadept import nn
from tinyadept.tensor import Tensor

UPWARDS = ("transposed", "nearest", "bilinear")


class DoubleConv(nn.Sequential):
    """Twice a convolution 3 × 3, normalised and rectified."""

    def __init__(self, c_in: int, c_out: int):
        super().__init__(
            nn.Conv2d(c_in, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
            nn.Conv2d(c_out, c_out, 3, padding=1, bias=False),
            nn.BatchNorm2d(c_out),
            nn.ReLU(),
        )


class Up(nn.Module):
    """Twice as large, joined with the finer map of the way down."""

    def __init__(self, c_in: int, c_out: int, upwards: str):
        super().__init__()
        if upwards == "transposed":
            self.up = nn.ConvTranspose2d(c_in, c_out, 2, stride=2)
        else:
            larger = nn.Upsample(scale_factor=2, mode=upwards)
            self.up = nn.Sequential(larger, nn.Conv2d(c_in, c_out, 1))
        self.conv = DoubleConv(2 * c_out, c_out)

    def forward(self, coarse: Tensor, fine: Tensor) -> Tensor:
        return self.conv(F.cat([fine, self.up(coarse)], 1))


class UNet(nn.Module):
    """UNet for pictures whose sides are multiples of 2^depth.

    Shapes: (N, in_channels, H, W) gives scores (N, classes, H, W).

    Parameters
    ----------
    classes, in_channels : int
    width : int
        Channels of the finest maps; each step down doubles them.
    depth : int
        Steps down.
    upwards : str
        "transposed" convolution, or "nearest" or "bilinear" interpolation before a convolution.

    Raises
    ------
    ValueError
        If `upwards` is none of these, or a picture's sides do not fit.
    """

    def __init__(
        self,
        classes: int = 2,
        in_channels: int = 3,
        width: int = 32,
        depth: int = 4,
        upwards: str = "transposed",
    ):
        super().__init__()
        if upwards not in UPWARDS:
            raise ValueError(f"UNet goes upwards by {', '.join(UPWARDS)}, got {upwards!r}")
        widths = [width << step for step in range(depth + 1)]  # 32, 64, 128, 256, 512
        self.first = DoubleConv(in_channels, width)
        self.pool = nn.MaxPool2d(2)
        self.down = nn.ModuleList(DoubleConv(fine, coarse) for fine, coarse in pairwise(widths))
        self.up = nn.ModuleList(Up(coarse, fine, upwards) for coarse, fine in pairwise(reversed(widths)))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        step = 1 << len(self.down)
        if images.ndim != 4 or images.shape[2] % step or images.shape[3] % step:
            raise ValueError(
                f"UNet takes (N, C, H, W) with sides that are multiples of {step}, got shape {images.shape}"
            )
        maps = [self.first(images)]  # (N, 32, 256, 256)
        for layer in self.down:
            maps.append(layer(self.pool(maps[-1])))  # down to (N, 512, 16, 16)
        x = maps.pop()
        for layer in self.up:
            x = layer(x, maps.pop())  # up to (N, 32, 256, 256)
        return self.last(x)
