"""Winograd's convolution with 3 × 3 cells: glsl/winograd.comp around the matrix products of matmul.py."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.dtypes import float32
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import loops, matmul
from .conv_product import Product, dense_cells, start
from .joining import Finish

SIDES = (2, 4)
MOST_WORDS = 1 << 26  # of transformed cells at a time
PRODUCTS, GATHERED, MOVED = 33e6, 30e6, 2.5e6  # measured: operations a microsecond, and bytes
STAGES = 30.0  # microseconds of the dispatches that are more


def fits(how: Product, dtype: np.dtype) -> bool:
    """Whether this is a convolution with 3 × 3 cells and steps of one, forwards or to its input."""
    one = all(s == 1 for s in (*how.place_step, *how.tap_step))
    return dtype == float32 and how.op != "conv_weight" and how.taps == (3, 3) and one


def cost(how: Product, side: int) -> float:
    """Microseconds that this way should take on a large GPU: products, and cells written and read again."""
    spots, tiles = (side + 2) ** 2, how.outers * prod(-(-n // side) for n in how.places)
    products = 2 * spots * tiles * how.groups * how.rows * how.inners / PRODUCTS
    return products + 8 * spots * tiles * how.groups * (how.rows + how.inners) / MOVED + STAGES


def direct(how: Product) -> float:
    """Microseconds of the product of matrices that is gathered while it is loaded."""
    return 2 * how.groups * how.rows * how.columns * how.terms / GATHERED


def multiply(
    gpu: Any,
    how: Product,
    left: Tensor,
    right: Tensor,
    finish: Finish,
    out: Block,
    dtype: np.dtype,
    side: int,
) -> None:
    """Note what computes the op, finished, to dense words, in tiles of ``side × side`` results."""
    right = dense_cells(gpu, right)
    spots, channels, rows = (side + 2) ** 2, how.groups * how.inners, how.groups * how.rows
    tiles = tuple(-(-n // side) for n in how.places)
    weights = gpu.allocator.allocate(spots * rows * how.inners)
    most = max(1, MOST_WORDS // (spots * max(channels, rows) * prod(tiles)))
    for first in range(0, how.outers, most):
        samples = min(most, how.outers - first)
        pitch = -(-samples * prod(tiles) // 4) * 4
        cells = gpu.allocator.allocate(spots * channels * pitch)
        sums = gpu.allocator.allocate(spots * rows * pitch)
        part = out.part(first * rows * prod(how.places), samples * rows * prod(how.places))
        given = (how, left, right, finish, first, samples, tiles, pitch)
        if not first:
            run(gpu, "weight", side, weights, sums, rows * how.inners, 1, *given)
        run(gpu, "input", side, cells, sums, channels * pitch, 1, *given)
        u = wrap(Buffer(weights), View.dense((spots, how.groups, how.rows, how.inners)), dtype, gpu)
        v = wrap(Buffer(cells), View.dense((spots, how.groups, how.inners, pitch)), dtype, gpu)
        matmul.multiply(gpu, u, v, sums, (spots, how.groups, how.rows, pitch), dtype)
        run(gpu, "output", side, part, sums, rows * samples * prod(tiles), 9 * how.inners, *given)


def run(
    gpu: Any,
    stage: str,
    side: int,
    target: Any,
    sums: Block,
    lanes: int,
    turns: int,
    how: Product,
    left: Tensor,
    right: Tensor,
    finish: Finish,
    first: int,
    samples: int,
    tiles: tuple[int, ...],
    pitch: int,
) -> None:
    """Note one stage."""
    strict = how.op == "conv_input"
    row, inner, *taps = how.a
    begin, lows = start(left), how.low
    if strict:  # a convolution with the kernel turned around
        begin += 2 * sum(taps)
        taps, lows = [-t for t in taps], tuple(2 - low for low in lows)
    group = (how.inners if strict else how.rows) * left.layout.strides[0]
    sample, channel = right.layout.strides[:2]
    push = pack(
        *(samples, how.groups, how.rows, how.inners, *how.places, *how.cells, *lows, *tiles, pitch),
        *(begin, group, row, inner, *taps),
        *(start(right) + first * sample, sample, channel),
        *(sums.offset, *finish.words, target.offset),
    )
    constants = (gpu.local, finish.activation) if stage == "output" else (gpu.local,)
    shader = gpu.shaders.get("winograd", macros_of(stage, side, strict, finish.activation), constants)
    x, w = right.buffer.data, left.buffer.data
    bindings = (target, sums, x, w, finish.bound(w))
    if stage != "output":  # which alone reads the sums
        bindings = (target, x, x, w, w)
    gpu.queue.dispatch(shader, loops.grid(gpu, lanes, turns + 60), push, bindings)


def macros_of(stage: str, side: int, strict: bool, activation: int = 0) -> dict[str, int]:
    last = stage == "output"
    macros = {f"STAGE_{stage}": 1, "SIDE": side, "STRICT": int(strict and last)}
    return {**macros, "ACTIVATED": int(activation > 0 and last)}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for side in SIDES:
        for stage in ("weight", "input", "output"):
            yield from (("winograd", macros_of(stage, side, s)) for s in {stage == "output", False})
        yield "winograd", macros_of("output", side, False, 1)
