"""MobileNetV2: depthwise convolutions between narrow layers.

Sandler et al., MobileNetV2: inverted residuals and linear bottlenecks, CVPR 2018. State dicts have
torchvision's names. Shapes in comments are (N, C, H, W) for pictures of 224 × 224.
"""

from __future__ import annotations

from tinyadept import nn
from tinyadept.tensor import Tensor

STAGES = (  # expansion, channels, blocks, stride of the first
    (1, 16, 1, 1),  # (N, 16, 112, 112)
    (6, 24, 2, 2),  # (N, 24, 56, 56)
    (6, 32, 3, 2),  # (N, 32, 28, 28)
    (6, 64, 4, 2),  # (N, 64, 14, 14)
    (6, 96, 3, 1),
    (6, 160, 3, 2),  # (N, 160, 7, 7)
    (6, 320, 1, 1),
)
FIRST, LAST = 32, 1280  # channels before the stages and after them


class ReLU6(nn.Module):
    """Positive values up to 6."""

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0.0, 6.0)


def conv(c_in: int, c_out: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution that keeps the size but for its stride, normalised and limited."""
    layer = nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(c_out), ReLU6())


class InvertedResidual(nn.Module):
    """Wider by a factor, through a depthwise convolution, and narrow again without an activation."""

    def __init__(self, c_in: int, c_out: int, stride: int, expansion: int):
        super().__init__()
        wide = c_in * expansion
        layers = [] if expansion == 1 else [conv(c_in, wide)]
        narrow = nn.Conv2d(wide, c_out, 1, bias=False)
        self.conv = nn.Sequential(*layers, conv(wide, wide, 3, stride, wide), narrow, nn.BatchNorm2d(c_out))
        self.add = stride == 1 and c_in == c_out

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return x + y if self.add else y


class MobileNetV2(nn.Module):
    """MobileNetV2 of width 1: 3,504,872 parameters for 1000 classes.

    Shapes: pictures (N, 3, H, W) give scores (N, num_classes). Pictures for ImageNet's weights are RGB in
    [0, 1], minus (0.485, 0.456, 0.406), over (0.229, 0.224, 0.225).

    Parameters
    ----------
    num_classes : int
    dropout : float
        Of the features before the classifier.
    """

    def __init__(self, num_classes: int = 1000, dropout: float = 0.2):
        super().__init__()
        layers: list[nn.Module] = [conv(3, FIRST, 3, 2)]  # (N, 32, 112, 112)
        channels = FIRST
        for expansion, wide, blocks, stride in STAGES:
            for block in range(blocks):
                layers.append(InvertedResidual(channels, wide, 1 if block else stride, expansion))
                channels = wide
        self.features = nn.Sequential(*layers, conv(channels, LAST))  # (N, 1280, 7, 7)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(LAST, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))  # (N, 1280) to (N, num_classes)
