"""Watching a program: each op that it runs on a device is run on the reference too, with the same inputs.

So a kernel that is wrong is found where it is wrong, and not steps later in what was made of its result; and
the rounding of a long computation cannot add up to a false alarm.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, FunctionType
from typing import Any

import numpy as np

from .. import device as devices
from .. import dtypes
from ..capture import Captured, mapped, placed
from ..ops.table import Op
from ..tape import ENGINE, apply_rules, source_line
from ..tensor import Tensor, wrap
from ..view import Shape, View
from .bounds import EPS, ROUNDINGS, mismatch
from .case import Case, Given
from .checks import Wrong, first_wrong
from .program import program

SMALL = 64  # cells of an input that a printed program may hold
PACKAGE = __name__.split(".")[0]


class Differs(Wrong):
    """An op whose result on a device is not the reference's."""

    def __init__(self, case: Case, what: str, place: str):
        super().__init__(case, what)
        self.place = place

    def __reduce__(self) -> tuple:
        return (Differs, (self.case, self.what, self.place))

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.place}"


class Comparison:
    """What `first_difference` compares.

    Attributes
    ----------
    backend : Backend
    tolerance : float
    compared : int
        Ops so far.
    found : Differs or None
        The first difference.
    """

    def __init__(self, backend: Any, tolerance: float):
        self.backend, self.tolerance = backend, tolerance
        self.compared = 0
        self.found: Differs | None = None
        self.unwatched = backend.run
        self.busy = threading.local()

    def run(
        self, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
    ) -> Any:
        """Run an op as the backend does, and compare."""
        if getattr(self.busy, "now", False):  # an op that another one is made of, or one of the reference
            return self.unwatched(op, inputs, shape, dtype, params, into)
        self.busy.now = True
        params = {name: frozen(value) for name, value in params.items()}
        try:
            before = tuple(copied(x) for x in inputs)
            target = None if into is None else copied(into)
            buffer = self.unwatched(op, inputs, shape, dtype, params, into)
            out = into if into is not None else wrap(buffer, View.dense(shape), dtype, self.backend)
            try:
                self.judge(Case(op, before, params), inputs, out, dtype, target)
            except Wrong as error:
                self.found = self.found or self.explained(error)
                raise self.found from None
            self.compared += 1
            return buffer
        finally:
            self.busy.now = False

    def judge(self, case: Case, inputs: tuple, out: Tensor, dtype: np.dtype, target: Given | None) -> None:
        """Compare a result, what lies beside it, and the inputs, with what the reference has afterwards."""
        got = np.array(self.backend.download(out))
        truth, operands = reference(case, out.shape, dtype)
        self.compare(case, "", got, truth, case.bound(truth) if truth.size and truth.dtype.kind == "f" else 0)
        if target is not None:
            beside = np.ones(target.memory.shape, bool)
            beside[Given(np.arange(beside.size), target.view).values.ravel()] = False
            self.compare(case, "beside the result, ", copied(out).memory[beside], target.memory[beside], 0)
        for position, (x, wanted) in enumerate(zip(inputs, operands)):
            if target is None or x.buffer is not out.buffer:
                now, unchanged = copied(x).values, case.inputs[position].values
                still = np.array_equal(wanted, unchanged, equal_nan=True)
                slack = 0 if still else ROUNDINGS * EPS * np.abs(wanted)  # an optimiser's step
                self.compare(case, f"input {position} afterwards: ", now, wanted, slack)

    def compare(self, case: Case, what: str, got: np.ndarray, truth: np.ndarray, allowed: Any) -> None:
        if got.shape != truth.shape:
            raise Wrong(case, f"{what}shape {got.shape}, expected {truth.shape}")
        if truth.dtype.kind == "f" and np.any(allowed):
            largest = np.max(np.abs(truth), initial=0.0, where=np.isfinite(truth))
            allowed = allowed + self.tolerance * largest
        wrong = mismatch(got, truth, allowed)
        if wrong.any():
            raise Wrong(case, what + first_wrong(got, truth, wrong))

    def explained(self, error: Wrong) -> Differs:
        """The difference with the line that caused it, and a program where inputs are small."""
        lines = [f"    op {self.compared + 1} on {self.backend.name}", *(f"    {line}" for line in places())]
        name = self.backend.name
        if (
            all(x.memory.size <= SMALL for x in error.case.inputs)
            and devices.backends.get(name) is self.backend
        ):
            lines += ["", program(error.case, "forward", name, 0, error)[1]]
        return Differs(error.case, error.what, "\n".join(lines))


@contextmanager
def first_difference(device: Any = None, tolerance: float = 1e-6) -> Iterator[Comparison]:
    """Inside, every op on a device is run on the reference too, in float64 and with the same inputs.

    Gradient rules are ops like others, and so are writes in place; views compute nothing. Every result is
    read back, so this is slow.

    Parameters
    ----------
    device : str or Backend, optional
        By default what TINYADEPT_DEVICE says.
    tolerance : float
        How far an element may lie from the truth beside the bound of its op, relative to the largest element:
        bounds are those of random inputs, and where much cancels in a program's own more is lost.

    Yields
    ------
    Comparison

    Raises
    ------
    Differs
        At the first op whose result lies too far from the reference's. It names the op, the line that called
        or recorded it, the first wrong element with both values, and the views of the inputs.

    Examples
    --------
    >>> with first_difference("vulkan") as comparison:
    ...     loss(model(x)).backward()
    >>> comparison.compared
    27
    """
    backend, replaying = devices.resolve(device), Captured.__call__
    comparison = Comparison(backend, tolerance)
    backend.run, Captured.__call__ = comparison.run, eagerly
    try:
        yield comparison
    finally:
        del backend.run  # what the class defines comes back
        Captured.__call__ = replaying


def eagerly(self: Captured, *args: Any) -> Any:
    """What a captured function does meanwhile: no replay, which runs no op."""
    backend = devices.resolve(self.device)
    return self.function(*mapped(args, lambda x: placed(x, backend)))


def frozen(value: Any) -> Any:
    """A parameter; one that is asked for its numbers, as optimisers' are, gives both runs the same."""
    if not isinstance(value, FunctionType):
        return value
    numbers = value()
    return lambda: numbers


def copied(x: Tensor) -> Given:
    """A tensor's memory, from the first to the last cell that it reads, and the view."""
    low, high = x.layout.span
    memory = x.backend.download(wrap(x.buffer, View((high - low,), (1,), low), x.dtype, x.backend))
    return Given(np.array(memory), View(x.shape, x.layout.strides, x.layout.offset - low if high else 0))


def reference(case: Case, shape: Shape, dtype: np.dtype) -> tuple[np.ndarray, list[np.ndarray]]:
    """The result in float64, and the operands afterwards."""
    numpy = devices.resolve("numpy")
    wide = tuple(x.on(numpy, np.float64 if x.is_float else None) for x in case.inputs)
    result = numpy.run(
        case.op, wide, shape, dtypes.float64 if dtype == dtypes.float32 else dtype, case.params
    )
    return result.data.reshape(shape), [numpy.download(x) for x in wide]


def places() -> Iterator[str]:
    """Where the op that runs now was called: nearest line outside the engine, and outside the package."""
    frame: FrameType | None = sys._getframe(1)
    inside = (*ENGINE, f"{PACKAGE}.oracle", f"{PACKAGE}.backends", "contextlib")
    nearest = True
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if frame.f_code is apply_rules.__code__:
            step = frame.f_locals["step"]
            yield f"in the gradient rule of {step.op.name}, which was recorded at {step.line()}"
            return
        if not module.startswith(inside) and (nearest or not module.startswith(f"{PACKAGE}.")):
            yield f"called at {source_line(frame.f_code, frame.f_lasti)}"
            nearest = False
            if not module.startswith(f"{PACKAGE}."):
                return
        frame = frame.f_back
