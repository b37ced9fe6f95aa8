"""A failing call with plainer inputs: hypothesis shrinks shapes and layouts, this the numbers in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..view import View
from .case import Case, Given

MOST_CELLS = 64  # of an input whose numbers are tried one by one


def simpler(case: Case, fails: Callable[[Case], bool], kinks: bool) -> Case:
    """The same call with dense inputs and round numbers, as far as it still fails.

    Parameters
    ----------
    case : Case
    fails : callable
    kinks : bool
        Whether numbers may lie where there may be no derivative: at zero, at one, and where elements tie.
    """
    for position in range(len(case.inputs)):
        for attempt in dense(case.inputs[position]):
            case = tried(case, position, attempt, fails)
        for cell in range(min(case.inputs[position].memory.size, MOST_CELLS)):
            for value in plainer(case, position, cell, kinks):
                memory = case.inputs[position].memory.copy()
                memory[cell] = value
                changed = tried(case, position, replace(case.inputs[position], memory=memory), fails)
                if changed is not case:
                    case = changed
                    break
    return case


def tried(case: Case, position: int, attempt: Given, fails: Callable[[Case], bool]) -> Case:
    changed = replace(case, inputs=(*case.inputs[:position], attempt, *case.inputs[position + 1 :]))
    return changed if fails(changed) else case


def dense(x: Given) -> Iterator[Given]:
    if not x.view.is_contiguous or x.view.offset or x.memory.size != x.view.size:
        yield Given(np.ascontiguousarray(x.values).ravel(), View.dense(x.view.shape))


def plainer(case: Case, position: int, cell: int, kinks: bool) -> Iterator[float]:
    """Numbers to try in a cell, the plainest first; none outside of the op's domain."""
    x, domain = case.inputs[position], case.op.domain
    low, high = domain[position % len(domain)] if isinstance(domain[0], tuple) else domain
    now = x.memory[cell]
    if not x.is_float:
        return
    if not np.isfinite(now):
        if cell not in cells(x):  # nobody should read it
            yield 0.0
        return
    for value in (0.0, 1.0) if kinks else ():
        if low <= value <= high:
            yield value
    short = np.float32(round(float(now), 1))
    if short != now and low <= short <= high and (kinks or short != np.rint(short)):
        yield float(short)


def cells(x: Given) -> set[int]:
    """Which cells the view reads."""
    return set(Given(np.arange(x.memory.size), x.view).values.ravel().tolist())
