"""What is done before a model runs: constants computed, BatchNormalization and activations put into Conv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
from onnx import TensorProto

from .. import device as devices
from ..errors import Unsupported
from ..tape import no_grad
from ..tensor import Tensor, from_numpy
from . import types
from .compiling import MISTAKES, constant_of
from .reading import Graph
from .registry import Node, Refused, find

LARGEST = 1 << 24  # elements of a constant that is made of others
MOST_PAIRS = 1 << 26  # product of the numbers of elements that are read: no broadcast makes more
TOTAL = 1 << 28  # bytes of all that a graph may get
UNFOLDED = frozenset(
    """RandomNormal RandomNormalLike RandomUniform RandomUniformLike Bernoulli Multinomial Dropout Tile Expand
    Range OneHot Pad Resize Upsample EyeLike DequantizeLinear QuantizeLinear CastLike""".split()
)
ACTIVATED = {
    "Relu": "relu",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}  # operators, and what Conv and Gemm call them
GELU = {"none": "gelu", "tanh": "gelu_tanh"}  # by `approximate`
STATISTICS = 5  # inputs of BatchNormalization
FLOAT = 4  # bytes


def folded(graph: Graph) -> Graph:
    """The same graph with fewer nodes; it is changed in place."""
    lift_constants(graph)
    fold_constants(graph)
    join(graph, normalised)
    join(graph, scaled)
    join_silu(graph)
    join(graph, activated)
    return graph


def lift_constants(graph: Graph) -> None:
    """Constant nodes become initialisers; numbers, which are no weights, without a gradient."""
    kept = []
    for node in graph.nodes:
        if node.op != "Constant" or node.domain or any(isinstance(v, str) for v in node.attributes.values()):
            kept.append(node)
            continue
        array, type = constant_of(node)
        name = node.outputs[0]
        if name in graph.constants or name in {value.name for value in graph.inputs}:
            node.fail(f"output {name!r} is made twice")
        graph.constants[name], graph.constant_types[name] = array, type
        if array.size < 2:
            graph.fixed.add(name)
    graph.nodes = kept


# --- constants ----------------------------------------------------------------------------------------------


def fold_constants(graph: Graph) -> None:
    """Compute nodes that read nothing but constants; what is learned stays as it is."""
    host, kept, room = devices.resolve("numpy"), [], TOTAL
    inputs = {value.name for value in graph.inputs}
    for node in graph.nodes:
        made = computed(graph, node, host) if foldable(graph, node) else None
        if made is None or sum(array.nbytes for array in made) > room or not fresh(graph, node, inputs):
            kept.append(node)
            continue
        for name, array, type in zip(node.outputs, made, node.output_types):
            if name:
                room -= array.nbytes
                graph.constants[name], graph.constant_types[name] = array, type
                graph.fixed.add(name)
    graph.nodes = kept
    drop_unread(graph)


def fresh(graph: Graph, node: Node, inputs: set[str]) -> bool:
    """Whether nothing else has the names of a node's outputs; otherwise compiling says so."""
    names = [name for name in node.outputs if name]
    return len(set(names)) == len(names) and not any(
        name in graph.constants or name in inputs for name in names
    )


def foldable(graph: Graph, node: Node) -> bool:
    if node.domain or node.op in UNFOLDED or any(isinstance(v, Graph) for v in node.attributes.values()):
        return False
    names = [name for name in node.inputs if name]
    if not names or any(name not in graph.constants or learned(graph, name) for name in names):
        return False
    sizes = [graph.constants[name].size for name in names]
    return sum(sizes) <= LARGEST if node.op == "Concat" else prod(max(n, 1) for n in sizes) <= MOST_PAIRS


def learned(graph: Graph, name: str) -> bool:
    return name not in graph.fixed and graph.constant_types[name] in LEARNED


LEARNED = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def computed(graph: Graph, node: Node, host: Any) -> list[np.ndarray] | None:
    """The outputs of a node of constants; None where it is better left to the run, errors included."""
    operator = find(node.op, node.domain, node.opset)
    if operator is None:
        return None
    if (
        node.op == "ConstantOfShape"
        and prod(int(n) for n in graph.constants[node.inputs[0]].ravel()) > LARGEST
    ):
        return None
    node.device = host
    node.input_types = [graph.constant_types.get(name, 0) for name in node.inputs]
    try:
        node.output_types = types.output_types(node)
        given = [tensor(graph, name) if name else None for name in node.inputs]
        with no_grad():
            results = operator.bind(node)(*given)
    except (*MISTAKES, OverflowError, Unsupported, Refused):
        return None
    results = results if type(results) is tuple else (results,)
    if not all(isinstance(x, Tensor) for x in results):
        return None
    fitted = [types.fitted(x, type) for x, type in zip(results, node.output_types)]
    return [np.array(x.numpy()) for x in fitted]


def tensor(graph: Graph, name: str) -> Tensor:
    held = types.to_held(graph.constants[name], graph.constant_types[name], name)
    return from_numpy(np.array(held))


def drop_unread(graph: Graph) -> None:
    """Forget constants that nothing reads any more."""
    read = set(reads_of(graph)) | {value.name for value in graph.outputs}
    for name in [name for name in graph.constants if name not in read]:
        del graph.constants[name], graph.constant_types[name]
        graph.fixed.discard(name)


def reads_of(graph: Graph) -> Iterator[str]:
    """Names that nodes read, as often as they do, those of graphs inside included."""
    for node in graph.nodes:
        yield from (name for name in node.inputs if name)
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from reads_of(value)
                yield from (output.name for output in value.outputs)


# --- pairs of nodes -----------------------------------------------------------------------------------------


def join(graph: Graph, pair: Any) -> None:
    """Have `pair(graph, first, second, reads)` change the first of two nodes so that it does what both do.

    The first's result is read by the second alone.
    """
    maker = {name: node for node in graph.nodes for name in node.outputs}
    reads = Counter(reads_of(graph)) + Counter(value.name for value in graph.outputs)
    gone = set()
    for node in graph.nodes:
        first = maker.get(node.inputs[0]) if node.inputs and node.inputs[0] and not node.domain else None
        if first is None or first.domain or len(first.outputs) != 1 or reads[node.inputs[0]] != 1:
            continue
        if pair(graph, first, node, reads):
            first.outputs = list(node.outputs[:1])
            maker[node.outputs[0]] = first
            gone.add(id(node))
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]
    drop_unread(graph)


def activated(graph: Graph, first: Node, second: Node, reads: Counter) -> bool:
    """An activation into the Conv or Gemm before it."""
    if first.op not in ("Conv", "Gemm") or first.activation:
        return False
    if second.op == "Gelu":
        first.activation = GELU.get(second.get("approximate", "none"), "")
    elif second.op == "Swish" and second.get("alpha", 1.0) == 1:
        first.activation = "silu"
    else:
        first.activation = ACTIVATED.get(second.op, "")
    return bool(first.activation)


def join_silu(graph: Graph) -> None:
    """x · Sigmoid(x), as exporters write SiLU, into the Conv or Gemm that makes x for nobody else."""
    maker = {name: node for node in graph.nodes for name in node.outputs}
    reads = Counter(reads_of(graph)) + Counter(value.name for value in graph.outputs)
    gone = set()
    for node in graph.nodes:
        if node.op != "Mul" or node.domain or len(node.inputs) != 2:
            continue
        for x, gate in (node.inputs, node.inputs[::-1]):
            first, second = maker.get(x), maker.get(gate)
            if first is None or second is None or (second.op, second.domain) != ("Sigmoid", ""):
                continue
            alone = second.inputs == [x] and reads[gate] == 1 and reads[x] == 2 and len(first.outputs) == 1
            if alone and first.op in ("Conv", "Gemm") and not first.domain and not first.activation:
                first.activation, first.outputs = "silu", list(node.outputs[:1])
                maker[node.outputs[0]] = first
                gone |= {id(node), id(second)}
                break
    graph.nodes = [node for node in graph.nodes if id(node) not in gone]


# --- weights that are larger than a device's buffers --------------------------------------------------------


def split_weights(graph: Graph, most: int) -> None:
    """Have several Gemm nodes, of `most` bytes of weights each, make what one made, and Concat join that."""
    nodes, reads = [], Counter(reads_of(graph))
    maker = {node.outputs[0]: node for node in graph.nodes if node.op == "ConstantOfShape" and node.outputs}
    gone = set()
    for node in graph.nodes:
        own = [name for name in node.inputs[1:] if name]
        shapes = [shape for name in own if (shape := shape_of(graph, maker, name)) is not None]
        known = len(shapes) == len(own) > 0 and all(reads[name] == 1 for name in own)
        parts = -(-prod(shapes[0]) * FLOAT // most) if known else 1
        if node.op != "Gemm" or node.domain or parts < 2:
            nodes.append(node)
            continue
        nodes += parts_of(graph, node, shapes, maker, parts)
        gone |= {id(maker[name]) for name in own if name in maker}
    graph.nodes = [node for node in nodes if id(node) not in gone]
    drop_unread(graph)


def shape_of(graph: Graph, maker: dict[str, Node], name: str) -> tuple[int, ...] | None:
    """Of a constant, or of what ConstantOfShape makes of one."""
    if name in graph.constants:
        return graph.constants[name].shape
    given = maker[name].inputs[0] if name in maker else None
    return tuple(int(n) for n in graph.constants[given].ravel()) if given in graph.constants else None


def parts_of(graph: Graph, node: Node, shapes: list, maker: dict[str, Node], count: int) -> list[Node]:
    """Nodes that make so many parts of the columns of a Gemm, and the one that joins them."""
    axes = [0 if node.get("transB", 0) else 1]
    axes += [len(shape) - 1 if shape and shape[-1] != 1 else None for shape in shapes[1:]]
    made: list[Node] = []
    pieces = []
    for name, shape, axis in zip(node.inputs[1:], shapes, axes):
        if axis is None:
            pieces.append([name] * count)
            continue
        own = [f"{name}.{at}" for at in range(count)]
        pieces.append(own)
        if name in graph.constants:
            arrays = np.array_split(graph.constants[name], count, axis)
            put(graph, own, map(np.ascontiguousarray, arrays), name)
            continue
        lengths = [len(part) for part in np.array_split(np.arange(shape[axis]), count)]
        sizes = [np.array([*shape[:axis], n, *shape[axis + 1 :]], np.int64) for n in lengths]
        given = maker[name].inputs[0]
        put(graph, [f"{part}.shape" for part in own], sizes, given)
        made += [like(maker[name], [f"{part}.shape"], [part]) for part in own]
    joined = [f"{node.outputs[0]}.{at}" for at in range(count)]
    made += [like(node, [node.inputs[0], *own], [out]) for *own, out in zip(*pieces, joined, strict=True)]
    joining = Node("Concat", joined, list(node.outputs), {"axis": 1}, node.name)
    joining.opset = node.opset
    return [*made, joining]


def put(graph: Graph, names: list[str], arrays: Iterable[np.ndarray], like: str) -> None:
    """Constants of the type of another."""
    for name, array in zip(names, arrays, strict=True):
        graph.constants[name], graph.constant_types[name] = array, graph.constant_types[like]
        if like in graph.fixed:
            graph.fixed.add(name)


def like(node: Node, inputs: list[str], outputs: list[str]) -> Node:
    """The same operator of other values."""
    other = Node(node.op, inputs, outputs, node.attributes, node.name)
    other.domain, other.opset, other.activation = node.domain, node.opset, node.activation
    return other


def normalised(graph: Graph, first: Node, second: Node, reads: Counter) -> bool:
    """Batch normalisation into the weights and bias of the Conv before it."""
    if first.op != "Conv" or second.op != "BatchNormalization" or len(second.inputs) != STATISTICS:
        return False
    if len([name for name in second.outputs if name]) != 1 or second.get("training_mode", 0):
        return False
    numbers = [of_channels(graph, name, 0) for name in second.inputs[1:]]
    if any(x is None for x in numbers):
        return False
    scale, shift, mean, var = numbers
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + second.get("epsilon", 1e-5))
        return rescale(graph, first, factor, shift - mean * factor, second.inputs[2], reads)


def scaled(graph: Graph, first: Node, second: Node, reads: Counter) -> bool:
    """A number for each channel that is multiplied or added into the Conv before it."""
    if first.op != "Conv" or second.op not in ("Mul", "Add") or first.activation:
        return False
    weight = graph.constants.get(first.inputs[1])
    number = None if weight is None else of_channels(graph, second.inputs[1], weight.ndim - 2)
    if number is None:
        return False
    if second.op == "Mul":
        return rescale(graph, first, number, number * 0, f"{second.outputs[0]}.bias", reads)
    return rescale(graph, first, np.ones_like(number), number, second.inputs[1], reads)


def of_channels(graph: Graph, name: str, after: int) -> np.ndarray | None:
    """Numbers (C,) from a constant of shape (C, 1, …) with so many axes after C; None if it is none."""
    if graph.constant_types.get(name) != TensorProto.FLOAT:
        return None
    array = graph.constants[name]
    own = array.shape[1:] if array.ndim == after + 2 and array.shape[0] == 1 else array.shape
    if len(own) != after + 1 or any(n != 1 for n in own[1:]):
        return None
    return array.reshape(own[0]).astype(np.float64)


def rescale(
    graph: Graph, conv: Node, factor: np.ndarray, offset: np.ndarray, name: str, reads: Counter
) -> bool:
    """Have a Conv give factor · y + offset instead of y, by other weights and another bias.

    A bias that is new takes the shape (C,) and this name, or one like it where another node reads that.
    """
    kernel, bias = conv.inputs[1], conv.inputs[2] if len(conv.inputs) > 2 and conv.inputs[2] else None
    for own in [kernel, bias] if bias else [kernel]:
        if graph.constant_types.get(own) != TensorProto.FLOAT or reads[own] != 1:
            return False
    weight = graph.constants[kernel].astype(np.float64)
    begin = graph.constants[bias].astype(np.float64) if bias else np.zeros(weight.shape[:1])
    if weight.ndim < 3 or factor.shape != weight.shape[:1] or begin.shape != factor.shape:
        return False
    with np.errstate(all="ignore"):
        weight = (weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))).astype(np.float32)
        offset = (begin * factor + offset).astype(np.float32)
    if not (np.isfinite(weight).all() and np.isfinite(offset).all()):
        return False
    fixed = kernel in graph.fixed
    name = bias or name
    while name != bias and name in graph.constants and reads[name] != 1:
        name += "_"
    graph.constants[kernel], graph.constants[name] = weight, offset
    graph.constant_types[name] = TensorProto.FLOAT
    (graph.fixed.add if fixed else graph.fixed.discard)(name)
    conv.inputs = [conv.inputs[0], kernel, name]
    reads[name] = 1
    return True
