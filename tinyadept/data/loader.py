"""A loader: batches of a data set, made here or ahead of time by other processes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .collate import default_collate
from .samplers import BatchSampler, RandomSampler, SequentialSampler, set_epoch
from .workers import Pool, Task, made, seeded

STATE = ("epoch", "position", "seed")


class DataLoader:
    """Batches of a data set, as NumPy arrays.

    Order and chance follow from the seed and the epoch, never from the number of workers. Workers are
    processes of their own that start with the first iteration and stay, with the data set as it was then;
    `close`, or the loader's end, ends them. Their batches lie in shared memory, which is used again once no
    array refers to it.

    Parameters
    ----------
    dataset : Dataset
        Whatever has ``__len__`` and ``__getitem__``; and see `Dataset.draw`.
    batch_size : int
    shuffle : bool
        Whether each epoch has an order of its own.
    sampler : iterable of int, optional
        Instead of shuffle. If it has ``set_epoch``, that is called with the number of each epoch.
    batch_sampler : iterable of list of int, optional
        Instead of all of these and drop_last.
    num_workers : int
        0 makes batches in this process, when they are asked for.
    collate_fn : callable, optional
        Makes a batch of a list of samples; by default `default_collate`.
    drop_last : bool
        Whether to leave out a last batch that would be smaller.
    timeout : float
        Seconds that a batch of workers may take; 0 for any time.
    prefetch_factor : int
        Batches that each worker makes ahead.
    seed : int

    Raises
    ------
    ValueError
        If a number is out of range, or two arguments exclude each other.
    WorkerDied, TimeoutError, OSError
        From an iteration: a worker was killed, took too long, or shared memory is full. An exception of the
        data set is raised as it is, with the worker's traceback.

    Examples
    --------
    >>> loader = DataLoader(TensorDataset(np.arange(10)), 4, shuffle=True)
    >>> [len(x) for (x,) in loader]
    [4, 4, 2]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        shuffle: bool = False,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable | None = None,
        *,
        drop_last: bool = False,
        timeout: float = 0,
        prefetch_factor: int = 2,
        seed: int = 0,
    ):
        if sampler is not None and shuffle:
            raise ValueError("a sampler decides the order: leave shuffle out")
        if batch_sampler is not None and (sampler is not None or shuffle or drop_last or batch_size != 1):
            raise ValueError(
                "a batch_sampler decides the batches: leave batch_size, shuffle, sampler and drop_last out"
            )
        if num_workers < 0 or timeout < 0 or prefetch_factor < 1 or seed < 0:
            raise ValueError(
                "num_workers, timeout and seed must not be negative and prefetch_factor at least 1, got "
                f"{num_workers}, {timeout}, {seed} and {prefetch_factor}"
            )
        if batch_sampler is None:
            if sampler is None:
                sampler = RandomSampler(dataset, seed) if shuffle else SequentialSampler(dataset)
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_sampler = dataset, batch_sampler
        self.collate_fn = collate_fn or default_collate
        self.num_workers, self.prefetch_factor, self.timeout = num_workers, prefetch_factor, timeout
        self.seed, self.epoch, self.position = seed, 0, 0
        self.resuming = False
        self.run = 0  # counts iterations
        self.pool: Pool | None = None
        self.finalizer: Any = None

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        """One epoch; after `load_state_dict` the rest of one. It ends an iteration begun earlier."""
        if self.position and not self.resuming:
            self.epoch, self.position = self.epoch + 1, 0
        self.resuming = False
        self.run += 1
        return self.batches(self.run)

    def batches(self, run: int) -> Iterator[Any]:
        self.check(run)
        set_epoch(self.batch_sampler, self.epoch)
        tasks = (
            Task(run, self.epoch, number, indices)
            for number, indices in enumerate(self.batch_sampler)
            if number >= self.position
        )
        for batch in self.ahead(tasks, run) if self.num_workers else self.here(tasks):
            self.position += 1
            yield batch
            del batch  # so that its memory is free before the next one is waited for
            self.check(run)
        self.epoch, self.position = self.epoch + 1, 0

    def check(self, run: int) -> None:
        if run != self.run:
            raise RuntimeError("another iteration of this loader has begun: use a second loader")

    def here(self, tasks: Iterator[Task]) -> Iterator[Any]:
        for task in tasks:
            with seeded(self.seed, task):
                batch = made(self.dataset, self.collate_fn, self.seed, task)
            yield batch
            del batch

    def ahead(self, tasks: Iterator[Task], run: int) -> Iterator[Any]:
        """Batches in order, while workers make the next ones in any order."""
        pool = self.start()
        ready: dict[int, Callable[[], Any]] = {}
        number, asked = self.position, self.position
        try:
            while True:
                for task in islice(tasks, number + self.num_workers * self.prefetch_factor - asked):
                    pool.ask(task)
                    asked += 1
                if number == asked:
                    return
                while number not in ready:
                    for task, outcome in pool.answers(self.timeout or None):
                        if task.run == run:
                            ready[task.number] = outcome
                        del outcome
                batch = ready.pop(number)()
                number += 1
                yield batch
                del batch
        except GeneratorExit:  # the workers go on, and what they have made is dropped by the next iteration
            raise
        except BaseException:
            if pool is self.pool:
                self.close()
            raise

    def start(self) -> Pool:
        if self.pool is None:
            self.pool = Pool(self.num_workers, (self.dataset, self.collate_fn), self.seed)
            self.finalizer = weakref.finalize(self, self.pool.close)
        return self.pool

    def close(self) -> None:
        """End the workers; the next iteration would start new ones."""
        if self.pool is not None:
            self.finalizer()
            self.pool = None

    def state_dict(self) -> dict[str, int]:
        """Where the loader is: the epoch, how many of its batches were handed out, and the seed."""
        return {key: getattr(self, key) for key in STATE}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Have the next iteration go on from there.

        Raises
        ------
        ValueError
            If an entry lacks or is no number from 0, or the seed is not the loader's.
        """
        values = [state.get(key) for key in STATE]
        if any(not isinstance(value, int) or value < 0 for value in values):
            raise ValueError(f"a loader's state has {', '.join(STATE)}, numbers from 0; got {state}")
        if state["seed"] != self.seed:
            raise ValueError(f"the state is of a loader with seed {state['seed']}, this one has {self.seed}")
        self.epoch, self.position = state["epoch"], state["position"]
        self.resuming = True
        self.run += 1
