"""Attention, the rotation that tells it positions, and keys and values that are kept.

The templates are attention, attention_join, attention_input, rotary and append.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View, row_major

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from ..walk import walk
from . import loops
from .copying import copy_to, deliver
from .index import start
from .matmul import dense, part
from .sort import rank_of

PUSH = Struct("7i f 24i").pack
LANES, TEAM, TILES = range(3)  # bodies of attention.comp
STATISTICS, OF_QUERIES, OF_KEYS = range(3)  # passes of attention_input.comp
COLUMNS = (1, 2, 4)  # times SIDE: the widths of rows that a tile's lanes hold
SIDE, FEW, LONGEST = 64, 16, 1024  # rows of a tile; queries that are a team's work, and keys of a part of it
CHUNK = 16  # keys that a lane looks at together
STATISTICS_WORDS = 3  # of a query
SHARED = 30 << 10  # bytes that tiles take


class Call(NamedTuple):
    """What is attended to. Neighbours along a row of q, k, v, g and the mask are neighbours in memory.

    Attributes
    ----------
    q, k, v : Tensor
    start, mask : Tensor or None
    g : Tensor or None
        The outer gradient.
    scale : float
    """

    gpu: Any
    q: Tensor
    k: Tensor
    v: Tensor
    start: Tensor | None
    mask: Tensor | None
    g: Tensor | None
    scale: float

    @property
    def queries(self) -> int:
        """Rows of all heads."""
        return prod(self.q.shape[:3])

    @property
    def width(self) -> int:
        """The longer row."""
        return max(self.q.shape[3], self.v.shape[3])

    @property
    def tiled(self) -> bool:
        """Whether the bodies for GPUs can do it."""
        limits = self.gpu.device.limits
        return self.gpu.tiled and self.width <= COLUMNS[-1] * SIDE and limits.shared_memory >= SHARED

    @property
    def columns(self) -> int:
        return next(n for n in COLUMNS if n * SIDE >= self.width)

    @property
    def fours(self) -> bool:
        """Whether all rows begin and end on 16 bytes."""
        rows = [x for x in (self.q, self.k, self.v, self.g) if x is not None]
        return not any(n % 4 for x in rows for n in (start(x), x.shape[3], *x.layout.strides[:3]))

    def push(self, to: int, more: int = 0, first: int = 0) -> bytes:
        q, k, v = self.q, self.k, self.v
        g, mask = q if self.g is None else self.g, self.mask
        (b, h, t, d), heads = q.shape, k.shape[1]
        sizes = (b, h, t, k.shape[2], h // heads, d, v.shape[3])
        known = (
            -1 if self.start is None else start(self.start),
            *((-1, 0, 0, 0) if mask is None else (start(mask), *mask.layout.strides[:3])),
        )
        rows = [word for x in (q, k, v, g) for word in (start(x), *x.layout.strides[:3])]
        return PUSH(*sizes, self.scale, *known, to, more, first, *rows)

    def bindings(self) -> list[Any]:
        some = part(self.q)
        others = (some if x is None else part(x) for x in (self.start, self.mask))
        return [some, part(self.k), part(self.v), *others]


def made(gpu: Any, inputs: tuple, outer: bool, scale: float) -> Call:
    """The call, with copies of what does not lie in rows."""
    g = in_rows(gpu, inputs[0]) if outer else None
    q, k, v, *rest = (in_rows(gpu, x) for x in inputs[outer:])
    start, mask = (*rest, None, None)[:2]
    return Call(gpu, q, k, v, start, mask, g, scale)


def in_rows(gpu: Any, x: Tensor) -> Tensor:
    return x if x.shape[-1] < 2 or x.layout.strides[-1] == 1 else dense(gpu, x)


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `attention`."""
    out, outer = gpu.allocator.allocate(prod(shape)), op.name == "attention_input"
    if out.words:
        call = made(gpu, inputs, outer, params["scale"])
        if not call.k.shape[2] or not call.queries:
            gpu.transfer.fill(out, 0)
        elif outer:
            differentiate(call, out)
        else:
            attend(call, out)
    return deliver(gpu, out, shape, dtype, into)


def attend(call: Call, out: Block) -> None:
    gpu, keys, values = call.gpu, call.k.shape[2], call.v.shape[3]
    body = LANES if not call.tiled else TEAM if call.q.shape[2] <= FEW else TILES
    size = {LANES: lane_part(gpu, keys, call.q.shape[3] + values), TEAM: LONGEST, TILES: loops.ENDLESS}[body]
    parts = -(-keys // size)
    target = out if parts == 1 else gpu.allocator.allocate(call.queries * parts * (values + 2))
    macros = forward_macros(body, call.columns if body == TILES else 0)
    shader = gpu.shaders.get("attention", macros, (gpu.local if body == LANES else 0, size, int(call.fours)))
    rounds = -(-min(keys, size) // CHUNK) * (call.q.shape[3] + values + 2) + 2 * values + 8
    groups = workgroups(call, call.queries * parts, rounds, body, call.q.shape[2])
    gpu.queue.dispatch(shader, groups, call.push(target.offset), [target, *call.bindings()])
    if parts > 1:
        join = gpu.shaders.get("attention_join", None, (gpu.local,))
        push = pack(out.words, out.offset, target.offset, parts, values)
        gpu.queue.dispatch(join, loops.grid(gpu, out.words, 2 * parts), push, (out, target))


def differentiate(call: Call, out: Block) -> None:
    """All gradients: statistics first."""
    gpu = call.gpu
    known = gpu.allocator.allocate(call.queries * STATISTICS_WORDS)
    share = call.q.shape[1] // call.k.shape[1]
    for which in (STATISTICS, OF_QUERIES, OF_KEYS):
        count, rows = call.queries, call.k.shape[2]
        if which == OF_KEYS:
            count, rows = prod(call.k.shape[:3]), share * call.q.shape[2]
        width = 2 * (call.q.shape[3] + call.v.shape[3])
        size = loops.ENDLESS if call.tiled else lane_part(gpu, rows, width)
        macros = backward_macros(which, call.columns if call.tiled else 0)
        shader = gpu.shaders.get(
            "attention_input", macros, (0 if call.tiled else gpu.local, size, int(call.fours))
        )
        length = call.k.shape[2] if which == OF_KEYS else call.q.shape[2]
        rounds = -(-min(rows, size) // CHUNK) * (width + 2) + width + 8
        groups = workgroups(call, count, rounds, TILES if call.tiled else LANES, length)
        g = part(call.g) if call.g is not None else part(call.q)
        bindings = [known, *call.bindings(), g] if which == STATISTICS else [out, *call.bindings(), g, known]
        for first in range(0, rows, size):
            gpu.queue.dispatch(shader, groups, call.push(out.offset, known.offset, first), bindings)


def lane_part(gpu: Any, rows: int, width: int) -> int:
    """How many keys or queries a lane may go through, a power of two; all of them on a GPU."""
    if not gpu.device.is_cpu:
        return loops.ENDLESS
    most = CHUNK * max(1, loops.TURNS // (2 * (width + 4)))
    return 1 << (most.bit_length() - 1)


def workgroups(call: Call, count: int, rounds: int, body: int, length: int) -> tuple[int, int, int]:
    """For `count` rows of results, `length` a head; on a CPU a lane takes `rounds` turns for each."""
    gpu = call.gpu
    if body == TILES:
        return loops.power_of_two(count // length * -(-length // SIDE), loops.MOST_GROUPS), 1, 1
    if body == TEAM:
        return loops.power_of_two(count, loops.MOST_GROUPS), 1, 1
    groups = loops.power_of_two(-(-count // gpu.local), loops.at_once(gpu))
    if gpu.device.is_cpu:
        while groups < loops.MOST_GROUPS and loops.turns(count, groups * gpu.local, rounds) > loops.TURNS:
            groups *= 2
    return groups, 1, 1


def forward_macros(body: int, columns: int) -> Macros:
    return {"BODY": body, **({"COLUMNS": columns} if columns else {})}


def backward_macros(which: int, columns: int) -> Macros:
    return {"PASS": which, "TILES": int(columns > 0), **({"COLUMNS": columns} if columns else {})}


def append(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `append`: over the base itself only the new rows are written."""
    base, new, first = inputs
    gpu.check(dtype, op.name)
    kept = (
        into is not None and into.buffer is base.buffer and (into.layout, into.dtype) == (base.layout, dtype)
    )
    if kept:
        block, offset, steps = base.buffer.data, base.layout.offset, base.layout.strides
        new = dense(gpu, new) if new.buffer is base.buffer and not new.layout.is_contiguous else new
    else:
        block, offset, steps = gpu.allocator.allocate(prod(shape)), 0, row_major(shape)
        copy_to(gpu, base, block, View.dense(shape))
    path = walk(new.shape, steps, new.layout.strides)
    if path.count:
        room = shape[2] - new.shape[2] + 1
        sample = prod(new.shape[1:])
        told = pack(start(first), first.layout.strides[0], sample, steps[2], room, gpu.queue.site(op.name))
        shader = gpu.shaders.get("append", None, (gpu.local, rank_of(path)))
        low, high = View(shape, steps, offset).span
        bindings = (block.part(low, high - low), part(new), first.buffer.data, gpu.queue.reports)
        push = path.push(block.offset + offset, start(new), params=told)
        gpu.queue.dispatch(shader, loops.grid(gpu, path.count), push, bindings)
    return None if kept else deliver(gpu, block, shape, dtype, into)


def rotary(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `rotary`."""
    x, table, positions = inputs
    gpu.check(dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if out.words:
        _, heads, rows, width = shape
        push = pack(
            *(out.words, heads, rows, width, table.shape[1] // 2, table.shape[0]),
            *(out.offset, start(x), *x.layout.strides, start(table), *table.layout.strides),
            *(start(positions), *positions.layout.strides, gpu.queue.site(op.name)),
        )
        how = (gpu.local, int(params["interleaved"]), int(params["inverse"]))
        shader = gpu.shaders.get("rotary", None, how)
        bindings = (out, part(x), part(table), part(positions), gpu.queue.reports)
        gpu.queue.dispatch(shader, loops.grid(gpu, out.words), push, bindings)
    return deliver(gpu, out, shape, dtype, into)


FAMILIES = {"attention": run, "append": append, "rotary": rotary}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield from (("attention", forward_macros(body, 0)) for body in (LANES, TEAM))
    yield from (("attention", forward_macros(TILES, columns)) for columns in COLUMNS)
    for which in (STATISTICS, OF_QUERIES, OF_KEYS):
        yield from (("attention_input", backward_macros(which, columns)) for columns in (0, *COLUMNS))
    yield from ((name, {}) for name in ("attention_join", "append", "rotary"))
