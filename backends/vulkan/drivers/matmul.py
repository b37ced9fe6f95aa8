"""Matrix products: glsl/matmul.comp, with the tile and the cut of the inner axis that suit the shape."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import uint8
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..walk import walk

BATCH_RANK = 3
TYPES = {"f": ("float", "vec4"), "i": ("int", "ivec4"), "u": ("int", "ivec4")}
CPU_LOCAL, CPU_ROWS, CPU_COLUMNS = 8, 8, 16
CPU_DEEPEST = 1 << 14  # of the inner axis in one lane's sum
CPU_ROUNDS = (
    1 << 15
)  # of a lane: llvmpipe ends an invocation after 65,535 rounds of its loops, and says nothing
DEEP = 16  # of the inner axis in one tile
AT_ONCE = 132  # workgroups that a large GPU runs side by side; of a small one it decides less
MOST_GROUPS = 1 << 14
SPLITS = (1, 2, 4, 8, 16)
PUSH = Struct("3i 3i 3i i 3i 9i").pack
JOIN = Struct("5i").pack


class Tile(NamedTuple):
    """64 rows for each unit of `n`, 32 columns for each of `m`; `rate` is its speed beside the largest."""

    n: int
    m: int
    rate: float


TILES = (Tile(2, 4, 1.0), Tile(2, 2, 0.8), Tile(1, 2, 0.78), Tile(1, 1, 0.55))


class Body(NamedTuple):
    """How a backend runs products; what differs between devices, and what tests choose.

    Attributes
    ----------
    tiled : bool
        The body for GPUs, or the one for CPU drivers.
    pad : int
        See glsl/matmul.comp.
    most : int
        Workgroups of the CPU body.
    forced : (Tile, int), optional
        The tile and the number of parts of the inner axis, for measurements.
    """

    tiled: bool
    pad: int
    most: int
    forced: tuple[Tile, int] | None = None


class Plan(NamedTuple):
    """One way to multiply, for all operands of these shapes and strides."""

    macros: dict[str, Any]
    constants: tuple[int, ...]
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
    a, b = inputs
    gpu.check(a.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if a.shape[-1] == 0:
        gpu.transfer.fill(out, 0)
    elif out.words:
        multiply(gpu, a, b, out, shape, dtype)
    buffer = Buffer(out)
    if into is None:
        return buffer
    copied = (wrap(buffer, View.dense(shape), dtype, gpu),)
    return gpu.families["elementwise"](gpu, registry["copy"], copied, shape, dtype, {}, into)


def multiply(gpu: Any, a: Tensor, b: Tensor, out: Any, shape: Shape, dtype: np.dtype) -> None:
    starts = [x.buffer.data.offset + x.layout.offset for x in (a, b)]
    whole = starts[0] % 4 == 0, starts[1] % 4 == 0
    plan = planned(shape, a.layout.strides, b.layout.strides, a.shape, b.shape, whole, dtype, gpu.products)
    if plan is None:
        multiply(gpu, dense(gpu, a), dense(gpu, b), out, shape, dtype)
        return
    target = gpu.allocator.allocate(plan.splits * plan.pitch) if plan.splits > 1 else out
    rows = *a.layout.strides[-2:], *b.layout.strides[-2:]
    sides = (starts[0], rows[0], rows[1], starts[1], rows[2], rows[3])
    push = PUSH(*plan.sizes, *sides, target.offset, plan.batches, plan.splits, plan.pitch, *plan.tail)
    shader = gpu.shaders.get("matmul", plan.macros, plan.constants)
    gpu.queue.dispatch(shader, plan.groups, push, (target, part(a), part(b)))
    if plan.splits > 1:
        join = gpu.shaders.get("join", None, (gpu.local,))
        push = JOIN(out.words, out.offset, target.offset, plan.pitch, plan.splits)
        gpu.queue.dispatch(join, gpu.grid(out.words // 4), push, (out, target))


def dense(gpu: Any, x: Tensor) -> Tensor:
    """A copy laid out row by row."""
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
) -> Plan | None:
    """How to multiply; None when the sides must be laid out row by row first.

    `whole` says whether each side starts on 16 bytes.
    """
    batch, n, k, m = shape[:-2], shape[-2], a_shape[-1], shape[-1]
    a_batch = View(a_shape[:-2], a_strides[:-2]).expand(batch).strides
    b_batch = View(b_shape[:-2], b_strides[:-2]).expand(batch).strides
    merged = walk(batch, a_batch, b_batch)
    if merged.rank > BATCH_RANK or (not body.tiled and b_strides[-1] != 1 and m > 1):
        return None
    pad = (BATCH_RANK - merged.rank) * (0,)
    tail = (*(1 for _ in pad), *merged.shape, *pad, *merged.strides[0], *pad, *merged.strides[1])
    kind, four = TYPES[dtype.kind]
    macros: dict[str, Any] = {"TYPE": kind, "TYPE4": four, "MASK": 255 if dtype == uint8 else 0}
    pitch = -(-prod(shape) // 4) * 4
    if not body.tiled:
        splits = -(-k // CPU_DEEPEST) if dtype.kind == "f" else 1
        blocks = -(-n // CPU_ROWS) * -(-m // CPU_COLUMNS) * merged.count * splits
        groups = power_of_two(-(-blocks * -(-k // splits) // (CPU_ROUNDS * CPU_LOCAL)), MOST_GROUPS)
        groups = max(groups, power_of_two(-(-blocks // CPU_LOCAL), body.most))
        return Plan(macros | {"TILED": 0}, (CPU_LOCAL,), groups, (n, k, m), merged.count, splits, pitch, tail)
    tile, splits = body.forced or quickest(n, k, m, merged.count)
    splits = splits if dtype.kind == "f" else 1  # parts are joined as floats
    macros |= {"TILED": 1, "WARPS_N": tile.n, "WARPS_M": tile.m, "PAD": body.pad}
    macros["A_MODE"] = mode(whole[0], a_strides, merged.strides[0])
    macros["B_MODE"] = mode(whole[1], b_strides, merged.strides[1])
    groups = power_of_two(tiles(tile, n, m) * merged.count * splits, MOST_GROUPS)
    return Plan(macros, (), groups, (n, k, m), merged.count, splits, pitch, tail)


def mode(whole: bool, strides: Shape, batch: tuple[int, ...]) -> int:
    """How a side is read: 0, four neighbours along its rows; 1, along its columns; 2, one by one."""
    row, col = strides[-2:]
    whole = whole and not any(s % 4 for s in batch)
    if whole and col == 1 and row % 4 == 0:
        return 0
    return 1 if whole and row == 1 and col % 4 == 0 else 2


def tiles(tile: Tile, n: int, m: int) -> int:
    return -(-n // (64 * tile.n)) * -(-m // (32 * tile.m))


def power_of_two(count: int, most: int) -> tuple[int, int, int]:
    return min(1 << max(0, count - 1).bit_length(), most), 1, 1


def quickest(n: int, k: int, m: int, batches: int) -> tuple[Tile, int]:
    """The tile and the number of parts of the inner axis that should take the least time."""

    def cost(choice: tuple[Tile, int]) -> float:
        tile, splits = choice
        count = tiles(tile, n, m) * batches * splits
        depth = (k + splits * DEEP - 1) // (splits * DEEP) * DEEP
        waves = count / AT_ONCE if count > 4 * AT_ONCE else -(-count // AT_ONCE)
        work = waves * tile.n * tile.m * (depth + 4 * DEEP) / tile.rate
        return work + (splits > 1) * (splits * n * m * batches / (128 * AT_ONCE) + 500)

    choices = [(tile, splits) for tile in TILES for splits in SPLITS if splits == 1 or k >= 128 * splits]
    return min(choices, key=cost)
