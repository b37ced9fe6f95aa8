"""Convolution and its gradients: which kernel suits shape and device; and glsl/conv.comp, for CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache, partial
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import float32, int32, uint8
from tinyadept.ops import convolution
from tinyadept.ops.activation import ACTIVATIONS
from tinyadept.ops.convolution import Choice
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import conv_tiles, depthwise, elementwise, loops, winograd
from .conv_product import PRODUCTS, Product, dense_cells, halves, start, three
from .copying import deliver
from .joining import Finish, both, finish_of, join, types

FEW_ROWS = 4  # up to which tiles would be mostly empty
LEAST_SAVED = 0.1  # share of the time, from which Winograd's way is taken
ROWS, COLUMNS = (16, 8, 4, 1), (8, 4, 1)  # of results of a lane in the body without tiles
GPU_LOCAL = 64  # lanes of the body without tiles
SHORTEST = 64  # terms of a part of a sum
MOST_PARTS = 256
MOST_GROUPS = 1 << 14
CHECKS = 50 + ROWS[0] * COLUMNS[0]  # turns of a block that look at its sums, or apply an activation


def conv(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the families `conv` and `conv_back`."""
    left, right = (inputs[1], inputs[0]) if op.name != "conv_weight" else inputs[:2]
    gpu.check(left.dtype, op.name)
    gpu.check(right.dtype, op.name)
    out, finish = gpu.allocator.allocate(prod(shape)), finish_of(inputs, params)
    if out.words:
        how = PRODUCTS[op.name](inputs, shape, params)
        if how.terms and prod(how.cells):
            path = choose(gpu, how, dtype).path
            RUN[path](gpu, how, left, right, finish, out, dtype)
        else:
            gpu.transfer.fill(out, 0)
            finish_zeros(gpu, out, shape, finish, dtype)
    return deliver(gpu, out, shape, dtype, into)


def choose(gpu: Any, how: Product, dtype: np.dtype) -> Choice:
    """Which kernel runs a convolution, and why."""
    return convolution.settle(how.op, ways(how, dtype, gpu.tiled, frozenset(convolution.allowed), FEW_ROWS))


@lru_cache(maxsize=4096)
def ways(how: Product, dtype: np.dtype, tiled: bool, allowed: frozenset[str], few: int) -> dict[str, str]:
    """Kernels that can run a convolution, each with a reason; the one that should be fastest comes last."""
    sides = winograd.SIDES if winograd.fits(how, dtype) else ()
    possible = {f"winograd{side}": reason(how, side) for side in sides}
    possible["lanes"] = f"{how.rows} rows would leave a tile mostly empty"
    if not tiled:
        return possible | {"lanes": "no shared memory: a CPU driver"}
    if how.rows > few:
        possible["tiles"] = "a product of matrices, which are gathered while tiles of them are loaded"
        left = {f"winograd{side}": winograd.cost(how, side) / winograd.direct(how) for side in sides}
        faster = [path for path in left if path in allowed and 1 - left[path] > LEAST_SAVED]
        for path in sorted(faster, key=left.__getitem__, reverse=True):
            possible[path] = possible.pop(path)
    if depthwise.fits(how):
        possible["depthwise"] = "groups of one channel: reading is what takes time"
    return possible


def reason(how: Product, side: int) -> str:
    return (
        f"3 × 3 cells and {how.inners} channels: an estimated {winograd.cost(how, side):.0f} µs "
        f"instead of {winograd.direct(how):.0f}"
    )


def finish_zeros(gpu: Any, out: Block, shape: Shape, finish: Finish, dtype: np.dtype) -> None:
    """Bias and activation where there are no terms."""
    whole, bias = wrap(Buffer(out), View.dense(shape), dtype, gpu), finish.bias
    if bias is not None:
        single = len(shape) - 2
        along = View((shape[1], *(1,) * single), (bias.layout.strides[0], *(0,) * single), bias.layout.offset)
        more = wrap(bias.buffer, along, dtype, gpu)
        elementwise.run(gpu, registry["add"], (whole, more), shape, dtype, {}, whole)
    if finish.activation:
        elementwise.run(gpu, registry[ACTIVATIONS[finish.activation]], (whole,), shape, dtype, {}, whole)


class Body(NamedTuple):
    """How the kernel is built, and into how many blocks of results it cuts each part of the sums."""

    macros: dict[str, int]
    constants: tuple[int, ...]
    blocks: int


def multiply(
    gpu: Any, how: Product, left: Tensor, right: Tensor, finish: Finish, out: Block, dtype: np.dtype
) -> None:
    """Note what computes the product, finished, to dense words."""
    right = dense_cells(gpu, right)
    body = lanes(gpu, how)
    parts = cut(gpu, how, body.blocks)
    splits, pitch = prod(parts), -(-out.words // 4) * 4
    own = finish.activation if splits == 1 else 0
    macros = macros_of(how.op, dtype, how.strided, body.macros, own)
    target = gpu.allocator.allocate(splits * pitch) if splits > 1 else out
    shader = gpu.shaders.get("conv", macros, (*body.constants, own))
    groups = groups_for(gpu, how, body.blocks, parts)
    push = pushed(how, parts, left, right, finish, target, pitch)
    a = left.buffer.data
    gpu.queue.dispatch(shader, groups, push, (target, a, right.buffer.data, finish.bound(a)))
    if splits > 1:
        join(gpu, target, pitch, out, splits, dtype, finish.activation)


def macros_of(op: str, dtype: np.dtype, strided: bool, body: dict[str, int], activation: int = 0) -> Macros:
    floating = int(dtype.kind == "f")
    return {f"OP_{op}": 1, **types(dtype, activation), "FLOATING": floating, "STRIDED": int(strided), **body}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that a convolution asks for."""
    yield from conv_tiles.variants()
    yield from depthwise.variants()
    yield from winograd.variants()
    lanes = [{"ROWS": rows, "COLUMNS": columns} for rows in ROWS for columns in COLUMNS]
    for op in PRODUCTS:
        for dtype in (float32, int32, uint8):
            for strided in (False, True) if op == "conv_input" else (False,):
                for act in both(dtype) if op == "conv" else (0,):
                    yield from (("conv", macros_of(op, dtype, strided, body, act)) for body in lanes)


def lanes(gpu: Any, how: Product) -> Body:
    """No shared memory. A CPU loads word by word, so that many results a lane pay, though they spill."""
    local = GPU_LOCAL if gpu.tiled else gpu.local
    rows = next(size for size in ROWS if how.rows > size // 2)
    columns = next(size for size in COLUMNS if how.columns > (size > 1) * local * size // 2)
    blocks = -(-how.rows // rows) * -(-how.columns // (local * columns)) * how.groups
    return Body({"ROWS": rows, "COLUMNS": columns}, (local,), blocks)


def cut(gpu: Any, how: Product, blocks: int) -> tuple[int, int]:
    """Into how many parts the taps and the inner axis are cut: for work for all, and for loops that end."""
    taps, inners, wanted = prod(how.taps), how.inners, loops.at_once(gpu)
    most = max(1, min(MOST_PARTS, taps * inners // SHORTEST))
    parts = min(most, -(-wanted // blocks)) if blocks < wanted else 1
    if gpu.device.is_cpu:
        parts = max(parts, -(-(taps * (inners + 1)) // (loops.TURNS // 4)))
    tap_parts = min(parts, taps)
    return tap_parts, min(-(-parts // tap_parts), inners)


def groups_for(gpu: Any, how: Product, blocks: int, parts: tuple[int, int]) -> tuple[int, int, int]:
    """Workgroups: as many as there are blocks on a GPU; on a CPU as many as let the loops end."""
    blocks *= prod(parts)
    if not gpu.device.is_cpu:
        return (loops.power_of_two(blocks, MOST_GROUPS), 1, 1)
    groups = loops.power_of_two(blocks, loops.at_once(gpu))
    turns = -(-prod(how.taps) // parts[0]) * (-(-how.inners // parts[1]) + 2) + CHECKS
    while groups < loops.MOST_GROUPS and -(-blocks // groups) * turns > loops.TURNS:
        groups *= 2
    return (groups, 1, 1)


def pushed(
    how: Product,
    parts: tuple[int, int],
    left: Tensor,
    right: Tensor,
    finish: Finish,
    target: Block,
    pitch: int,
) -> bytes:
    """Push constants, as glsl/conv.comp has them."""
    return pack(
        *(how.rows, how.outers, how.inners, how.groups),
        *(*three(how.places, 1), *three(how.taps, 1), *three(how.cells, 1)),
        *halves(how, 0),
        parts[0] | parts[1] << 16,
        *(start(left), *how.a[:2], *three(how.a[2:], 0)),
        *(start(right), *outer_and_inner(how, right)),
        *(*finish.words, target.offset, pitch),
    )


def outer_and_inner(how: Product, right: Tensor) -> tuple[int, int]:
    """Steps of the right side, whose cells lie one after another."""
    first, second = right.layout.strides[:2]
    return (second, first) if how.op == "conv_weight" else (first, second)


RUN = {
    "lanes": multiply,
    "tiles": conv_tiles.multiply,
    "depthwise": depthwise.multiply,
    "winograd2": partial(winograd.multiply, side=2),
    "winograd4": partial(winograd.multiply, side=4),
}
FAMILIES = {"conv": conv, "conv_back": conv}
