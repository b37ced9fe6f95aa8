"""Ops that read or write where an index points.

The templates are take, put, in_range, runs and nonzero. Indices out of range are reported by the kernels, and
raised when the queue is next checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View, row_major

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from ..walk import walk
from . import loops
from .copying import copy_to, deliver
from .elementwise import ELEMENTS
from .sort import Keys, rank_of, sorted_pairs

PART = 64  # elements that a lane of nonzero.comp walks; the template has the same
SPLIT_RANK = 25


def take(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `take`."""
    x, index = inputs
    axis, steps, size = params["axis"], x.layout.strides or (0,), (x.shape or (1,))[params["axis"]]
    fixed = (*steps[:axis], *(0,) * index.ndim, *steps[axis + 1 :])
    spread = (*(0,) * axis, *index.layout.strides, *(0,) * (len(shape) - axis - index.ndim))
    out = gather(gpu, op, x, index, shape, fixed, spread, (size,), (steps[axis],))
    return deliver(gpu, out, shape, dtype, into)


def take_along(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `take_along`."""
    x, index = inputs
    axis, steps = params["axis"], x.layout.strides or (0,)
    fixed = without(steps, axis) if shape else ()
    size = (x.shape or (1,))[axis]
    out = gather(gpu, op, x, index, shape, fixed, index.layout.strides, (size,), (steps[axis],))
    return deliver(gpu, out, shape, dtype, into)


def gather(
    gpu: Any,
    op: Op,
    x: Tensor,
    index: Tensor,
    shape: Shape,
    fixed: Shape,
    spread: Shape,
    lengths: Shape,
    steps: Shape,
) -> Block:
    """Fresh, dense words: for each cell of `shape` the element of x to which the index points.

    Parameters
    ----------
    fixed, spread : tuple of int
        For each axis of `shape` the stride in x, and that in the index.
    lengths, steps : tuple of int
        Of the axes of x, three at most, whose flattened position the index gives.
    """
    gpu.check(x.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if not out.words:
        check_all(gpu, op, index, prod(lengths))
        return out
    path, plane = walk(shape, fixed, spread), walk(lengths, steps)
    pad = 3 - plane.rank
    reach = (*(0,) * pad, *plane.strides[0], *((1, 1, *plane.shape)[-2:]))
    params = pack(out.offset, plane.count, gpu.queue.site(op.name), *reach)
    push = path.push(start(x), start(index), params=params)
    shader = gpu.shaders.get("take", {"PLANES": int(plane.rank > 1)}, (gpu.local, rank_of(path)))
    bindings = (out, x.buffer.data, index.buffer.data, gpu.queue.reports)
    gpu.queue.dispatch(shader, loops.grid(gpu, out.words), push, bindings)
    return out


def put(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put`."""
    base, index, values = inputs
    axis, after = params["axis"], values.ndim - params["axis"] - index.ndim
    steps = row_major(shape)
    target = (*steps[:axis], *(0,) * index.ndim, *steps[axis + 1 :])
    spread = (*(0,) * axis, *index.layout.strides, *(0,) * after)
    out = put_last(gpu, op, base, index, values, target, spread, axis)
    return deliver(gpu, out, shape, dtype, into)


def put_along(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put_along`."""
    base, index, values = inputs
    target = without(row_major(shape), params["axis"]) if shape else ()
    out = put_last(gpu, op, base, index, values, target, index.layout.strides, params["axis"])
    return deliver(gpu, out, shape, dtype, into)


def put_last(
    gpu: Any, op: Op, base: Tensor, index: Tensor, values: Tensor, target: Shape, spread: Shape, axis: int
) -> Block:
    """A copy of the base with values put where the index points; of several in a cell the last one stays.

    Values race for their cell with their numbers, of which an atomic maximum keeps the largest, whatever the
    order in which they come.

    Parameters
    ----------
    target, spread : tuple of int
        For each axis of the values the stride in the result, and that in the index.
    """
    shape = base.shape or (1,)
    out = gpu.allocator.allocate(prod(shape))
    copy_to(gpu, base, out, View.dense(base.shape))
    path = walk(values.shape, target, spread, values.layout.strides)
    if not path.count or not out.words:
        check_all(gpu, op, index, shape[axis])
        return out
    marks = gpu.allocator.allocate(out.words)
    gpu.transfer.fill(marks, 0)
    params = pack(row_major(shape)[axis], shape[axis], gpu.queue.site(op.name), marks.offset - out.offset)
    push = path.push(out.offset, start(index), start(values), params=params)
    spec, grid = (gpu.local, rank_of(path)), loops.grid(gpu, path.count)
    mark = gpu.shaders.get("put", {"STEP": "MARK"}, spec)
    gpu.queue.dispatch(mark, grid, push, (marks, index.buffer.data, gpu.queue.reports))
    write = gpu.shaders.get("put", {"STEP": "WRITE"}, spec)
    gpu.queue.dispatch(write, grid, push, (out, index.buffer.data, values.buffer.data, marks))
    return out


def put_apart(gpu: Any, op: Op, values: Tensor, index: Tensor, words: int, target: Shape, size: int) -> Block:
    """Fresh words: the values where the index points, which is another place for each; zero elsewhere."""
    gpu.check(values.dtype, op.name)
    out = gpu.allocator.allocate(words)
    if out.words:
        gpu.transfer.fill(out, 0)
    path = walk(values.shape, target, index.layout.strides, values.layout.strides)
    if not path.count or not out.words:
        check_all(gpu, op, index, size)
        return out
    push = path.push(
        out.offset, start(index), start(values), params=pack(1, size, gpu.queue.site(op.name), 0)
    )
    shader = gpu.shaders.get("put", {"STEP": "PLAIN"}, (gpu.local, rank_of(path)))
    bindings = (out, index.buffer.data, values.buffer.data, gpu.queue.reports)
    gpu.queue.dispatch(shader, loops.grid(gpu, path.count), push, bindings)
    return out


class Sums(NamedTuple):
    """Which values are added where. All pairs of an index and a value are walked together.

    Attributes
    ----------
    keys : View
        Of the index: axes that number lines, then those of a line.
    length : int
        Of a line.
    payloads : tuple of int
        Strides of the values along the axes of `keys`; 0 along those that number lines.
    size : int
        Keys are below it.
    shape : tuple of int
        What is walked: the values, with those axes that are a line as one.
    target, fixed, pairs : tuple of int
        For each axis of the shape the stride in the result, in the values, and in the sorted pairs; the first
        two are 0 along the line.
    step : int
        Stride of the result from one key to the next.
    """

    keys: View
    length: int
    payloads: Shape
    size: int
    shape: Shape
    target: Shape
    fixed: Shape
    pairs: Shape
    step: int


def put_add(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put_add`: the whole index is one line."""
    values, index = inputs
    axis, steps, last = params["axis"], values.layout.strides, params["axis"] + index.ndim
    dense = row_major(shape)
    how = Sums(
        keys=index.layout,
        length=index.layout.size,
        payloads=steps[axis:last],
        size=params["size"],
        shape=(*shape[:axis], index.layout.size, *shape[axis + 1 :]),
        target=without(dense, axis),
        fixed=(*steps[:axis], 0, *steps[last:]),
        pairs=(*(0,) * axis, 1, *(0,) * (len(steps) - last)),
        step=dense[axis],
    )
    return deliver(gpu, add_runs(gpu, op, values, index, shape, how), shape, dtype, into)


def put_along_add(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put_along_add`: what the index holds along the axis is a line."""
    values, index = inputs
    axis, full = params["axis"], shape or (1,)
    keys = index.layout if shape else View((1,), (0,), index.layout.offset)
    steps, dense = values.layout.strides or (0,), row_major(full)
    order = (*(a for a in range(len(full)) if a != axis), axis)
    lines = row_major(tuple(keys.shape[a] for a in order))
    how = Sums(
        keys=keys.permute(order),
        length=keys.shape[axis],
        payloads=(*(0,) * (len(full) - 1), steps[axis]),
        size=full[axis],
        shape=keys.shape,
        target=without(dense, axis),
        fixed=without(steps, axis),
        pairs=(*lines[:axis], 1, *lines[axis:-1]),
        step=dense[axis],
    )
    return deliver(gpu, add_runs(gpu, op, values, index, full, how), shape, dtype, into)


def add_runs(gpu: Any, op: Op, values: Tensor, index: Tensor, shape: Shape, how: Sums) -> Block:
    """Fresh words: sums of the values whose key is the same, and zero where there are none.

    The keys are sorted first, so that each sum is one lane's, runs in the order of the index, and needs no
    atomics.
    """
    gpu.check(values.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if out.words:
        gpu.transfer.fill(out, 0)
    if not out.words or not values.layout.size:
        check_all(gpu, op, index, how.size)
        return out
    keys = Keys(index.buffer.data, how.keys, how.length, how.payloads, "INDEX")
    pairs = sorted_pairs(gpu, keys._replace(size=how.size, site=gpu.queue.site(op.name)))
    path = walk(how.shape, how.target, how.fixed, how.pairs)
    piece = loops.longest(gpu, path.count)
    count = -(-how.length // piece)
    lost = gpu.allocator.allocate(path.count) if count > 1 and values.dtype.kind == "f" else out
    spec = (gpu.local, rank_of(path), piece)
    shader = gpu.shaders.get("runs", {"IN": values.dtype.name.upper()}, spec)
    grid = loops.grid(gpu, path.count, min(piece, how.length))
    for number in range(count):
        params = pack(how.step, how.length, lost.offset, number | (number == count - 1) << 31)
        push = path.push(out.offset, start(values), pairs.offset // 2, params=params)
        bindings = (out, lost, values.buffer.data, pairs)
        gpu.queue.dispatch(shader, grid, push, bindings, writes=2)
    return out


def in_range(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `in_range`."""
    out = counted(gpu, op, inputs[0], -params["size"], params["size"])
    return deliver(gpu, out, shape, dtype, into)


def check_all(gpu: Any, op: Op, index: Tensor, size: int) -> None:
    """Look for bad indices where there is nothing else to do with them."""
    counted(gpu, op, index, 0, size)


def counted(gpu: Any, op: Op, index: Tensor, lowest: int, size: int) -> Block:
    """Indices counted from the front, of those that lie in [lowest, size)."""
    out = gpu.allocator.allocate(index.layout.size)
    if out.words:
        path = walk(index.shape, index.layout.strides)
        params = pack(out.offset, lowest, size, gpu.queue.site(op.name))
        shader = gpu.shaders.get("in_range", None, (gpu.local, rank_of(path)))
        bindings = (out, index.buffer.data, gpu.queue.reports)
        gpu.queue.dispatch(
            shader, loops.grid(gpu, out.words), path.push(start(index), params=params), bindings
        )
    return out


def nonzero(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `nonzero`: flat positions by a prefix sum, then one position an axis."""
    (mask,) = inputs
    gpu.check(mask.dtype, op.name)
    out, rank = gpu.allocator.allocate(prod(shape)), mask.ndim
    if rank > SPLIT_RANK:
        raise Unsupported(f"{op.name}: {rank} axes, and the Vulkan kernel writes {SPLIT_RANK} at most")
    if out.words:
        found = flat_positions(gpu, mask, shape[0])
        steps = (*row_major(mask.shape), *(1,) * (SPLIT_RANK - rank))
        push = pack(out.words, rank, out.offset, found.offset, *steps)
        shader = gpu.shaders.get("nonzero", {"STEP": "SPLIT"}, (gpu.local,))
        gpu.queue.dispatch(shader, loops.grid(gpu, out.words), push, (out, found))
    return deliver(gpu, out, shape, dtype, into)


def flat_positions(gpu: Any, mask: Tensor, count: int) -> Block:
    """Where a mask is not zero, in row-major order; the mask is not empty."""
    path, grid = walk(mask.shape, mask.layout.strides), loops.grid(gpu, mask.layout.size, PART)
    bits = 0x7FFFFFFF if mask.dtype.kind == "f" else 0xFFFFFFFF  # -0 is zero
    spec, source = (gpu.local, rank_of(path)), mask.buffer.data
    counts = gpu.allocator.allocate(-(-path.count // PART))
    shader = gpu.shaders.get("nonzero", {"STEP": "COUNT"}, spec)
    push = path.push(start(mask), params=pack(bits, counts.offset, 0, 0))
    gpu.queue.dispatch(shader, grid, push, (counts, source))
    accumulate(gpu, counts)
    found = gpu.allocator.allocate(count)
    shader = gpu.shaders.get("nonzero", {"STEP": "FIND"}, spec)
    push = path.push(start(mask), params=pack(bits, found.offset, counts.offset, count))
    gpu.queue.dispatch(shader, grid, push, (found, source, counts))
    return found


def accumulate(gpu: Any, counts: Block) -> None:
    """Replace each count by the sum of those before it: sums of parts first, then down again."""
    levels = [counts]
    add = gpu.shaders.get("nonzero", {"STEP": "ADD"}, (gpu.local,))
    while levels[-1].words > PART:
        below, above = levels[-1], gpu.allocator.allocate(-(-levels[-1].words // PART))
        push = pack(below.words, below.offset, above.offset)
        gpu.queue.dispatch(add, loops.grid(gpu, below.words, PART), push, (above, below))
        levels.append(above)
    spread = gpu.shaders.get("nonzero", {"STEP": "SPREAD"}, (gpu.local,))
    before, above = levels[-1], -1
    for below in reversed(levels):
        gpu.queue.dispatch(
            spread,
            loops.grid(gpu, below.words, PART),
            pack(below.words, below.offset, above),
            (below, before),
        )
        before, above = below, below.offset


def start(x: Tensor) -> int:
    """The first element's word, from the start of its memory."""
    return x.buffer.data.offset + x.layout.offset


def without(strides: Shape, axis: int) -> Shape:
    """The same strides, standing still along one axis."""
    return (*strides[:axis], 0, *strides[axis + 1 :])


FAMILIES = {
    "take": take,
    "take_along": take_along,
    "put": put,
    "put_along": put_along,
    "put_add": put_add,
    "put_along_add": put_along_add,
    "in_range": in_range,
    "nonzero": nonzero,
}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield from (("take", {"PLANES": planes}) for planes in (0, 1))
    yield from (("put", {"STEP": step}) for step in ("MARK", "WRITE", "PLAIN"))
    yield from (("runs", {"IN": dtype.name.upper()}) for dtype in ELEMENTS)
    yield "in_range", {}
    yield from (("nonzero", {"STEP": step}) for step in ("SPLIT", "COUNT", "FIND", "ADD", "SPREAD"))
