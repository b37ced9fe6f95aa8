"""YOLO11: objects in a picture as boxes with class scores, in one pass of a convolutional network.

Architecture: Jocher and Qiu, Ultralytics YOLO11, 2024. Modules are named so that state dicts have
Ultralytics' names. Shapes in comments are (N, C, H, W) for the size n and pictures of 640 × 640.
"""

from __future__ import annotations

from math import ceil, log
from typing import Any

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn
from tinyadept.tensor import Tensor

SIZES = {  # depth, width, most channels
    "n": (0.50, 0.25, 1024),
    "s": (0.50, 0.50, 1024),
    "m": (0.50, 1.00, 512),
    "l": (1.00, 1.00, 512),
    "x": (1.00, 1.50, 512),
}
JOINED = {12: 6, 15: 4, 18: 13, 21: 10}  # which earlier layer a Concat joins to the last one
DETECTED = (16, 19, 22)  # layers whose maps are searched
STRIDES = (8, 16, 32)  # pixels to a cell of each map
SLOPES = (0.7, 0.4, 0.1)  # by which the first distributions of distances fall, from bin to bin
BINS = 16  # in which the distance from a cell's centre to each side of its box is told


class Conv(nn.Module):
    """Convolution, batch normalisation and SiLU; `fuse` folds the second into the first."""

    def __init__(
        self, c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1, active: bool = True
    ):
        super().__init__()
        self.conv = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        self.bn: nn.BatchNorm2d | None = nn.BatchNorm2d(c_out, eps=1e-3, momentum=0.03)
        self.active = active

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        if self.bn is not None:
            y = self.bn(y)
        return F.silu(y) if self.active and self.conv.activation is None else y

    def fuse(self) -> None:
        """Fold the running statistics into the weights: w · γ/σ and β - μ · γ/σ. For inference only."""
        if self.bn is None:
            return
        mean, variance = self.bn.running_mean, self.bn.running_var
        assert mean is not None and variance is not None
        with ta.no_grad():
            scale = self.bn.weight / (variance + self.bn.eps).sqrt()  # (C,)
            self.conv.weight.copy_(self.conv.weight * scale.reshape(-1, 1, 1, 1))
            self.conv.bias = nn.Parameter(self.bn.bias - mean * scale)
        self.conv.activation = "silu" if self.active else None
        self.bn = None


class Bottleneck(nn.Module):
    """Two convolutions 3 × 3, and a way around them."""

    def __init__(self, c_in: int, c_out: int, shortcut: bool = True, expansion: float = 0.5):
        super().__init__()
        hidden = int(c_out * expansion)
        self.cv1 = Conv(c_in, hidden, 3)
        self.cv2 = Conv(hidden, c_out, 3)
        self.add = shortcut and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class C3k(nn.Module):
    """Half of the channels through bottlenecks, half past them."""

    def __init__(self, channels: int, repeats: int = 2):
        super().__init__()
        hidden = channels // 2
        self.cv1 = Conv(channels, hidden)
        self.cv2 = Conv(channels, hidden)
        self.cv3 = Conv(2 * hidden, channels)
        self.m = nn.Sequential(*(Bottleneck(hidden, hidden, expansion=1.0) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        return self.cv3(F.cat([self.m(self.cv1(x)), self.cv2(x)], 1))


class C3k2(nn.Module):
    """A chain of blocks, all of whose results are joined."""

    def __init__(self, c_in: int, c_out: int, repeats: int, deep: bool, expansion: float = 0.5):
        super().__init__()
        self.width = int(c_out * expansion)
        self.cv1 = Conv(c_in, 2 * self.width)
        self.cv2 = Conv((2 + repeats) * self.width, c_out)
        blocks = (C3k(self.width) if deep else Bottleneck(self.width, self.width) for _ in range(repeats))
        self.m = nn.ModuleList(blocks)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.cv1(x).split(self.width, 1))
        for block in self.m:
            parts.append(block(parts[-1]))
        return self.cv2(F.cat(parts, 1))


class SPPF(nn.Module):
    """Maxima over windows of 5, 9 and 13 cells, by pooling three times."""

    def __init__(self, channels: int):
        super().__init__()
        self.cv1 = Conv(channels, channels // 2)
        self.cv2 = Conv(channels * 2, channels)
        self.m = nn.MaxPool2d(5, stride=1, padding=2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(self.m(parts[-1]))
        return self.cv2(F.cat(parts, 1))


class Attention(nn.Module):
    """Self-attention over the cells of a map, with a depthwise convolution to tell places apart."""

    def __init__(self, channels: int, heads: int):
        super().__init__()
        self.heads, self.head_dim = heads, channels // heads
        self.key_dim = self.head_dim // 2
        self.qkv = Conv(channels, channels + 2 * self.key_dim * heads, active=False)
        self.proj = Conv(channels, channels, active=False)
        self.pe = Conv(channels, channels, 3, groups=channels, active=False)

    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        qkv = self.qkv(x).reshape(n, self.heads, 2 * self.key_dim + self.head_dim, h * w)
        q, k, v = qkv.split([self.key_dim, self.key_dim, self.head_dim], 2)  # (N, heads, d, H·W)
        weights = F.softmax(q.mT @ k * self.key_dim**-0.5, -1)  # (N, heads, H·W, H·W)
        seen = (v @ weights.mT).reshape(n, c, h, w)
        return self.proj(seen + self.pe(v.reshape(n, c, h, w)))


class PSABlock(nn.Module):
    """Attention and a pointwise network, each with a way around it."""

    def __init__(self, channels: int):
        super().__init__()
        self.attn = Attention(channels, channels // 64)
        self.ffn = nn.Sequential(Conv(channels, 2 * channels), Conv(2 * channels, channels, active=False))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(x)
        return x + self.ffn(x)


class C2PSA(nn.Module):
    """Half of the channels through attention."""

    def __init__(self, channels: int, repeats: int):
        super().__init__()
        self.cv1 = Conv(channels, channels)
        self.cv2 = Conv(channels, channels)
        self.m = nn.Sequential(*(PSABlock(channels // 2) for _ in range(repeats)))

    def forward(self, x: Tensor) -> Tensor:
        past, through = self.cv1(x).chunk(2, 1)
        return self.cv2(F.cat([past, self.m(through)], 1))


class Concat(nn.Module):
    """Maps of one size, one after another."""

    def forward(self, maps: list[Tensor]) -> Tensor:
        return F.cat(maps, 1)


class DFL(nn.Module):
    """A distance as the mean of a distribution over bins (Li et al., Generalized focal loss, 2020)."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(BINS, 1, 1, bias=False)
        self.conv.weight.requires_grad_(False)
        with ta.no_grad():
            self.conv.weight.copy_(ta.arange(float(BINS)).reshape(1, BINS, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        n, _, cells = x.shape  # (N, 4·bins, A)
        shares = F.softmax(x.reshape(n, 4, BINS, cells), 2)
        return (shares * self.conv.weight.reshape(BINS, 1)).sum(2)  # (N, 4, A)


class Detect(nn.Module):
    """Boxes and class scores from maps of three scales.

    In training the maps (N, 4·16 + classes, H, W) of each scale; else (N, 4 + classes, A) over all A cells:
    centre x and y, width and height in pixels, then the probability of each class.
    """

    def __init__(self, classes: int, channels: tuple[int, ...]):
        super().__init__()
        self.classes = classes
        boxes, scores = max(16, channels[0] // 4, 4 * BINS), max(channels[0], min(classes, 100))
        self.cv2 = nn.ModuleList(
            nn.Sequential(Conv(c, boxes, 3), Conv(boxes, boxes, 3), nn.Conv2d(boxes, 4 * BINS, 1))
            for c in channels
        )
        self.cv3 = nn.ModuleList(
            nn.Sequential(
                nn.Sequential(Conv(c, c, 3, groups=c), Conv(c, scores)),
                nn.Sequential(Conv(scores, scores, 3, groups=scores), Conv(scores, scores)),
                nn.Conv2d(scores, classes, 1),
            )
            for c in channels
        )
        self.dfl = DFL()
        self.reset_biases()

    def reset_biases(self) -> None:
        """Begin with small, middling and large boxes, and with about five objects in a picture of 640 × 640.

        Boxes of about 16, 65 and 350 pixels on the three maps: an object of any size overlaps one of them
        enough to be given cells. One that nothing overlaps would teach nothing.
        """
        with ta.no_grad():
            for at, (stride, slope) in enumerate(zip(STRIDES, SLOPES, strict=True)):
                self.cv2[at][-1].bias.copy_((ta.arange(float(BINS)) * -slope).expand(4, BINS).flatten())
                self.cv3[at][-1].bias.fill_(log(5 / self.classes / (640 / stride) ** 2))

    def forward(self, maps: list[Tensor]) -> Any:
        levels = [
            F.cat([box(x), score(x)], 1) for x, box, score in zip(maps, self.cv2, self.cv3, strict=True)
        ]
        return levels if self.training else self.decode(levels)

    def decode(self, levels: list[Tensor]) -> Tensor:
        """Boxes in pixels and probabilities, (N, 4 + classes, A)."""
        boxes, scores = flattened(levels)
        centres, strides = cells(levels)  # (2, A), (A,)
        near, far = self.dfl(boxes).chunk(2, 1)  # distances to the left and top, to the right and bottom
        middle = centres + (far - near) * 0.5
        return F.cat([middle * strides, (near + far) * strides, scores.sigmoid()], 1)


def flattened(levels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """The maps of all scales as distances (N, 4·16, A) and class scores (N, classes, A)."""
    flat = F.cat([x.flatten(2) for x in levels], 2)
    return flat[:, : 4 * BINS], flat[:, 4 * BINS :]


def cells(levels: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Centres (2, A) of all cells, in units of their own size, and that size (A,) in pixels."""
    centres, strides = [], []
    for x, stride in zip(levels, STRIDES, strict=True):
        h, w = x.shape[2:]
        across = (ta.arange(w, dtype=ta.float32, device=x.backend) + 0.5).expand(h, w)
        down = (ta.arange(h, dtype=ta.float32, device=x.backend) + 0.5).unsqueeze(1).expand(h, w)
        centres.append(F.stack([across.flatten(), down.flatten()]))
        strides.append(ta.full((h * w,), float(stride), device=x.backend))
    return F.cat(centres, 1), F.cat(strides, 0)


class YOLO11(nn.Module):
    """YOLO11 of the sizes n, s, m, l and x.

    Shapes: pictures (N, 3, H, W), RGB in [0, 1], whose sides are multiples of 32. In training a list of maps
    (N, 64 + classes, H / s, W / s) for s = 8, 16, 32; else (N, 4 + classes, A), see `Detect`.

    Parameters
    ----------
    size : str
    classes : int

    Raises
    ------
    ValueError
        If there is no such size, or the sides are no multiples of 32.
    """

    def __init__(self, size: str = "n", classes: int = 80):
        super().__init__()
        if size not in SIZES:
            raise ValueError(f"YOLO11 comes in the sizes {', '.join(SIZES)}, got {size!r}")
        depth, width, most = SIZES[size]
        c1, c2, c3, c4, c5 = (ceil(min(c, most) * width / 8) * 8 for c in (64, 128, 256, 512, 1024))
        repeats, deep = max(round(2 * depth), 1), size in "mlx"
        self.model = nn.ModuleList(
            [
                Conv(3, c1, 3, 2),  # (N, 16, 320, 320)
                Conv(c1, c2, 3, 2),  # (N, 32, 160, 160)
                C3k2(c2, c3, repeats, deep, 0.25),  # (N, 64, 160, 160)
                Conv(c3, c3, 3, 2),  # (N, 64, 80, 80)
                C3k2(c3, c4, repeats, deep, 0.25),  # (N, 128, 80, 80)
                Conv(c4, c4, 3, 2),  # (N, 128, 40, 40)
                C3k2(c4, c4, repeats, True),
                Conv(c4, c5, 3, 2),  # (N, 256, 20, 20)
                C3k2(c5, c5, repeats, True),
                SPPF(c5),
                C2PSA(c5, repeats),
                nn.Upsample(scale_factor=2),  # (N, 256, 40, 40)
                Concat(),  # with 6
                C3k2(c5 + c4, c4, repeats, deep),  # (N, 128, 40, 40)
                nn.Upsample(scale_factor=2),  # (N, 128, 80, 80)
                Concat(),  # with 4
                C3k2(c4 + c4, c3, repeats, deep),  # (N, 64, 80, 80)
                Conv(c3, c3, 3, 2),  # (N, 64, 40, 40)
                Concat(),  # with 13
                C3k2(c3 + c4, c4, repeats, deep),  # (N, 128, 40, 40)
                Conv(c4, c4, 3, 2),  # (N, 128, 20, 20)
                Concat(),  # with 10
                C3k2(c4 + c5, c5, repeats, True),  # (N, 256, 20, 20)
                Detect(classes, (c3, c4, c5)),  # of 16, 19 and 22
            ]
        )
        self.size, self.classes = size, classes

    def forward(self, images: Tensor) -> Any:
        if images.ndim != 4 or images.shape[1] != 3 or images.shape[2] % 32 or images.shape[3] % 32:
            raise ValueError(
                f"YOLO11 takes pictures (N, 3, H, W) with sides that are multiples of 32, got {images.shape}"
            )
        made = self.features(images)
        return self.model[-1]([made[at] for at in DETECTED])

    def features(self, images: Tensor) -> list[Tensor]:
        """The results of all layers but the last."""
        x, made = images, []
        for at, layer in enumerate(list(self.model)[:-1]):
            x = layer([x, made[JOINED[at]]] if at in JOINED else x)
            made.append(x)
        return made

    def fuse(self) -> YOLO11:
        """Fold every batch normalisation into its convolution; for inference only. Returns the model."""
        for module in self.modules():
            if isinstance(module, Conv):
                module.fuse()
        return self
