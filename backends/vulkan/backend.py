"""Tensors on a Vulkan device."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, py_object, pythonapi
from functools import cache
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import bool_, float32, int32, uint8
from tinyadept.errors import DeviceError, Unsupported
from tinyadept.ops.move import strided
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from . import probe
from .arena import Allocator, Block
from .debug import SeparateAllocator
from .driver import Driver, KomputeDriver
from .drivers import FAMILIES
from .drivers.matmul import Body
from .hazards import Intervals
from .probe import Device
from .queue import Queue, Replay, pack
from .shaders import Shaders
from .trace import Number, Trace
from .transfer import Transfer

DTYPES = frozenset((float32, int32, uint8, bool_))
CPU_SHARE = 4096  # elements that are worth a workgroup, which costs a CPU half a microsecond
CPU_GROUPS = 1 << 15  # llvmpipe ends an invocation after 65,535 rounds of its loops, and says nothing
GPU_GROUPS = 1 << 14
KP_SIZES = 2**32 - 2**16  # kp counts bytes in 32 bits
HOST_BUDGET = 1 << 30  # bytes of memory that the host sees as well
SEEN = 1 << 16  # elements of a result that are copied to such memory
TURNS = 8  # calls of a capture that may be submitted at once
FEWEST_TURNS = 2  # of a capture with larger arguments: what a call returned outlives the next call
FED = 1 << 20  # elements of all arguments, up to which there are as many turns as that
SHARE = 0.9  # of the memory that is free at the start, unless TINYADEPT_MEMORY says how much

# family → driver(backend, op, inputs, shape, dtype, params, into) → Buffer, or None when it wrote over `into`
Family = Callable[..., Buffer | None]
Source = Callable[[], Any]  # of numbers


class Vulkan:
    """A Vulkan device. A buffer's data is a `Block`: one 32-bit word for each element, whatever the dtype.

    Parameters
    ----------
    name : str
        How tensors call their device.
    device : Device

    Attributes
    ----------
    families : dict of str to callable
        What runs the ops of each family.
    queue : Queue
        Takes dispatches.
    shaders : Shaders
        Compiles them.
    allocator : Allocator
        Gives blocks.
    transfer : Transfer
        Copies, fills, uploads and downloads.
    """

    def __init__(self, name: str, device: Device, driver: Driver | None = None):
        self.name, self.device = name, device
        self.driver = KomputeDriver(device) if driver is None else driver
        self.families: dict[str, Family] = dict(FAMILIES)
        self.tiled = not device.is_cpu  # which of two bodies a kernel takes; tests choose the other
        self.products = Body(self.tiled, device.limits.shared_memory, 2 * cores())
        self.shaders = Shaders()
        self.prepared: dict[tuple, Any] = {}  # what elementwise kernels were chosen, by layouts
        self.queue = Queue(self.driver, self.shaders)
        # A CPU driver finishes one vector of lanes before the next: a workgroup of one vector reads in order.
        self.local = max(4, device.subgroup_size) if device.is_cpu else 256
        self.transfer = Transfer(self.queue, self.shaders, self.local, self.grid)
        separate = os.environ.get("TINYADEPT_DEBUG_ALLOCATOR") == "1"
        self.allocator = (SeparateAllocator if separate else Allocator)(
            self.driver,
            limit=min(device.limits.storage_range, device.limits.allocation, KP_SIZES),
            budget=budget(device),
            available=lambda: probe.available(device.index),
            verify=self.transfer.verify,
            forget=self.queue.forget,
        )
        self.host = Allocator(
            self.driver,
            limit=KP_SIZES,
            budget=HOST_BUDGET,
            available=lambda: HOST_BUDGET,
            verify=self.transfer.verify,
            forget=self.queue.forget,
            host=True,
        )
        self.constants: list[Block] = []  # uploaded during a capture
        self.feeds: list[Feed] = []  # of the capture that is going on
        self.trace: Trace | None = None
        self.forked = False
        self.replays: weakref.WeakSet[Replay] = weakref.WeakSet()
        os.register_at_fork(after_in_child=disown(weakref.ref(self)))
        self.self_test()

    def __repr__(self) -> str:
        return f"<backend {self.name}: {self.device}>"

    @property
    def largest(self) -> int:
        """Bytes of the largest tensor that fits one buffer of the device."""
        return self.allocator.limit

    def upload(self, array: np.ndarray) -> Buffer:
        """Copy an array to the device.

        Raises
        ------
        Unsupported
            If its dtype needs more than 32 bits.
        OutOfMemory
            If there is no room.
        """
        self.check(array.dtype, "upload")
        if self.trace is not None:
            self.trace.upload(array)
        block = self.store(np.ascontiguousarray(array).reshape(-1))
        return Number(block, array.item()) if array.size == 1 else Buffer(block)

    def store(self, values: np.ndarray) -> Block:
        """Flat values in fresh memory; in a capture they are a constant, in memory that no replay writes."""
        if self.queue.captured is None:
            block = self.allocator.allocate(values.size)
            self.transfer.write(block, values)
            return block
        block = self.allocator.allocate(values.size, shared=True)
        self.constants.append(block)
        with self.queue.uncaptured():
            self.transfer.write(block, values)
        return block

    def download(self, x: Tensor) -> np.ndarray:
        """Copy a tensor's elements back, after running all that was noted.

        Raises
        ------
        RuntimeError
            If a capture is going on: a replay could not read anything back.
        """
        self.check(x.dtype, "download")
        if self.queue.captured is not None:
            raise RuntimeError("a value is read back inside a capture: move .numpy() or .item() behind it")
        if self.trace is not None:
            self.trace.reads += 1
        block, view = x.buffer.data, x.layout
        if block.memory.words.size:  # the result of a replay, which the host sees
            self.queue.flush()
            return unpacked(block, view, x.dtype)
        if not view.is_contiguous and view.size > self.transfer.down.size:
            dense = self.allocator.allocate(view.size)
            self.transfer.gather(dense, block, view)
            block, view = dense, View.dense(view.shape)
        return self.transfer.read(block, view, x.dtype).reshape(view.shape)

    def run(
        self, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
    ) -> Any:
        """Run an op; into fresh memory, or over `into`.

        Raises
        ------
        Unsupported
            If no kernel runs this op, or this dtype.
        """
        family = self.families.get(op.family.name)
        if family is None:
            raise Unsupported(f"{op.name} ({dtype.name}) has no kernel on {self.name}; {ELSEWHERE}")
        self.check(dtype, op.name)
        if self.trace is not None:
            self.trace.op(op, inputs, shape, dtype, params, into)
        return family(self, op, inputs, shape, dtype, params, into)

    def check(self, dtype: np.dtype, what: str) -> None:
        """Refuse a dtype of more than 32 bits, and a process that must not touch the device."""
        if self.forked:
            raise DeviceError(self.queue.lost)
        if dtype not in DTYPES:
            raise Unsupported(f"{what}: {dtype.name} is not supported on {self.name}; {ELSEWHERE}")

    def grid(self, lanes: int, local: int | None = None) -> tuple[int, int, int]:
        """How many workgroups of `local` lanes for work of `lanes`, along x.

        Few different answers, because each is a pipeline of its own; too few workgroups are made up for by
        grid-stride loops (``EACH`` in glsl/grid.glsl).
        """
        share = CPU_SHARE if self.device.is_cpu else local or self.local
        return self.groups(-(-lanes // share))

    def groups(self, count: int) -> tuple[int, int, int]:
        """At least `count` workgroups along x, if that is not too many; see `grid`."""
        most = CPU_GROUPS if self.device.is_cpu else GPU_GROUPS
        doublings = (max(1, count) - 1).bit_length()
        if not self.device.is_cpu:
            doublings += doublings % 2
        return (min(1 << doublings, most), 1, 1)

    def feed(self, source: Source, dtype: np.dtype = float32) -> Block:
        """What `source` gives now, and in a capture anew before each call.

        Parameters
        ----------
        source : callable
            Returns as many numbers each time.
        dtype : dtype
        """
        values = np.asarray(source(), dtype).reshape(-1)
        block = self.allocator.allocate(values.size)
        if self.queue.captured is None:
            self.transfer.write(block, values)
            return block
        fed = Feed(source, dtype, [self.host.allocate(values.size) for _ in range(self.queue.turns)])
        fed.write(0, values)
        self.feeds.append(fed)
        self.queue.in_turns(lambda turn: self.transfer.copy(block, fed.blocks[turn]))
        return block

    @contextmanager
    def traced(self) -> Iterator[Trace]:
        """Note what is asked of this backend."""
        self.trace = trace = Trace()
        try:
            yield trace
        finally:
            self.trace = None

    def start_capture(self, fed: int = 0) -> None:
        """Note what is dispatched from here on, for replays. It runs as usual.

        Parameters
        ----------
        fed : int
            Elements of its arguments: if they are many, fewer calls are submitted at once.
        """
        self.queue.start_capture(TURNS if fed <= FED else FEWEST_TURNS)
        self.allocator.start_private()

    def end_capture(self) -> Replay:
        """What was dispatched since `start_capture`; memory that it uses is set aside while the result lives.

        Raises
        ------
        RuntimeError
            If a tensor that was made from host data inside the capture is written: a replay does not make it
            again.
        """
        replay = self.queue.end_capture()
        constants, self.constants = self.constants, []
        replay.feeds, self.feeds = self.feeds, []
        touched, noted = Intervals(), [entry for turn in replay.turns for entry in turn if entry is not None]
        for entry in noted:
            for first, last in entry.writes:
                touched.add(first, last)
        written = [c.words for c in constants if c.words and touched.overlaps(c.first, c.last)]
        for entry in noted:
            for first, last in entry.reads:
                touched.add(first, last)
        replay.keep += [constants, self.allocator.end_private(touched)]
        self.replays.add(replay)
        if written:
            raise RuntimeError(
                f"a tensor of {written[0]} elements was made from host data inside a capture and then "
                "written: make it before the capture"
            )
        return replay

    def abandon_capture(self) -> None:
        """End a capture of which nothing is kept."""
        self.queue.captured = None
        self.constants, self.feeds = [], []
        self.queue.flush()
        self.allocator.end_private(Intervals())

    def replay(self, replay: Replay) -> int:
        """Run a capture again, with fresh numbers from all that feeds it; gives the turn that it takes."""
        turn = self.queue.begin(replay)
        for feed in replay.feeds:
            feed.write(turn, np.asarray(feed.source(), feed.dtype).reshape(-1))
        self.queue.replay(replay)
        return turn

    def argument(self, source: Callable[[], np.ndarray]) -> Tensor:
        """A tensor of a capture that holds what `source` gives, whose shape and dtype must stay."""
        array = source()
        self.check(array.dtype, "an argument of a capture")
        block = self.feed(source, array.dtype) if array.size else self.allocator.allocate(0)
        return wrap(Buffer(block), View.dense(array.shape), array.dtype, self)

    def result(self, x: Tensor) -> Result:
        """Copies of `x`, made by each call; the host sees them without a submit, if they are not large."""
        size = x.layout.size
        allocator = self.host if size <= SEEN else self.allocator  # not from what other turns write
        blocks = [allocator.allocate(size, shared=True) for _ in range(self.queue.turns)]
        if size:
            self.queue.in_turns(lambda turn: self.transfer.gather(blocks[turn], x.buffer.data, x.layout))
        return Result(self, blocks, x.shape, x.dtype)

    def close(self) -> None:
        """Release the device, unless this process is a fork and does not own it."""
        if not self.forked:
            self.driver.close()

    def self_test(self) -> None:
        """Round trip, NaN, and a chain in which every dispatch needs what the last one wrote.

        Raises
        ------
        DeviceError
            If the device computes something else than it should.
        """
        start = np.arange(1000, dtype=np.float32)
        start[[3, 500]] = np.nan, -np.inf
        blocks = [self.allocator.allocate(start.size) for _ in range(2)]
        self.transfer.write(blocks[0], start)
        shader = self.shaders.get("selftest", None, (self.local,))
        expected, status = start, self.queue.reports
        for link in range(5):
            target, source = blocks[(link + 1) % 2], blocks[link % 2]
            push = pack(start.size, target.offset, source.offset, 0, 0)
            self.queue.dispatch(shader, self.grid(start.size), push, (target, source, status))
            expected = expected[::-1] + 1
        view = View.dense(start.shape)
        got = self.transfer.read(blocks[1], view, start.dtype)
        if not np.array_equal(got, expected, equal_nan=True):
            wrong = int(np.argwhere(~((got == expected) | np.isnan(got) & np.isnan(expected)))[0, 0])
            raise DeviceError(
                f"{self.device} fails its self-test: five dependent dispatches left {got[wrong]} at {wrong}, "
                f"expected {expected[wrong]}"
            )


class Feed(NamedTuple):
    """Words that the host writes before each call of a capture; each turn has a block of its own."""

    source: Source
    dtype: np.dtype
    blocks: list[Block]

    def write(self, turn: int, values: np.ndarray) -> None:
        block = self.blocks[turn]
        if values.size != block.words:
            raise ValueError(f"a capture was given {block.words} numbers, and now {values.size}")
        words = values.view(np.uint32) if values.itemsize == 4 else values
        block.memory.words[block.offset : block.offset + values.size] = words


class Result:
    """Where the calls of a capture leave one of its results: each turn has a block of its own."""

    def __init__(self, backend: Vulkan, blocks: list[Block], shape: Shape, dtype: np.dtype):
        self.backend, self.blocks, self.shape, self.dtype = backend, blocks, shape, dtype
        self.given: list[Buffer | None] = [None] * len(blocks)

    def take(self, turn: int) -> Tensor:
        """The tensor of the call whose turn it is. The one of the same turn before can be read no more."""
        before = self.given[turn]
        if before is not None:
            before.data = Overwritten(len(self.blocks))
        buffer = self.given[turn] = Buffer(self.blocks[turn])
        return wrap(buffer, View.dense(self.shape), self.dtype, self.backend)


class Overwritten:
    """Stands where the memory of a result was, and refuses all that is asked of it."""

    def __init__(self, turns: int):
        self.turns = turns

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f"what a captured function returned is overwritten {self.turns} calls later: read it, or "
            ".clone() it, before"
        )


def unpacked(block: Block, view: View, dtype: np.dtype) -> np.ndarray:
    """The elements of a view of memory that the host sees, as a fresh array."""
    words = strided(block.memory.words[block.offset : block.offset + block.words], view)
    return np.array(words).view(dtype) if dtype.itemsize == 4 else words.astype(dtype)


ELSEWHERE = "the reference has it: .to('numpy')"


def cores() -> int:
    return len(os.sched_getaffinity(0))


def budget(device: Device) -> int:
    """The most bytes of tensors: what TINYADEPT_MEMORY says, else a share of what is free."""
    asked = os.environ.get("TINYADEPT_MEMORY")
    if not asked:
        return int(SHARE * probe.available(device.index))
    if not asked.isdigit() or not int(asked):
        raise DeviceError(f"TINYADEPT_MEMORY is {asked!r}: expected a number of bytes, such as 8000000000")
    return int(asked)


def disown(backend: weakref.ref) -> Callable[[], None]:
    """What a forked child does: its copy of the device is never used, nor destroyed, which could hang."""

    def after_fork() -> None:
        alive = backend()
        if alive is not None:
            alive.forked = True
            alive.queue.lock = RLock()  # another thread may have held the old one
            alive.queue.lost = (
                f"{alive.name} was started before this process was forked, and a Vulkan device does not "
                "survive a fork: start it in the child only, or use the start method 'spawn'"
            )
            for kept in (alive, *alive.replays):
                pythonapi.Py_IncRef(py_object(kept))
            skip_destructors()

    return after_fork


@cache
def skip_destructors() -> None:
    """Make this process end, with the status that it would have, before libraries' destructors run.

    A driver's may wait for a thread that a fork did not copy: NVIDIA's does. What is registered last with the
    C library runs first, and by then Python has ended: its exit functions have run, its files are written.
    """
    libc = CDLL(None)
    if hasattr(libc, "on_exit"):  # glibc, which hands over the status; `_exit` ignores the other argument
        libc.on_exit(libc._exit, None)
        libc.__cxa_atexit(libc.fflush, None, None)  # runs before that: what C code has printed
