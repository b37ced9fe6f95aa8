"""What a benchmark is, and what PyTorch and tinyadept spell alike."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

SCALES = {"s": 1, "ms": 1e3, "µs": 1e6, "TFLOP/s": 1e-12, "GB/s": 1e-9}


@dataclass(frozen=True)
class Row:
    """One benchmark: what is run, against whom, and what is wanted.

    Attributes
    ----------
    name : str
    make : callable
        Given a library, returns what is called again and again: a function, or `Repeated`.
    peers : tuple of str
    target : float or None
        Wanted of the time divided by the first peer's; with `work`, of the speed divided by the peer's; in
        the unit of the row where there is no peer, or it is `absolute`.
    unit : str
        A key of SCALES.
    ops : int
        Over which the time is divided.
    work : float
        Operations or bytes of a call, where the unit is a rate.
    absolute : bool
    """

    name: str
    make: Callable[[str], Callable]
    peers: tuple[str, ...]
    target: float | None
    unit: str = "ms"
    ops: int = 1
    work: float = 0
    absolute: bool = False

    def value(self, seconds: float) -> float:
        """In the row's unit."""
        return (self.work / seconds if self.work else seconds / self.ops) * SCALES[self.unit]

    def ratio(self, ours: float, theirs: float) -> float:
        """Of times; of speeds, where the unit is a rate."""
        return theirs / ours if self.work else ours / theirs

    def wanted(self) -> str:
        if self.target is None:
            return ""
        return f"{self.target:g} {self.unit}" if self.absolute or not self.peers else f"{self.target:g}x"

    def verdict(self, ours: float, theirs: float | None) -> str:
        if self.target is None or (self.peers and not self.absolute and theirs is None):
            return ""
        alone = self.absolute or theirs is None
        reached = self.value(ours) if alone else self.ratio(ours, theirs or 0.0)
        if self.work:
            return "met" if reached >= self.target else "MISSED"
        return "met" if reached <= self.target else "MISSED"


@dataclass
class Repeated:
    """Calls of which many are waited for at once; calling this returns the seconds of one.

    On a GPU a call's time is what twice as many take longer than `count` do, so that submitting and waiting
    count for nothing. A processor needs little time for that, and other programs make differences noisy.

    Attributes
    ----------
    call : callable
        Its results are kept until all have been waited for.
    finish : callable
        Waits.
    count : int
    noted : bool
        Whether calls only note work that `finish` runs: then noting counts for nothing either.
    on_gpu : bool
    """

    call: Callable[[], Any]
    finish: Callable[[], Any]
    count: int
    noted: bool = False
    on_gpu: bool = True

    def __call__(self) -> float:
        if not self.on_gpu:
            return self.elapsed(self.count) / self.count
        self.elapsed(2 * self.count)  # makes room, and recordings that later rounds find again
        short, long = (min(self.elapsed(n) for _ in range(5)) for n in (self.count, 2 * self.count))
        return (long - short) / self.count

    def elapsed(self, count: int) -> float:
        start = time.perf_counter()
        kept = [self.call() for _ in range(count)]
        if self.noted:
            start = time.perf_counter()
        self.finish()
        elapsed = time.perf_counter() - start
        del kept
        return elapsed


def named(library: str) -> Any:
    """The parts of a library that PyTorch and tinyadept spell alike."""
    root = importlib.import_module(library)
    functional = {"torch": "torch.nn.functional", "tinyadept": "tinyadept.functional"}[library]
    return SimpleNamespace(
        root=root,
        F=importlib.import_module(functional),
        nn=importlib.import_module(f"{library}.nn"),
        optim=importlib.import_module(f"{library}.optim"),
        tensor=lambda array: root.from_numpy(array),
        no_grad=root.no_grad,
    )


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def lenet(lib: Any, pool: str) -> Any:
    """The network whose training step is timed."""
    nn, smaller = lib.nn, getattr(lib.nn, pool)
    return nn.Sequential(  # (N, 1, 28, 28)
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), smaller(2)),  # (N, 6, 14, 14)
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), smaller(2)),  # (N, 16, 5, 5)
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
