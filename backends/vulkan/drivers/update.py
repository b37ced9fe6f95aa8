"""Optimisers' steps: one dispatch of glsl/update.comp for all tensors that lie in the same arenas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.ops.update import GRADIENT, arity
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

from ..arena import Block, Span
from ..queue import pack
from ..shaders import Macros
from .elementwise import rows_of

CHUNK = 4096  # elements that one workgroup changes at a time


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer:
    """Run the family `update`: the first operands of all rows, then the second, and so on, all dense."""
    count = len(inputs) // arity(op)
    rows = [[words_of(inputs[at]) for at in range(row, len(inputs), count)] for row in range(count)]
    apart: dict[tuple, list[list[Span]]] = {}
    for row in rows:
        row.append(row.pop(GRADIENT))  # what is written comes first
        if row[0].words:
            apart.setdefault(tuple(x.memory for x in row), []).append(row)
    numbers = gpu.feed(params["numbers"])
    for alike in apart.values():
        dispatch(gpu, op, alike, numbers)
    return Buffer(gpu.allocator.allocate(0))


def words_of(x: Tensor) -> Span:
    return x.buffer.data.part(x.layout.offset, x.layout.size)


def dispatch(gpu: Any, op: Op, rows: list[list[Span]], numbers: Block) -> None:
    """Note the dispatch for rows whose operands lie in the same memories: p, the states, the gradient."""
    table = np.array([chunk for row in rows for chunk in chunks(row)], np.uint32)
    held = gpu.store(table.reshape(-1))
    last = len(rows[0]) - 1
    shader = gpu.shaders.get("update", macros(op), (gpu.local,))
    push = pack(len(table), numbers.offset, held.offset)
    whole = [Span(x.memory, 0, 0) for x in rows[0]]  # the ranges of all rows are named beside them
    gpu.queue.dispatch(
        shader,
        gpu.groups(len(table)),
        push,
        (*whole, numbers, held),
        writes=0,
        also_reads=[row[last] for row in rows],
        also_writes=[x for row in rows for x in row[:last]],
    )


def chunks(row: list[Span]) -> Iterator[tuple[int, ...]]:
    for start in range(0, row[0].words, CHUNK):
        yield *(x.offset + start for x in row), min(CHUNK, row[0].words - start)


def macros(op: Op) -> dict[str, str | int]:
    return {"OP": f"op_{op.name}", "STATES": arity(op) - 2}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    yield from (("update", macros(op)) for op in rows_of("update"))
