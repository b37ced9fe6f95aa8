"""Convolution and its gradients: glsl/conv.comp, with the body and the cut of sums that suit the shape."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import float32, int32, uint8
from tinyadept.errors import Unsupported
from tinyadept.ops.reduce import total_dtype
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import elementwise, loops
from .copying import deliver

SPATIAL = 3
TYPES = {"f": ("float", "vec4"), "i": ("int", "ivec4"), "u": ("int", "ivec4")}
TILES = {"TILED": 1}
SIDE = 64  # of the tiles in glsl/conv.comp
FEW_ROWS = 8  # up to which tiles would be mostly empty
ROWS, COLUMNS = (16, 8, 4, 1), (8, 4, 1)  # of results of a lane in the body without tiles
GPU_LOCAL = 64  # lanes of the body without tiles
MOST_GROUPS = 1 << 14
SHORTEST = 64  # terms of a part of a sum
MOST_PARTS = 256
CHECKS = 50  # turns of a block that look whether its sums are finite


class Product(NamedTuple):
    """A convolution as a product of matrices; glsl/conv.comp says what the parts mean.

    Each operand has strides for (row, inner, tap...) or (outer, inner, cell...).
    """

    rows: int
    outers: int
    inners: int
    groups: int
    places: Shape
    taps: Shape
    cells: Shape
    place_step: Shape
    tap_step: Shape
    low: Shape
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def columns(self) -> int:
        return self.outers * prod(self.places)


def conv(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the families `conv` and `conv_back`."""
    left, right = (inputs[1], inputs[0]) if op.name != "conv_weight" else inputs[:2]
    gpu.check(left.dtype, op.name)
    gpu.check(right.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if out.words:
        how = PRODUCTS[op.name](inputs, shape, params)
        if how.inners and prod(how.taps) and prod(how.cells):
            multiply(gpu, op, how, left, right, out, dtype)
        else:
            gpu.transfer.fill(out, 0)
    if len(inputs) > 2:
        whole = wrap(Buffer(out), View.dense(shape), dtype, gpu)
        bias = wrap(
            inputs[2].buffer, inputs[2].layout.reshape((shape[1], *(1,) * len(shape[2:]))), dtype, gpu
        )
        elementwise.run(gpu, registry["add"], (whole, bias), shape, dtype, {}, whole)
    return deliver(gpu, out, shape, dtype, into)


def forward(inputs: tuple, shape: Shape, params: dict) -> Product:
    x, w = inputs[:2]
    groups = params["groups"]
    xs, ws = x.layout.strides, w.layout.strides
    return Product(
        rows=shape[1] // groups,
        outers=shape[0],
        inners=w.shape[1],
        groups=groups,
        places=shape[2:],
        taps=w.shape[2:],
        cells=x.shape[2:],
        place_step=params["stride"],
        tap_step=params["dilation"],
        low=lows(params),
        a=ws,
        b=xs,
    )


def to_input(inputs: tuple, shape: Shape, params: dict) -> Product:
    g, w = inputs
    groups = params["groups"]
    gs, ws = g.layout.strides, w.layout.strides
    return Product(
        rows=shape[1] // groups,
        outers=shape[0],
        inners=w.shape[0] // groups,
        groups=groups,
        places=shape[2:],
        taps=w.shape[2:],
        cells=g.shape[2:],
        place_step=params["stride"],
        tap_step=params["dilation"],
        low=lows(params),
        a=(ws[1], ws[0], *ws[2:]),
        b=gs,
    )


def to_weight(inputs: tuple, shape: Shape, params: dict) -> Product:
    g, x = inputs
    groups = params["groups"]
    gs, xs = g.layout.strides, x.layout.strides
    return Product(
        rows=shape[0] // groups,
        outers=shape[1],
        inners=x.shape[0],
        groups=groups,
        places=shape[2:],
        taps=g.shape[2:],
        cells=x.shape[2:],
        place_step=params["dilation"],
        tap_step=params["stride"],
        low=lows(params),
        a=(gs[1], gs[0], *gs[2:]),
        b=(xs[1], xs[0], *xs[2:]),
    )


PRODUCTS = {"conv": forward, "conv_input": to_input, "conv_weight": to_weight}


def lows(params: dict) -> Shape:
    return tuple(low for low, _ in params["padding"])


class Body(NamedTuple):
    """How the kernel is built, and into how many blocks of results it cuts each part of the sums."""

    macros: dict[str, int]
    constants: tuple[int, ...]
    blocks: int


def multiply(
    gpu: Any, op: Op, how: Product, left: Tensor, right: Tensor, out: Block, dtype: np.dtype
) -> None:
    """Note what computes the product, to dense words."""
    strided = op.name == "conv_input" and any(step != 1 for step in how.place_step)
    body = tiles(how) if gpu.tiled and how.rows > FEW_ROWS else lanes(gpu, how)
    macros = macros_of(op.name, dtype, strided, body.macros)
    parts = cut(gpu, how, body.blocks)
    splits = prod(parts)
    target = gpu.allocator.allocate(splits * out.words) if splits > 1 else out
    shader = gpu.shaders.get("conv", macros, body.constants)
    groups = groups_for(gpu, how, body.blocks, parts)
    push = pushed(op, how, parts, left, right, target)
    gpu.queue.dispatch(shader, groups, push, (target, left.buffer.data, right.buffer.data))
    if splits > 1:
        join(gpu, target, out, splits, dtype)


def macros_of(op: str, dtype: np.dtype, strided: bool, body: dict[str, int]) -> Macros:
    kind, four = TYPES[dtype.kind]
    macros = {f"OP_{op}": 1, "TYPE": kind, "TYPE4": four, "FLOATING": int(kind == "float")}
    return {**macros, "MASK": 255 if dtype == uint8 else 0, "STRIDED": int(strided), **body}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    lanes = [{"TILED": 0, "ROWS": rows, "COLUMNS": columns} for rows in ROWS for columns in COLUMNS]
    for op in PRODUCTS:
        for dtype in (float32, int32, uint8):
            for strided in (False, True) if op == "conv_input" else (False,):
                yield from (("conv", macros_of(op, dtype, strided, body)) for body in (TILES, *lanes))


def tiles(how: Product) -> Body:
    """Shared memory: for GPUs, where there are rows enough."""
    return Body(TILES, (), -(-how.rows // SIDE) * -(-how.columns // SIDE) * how.groups)


def lanes(gpu: Any, how: Product) -> Body:
    """No shared memory. A CPU loads word by word, so that many results a lane pay, though they spill."""
    local = GPU_LOCAL if gpu.tiled else gpu.local
    rows = next(size for size in ROWS if how.rows > size // 2)
    columns = next(size for size in COLUMNS if how.columns > (size > 1) * local * size // 2)
    blocks = -(-how.rows // rows) * -(-how.columns // (local * columns)) * how.groups
    return Body({"TILED": 0, "ROWS": rows, "COLUMNS": columns}, (local,), blocks)


def join(gpu: Any, parts: Block, out: Block, splits: int, dtype: np.dtype) -> None:
    """Add the parts of sums that were cut, always in the same order."""
    x = wrap(Buffer(parts), View.dense((splits, out.words)), dtype, gpu)
    target = wrap(Buffer(out), View.dense((1, out.words)), dtype, gpu)
    gpu.run(registry["sum"], (x,), (1, out.words), total_dtype(dtype), {"axes": (0,)}, target)


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


def pushed(op: Op, how: Product, parts: tuple[int, int], left: Tensor, right: Tensor, target: Block) -> bytes:
    """Push constants, as glsl/conv.comp has them."""
    halves = [*three(how.place_step, 1), *three(how.tap_step, 1), *three(how.low, 0), 0]
    if max(map(abs, halves)) >= 1 << 15:
        raise Unsupported(f"{op.name}: a stride, dilation or padding of 32,768 or more has no Vulkan kernel")
    pairs = [(low & 0xFFFF) | (high & 0xFFFF) << 16 for low, high in zip(halves[::2], halves[1::2])]
    return pack(
        *(how.rows, how.outers, how.inners, how.groups),
        *(*three(how.places, 1), *three(how.taps, 1), *three(how.cells, 1)),
        *pairs,
        parts[0] | parts[1] << 16,
        *(left.buffer.data.offset + left.layout.offset, *how.a[:2], *three(how.a[2:], 0)),
        *(right.buffer.data.offset + right.layout.offset, *how.b[:2], *three(how.b[2:], 0)),
        target.offset,
    )


def three(values: Shape, fill: int) -> list[int]:
    """Values for three spatial axes."""
    return [fill] * (SPATIAL - len(values)) + [*values]


FAMILIES = {"conv": conv, "conv_back": conv}
