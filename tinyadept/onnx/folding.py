"""What can be computed or joined before a model runs: constants, BatchNormalization into Conv, activations."""

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
    for node in graph.nodes:
        made = computed(graph, node, host) if foldable(graph, node) else None
        if made is None or sum(array.nbytes for array in made) > room:
            kept.append(node)
            continue
        for name, array, type in zip(node.outputs, made, node.output_types):
            if name:
                room -= array.nbytes
                graph.constants[name], graph.constant_types[name] = array, type
                graph.fixed.add(name)
    graph.nodes = kept
    drop_unread(graph)


def foldable(graph: Graph, node: Node) -> bool:
    if node.domain or node.op in UNFOLDED or any(isinstance(v, Graph) for v in node.attributes.values()):
        return False
    return all(
        not name or (name in graph.constants and not learned(graph, name) and small(graph.constants[name]))
        for name in node.inputs
    ) and (bool(node.inputs) and any(node.outputs))


def small(array: np.ndarray) -> bool:
    return array.size <= LARGEST


def learned(graph: Graph, name: str) -> bool:
    return name not in graph.fixed and graph.constant_types[name] in LEARNED


LEARNED = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def computed(graph: Graph, node: Node, host: Any) -> list[np.ndarray] | None:
    """The outputs of a node of constants; None where it is better left to the run, errors included."""
    operator = find(node.op, node.domain, node.opset)
    if operator is None:
        return None
    if node.op == "ConstantOfShape" and prod(int(n) for n in graph.constants[node.inputs[0]].ravel()) > LARGEST:
        return None
    node.device = host
    node.input_types = [graph.constant_types.get(name, 0) for name in node.inputs]
    node.output_types = types.output_types(node)
    try:
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
    """Have `pair(graph, first, second, reads)` change the first of two nodes so that it does the second's work.

    The first's result is read by the second alone.
    """
    maker = {name: node for node in graph.nodes for name in node.outputs}
    reads = Counter(reads_of(graph)) + Counter(value.name for value in graph.outputs)
    gone = set()
    for node in graph.nodes:
        first = maker.get(node.inputs[0]) if node.inputs and not node.domain else None
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
    names = [first.inputs[1], *second.inputs[1:]]
    bias = first.inputs[2] if len(first.inputs) > 2 and first.inputs[2] else None
    if any(graph.constant_types.get(name) != TensorProto.FLOAT for name in [*names, *([bias] if bias else [])]):
        return False
    if reads[names[0]] != 1 or (bias and reads[bias] != 1):
        return False
    weight, scale, shift, mean, var = (np.asarray(graph.constants[name], np.float64) for name in names)
    if weight.ndim < 3 or any(x.shape != weight.shape[:1] for x in (scale, shift, mean, var)):
        return False
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(var + second.get("epsilon", 1e-5))
        begin = np.asarray(graph.constants[bias], np.float64) if bias else 0.0
        folded_bias = (begin - mean) * factor + shift
        folded_weight = weight * factor.reshape(-1, *(1,) * (weight.ndim - 1))
    if folded_bias.shape != factor.shape or not (np.isfinite(folded_weight).all() and np.isfinite(folded_bias).all()):
        return False
    graph.constants[names[0]] = folded_weight.astype(np.float32)
    own = bias or (names[2] if reads[names[2]] == 1 else f"{second.outputs[0]}.bias")
    if own in graph.constants and own not in (bias, names[2]):
        return False
    graph.constants[own], graph.constant_types[own] = folded_bias.astype(np.float32), TensorProto.FLOAT
    if names[0] not in graph.fixed:
        graph.fixed.discard(own)
    first.inputs = [first.inputs[0], names[0], own]
    reads[own] = 1
    return True


