"""Rows brought to a common scale: one dispatch where lanes can hold a row, else a fold and a second look.

Long rows of normalize and normalize_input are folded by the kernels of the family `statistics`, so that what
an earlier op knows of them need not be found again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.norm import constant_along, kept_shape
from tinyadept.ops.table import Op, lift, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..arena import Block, Span
from ..shaders import Macros
from ..walk import walk
from . import elementwise
from .copying import copy_to, deliver
from .elementwise import rows_of
from .index import start
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
LOADS = 4  # of a lane in a piece of a row; glsl/norm.comp has the same
NARROWEST = 32  # lanes that look at a piece of a row, at least
PUSH = Struct(f"iifiiiii{4 * MAX_AXES}i").pack
# Words of a State and of a Row in glsl/norm.glsl, which reduce.comp folds.
WORDS = {
    "softmax": (4, 2),
    "log_softmax": (4, 2),
    "moments": (8, 4),
    "normalize_sums": (8, 8),
    "rms_normalize": (2, 2),
    "rms_normalize_input": (4, 2),
}


# What folds the long rows of ops that share it.
FOLDED = {"normalize": "moments", "normalize_input": "normalize_sums"}
PLAIN = {"normalize": (1.0, 0.0), "rms_normalize": (1.0,)}  # weights and biases that change nothing


class Rows(NamedTuple):
    """Where rows lie in the result and in the inputs, and how they are spread over lanes.

    Attributes
    ----------
    kept, folded : tuple of Axes
        Of the result, of each input, and of the weight if there is one for each element.
    plans : tuple of Plan
        Those of folding, one for each input.
    held : int
        How many loads a lane keeps, so that rows are read once; 0 where rows are too long for that.
    step : int
        From the weight of an element of a load to that of the next.
    """

    kept: tuple[Axes, ...]
    folded: tuple[Axes, ...]
    plans: tuple[Plan, ...]
    held: int
    step: int

    @property
    def axes(self) -> tuple[int, ...]:
        walked = [(*kept.strides, *folded.strides) for kept, folded in zip(self.kept, self.folded)]
        walked = [(*self.kept[0].shape, *self.folded[0].shape), *walked, walked[-1]][:4]
        return tuple([word for words in walked for word in (*words, *(0,) * (MAX_AXES - len(words)))])


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `norm`."""
    block = gpu.allocator.allocate(prod(shape))
    if block.words:
        axes = params["axes"] if "axes" in params else (params["axis"],) if shape else ()
        count = sources_of(op)
        more = [x for x in inputs[count:] if x.ndim == len(shape)]
        call = Call(
            *(gpu, op.name, axes, float(params.get("eps", 0))),
            inputs[:count][::-1],  # what is brought to scale, then the gradient
            [statistics(gpu, x) for x in inputs[count + len(more) :]],
            wrap(Buffer(block), View.dense(shape), dtype, gpu),
        )
        if op.name in ("normalize", "rms_normalize"):
            normalize(call, more)
        elif op.name == "normalize_input":
            normalize_input(call, more)
        else:
            scale(call, make_rows(machine(gpu), axes, None, True, *(x.layout for x in call.sources)))
    return deliver(gpu, block, shape, dtype, into)


def run_statistics(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `statistics`."""
    block, count = gpu.allocator.allocate(prod(shape)), sources_of(op)
    if block.words:
        known = [statistics(gpu, x) for x in inputs[count:]]
        fold(gpu, op.name, params["axes"], float(params.get("eps", 0)), inputs[:count][::-1], block, known)
    return deliver(gpu, block, shape, dtype, into)


def sources_of(op: Op) -> int:
    """How many inputs have elements of rows: one, and a gradient. Others are weights and statistics."""
    return 2 if op.name.endswith(("_input", "_sums")) else 1


def statistics(gpu: Any, x: Tensor) -> Block | Span:
    """The words of a row's statistics, dense and where a kernel can count them in rows."""
    words = x.layout.shape[-1]
    if x.layout.is_contiguous and start(x) % words == 0:
        return x.buffer.data.part(x.layout.offset, x.layout.size)
    block = gpu.allocator.allocate(x.layout.size)
    copy_to(gpu, x, block, View.dense(x.layout.shape))
    return block


class Call(NamedTuple):
    """One call of a row: its inputs, and the tensor that it writes.

    Attributes
    ----------
    sources : sequence of Tensor
        What is brought to scale, and perhaps a gradient.
    known : sequence of Block or Span
        Statistics of the rows.
    """

    gpu: Any
    op: str
    axes: tuple[int, ...]
    eps: float
    sources: Sequence[Tensor]
    known: Sequence[Block | Span]
    target: Tensor

    def then(self, op: str, x: Tensor) -> None:
        """Note another op that changes the result."""
        layout, dtype = self.target.layout, self.target.dtype
        elementwise.run(self.gpu, registry[op], (self.target, x), layout.shape, dtype, {}, self.target)

    def folded(self, op: str, *known: Block | Span) -> Block:
        """Statistics of the rows, folded now."""
        words = prod(kept_shape(self.target.layout.shape, self.axes)) * WORDS[op][1]
        block, count = self.gpu.allocator.allocate(words), sources_of(registry[op])
        fold(self.gpu, op, self.axes, self.eps, self.sources[:count], block, known)
        return block


def normalize(call: Call, affine: list[Tensor]) -> None:
    """Scaled by the weight and shifted by a bias in the same dispatch, if they lie alike."""
    (x,), shape = call.sources, call.target.layout.shape
    layouts = [p.layout.expand(shape) for p in affine]
    alike = len({tuple(s for n, s in zip(shape, v.strides) if n != 1) for v in layouts}) == 1
    plain = PLAIN[call.op]
    fused = affine if alike and len(affine) == len(plain) else [lift(n, x.dtype, call.gpu) for n in plain]
    rows = make_rows(machine(call.gpu), call.axes, fused[0].layout.expand(shape), not call.known, x.layout)
    if not rows.held and not call.known:
        call = call._replace(known=[call.folded(FOLDED.get(call.op, call.op))])
    scale(call, rows, fused, rows.step)
    if fused is not affine:
        for op, p in zip(("mul", "add"), affine):
            call.then(op, p)


def normalize_input(call: Call, weight: list[Tensor]) -> None:
    """With a weight for each row in the same dispatch, if those lie evenly."""
    gpu, axes, (x, g), shape = call.gpu, call.axes, call.sources, call.target.layout.shape
    if weight and not constant_along(weight[0].shape, axes):
        product = wrap(Buffer(gpu.allocator.allocate(prod(shape))), View.dense(shape), x.dtype, gpu)
        elementwise.run(gpu, registry["mul"], (g, weight[0]), shape, x.dtype, {}, product)
        call, weight = call._replace(sources=(x, product)), []
    kept = kept_shape(shape, axes)
    steps = joint(list(range(len(kept))), weight[0].layout.expand(kept))[0] if weight else Axes((), ())
    fused = weight if len(steps.strides) < 2 and weight else [lift(1.0, x.dtype, gpu)]
    rows = make_rows(machine(gpu), axes, None, not call.known, *(source.layout for source in call.sources))
    if not rows.held and not call.known:
        call = call._replace(known=[call.folded("normalize_sums", call.folded("moments"))])
    scale(call, rows, fused, steps.strides[0] if fused is weight and steps.strides else 0)
    if weight and fused is not weight:
        call.then("mul", weight[0])


def fold(
    gpu: Any,
    op: str,
    axes: tuple[int, ...],
    eps: float,
    sources: Sequence[Tensor],
    target: Block,
    known: Sequence[Block | Span] = (),
) -> None:
    """Note the dispatches that fold rows into statistics, or into what an op of the family `norm` needs."""
    plans = make_rows(machine(gpu), axes, None, False, *(x.layout for x in sources)).plans
    count = plans[0].folded.size * plans[0].along
    if known:
        plans = (plans[0]._replace(tail=known[0].offset // WORDS["moments"][1]), *plans[1:])
    what = Fold({**macros_of(op), "NORM": 1}, plans, WORDS[op], (count, eps))
    launch(gpu, what, [x.buffer.data for x in sources], target, known)


def scale(call: Call, rows: Rows, affine: Sequence[Tensor] = (), step: int = 0) -> None:
    """Note the dispatch that holds rows or looks at them a second time, and what it needs to know before."""
    gpu, sources, known = call.gpu, call.sources, call.known
    plan, words = rows.plans[0], 1
    if not rows.held:
        known = known or [call.folded(call.op)]
        words = WORDS[FOLDED.get(call.op, call.op)][1]
    target = call.target.buffer.data
    second, *more = [*sources[1:], *affine, sources[0]]
    push = PUSH(
        *(plan.kept.size, plan.folded.size, call.eps, known[0].offset // words if known else 0),
        *(target.offset, start(sources[0]), start(second), start(more[0]) if more else 0),
        *rows.axes,
    )
    macros = {**macros_of(call.op), "ALONG": plan.along, "ACROSS": plan.across, "HELD": rows.held}
    work = plan.work if rows.held else again(machine(gpu), plan)
    shader = gpu.shaders.get("norm", macros, (work[1], *plan.constants[1:], step % 2**32))
    bindings = [target, *(x.buffer.data for x in (*sources, *affine)), *(() if rows.held else known)]
    gpu.queue.dispatch(shader, groups(gpu, *work), push, bindings)


def again(machine: Machine, plan: Plan) -> tuple[int, int, int]:
    """Tasks of workgroups, lanes of each, and loads of a lane in one, where rows are looked at once more."""
    if plan.along != FOUR:
        group = plan.lanes.group
        return -(-plan.kept.size * plan.folded.size // group), group, 1
    group = min(machine.lanes, max(NARROWEST, power_of_two(-(-plan.folded.size // LOADS))))
    return plan.kept.size * -(-plan.folded.size // (group * LOADS)), group, LOADS


def macros_of(op: str) -> dict[str, int]:
    return {f"OP_{op}": 1, "FLOATING": 1, "INPUTS": sources_of(registry[op])}


@lru_cache(maxsize=4096)
def make_rows(
    machine: Machine, axes: tuple[int, ...], weight: View | None, may_hold: bool, *views: View
) -> Rows:
    """Choose how rows are spread over lanes.

    Parameters
    ----------
    machine : Machine
    axes : tuple of int
        Along which rows lie.
    weight : View, optional
        Of a weight for each element.
    may_hold : bool
        Whether lanes may keep rows instead of reading them twice.
    *views : View
        Of the inputs.
    """
    shape = views[0].shape
    walked = (View.dense(shape), *views, *([] if weight is None else [weight]))
    kept = joint([a for a in range(len(shape)) if a not in axes], *walked)
    folded = joint(list(axes), *walked)
    if len(kept[0].shape) + len(folded[0].shape) > MAX_AXES:
        raise Unsupported(
            f"rows along axes {axes} of shape {shape} lie along more than {MAX_AXES} axes that cannot be "
            "merged: make the inputs contiguous first"
        )
    beside = kept[1].reach < folded[1].reach
    inner, outer = (kept, folded) if beside else (folded, kept)
    count = 1 + len(views)
    fours = all(view.offset % FOUR == 0 for view in views)
    fours = fours and all(in_fours(i, o, False) for i, o in zip(inner[:count], outer))
    along, across = (FOUR if fours and not beside else 1), (FOUR if fours and beside else 1)
    held, lanes = 0, Lanes(1, 1, 1)
    if may_hold:
        held, lanes = hold(machine, kept[0].size, folded[0].size // along, beside, along)
    if held:
        across = 1
    step = inner[-1].strides[-1] if weight is not None and max(along, across) == FOUR else 0
    kept, folded = ([shortened(a, width) for a in axes] for axes, width in ((kept, across), (folded, along)))
    if not held:
        lanes = spread(machine, kept[0].size, folded[0].size, beside, machine.elements // along)
    plans = tuple(
        Plan(k, f, view.offset, along, across, 0, beside, lanes)
        for k, f, view in zip(kept[1:], folded[1:], views)
    )
    return Rows(tuple(kept), tuple(folded), plans, held, step)


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
    for op in (*rows_of("norm"), *rows_of("statistics")):
        if op.name in WORDS:
            yield from folds({**macros_of(op.name), "NORM": 1})
    for op in rows_of("norm"):
        for along, across in WIDTHS:
            powers = range((HELD // along).bit_length()) if across == 1 else ()
            for held in (0, *(1 << power for power in powers)):
                yield "norm", {**macros_of(op.name), "ALONG": along, "ACROSS": across, "HELD": held}
