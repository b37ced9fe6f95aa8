"""Ops that only move elements, and those that say what a fresh tensor holds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import elementwise


def deliver(gpu: Any, block: Block, shape: Shape, dtype: np.dtype, into: Tensor | None) -> Buffer | None:
    """Hand a dense result over: as it is, or copied over `into`, whatever layout and dtype that has."""
    fresh = Buffer(block)
    if into is None:
        return fresh
    x = wrap(fresh, View.dense(shape), dtype, gpu)
    elementwise.dispatch(gpu, registry["copy"], (x,), into.buffer.data, into.layout, into.dtype, {})
    return None


def copy_to(gpu: Any, x: Tensor, block: Block, view: View) -> None:
    """Note a copy of a tensor to a view of a block."""
    low, high = view.span  # only these words wait for others
    inside = View(view.shape, view.strides, view.offset - low)
    elementwise.dispatch(gpu, registry["copy"], (x,), block.part(low, high - low), inside, x.dtype, {})


def cat(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `cat`: one copy for each input."""
    block, whole = gpu.allocator.allocate(prod(shape)), View.dense(shape)
    axis, start = params["axis"], 0
    for x in inputs:
        stop = start + x.shape[axis]
        key = tuple(slice(start, stop) if a == axis else slice(None) for a in range(len(shape)))
        copy_to(gpu, x, block, whole.index(key))
        start = stop
    return deliver(gpu, block, shape, dtype, into)


def place(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `place`: a number or a tensor as background, and a copy over a part of it."""
    *base, value = inputs
    block, whole, region = gpu.allocator.allocate(prod(shape)), View.dense(shape), params["move"].view(shape)
    if region.size < whole.size:
        if base:
            copy_to(gpu, base[0], block, whole)
        else:
            gpu.transfer.fill(block, word_of(params.get("fill", 0), dtype))
    copy_to(gpu, value, block, region)
    return deliver(gpu, block, shape, dtype, into)


def create(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `create`."""
    block = gpu.allocator.allocate(prod(shape))
    if block.words and op.name == "full":
        gpu.transfer.fill(block, word_of(params["value"], dtype))
    elif block.words:
        arange(gpu, block, params["start"], params["step"], dtype)
    return deliver(gpu, block, shape, dtype, into)


def arange(gpu: Any, block: Block, start: float, step: float, dtype: np.dtype) -> None:
    exact = isinstance(start, int) and isinstance(step, int)
    kind = 1 if dtype.kind == "f" else 0 if exact else 2
    terms = (start, step) if kind == 0 else (*halves(start), *halves(step))
    shader = gpu.shaders.get("arange", {"KIND": kind, "OUT": dtype.name.upper()}, (gpu.local,))
    push = pack(block.words, block.offset, *terms)
    gpu.queue.dispatch(shader, gpu.grid(block.words), push, (block,))


def halves(number: float) -> tuple[float, float]:
    """A double as the sum of two floats; the last four bits may go."""
    high = float(np.float32(number))
    return high, float(np.float32(number - high))


def word_of(number: float, dtype: np.dtype) -> int:
    """The word that holds a number as an element of this dtype."""
    with np.errstate(all="ignore"):
        element = np.array(number).astype(dtype)
    return int(element.view(np.uint32)) if dtype.itemsize == 4 else int(element)


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for dtype in elementwise.ELEMENTS:
        kinds = (1,) if dtype.kind == "f" else (0, 2)
        yield from (("arange", {"KIND": kind, "OUT": dtype.name.upper()}) for kind in kinds)
