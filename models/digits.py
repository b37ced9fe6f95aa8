"""A small convolutional network for 8x8 images."""

from __future__ import annotations

from tinyadept import nn
from tinyadept.tensor import Tensor


def block(channels_in: int, channels_out: int) -> tuple[nn.Module, ...]:
    """Convolution that keeps the size, normalised (which makes a bias superfluous) and rectified."""
    return (
        nn.Conv2d(channels_in, channels_out, 3, padding=1, bias=False),
        nn.BatchNorm2d(channels_out),
        nn.ReLU(),
    )


class DigitsNet(nn.Module):
    """Three convolutions and a linear layer: 15,418 parameters.

    Shapes: images (N, 1, 8, 8) give scores (N, 10).

    Parameters
    ----------
    classes : int
    """

    def __init__(self, classes: int = 10):
        super().__init__()
        self.features = nn.Sequential(  # (N, 1, 8, 8)
            *block(1, 16),  # (N, 16, 8, 8)
            *block(16, 32),
            nn.MaxPool2d(2),  # (N, 32, 4, 4)
            *block(32, 32),
            nn.MaxPool2d(2),  # (N, 32, 2, 2)
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 2 * 2, classes))

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.features(images))  # (N, 32, 2, 2) to (N, classes)
