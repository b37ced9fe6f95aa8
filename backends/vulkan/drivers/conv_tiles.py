"""Convolution on GPUs, glsl/conv_tiles.comp: which tile suits the shape, and how its sides are loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tinyadept.dtypes import float32, int32, uint8
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import loops
from .conv_product import Product, dense_cells, halves, start, three
from .joining import Finish, both, join, types
from .matmul import DEPTH, Tile

AT_ONCE = 132  # multiprocessors of the GPU whose rates stand below
JOINING = (
    15.0,
    6e-6,
    0.05,
)  # microseconds: of the dispatch that adds parts, for each word of one, for each part
SPLITS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
SCATTERED = 0.011  # of the rate is left for each row that shares what conv_weight gathers
MOST_GROUPS = 1 << 14
FEWEST = 8  # stages of a part
TURNS_A_STAGE = 16  # of a lane's loops on a CPU driver
TILES = (  # as in matmul.py, with two more for few rows
    Tile((4, 2), (2, 2), 0.11, 0.215),
    Tile((2, 2), (2, 2), 0.047, 0.255),
    Tile((2, 2), (2, 1), 0.021, 0.25),
    Tile((2, 2), (1, 2), 0.03, 0.2),
    Tile((1, 2), (1, 4), 0.1, 0.165),
    Tile((2, 1), (1, 1), 0.031, 0.17),
)
SHARED = Tile((2, 1), (1, 1), 0.095, 0.15, 4), Tile((2, 1), (1, 1), 0.16, 0.15, 8)  # for few tiles
OF_INTEGERS = TILES[1:2]
forced: tuple[Tile, int] | None = None  # the tile and the number of parts of the depth, for measurements
DEEP, ALONG, ONE_BY_ONE, GATHER = range(4)  # how a side is loaded; glsl/conv_tiles.comp has the same


def multiply(
    gpu: Any, how: Product, left: Tensor, right: Tensor, finish: Finish, out: Block, dtype: np.dtype
) -> None:
    """Note what computes the product, finished, to dense words."""
    right = dense_cells(gpu, right)
    weights, floats = how.op != "conv_weight", dtype == float32
    a, a_mode = (weights_for if weights else gradient_for)(gpu, how, left, floats)
    vector = weights and floats and how.pointwise and how.inners % DEPTH == 0 and prod(how.cells) % 4 == 0
    vector = vector and start(right) % 4 == 0 and not any(s % 4 for s in right.layout.strides[:2])
    tile, splits = (floats and forced) or quickest(how, runs_of(how), dtype, gpu.device.limits.shared_memory)
    tile = tile if how.op == "conv" else tile._replace(teams=1)
    if gpu.device.is_cpu:
        splits = max(splits, -(-runs_of(how) * TURNS_A_STAGE // (loops.TURNS // 2)))
    modes = weight_modes(how, a_mode) if not weights else {"B_MODE": ALONG if vector else GATHER}
    ragged = int(how.inners % DEPTH != 0)
    own = finish.activation if splits == 1 else 0
    macros = {**macros_of(how, dtype, tile, own), "A_MODE": a_mode, "RAGGED": ragged, "IN_ROWS": 0, **modes}
    pitch = -(-out.words // 4) * 4
    target = gpu.allocator.allocate(splits * pitch) if splits > 1 else out
    push = pushed(how, splits, a, right, finish, target, pitch)
    block = a[0].buffer.data
    bindings = (target, block, right.buffer.data, finish.bound(block))
    shader = gpu.shaders.get("conv_tiles", macros, (own,))
    gpu.queue.dispatch(shader, groups_for(gpu, how, tile, splits), push, bindings)
    if splits > 1:
        join(gpu, target, pitch, out, splits, dtype, finish.activation)


# A side as tensor, and its steps between groups, rows and inner ones.
Side = tuple[Tensor, int, int, int]


def weights_for(gpu: Any, how: Product, w: Tensor, floats: bool) -> tuple[Side, int]:
    """The weights in a layout that can be loaded four by four: as they are, or packed."""
    row, inner = how.a[:2]
    depths = -(-how.inners // DEPTH) * DEPTH
    group = (how.rows if how.op == "conv" else how.inners) * w.layout.strides[0]
    whole = floats and start(w) % 4 == 0 and group % 4 == 0 and how.inners == depths and prod(how.taps) == 1
    if whole and how.op == "conv" and inner == 1 and row % 4 == 0:
        return (w, group, row, 0), DEEP
    if whole and row == 1 and inner % 4 == 0 and inner == how.rows:
        return (w, group, inner, 0), ALONG
    pitch = -(-how.rows // 4) * 4
    count = how.groups * prod(how.taps) * depths * pitch
    block = gpu.allocator.allocate(count)
    push = pack(
        *(how.groups, how.rows, pitch, how.inners, depths),
        *three(how.taps, 1),
        *(start(w), group, row, inner),
        *three(how.a[2:], 0),
        block.offset,
    )
    shader = gpu.shaders.get("conv_pack", None, (gpu.local,))
    gpu.queue.dispatch(shader, loops.grid(gpu, count), push, (block, w.buffer.data))
    packed = wrap(Buffer(block), View.dense((count,)), w.dtype, gpu)
    return (packed, prod(how.taps) * depths * pitch, pitch, 0), ALONG


def gradient_for(gpu: Any, how: Product, g: Tensor, floats: bool) -> tuple[Side, int]:
    """The gradient of the result, loaded four by four where that can be."""
    g = dense_cells(gpu, g)
    sample, row = g.layout.strides[:2]
    whole = floats and not any(number % 4 for number in (start(g), sample, row, prod(how.taps)))
    return (g, how.rows * row, row, sample), DEEP if whole else ONE_BY_ONE


def weight_modes(how: Product, a_mode: int) -> dict[str, int]:
    """How `conv_weight` loads both sides; fewer ways than there could be, for each is a shader."""
    positions = prod(how.taps)
    in_rows = 0 if a_mode == ONE_BY_ONE else 2 if how.taps[-1] % DEPTH == 0 else int(how.taps[-1] % 4 == 0)
    return {"B_MODE": DEEP, "RAGGED": int(positions % DEPTH != 0 or not in_rows), "IN_ROWS": in_rows}


def runs_of(how: Product) -> int:
    """How many stages the whole depth has; where phases differ, that of the longest one."""
    if how.op == "conv_weight":
        return how.inners * -(-prod(how.taps) // DEPTH)
    return taps_of(how) * -(-how.inners // DEPTH)


def taps_of(how: Product) -> int:
    """How many taps a place meets, in the phase that has the most."""
    if not how.strided:
        return prod(how.taps)
    return prod(-(-k // max(1, s // np.gcd(s, d))) for k, s, d in zip(how.taps, how.place_step, how.tap_step))


def columns_of(how: Product) -> tuple[int, int]:
    """How many columns a phase has, at most, and how many phases there are."""
    steps = how.place_step if how.strided else (1,) * len(how.places)
    return how.outers * prod(-(-n // s) for n, s in zip(how.places, steps)), prod(steps)


def tiles(how: Product, tile: Tile) -> int:
    columns, phases = columns_of(how)
    return -(-how.rows // tile.rows) * -(-columns // tile.columns) * phases * how.groups


def tiles_of(how: Product, shared_memory: int = sys.maxsize) -> tuple[Tile, ...]:
    """Those worth trying: of few rows and many columns, none where columns are costly to gather."""
    if how.op == "conv_weight":
        return tuple(t for t in TILES if t.columns < 4 * t.rows)
    return TILES + tuple(t for t in SHARED if how.op == "conv" and t.shared_memory <= shared_memory)


@lru_cache(maxsize=4096)
def quickest(how: Product, runs: int, dtype: np.dtype, shared_memory: int) -> tuple[Tile, int]:
    """The tile and the number of parts of the depth that should take the least time."""

    def cost(choice: tuple[Tile, int]) -> float:  # in microseconds
        tile, splits = choice
        side_by_side = -(-tiles(how, tile) * splits // AT_ONCE)  # on one multiprocessor
        depth = (-(-runs // (splits * tile.teams)) + 2) * DEPTH * tile.teams
        work = side_by_side * tile.rows * tile.columns * depth * 2e-6
        words = how.rows * how.groups * how.columns * splits
        joining = JOINING[0] + JOINING[1] * words + JOINING[2] * splits if splits > 1 else 0.0
        rate = tile.rate * (min(1.0, SCATTERED * tile.rows) if how.op == "conv_weight" else 1.0)
        return work / min(rate, side_by_side * tile.alone) + joining

    if dtype != float32:
        return OF_INTEGERS[0], 1  # parts of bytes would have to be joined as words
    return min(
        (
            (tile, n)
            for tile in tiles_of(how, shared_memory)
            for n in SPLITS
            if n == 1 or runs >= FEWEST * n * tile.teams
        ),
        key=cost,
    )


def groups_for(gpu: Any, how: Product, tile: Tile, splits: int) -> tuple[int, int, int]:
    count = tiles(how, tile) * splits
    groups = loops.power_of_two(count, MOST_GROUPS)
    turns = -(-runs_of(how) // splits) * TURNS_A_STAGE + loops.TURNS // 8
    while gpu.device.is_cpu and groups < loops.MOST_GROUPS and -(-count // groups) * turns > loops.TURNS:
        groups *= 2
    return (groups, 1, 1)


def pushed(
    how: Product, splits: int, side: Side, right: Tensor, finish: Finish, target: Block, pitch: int
) -> bytes:
    """Push constants, as glsl/conv_tiles.comp has them."""
    a, *a_steps = side
    first, second = right.layout.strides[:2]
    weights = how.op != "conv_weight"
    outer, inner = (first, second) if weights else (second, first)
    channels = how.inners if weights else how.outers  # of a group
    return pack(
        *(how.rows, how.outers, how.inners, how.groups),
        *(*three(how.places, 1), *three(how.taps, 1), *three(how.cells, 1)),
        *halves(how, splits),
        *(start(a), *a_steps),
        *(start(right), channels * second, outer, inner),
        *(*finish.words, target.offset, pitch),
    )


def macros_of(how: Product, dtype: np.dtype, tile: Tile, activation: int = 0) -> dict[str, Any]:
    return {
        f"OP_{how.op}": 1,
        **types(dtype, activation),
        "FLOATING": int(dtype.kind == "f"),
        "QUADS_N": tile.quads[0],
        "QUADS_M": tile.quads[1],
        "WARPS_N": tile.warps[0],
        "WARPS_M": tile.warps[1],
        "TEAMS": tile.teams,
        "STRIDED": int(how.strided),
    }


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield "conv_pack", {}
    one = (1,)
    for op, step in (("conv", 1), ("conv_input", 1), ("conv_input", 2), ("conv_weight", 1)):
        how = Product(op, 1, 1, 1, 1, one, one, one, (step,), one, (0,), one * 3, one * 3)
        for dtype in (float32, int32, uint8):
            modes = list(modes_of(how, dtype == float32))
            for tile in tiles_of(how) if dtype == float32 else OF_INTEGERS:
                for act in both(dtype) if op == "conv" else (0,):
                    base = macros_of(how, dtype, tile, act)
                    for a_mode, b_mode, ragged, in_rows in modes:
                        rest = {"A_MODE": a_mode, "RAGGED": ragged, "IN_ROWS": in_rows, "B_MODE": b_mode}
                        yield "conv_tiles", {**base, **rest}


def modes_of(how: Product, floats: bool) -> Iterator[tuple[int, int, int, int]]:
    """A_MODE, B_MODE, RAGGED and IN_ROWS that occur together."""
    if how.op == "conv_weight":
        yield (ONE_BY_ONE, DEEP, 1, 0)
        if floats:
            yield from ((DEEP, DEEP, *rest) for rest in ((1, 0), (1, 1), (0, 1), (0, 2)))
        return
    yield from ((ALONG, GATHER, ragged, 0) for ragged in (0, 1))
    if floats and not how.strided:
        yield (ALONG, ALONG, 0, 0)
    if floats and how.op == "conv":
        yield from ((DEEP, b_mode, 0, 0) for b_mode in (GATHER, ALONG))
