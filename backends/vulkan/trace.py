"""What one run of a function asked of the device, to be compared with the next run: a replay repeats it."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any
from weakref import ref
from zlib import crc32

import numpy as np

from tinyadept.ops.table import Op
from tinyadept.ops.update import updating
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape


class Number(Buffer):
    """A buffer of one element whose value the host knows: it may not change from run to run."""

    __slots__ = ("value",)

    def __init__(self, data: Any, value: Any):
        super().__init__(data)
        self.value = value


class Trace:
    """Notes of one run.

    Attributes
    ----------
    notes : list of tuple
        For every op its name, shapes, strides, dtypes, parameters and numbers; for every upload what it held.
    reads : int
        How often values were read back.
    written : list of weak references to Buffer
        What was changed in place.
    """

    def __init__(self) -> None:
        self.notes: list[tuple] = []
        self.reads = 0
        self.written: list[ref[Buffer]] = []

    def op(
        self, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None
    ) -> None:
        # The numbers of an optimiser's step are read from memory.
        known = {name: value for name, value in params.items() if name != "numbers"}
        layouts = [(x.layout.shape, x.layout.strides, x.dtype.name, value_of(x)) for x in inputs]
        target = None if into is None else (into.layout.shape, into.layout.strides)
        self.notes.append((op.name, layouts, shape, dtype.name, known, target))
        if op.family is updating:
            self.written += [ref(x.buffer) for x in inputs]
        elif into is not None:
            self.written.append(ref(into.buffer))

    def upload(self, array: np.ndarray) -> None:
        if array.size > 1:  # smaller ones are compared where they are used
            self.notes.append(("an upload", array.shape, array.dtype.name, crc32(array.tobytes())))

    def difference(self, other: Trace) -> str | None:
        """What was first asked for otherwise in `other`; None when nothing was."""
        for at, (here, there) in enumerate(zip_longest(self.notes, other.notes)):
            if here != there:
                return f"step {at} was {told(here)}, and in the next run {told(there)}"
        return None


def value_of(x: Tensor) -> Any:
    buffer = x.buffer
    return buffer.value if type(buffer) is Number and buffer.version == 0 else None


def told(note: tuple | None) -> str:
    if note is None:
        return "none"
    name, first, *_, last = note
    if name == "an upload":
        return f"an upload of shape {first} with checksum {last}"
    shapes = ", ".join(str(shape if value is None else value) for shape, _, _, value in first)
    params = note[4]
    return f"{name}({shapes}{', ' + str(params) if params else ''})"
