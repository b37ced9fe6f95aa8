"""Folding axes: one dispatch of glsl/reduce.comp, or two for few results of very many elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import prod
from struct import Struct
from typing import Any, NamedTuple

import numpy as np

from tinyadept.errors import Unsupported
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape, View

from ..arena import ALIGNMENT, Block, Span
from ..shaders import Macros
from ..walk import walk
from .copying import deliver, halves
from .elementwise import dtypes_of, rows_of

MAX_AXES = 7
PUSH = Struct(f"iiiiii4f{2 * MAX_AXES}i").pack
SECOND = Struct(f"i{MAX_AXES}i").pack
FOUR = 4
WIDTHS = ((1, 1), (FOUR, 1), (1, FOUR))  # along and across
HELD = 32  # elements that a lane keeps in registers, at most
BATCH = 8  # states that a lane reads at once; glsl/reduce.comp has the same
LINE = 32  # neighbouring lanes that read neighbouring columns, so that whole cache lines are used
LONGEST = 1 << 14  # loads: after 65,535 rounds of its loops, lavapipe stops an invocation and says nothing
# Words of a State in glsl/reduce.glsl; the second number is that of integers.
STATES = {
    "sum": (2, 1),
    "mean": (2, 1),
    "cumsum": (2, 1),
    "prod": (4, 1),
    "argmax": (2, 2),
    "argmin": (2, 2),
    "var": (4, 4),
    "norm": (8, 8),
    "logsumexp": (4, 4),
}


class Axes(NamedTuple):
    """Axes of the input, those of length 1 left out and neighbours merged."""

    shape: Shape
    strides: Shape

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def reach(self) -> int:
        """How far neighbours along the last axis lie apart; a lot if there is no axis."""
        return abs(self.strides[-1]) if self.strides else 1 << 31


class Machine(NamedTuple):
    """What the choice of a mapping depends on."""

    lanes: int  # of a workgroup where there are many results
    team: int  # of a workgroup where there are few
    wanted: int  # lanes that keep the device busy
    elements: int  # of a lane, before a fold is given more lanes
    held: int  # elements that a lane keeps in registers, at most
    share: int  # loads of a lane in one task, at least
    most: int  # and at most


def padded(*words: int) -> tuple[int, ...]:
    return (*words, *(0,) * (MAX_AXES - len(words)))


class Lanes(NamedTuple):
    """Lanes of a workgroup, those of them that share a fold, and into how many parts a fold is cut."""

    group: int
    fold: int
    parts: int


class Plan(NamedTuple):
    """How a fold is spread over lanes; see glsl/reduce.comp."""

    kept: Axes
    folded: Axes
    offset: int
    along: int
    across: int
    tail: int
    beside: bool
    lanes: Lanes

    @property
    def parts(self) -> int:
        return self.lanes.parts

    @property
    def constants(self) -> tuple[int, ...]:
        group, fold, _ = self.lanes
        return group, fold, len(self.kept.shape), len(self.folded.shape), self.beside

    @property
    def work(self) -> tuple[int, int, int]:
        """Tasks of workgroups, lanes of each, and loads of a lane in a task."""
        group, fold, parts = self.lanes
        tiles = -(-self.kept.size // (group // fold))
        return tiles * parts, group, -(-self.folded.size // (parts * fold))

    @property
    def shape(self) -> tuple[int, ...]:
        return padded(*self.kept.shape, *self.folded.shape)

    @property
    def strides(self) -> tuple[int, ...]:
        return padded(*self.kept.strides, *self.folded.strides)


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
) -> Buffer | None:
    """Run the family `reduce`."""
    (x,) = inputs
    gpu.check(x.dtype, op.name)
    block, axes = gpu.allocator.allocate(prod(shape)), params["axes"]
    if block.words:
        count = prod(x.shape[a] for a in axes)
        divisor = max(count - params.get("correction", 0), 0)
        ordered = op.name.startswith("arg")
        plan = make_plan(machine(gpu), x.layout, axes, ordered)
        floating = x.dtype.kind == "f"
        macros = {f"OP_{op.name}": 1, "FLOATING": int(floating), "INPUTS": 1, "NORM": 0}
        words = STATES.get(op.name, (1, 1))[not floating]
        launch(gpu, Fold(macros, (plan,), (words, 1), (count, divisor)), [x.buffer.data], block)
    return deliver(gpu, block, shape, dtype, into)


def machine(gpu: Any) -> Machine:
    most = LONGEST if gpu.device.is_cpu else 1 << 31
    if gpu.tiled:
        team = min(2 * gpu.local, gpu.device.limits.workgroup_invocations)
        return Machine(gpu.local // 2, team, 1 << 17, 64, HELD, 32, most)
    return Machine(gpu.local, gpu.local, 4 * gpu.local, 64, HELD, 256, most)


def groups(gpu: Any, tasks: int, lanes: int, loads: int) -> tuple[int, int, int]:
    """How many workgroups of so many lanes for so many tasks, with so many loads a lane in each."""
    return gpu.grid(tasks * lanes * (loads * FOUR if gpu.device.is_cpu else 1), lanes)


class Fold(NamedTuple):
    """What is folded, apart from where it lies.

    Attributes
    ----------
    macros : dict
    plans : tuple of Plan
        For each input; they differ in strides and offset.
    words : (int, int)
        Of a State, and of a result.
    sizes : (number, number)
        How many elements are folded, and what their sum of squares is divided by (for normalisations: eps).
    """

    macros: dict
    plans: tuple[Plan, ...]
    words: tuple[int, int]
    sizes: tuple[float, float]


def launch(
    gpu: Any, fold: Fold, sources: Sequence[Block], target: Block, known: Sequence[Block | Span] = ()
) -> None:
    """Note the dispatches that fold views of the sources into dense `target`; `known` is bound behind."""
    plan, (words, result) = fold.plans[0], fold.words
    macros = {**fold.macros, "ALONG": plan.along, "ACROSS": plan.across}
    starts = [source.offset + plan.offset for source, plan in zip(sources, fold.plans)]
    if plan.parts == 1:
        push = packed(fold.plans, fold.sizes, target.offset // result, starts)
        dispatch(gpu, {**macros, "PARTS": 0, "MERGE": 0}, plan, push, (target, *sources, *known))
        return
    results = plan.kept.size * plan.across
    # The place of the result says which half: where folds follow each other and results lie side by side,
    # none waits until the states of the last one have been read.
    size, apart = words * results * plan.parts, ALIGNMENT // 4
    scratch = gpu.allocator.allocate(2 * size + apart)
    states = scratch.part(target.first // ALIGNMENT % 2 * (size + apart), size)
    at = states.offset // words
    push = packed(fold.plans, fold.sizes, at, starts)
    dispatch(gpu, {**macros, "PARTS": 1, "MERGE": 0}, plan, push, (states, *sources, *known))
    merge = merging(machine(gpu), results, plan.parts)
    push = packed((merge,) * len(sources), fold.sizes, target.offset // result, [at] * len(sources))
    macros.update(ALONG=1, ACROSS=1, PARTS=0, MERGE=1)
    dispatch(gpu, macros, merge, push, (target, states))


def packed(plans: tuple[Plan, ...], sizes: tuple[float, float], to: int, starts: list[int]) -> bytes:
    """Push constants; `to` counts results, and `starts` words or states."""
    plan = plans[0]
    counts = (plan.kept.size, plan.folded.size, plan.tail, plan.parts)
    push = PUSH(*counts, to, starts[0], *halves(sizes[0]), *halves(sizes[1]), *plan.shape, *plan.strides)
    return push if len(plans) == 1 else push + SECOND(starts[1], *plans[1].strides)


def dispatch(gpu: Any, macros: dict, plan: Plan, push: bytes, bindings: Sequence[Block | Span]) -> None:
    shader = gpu.shaders.get("reduce", macros, plan.constants)
    gpu.queue.dispatch(shader, groups(gpu, *plan.work), push, bindings)


@lru_cache(maxsize=4096)
def make_plan(machine: Machine, view: View, axes: tuple[int, ...], ordered: bool) -> Plan:
    """Choose how lanes are spread.

    Parameters
    ----------
    machine : Machine
    view : View
        Of the input.
    axes : tuple of int
        The folded ones.
    ordered : bool
        Whether the places of elements matter.
    """
    columns = [(n, s, a in axes) for a, (n, s) in enumerate(zip(view.shape, view.strides))]
    offset = view.offset
    steps = [(n, s) for n, s, folded in columns if folded and n != 1]
    if not ordered and view.size:
        offset += sum((n - 1) * s for n, s in steps if s < 0)
        steps = sorted(((n, abs(s)) for n, s in steps), key=lambda step: -step[1])
    kept = merged([(n, s) for n, s, folded in columns if not folded])
    folded = merged(steps)
    if len(kept.shape) + len(folded.shape) > MAX_AXES:
        raise Unsupported(
            f"a reduction over axes {axes} of shape {view.shape} walks {len(kept.shape) + len(folded.shape)} "
            f"axes that cannot be merged, and Vulkan kernels walk {MAX_AXES}: make it contiguous first"
        )
    along = across = FOUR
    beside = kept.reach < folded.reach
    fits = offset % FOUR == 0 and view.size > 0
    along = FOUR if fits and not beside and in_fours(folded, kept, len(folded.shape) == 1) else 1
    across = FOUR if fits and beside and in_fours(kept, folded, False) else 1
    tail = folded.shape[-1] % FOUR if along == FOUR else 0
    kept, folded = shortened(kept, across), shortened(folded, along)
    lanes = spread(machine, kept.size, folded.size, beside, machine.elements // along)
    return Plan(kept, folded, offset, along, across, tail, beside, lanes)


def merged(steps: list[tuple[int, int]]) -> Axes:
    """Axes with neighbours merged, and no axis where there is but one element."""
    path = walk(tuple(n for n, _ in steps), tuple(s for _, s in steps))
    return Axes((), ()) if path.count == 1 else Axes(path.shape, path.strides[0])


def in_fours(inner: Axes, outer: Axes, odd: bool) -> bool:
    """Whether four neighbours of the last inner axis always lie on 16 bytes; `odd` allows a rest."""
    if not inner.strides or inner.strides[-1] != 1 or inner.shape[-1] < FOUR:
        return False
    others = (*inner.strides[:-1], *outer.strides)
    return (odd or inner.shape[-1] % FOUR == 0) and all(s % FOUR == 0 for s in others)


def shortened(axes: Axes, width: int) -> Axes:
    if width == 1:
        return axes
    return Axes((*axes.shape[:-1], axes.shape[-1] // width), (*axes.strides[:-1], axes.strides[-1] * width))


def spread(machine: Machine, kept: int, folded: int, beside: bool, loads: int) -> Lanes:
    """Lanes for each result, so that each has about `loads`, or more of them where the device is not busy."""
    group, fold = machine.lanes, power_of_two(-(-folded // loads))
    if beside or kept * min(fold, group) < machine.wanted:
        group = machine.team
    most = group // min(LINE, power_of_two(kept), group) if beside else group
    fold = min(fold, most)
    while fold < most and kept * fold < machine.wanted and fold * 2 <= folded:
        fold *= 2
    parts = min(-(-machine.wanted // (kept * fold)), folded // (fold * machine.share))
    return Lanes(group, fold, max(1, parts, -(-folded // (fold * machine.most))))


def merging(machine: Machine, results: int, parts: int) -> Plan:
    """How states are folded: a row of them for each part."""
    fold, line = power_of_two(-(-parts // BATCH)), min(LINE, power_of_two(results))
    group = machine.lanes if fold * line <= machine.lanes else machine.team
    kept, folded = Axes((results,), (1,)), Axes((parts,), (results,))
    return Plan(kept, folded, 0, 1, 1, 0, True, Lanes(group, min(fold, group // min(line, group)), 1))


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << max(0, n - 1).bit_length()


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for, of reductions."""
    for op in rows_of("reduce"):
        for floating in {int(dtype.kind == "f") for dtype in dtypes_of(op)}:
            yield from folds({f"OP_{op.name}": 1, "FLOATING": floating, "INPUTS": 1, "NORM": 0})


def folds(macros: Macros) -> Iterator[tuple[str, Macros]]:
    """Likewise, of whatever these macros fold: at every width, in one part or several, and those merged."""
    for along, across in WIDTHS:
        for parts in (0, 1):
            yield "reduce", {**macros, "ALONG": along, "ACROSS": across, "PARTS": parts, "MERGE": 0}
    yield "reduce", {**macros, "ALONG": 1, "ACROSS": 1, "PARTS": 0, "MERGE": 1}
