"""Stable sorting of many lines at once: glsl/sort.comp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View, row_major

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from ..walk import MAX_RANK, Walk, walk
from . import loops
from .copying import deliver
from .elementwise import LARGE

RUN = 8  # pairs that a lane of a CPU sorts; glsl/sort.comp has the same
EACH_LANE = 4  # pairs of a lane of a GPU; here too
KINDS = {"f": "FLOAT32", "i": "INT32", "u": "WORD", "b": "WORD"}


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `sort`: positions in the order of their elements."""
    (x,) = inputs
    gpu.check(x.dtype, op.name)
    out = gpu.allocator.allocate(x.layout.size)
    if out.words:
        axis, rank = (params["axis"], x.ndim) if x.shape else (0, 1)
        layout = x.layout if x.shape else View((1,), (0,), x.layout.offset)
        order = (*(a for a in range(rank) if a != axis), axis)
        view = layout.permute(order)
        positions = (*(0,) * (rank - 1), 1)
        flip = 0xFFFFFFFF if params["descending"] else 0
        keys = Keys(x.buffer.data, view, view.shape[-1], positions, KINDS[x.dtype.kind], flip)
        pairs = sorted_pairs(gpu, keys)
        back = [order.index(a) for a in range(rank)]
        second = View(view.shape, tuple(2 * s for s in row_major(view.shape)), 1)
        gpu.transfer.gather(out, pairs, second.permute(back))
    return deliver(gpu, out, shape, dtype, into)


class Keys(NamedTuple):
    """What is sorted.

    Attributes
    ----------
    source : Block
    view : View
        The last axes together are a line, those before them number the lines. Not empty.
    length : int
        Of a line.
    payloads : tuple of int
        A stride for each axis of the view: the payload of an element is the sum of its steps.
    kind : str
        How words become keys: ``"FLOAT32"``, ``"INT32"``, ``"WORD"``, or ``"INDEX"``: an int32 that must lie
        in [0, `size`), else it is reported at `site` and goes behind the others.
    flip : int
        Bits to turn over in the keys; all of them sort from the largest down.
    """

    source: Block
    view: View
    length: int
    payloads: Shape
    kind: str
    flip: int = 0
    size: int = 0
    site: int = 0


def sorted_pairs(gpu: Any, keys: Keys) -> Block:
    """Pairs of words, a key and its payload, sorted line by line; what is equal keeps its order."""
    count, length = keys.view.size, keys.length
    old, new = (gpu.allocator.allocate(2 * count) for _ in range(2))
    run = sort_runs(gpu, keys, new)
    merge = gpu.shaders.get("sort", {"STEP": "MERGE"}, (gpu.local,))
    while run < length:
        old, new = new, old
        push = pack(count, length, run, new.offset // 2, old.offset // 2)
        gpu.queue.dispatch(merge, loops.grid(gpu, count, run.bit_length()), push, (new, old))
        run *= 2
    return new


def sort_runs(gpu: Any, keys: Keys, pairs: Block) -> int:
    """Note the first pass, which makes pairs and sorts runs of them; how long those are."""
    path, length = walk(keys.view.shape, keys.view.strides, keys.payloads), keys.length
    lines = path.count // length
    if gpu.tiled:
        run = EACH_LANE * gpu.local
        groups = -(-lines // (run // length)) if length <= run else lines * -(-length // run)
        macros, spec = {"STEP": "CHUNKS"}, (run,)
        doublings = run.bit_length()
        grid = loops.grid(gpu, groups * gpu.local, doublings * EACH_LANE * (doublings + 6))
    else:
        run, macros, spec = RUN, {"STEP": "RUNS"}, ()
        groups = lines * -(-length // run)
        grid = loops.grid(gpu, path.count, RUN)
    params = pack(pairs.offset // 2, length, keys.flip, groups, keys.size, keys.site)
    push = path.push(keys.source.offset + keys.view.offset, 0, params=params)
    shader = gpu.shaders.get("sort", macros | {"KEYS": keys.kind}, (gpu.local, rank_of(path), *spec))
    status = (gpu.queue.reports,) if keys.kind == "INDEX" else ()
    gpu.queue.dispatch(shader, grid, push, (pairs, keys.source, *status))
    return run


def rank_of(path: Walk) -> int:
    """For how many axes a kernel is built: for all that there may be, unless the work is large."""
    return path.rank if path.count >= LARGE else MAX_RANK


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield "sort", {"STEP": "MERGE"}
    for kind in {*KINDS.values(), "INDEX"}:
        yield from (("sort", {"STEP": step, "KEYS": kind}) for step in ("CHUNKS", "RUNS"))
