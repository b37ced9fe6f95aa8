"""Convolution whose groups have one channel each, on GPUs: glsl/depthwise.comp."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.dtypes import float32, int32, uint8
from tinyadept.tensor import Tensor

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import loops
from .conv_product import Product, dense_cells, start, three
from .joining import Finish, both, join, types

LANES, AT_ONCE = 128, 9  # of the workgroups that sum up a gradient of weights, and the cells of each
DOWN = 4  # results of a lane where windows are 3 × 3
SHORTEST = 4  # positions of a lane
MOST_GROUPS = 1 << 14
LONGEST = 1 << 12  # windows for one lane of a CPU driver


def fits(how: Product) -> bool:
    """Whether groups have one channel; for `conv_weight`, whether the weights' groups have."""
    alone = how.rows if how.op == "conv_input" else how.outers if how.op == "conv_weight" else how.inners
    many = how.inners if how.op == "conv_input" else how.rows
    return alone == 1 and prod(how.taps if how.op != "conv_weight" else how.places) * many <= LONGEST


def multiply(
    gpu: Any, how: Product, left: Tensor, right: Tensor, finish: Finish, out: Block, dtype: np.dtype
) -> None:
    """Note what computes the op, finished, to dense words."""
    left, right = dense_cells(gpu, left), dense_cells(gpu, right)
    lanes = out.words
    if square(how):
        lanes = lanes // how.places[0] * -(-how.places[0] // DOWN)
    parts, groups = 1, loops.grid(gpu, lanes, (2 * prod(how.taps) + 2) * max(how.inners, DOWN) + 2)
    if how.op == "conv_weight":
        parts, groups = cut(gpu, how, dtype)
    pitch = -(-out.words // 4) * 4
    target = gpu.allocator.allocate(parts * pitch) if parts > 1 else out
    push = pushed(how, left, right, finish, target, parts, pitch)
    bindings = (target, left.buffer.data, right.buffer.data, finish.bound(left.buffer.data))
    constants = () if how.op == "conv_weight" else (gpu.local, finish.activation)
    macros = macros_of(how.op, dtype, how.strided, square(how), finish.activation)
    shader = gpu.shaders.get("depthwise", macros, constants)
    gpu.queue.dispatch(shader, groups, push, bindings)
    if parts > 1:
        join(gpu, target, pitch, out, parts, dtype)


def square(how: Product) -> bool:
    """Whether there is a kernel of its own: 3 × 3 cells, side by side, one further at each place."""
    one = all(s == 1 for s in (*how.place_step, *how.tap_step))
    return how.op != "conv_weight" and how.taps == (3, 3) and one


def cut(gpu: Any, how: Product, dtype: np.dtype) -> tuple[int, tuple[int, int, int]]:
    """Into how many parts the positions of all samples are cut, and how many workgroups there are."""
    positions = how.inners * prod(how.taps)
    whole = how.groups * how.rows * -(-prod(how.places) // AT_ONCE)
    wanted = loops.at_once(gpu) * (1 if gpu.device.is_cpu else 4)
    parts = min(-(-wanted // whole), max(1, int(positions // (LANES * SHORTEST))))
    if gpu.device.is_cpu:
        parts = max(parts, -(-positions // (LANES * loops.TURNS // 8)))
    parts = parts if dtype == float32 else 1
    groups = loops.power_of_two(whole * parts, MOST_GROUPS)
    turns = -(-positions // (parts * LANES)) + 100
    while (
        gpu.device.is_cpu and groups < loops.MOST_GROUPS and -(-whole * parts // groups) * turns > loops.TURNS
    ):
        groups *= 2
    return parts, (groups, 1, 1)


def pushed(
    how: Product, left: Tensor, right: Tensor, finish: Finish, target: Block, parts: int, pitch: int
) -> bytes:
    """Push constants, as glsl/depthwise.comp has them."""
    weight = how.op == "conv_weight"
    samples = how.inners if weight else how.outers
    many = how.inners if how.op == "conv_input" else how.rows
    places, taps = (how.taps, how.places) if weight else (how.places, how.taps)
    steps, dilations = (how.tap_step, how.place_step) if weight else (how.place_step, how.tap_step)
    sample, channel = right.layout.strides[:2]
    row = left.layout.strides[1] if weight else left.layout.strides[0]
    return pack(
        *(samples, how.groups, many),
        *(*three(places, 1), *three(taps, 1), *three(how.cells, 1)),
        *(*three(steps, 1), *three(dilations, 1), *three(how.low, 0)),
        *(start(left), row, left.layout.strides[0]),
        *(start(right), channel, sample),
        *(*finish.words, target.offset, parts, pitch),
    )


def macros_of(op: str, dtype: np.dtype, strided: bool, squared: bool, activation: int = 0) -> Macros:
    of_dtype = types(dtype, activation)
    three_of = str(of_dtype["TYPE4"]).replace("4", "3")
    return {f"OP_{op}": 1, **of_dtype, "TYPE3": three_of, "STRIDED": int(strided), "SQUARE": int(squared)}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for dtype in (float32, int32, uint8):
        for op in ("conv", "conv_input", "conv_weight"):
            for act in both(dtype) if op == "conv" else (0,):
                yield "depthwise", macros_of(op, dtype, False, False, act)
                if op == "conv_input":
                    yield "depthwise", macros_of(op, dtype, True, False)
                if op != "conv_weight":
                    yield "depthwise", macros_of(op, dtype, False, True, act)
