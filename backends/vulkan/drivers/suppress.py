"""Non-maximum suppression: glsl/suppress.comp, two dispatches for each block of boxes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

from ..queue import pack
from ..shaders import Macros
from . import loops
from .copying import deliver
from .index import start

BLOCK = 64


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `suppress`."""
    (boxes,) = inputs
    gpu.check(boxes.dtype, op.name)
    count = shape[0]
    out = gpu.allocator.allocate(count)
    if count:
        gpu.transfer.fill(out, 1)
    shader = gpu.shaders.get("suppress", None, (min(gpu.local, BLOCK),))
    head = (count, out.offset, start(boxes), *boxes.layout.strides, float(params["threshold"]))
    for first in range(0, count, BLOCK):
        last = min(first + BLOCK, count)
        bindings = (out, boxes.buffer.data)
        gpu.queue.dispatch(shader, (1, 1, 1), pack(*head, first, last, 1), bindings)
        if last < count:
            grid = loops.grid(gpu, count - last, BLOCK)
            gpu.queue.dispatch(shader, grid, pack(*head, first, last, 0), bindings)
    return deliver(gpu, out, shape, dtype, into)


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield "suppress", {}
