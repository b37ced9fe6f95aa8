"""Shared memory in which workers hand over batches.

The loader's process makes a segment, a worker opens it by its name, and then the name is removed: the memory
lives as long as either has it open, and nothing is left in /dev/shm, whoever is killed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from math import prod
from multiprocessing.shared_memory import SharedMemory
from secrets import token_hex
from typing import NamedTuple

import numpy as np

ALIGNMENT = 64  # bytes; a line of the cache
FILES = "/dev/shm"  # where Linux shows segments


class Place(NamedTuple):
    """Where an array lies in a segment: bytes from its start, shape and dtype."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype


def layout(outlines: Iterable[tuple[tuple[int, ...], str]]) -> tuple[list[Place], int]:
    """Where the arrays of a batch lie in its segment: the one place that knows, for both sides.

    Parameters
    ----------
    outlines : iterable of (shape, dtype)
        The dtype as `numpy.dtype.str` spells it.

    Returns
    -------
    places : list of Place
    size : int
        Bytes that the segment needs.
    """
    places, end = [], 0
    for shape, spelled in outlines:
        dtype = np.dtype(spelled)
        places.append(Place(end, tuple(shape), dtype))
        end += -(-prod(shape) * dtype.itemsize // ALIGNMENT) * ALIGNMENT
    return places, max(end, ALIGNMENT)


def arrays_in(memory: np.ndarray, places: Iterable[Place]) -> list[np.ndarray]:
    """Arrays that share memory (uint8) with a segment."""
    return [np.ndarray(place.shape, place.dtype, memory, place.offset) for place in places]


class Slot:
    """A segment of the loader's process, which one worker fills again and again.

    Attributes
    ----------
    number : int
        What the worker knows it by.
    size : int
        Bytes; 0 while there is no segment.
    named : bool
        Whether the segment has a name yet, because the worker has not opened it.
    """

    def __init__(self, number: int, free: Callable[[Slot], None]):
        self.number, self.free = number, free
        self.memory: SharedMemory | None = None
        self.size, self.address = 0, 0
        self.named = self.leased = self.retired = False

    @property
    def name(self) -> str:
        assert self.memory is not None
        return self.memory.name

    def grow(self, size: int) -> None:
        """Have a new segment of so many bytes, which are there: writing to it cannot fail.

        Raises
        ------
        OSError
            If the system has no room for it.
        """
        self.close()
        name, self.named = f"tinyadept-{os.getpid()}-{token_hex(4)}", True
        try:
            self.memory = SharedMemory(name, create=True, size=size)
        except BaseException:  # Ctrl-C in the midst of it, too
            discard(name)
            raise
        try:
            reserve(self.memory.name, size)
        except OSError as error:
            self.close()
            raise OSError(
                error.errno,
                f"shared memory has no room for a batch of {size} bytes ({error.strerror}): make {FILES} "
                "larger (--shm-size for a container), or have smaller batches, fewer workers or none",
            ) from None
        self.size = size
        self.address = np.frombuffer(bytes_of(self.memory), np.uint8).__array_interface__["data"][0]

    def opened(self) -> None:
        """The worker has the segment: nobody else needs its name."""
        if self.named and self.memory is not None:
            with contextlib.suppress(FileNotFoundError):
                self.memory.unlink()
            self.named = False

    def lease(self) -> np.ndarray:
        """The segment as bytes. The slot becomes free once nothing refers to them any more."""
        self.leased = True
        return np.asarray(Lease(self))

    def released(self) -> None:
        self.leased = False
        if self.retired:
            self.close()
        else:
            self.free(self)

    def retire(self) -> None:
        """Close the segment as soon as nobody reads it."""
        self.retired = True
        self.opened()
        if not self.leased:
            self.close()

    def close(self) -> None:
        self.opened()
        if self.memory is not None:
            self.memory.close()
        self.memory, self.size = None, 0


class Lease:
    """What the arrays of a batch have as their base, so that its end is noticed."""

    def __init__(self, slot: Slot):
        self.slot = slot
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (slot.size,),
            "data": (slot.address, False),
        }

    def __del__(self):
        self.slot.released()


def bytes_of(memory: SharedMemory) -> memoryview:
    """Those of an open segment."""
    assert memory.buf is not None
    return memory.buf


def discard(name: str) -> None:
    """Remove a segment that may not have been made to its end."""
    try:
        memory = SharedMemory(name)
    except FileNotFoundError:
        return
    except ValueError:  # it has no bytes yet
        os.unlink(os.path.join(FILES, name))
        return
    memory.close()
    memory.unlink()


def reserve(name: str, size: int) -> None:
    """Have the pages now, where a lack of them is an error: on first use it would kill the process."""
    path = os.path.join(FILES, name)
    if os.path.exists(path):
        file = os.open(path, os.O_RDWR)
        try:
            os.posix_fallocate(file, 0, size)
        finally:
            os.close(file)
