"""For tests: a buffer for every tensor, poisoned memory, sentinels around blocks, kernels' other bodies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from tinyadept.view import View

from .arena import Allocator, Block, Span
from .transfer import Transfer

if TYPE_CHECKING:
    from .backend import Vulkan

POISON = 0x7FC0DEAD  # a quiet NaN as float32, and an unlikely integer
SENTINEL = 0x5E117137
MARGIN = 256  # bytes


class SeparateAllocator(Allocator):
    """Gives every block a memory of its own, so that a validation layer sees every access out of bounds."""

    def size_class(self, size: int) -> int:
        super().size_class(size)
        return max(4, size)

    def place(self, size: int, shared: bool) -> int:
        if self.room() < size:
            self.collect()
        if self.reserved + size > self.budget:
            self.grow(size)  # raises
        memory = self.driver.allocate(size)
        self.arenas.append(memory)
        self.bases.append(memory.base)
        return memory.base

    def drain(self) -> None:
        super().drain()
        for memory in [m for m in self.arenas if m.base in self.free.sizes]:
            self.forget(memory)
            self.free.remove(memory.base, memory.size)
            self.arenas.remove(memory)
            self.bases.remove(memory.base)
            self.driver.free(memory)


class Poison:
    """While in use, every fresh block of an allocator is full of NaN and has sentinels before and behind.

    Parameters
    ----------
    allocator : Allocator
    transfer : Transfer

    Examples
    --------
    >>> with Poison(backend.allocator, backend.transfer) as poison:
    ...     y = x + 1
    ...     poison.check()
    """

    def __init__(self, allocator: Allocator, transfer: Transfer):
        self.allocator, self.transfer = allocator, transfer
        self.guarded: dict[int, list[Span]] = {}

    def __enter__(self) -> Poison:
        self.allocator.margin = MARGIN
        self.allocator.on_allocate = self.prepare
        return self

    def __exit__(self, *error: object) -> None:
        self.allocator.margin = 0
        self.allocator.on_allocate = None

    def prepare(self, block: Block) -> None:
        start, size = block.region
        inside = (block.offset + block.words) * 4
        end = start - block.memory.base + size
        before = Span(block.memory, block.offset - MARGIN // 4, MARGIN // 4)
        behind = Span(block.memory, inside // 4, (end - inside) // 4)
        for margin in (before, behind):
            self.transfer.fill(margin, SENTINEL)
        if block.words:
            self.transfer.fill(block, POISON)
        self.guarded[start] = [before, behind]

    def check(self) -> None:
        """Look at the sentinels of every live block.

        Raises
        ------
        AssertionError
            If a kernel wrote beside a block.
        """
        self.allocator.drain()
        self.guarded = {start: spans for start, spans in self.guarded.items() if start in self.allocator.live}
        for start, spans in self.guarded.items():
            for side, span in zip(("before", "behind"), spans, strict=True):
                got = self.transfer.read(span, View.dense((span.words,)), np.dtype(np.uint32))
                if (wrong := np.flatnonzero(got != SENTINEL)).size:
                    raise AssertionError(
                        f"a kernel wrote {got[wrong[0]]:#010x} to word {int(wrong[0])} {side} the block of "
                        f"{self.allocator.live[start][1]} words at {start:#x}"
                    )


@contextmanager
def body(gpu: Vulkan, tiled: bool, local: int | None = None) -> Iterator[None]:
    """Inside, kernels that have two bodies take the one for GPUs (`tiled`) or the one for CPU drivers.

    Parameters
    ----------
    gpu : Vulkan
    tiled : bool
    local : int, optional
        Workgroup size of the kernels that leave it open; small ones give nearly all work a ragged end.
    """
    before = gpu.tiled, gpu.products, gpu.local
    gpu.tiled, gpu.products, gpu.local = tiled, gpu.products._replace(tiled=tiled), local or gpu.local
    try:
        yield
    finally:
        gpu.tiled, gpu.products, gpu.local = before
