"""Pictures with boxes as samples that a detector is trained on."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .augmentation import Augmentation, Letterbox, augmented, letterbox, squared
from .scaled import ScaledPictures

ROUND = 8  # to a multiple of which the rows of a sample are rounded up


class Source(Protocol):
    """Pictures and their objects, such as `yolo.Pictures` or `shapes.Shapes`."""

    names: list[str]

    def __len__(self) -> int: ...

    def extent(self, index: int) -> tuple[int, int]: ...

    def image(self, index: int) -> np.ndarray: ...

    def objects(self, index: int) -> tuple[np.ndarray, np.ndarray]: ...


class DetectionDataset(ScaledPictures):
    """Square pictures with as many rows of objects each.

    A sample is a picture (3, S, S) float32 in [0, 1], classes (M,) int32, -1 where there is no object, and
    boxes (M, 4) float32: centre x and y, width and height as parts of the square.

    Parameters
    ----------
    source : Source
    size : int
        S.
    augmentation : Augmentation, optional
        What `draw` leaves to chance; by default nothing.

    Attributes
    ----------
    most : int
        M: rows for as many objects as can come together, so that none is ever left out.
    """

    source: Source

    def __init__(self, source: Source, size: int, augmentation: Augmentation | None = None):
        super().__init__(source, size, augmentation)
        counts = sorted(len(source.objects(index)[0]) for index in range(len(source)))
        mixed = augmentation is not None and augmentation.mosaic > 0
        largest = 4 * counts[-1] if mixed else counts[-1]
        self.most = max(-(-largest // ROUND) * ROUND, ROUND)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        square, box = squared(self.picture(index), self.size)
        labels, boxes = self.source.objects(index)
        wide, tall = box.width, box.height
        middle, half = boxes[:, :2] * (wide, tall), boxes[:, 2:] * (wide, tall) / 2
        corners = np.concatenate([middle - half, middle + half], 1) + box.shifts()
        return self.padded(square, labels, corners)

    def draw(self, index: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        how = self.augmentation
        if how is None:
            return self[index]
        chosen = self.chosen(index, how, rng)
        samples = [(self.picture(number), *self.source.objects(number)) for number in chosen]
        return self.padded(*augmented(samples, self.size, how, rng))

    def padded(self, square: np.ndarray, labels: np.ndarray, corners: np.ndarray) -> tuple:
        classes, boxes = np.full(self.most, -1, np.int32), np.zeros((self.most, 4), np.float32)
        classes[: len(labels)] = labels
        near, far = corners[:, :2], corners[:, 2:]
        boxes[: len(labels)] = np.concatenate([(near + far) / 2, far - near], 1) / self.size
        return np.ascontiguousarray(square, np.float32), classes, boxes

    def truth(self, index: int) -> tuple[Letterbox, np.ndarray, np.ndarray]:
        """How a picture is put into its square, and its objects: classes, and corners in its own pixels."""
        height, width = self.source.extent(index)
        labels, boxes = self.source.objects(index)
        middle, half = boxes[:, :2] * (width, height), boxes[:, 2:] * (width, height) / 2
        return letterbox(height, width, self.size), labels, np.concatenate([middle - half, middle + half], 1)
