"""Elementwise ops and casts: one dispatch of glsl/elementwise.comp each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from inspect import signature
from math import prod
from struct import Struct
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import bool_, float32, int32, uint8
from tinyadept.errors import Unsupported
from tinyadept.ops.elementwise import elementwise
from tinyadept.ops.table import Op, registry
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

from ..shaders import Macros, Shader
from ..walk import MAX_RANK, Walk, walk

APART, WIDE, REPEATED = range(3)  # how four neighbours lie in memory; glsl/elementwise.comp has the same
FOUR = 4
ELEMENTS = (bool_, uint8, int32, float32)
LARGE = 1 << 14  # elements from which a kernel of its own for a rank is worth building
DENSE_ONLY = 3  # inputs beside which the result has no view among the push constants
PREPARED = 8192  # calls whose choices are remembered, whatever the addresses of their operands
CONVERTING = ("cast", "copy")  # rows that are compiled for every pair of dtypes
# What an integer op cannot compute; the messages are the reference's.
REFUSALS: dict[str, tuple[str, type[Exception]]] = {
    "floor_divide": ("floor_divide: an integer was divided by zero", ZeroDivisionError),
    "remainder": ("remainder: an integer was divided by zero", ZeroDivisionError),
    "pow": ("pow: an integer to a negative power is no integer; make the base a float", ValueError),
}


class Variant(NamedTuple):
    """How the template is compiled for an op and its dtypes."""

    macros: dict[str, str | int]
    names: tuple[str, ...]  # of the numbers that follow the inputs
    refusal: tuple[str, type[Exception]] | None
    dense: bool  # the result has no view among the push constants
    tail: Struct  # of the push constants behind the views


class Plan(NamedTuple):
    """How operands are walked: the result first, then the inputs."""

    path: Walk
    constants: tuple[int, int, int]  # rank, width and kinds
    steps: int  # of all lanes together
    tail: int  # elements behind the last four


Prepared = tuple[Variant, Plan, Shader, tuple[int, int, int]]


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run one op of the families `elementwise` and `cast`; see `tinyadept.backends.vulkan.drivers`."""
    if into is None:
        block, view = gpu.allocator.allocate(prod(shape)), View.dense(shape)
        dispatch(gpu, op, inputs, block, view, dtype, params)
        return Buffer(block)
    if cannot_write(op, inputs, dtype, into):
        fresh = run(gpu, op, inputs, shape, dtype, params)
        assert fresh is not None
        op, inputs, params = registry["copy"], (wrap(fresh, View.dense(shape), dtype, gpu),), {}
    dispatch(gpu, op, inputs, into.buffer.data, into.layout, into.dtype, params)
    return None


def cannot_write(op: Op, inputs: tuple, dtype: np.dtype, into: Tensor) -> bool:
    """Whether the result must go to memory of its own first."""
    if dtype != into.dtype and op.name not in CONVERTING:
        return True
    if len(op.vjps) == DENSE_ONLY and not into.layout.is_contiguous:
        return True
    return any(moved_over(x, into) for x in inputs)


def moved_over(x: Tensor, into: Tensor) -> bool:
    """Whether writing one element may destroy another element of `x` that has yet to be read."""
    if x.buffer is not into.buffer or x.layout == into.layout:
        return False
    (first, last), (start, stop) = x.layout.span, into.layout.span
    return first < stop and start < last


def dispatch(gpu: Any, op: Op, inputs: tuple, block: Any, view: View, dtype: np.dtype, params: dict) -> None:
    """Note the dispatch that writes `op` of the inputs, as `dtype`, to a view of a block."""
    if view.size == 0:
        return
    bindings = [block, *[x.buffer.data for x in inputs]]
    layouts = (view, *[x.layout for x in inputs])
    offsets = [b.offset + v.offset for b, v in zip(bindings, layouts)]
    aligned = tuple([offset % FOUR == 0 for offset in offsets])
    key = (op, gpu.local, inputs[-1].dtype, dtype, aligned, layouts)
    found = gpu.prepared.get(key)
    if found is None:
        if len(gpu.prepared) >= PREPARED:
            gpu.prepared.clear()
        found = gpu.prepared[key] = prepare(gpu, op, inputs[-1].dtype, dtype, aligned, layouts)
    kernel, plan, shader, grid = found
    site = 0
    if kernel.refusal is not None:
        site = gpu.queue.site(*kernel.refusal)
        bindings.append(gpu.queue.reports)
    numbers = [float(params[name]) for name in kernel.names]
    if kernel.dense:
        rest = kernel.tail.pack(offsets.pop(0), plan.tail, site, *numbers)
    else:
        rest = kernel.tail.pack(plan.tail, site, *numbers)
    gpu.queue.dispatch(shader, grid, plan.path.push(*offsets, params=rest), bindings)


def prepare(
    gpu: Any, op: Op, takes: np.dtype, gives: np.dtype, aligned: tuple[bool, ...], layouts: tuple[View, ...]
) -> Prepared:
    """Choose how the operands are walked, what runs, and with which grid."""
    kernel = variant(op, takes, gives)
    plan = make_plan(kernel.dense, aligned, *layouts)
    constants = gpu.local, *plan.constants, ahead(gpu)
    shader = gpu.shaders.get("elementwise", kernel.macros, constants, source_of(gpu, op))
    return kernel, plan, shader, gpu.grid(layouts[0].size if gpu.device.is_cpu else plan.steps)


def ahead(gpu: Any) -> int:
    """How many fours a lane reads before it writes: a GPU wants many in flight, a CPU has few registers."""
    return 1 if gpu.device.is_cpu else 2


def variant(op: Op, takes: np.dtype, gives: np.dtype) -> Variant:
    """How the template is compiled for an op, the dtype of its last input, and that of the memory written."""
    arity = len(op.vjps)
    if op.name not in functions() and op.glsl is None:
        raise Unsupported(
            f"{op.name} has no function op_{op.name}: define it with glsl=..., write one in "
            "glsl/elementwise.glsl, or use the reference, .to('numpy')"
        )
    names = parameters(op, arity)
    refusal = None if takes.kind == "f" else REFUSALS.get(op.name)
    macros: dict[str, str | int] = {
        "OP": f"op_{op.name}",
        "ARITY": arity,
        "IN": takes.name.upper(),
        "OUT": gives.name.upper(),
    }
    if op.mask:
        macros["MASK"] = 1
    if names:
        macros["PARAMETERS"] = len(names)
    if refusal is not None:
        macros["STATUS"] = arity + 1
    dense = arity == DENSE_ONLY
    return Variant(macros, names, refusal, dense, Struct("i" * dense + "iI" + "f" * len(names)))


def source_of(gpu: Any, op: Op) -> str | None:
    """The template with a function from outside the package behind those of the package."""
    if op.glsl is None:
        return None
    own = '#include "elementwise.glsl"\n'
    template = (gpu.shaders.folder / "elementwise.comp").read_text(encoding="utf-8")
    return template.replace(own, f"{own}{op.glsl}\n")


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for, but for ops from outside the package."""
    for op in (row for row in (*rows_of("elementwise"), *rows_of("cast")) if row.glsl is None):
        for takes in dtypes_of(op):
            results = ELEMENTS if op.name in CONVERTING else (op.gives or takes,)
            yield from (("elementwise", variant(op, takes, gives).macros) for gives in results)


def rows_of(family: str) -> list[Op]:
    """The ops of a family."""
    return [op for op in registry.values() if op.family.name == family]


def dtypes_of(op: Op) -> tuple[np.dtype, ...]:
    """Those that an op computes in."""
    kinds = {"number": "uif", "float": "f", "strict float": "f", "whole": "bui", "bool": "b"}
    return tuple(dtype for dtype in ELEMENTS if dtype.kind in kinds.get(op.takes, "buif"))


@cache
def functions() -> frozenset[str]:
    """Names of the ops that glsl/elementwise.glsl spells."""
    source = (resources.files("tinyadept.glsl") / "elementwise.glsl").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^\w+ op_(\w+)\(", source, re.MULTILINE))


def parameters(op: Op, arity: int) -> tuple[str, ...]:
    """Names of the numbers that an op takes after its inputs, in order."""
    if op.family is not elementwise or not isinstance(op.forward, FunctionType):
        return ()  # a cast's dtype is that of the memory it writes, and NumPy's own functions take none
    return tuple(signature(op.forward).parameters)[arity:]


def make_plan(dense: bool, aligned: tuple[bool, ...], view: View, *layouts: View) -> Plan:
    """Choose between fours and single elements, and how each operand's fours lie.

    Parameters
    ----------
    dense : bool
        Whether the result has no view among the push constants.
    aligned : tuple of bool
        For the result and each input: whether its first element lies on 16 bytes.
    view, *layouts : View
        Of the result and of the inputs, which are repeated to its shape.
    """
    strides = [
        view.strides,
        *[x.strides if x.shape == view.shape else x.expand(view.shape).strides for x in layouts],
    ]
    path = walk(view.shape, *strides)
    kinds = [kind(steps, fits) for steps, fits in zip(path.strides, aligned)]
    flat = path.rank == 1 and path.count >= FOUR and (APART not in kinds or path.count >= LARGE)
    rows = path.rank > 1 and path.count >= LARGE and path.shape[-1] % FOUR == 0 and WIDE in kinds
    if flat or rows:
        fours = Walk(
            (*path.shape[:-1], path.shape[-1] // FOUR),
            tuple((*steps[:-1], steps[-1] * FOUR) for steps in path.strides[dense:]),
        )
        packed = sum(k << 2 * at for at, k in enumerate(kinds))
        return Plan(fours, (path.rank, FOUR, packed), fours.count, path.count % FOUR if flat else 0)
    rank = path.rank if path.count >= LARGE else MAX_RANK
    return Plan(Walk(path.shape, path.strides[dense:]), (rank, 1, 0), path.count, 0)


def kind(strides: Shape, aligned: bool) -> int:
    """How four neighbours along the last axis lie."""
    if strides[-1] == 0:
        return REPEATED
    if strides[-1] == 1 and aligned and all(step % FOUR == 0 for step in strides[:-1]):
        return WIDE
    return APART
