"""Random numbers by counter, and the counter's way forward: glsl/random.comp."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from .copying import copy_to, deliver
from .elementwise import rows_of


def random(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `random`: a lane makes four neighbours from one block of words."""
    state = inputs[0].buffer.data
    block = gpu.allocator.allocate(prod(shape))
    if block.words:
        shader = gpu.shaders.get("random", {f"OP_{op.name}": 1}, (gpu.local,))
        push = pack(block.words, block.offset, *cells(state, inputs[0].layout))
        lanes = block.words if gpu.device.is_cpu else block.words // 4
        gpu.queue.dispatch(shader, gpu.grid(lanes), push, (block, state))
    return deliver(gpu, block, shape, dtype, into)


def advance(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `advance`: over the state itself, or over a copy."""
    (state,) = inputs
    in_place = into is not None and into.buffer is state.buffer and into.layout == state.layout
    block, view = state.buffer.data, state.layout
    if not in_place:
        block, view = gpu.allocator.allocate(4), View.dense((4,))
        copy_to(gpu, state, block, view)
    shader = gpu.shaders.get("random", {"OP_advance": 1}, (1,))
    blocks = params["blocks"]
    push = pack(*cells(block, view), blocks & 0xFFFFFFFF, blocks >> 32 & 0xFFFFFFFF)
    gpu.queue.dispatch(shader, (1, 1, 1), push, (block,))
    return None if in_place else deliver(gpu, block, shape, dtype, into)


def cells(block: Block, view: View) -> list[int]:
    """Where the four words of a state lie."""
    return [block.offset + view.offset + i * view.strides[0] for i in range(4)]


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield from (("random", {f"OP_{op.name}": 1}) for op in (*rows_of("random"), *rows_of("advance")))
