"""The table of operations: each one is a row, and everything else is generated from the row."""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from .. import device as devices
from .. import dtypes
from ..tape import check_fresh, mode, record
from ..tensor import Buffer, Tensor, wrap
from ..view import Shape, View

VALUE, SHAPE = 2, 1  # how much of an input a rule reads
TAKING_FLOATS = frozenset(("any", "number", "float", "strict float"))
OUTLINED = frozenset(("shape", "dtype", "ndim", "backend"))


@dataclass(frozen=True, eq=False)
class Family:
    """Ops that share a shape rule, a dtype rule and one driver per backend.

    Attributes
    ----------
    name : str
        Backends look their driver up by it.
    infer : callable
        ``infer(op, inputs, params)`` returns the inputs (numbers lifted, dtypes met), the shape and the
        dtype of the result, or raises.
    run : callable, optional
        ``run(op, inputs, params)`` makes the result. By default the backend of the inputs does; the family
        `move` needs none.
    activated : callable, optional
        ``activated(op, inputs, params)`` makes the result of a call with a parameter `activation`.
    """

    name: str
    infer: Callable
    run: Callable | None = None
    activated: Callable | None = None


@dataclass(frozen=True, eq=False)
class Op:
    """One row of the table.

    Attributes
    ----------
    name : str
        The contract: registry, tensor method, ``op_<name>`` in GLSL and test id are spelled the same.
    family : Family
    forward : callable
        What the op means: arrays in, array out. In the family `move` views in, view out.
    vjps : tuple
        One gradient rule per input, ``rule(g, out, *inputs, **params)``, written in tensor operators; None
        where no gradient flows. Inputs that may be left out come last, and have defaults in the rules.
    domain : pair of float, or one pair per input
        Where the mathematics is defined, for those who draw random inputs.
    takes : str
        Dtypes that it computes in: ``"any"``, ``"number"`` (no bool), ``"float"`` (ints become float32),
        ``"strict float"``, ``"whole"`` (integers and bool) or ``"bool"``.
    gives : dtype, optional
        Of the result, where it is not the dtype computed in.
    mask : bool
        Whether the first input is a condition, that is bool whatever the others are.
    variadic : bool
        Whether any number of inputs is taken. A single rule serves all, ``rule(g, out, position, *inputs,
        **params)``.
    joint : bool
        Whether the gradients share work: a single rule ``rule(g, out, *inputs, needs, **params)`` then
        returns those of all inputs, of which only the ones in `needs` (bool for each) are looked at.
    amend : callable, optional
        Of ops that return their first input with some elements changed: the same on that array itself, for a
        backend that is asked to write the result over it.
    glsl : str or Path, optional
        For ops from outside the package, what Vulkan devices run: in the family `elementwise` a function
        ``op_<name>``, in a family `Kernel` a whole shader. A path is read when the op is defined.
    ulps : float
        How far a float32 result may lie from the truth, in units of the last place.
    """

    name: str
    family: Family
    forward: Callable
    vjps: tuple
    domain: Any = (-3.0, 3.0)
    takes: str = "any"
    gives: Any = None
    mask: bool = False
    variadic: bool = False
    joint: bool = False
    amend: Callable | None = None
    glsl: str | None = None
    ulps: float = 4.0
    plans: dict = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def plan(self, needs: tuple[bool, ...]) -> tuple | None:
        """What a step must keep when these inputs need gradients; None when no gradient flows.

        Returns
        -------
        flows : list of bool
            Through which inputs gradient flows.
        levels : list of int or None
            How much of each input the rules of those read; None when nothing of any.
        keep_out : bool
            Whether they read the result.
        """
        if needs not in self.plans:
            self.plans[needs] = self.make_plan(needs)
        return self.plans[needs]

    def make_plan(self, needs: tuple[bool, ...]) -> tuple | None:
        if self.variadic:
            flows = [need and self.vjps[0] is not None for need in needs]
            return (flows, [SHAPE] * len(needs), False) if any(flows) else None
        if self.joint:
            keep_out, *levels = readings(self.vjps[0], len(needs))
            return (list(needs), levels, keep_out > 0) if any(needs) else None
        rules = self.vjps[: len(needs)]  # inputs at the end may be left out
        flows = [need and rule is not None for need, rule in zip(needs, rules, strict=True)]
        if not any(flows):
            return None
        reads = [readings(rule, len(needs)) for rule, flow in zip(rules, flows, strict=True) if flow]
        keep_out, *levels = (max(level) for level in zip(*reads, strict=True))
        return flows, levels if any(levels) else None, keep_out > 0


def readings(rule: Callable, arity: int) -> list[int]:
    """How much a rule reads of the result and of each input: nothing, its shape, or its values.

    The tape saves no more than that. The rule's own bytecode says it: a name that is only ever followed by
    ``.shape`` or the like needs no values.
    """
    names = rule.__code__.co_varnames[1 : arity + 2]
    if len(names) < arity + 1 or rule.__code__.co_flags & 0x04:  # *args: anything may be read
        return [VALUE] * (arity + 1)
    found = dict.fromkeys(names, 0)
    code = list(dis.get_instructions(rule.__code__))
    for at, instruction in enumerate(code):
        if "LOAD" not in instruction.opname:
            continue
        loaded = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)
        following = code[at + 1] if at + 1 < len(code) else None
        outlined = following is not None and following.opname == "LOAD_ATTR" and following.argval in OUTLINED
        for position, name in enumerate(loaded):
            if name in found:
                last = position == len(loaded) - 1
                found[name] = max(found[name], SHAPE if outlined and last else VALUE)
    return list(found.values())


registry: dict[str, Op] = {}


class Row(Protocol):
    """The function that runs an op."""

    op: Op

    def __call__(self, *inputs: Any, **params: Any) -> Tensor: ...


def define(family: Family, name: str, forward: Callable, *vjps: Callable | None, **facts: Any) -> Row:
    """Add a row to the table and return the function that runs it.

    Parameters
    ----------
    family : Family
        Gives the shape and dtype rules.
    name : str
    forward : callable
        The meaning, in NumPy.
    *vjps : callable or None
        One gradient rule per input; see `Op`.
    **facts
        The other attributes of `Op`.

    Raises
    ------
    ValueError
        If the name is taken.
    """
    if name in registry:
        raise ValueError(f"op {name!r} is defined twice")
    if isinstance(facts.get("glsl"), Path):
        facts["glsl"] = facts["glsl"].read_text(encoding="utf-8")
    op = registry[name] = Op(name, family, forward, vjps, **facts)

    def run(*inputs: Any, **params: Any) -> Tensor:
        return apply(op, inputs, params)

    run.__name__ = run.__qualname__ = name
    row = cast(Row, run)
    row.op = op
    return row


def amended(amend: Callable) -> Callable:
    """The meaning of an op that changes some elements of its first input: the same on a copy of it."""

    def forward(base: np.ndarray, *others: np.ndarray, **params: Any) -> np.ndarray:
        out = np.array(base)
        amend(out, *others, **params)
        return out

    return forward


def apply(op: Op, inputs: tuple, params: dict, backend: Any = None) -> Tensor:
    """Run `op` on whichever backend its inputs live, and note it on the tape."""
    if op.family.activated is not None and "activation" in params:
        return op.family.activated(op, inputs, params)
    if op.family.run is not None:
        return op.family.run(op, inputs, params)
    inputs, shape, dtype = op.family.infer(op, inputs, params)
    if inputs:
        backend = inputs[0].backend
    out = wrap(backend.run(op, inputs, shape, dtype, params), View.dense(shape), dtype, backend)
    return finish(op, out, inputs, params)


def finish(op: Op, out: Tensor, inputs: tuple, params: dict) -> Tensor:
    """What every result goes through: the tape, and whoever watches."""
    if mode.grad:
        needed = False
        for x in inputs:
            if x.requires_grad:
                needed = True
            if x.buffer.recorded > x.version:
                check_fresh(x, op.name)
        if needed and out.dtype.kind == "f":
            record(op, out, inputs, params)
    if mode.watch is not None:
        mode.watch(op, out, inputs, params)
    return out


def apply_into(op: Op, target: Tensor, inputs: tuple, params: dict) -> Tensor:
    """Run `op` and write the result over `target`, whose history then continues from this step.

    Raises
    ------
    RuntimeError
        If `target` is a leaf that needs a gradient, or repeats cells (an expanded view).
    ValueError, TypeError
        If the result has another shape, or a kind of dtype that `target` cannot hold.
    """
    inputs, shape, dtype = op.family.infer(op, inputs, params)
    if shape != target.shape:
        raise ValueError(
            f"{op.name} in place: the result has shape {shape}, the tensor written to {target.shape}"
        )
    if dtypes.KIND[dtype] > dtypes.KIND[target.dtype]:
        raise TypeError(
            f"{op.name} in place: a {dtype.name} result does not fit a {target.dtype.name} tensor"
        )
    check_writable(op, target)
    if not mode.grad and mode.watch is None:  # nothing to note, and nobody to tell
        target.backend.run(op, inputs, shape, dtype, params, into=target)
        overwritten(target)
        return target
    rewrite = begin_write(op, target, inputs, params)
    target.backend.run(op, inputs, shape, dtype, params, into=target)
    return rewrite()


def check_writable(op: Op, target: Tensor) -> None:
    if mode.grad and target.requires_grad and target.step is None:
        raise RuntimeError(
            f"{op.name} in place on a leaf that needs a gradient: write under no_grad, or to a copy of it"
        )
    if target.layout.overlaps:
        raise RuntimeError(
            f"{op.name} in place on a view of shape {target.shape} that repeats cells: clone() it first"
        )


def begin_write(op: Op, target: Tensor, inputs: tuple, params: dict) -> Callable[[], Tensor]:
    """Note the step while the old values are there; the returned function makes the tensor its result."""
    note = wrap(target.buffer, target.layout, target.dtype, target.backend)
    # A step must not hold the tensor that holds the step; what it saves of the target is about to change
    # anyway.
    alias = wrap(target.buffer, target.layout, target.dtype, target.backend)
    alias.requires_grad, alias.step, alias.version = target.requires_grad, target.step, target.version
    finish(op, note, tuple(alias if x is target else x for x in inputs), params)

    def rewrite() -> Tensor:
        buffer = overwritten(target)
        if note.step is not None:
            target.version = buffer.version  # its history begins anew, also where an older one was lost
            buffer.recorded = buffer.version
            if note.step.out is not None:
                note.step.out = (*note.step.out[:-1], buffer.version)
            target.step, target.requires_grad = note.step, True
        return target

    return rewrite


def overwritten(target: Tensor) -> Buffer:
    """Note that the elements of `target` were written, off the tape."""
    buffer = target.buffer
    stale = buffer.recorded > target.version
    buffer.version += 1
    if not stale:  # a write off the tape does not mend a lost history
        target.version = buffer.version
    return buffer


@lru_cache(maxsize=4096)
def scalar(number: Any, sign: str, dtype: np.dtype, backend: Any) -> Tensor:
    """A Python number as a 0-d tensor, kept for the next time."""
    if dtype in dtypes.INTEGERS and not np.iinfo(dtype).min <= number <= np.iinfo(dtype).max:
        raise OverflowError(f"{number} does not fit {dtype.name}")
    return wrap(backend.upload(np.array(number, dtype)), View.dense(()), dtype, backend)


def lift(value: Any, dtype: np.dtype, backend: Any) -> Tensor:
    """A number beside a tensor: 0-d, on its backend."""
    return scalar(value, str(value) if value == 0 else "", dtype, backend)


def backend_of(op: Op, inputs: Sequence) -> Any:
    """The one backend of the tensors among the inputs.

    Raises
    ------
    ValueError
        If they live on different devices.
    """
    found = None
    for x in inputs:
        if isinstance(x, Tensor):
            if found is not None and x.backend is not found:
                raise ValueError(
                    f"{op.name}: inputs are on {found.name} and {x.device}; move one with .to(...)"
                )
            found = x.backend
    return found or devices.resolve()


def lifted(op: Op, inputs: Sequence, dtype: np.dtype, backend: Any) -> list[Tensor]:
    """Inputs as tensors of one dtype."""
    return [meet(op, x, dtype, backend) for x in inputs]


def meet(op: Op, x: Any, dtype: np.dtype, backend: Any) -> Tensor:
    if isinstance(x, Tensor):
        return x if x.dtype == dtype else cast_to(x, dtype)
    return lift(x, dtype, backend)


def met(op: Op, inputs: Sequence) -> tuple[tuple[Tensor, ...], np.dtype]:
    """Inputs as tensors on one device, of the dtype that the op computes in, and that dtype."""
    ready = alike(inputs) if op.takes in TAKING_FLOATS else None
    if ready is not None:
        return ready, ready[0].dtype
    values = operands(op, inputs)
    backend, dtype = backend_of(op, values), compute_dtype(op, values)
    return tuple(lifted(op, values, dtype, backend)), dtype


def alike(inputs: Sequence) -> tuple | None:
    """The common case, quickly: float tensors of one dtype on one device, and numbers after the first."""
    first = inputs[0]
    if not isinstance(first, Tensor) or first.dtype.kind != "f":
        return None
    dtype, backend, ready = first.dtype, first.backend, []
    for x in inputs:
        if isinstance(x, Tensor):
            if x.dtype != dtype or x.backend is not backend:
                return None
            ready.append(x)
        elif type(x) is float or type(x) is int:
            ready.append(lift(x, dtype, backend))
        else:
            return None
    return tuple(ready)


def cast_to(x: Tensor, dtype: np.dtype) -> Tensor:
    return apply(registry["cast"], (x,), {"dtype": dtype})


def operands(op: Op, inputs: Sequence) -> list:
    """Inputs with NumPy's scalars and arrays turned into numbers and tensors, all on one device."""
    ready = []
    for x in inputs:
        if isinstance(x, np.generic) and x.dtype.kind in "biuf":
            ready.append(x.item())
        elif isinstance(x, (Tensor, bool, int, float)):
            ready.append(x)
        elif isinstance(x, np.ndarray):
            ready.append(Tensor(x, device=backend_of(op, inputs)))
        else:
            raise TypeError(f"{op.name} takes tensors and numbers, got {type(x).__name__}")
    backend_of(op, ready)
    return ready


def compute_dtype(op: Op, inputs: Sequence) -> np.dtype:
    """The dtype that an op computes in, from its inputs and from what it takes."""
    tensors = [(x.dtype, x.layout.shape == ()) for x in inputs if isinstance(x, Tensor)]
    numbers = [type(x) for x in inputs if not isinstance(x, Tensor)]
    dtype = dtypes.promote(tensors, numbers)
    if op.gives == dtypes.bool_ and dtype == dtypes.uint8 and int in numbers:
        whole = [x for x in inputs if type(x) is int]  # a comparison has an answer whatever the number is
        dtype = dtype if 0 <= min(whole) <= max(whole) < 256 else dtypes.int32
    if op.takes == "bool":
        return dtypes.bool_
    if op.takes == "float" and dtype not in dtypes.FLOATS:
        return dtypes.float32
    if op.takes == "number" and dtype == dtypes.bool_:
        raise TypeError(f"{op.name} does not take booleans: convert with .to(int32), or use a logical op")
    if op.takes == "whole" and dtype in dtypes.FLOATS:
        raise TypeError(f"{op.name} takes integers and booleans, got {dtype.name}")
    if op.takes == "strict float" and dtype not in dtypes.FLOATS:
        raise TypeError(f"{op.name} takes floating-point tensors, got {dtype.name}")
    return dtype


@lru_cache(maxsize=4096)
def broadcast(name: str, *shapes: Shape) -> Shape:
    """The shape to which all of these expand.

    Raises
    ------
    ValueError
        If two lengths of an axis differ and neither is 1.
    """
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    result = []
    for lengths in zip(*padded, strict=True):
        sizes = set(lengths) - {1}
        if len(sizes) > 1:
            raise ValueError(f"{name}: shapes {' and '.join(map(str, shapes))} do not broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


@dataclass(frozen=True)
class Move:
    """One of the ops that only change the view, with its parameters: an address inside a tensor."""

    op: Op
    params: tuple

    def __call__(self, x: Tensor) -> Tensor:
        return apply(self.op, (x,), dict(self.params))

    def view(self, shape: Shape) -> View:
        return self.op.forward(View.dense(shape), **dict(self.params))
