"""Large definitions on all cores: NumPy itself uses one, except in matrix products.

Pieces of work run on threads of their own (NumPy lets go of the interpreter's lock), each doing its matrix
products alone: the BLAS library's own threads would only wait for each other. Which thread does a piece never
changes what is computed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from math import prod
from pathlib import Path
from threading import Lock, local
from typing import Any

import numpy as np

BLAS_NAMES = [
    f"{prefix}openblas_{{}}_num_threads{suffix}" for prefix in ("scipy_", "") for suffix in ("64_", "")
]
alone = Lock()  # one user at a time: the number of BLAS threads is the whole process's


class Scratch(local):
    """Memory of each thread for what lives within one piece of work: fresh pages would cost as much."""

    def __init__(self):
        self.kept: dict[str, np.ndarray] = {}

    def take(self, name: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """An uninitialised array; the thread's last one of this name is no longer valid."""
        size = prod(shape) * dtype.itemsize
        if name not in self.kept or self.kept[name].size < size:
            self.kept[name] = np.empty(size, np.uint8)
        return self.kept[name][:size].view(dtype).reshape(shape)

    def named(self, name: str) -> Callable:
        """Like `take`, of this name."""
        return partial(self.take, name)


scratch = Scratch()


def each(work: Callable[[Any], Any], pieces: Iterable[Any], worth: bool) -> list:
    """``[work(piece) for piece in pieces]``, on all cores where there are several and it is worth it."""
    pieces = list(pieces)
    if not worth or len(pieces) < 2 or cores() < 2 or blas() is None or not alone.acquire(blocking=False):
        return [work(piece) for piece in pieces]
    try:
        with single_threaded_blas():
            return list(pool(os.getpid()).map(work, pieces))
    finally:
        alone.release()


@cache
def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def pool(process: int) -> ThreadPoolExecutor:
    """The threads of this process; a forked child makes its own."""
    return ThreadPoolExecutor(cores(), "tinyadept")


@contextlib.contextmanager
def single_threaded_blas() -> Iterator[None]:
    get, set_to = blas()  # type: ignore[misc]
    before = get()
    set_to(1)
    try:
        yield
    finally:
        set_to(before)


@cache
def blas() -> tuple[Callable, Callable] | None:
    """Functions that get and set the thread count of the OpenBLAS that NumPy brought, if it did."""
    maps = Path("/proc/self/maps")
    paths = {line.split()[-1] for line in maps.read_text().splitlines()} if maps.exists() else ()
    for path in sorted(path for path in paths if "openblas" in path):
        library = ctypes.CDLL(path)
        for name in BLAS_NAMES:
            if hasattr(library, name.format("get")):
                return getattr(library, name.format("get")), getattr(library, name.format("set"))
    return None
