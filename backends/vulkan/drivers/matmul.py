"""Matrix products: glsl/matmul.comp, with the tile and the cut of the inner axis that suit the shape."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import float32, int32, uint8
from tinyadept.ops.activation import ACTIVATIONS
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..shaders import Macros
from ..walk import walk
from . import matvec
from .joining import PLAIN, Finish, both, finish_of, join, types

BATCH_RANK = 3
CPU_LOCAL, CPU_COLUMNS = 8, 16
CPU_ROWS = 4, 16  # of a lane: for matrices of few rows, and of many
CPU_DEEPEST = 1 << 14  # of the inner axis in one lane's sum
CPU_ROUNDS = 1 << 15  # of a lane: llvmpipe ends an invocation after 65,535 of its loops, and says nothing
DEPTH = 8  # of a tile along the inner axis
AT_ONCE = 132  # multiprocessors of the GPU whose rates stand below; of a smaller one it decides less
JOINING = 16.0, 2.5e-6  # microseconds: of a second dispatch that adds parts, and for each word of a part
MOST_GROUPS = 1 << 14
SPLITS = (1, 2, 4, 8, 16)
DEEP, ALONG, ONE_BY_ONE = range(3)  # how a side is loaded; glsl/matmul.comp has the same
PUSH = Struct("3i 3i 3i i 3i 9i 2i 3i").pack


class Tile(NamedTuple):
    """What one workgroup multiplies at a time; see glsl/matmul.comp, and docs/matmul.md for the measurements.

    Attributes
    ----------
    quads, warps : (int, int)
        Along rows and columns: fours of results of a lane, and groups of 32 lanes.
    alone, rate : float
        Operations a microsecond, in millions, of a multiprocessor that has one workgroup, and of one that has
        enough of them.
    teams : int
        Of lanes, which share the depth of a tile among them; see glsl/conv_tiles.comp.
    """

    quads: tuple[int, int]
    warps: tuple[int, int]
    alone: float
    rate: float
    teams: int = 1

    @property
    def rows(self) -> int:
        return 16 * self.quads[0] * self.warps[0]

    @property
    def columns(self) -> int:
        return 32 * self.quads[1] * self.warps[1]

    @property
    def shared_memory(self) -> int:
        """Bytes: two stages of both sides, each row with four words more."""
        return 2 * DEPTH * (self.rows + self.columns + 8) * 4 * self.teams


TILES = (
    Tile((4, 2), (2, 2), 0.306, 0.358),
    Tile((2, 2), (2, 2), 0.257, 0.304),
    Tile((2, 2), (2, 1), 0.12, 0.293),
    Tile((2, 1), (1, 1), 0.046, 0.233),
)


class Body(NamedTuple):
    """How a backend runs products; what differs between devices, and what tests choose.

    Attributes
    ----------
    tiled : bool
        The body for GPUs, or the one for CPU drivers.
    shared_memory : int
        Bytes that a tile may take.
    most : int
        Workgroups of the CPU body.
    forced : (Tile, int), optional
        The tile and the number of parts of the inner axis, for measurements.
    """

    tiled: bool
    shared_memory: int
    most: int
    forced: tuple[Tile, int] | None = None


class Plan(NamedTuple):
    """One way to multiply, for all operands of these shapes and strides."""

    macros: dict[str, Any]
    local: int  # lanes of a workgroup of the CPU body
    groups: tuple[int, int, int]
    sizes: tuple[int, int, int]  # n, k, m
    batches: int
    splits: int
    pitch: int  # words between parts
    tail: tuple[int, ...]  # shape of the batch, and both sides' strides


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run a product; see `tinyadept.backends.vulkan.drivers`."""
    a, b, rows = *inputs[:2], shape
    gpu.check(a.dtype, op.name)
    out, finish = gpu.allocator.allocate(prod(shape)), finish_of(inputs, params)
    if op.name == "linear":
        a, b, rows = flat(gpu, a), wrap(b.buffer, b.layout.permute((1, 0)), b.dtype, gpu), flattened(shape)
        if finish.residual is not None:
            finish = finish._replace(residual=flat(gpu, finish.residual))
    buffer = Buffer(out)
    if a.shape[-1] and out.words:
        multiply(gpu, a, b, out, rows, dtype, finish)
    elif out.words:
        gpu.transfer.fill(out, 0)
        finish_zeros(gpu, wrap(buffer, View.dense(rows), dtype, gpu), finish)
    if into is None:
        return buffer
    copied = (wrap(buffer, View.dense(shape), dtype, gpu),)
    return gpu.families["elementwise"](gpu, registry["copy"], copied, shape, dtype, {}, into)


def flattened(shape: Shape) -> Shape:
    return prod(shape[:-1]), shape[-1]


def flat(gpu: Any, x: Tensor) -> Tensor:
    """All rows below each other; a copy where they have no common step."""
    view = x.layout.reshape(flattened(x.shape))
    if view is None:
        x = dense(gpu, x)
        view = View.dense(flattened(x.shape))
    return wrap(x.buffer, view, x.dtype, gpu)


def finish_zeros(gpu: Any, whole: Tensor, finish: Finish) -> None:
    """What is added, and the activation, where there are no terms."""
    run_elementwise, shape, dtype = gpu.families["elementwise"], whole.shape, whole.dtype
    for more in (finish.bias, finish.residual):
        if more is not None:
            run_elementwise(gpu, registry["add"], (whole, more), shape, dtype, {}, whole)
    if finish.activation:
        run_elementwise(gpu, registry[ACTIVATIONS[finish.activation]], (whole,), shape, dtype, {}, whole)


def multiply(
    gpu: Any, a: Tensor, b: Tensor, out: Any, shape: Shape, dtype: np.dtype, finish: Finish = PLAIN
) -> None:
    """Note what multiplies, and finishes the results, to dense words."""
    if matvec.suits(gpu, a, b):
        matvec.multiply(gpu, a, b, out, finish)
        return
    starts = [x.buffer.data.offset + x.layout.offset for x in (a, b)]
    whole = starts[0] % 4 == 0, starts[1] % 4 == 0
    strides, act = (a.layout.strides, b.layout.strides), finish.activation
    plan = planned(shape, *strides, a.shape, b.shape, whole, dtype, gpu.products, int(act > 0))
    if plan is None:
        multiply(gpu, dense(gpu, a), dense(gpu, b), out, shape, dtype, finish)
        return
    target = gpu.allocator.allocate(plan.splits * plan.pitch) if plan.splits > 1 else out
    rows = *a.layout.strides[-2:], *b.layout.strides[-2:]
    sides = (starts[0], rows[0], rows[1], starts[1], rows[2], rows[3])
    cut = (target.offset, plan.batches, plan.splits, plan.pitch)
    push = PUSH(*plan.sizes, *sides, *cut, *plan.tail, *finish.words, *finish.residual_words)
    shader = gpu.shaders.get("matmul", plan.macros, (plan.local, act if plan.splits == 1 else 0))
    left = part(a)
    added = finish.bound(left), finish.residual_bound(left)
    gpu.queue.dispatch(shader, plan.groups, push, (target, left, part(b), *added))
    if plan.splits > 1:
        join(gpu, target, plan.pitch, out, plan.splits, dtype, act)


def dense(gpu: Any, x: Tensor) -> Tensor:
    """The tensor, or a copy of it, laid out row by row."""
    if x.layout.is_contiguous:
        return x
    block = gpu.allocator.allocate(x.layout.size)
    gpu.transfer.gather(block, x.buffer.data, x.layout)
    return wrap(Buffer(block), View.dense(x.shape), x.dtype, gpu)


def part(x: Tensor) -> Any:
    """The words of a block that a tensor reads."""
    low, high = x.layout.span
    return x.buffer.data.part(low, high - low)


@lru_cache(maxsize=4096)
def planned(
    shape: Shape,
    a_strides: Shape,
    b_strides: Shape,
    a_shape: Shape,
    b_shape: Shape,
    whole: tuple[bool, bool],
    dtype: np.dtype,
    body: Body,
    activation: int,
) -> Plan | None:
    """How to multiply; None when the sides must be laid out row by row first.

    `whole` says whether each side starts on 16 bytes, `activation` whether one follows.
    """
    batch, n, k, m = shape[:-2], shape[-2], a_shape[-1], shape[-1]
    sides = (View(a_shape[:-2], a_strides[:-2]), View(b_shape[:-2], b_strides[:-2]))
    merged = walk(batch, *(side.expand(batch).strides for side in sides))
    if merged.rank > BATCH_RANK or (not body.tiled and b_strides[-1] != 1 and m > 1):
        return None
    pad = (BATCH_RANK - merged.rank) * (0,)
    tail = (*(1 for _ in pad), *merged.shape, *pad, *merged.strides[0], *pad, *merged.strides[1])
    pitch = -(-prod(shape) // 4) * 4
    a_batch, b_batch = (steps if merged.count > 1 else () for steps in merged.strides)
    b_mode = mode(whole[1], m, b_strides[:-3:-1], b_batch)
    if not body.tiled:
        splits, rows = -(-k // CPU_DEEPEST) if dtype.kind == "f" else 1, CPU_ROWS[n > 8]
        blocks = -(-n // rows) * -(-m // CPU_COLUMNS) * merged.count * splits
        activation = activation if splits == 1 else 0
        rounds = -(-k // splits) + activation * rows * CPU_COLUMNS
        groups = power_of_two(-(-blocks * rounds // (CPU_ROUNDS * CPU_LOCAL)), MOST_GROUPS)
        groups = max(groups, power_of_two(-(-blocks // CPU_LOCAL), body.most))
        macros = macros_for_cpu(dtype, rows, b_mode, activation)
        return Plan(macros, CPU_LOCAL, groups, (n, k, m), merged.count, splits, pitch, tail)
    tile, splits = body.forced or quickest(n, k, m, merged.count, body.shared_memory)
    splits = splits if dtype.kind == "f" else 1  # parts are joined as floats
    a_mode = mode(whole[0], n, a_strides[-2:], a_batch)
    macros = macros_of(dtype, tile, a_mode, b_mode, activation if splits == 1 else 0)
    groups = power_of_two(tiles(tile, n, m) * merged.count * splits, MOST_GROUPS)
    return Plan(macros, 0, groups, (n, k, m), merged.count, splits, pitch, tail)


def macros_for_cpu(dtype: np.dtype, rows: int, b_mode: int, activation: int = 0) -> dict[str, Any]:
    """How the template is compiled for CPUs; `b_mode` is ALONG or another."""
    along = ALONG if b_mode == ALONG else ONE_BY_ONE
    return {**types(dtype, activation), "TILED": 0, "ROWS": rows, "B_MODE": along}


def macros_of(dtype: np.dtype, tile: Tile, a_mode: int, b_mode: int, activation: int = 0) -> dict[str, Any]:
    """How the template is compiled for GPUs."""
    macros = {**types(dtype, activation), "TILED": 1, "A_MODE": a_mode, "B_MODE": b_mode}
    macros |= {"QUADS_N": tile.quads[0], "QUADS_M": tile.quads[1]}
    return macros | {"WARPS_N": tile.warps[0], "WARPS_M": tile.warps[1]}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    modes = (DEEP, ALONG, ONE_BY_ONE)
    for dtype, act in [(kind, act) for kind in (float32, int32, uint8) for act in both(kind)]:
        for b in (ALONG, ONE_BY_ONE):
            yield from (("matmul", macros_for_cpu(dtype, rows, b, act)) for rows in CPU_ROWS)
        for tile in TILES:
            yield from (("matmul", macros_of(dtype, tile, a, b, act)) for a in modes for b in modes)
        yield "join", types(dtype, act)


def mode(whole: bool, edge: int, strides: tuple[int, ...], batch: tuple[int, ...]) -> int:
    """How a side is loaded; `strides` are those of its edge, n or m of the product, and of its depth."""
    along, deep = strides
    whole = whole and not any(s % 4 for s in batch)
    if whole and deep == 1 and along % 4 == 0:
        return DEEP
    return ALONG if whole and along == 1 and deep % 4 == edge % 4 == 0 else ONE_BY_ONE


def tiles(tile: Tile, n: int, m: int) -> int:
    return -(-n // tile.rows) * -(-m // tile.columns)


def power_of_two(count: int, most: int) -> tuple[int, int, int]:
    return min(1 << max(0, count - 1).bit_length(), most), 1, 1


def quickest(n: int, k: int, m: int, batches: int, shared_memory: int) -> tuple[Tile, int]:
    """The tile and the number of parts of the inner axis that should take the least time."""

    def cost(choice: tuple[Tile, int]) -> float:  # in microseconds
        tile, splits = choice
        side_by_side = -(-tiles(tile, n, m) * batches * splits // AT_ONCE)  # on one multiprocessor
        depth = -(-k // (splits * DEPTH)) * DEPTH + 2 * DEPTH  # what comes before and after takes time too
        work = side_by_side * tile.rows * tile.columns * depth * 2e-6
        joining = JOINING[0] + JOINING[1] * splits * n * m * batches if splits > 1 else 0.0
        return work / min(tile.rate, side_by_side * tile.alone) + joining

    fitting = [tile for tile in TILES if tile.shared_memory <= shared_memory] or TILES[-1:]
    return min(
        ((tile, splits) for tile in fitting for splits in SPLITS if k >= 64 * splits or splits == 1), key=cost
    )
