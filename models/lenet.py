"""LeNet-5 for images of 28 × 28 cells.

LeCun et al., Gradient-based learning applied to document recognition, Proceedings of the IEEE, 1998.
"""

from __future__ import annotations

from tinyadept import nn
from tinyadept.tensor import Tensor


class LeNet(nn.Module):
    """Two convolutions, each followed by pooling, and three linear layers.

    Shapes: (N, in_channels, 28, 28) gives logits (N, num_classes).

    Parameters
    ----------
    num_classes : int
    in_channels : int
    pooling : str
        "max" or "avg".

    Raises
    ------
    ValueError
        If the pooling is another.
    """

    def __init__(self, num_classes: int = 10, in_channels: int = 1, pooling: str = "max"):
        super().__init__()
        if pooling not in ("max", "avg"):
            raise ValueError(f"pooling must be 'max' or 'avg', got {pooling!r}")
        self.conv1 = nn.Conv2d(in_channels, 6, kernel_size=5, padding=2, activation="relu")
        self.conv2 = nn.Conv2d(6, 16, kernel_size=5, activation="relu")
        self.pool = nn.MaxPool2d(2) if pooling == "max" else nn.AvgPool2d(2)
        self.fc1 = nn.Linear(16 * 5 * 5, 120, activation="relu")
        self.fc2 = nn.Linear(120, 84, activation="relu")
        self.fc3 = nn.Linear(84, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv1(x)  # (N, 6, 28, 28)
        x = self.pool(x)  # (N, 6, 14, 14)
        x = self.conv2(x)  # (N, 16, 10, 10)
        x = self.pool(x)  # (N, 16, 5, 5)
        x = x.flatten(1)  # (N, 400)
        x = self.fc1(x)  # (N, 120)
        x = self.fc2(x)  # (N, 84)
        return self.fc3(x)  # (N, num_classes)
