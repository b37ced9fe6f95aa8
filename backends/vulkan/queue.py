"""The lazy queue: dispatches are noted when asked for, and run when a value is needed."""

from __future__ import annotations

import struct
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np

from tinyadept.errors import DeviceError

from .arena import Span
from .driver import Driver, Memory
from .hazards import Hazards, Range
from .shaders import Shader, Shaders

FULL = 4096  # dispatches; so many commands fill a command buffer of some megabytes
REMEMBERED = 8  # recordings kept in case the same batch comes again, as it does in a training loop
TICKS, SITE, INDEX, BOUND = range(4)  # the words of the status memory; glsl/status.glsl has the same


class Bound(Protocol):
    """What can be bound to a shader: a `Block`, or a `Span` of one."""

    memory: Memory
    offset: int
    words: int
    first: int
    last: int


class Dispatch(NamedTuple):
    """One noted dispatch; `reads` and `writes` are ranges of addresses (see `Memory.base`)."""

    command: Any
    shader: Shader
    groups: tuple[int, int, int]
    push: bytes
    reads: list[Range]
    writes: list[Range]


# What was submitted at once: dispatches in order, and None where a fence stands.
Entries = list[Dispatch | None]


class Batch:
    """What waits to be submitted: either what was noted, or the last calls of one `Replay`.

    Attributes
    ----------
    entries : list
    hazards : Hazards
    replay : Replay or None
    first : int
        Of the calls of `replay` that wait.
    sealed : int or None
        Once it is being submitted: how often the device had ticked before.
    """

    __slots__ = ("entries", "first", "hazards", "replay", "sealed")

    def __init__(self, replay: Replay | None = None) -> None:
        self.entries: Entries = []
        self.hazards = Hazards()
        self.replay = replay
        self.first = 0 if replay is None else replay.calls
        self.sealed: int | None = None

    @property
    def waiting(self) -> int:
        """How many calls of the replay there are."""
        return 0 if self.replay is None else self.replay.calls - self.first

    def append(self, dispatch: Dispatch) -> None:
        # In this order, so that an interrupt between two steps costs a fence too many and never one too few.
        if self.hazards.conflict(dispatch.reads, dispatch.writes):
            self.entries.append(None)
            self.hazards.clear()
        self.hazards.add(dispatch.reads, dispatch.writes)
        self.entries.append(dispatch)


class Replay:
    """A captured sequence of dispatches, to be run again and again.

    Calls take turns: each turn has memory of its own for what the host writes before a call and reads after
    it, so that as many calls as there are turns can be submitted at once.

    Parameters
    ----------
    turns : list of list
        What is run in each turn; the first is what ran while it was captured.

    Attributes
    ----------
    calls : int
        How many there were, with the one that was captured.
    most : int
        Calls that are submitted at once.
    """

    def __init__(self, turns: list[Entries]):
        self.turns = turns
        self.calls = 1
        self.most = min(len(turns), max(1, FULL // max(1, len(turns[0]))))
        self.recordings: dict[tuple[int, int], Any] = {}
        self.keep: list[Any] = []  # what must live as long as this does
        self.feeds: list[Any] = []  # what the host writes before each call

    @property
    def entries(self) -> Entries:
        return self.turns[0]

    @property
    def turn(self) -> int:
        """Of the next call."""
        return self.calls % len(self.turns)

    def calls_from(self, first: int, count: int) -> Entries:
        """What so many calls run, one after another."""
        entries: Entries = []
        for call in range(first, first + count):
            turn = self.turns[call % len(self.turns)]
            entries += [None, *turn] if entries else turn
        return entries


class Queue:
    """Notes dispatches, places fences between those that depend on each other, and submits them together.

    Parameters
    ----------
    driver : Driver
    shaders : Shaders

    Attributes
    ----------
    observers : list of callable
        Each is called with the entries of every submit: a list of `Dispatch`, and None for a fence.
    submits : int
        How many there were.
    sites : list of (str, exception class or None)
        What may report bad input, by the number that its kernel is given; see `site`.
    """

    def __init__(self, driver: Driver, shaders: Shaders):
        self.driver = driver
        self.batch = Batch()
        self.captured: list[Dispatch] | None = None
        self.turns = 1  # of the capture that is going on
        self.otherwise: dict[int, list[Dispatch]] = {}  # what runs instead of a dispatch in the other turns
        self.observers: list[Callable[[Entries], None]] = []
        self.submits = 0
        self.sites: list[tuple[str, type[Exception] | None]] = [("", None)]
        self.lost: str | None = None
        self.lock = threading.RLock()
        self.pipelines: dict[tuple, Any] = {}
        self.recordings: OrderedDict[tuple, Any] = OrderedDict()
        self.status = driver.allocate(4 * 4, host=True)
        self.words = self.status.words
        self.words[:] = 0
        self.reports = Span(self.status, 0, 0)  # binds the status memory; reports need no fence between them
        tick = driver.pipeline(shaders.get("tick").spirv, [self.status], (1, 1, 1), (), 0)
        self.tick = driver.command(tick, b"")

    def dispatch(
        self,
        shader: Shader,
        groups: tuple[int, int, int],
        push: bytes | Sequence[int] | np.ndarray,
        bindings: Sequence[Bound],
        writes: int = 1,
        also_reads: Sequence[Bound] = (),
        also_writes: Sequence[Bound] = (),
    ) -> None:
        """Note one dispatch.

        Parameters
        ----------
        shader : Shader
            From `Shaders.get`.
        groups : tuple of int
            Workgroups along x, y and z. Each choice is a pipeline of its own, half a millisecond to build:
            take powers of two, see `grid`.
        push : bytes, or words
            Push constants. `pack` makes them; 128 bytes at most.
        bindings : sequence of Block or Span
            For binding 0, 1, …: their memories are bound whole, so the kernel finds its operands by offsets
            among the push constants. Their ranges say what is touched.
        writes : int
            How many of the bindings, from the first, are written (and perhaps read); the rest is only read.
        also_reads, also_writes : sequence of Block or Span
            More ranges, inside the memories that are bound.

        Raises
        ------
        DeviceError
            If the device was lost.
        """
        if not isinstance(push, bytes):
            push = np.asarray(push).astype(np.uint32, copy=False).tobytes()
        with self.lock:
            batch = self.batch
            if batch.sealed is not None or batch.replay is not None or self.lost is not None:
                batch = self.settle()
            key = (shader, groups, *[b.memory for b in bindings])
            pipeline = self.pipelines.get(key) or self.build(key, len(push))
            reads = [(b.first, b.last) for b in bindings[writes:] if b.first < b.last]
            written = [(b.first, b.last) for b in bindings[:writes] if b.first < b.last]
            if also_reads or also_writes:
                reads += [(b.first, b.last) for b in also_reads if b.first < b.last]
                written += [(b.first, b.last) for b in also_writes if b.first < b.last]
            command = pipeline.commands.get(push) or self.driver.command(pipeline, push)
            dispatch = Dispatch(command, shader, groups, push, reads, written)
            batch.append(dispatch)
            if self.captured is not None:
                self.captured.append(dispatch)
            if len(batch.entries) >= FULL:
                self.flush()

    def build(self, key: tuple, push_size: int) -> Any:
        shader, groups, *memories = key
        if len(memories) < shader.bindings:  # Vulkan would crash
            raise ValueError(f"{shader} is bound to {shader.bindings} memories, got {len(memories)}")
        pipeline = self.driver.pipeline(shader.spirv, memories, groups, shader.constants, push_size)
        self.pipelines[key] = pipeline
        return pipeline

    def flush(self) -> None:
        """Submit what was noted and wait for it.

        Raises
        ------
        DeviceError
            If the device was lost.
        IndexError
            If a kernel found an index that is out of range.
        """
        with self.lock:
            self.submit(self.current())

    def submit(self, batch: Batch) -> None:
        if batch.replay is not None and batch.waiting:
            batch.entries = batch.replay.calls_from(batch.first, batch.waiting)
        if not batch.entries:
            return
        recording = self.recording(batch.entries) if batch.replay is None else self.recording_of(batch)
        batch.sealed = int(self.words[TICKS])
        self.driver.replay(recording)
        self.batch = Batch()
        self.check(batch.sealed, batch.entries)

    def settle(self) -> Batch:
        """The batch to add to; replays that wait are submitted first."""
        batch = self.current()
        if batch.replay is not None:
            self.submit(batch)
            batch = self.batch = Batch()
        return batch

    def current(self) -> Batch:
        """The batch that waits.

        An interrupt (Ctrl-C) may come between the submit and the note that it was done; the device's own
        count says whether the work ran.
        """
        if self.lost is not None:
            raise DeviceError(self.lost)
        batch = self.batch
        if batch.sealed is not None:
            if int(self.words[TICKS]) != batch.sealed:
                self.batch = batch = Batch()
            else:
                batch.sealed = None
        return batch

    def recording(self, entries: Entries) -> Any:
        """The recording of a batch: an old one, if the same batch came before."""
        fence = self.driver.fence
        commands = [fence if entry is None else entry.command for entry in entries]
        # The tick comes last: it must not count work that never ran.
        commands += (fence, self.tick)
        key = tuple(commands)
        found = self.recordings.get(key)
        if found is None:
            found = self.driver.record(commands)
            self.recordings[key] = found
            if len(self.recordings) > REMEMBERED:
                self.recordings.popitem(last=False)
        else:
            self.recordings.move_to_end(key)
        return found

    def recording_of(self, batch: Batch) -> Any:
        """The recording of the calls of a replay that wait, made when there first are so many."""
        replay = batch.replay
        assert replay is not None
        key = batch.first % len(replay.turns), batch.waiting
        found = replay.recordings.get(key)
        if found is None:
            fence = self.driver.fence
            commands = [fence if entry is None else entry.command for entry in batch.entries]
            found = replay.recordings[key] = self.driver.record([*commands, fence, self.tick])
        return found

    def check(self, before: int, entries: Entries) -> None:
        """Look at what the device left in the status memory."""
        self.submits += 1
        words = self.words
        if int(words[TICKS]) != (before + 1) % 2**32:
            self.lost = (
                f"the device {self.driver.device.name} was lost: a submit of {len(entries)} commands did not "
                "finish; what it should have computed is gone, start the program again"
            )
            raise DeviceError(self.lost)
        for observer in self.observers:
            observer(entries)
        if words[SITE]:
            site, index, bound = (
                int(words[SITE]),
                int(words[INDEX : INDEX + 1].view(np.int32)[0]),
                words[BOUND],
            )
            words[SITE] = 0
            name, error = self.sites[site]
            if error is not None:
                raise error(name)
            raise IndexError(f"{name}: index {index} is out of range for {bound} entries")

    def site(self, name: str, error: type[Exception] | None = None) -> int:
        """The number under which a kernel reports bad input; see glsl/status.glsl.

        Parameters
        ----------
        name : str
            Of the op, for an IndexError that tells index and bound; or the whole message.
        error : exception class, optional
            Raised with that message.
        """
        entry = (name, error)
        if entry not in self.sites:
            self.sites.append(entry)
        return self.sites.index(entry)

    def start_capture(self, turns: int = 1) -> None:
        """Note what is dispatched from here on, which runs as usual, for a `Replay` of so many turns."""
        if self.captured is not None:
            raise RuntimeError("a capture is going on already: captures cannot be nested")
        self.flush()
        self.captured, self.turns, self.otherwise = [], turns, {}

    def in_turns(self, note: Callable[[int], None]) -> None:
        """Note what ``note(0)`` dispatches, instead of which calls in turn k run what ``note(k)`` does."""
        with self.lock:
            captured = self.captured
            first = 0 if captured is None else len(captured)
            note(0)
            if captured is None:
                return
            batch = self.batch
            try:
                for turn in range(1, self.turns):
                    self.batch, self.captured = Batch(), []
                    note(turn)
                    for usual, other in zip(captured[first:], self.captured, strict=True):
                        self.otherwise.setdefault(id(usual), []).append(other)
            finally:
                self.batch, self.captured = batch, captured

    def end_capture(self) -> Replay:
        """What was dispatched since `start_capture`, fenced anew as one submit."""
        self.flush()
        captured, self.captured = self.captured, None
        if captured is None:
            raise RuntimeError("end_capture() without start_capture()")
        entries, otherwise = levelled(captured), self.otherwise
        others = [
            [otherwise[id(entry)][turn] if id(entry) in otherwise else entry for entry in entries]
            for turn in range(self.turns - 1)
        ]
        return Replay([entries, *others])

    @contextmanager
    def uncaptured(self) -> Iterator[None]:
        """Dispatches inside run as usual, and are left out of the capture that is going on."""
        captured, self.captured = self.captured, None
        try:
            yield
        finally:
            self.captured = captured

    def begin(self, replay: Replay) -> int:
        """In which turn a capture runs next. What the host writes for that turn has been read."""
        with self.lock:
            batch = self.current()
            if batch.replay is not replay or batch.waiting >= replay.most:
                self.submit(batch)
                self.batch = Batch(replay)
            return replay.turn

    def replay(self, replay: Replay) -> None:
        """Note that a capture runs again, after what waits; errors as in `flush`.

        Calls are submitted with those before them, when there are as many as turns or the queue is flushed:
        a submit takes the host half a millisecond on some machines, however little it has to do.
        """
        with self.lock:
            self.begin(replay)
            replay.calls += 1
            if self.batch.waiting >= replay.most:
                self.submit(self.batch)

    def forget(self, memory: Memory) -> None:
        """Drop every pipeline and recording bound to a memory, before it is freed."""
        self.flush()
        self.recordings.clear()
        for key in [key for key in self.pipelines if memory in key]:
            del self.pipelines[key]


def levelled(dispatches: Sequence[Dispatch]) -> Entries:
    """The same dispatches with as few fences as they allow: each right after the last that it waits for.

    Those of a level do not wait for each other. Whatever waited for another is on a later level than that
    one, so that all of them still see what they saw in the order in which they were noted.
    """
    levels: list[tuple[Hazards, Entries]] = []
    for dispatch in dispatches:
        at = len(levels)
        while at and not levels[at - 1][0].conflict(dispatch.reads, dispatch.writes):
            at -= 1
        if at == len(levels):
            levels.append((Hazards(), []))
        levels[at][0].add(dispatch.reads, dispatch.writes)
        levels[at][1].append(dispatch)
    entries: Entries = []
    for _, level in levels:
        entries += [None, *level] if entries else level
    return entries


def pack(*words: int | float) -> bytes:
    """Push constants: each int as a 32-bit word (unsigned ones wrap), each float as a float32."""
    layout = "".join("f" if type(word) is float else "i" for word in words)
    try:
        return struct.pack(layout, *words)
    except struct.error:
        wrapped = (w if type(w) is float else (int(w) + 2**31) % 2**32 - 2**31 for w in words)
        return struct.pack(layout, *wrapped)
