"""Ops that only move elements, and those that say what a fresh tensor holds."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from ..walk import walk
from . import elementwise

FOUR = 4
PARTS = 7  # inputs that one dispatch of glsl/cat.comp takes


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
    """Run the family `cat`: one dispatch for inputs whose rows are dense, and a copy for each other one."""
    block, whole = gpu.allocator.allocate(prod(shape)), View.dense(shape)
    axis, start = params["axis"], 0
    alike: dict[Any, list[Part]] = {}
    for x in inputs:
        stop = start + x.shape[axis]
        step = row_step(x.layout, axis)
        if step is None:
            key = tuple(slice(start, stop) if a == axis else slice(None) for a in range(len(shape)))
            copy_to(gpu, x, block, whole.index(key))
        elif x.layout.size:
            inner = prod(shape[axis + 1 :])
            part = Part(x, step, start * inner, (stop - start) * inner)
            alike.setdefault(x.buffer.data.memory, []).append(part)
        start = stop
    for parts in alike.values():
        for first in range(0, len(parts), PARTS):
            lay_out(gpu, parts[first : first + PARTS], prod(shape[:axis]), prod(shape[axis:]), block)
    return deliver(gpu, block, shape, dtype, into)


class Part(NamedTuple):
    """An input of `cat`: how far its rows lie apart, in which column it begins, and how long its rows are."""

    x: Tensor
    step: int
    column: int
    length: int


def row_step(view: View, axis: int) -> int | None:
    """How far the rows of all axes from this one on lie apart; None if they are not dense, or uneven."""
    if not View(view.shape[axis:], view.strides[axis:], 0).is_contiguous:
        return None
    path = walk(view.shape[:axis], view.strides[:axis])
    if path.count < 2:
        return 0
    return path.strides[0][0] if path.rank == 1 else None


def lay_out(gpu: Any, parts: list[Part], rows: int, pitch: int, block: Block) -> None:
    """Note the dispatch of glsl/cat.comp for inputs in one memory."""
    offsets = [part.x.buffer.data.offset + part.x.layout.offset for part in parts]
    columns = [offsets, *([part[at] for part in parts] for at in (1, 2, 3))]
    numbers = [block.offset, pitch, *(number for column in columns for number in column)]
    width = FOUR if all(number % FOUR == 0 for number in numbers) else 1
    total = sum(part.length for part in parts) // width
    padded = [n // width for column in columns for n in (*column, *(0,) * (PARTS - len(parts)))]
    push = pack(rows, total, block.offset // width, pitch // width, *padded)
    shader = gpu.shaders.get("cat", {"WIDTH": width}, (gpu.local,))
    sources = [part.x.buffer.data.part(*span_of(part.x.layout)) for part in parts]
    low, high = min(columns[2]), (rows - 1) * pitch + max(part.column + part.length for part in parts)
    bindings = (block.part(low, high - low), sources[0])
    gpu.queue.dispatch(shader, gpu.grid(rows * total), push, bindings, also_reads=sources[1:])


def span_of(view: View) -> tuple[int, int]:
    low, high = view.span
    return low, high - low


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
    yield from (("cat", {"WIDTH": width}) for width in (1, FOUR))
