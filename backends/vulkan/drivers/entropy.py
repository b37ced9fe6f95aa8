"""Cross-entropy: glsl/entropy.comp."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

from ..queue import pack
from ..shaders import Macros
from . import loops
from .copying import deliver
from .elementwise import rows_of
from .index import start

GPU_LANES = 128


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run the family `entropy`."""
    *g, logits, labels = inputs
    gpu.check(logits.dtype, op.name)
    out = gpu.allocator.allocate(prod(shape))
    rows, classes = logits.shape
    if out.words and not classes:
        gpu.transfer.fill(out, 0)
    elif out.words:
        incoming = g[0] if g else logits
        push = pack(
            *(rows, classes, out.offset, start(logits), *logits.layout.strides),
            *(start(labels), labels.layout.strides[0], start(incoming), incoming.layout.strides[0]),
            *(params["ignore"], float(params["smoothing"]), gpu.queue.site("cross_entropy")),
        )
        lanes = gpu.local if gpu.device.is_cpu else GPU_LANES
        shader = gpu.shaders.get("entropy", {f"OP_{op.name}": 1}, (lanes,))
        blocks = [x.buffer.data for x in (logits, labels, incoming)]
        groups = grid(gpu, rows, 4 * -(-classes // lanes) + 3 * lanes)
        gpu.queue.dispatch(shader, groups, push, (out, *blocks, gpu.queue.reports))
    return deliver(gpu, out, shape, dtype, into)


def grid(gpu: Any, rows: int, turns: int) -> tuple[int, int, int]:
    """Workgroups, each of which takes some rows with so many turns of loops."""
    groups = gpu.groups(rows)[0] if not gpu.device.is_cpu else loops.power_of_two(rows, loops.at_once(gpu))
    if gpu.device.is_cpu:
        while groups < loops.MOST_GROUPS and -(-rows // groups) * turns > loops.TURNS:
            groups *= 2
    return (groups, 1, 1)


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for op in rows_of("entropy"):
        yield "entropy", {f"OP_{op.name}": 1}
