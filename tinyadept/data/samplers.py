"""In which order samples are seen, and which make a batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import Any

import numpy as np


class SequentialSampler:
    """0, 1, …, n - 1.

    Parameters
    ----------
    data_source : sized
    """

    def __init__(self, data_source: Sized):
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


class RandomSampler:
    """Each index once, in an order that the seed and the epoch decide.

    Parameters
    ----------
    data_source : sized
    seed : int
    """

    def __init__(self, data_source: Sized, seed: int = 0):
        self.data_source, self.seed, self.epoch = data_source, seed, 0

    def __len__(self) -> int:
        return len(self.data_source)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order that the next iteration has."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(len(self))
        return iter(order.tolist())


class BatchSampler:
    """Lists of so many indices that a sampler gives one after another.

    Parameters
    ----------
    sampler : iterable of int
        With a length, if that of the batches is asked for.
    batch_size : int
    drop_last : bool
        Whether to leave out a last list that would be shorter.

    Raises
    ------
    ValueError
        If batch_size is no positive integer.
    """

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False):
        if not isinstance(batch_size, (int, np.integer)) or isinstance(batch_size, bool) or batch_size < 1:
            raise ValueError(f"batch_size must be a positive integer, got {batch_size!r}")
        self.sampler, self.batch_size, self.drop_last = sampler, int(batch_size), drop_last

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def set_epoch(self, epoch: int) -> None:
        set_epoch(self.sampler, epoch)

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch


def set_epoch(sampler: Iterable, epoch: int) -> None:
    """Tell a sampler the epoch, if its order depends on it."""
    tell = getattr(sampler, "set_epoch", None)
    if tell is not None:
        tell(epoch)
