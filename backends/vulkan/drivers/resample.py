"""Resampling: glsl/resample.comp, with a table of what each result takes along each axis."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tinyadept.ops.resample import axes_of
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

from ..queue import pack
from ..shaders import Macros
from . import loops
from .conv import three
from .copying import deliver
from .elementwise import rows_of
from .index import start
from .reduce import FOUR

LONG_LOOPS = ("resample_input", "linear")  # of which a lane had better do few


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `resample`."""
    (x,) = inputs
    gpu.check(x.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    if out.words:
        cells, results = x.shape[2:], shape[2:]
        if op.name == "resample_input":
            cells, results = results, cells
        table, longest = rows(cells, results, params["mode"], params["corners"], params["scales"])
        held = gpu.store(table)
        width = FOUR if shape[-1] % FOUR == 0 and (op.name, params["mode"]) != LONG_LOOPS else 1
        turns = (longest if op.name == "resample_input" else 8) * width
        push = pack(
            *(out.words // width, *three(results, 1), *three(cells, 1), start(x), *x.layout.strides[:2]),
            *(*three(x.layout.strides[2:], 0), shape[1], out.offset, held.offset),
        )
        shader = gpu.shaders.get("resample", macros(op, params["mode"], width), (gpu.local,))
        grid = loops.grid(gpu, out.words // width, turns)
        gpu.queue.dispatch(shader, grid, push, (out, x.buffer.data, held))
    return deliver(gpu, out, shape, dtype, into)


@lru_cache(maxsize=256)
def rows(cells: Shape, results: Shape, mode: str, corners: bool, scales: tuple) -> tuple[np.ndarray, int]:
    """The table of the three axes, as int32 words; and the most turns of loops that a gradient takes."""
    pad = (1,) * (3 - len(cells))
    axes = axes_of((*pad, *cells), (*pad, *results), mode, corners, (*(None,) * len(pad), *scales))
    parts, turns = [], 1
    for taps, n in zip(axes, (*pad, *cells), strict=True):
        first, last = taps.reach(n)
        parts += [taps.low, taps.high, taps.share.view(np.int32), first, last]
        turns *= int((last - first).max()) + 2
    return np.concatenate(parts), turns


def macros(op: Op, mode: str, width: int) -> dict[str, int]:
    return {f"OP_{op.name}": 1, "LINEAR": int(mode == "linear"), "WIDTH": width}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for op in rows_of("resample"):
        for mode in ("nearest", "linear"):
            widths = (1,) if (op.name, mode) == LONG_LOOPS else (1, FOUR)
            yield from (("resample", macros(op, mode, width)) for width in widths)
