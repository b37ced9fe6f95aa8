"""Ops that read or write where an index points.

The templates are take, put, in_range, runs and nonzero. Indices out of range are reported by the kernels, and
raised when the queue is next checked.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View, row_major

from ..arena import Block, Span
from ..queue import pack
from ..walk import walk
from . import loops
from .copying import copy_to, deliver
from .sort import rank_of, sorted_pairs

WHOLE = 0x7FFFFFFF  # the end of the last piece of a run, in runs.comp
PIECE = 4096  # of a run, that a lane adds in one dispatch where that is limited
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
    """Which values are added where.

    Attributes
    ----------
    keys : View
        Of the index: axes that number lines, then those of a line.
    length : int
        Of a line.
    payloads : tuple of int
        Strides of the values along the same axes; 0 along those that number lines.
    size : int
        Keys are below it.
    region : View
        Of the result.
    fixed : tuple of int
        For each axis of the region the stride of the values; 0 along the axis that the keys count.
    starts : tuple of int
        For each axis of the region the stride in a table of `size` + 1 entries a line.
    """

    keys: View
    length: int
    payloads: Shape
    size: int
    region: View
    fixed: Shape
    starts: Shape


def put_add(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put_add`: the whole index is one line."""
    values, index = inputs
    axis, steps, size = params["axis"], values.layout.strides, params["size"]
    last = axis + index.ndim
    fixed = (*steps[:axis], 0, *steps[last:])
    starts = (*(0,) * axis, 1, *(0,) * (len(steps) - last))
    keys, length = index.layout, index.layout.size
    how = Sums(keys, length, steps[axis:last], size, View.dense(shape), fixed, starts)
    return deliver(gpu, add_runs(gpu, op, values, index, shape, how), shape, dtype, into)


def put_along_add(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `put_along_add`: what the index holds along the axis is a line."""
    values, index = inputs
    axis, full = params["axis"], shape or (1,)
    keys = index.layout if shape else View((1,), (0,), index.layout.offset)
    steps = values.layout.strides or (0,)
    order = (*(a for a in range(len(full)) if a != axis), axis)
    lines = [keys.shape[a] for a in order[:-1]]
    size, dense = full[axis], row_major(full)
    region = View((*keys.shape[:axis], size, *keys.shape[axis + 1 :]), dense)
    table = row_major((*lines, size + 1))
    starts = (*table[:axis], 1, *table[axis:-1])
    payloads = (*(0 for _ in lines), steps[axis])
    how = Sums(keys.permute(order), keys.shape[axis], payloads, size, region, without(steps, axis), starts)
    return deliver(gpu, add_runs(gpu, op, values, index, full, how), shape, dtype, into)


def add_runs(gpu: Any, op: Op, values: Tensor, index: Tensor, shape: Shape, how: Sums) -> Block:
    """Fresh words: in the region, sums of the values whose key is the same; zero elsewhere.

    The keys are sorted first, so that each sum is one lane's, runs in the order of the index, and needs no
    atomics.
    """
    gpu.check(values.dtype, op.name)
    out, empty = gpu.allocator.allocate(prod(shape)), not how.keys.size or not how.region.size
    if out.words and (empty or how.region.size < out.words):
        gpu.transfer.fill(out, 0)
    if empty:
        check_all(gpu, op, index, how.size)
        return out
    site, source = gpu.queue.site(op.name), index.buffer.data
    pairs = sorted_pairs(gpu, source, how.keys, how.length, how.payloads, "INDEX", size=how.size, site=site)
    table = how.keys.size // how.length * (how.size + 1)
    floating = values.dtype.kind == "f"
    starts = gpu.allocator.allocate(table + floating * how.region.size)
    find_starts(gpu, starts.part(0, table), pairs, how)
    path = walk(how.region.shape, how.region.strides, how.fixed, how.starts)
    macros = {"STEP": "SUM", "IN": values.dtype.name.upper()}
    shader = gpu.shaders.get("runs", macros, (gpu.local, rank_of(path)))
    piece = loops.longest(gpu, path.count, min(how.length, PIECE))
    for begin in range(0, how.length, piece):
        end = begin + piece if begin + piece < how.length else WHOLE
        params = pack(pairs.offset // 2, starts.offset + table, begin, end)
        push = path.push(out.offset, start(values), starts.offset, params=params)
        bindings = (out, starts, values.buffer.data, pairs)
        gpu.queue.dispatch(shader, loops.grid(gpu, path.count, piece), push, bindings, writes=2)
    return out


def find_starts(gpu: Any, starts: Span, pairs: Block, how: Sums) -> None:
    """Note where in the sorted pairs the run of each key begins."""
    shader = gpu.shaders.get("runs", {"STEP": "STARTS"}, (gpu.local,))
    push = pack(starts.words, how.size, how.length, starts.offset, pairs.offset // 2)
    grid = loops.grid(gpu, starts.words, how.length.bit_length())
    gpu.queue.dispatch(shader, grid, push, (starts, pairs))


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
