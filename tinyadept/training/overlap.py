"""How well predicted masks agree with true ones: intersection over union, class by class (Jaccard, 1912)."""

from __future__ import annotations

import numpy as np

from ..data.pictures import VOID


class Overlap:
    """Pixels counted by what they are and what they were taken for.

    Parameters
    ----------
    classes : int

    Attributes
    ----------
    counts : ndarray
        (classes, classes): row the true class, column the predicted one.
    """

    def __init__(self, classes: int):
        self.counts = np.zeros((classes, classes), np.int64)

    def add(self, found: np.ndarray, true: np.ndarray) -> None:
        """Count pixels, of any shape; those whose true class is 255 count nothing."""
        classes, known = len(self.counts), true != VOID
        cells = true[known].astype(np.int64) * classes + found[known]
        self.counts += np.bincount(cells, minlength=classes**2).reshape(classes, classes)

    def ious(self) -> np.ndarray:
        """Intersection over union of each class, (classes,); NaN where it is neither there nor found."""
        shared = np.diag(self.counts)
        union = self.counts.sum(0) + self.counts.sum(1) - shared
        return np.where(union > 0, shared / np.maximum(union, 1), np.nan)

    def mean(self) -> float:
        """Of the classes that are there or found; NaN if there are none."""
        ious = self.ious()
        return float(ious[~np.isnan(ious)].mean()) if not np.isnan(ious).all() else float("nan")
