"""Between host and device: small rings that both see, and a copy kernel. Arenas cannot be mapped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinyadept.errors import OutOfMemory
from tinyadept.view import View

from .arena import Block, Span
from .driver import Memory
from .queue import Batch, Bound, Queue, pack
from .shaders import Shaders
from .walk import walk

RING = 4 << 20  # words
ALIGNED = 4  # words that the copy kernel moves at a time

Grid = Callable[[int, int], tuple[int, int, int]]


class Ring:
    """Host-visible words, handed out in turn; reused once the batch that copies them has run."""

    def __init__(self, queue: Queue, words: int):
        self.queue, self.size = queue, words
        self.memory = queue.driver.allocate(words * 4, host=True)
        self.cursor = 0
        self.batch: Batch | None = None

    def take(self, words: int) -> Span:
        """Room for `words` words, `size` at most; submits what waits when the ring is full."""
        if self.cursor + words > self.size and self.queue.settle() is self.batch:
            self.queue.flush()
        if (batch := self.queue.settle()) is not self.batch:
            self.batch, self.cursor = batch, 0
        span = Span(self.memory, self.cursor, words)
        self.cursor += -(-words // ALIGNED) * ALIGNED
        return span

    def view(self, span: Span) -> np.ndarray:
        """The words themselves."""
        return self.memory.words[span.offset : span.offset + span.words]


class Transfer:
    """Copies arrays to blocks and back, and blocks to blocks.

    Parameters
    ----------
    queue : Queue
    shaders : Shaders
    local : int
        Workgroup size.
    grid : callable
        ``grid(lanes, local)``: how many workgroups.
    """

    def __init__(self, queue: Queue, shaders: Shaders, local: int, grid: Grid, ring: int = RING):
        self.queue, self.shaders, self.local, self.grid = queue, shaders, local, grid
        self.up, self.down = Ring(queue, ring), Ring(queue, ring)
        self.wide = shaders.get("copy", {"WIDE": 1}, (local,))

    def write(self, target: Block, values: np.ndarray) -> None:
        """Note a copy of a flat array into the first words of a block; the array may change afterwards."""
        words = values.view(np.uint32) if values.itemsize == 4 else values
        for start in range(0, words.size, self.up.size):
            piece = words[start : start + self.up.size]
            with self.queue.lock:
                span = self.up.take(piece.size)
                self.up.view(span)[:] = piece
                self.copy(target.part(start, piece.size), span)

    def read(self, source: Bound, view: View, dtype: np.dtype) -> np.ndarray:
        """The elements of a view of a block, as a fresh flat array; submits what waits."""
        out = np.empty(view.size, dtype)
        target = out.view(np.uint32) if out.itemsize == 4 else out
        for start in range(0, view.size, self.down.size):
            count = min(self.down.size, view.size - start)
            with self.queue.lock:
                span = self.down.take(count)
                if view.is_contiguous:
                    self.copy(span, Span(source.memory, source.offset + view.offset + start, count))
                else:
                    self.gather(span, source, view)
                self.queue.flush()
                target[start : start + count] = self.down.view(span)
        return out

    def copy(self, target: Bound, source: Bound) -> None:
        """Note a copy of dense words: as many as the target has."""
        count, to, at = target.words, target.offset, source.offset
        if to % ALIGNED or at % ALIGNED:
            path = walk((count,), (1,), (1,))
            self.strided(path.rank, path.push(to, at), target, source, count)
        else:
            grid = self.grid(count // ALIGNED, self.local)
            self.queue.dispatch(self.wide, grid, pack(count, to, at), (target, source))

    def gather(self, target: Bound, source: Bound, view: View) -> None:
        """Note a copy of a view of `source` into dense words."""
        path = walk(view.shape, View.dense(view.shape).strides, view.strides)
        push = path.push(target.offset, source.offset + view.offset)
        self.strided(path.rank, push, target, source, path.count)

    def strided(self, rank: int, push: bytes, target: Bound, source: Bound, count: int) -> None:
        shader = self.shaders.get("copy", {"WIDE": 0}, (self.local, rank))
        self.queue.dispatch(shader, self.grid(count, self.local), push, (target, source))

    def fill(self, target: Bound, word: int) -> None:
        """Note that every word of a block becomes `word`."""
        path = walk((target.words,), (1,))
        shader = self.shaders.get("fill", None, (self.local, path.rank))
        push = path.push(target.offset, params=pack(word))
        self.queue.dispatch(shader, self.grid(target.words, self.local), push, (target,))

    def verify(self, memory: Memory) -> None:
        """Check that fresh memory holds what is written to its ends: nobody reports a failed allocation.

        Raises
        ------
        OutOfMemory
            If it does not.
        """
        ends = [Span(memory, 0, 1), Span(memory, memory.size // 4 - 1, 1)]
        with self.queue.uncaptured():  # a replay must not write there again
            for number, end in enumerate(ends):
                self.fill(end, 0xA110C8ED + number)
            got = [int(self.read(end, View.dense((1,)), np.dtype(np.uint32))[0]) for end in ends]
        if got != [0xA110C8ED, 0xA110C8EE]:
            name = self.queue.driver.device.name
            raise OutOfMemory(f"{name}: the driver did not give {memory.size} bytes, though it said nothing")
