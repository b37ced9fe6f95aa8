"""Data sets: samples by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Dataset:
    """Samples 0, 1, …, n - 1.

    A subclass defines ``__len__`` and ``__getitem__``. One whose samples are made by chance defines `draw`
    instead of drawing numbers in ``__getitem__``: a loader then makes the same samples from the same seed,
    with any number of workers.
    """

    def __len__(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} has no __len__")

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __getitem__")

    def draw(self, index: int, rng: np.random.Generator) -> Any:
        """A sample of which chance decides something; by default ``self[index]``.

        Parameters
        ----------
        index : int
        rng : numpy.random.Generator
            Seeded by the loader's seed, the epoch and the index.
        """
        return self[index]


class TensorDataset(Dataset):
    """Samples that are rows of arrays: sample i is (a[i], b[i], …).

    Parameters
    ----------
    *tensors : array or Tensor
        Of one length. A tensor is read back from its device once, here.

    Raises
    ------
    ValueError
        If there are none, or they differ in length.
    """

    def __init__(self, *tensors: Any):
        self.tensors = tuple(np.asarray(x) for x in tensors)
        lengths = [x.shape[0] if x.ndim else None for x in self.tensors]
        if not lengths or None in lengths or len(set(lengths)) > 1:
            raise ValueError(
                f"TensorDataset takes arrays of one length, got shapes {[x.shape for x in self.tensors]}"
            )

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        return tuple(x[index] for x in self.tensors)


class Subset(Dataset):
    """Some samples of another data set, in the order given.

    Parameters
    ----------
    dataset : Dataset
    indices : sequence of int
    """

    def __init__(self, dataset: Any, indices: Sequence[int]):
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]

    def draw(self, index: int, rng: np.random.Generator) -> Any:
        return drawn(self.dataset, self.indices[index], rng)


def drawn(dataset: Any, index: int, rng: np.random.Generator) -> Any:
    """A sample of any data set, with a `draw` or without."""
    draw = getattr(dataset, "draw", None)
    return dataset[index] if draw is None else draw(index, rng)
