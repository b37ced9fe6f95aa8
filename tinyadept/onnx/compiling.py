"""A graph to a flat list of steps, made once; what a model computes is then a loop over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import onnx

from .. import device as devices
from ..errors import Unsupported
from ..tensor import Tensor
from . import reading, types
from .reading import Graph, Reference, Source
from .registry import ModelError, Node, Operator, Refused, find

ENVIRONMENT, NOTHING, UNUSED = 0, 1, 2  # slots: the list of values itself, None, outputs without a name
HOST_ELEMENTS = 1024  # integers up to so many are shape arithmetic
MOST_STEPS = 1 << 17

# What operators raise where values do not fit each other.
MISTAKES = (ValueError, TypeError, IndexError, KeyError, ZeroDivisionError, AttributeError, AssertionError)

Step = tuple[Callable, tuple[int, ...], Any, tuple[int, ...], Node]


class Body:
    """A compiled graph inside another: what If, Loop and Scan run.

    Attributes
    ----------
    inputs, outputs : list of int
        Slots.
    output_types : list of int
    steps : list
    """

    __slots__ = ("inputs", "kept", "output_types", "outputs", "steps")

    def __init__(self):
        self.inputs: list[int] = []
        self.outputs: list[int] = []
        self.output_types: list[int] = []
        self.steps: list[Step] = []
        self.kept: set[int] = set()

    def run(self, env: list, *inputs: Any) -> list:
        """Outputs for inputs; values outside are taken from `env`."""
        for slot, value in zip(self.inputs, inputs, strict=True):
            env[slot] = value
        execute(self.steps, env)
        return [env[slot] for slot in self.outputs]


def execute(steps: list[Step], env: list) -> None:
    """Run steps one after another.

    Raises
    ------
    ModelError
        If an operator fails; the message names the node.
    Refused
        If it, or the device, does not have what is asked for.
    """
    node = None
    try:
        for function, inputs, outputs, gone, node in steps:  # noqa: B007 (named in errors)
            result = function(*[env[i] for i in inputs])
            if type(outputs) is int:
                env[outputs] = result
            else:
                for slot, value in zip(outputs, result, strict=False):
                    env[slot] = value
            for slot in gone:
                env[slot] = None
    except (ModelError, Refused):
        raise
    except MemoryError as error:
        error.add_note(f"in {node}")
        raise
    except (Unsupported, OverflowError) as error:
        raise Refused(f"{node}: {error}") from error
    except MISTAKES as error:
        raise ModelError(mistake(node, error)) from error


def mistake(node: Node | None, error: Exception) -> str:
    """What went wrong at which node; a key that is missing is an attribute."""
    if isinstance(error, KeyError):
        return f"{node}: the attribute {error} is missing"
    return f"{node}: {error or type(error).__name__}"


class Scope:
    """Names of values that a node can see: those of its graph, and of the graphs around it."""

    def __init__(self, outer: Scope | None = None):
        self.outer, self.slots = outer, {}

    def find(self, name: str) -> int | None:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.slots:
                return scope.slots[name]
            scope = scope.outer
        return None

    def known(self, name: str) -> int:
        slot = self.find(name)
        if slot is None:
            raise ModelError(f"value {name!r} does not exist")
        return slot


class Compiler:
    """Makes steps of a model's graphs.

    Attributes
    ----------
    template : list
        What the slots hold before a run: constants.
    types : list of int
        Element type of each slot.
    constants : dict of int to (str, ndarray, int, bool)
        By slot: name, values, element type, and whether floats are a weight.
    """

    def __init__(self, source: Source):
        self.source, self.host = source, devices.resolve("numpy")
        self.template: list[Any] = [None, None, None]
        self.types: list[int] = [0, 0, 0]
        self.constants: dict[int, tuple[str, np.ndarray, int, bool]] = {}
        self.twins: dict[int, int] = {}  # constants that are read on the host: where they are there
        self.used: set[int] = set()  # slots that are computed with, not only read
        self.statistics: set[int] = set()  # means and variances, which are not learned
        self.moving: list[Moving] = []
        self.nodes: list[Node] = []
        self.depth = 0
        self.refused: list[str] | None = None  # where reasons are collected instead of raised

    def slot(self, type: int) -> int:
        self.template.append(None)
        self.types.append(type)
        if len(self.template) > MOST_STEPS:
            raise ModelError(
                f"the model has more than {MOST_STEPS} values once its functions are written out"
            )
        return len(self.template) - 1

    # --- graphs ---

    def graph(self, graph: Graph, outer: Scope | None = None, given: list[int] | None = None) -> Body:
        """Compile a graph; `given` are element types of inputs that declare none."""
        body, scope = Body(), Scope(outer)
        for position, value in enumerate(graph.inputs):
            known = given[position] if given and position < len(given) else 0
            body.inputs.append(self.define(scope, value.name, value.type or known, graph))
        for name, array in graph.constants.items():
            slot = self.define(scope, name, graph.constant_types[name], graph)
            self.constant(slot, name, array, graph.constant_types[name], name not in graph.fixed)
        self.run_nodes(graph.nodes, scope, body, graph.name)
        for value in graph.outputs:
            slot = scope.find(value.name)
            if slot is None:
                raise ModelError(f"graph {graph.name!r}: output {value.name!r} is made by no node")
            body.outputs.append(slot)
            self.used.add(slot)
            body.output_types.append(value.type or self.types[slot])
        self.free(body)
        return body

    def define(self, scope: Scope, name: str, type: int, graph: Any) -> int:
        if not name or name in scope.slots:
            raise ModelError(f"graph {graph.name!r}: value {name!r} is made twice, or has no name")
        slot = scope.slots[name] = self.slot(type)
        return slot

    def run_nodes(self, nodes: list[Node], scope: Scope, body: Body, where: str) -> None:
        later = {name for node in nodes for name in node.outputs if name}
        for node in nodes:
            for name in node.inputs:
                if name and scope.find(name) is None:
                    why = (
                        "is made by a later node: a cycle, or out of order"
                        if name in later
                        else "does not exist"
                    )
                    node.fail(f"input {name!r} {why}")
            try:
                self.node(node, scope, body)
            except MISTAKES as error:
                raise error if isinstance(error, ModelError) else ModelError(mistake(node, error)) from error
            except Refused as error:
                if self.refused is None:
                    raise
                self.refused.append(str(error))
                for name in node.outputs:
                    if name:
                        scope.slots.setdefault(name, self.slot(0))

    # --- nodes ---

    def node(self, node: Node, scope: Scope, body: Body) -> None:
        """Append the steps of one node."""
        inputs = [scope.known(name) if name else NOTHING for name in node.inputs]
        node.input_types = [self.types[slot] for slot in inputs]
        if any(t in types.COMPLEX for t in node.input_types):
            node.refuse("complex numbers are not supported")
        for name in node.outputs:
            if name and name in scope.slots:
                node.fail(f"output {name!r} is made twice")
        if node.op == "Constant" and not node.domain:
            array, type = constant_of(node)
            slot = scope.slots[node.outputs[0]] = self.slot(type)
            self.constant(slot, node.outputs[0], array, type, array.size > 1)
            return
        operator = find(node.op, node.domain, node.opset)
        if operator is None and node.opset == 6 and not node.domain:
            operator = find(node.op, "", 7)  # they differ in attributes that reading refuses
        own = self.source.functions.get((node.domain, node.op))
        if own is not None:
            self.call(node, own, scope, inputs, body)
        elif operator is not None:
            self.step(node, operator, scope, inputs, body)
        else:
            self.call(node, standard_function(node), scope, inputs, body)

    def step(self, node: Node, operator: Operator, scope: Scope, inputs: list[int], body: Body) -> None:
        node.device = self.host
        outer: set[int] = set()
        bodies: dict[str, Body] = {}

        def subgraph(name: str, given: list[int] | None = None) -> Body:
            graph = node.attributes.get(name)
            if not isinstance(graph, Graph):
                node.fail(f"attribute {name!r} must be a graph")
            first = len(self.template)
            bodies[name] = made = self.graph(graph, scope, given)
            outer.update(slot for slot in seen(made) if slot < first)
            return made

        node.subgraph = subgraph
        node.output_types = types.output_types(node)
        run = operator.bind(node)
        if bodies:
            inputs = [ENVIRONMENT, *inputs]
        first = 1 if bodies else 0  # the environment comes before the inputs
        reads = self.readings(operator, inputs, first)
        if node.op == "BatchNormalization":
            self.statistics.update(inputs[3:5])
        outputs = [(self.slot(t) if name else UNUSED) for name, t in zip(node.outputs, node.output_types)]
        for name, slot in zip(node.outputs, outputs):
            if name:
                scope.slots[name] = slot
        small = [t for t in node.output_types if t in types.SMALL_FLOATS or t in types.SMALL_INTS]
        if small and node.op not in MOVES:
            run = fitting(run, node.output_types)
        target = outputs[0] if len(outputs) == 1 else tuple(outputs)
        if len(outputs) == 1:
            run = first_of(run)
        if operator.reads is not None:
            moved = [i for i in range(first, len(inputs)) if i not in reads]
            self.moving.append(Moving(body, len(body.steps), run, moved))
        self.nodes.append(node)
        body.steps.append((run, tuple(inputs), target, tuple(outer), node))

    def readings(self, operator: Operator, inputs: list[int], first: int) -> tuple[int, ...]:
        """Positions that an operator reads; constants there are replaced by their values on the host."""
        reads = tuple(i + first for i in operator.reads or ())
        for position, slot in enumerate(inputs):
            if position in reads and slot != NOTHING:
                inputs[position] = self.readable(slot)
            else:
                self.used.add(slot)
        return reads

    def readable(self, slot: int) -> int:
        """The slot of the same value on the host, where that is known."""
        if slot not in self.constants:
            return slot
        if slot not in self.twins:
            name, array, type, _ = self.constants[slot]
            twin = self.twins[slot] = self.slot(type)
            self.template[twin] = Tensor(types.to_held(array, type, name), types.held(type), self.host)
        return self.twins[slot]

    def constant(self, slot: int, name: str, array: np.ndarray, type: int, weight: bool) -> None:
        self.constants[slot] = (name, types.to_held(array, type, f"initializer {name!r}"), type, weight)

    # --- functions ---

    def call(self, node: Node, function: Any, scope: Scope, inputs: list[int], body: Body) -> None:
        """Append the steps of a function's body in place of a node."""
        if self.depth >= reading.DEEPEST:
            node.fail("functions call each other without end")
        if len(inputs) > len(function.input) or len(node.outputs) > len(function.output):
            node.fail(f"has more inputs or outputs than the function {function.name}")
        inner = Scope()
        for name, slot in zip(function.input, inputs + [NOTHING] * len(function.input)):
            inner.slots[name] = slot
        source = object.__new__(Source)
        source.functions, source.folder, source.files = self.source.functions, self.source.folder, {}
        source.opsets = {**self.source.opsets, **reading.opsets_of(function.opset_import)}
        defaults = {
            a.name: reading.read_attribute(node, a, source, 0) for a in default_attributes(node, function)
        }
        nodes = [reading.read_node(proto, source, 0) for proto in function.node]
        for part in nodes:
            part.name = f"{node.name or node.op}/{part.name or part.op}"
            resolve(part, {**defaults, **node.attributes}, node.tensor_types)
        self.depth += 1
        self.run_nodes(nodes, inner, body, function.name)
        self.depth -= 1
        for name, formal in zip(node.outputs, function.output):
            slot = inner.find(formal)
            if slot is None:
                node.fail(f"output {formal!r} of the function {function.name} is made by no node")
            if name:
                scope.slots[name] = slot

    def free(self, body: Body) -> None:
        """Add to each step the slots that no later step needs."""
        kept = {*body.outputs, *self.constants, *self.twins.values(), ENVIRONMENT, NOTHING, UNUSED}
        own = {slot for step in body.steps for slot in slots_of(step[2])} | set(body.inputs)
        later: set[int] = set()
        for at in reversed(range(len(body.steps))):
            run, inputs, outputs, outer, node = body.steps[at]
            used = {*inputs, *outer, *slots_of(outputs)}
            gone = tuple(sorted(slot for slot in used - later - kept if slot in own))
            later |= used
            body.steps[at] = (run, inputs, outputs, gone, node)
        body.kept = later - own


def slots_of(outputs: Any) -> tuple[int, ...]:
    return (outputs,) if isinstance(outputs, int) else outputs


def seen(body: Body) -> set[int]:
    """Slots outside a body that it needs."""
    return body.kept | set(body.outputs)


def resolve(node: Node, attributes: dict, tensor_types: dict) -> None:
    """Put the attributes of a call in place of the references to them, also in graphs inside."""
    for name, value in list(node.attributes.items()):
        if isinstance(value, Reference):
            if value in attributes:
                node.attributes[name] = attributes[value]
                if value in tensor_types:
                    node.tensor_types[name] = tensor_types[value]
            else:
                del node.attributes[name]
        elif isinstance(value, Graph):
            for part in value.nodes:
                resolve(part, attributes, tensor_types)


def constant_of(node: Node) -> tuple[np.ndarray, int]:
    """The value of a Constant node and its element type."""
    if len(node.attributes) != 1 or len(node.outputs) != 1 or not node.outputs[0]:
        node.fail("a Constant has one attribute and one output")
    ((name, value),) = node.attributes.items()
    type = types.constant_type(node)
    if name in ("value", "sparse_value") and isinstance(value, np.ndarray):
        return value, type
    if name in ("value_int", "value_ints"):
        return np.array(value, np.int64), type
    if name in ("value_float", "value_floats"):
        return np.array(value, np.float32), type
    return node.refuse(f"the attribute {name!r} is not supported")


def default_attributes(node: Node, function: Any) -> list:
    """What a function takes for attributes that a call does not have."""
    found = list(function.attribute_proto)
    if onnx.defs.has(node.op, node.domain):
        schema = onnx.defs.get_schema(node.op, node.opset, node.domain)
        found += [a.default_value for a in schema.attributes.values() if a.default_value.name]
    return found


def standard_function(node: Node) -> Any:
    """The body that the specification gives for an operator.

    Raises
    ------
    Refused
        If there is none.
    """
    try:
        schema: Any = onnx.defs.get_schema(node.op, node.opset, node.domain)
    except onnx.defs.SchemaError as error:
        raise Refused(f"{node}: there is no such operator here (opset {node.opset})") from error
    found = None
    if schema.has_function:
        found = schema.function_body
    elif schema.has_context_dependent_function:
        if any(isinstance(value, Graph) for value in node.attributes.values()):
            node.refuse("the specification defines it by a function of graphs, which is not supported")
        proto = onnx.helper.make_node(
            node.op,
            node.inputs,
            node.outputs,
            domain=node.domain,
            **{k: v for k, v in node.attributes.items() if not isinstance(v, (Graph, np.ndarray))},
        )
        given = [onnx.helper.make_tensor_type_proto(t, None).SerializeToString() for t in node.input_types]
        body = schema.get_context_dependent_function(proto.SerializeToString(), given)
        found = onnx.FunctionProto.FromString(body) if body else None
    if found is None or not found.node:
        node.refuse("this operator is not supported")
    return found


# --- around an operator -------------------------------------------------------------------------------------

MOVES = frozenset(
    """Identity Reshape Transpose Squeeze Unsqueeze Flatten Concat Split Slice Gather GatherElements GatherND
    Expand Tile Pad Where Max Min If Loop Scan DepthToSpace SpaceToDepth ScatterElements ScatterND Compress
    Unique TopK ReduceMax ReduceMin Relu MaxPool GlobalMaxPool Shape Size NonZero ReverseSequence Trilu
    EyeLike ConstantOfShape
    SequenceConstruct SequenceAt SequenceInsert SequenceErase SequenceEmpty ConcatFromSequence SplitToSequence
    Optional OptionalGetElement OneHot CenterCropPad""".split()
)


class Moving(NamedTuple):
    """A step whose inputs must be on one device: where it is, what it runs, and which inputs are meant."""

    body: Body
    at: int
    run: Callable
    moved: list[int]

    def bind(self, device: Any, host: Any) -> None:
        """Have the step run on a device."""
        run = self.run if device is host else together(self.run, self.moved, device, host)
        self.body.steps[self.at] = (run, *self.body.steps[self.at][1:])


def first_of(run: Callable) -> Callable:
    """The only output that a node is asked for."""

    def only(*inputs: Any) -> Any:
        result = run(*inputs)
        return result[0] if type(result) is tuple else result

    return only


def fitting(run: Callable, output_types: list[int]) -> Callable:
    def fit(*inputs: Any) -> Any:
        result = run(*inputs)
        if type(result) is not tuple:
            return types.fitted(result, output_types[0])
        pairs = zip(result, output_types)
        return tuple(types.fitted(x, t) if isinstance(x, Tensor) else x for x, t in pairs)

    return fit


def together(run: Callable, moved: list[int], device: Any, host: Any) -> Callable:
    """Move host values to the device if one of the inputs is there."""

    def on_one_device(*inputs: Any) -> Any:
        away = [i for i in moved if isinstance(inputs[i], Tensor) and inputs[i].backend is host]
        if not away or len(away) == sum(inputs[i] is not None for i in moved):
            return run(*inputs)
        ready = list(inputs)
        for i in away:
            ready[i] = types.narrowed(ready[i], device)
        return run(*ready)

    return on_one_device
