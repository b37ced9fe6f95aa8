"""The tape: remember each step, then walk the steps from newest to oldest."""

from __future__ import annotations

import contextlib
import heapq
import linecache
import sys
import threading
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from .tensor import Tensor, wrap
from .view import View

ticks = count(1)


class Mode(threading.local):
    grad = True  # whether steps are recorded
    watch: Callable | None = None  # is told of every op: its result, inputs and parameters


mode = Mode()


class Step:
    """One recorded op.

    Attributes
    ----------
    tick : int
        Only grows, so newest first is already a reverse topological order.
    op : Op
        The row of the table that was run.
    params : dict
        Its keyword arguments.
    parents : tuple
        For each input the step that made it, the leaf itself, or None where no gradient flows.
    inputs : list or None
        Each input as far as the rules need it: a Tensor, an Outline (shape and dtype only), or None; None
        when no rule needs any.
    """

    __slots__ = (
        "__weakref__",
        "hooks",
        "inputs",
        "op",
        "out",
        "params",
        "parents",
        "shapes",
        "tick",
        "versions",
        "where",
    )

    def __init__(self, tick, op, params, parents, inputs, shapes, versions, out, where):
        self.tick = tick
        self.op = op
        self.params = params
        self.parents = parents
        self.inputs = inputs
        self.shapes = shapes
        self.versions = versions
        self.out = out
        self.where = where
        self.hooks = None

    def __repr__(self) -> str:
        return f"<step {self.tick}: {self.op.name} at {self.line()}>"

    def line(self) -> str:
        """Where the op was called: file, line number and the line itself."""
        return source_line(*self.where)

    def release(self) -> None:
        """Forget the saved values; a second walk through this step says what to do."""
        self.inputs = self.out = self.parents = None

    def arguments(self) -> tuple[Tensor | None, tuple]:
        """The result and the inputs for the rules, checked against in-place writes.

        Raises
        ------
        RuntimeError
            If the values were freed by an earlier backward, or overwritten since the step was recorded.
        """
        if self.parents is None:
            raise RuntimeError(self.freed())
        inputs = self.inputs
        if inputs is None:
            inputs = (None,) * len(self.parents)
        else:
            for position, (x, version) in enumerate(zip(inputs, self.versions)):
                if version is not None and x.buffer.version != version:
                    raise RuntimeError(
                        self.overwritten(f"input {position}", x.shape, x.buffer.version, version)
                    )
        if self.out is None:
            return None, inputs
        buffer, view, dtype, backend, version = self.out
        if buffer.version != version:
            raise RuntimeError(self.overwritten("the result", view.shape, buffer.version, version))
        out = wrap(buffer, view, dtype, backend)
        out.step, out.requires_grad = self, True
        return out, inputs

    def freed(self) -> str:
        return (
            f"the values saved by {self.op.name} were freed by an earlier backward: "
            "pass retain_graph=True to that one to walk the same graph twice"
        )

    def overwritten(self, what: str, shape: tuple, now: int, then: int) -> str:
        return (
            f"backward needs {what} of {self.op.name}, of shape {shape}, but it was overwritten in place: "
            f"version {now}, recorded at version {then} by {self.line()}; write into a .clone() instead"
        )


class Outline:
    """What is kept of an input whose values no rule reads."""

    __slots__ = ("backend", "dtype", "shape")

    def __init__(self, x: Tensor):
        self.shape, self.dtype, self.backend = x.layout.shape, x.dtype, x.backend

    @property
    def ndim(self) -> int:
        return len(self.shape)


ENGINE = tuple(
    f"tinyadept.{name}" for name in ("ops", "functional", "operators", "indexing", "tape", "tensor")
)


def caller(depth: int = 2) -> tuple[Any, int]:
    """Code object and instruction of the nearest frame outside the engine (cheap; `Step.line` reads it)."""
    frame = sys._getframe(depth)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(ENGINE):
        frame = frame.f_back
    return frame.f_code, frame.f_lasti


def source_line(code: Any, instruction: int) -> str:
    number = next((n for start, end, n in code.co_lines() if start <= instruction < end), None)
    text = linecache.getline(code.co_filename, number or 0).strip()
    return f"{code.co_filename}:{number}" + (f": {text}" if text else "")


def record(op: Any, out: Tensor, inputs: tuple, params: dict) -> Tensor:
    """Write `op` on the tape as what made `out`, if some gradient can flow through it."""
    plan = op.plan(tuple([x.requires_grad for x in inputs]))
    if plan is None:
        return out
    flows, levels, keep_out = plan
    parents = [(x.step or x) if flow else None for x, flow in zip(inputs, flows)]
    saved = versions = levels  # none of them, when no rule reads any
    if levels is not None:
        saved = [x if level == 2 else Outline(x) if level else None for x, level in zip(inputs, levels)]
        versions = [x.buffer.version if level == 2 else None for x, level in zip(inputs, levels)]
    kept = (out.buffer, out.layout, out.dtype, out.backend, out.buffer.version) if keep_out else None
    shapes = [x.layout.shape for x in inputs]
    out.step = Step(next(ticks), op, params, parents, saved, shapes, versions, kept, caller())
    out.requires_grad = True
    return out


def check_fresh(x: Tensor, name: str) -> None:
    """Refuse a view whose memory a recorded write changed through another tensor: its history is not true."""
    if x.buffer.recorded > x.version:
        raise RuntimeError(
            f"{name} got a tensor of shape {x.shape} whose memory a recorded write changed through "
            "another view: its gradient would be wrong; take the view again from the tensor that was written"
        )


def backward(
    outputs: Sequence[Tensor],
    gradients: Sequence[Tensor],
    wanted: Sequence[Tensor] | None = None,
    retain_graph: bool = False,
    create_graph: bool = False,
) -> list[Tensor | None]:
    """Push gradients from outputs to the leaves, newest step first.

    Parameters
    ----------
    outputs, gradients : sequences of Tensor
        Where to begin, and with what.
    wanted : sequence of Tensor, optional
        Return the gradients of these and touch no ``.grad``; without it gradients are added to the leaves'
        ``.grad``.
    retain_graph : bool
        Keep what the steps saved, for another walk.
    create_graph : bool
        Record the rules themselves, so that the gradients can be differentiated.
    """
    arrived: dict[Any, Tensor] = {}
    waiting: list[tuple[int, Step]] = []
    useful = None if wanted is None else leading_to(outputs, wanted)
    found: dict[Any, Tensor] = {}
    targets = {} if wanted is None else {x.step or x: x for x in wanted}

    def send(node: Any, g: Tensor) -> None:
        if node in arrived:
            arrived[node] = arrived[node] + g
            return
        arrived[node] = g
        if type(node) is Step:
            heapq.heappush(waiting, (-node.tick, node))

    with set_grad_enabled(create_graph):
        for y, g in zip(outputs, gradients, strict=True):
            send(y.step or y, g)
        while waiting:
            step = heapq.heappop(waiting)[1]
            g = arrived.pop(step)
            for hook in tuple(step.hooks or ()):
                g = called(hook, g)
            if step in targets:
                found[step] = g
            if useful is None or any(parent in useful for parent in step.parents or ()):
                apply_rules(step, g, send, useful)
                if not (retain_graph or create_graph):
                    step.release()
        for leaf, g in arrived.items():
            for hook in tuple(leaf.hooks or ()):
                g = called(hook, g)
            found[leaf] = g
        if wanted is None:
            deposit(found, gradients)
    return [] if wanted is None else [found.get(x.step or x) for x in wanted]


def apply_rules(step: Step, g: Tensor, send: Callable, useful: set | None) -> None:
    """Run the gradient rule of each input through which gradient flows, and undo broadcasting."""
    out, inputs = step.arguments()
    op, params = step.op, step.params
    needs = [p is not None and (useful is None or p in useful) for p in step.parents or ()]
    together: Sequence = ()
    for position, parent in enumerate(step.parents or ()):
        if not needs[position]:
            continue
        watch, mode.watch = mode.watch, None  # only a rule's result is searched: it names the step
        try:
            if op.joint:
                together = together or op.vjps[0](g, out, *inputs, needs=needs, **params)
                d = together[position]
            elif op.variadic:
                d = op.vjps[0](g, out, position, *inputs, **params)
            else:
                d = op.vjps[position](g, out, *inputs, **params)
        finally:
            mode.watch = watch
        if d is None:
            continue
        if d.layout.shape != step.shapes[position]:
            d = d.sum_to(step.shapes[position])
        if watch is find_nan:
            check_finite(d, f"the gradient of input {position} of {op.name}, recorded at {step.line()},")
        send(parent, d)


def leading_to(outputs: Sequence[Tensor], wanted: Sequence[Tensor]) -> set:
    """Every step and leaf from which one of `wanted` can be reached, those themselves included.

    Steps older than all of `wanted` are not looked at.

    Raises
    ------
    RuntimeError
        If an earlier backward cut the graph, so that a way to one of `wanted` may be missing.
    """
    useful = {x.step or x for x in wanted}
    oldest = min((x.step.tick if x.step else 0 for x in wanted), default=0)
    seen, todo = set(), [y.step for y in outputs if y.step is not None]
    while todo:
        step = todo.pop()
        if step not in seen and step.tick >= oldest:
            seen.add(step)
            if step.parents is None and step.tick > oldest:
                raise RuntimeError(step.freed())
            todo.extend(p for p in step.parents or () if type(p) is Step)
    for step in sorted(seen, key=lambda step: step.tick):
        if any(p in useful for p in step.parents or () if p is not None):
            useful.add(step)
    return useful


def deposit(found: dict[Any, Tensor], gradients: Sequence[Tensor]) -> None:
    """Add gradients to the leaves' ``.grad``, each in memory of its own, so that writing to it is safe."""
    taken = {g.buffer for g in gradients}
    for leaf, g in found.items():
        if type(leaf) is Step:
            continue
        if leaf.grad is not None:
            g = leaf.grad + g
        elif g.buffer in taken or not g.layout.is_contiguous:
            g = g.clone()
        taken.add(g.buffer)
        leaf.grad = g


def called(hook: Callable, g: Tensor) -> Tensor:
    result = hook(g)
    if result is None:
        return g
    if not isinstance(result, Tensor) or result.shape != g.shape:
        got = result.shape if isinstance(result, Tensor) else type(result).__name__
        raise ValueError(f"a hook must return None or a tensor of the gradient's shape {g.shape}, got {got}")
    return result


def seeds(outputs: Sequence[Tensor], gradients: Any) -> list[Tensor]:
    """The incoming gradients: those given, or ones for scalars.

    Raises
    ------
    RuntimeError
        If an output needs no gradient, or a recorded write through another view made its history untrue.
    ValueError
        If an output has several elements and no gradient is given, or one of another shape.
    TypeError
        If a gradient is no Tensor.
    """
    if gradients is None:
        gradients = [None] * len(outputs)
    if len(gradients) != len(outputs):
        raise ValueError(f"got {len(gradients)} gradients for {len(outputs)} outputs")
    ready = []
    for y, g in zip(outputs, gradients, strict=True):
        if not y.requires_grad:
            raise RuntimeError(
                "nothing to differentiate: no input had requires_grad=True, or no_grad was active"
            )
        check_fresh(y, "backward")
        if g is None:
            if y.layout.size != 1:
                raise ValueError(
                    f"backward of a tensor of shape {y.shape} needs a gradient of that shape: it is no scalar"
                )
            g = Tensor(np.ones(y.shape, y.dtype), y.dtype, y.backend)
        if not isinstance(g, Tensor):
            raise TypeError(f"a gradient is a Tensor, got {type(g).__name__}")
        if g.shape != y.shape or g.backend is not y.backend:
            raise ValueError(
                f"the gradient has shape {g.shape} on {g.device}, the output {y.shape} on {y.device}"
            )
        ready.append(g.to(y.dtype))
    return ready


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """Gradients of outputs with respect to inputs, without touching any ``.grad``.

    Parameters
    ----------
    outputs, inputs : Tensor or sequence of Tensor
    grad_outputs : Tensor or sequence of Tensor, optional
        Incoming gradients, shaped as the outputs; ones for scalars by default.
    retain_graph : bool, optional
        Keep the graph for another walk; by default what `create_graph` says.
    create_graph : bool
        Make the results differentiable themselves.
    allow_unused : bool
        Return None for an input that the outputs do not depend on, instead of raising.

    Returns
    -------
    tuple of Tensor
        One for each input, shaped like it.

    Raises
    ------
    RuntimeError
        If an input needs no gradient or was not used, or the graph was freed.
    """
    outputs = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if isinstance(grad_outputs, Tensor):
        grad_outputs = [grad_outputs]
    for position, x in enumerate(inputs):
        if not x.requires_grad:
            raise RuntimeError(f"input {position} of shape {x.shape} has requires_grad=False")
    retain = create_graph if retain_graph is None else retain_graph
    results = backward(outputs, seeds(outputs, grad_outputs), inputs, retain, create_graph)
    if not allow_unused and any(g is None for g in results):
        unused = [position for position, g in enumerate(results) if g is None]
        raise RuntimeError(
            f"inputs {unused} were not used to compute the outputs: pass allow_unused=True to get None"
        )
    return tuple(results)


class set_grad_enabled(contextlib.ContextDecorator):
    """Record steps, or not, inside a ``with`` block or a decorated function."""

    def __init__(self, enabled: bool):
        self.enabled = enabled
        self.before: list[bool] = []

    def __enter__(self):
        self.before.append(mode.grad)
        mode.grad = self.enabled

    def __exit__(self, *error):
        mode.grad = self.before.pop()

    def _recreate_cm(self) -> set_grad_enabled:  # a decorated function may run in several threads at once
        return set_grad_enabled(self.enabled)


class no_grad(set_grad_enabled):
    """Record nothing: results inside have ``requires_grad=False``."""

    def __init__(self):
        super().__init__(False)


class enable_grad(set_grad_enabled):
    """Record again inside a `no_grad`."""

    def __init__(self):
        super().__init__(True)


def is_grad_enabled() -> bool:
    return mode.grad


class detect_anomaly(contextlib.ContextDecorator):
    """Find where NaN begins: the first op, or gradient rule, that makes one raises FloatingPointError.

    The message names the op, the input and the line that recorded it. Every result is read back, so this is
    slow.
    """

    def __init__(self):
        self.before: list[Callable | None] = []

    def __enter__(self):
        self.before.append(mode.watch)
        mode.watch = find_nan

    def __exit__(self, *error):
        mode.watch = self.before.pop()

    def _recreate_cm(self) -> detect_anomaly:
        return detect_anomaly()


def find_nan(op: Any, out: Tensor, inputs: tuple, params: dict) -> None:
    check_finite(out, f"the result of {op.name} at {source_line(*caller(3))}")


def check_finite(x: Tensor, what: str) -> None:
    if x.is_floating_point:
        bad = np.isnan(x.backend.download(x))
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            raise FloatingPointError(
                f"{what} has {int(bad.sum())} NaN of {bad.size} elements, the first at {where}"
            )


def as_view(x: Tensor, view: View) -> Tensor:
    """The same memory under another view, unrecorded."""
    return wrap(x.buffer, view, x.dtype, x.backend)
