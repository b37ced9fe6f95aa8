"""Graphs inside nodes, sequences of tensors, and optional values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from ... import creation
from ...functional import cat, stack
from ...tensor import Tensor, from_numpy
from ...view import normal_axis
from .. import types
from ..registry import Node, operator

HOST_INT, BOOL = TensorProto.INT64, TensorProto.BOOL


def on_host(values: Any, dtype: Any = np.int64) -> Tensor:
    return from_numpy(np.array(values, dtype))


@operator("If", reads=(0,), prepare=True)
def if_(node: Node) -> Callable:
    assert node.subgraph is not None
    then, other = node.subgraph("then_branch"), node.subgraph("else_branch")
    if len(then.outputs) != len(other.outputs) or len(then.outputs) < len(node.outputs):
        node.fail(f"its branches have {len(then.outputs)} and {len(other.outputs)} outputs")
    node.output_types = [a or b for a, b in zip(then.output_types, other.output_types)][: len(node.outputs)]

    def run(env: list, condition: Tensor) -> tuple:
        return tuple((then if truth(node, condition) else other).run(env))

    return run


def truth(node: Node, condition: Tensor) -> bool:
    if condition.numel() != 1:
        node.fail(f"the condition has shape {condition.shape}, expected one element")
    return bool(condition.item())


@operator("Loop", reads=(0, 1), prepare=True)
def loop(node: Node) -> Callable:
    assert node.subgraph is not None
    body = node.subgraph("body", [HOST_INT, BOOL, *node.input_types[2:]])
    carried = len(node.inputs) - 2
    if len(body.inputs) != carried + 2 or len(body.outputs) < carried + 1:
        node.fail(f"its body has {len(body.inputs)} inputs and {len(body.outputs)} outputs")
    node.output_types = body.output_types[1:][: len(node.outputs)]

    def run(env: list, trips: Tensor | None, condition: Tensor | None, *values: Any) -> tuple:
        most = None if trips is None else node.integer(trips)
        going = condition is None or truth(node, condition)
        gathered: list[list] = [[] for _ in body.outputs[carried + 1 :]]
        done = 0
        while going and (most is None or done < most):
            going_on, *results = body.run(env, on_host(done), on_host(going, np.bool_), *values)
            going, values = truth(node, going_on), tuple(results[:carried])
            for rows, row in zip(gathered, results[carried:]):
                rows.append(row)
            done += 1
        return *values, *(
            joined(node, rows, body.output_types[carried + 1 + i]) for i, rows in enumerate(gathered)
        )

    return run


def joined(node: Node, rows: list, element: int, axis: int = 0) -> Tensor:
    """What the rounds of a loop gave, along a new axis."""
    if not rows:
        return creation.zeros(0, dtype=types.held(element, node.device.name == "numpy"), device=node.device)
    return stack(gathered_on_one_device(node, rows), axis)


def gathered_on_one_device(node: Node, parts: list) -> list:
    """Tensors that may be host values, together where one of them is elsewhere."""
    if len({part.backend for part in parts}) < 2:
        return parts
    return [part if part.backend is node.device else types.narrowed(part, node.device) for part in parts]


@operator("Scan", since=9, prepare=True)
def scan(node: Node) -> Callable:
    assert node.subgraph is not None
    count = node.get("num_scan_inputs", 0)
    kept = len(node.inputs) - count
    body = node.subgraph("body", list(node.input_types))
    if count < 1 or kept < 0 or len(body.inputs) != len(node.inputs) or len(body.outputs) < kept:
        node.fail(
            f"num_scan_inputs is {count}, of {len(node.inputs)} inputs and a body of {len(body.inputs)}"
        )
    node.output_types = body.output_types[: len(node.outputs)]
    made = len(body.outputs) - kept
    along, ways = node.get("scan_input_axes") or [0] * count, node.get("scan_input_directions") or [0] * count
    onto, back = node.get("scan_output_axes") or [0] * made, node.get("scan_output_directions") or [0] * made

    def run(env: list, *inputs: Any) -> tuple:
        values, scanned = inputs[:kept], inputs[kept:]
        axes = [normal_axis(axis, x.ndim) for axis, x in zip(along, scanned)]
        lengths = {x.shape[axis] for axis, x in zip(axes, scanned)}
        if len(lengths) != 1:
            node.fail(f"its inputs have lengths {sorted(lengths)} along the axes that are scanned")
        n = lengths.pop()
        gathered: list[list] = [[] for _ in range(made)]
        for i in range(n):
            parts = [x.select(a, n - 1 - i if way else i) for x, a, way in zip(scanned, axes, ways)]
            results = body.run(env, *values, *parts)
            values = tuple(results[:kept])
            for rows, row in zip(gathered, results[kept:]):
                rows.append(row)
        outputs = []
        for position, rows in enumerate(gathered):
            rows = rows[::-1] if back[position] else rows
            axis = normal_axis(onto[position], rows[0].ndim + 1) if rows else 0
            outputs.append(joined(node, rows, body.output_types[kept + position], axis))
        return *values, *outputs

    return run


@operator("Scan", since=8, prepare=True)
def scan_of_batches(node: Node) -> Callable:
    assert node.subgraph is not None
    if node.get("directions") and any(node.get("directions")):
        node.refuse("the form of opset 8 with directions")
    count = node.get("num_scan_inputs", 0)
    kept = len(node.inputs) - 1 - count
    body = node.subgraph("body", list(node.input_types[1:]))
    node.output_types = body.output_types[: len(node.outputs)]

    def run(env: list, lengths: Tensor | None, *inputs: Any) -> tuple:
        if lengths is not None:
            node.refuse("the form of opset 8 with sequence_lens")
        batches = []
        for b in range(inputs[0].shape[0]):
            values, scanned = [x.select(0, b) for x in inputs[:kept]], [x.select(0, b) for x in inputs[kept:]]
            gathered: list[list] = [[] for _ in body.outputs[kept:]]
            for i in range(scanned[0].shape[0]):
                results = body.run(env, *values, *(x.select(0, i) for x in scanned))
                values = results[:kept]
                for rows, row in zip(gathered, results[kept:]):
                    rows.append(row)
            made = [joined(node, rows, t) for rows, t in zip(gathered, body.output_types[kept:])]
            batches.append([*values, *made])
        return tuple(stack(gathered_on_one_device(node, list(parts)), 0) for parts in zip(*batches))

    return run


# --- sequences ----------------------------------------------------------------------------------------------


@operator("SequenceConstruct", since=11, reads=None)
def sequence_construct(node: Node, *parts: Tensor) -> list:
    return list(parts)


@operator("SequenceEmpty", since=11, reads=None)
def sequence_empty(node: Node) -> list:
    return []


@operator("SequenceLength", since=11, reads=None)
def sequence_length(node: Node, parts: list) -> Tensor:
    return on_host(len(parts))


def place_in(node: Node, parts: list, position: Tensor | None, beyond: int) -> int:
    """A position that may count from the end, and may be up to `beyond` after the last part."""
    if position is None:
        return len(parts) - 1 + beyond
    at, limit = node.integer(position), len(parts) + beyond
    if not -len(parts) <= at < limit:
        node.fail(f"position {at} of a sequence of {len(parts)} tensors")
    return at + len(parts) if at < 0 else at


@operator("SequenceAt", since=11, reads=None)
def sequence_at(node: Node, parts: list, position: Tensor) -> Tensor:
    return parts[place_in(node, parts, position, 0)]


@operator("SequenceInsert", since=11, reads=None)
def sequence_insert(node: Node, parts: list, part: Tensor, position: Tensor | None = None) -> list:
    at = place_in(node, parts, position, 1)
    return [*parts[:at], part, *parts[at:]]


@operator("SequenceErase", since=11, reads=None)
def sequence_erase(node: Node, parts: list, position: Tensor | None = None) -> list:
    at = place_in(node, parts, position, 0)
    return [*parts[:at], *parts[at + 1 :]]


@operator("ConcatFromSequence", since=11, reads=None)
def concat_from_sequence(node: Node, parts: list) -> Tensor:
    if not parts:
        node.fail("the sequence is empty")
    join = stack if node.get("new_axis", 0) else cat
    return join(gathered_on_one_device(node, parts), node.get("axis", 0))


@operator("SplitToSequence", since=11, reads=(1,))
def split_to_sequence(node: Node, x: Tensor, parts: Tensor | None = None) -> list:
    axis = normal_axis(node.get("axis", 0), x.ndim)
    if parts is None:
        pieces = x.split(1, axis)
        return [p if node.get("keepdims", 1) else p.squeeze(axis) for p in pieces]
    lengths = node.integers(parts)
    return list(x.split(lengths[0] if parts.ndim == 0 else list(lengths), axis))


@operator("SequenceMap", since=17, reads=None, prepare=True)
def sequence_map(node: Node) -> Callable:
    assert node.subgraph is not None
    body = node.subgraph("body", list(node.input_types))
    node.output_types = body.output_types[: len(node.outputs)]

    def run(env: list, first: list, *others: Any) -> tuple:
        rows = []
        for i, part in enumerate(first):
            rows.append(body.run(env, part, *(x[i] if isinstance(x, list) else x for x in others)))
        return tuple(list(column) for column in zip(*rows)) if rows else tuple([] for _ in body.outputs)

    return run


# --- optional values: None, or what they hold ---------------------------------------------------------------


@operator("Optional", since=15, reads=None)
def optional(node: Node, value: Any = None) -> Any:
    return value


@operator("OptionalHasElement", since=15, reads=None)
def optional_has_element(node: Node, value: Any = None) -> Tensor:
    return on_host(value is not None, np.bool_)


@operator("OptionalGetElement", since=15, reads=None)
def optional_get_element(node: Node, value: Any) -> Any:
    if value is None:
        node.fail("the optional value is empty")
    return value
