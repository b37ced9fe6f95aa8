"""Pooling: glsl/pool.comp, and by given indices with the kernels of the indexing families."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.dtypes import float32
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, row_major

from ..arena import Block
from ..queue import pack
from ..shaders import Macros
from . import loops
from .conv import three
from .copying import deliver
from .elementwise import dtypes_of, rows_of
from .index import Sums, add_runs, gather, put_apart, start

SHARES = {"padded": 1, "inside": 2}
LARGE = 1 << 16  # elements from which a kernel of its own for a size of windows is worth building
UNROLLED = 64  # turns at most


def pool(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `pool`."""
    (x,) = inputs
    out = slide(gpu, op, x, x.shape[2:], shape, params, prod(params["kernel"]))
    return deliver(gpu, out, shape, dtype, into)


def pool_back(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `pool_back`."""
    geometry = known_windows(op, inputs, params)
    if geometry is None:
        out = put_back(gpu, op, inputs[0], inputs[1], shape, params["apart"])
    else:
        dilation = geometry.get("dilation", (1,) * len(shape))
        sizes = zip(geometry["kernel"], geometry["stride"], dilation)
        over = ((k - 1) * d // s + 1 for k, s, d in sizes)  # windows over a cell
        out = slide(gpu, op, inputs[0], shape[2:], shape, geometry, prod(over), *inputs[1:])
    return deliver(gpu, out, shape, dtype, into)


def known_windows(op: Op, inputs: tuple, params: dict) -> dict | None:
    """The geometry of windows, if a kernel of glsl/pool.comp can go by it."""
    if op.name != "pool_put":
        return params
    fits = inputs[0].dtype.kind == "f" and inputs[1].layout.is_contiguous
    return params.get("geometry") if fits else None


def pool_take(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `pool_take`."""
    x, index = inputs
    fixed = (*x.layout.strides[:2], *(0,) * (len(shape) - 2))
    out = gather(gpu, op, x, index, shape, fixed, index.layout.strides, x.shape[2:], x.layout.strides[2:])
    return deliver(gpu, out, shape, dtype, into)


def put_back(gpu: Any, op: Op, g: Tensor, index: Tensor, shape: Shape, apart: bool) -> Block:
    """Fresh words: the gradient of each window goes to the cell that its index names, and adds up there."""
    cells, flat = prod(shape[2:]), (0,) * (index.ndim - 2)
    planes = row_major((*shape[:2], cells))
    if apart:
        return put_apart(gpu, op, g, index, prod(shape), (*planes[:2], *flat), cells)
    strides, windows = g.layout.strides, prod(index.shape[2:])
    how = Sums(
        keys=index.layout,
        length=windows,
        payloads=(0, 0, *strides[2:]),
        size=cells,
        shape=(*shape[:2], windows),
        target=(*planes[:2], 0),
        fixed=(*strides[:2], 0),
        pairs=row_major((*shape[:2], windows)),
        step=1,
    )
    return add_runs(gpu, op, g, index, shape, how)


def slide(
    gpu: Any,
    op: Op,
    x: Tensor,
    cells: Shape,
    shape: Shape,
    params: dict,
    turns: int,
    winners: Tensor | None = None,
) -> Block:
    """Fresh words: a kernel of glsl/pool.comp that loops `turns` times for each element of `shape`."""
    gpu.check(x.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if not out.words:
        return out
    rank, divisor = len(cells), params.get("divisor", 1)
    mode = SHARES.get(divisor, 0) if isinstance(divisor, str) else 0
    sizes = (params["kernel"], params["stride"], params.get("dilation", (1,) * rank))
    kernel, stride, dilation = (three(size, 1) for size in sizes)
    head = [out.words, shape[1], *three(cells, 1), *three(params["windows"], 1), *kernel]
    head += [*stride, *three(params["padding"], 0), *dilation]
    head += [start(x), *x.layout.strides[:2], *three(x.layout.strides[2:], 0), out.offset]
    head += [mode if winners is None else start(winners), 0.0 if mode else float(divisor)]
    piece = min(turns, loops.longest(gpu, out.words))
    fixed = out.words >= LARGE and piece == turns <= UNROLLED
    constants = (gpu.local, *((1, *kernel, *stride, *dilation) if fixed else (0,)))
    shader = gpu.shaders.get("pool", {f"OP_{op.name}": 1, "IN": x.dtype.name.upper()}, constants)
    bindings = [out, x.buffer.data, *([] if winners is None else [winners.buffer.data])]
    for first in range(0, turns, piece):
        push = pack(*head, first, min(turns, first + piece))
        gpu.queue.dispatch(shader, loops.grid(gpu, out.words, piece), push, bindings)
    return out


FAMILIES = {"pool": pool, "pool_back": pool_back, "pool_take": pool_take}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for op in (*rows_of("pool"), *rows_of("pool_back")):
        dtypes = (float32,) if op.name == "pool_put" else dtypes_of(op)  # others are the indexing families'
        yield from (("pool", {f"OP_{op.name}": 1, "IN": dtype.name.upper()}) for dtype in dtypes)
