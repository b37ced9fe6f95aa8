"""Rows brought to a common scale: one dispatch where lanes can hold a row, else a fold and a second look."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.norm import constant_along
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block
from ..shaders import Macros
from ..walk import walk
from . import elementwise
from .copying import deliver
from .elementwise import rows_of
from .reduce import (
    FOUR,
    HELD,
    WIDTHS,
    Axes,
    Fold,
    Lanes,
    Machine,
    Plan,
    folds,
    groups,
    in_fours,
    launch,
    machine,
    power_of_two,
    shortened,
    spread,
)

MAX_AXES = 6
PUSH = Struct(f"iifiiii{4 * MAX_AXES}i").pack
# Words of a State and of a Row in glsl/norm.glsl.
WORDS = {
    "softmax": (4, 2),
    "log_softmax": (4, 2),
    "normalize": (4, 4),
    "normalize_input": (8, 8),
    "rms_normalize": (2, 2),
    "rms_normalize_input": (4, 2),
}


class Rows(NamedTuple):
    """Where rows lie in the result and in the inputs, and how they are spread over lanes.

    Attributes
    ----------
    to_kept, to_folded : Axes
    plans : tuple of Plan
        Those of folding, one for each input.
    held : int
        How many loads a lane keeps, so that rows are read once; 0 where rows are too long for that.
    """

    to_kept: Axes
    to_folded: Axes
    plans: tuple[Plan, ...]
    held: int

    @property
    def axes(self) -> tuple[int, ...]:
        used = len(self.to_kept.shape) + len(self.to_folded.shape)
        pad = (0,) * (MAX_AXES - used)
        words = [*self.to_kept.shape, *self.to_folded.shape, *pad]
        words += (*self.to_kept.strides, *self.to_folded.strides, *pad)
        for plan in (self.plans * 2)[:2]:
            words += (*plan.kept.strides, *plan.folded.strides, *pad)
        return tuple(words)


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `norm`."""
    block = gpu.allocator.allocate(prod(shape))
    if block.words:
        axes = params["axes"] if "axes" in params else (params["axis"],) if shape else ()
        count = sources_of(op)
        sources, affine = inputs[:count], inputs[count:]
        if count == 2 and affine and not constant_along(affine[0].shape, axes):
            g = wrap(Buffer(gpu.allocator.allocate(prod(shape))), View.dense(shape), dtype, gpu)
            elementwise.run(gpu, registry["mul"], (inputs[0], affine[0]), shape, dtype, {}, g)
            sources, affine = (g, sources[1]), ()
        sources = sources[::-1]  # the tensor that is brought to scale, then the gradient
        rows = make_rows(machine(gpu), axes, *(x.layout for x in sources))
        scale(gpu, op.name, rows, [x.buffer.data for x in sources], block, float(params.get("eps", 0)))
        whole = wrap(Buffer(block), View.dense(shape), dtype, gpu)
        for name, x in zip(("mul", "add"), affine):
            elementwise.run(gpu, registry[name], (whole, x), shape, dtype, {}, whole)
    return deliver(gpu, block, shape, dtype, into)


def sources_of(op: Op) -> int:
    """How many inputs have elements of rows: one, and a gradient. Others are a weight and a bias."""
    return 2 if op.name.endswith("_input") else 1


def scale(gpu: Any, op: str, rows: Rows, sources: list[Block], target: Block, eps: float) -> None:
    """Note the dispatches."""
    plan, second = rows.plans[0], rows.plans[-1]
    macros = {f"OP_{op}": 1, "FLOATING": 1, "INPUTS": len(sources)}
    shape = {"ALONG": plan.along, "ACROSS": plan.across}
    bindings, at = [target, *sources], 0
    if not rows.held:
        states, words = WORDS[op]
        results = plan.kept.size * plan.across
        folds = gpu.allocator.allocate(words * results)
        count = plan.folded.size * plan.along
        fold = Fold({**macros, "NORM": 1}, rows.plans, (states, words), (count, eps))
        launch(gpu, fold, sources, folds)
        bindings.append(folds)
        at = folds.offset // words
    push = PUSH(
        plan.kept.size,
        plan.folded.size,
        eps,
        at,
        target.offset,
        sources[0].offset + plan.offset,
        sources[-1].offset + second.offset,
        *rows.axes,
    )
    shader = gpu.shaders.get("norm", {**macros, **shape, "HELD": rows.held}, plan.constants)
    group = plan.lanes.group
    work = plan.work if rows.held else (-(-plan.kept.size * plan.folded.size // group), group, 1)
    gpu.queue.dispatch(shader, groups(gpu, *work), push, bindings)


@lru_cache(maxsize=4096)
def make_rows(machine: Machine, axes: tuple[int, ...], *views: View) -> Rows:
    """Choose how rows are spread over lanes."""
    shape = views[0].shape
    to = View.dense(shape)
    kept = joint([a for a in range(len(shape)) if a not in axes], to, *views)
    folded = joint(list(axes), to, *views)
    if len(kept[0].shape) + len(folded[0].shape) > MAX_AXES:
        raise Unsupported(
            f"rows along axes {axes} of shape {shape} lie along more than {MAX_AXES} axes that cannot be "
            "merged: make the inputs contiguous first"
        )
    beside = kept[1].reach < folded[1].reach
    aligned = all(view.offset % FOUR == 0 for view in views)
    inner, outer = (kept, folded) if beside else (folded, kept)
    fours = aligned and all(in_fours(i, o, False) for i, o in zip(inner, outer))
    along, across = (FOUR if fours and not beside else 1), (FOUR if fours and beside else 1)
    held, lanes = hold(machine, kept[0].size, folded[0].size // along, beside, along)
    if held:
        across = 1
    kept = [shortened(a, across) for a in kept]
    folded = [shortened(a, along) for a in folded]
    if not held:
        lanes = spread(machine, kept[0].size, folded[0].size, beside, machine.elements // along)
    plans = tuple(
        Plan(k, f, view.offset, along, across, 0, beside, lanes)
        for k, f, view in zip(kept[1:], folded[1:], views)
    )
    return Rows(kept[0], folded[0], plans, held)


def joint(axes: list[int], *views: View) -> list[Axes]:
    """Some axes of several views of one shape, merged where all can be."""
    columns = [tuple(steps[a] for a in axes) for steps in (views[0].shape, *(view.strides for view in views))]
    path = walk(*columns)
    if path.count == 1:
        return [Axes((), ())] * len(views)
    return [Axes(path.shape, strides) for strides in path.strides]


def hold(machine: Machine, rows: int, loads: int, beside: bool, along: int) -> tuple[int, Lanes]:
    """Loads that a lane keeps, which are none if rows are too long, and how lanes are spread."""
    most_held, group = machine.held // along, machine.lanes
    if rows * loads < machine.wanted or loads > group * most_held:
        group = machine.team
    most = group // min(8, power_of_two(rows), group) if beside else group
    fold = min(most, power_of_two(-(-loads // most_held)))
    while fold < most and rows * fold < machine.wanted and fold * 2 <= loads:
        fold *= 2
    held = power_of_two(-(-loads // fold))
    return held if held <= most_held else 0, Lanes(group, fold, 1)


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for op in rows_of("norm"):
        macros = {f"OP_{op.name}": 1, "FLOATING": 1, "INPUTS": sources_of(op)}
        yield from folds({**macros, "NORM": 1})
        for along, across in WIDTHS:
            powers = range((HELD // along).bit_length()) if across == 1 else ()
            for held in (0, *(1 << power for power in powers)):
                yield "norm", {**macros, "ALONG": along, "ACROSS": across, "HELD": held}
