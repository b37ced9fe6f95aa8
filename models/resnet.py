"""ResNet-18: convolutions with a way around every two of them.

He, Zhang, Ren and Sun, Deep residual learning for image recognition, CVPR 2016. State dicts have
torchvision's names. Shapes in comments are (N, C, H, W) for pictures of 224 × 224.
"""

from __future__ import annotations

from tinyadept import nn
from tinyadept.tensor import Tensor


class BasicBlock(nn.Module):
    """Two convolutions 3 × 3 beside the identity, or beside a projection where the shape changes."""

    def __init__(self, c_in: int, c_out: int, stride: int = 1):
        super().__init__()
        self.conv1 = nn.Conv2d(c_in, c_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(c_out)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(c_out)
        self.relu = nn.ReLU()
        self.downsample = None
        if stride != 1 or c_in != c_out:
            self.downsample = nn.Sequential(
                nn.Conv2d(c_in, c_out, 1, stride, bias=False), nn.BatchNorm2d(c_out)
            )

    def forward(self, x: Tensor) -> Tensor:
        past = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(y)) + past)


class ResNet18(nn.Module):
    """ResNet of 18 layers: 11,689,512 parameters for 1000 classes.

    Shapes: pictures (N, 3, H, W) give scores (N, num_classes). Pictures for ImageNet's weights are RGB in
    [0, 1], minus (0.485, 0.456, 0.406), over (0.229, 0.224, 0.225).

    Parameters
    ----------
    num_classes : int
    """

    def __init__(self, num_classes: int = 1000):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = nn.Sequential(BasicBlock(64, 64), BasicBlock(64, 64))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))  # (N, 64, 112, 112)
        x = self.layer1(self.maxpool(x))  # (N, 64, 56, 56)
        x = self.layer2(x)  # (N, 128, 28, 28)
        x = self.layer3(x)  # (N, 256, 14, 14)
        x = self.layer4(x)  # (N, 512, 7, 7)
        return self.fc(self.avgpool(x).flatten(1))  # (N, num_classes)
