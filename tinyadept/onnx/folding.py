"""What is done before a model runs: constants computed, BatchNormalization and activations put into Conv."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
ACTIVATED = {"Relu": "relu"}  # operators, and what Conv and Gemm call them
STATISTICS = 5  # inputs of BatchNormalization


def folded(graph: Graph) -> Graph:
    """The same graph with fewer nodes; it is changed in place."""
    lift_constants(graph)
    fold_constants(graph)
    join(graph, normalised)
    join(graph, scaled)
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
    if first.op not in ("Conv", "Gemm") or second.op not in ACTIVATED or "activation" in first.attributes:
        return False
    first.attributes["activation"] = ACTIVATED[second.op]
    return True


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
    if first.op != "Conv" or second.op not in ("Mul", "Add") or "activation" in first.attributes:
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
