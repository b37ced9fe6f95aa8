"""Pictures with masks as samples that a model is trained on which tells the class of every pixel."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from .augmentation import augmented_mask, squared, squared_mask
from .scaled import ScaledPictures


class Source(Protocol):
    """Pictures and their masks, such as `masks.MaskedPictures` or `shapes.Shapes`."""

    def __len__(self) -> int: ...

    def image(self, index: int) -> np.ndarray: ...

    def mask(self, index: int) -> np.ndarray: ...


class SegmentationDataset(ScaledPictures):
    """Square pictures (3, S, S) float32 in [0, 1] with masks (S, S) uint8; 255 where nothing counts.

    Parameters
    ----------
    source : Source
    size : int
        S.
    augmentation : Augmentation, optional
        What `draw` leaves to chance, the same in picture and mask; by default nothing.
    """

    source: Source

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        square, _ = squared(self.picture(index), self.size)
        return square, squared_mask(self.picture(index, "mask"), self.size)

    def draw(self, index: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        how = self.augmentation
        if how is None:
            return self[index]
        chosen = self.chosen(index, how, rng)
        samples = [(self.picture(number), self.picture(number, "mask")) for number in chosen]
        square, mask = augmented_mask(samples, self.size, how, rng)
        return np.ascontiguousarray(square), np.ascontiguousarray(mask)
