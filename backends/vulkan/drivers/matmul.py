"""Matrix products: glsl/matmul.comp, with the tile and the cut of the inner axis that suit the shape."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import uint8
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..queue import pack
from ..walk import walk

BATCH_RANK = 3
TYPES = {"f": ("float", "vec4"), "i": ("int", "ivec4"), "u": ("int", "ivec4")}
CPU_LOCAL, CPU_ROWS, CPU_COLUMNS = 8, 8, 16
DEEP = 16  # of the inner axis in one tile
AT_ONCE = 132  # workgroups that a large GPU runs side by side; of a small one it decides less
MOST_GROUPS = 1 << 12
SPLITS = (1, 2, 4, 8, 16, 32)


class Tile(NamedTuple):
    """64 rows for each unit of `n`, 32 columns for each of `m`; `rate` is its speed beside the largest."""

    n: int
    m: int
    rate: float


TILES = (Tile(2, 4, 1.0), Tile(2, 2, 0.92), Tile(1, 2, 0.75), Tile(1, 1, 0.5))


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run a product; see `tinyadept.backends.vulkan.drivers`."""
    gpu.check(inputs[0].dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if prod(shape):
        a, b = (batched(gpu, x, shape[:-2]) for x in inputs)
        if a.shape[-1] == 0:
            gpu.transfer.fill(out, 0)
        else:
            multiply(gpu, a, b, out, shape, dtype)
    buffer = Buffer(out)
    if into is None:
        return buffer
    copied = (wrap(buffer, View.dense(shape), dtype, gpu),)
    return gpu.families["elementwise"](gpu, registry["copy"], copied, shape, dtype, {}, into)


def batched(gpu: Any, x: Tensor, batch: Shape) -> Tensor:
    """An operand with all batch axes."""
    return wrap(x.buffer, x.layout.expand(batch + x.shape[-2:]), x.dtype, gpu)


def dense(gpu: Any, x: Tensor) -> Tensor:
    """A copy laid out row by row."""
    block = gpu.allocator.allocate(x.layout.size)
    gpu.transfer.gather(block, x.buffer.data, x.layout)
    return wrap(Buffer(block), View.dense(x.shape), x.dtype, gpu)


def multiply(gpu: Any, a: Tensor, b: Tensor, out: Any, shape: Shape, dtype: np.dtype) -> None:
    if not gpu.tiled and b.layout.strides[-1] != 1 and shape[-1] > 1:
        b = dense(gpu, b)
    merged = walk(shape[:-2], a.layout.strides[:-2], b.layout.strides[:-2])
    if merged.rank > BATCH_RANK:
        a, b = dense(gpu, a), dense(gpu, b)
        merged = walk(shape[:-2], a.layout.strides[:-2], b.layout.strides[:-2])
    n, k, m = shape[-2], a.shape[-1], shape[-1]
    kind, four = TYPES[dtype.kind]
    macros: dict[str, Any] = {"TYPE": kind, "TYPE4": four, "MASK": 255 if dtype == uint8 else 0}
    if not gpu.tiled:
        blocks = -(-n // CPU_ROWS) * -(-m // CPU_COLUMNS) * merged.count
        shader = gpu.shaders.get("matmul", macros | {"TILED": 0}, (CPU_LOCAL,))
        groups = (power_of_two(-(-blocks // CPU_LOCAL), gpu.grid(1 << 30)[0]), 1, 1)
        gpu.queue.dispatch(shader, groups, pushed(merged, a, b, out, n, k, m, 1, 0), operands(a, b, out))
        return
    tile, splits = gpu.forced_tile or plan(n, k, m, merged.count)
    splits = splits if dtype.kind == "f" else 1
    pitch = -(-out.words // 4) * 4
    target = gpu.allocator.allocate(splits * pitch) if splits > 1 else out
    modes = mode(a, merged.strides[0]), mode(b, merged.strides[1])
    macros |= {"TILED": 1, "WARPS_N": tile.n, "WARPS_M": tile.m}
    macros |= {"PAD": gpu.pad, "A_MODE": modes[0], "B_MODE": modes[1]}
    tiles = -(-n // (64 * tile.n)) * -(-m // (32 * tile.m)) * merged.count * splits
    groups = (power_of_two(tiles, MOST_GROUPS), 1, 1)
    shader = gpu.shaders.get("matmul", macros)
    push = pushed(merged, a, b, target, n, k, m, splits, pitch)
    gpu.queue.dispatch(shader, groups, push, operands(a, b, target))
    if splits > 1:
        join = gpu.shaders.get("join", None, (gpu.local,))
        push = pack(out.words, out.offset, target.offset, pitch, splits)
        gpu.queue.dispatch(join, gpu.grid(out.words // 4), push, (out, target))


def operands(a: Tensor, b: Tensor, out: Any) -> tuple:
    return (out, part(a), part(b))


def part(x: Tensor) -> Any:
    low, high = x.layout.span
    return x.buffer.data.part(low, high - low)


def pushed(
    merged: Any, a: Tensor, b: Tensor, out: Any, n: int, k: int, m: int, splits: int, pitch: int
) -> bytes:
    """Push constants, as glsl/matmul.comp has them."""
    pad = BATCH_RANK - merged.rank
    sides = []
    for x in (a, b):
        sides += [x.buffer.data.offset + x.layout.offset, *x.layout.strides[-2:]]
    batch = [1] * pad + [*merged.shape]
    steps = [([0] * pad + [*strides]) for strides in merged.strides]
    return pack(n, k, m, *sides, out.offset, merged.count, splits, pitch, *batch, *steps[0], *steps[1])


def mode(x: Tensor, batch_strides: tuple) -> int:
    """How a side is read: 0, four neighbours along its rows; 1, along its columns; 2, one by one."""
    row, col = x.layout.strides[-2:]
    whole = (x.buffer.data.offset + x.layout.offset) % 4 == 0 and not any(s % 4 for s in batch_strides)
    if whole and col == 1 and row % 4 == 0:
        return 0
    return 1 if whole and row == 1 and col % 4 == 0 else 2


def power_of_two(count: int, most: int) -> int:
    return min(1 << max(0, count - 1).bit_length(), most)


@lru_cache(maxsize=4096)
def plan(n: int, k: int, m: int, batches: int) -> tuple[Tile, int]:
    """The tile and the number of parts of the inner axis that should take the least time."""

    def cost(choice: tuple[Tile, int]) -> float:
        tile, splits = choice
        tiles = -(-n // (64 * tile.n)) * -(-m // (32 * tile.m)) * batches * splits
        depth = (k + splits * DEEP - 1) // (splits * DEEP) * DEEP
        waves = max(1.0, tiles / AT_ONCE) if tiles > 4 * AT_ONCE else -(-tiles // AT_ONCE)
        work = waves * tile.n * tile.m * (depth + 4 * DEEP) / tile.rate
        return work + (splits > 1) * (splits * n * m * batches / (64 * 32 * AT_ONCE) * 16 + 500)

    choices = [(tile, splits) for tile in TILES for splits in SPLITS if splits == 1 or k >= 128 * splits]
    return min(choices, key=cost)
