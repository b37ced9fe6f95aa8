"""Data sets of pictures that are read once, and kept in the size in which they are used."""

from __future__ import annotations

from typing import Any

import numpy as np

from .augmentation import Augmentation, letterbox, resized
from .datasets import Dataset


class ScaledPictures(Dataset):
    """Pictures in a size that fits a square.

    Parameters
    ----------
    source : object
        Has a length, and reads pictures: `image` gives (H, W, 3) uint8.
    size : int
        S, the square's side.
    augmentation : Augmentation, optional
        What `draw` leaves to chance; by default nothing.
    """

    def __init__(self, source: Any, size: int, augmentation: Augmentation | None = None):
        self.source, self.size, self.augmentation = source, size, augmentation
        self.cache: dict[Any, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self.source)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "cache": {}}  # a worker reads for itself

    def picture(self, index: int, kind: str = "image") -> np.ndarray:
        """The source's image, or what else `kind` calls, its longer side S; read once."""
        if (kind, index) not in self.cache:
            whole = getattr(self.source, kind)(index)
            height, width = whole.shape[:2]
            box = letterbox(height, width, self.size)
            self.cache[kind, index] = resized(whole, box.width, box.height)
        return self.cache[kind, index]

    def chosen(self, index: int, how: Augmentation, rng: np.random.Generator) -> list[int]:
        """A picture, and now and then three others for a mosaic."""
        others = rng.integers(len(self), size=3).tolist() if rng.uniform() < how.mosaic else []
        return [index, *others]
