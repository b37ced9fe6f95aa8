"""Running sums: one dispatch of glsl/scan.comp, and one before it that sums the parts of long lines."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View

from ..shaders import Macros
from ..walk import walk
from .copying import deliver
from .elementwise import rows_of
from .reduce import LONGEST, MAX_AXES, STATES, Axes, Machine, Plan, dispatch, groups, machine, packed, spread

SUMS = {"INPUTS": 1, "NORM": 0, "ALONG": 1, "ACROSS": 1, "PARTS": 1, "MERGE": 0}  # of parts, by reduce.comp
LOADS = 8  # of a lane, before a line is given more lanes
CARRIES = 16  # parts before its own that a lane adds up, at most
PUSH = Struct(f"{8 + 3 * MAX_AXES}i").pack


class Lines(NamedTuple):
    """How lines are spread over lanes; `plan` is that of the sums of their parts."""

    plan: Plan
    to_strides: Shape
    to_step: int


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `scan`."""
    (x,) = inputs
    gpu.check(x.dtype, op.name)
    block = gpu.allocator.allocate(prod(shape))
    if block.words:
        # Lanes that wait for each other cost a CPU more than they save.
        loads = LOADS if gpu.tiled else LONGEST
        lines = make_lines(machine(gpu), x.layout, params["axis"], loads)
        launch(gpu, op.name, x.dtype.kind == "f", lines, x.buffer.data, block)
    return deliver(gpu, block, shape, dtype, into)


def launch(gpu: Any, op: str, floating: bool, lines: Lines, source: Any, target: Any) -> None:
    plan = lines.plan
    macros = {f"OP_{op}": 1, "FLOATING": int(floating)}
    bindings, at = [target, source], 0
    if plan.parts > 1:
        words = STATES[op][not floating]
        states = gpu.allocator.allocate(words * plan.kept.size * plan.parts)
        at = states.offset // words
        sums = {**macros, **SUMS}
        dispatch(
            gpu, sums, plan, packed((plan,), (0, 0), at, [source.offset + plan.offset]), (states, source)
        )
        bindings.append(states)
    pad = (0,) * (MAX_AXES - len(plan.kept.shape))
    push = PUSH(
        plan.kept.size,
        plan.folded.size,
        plan.parts,
        target.offset,
        source.offset + plan.offset,
        at,
        lines.to_step,
        *(plan.folded.strides or (0,)),
        *plan.kept.shape,
        *pad,
        *lines.to_strides,
        *pad,
        *plan.kept.strides,
        *pad,
    )
    constants = (plan.lanes.group, plan.lanes.fold, len(plan.kept.shape), plan.beside)
    shader = gpu.shaders.get("scan", {**macros, "CARRY": int(plan.parts > 1)}, constants)
    gpu.queue.dispatch(shader, groups(gpu, *plan.work), push, bindings)


@lru_cache(maxsize=1024)
def make_lines(machine: Machine, view: View, axis: int, loads: int) -> Lines:
    """Choose how the lines along an axis are spread over lanes."""
    dense = View.dense(view.shape)
    others = [a for a in range(len(view.shape)) if a != axis]
    path = walk(*(tuple(steps[a] for a in others) for steps in (view.shape, view.strides, dense.strides)))
    if path.rank > MAX_AXES - 1:
        raise Unsupported(f"a scan of shape {view.shape} walks too many axes: make it contiguous first")
    single = path.count == 1
    kept = Axes((), ()) if single else Axes(path.shape, path.strides[0])
    line = Axes((view.shape[axis],), (view.strides[axis],)) if view.shape else Axes((), ())
    beside = kept.reach < line.reach
    lanes = spread(machine, kept.size, line.size, beside, loads)
    needed = -(-line.size // (lanes.fold * machine.most))
    lanes = lanes._replace(parts=max(needed, min(lanes.parts, CARRIES * lanes.fold)))
    plan = Plan(kept, line, view.offset, 1, 1, 0, beside, lanes)
    return Lines(plan, () if single else path.strides[1], dense.strides[axis] if view.shape else 0)


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for op in rows_of("scan"):
        for floating in (0, 1):
            macros = {f"OP_{op.name}": 1, "FLOATING": floating}
            yield "reduce", {**macros, **SUMS}
            yield from (("scan", {**macros, "CARRY": carry}) for carry in (0, 1))
