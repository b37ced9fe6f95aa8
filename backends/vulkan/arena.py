"""Memory for tensors: blocks cut from a few large arenas.

A block is free again as soon as the tensor's buffer dies, even when work that reads it is noted and not yet
submitted. That is safe: everything runs in the order in which it was noted, on one queue, and whoever writes
into the reused bytes is fenced off from whoever read them before, because hazards are ranges of bytes.
"""

from __future__ import annotations

import gc
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock

from tinyadept.errors import OutOfMemory

from .driver import Driver, Memory
from .hazards import Intervals, Range

ALIGNMENT = 256  # bytes: kernels read four words at once, and no two tensors share a cache line
FIRST_ARENA = 16 << 20
IDLE = 256 << 20  # bytes that lie idle in a capture before any are used again


class Span:
    """Some words of a memory: a range to read or write, which keeps nothing alive."""

    __slots__ = ("first", "last", "memory", "offset", "words")

    def __init__(self, memory: Memory, offset: int, words: int):
        self.memory = memory
        self.offset = offset
        self.words = words
        self.first = memory.base + offset * 4
        self.last = self.first + words * 4


class Block:
    """The memory of one buffer, which returns to its allocator when this object dies.

    Attributes
    ----------
    memory : Memory
    offset : int
        First word, from the start of the memory; kernels are given it among their push constants.
    words : int
        How many there are, one for each element.
    first, last : int
        The range of addresses.
    """

    __slots__ = ("first", "last", "memory", "offset", "region", "returned", "words")

    def __init__(self, memory: Memory, offset: int, words: int, region: Range, returned: deque):
        self.memory = memory
        self.offset = offset
        self.words = words
        self.first = memory.base + offset * 4
        self.last = self.first + words * 4
        self.region = region
        self.returned = returned

    def __del__(self) -> None:
        # A finaliser may run in the middle of anything, the allocator included: it only leaves a note.
        self.returned.append(self.region)

    def part(self, start: int, words: int) -> Span:
        """The words [start, start + words) of the block."""
        return Span(self.memory, self.offset + start, words)

    def __repr__(self) -> str:
        return f"<block of {self.words} words at {self.offset} of {self.memory}>"


class FreeRanges:
    """Free ranges of addresses: best fit, the lowest address among equals, neighbours joined."""

    def __init__(self) -> None:
        self.by_size: list[tuple[int, int]] = []  # (size, start), sorted
        self.sizes: dict[int, int] = {}  # start → size
        self.starts: dict[int, int] = {}  # end → start

    def take(self, size: int) -> int | None:
        """Address of `size` free bytes, now taken; None when no range is large enough."""
        at = bisect_left(self.by_size, (size, 0))
        if at == len(self.by_size):
            return None
        found, start = self.by_size.pop(at)
        del self.sizes[start], self.starts[start + found]
        if found > size:
            self.insert(start + size, found - size)
        return start

    def give(self, start: int, size: int) -> None:
        """Add a range, joined with its neighbours."""
        if (after := self.sizes.get(start + size)) is not None:
            self.remove(start + size, after)
            size += after
        if (before := self.starts.get(start)) is not None:
            size += start - before
            self.remove(before, start - before)
            start = before
        self.insert(start, size)

    def insert(self, start: int, size: int) -> None:
        insort(self.by_size, (size, start))
        self.sizes[start] = size
        self.starts[start + size] = start

    def remove(self, start: int, size: int) -> None:
        del self.by_size[bisect_left(self.by_size, (size, start))]
        del self.sizes[start], self.starts[start + size]

    @property
    def largest(self) -> int:
        return self.by_size[-1][0] if self.by_size else 0

    @property
    def total(self) -> int:
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Statistics:
    """What an allocator holds; bytes.

    Attributes
    ----------
    requested : int
        Sum of the live blocks as they were asked for.
    in_use : int
        The same with rounding.
    reserved : int
        Sum of the arenas.
    largest_free : int
    peak : int
        The most that `in_use` ever was.
    budget : int
    arenas, allocations, live : int
        Arenas now, blocks ever handed out, blocks now.
    """

    requested: int
    in_use: int
    reserved: int
    largest_free: int
    peak: int
    budget: int
    arenas: int
    allocations: int
    live: int


class Reservation:
    """Memory that a captured sequence writes whenever it is replayed; free again when this object dies."""

    __slots__ = ("finished", "pins", "ranges")

    def __init__(self, ranges: list[Range], pins: list[int], finished: deque):
        self.ranges = ranges
        self.pins = pins
        self.finished = finished

    def __del__(self) -> None:
        self.finished.append((self.ranges, self.pins))


class Allocator:
    """Hands out blocks, and keeps what was returned for the next one.

    Parameters
    ----------
    driver : Driver
    limit : int
        The most bytes that one arena may have, and so one tensor.
    budget : int
        The most bytes of all arenas together.
    available : callable
        Bytes that the device can still give now.
    verify : callable
        ``verify(memory)`` raises if fresh memory does not hold what is written to it: kp reports no failure.
    forget : callable
        ``forget(memory)`` finishes all work on a memory that is about to be freed.
    host : bool
        Whether the arenas are memory that the host sees as well.
    """

    def __init__(
        self,
        driver: Driver,
        limit: int,
        budget: int,
        available: Callable[[], int],
        verify: Callable[[Memory], None],
        forget: Callable[[Memory], None],
        host: bool = False,
    ):
        self.driver, self.limit, self.budget = driver, limit // ALIGNMENT * ALIGNMENT, budget
        self.available, self.verify, self.forget, self.host = available, verify, forget, host
        self.arenas: list[Memory] = []  # in the order of their addresses
        self.bases: list[int] = []
        self.free = FreeRanges()
        self.private: FreeRanges | None = None  # during a capture: what it may reuse, and nobody else
        self.live: dict[int, tuple[int, int]] = {}  # start → (size, words)
        self.pinned: dict[int, int] = {}  # start → how many reservations hold it
        self.held: dict[int, int] = {}  # pinned and returned: start → size
        self.returned: deque[Range] = deque()
        self.finished: deque[tuple[list[Range], list[int]]] = deque()
        self.requested = self.in_use = self.peak = self.allocations = 0
        self.margin = 0
        self.lock = RLock()
        self.on_allocate: Callable[[Block], None] | None = None  # tests poison memory here

    def allocate(self, words: int, shared: bool = False) -> Block:
        """A block of `words` words, whose contents are whatever was there.

        Parameters
        ----------
        words : int
        shared : bool
            Do not take memory that a capture in progress has used before.

        Raises
        ------
        OutOfMemory
            If there is no room. Everything allocated before stays usable.
        """
        size = self.size_class(words * 4 + 2 * self.margin)
        with self.lock:
            if self.returned or self.finished:
                self.drain()
            start = self.place(size, shared)
            self.live[start] = (size, words)
            self.allocations += 1
            self.requested += words * 4
            self.in_use += size
            if self.in_use > self.peak:
                self.peak = self.in_use
            memory = self.memory_at(start)
        offset = (start - memory.base + self.margin) // 4
        block = Block(memory, offset, words, (start, size), self.returned)
        if self.on_allocate is not None:
            self.on_allocate(block)
        return block

    def size_class(self, size: int) -> int:
        if size > self.limit:
            raise OutOfMemory(
                f"{self.driver.device.name}: a tensor of {size} bytes does not fit one storage buffer, which "
                f"has at most {self.limit} bytes here (maxStorageBufferRange, or 4 GiB)"
            )
        return min(rounded(size), self.limit)

    def place(self, size: int, shared: bool) -> int:
        start = None
        if self.private is not None and not shared and self.must_reuse(size):
            start = self.private.take(size)
        if start is None:
            start = self.free.take(size)
        if start is None:
            self.grow(size)
            start = self.free.take(size)
            assert start is not None
        return start

    def must_reuse(self, size: int) -> bool:
        """Whether a capture has enough idle memory, or there is no other.

        What uses memory again must wait for whoever used it before, and a replay could run both side by side.
        """
        assert self.private is not None
        return self.private.total > IDLE or (self.free.largest < size and self.room() < size)

    def grow(self, size: int) -> None:
        """Add an arena for `size` bytes, or make room otherwise."""
        for make_room in (None, self.collect, self.release):
            if make_room is not None:
                make_room()
            if self.free.largest >= size:
                return
            if (room := self.room()) >= size:
                # As much again as there is, so that there are few arenas: pipelines are built for each.
                self.add(min(max(size, FIRST_ARENA, self.reserved), room, self.limit))
                return
        raise OutOfMemory(
            f"{self.driver.device.name}: no room for {size} bytes: {self.in_use} in use, {self.reserved} "
            f"reserved of {self.budget} (TINYADEPT_MEMORY), largest free block {self.free.largest}; "
            "delete tensors, use a smaller batch, or raise TINYADEPT_MEMORY"
        )

    def room(self) -> int:
        """Bytes by which the arenas may still grow."""
        room = min(self.budget - self.reserved, self.available())
        return max(0, room) // ALIGNMENT * ALIGNMENT

    def add(self, size: int) -> None:
        memory = self.driver.allocate(size, self.host)
        try:
            self.verify(memory)
        except BaseException:
            self.forget(memory)
            self.driver.free(memory)
            raise
        self.arenas.append(memory)  # addresses only grow, so both lists stay sorted
        self.bases.append(memory.base)
        self.free.give(memory.base, memory.size)

    def collect(self) -> None:
        """Free tensors that only a cycle of references keeps."""
        gc.collect()
        self.drain()

    def release(self) -> None:
        """Give arenas without a live block back to the device."""
        self.drain()
        for memory in list(self.arenas):
            if self.free.sizes.get(memory.base) == memory.size:
                self.forget(memory)
                self.free.remove(memory.base, memory.size)
                self.arenas.remove(memory)
                self.bases.remove(memory.base)
                self.driver.free(memory)

    def drain(self) -> None:
        """Take back what finalisers returned."""
        while self.returned:
            start, size = self.returned.popleft()
            self.requested -= self.live.pop(start)[1] * 4
            self.in_use -= size
            if start in self.pinned:
                self.held[start] = size
            else:
                (self.free if self.private is None else self.private).give(start, size)
        while self.finished:
            ranges, pins = self.finished.popleft()
            for start in pins:
                self.pinned[start] -= 1
                if not self.pinned[start]:
                    del self.pinned[start]
                    if start in self.held:
                        self.free.give(start, self.held.pop(start))
            for start, size in ranges:
                self.free.give(start, size)

    def start_private(self) -> None:
        """From here on returned blocks are kept for the capture that begins."""
        self.drain()
        self.private = FreeRanges()

    def end_private(self, touched: Intervals) -> Reservation:
        """Set aside all that a capture which reads and writes `touched` relies on."""
        self.drain()
        private, self.private = self.private, None
        ranges = [] if private is None else [(start, size) for size, start in private.by_size]
        taken = [(start, size) for start, (size, _) in self.live.items()] + list(self.held.items())
        pins = [start for start, size in taken if touched.overlaps(start, start + size)]
        for start in pins:
            self.pinned[start] = self.pinned.get(start, 0) + 1
        return Reservation(ranges, pins, self.finished)

    def memory_at(self, start: int) -> Memory:
        return self.arenas[bisect_right(self.bases, start) - 1]

    @property
    def reserved(self) -> int:
        return sum(memory.size for memory in self.arenas)

    def statistics(self) -> Statistics:
        """What is held now."""
        self.drain()
        return Statistics(
            requested=self.requested,
            in_use=self.in_use,
            reserved=self.reserved,
            largest_free=self.free.largest,
            peak=self.peak,
            budget=self.budget,
            arenas=len(self.arenas),
            allocations=self.allocations,
            live=len(self.live),
        )


def rounded(size: int) -> int:
    """The size class: multiples of 256 bytes, and above 2 KiB eight classes to each doubling."""
    step = max(ALIGNMENT, 1 << max(0, (size - 1).bit_length() - 4))
    return max(ALIGNMENT, -(-size // step) * step)
