"""Files to graphs: what is read is checked before memory is taken for it."""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from .registry import ModelError, Node, Refused
from .types import BITS, name_of

LARGEST_FILE = 2**31 - 1  # of protocol buffers
DEEPEST = 32  # graphs inside graphs, and functions that call functions
MOST_ELEMENTS = 2**40
OLDEST, NEWEST = 1, onnx.defs.onnx_opset_version()
MAIN = ("", "ai.onnx")
BROADCASTING = 7  # the opset since which shapes alone say what is broadcast
OUTDATED = {"is_test": 0, "spatial": 0}  # attributes of older operators, and values with other meanings


class Value:
    """An input or output of a graph.

    Attributes
    ----------
    name : str
    type : int
        Element type (`onnx.TensorProto`), of a sequence that of its tensors; 0 if unknown.
    shape : tuple of (int, str or None), or None
        A str is the name of a length that is chosen at run time, None a length that has no name.
    kind : str
        "tensor", "sequence" or "optional".
    """

    __slots__ = ("kind", "name", "shape", "type")

    def __init__(self, name: str, type: int = 0, shape: tuple | None = None, kind: str = "tensor"):
        self.name, self.type, self.shape, self.kind = name, type, shape, kind


class Graph:
    """A graph: nodes in an order in which they can run.

    Attributes
    ----------
    name : str
    inputs, outputs : list of Value
        Inputs without those that an initialiser gives.
    constants : dict of str to ndarray
        Initialisers, by name; see `types` for element types that NumPy lacks.
    constant_types : dict of str to int
    fixed : set of str
        Constants that are no weights, though they are floats.
    nodes : list of Node
    """

    def __init__(self, name: str):
        self.name = name
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.constants: dict[str, np.ndarray] = {}
        self.constant_types: dict[str, int] = {}
        self.fixed: set[str] = set()
        self.nodes: list[Node] = []


class Source:
    """A model as read from a file.

    Attributes
    ----------
    graph : Graph
    opsets : dict of str to int
        Version of each domain.
    functions : dict of (str, str) to FunctionProto
        Functions that the model defines, by domain and name.
    folder : Path or None
        Where external data may lie; None for a model from memory.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path | None):
        self.folder = folder
        self.files: dict[Path, np.ndarray] = {}
        self.opsets = opsets_of(model.opset_import, model.functions)
        for function in model.functions:
            check_text(function.domain, function.name, *function.input, *function.output, *function.attribute)
        self.functions = {(main(f.domain), f.name): f for f in model.functions}
        self.graph = read_graph(model.graph, self, 0)


def main(domain: str) -> str:
    return "" if domain in MAIN else domain


def opsets_of(imports: Any, functions: Any = ()) -> dict[str, int]:
    """Versions by domain.

    Raises
    ------
    ModelError
        If the main domain's is not known here.
    """
    check_text(*(entry.domain for entry in imports))
    found = {main(entry.domain): int(entry.version) for entry in imports}
    for function in functions:
        for entry in function.opset_import:
            found.setdefault(main(entry.domain), int(entry.version))
    opset = found.get("", NEWEST)
    if not OLDEST <= opset <= NEWEST:
        raise ModelError(f"opset_import: opset {opset}, expected {OLDEST} to {NEWEST}")
    return found


def read(model: Any) -> Source:
    """Read a file, the bytes of one, or a ModelProto.

    Raises
    ------
    ModelError
        If it is no valid model; the message names the field or node.
    FileNotFoundError
        If there is no such file.
    """
    if isinstance(model, onnx.ModelProto):
        return checked_source(model, None)
    if isinstance(model, (bytes, bytearray, memoryview)):
        return checked_source(parsed(bytes(model), "these bytes"), None)
    path = Path(model)
    size = path.stat().st_size
    if not path.is_file() or size > LARGEST_FILE:
        raise ModelError(f"{path.name}: no file, or of {size} bytes; expected fewer than {LARGEST_FILE}")
    return checked_source(parsed(path.read_bytes(), path.name), path.resolve().parent)


def parsed(data: bytes, what: str) -> onnx.ModelProto:
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(f"{what}: no ONNX model, or a truncated one ({error})") from error
    except RecursionError as error:
        raise ModelError(f"{what}: messages inside messages without end") from error
    if not model.HasField("graph"):
        raise ModelError(f"{what}: no ONNX model: the field 'graph' is missing")
    return model


def checked_source(model: onnx.ModelProto, folder: Path | None) -> Source:
    try:
        return Source(model, folder)
    except UnicodeDecodeError as error:
        raise ModelError(f"a name or text is not UTF-8: {error}") from error


# --- graphs -------------------------------------------------------------------------------------------------


def read_graph(proto: onnx.GraphProto, source: Source, depth: int) -> Graph:
    """A graph and those inside it, checked by itself.

    Raises
    ------
    ModelError
        For names given twice and values out of range.
    """
    if depth > DEEPEST:
        raise ModelError(f"graph {proto.name!r}: graphs lie more than {DEEPEST} deep in each other")
    check_text(proto.name)
    graph = Graph(proto.name)
    for tensor in proto.initializer:
        add_constant(graph, tensor.name, read_tensor(tensor, source), tensor.data_type)
    for sparse in proto.sparse_initializer:
        values = read_sparse(sparse, source)
        add_constant(graph, sparse.values.name, values, sparse.values.data_type)
    listed = [read_value(value) for value in proto.input]
    graph.inputs = [value for value in listed if value.name not in graph.constants]
    graph.outputs = [read_value(value) for value in proto.output]
    names = [value.name for value in listed]
    if len(set(names)) < len(names):
        raise ModelError(f"graph {graph.name!r}: input {twice(names)!r} is listed twice")
    graph.nodes = [read_node(node, source, depth) for node in proto.node]
    return graph


def twice(names: list[str]) -> str:
    return next(name for i, name in enumerate(names) if name in names[:i])


def add_constant(graph: Graph, name: str, array: np.ndarray, type: int) -> None:
    check_text(name)
    if not name:
        raise ModelError(f"graph {graph.name!r}: an initializer has no name")
    if name in graph.constants:
        raise ModelError(f"graph {graph.name!r}: initializer {name!r} is given twice")
    graph.constants[name], graph.constant_types[name] = array, type


def check_text(*names: Any) -> None:
    """Names that are no UTF-8 arrive as bytes.

    Raises
    ------
    ModelError
        If one is none.
    """
    for name in names:
        if not isinstance(name, str):
            raise ModelError(f"the name {name!r} is not UTF-8")


def read_value(proto: onnx.ValueInfoProto) -> Value:
    check_text(proto.name)
    type, kind, field = proto.type, "tensor", None
    for _ in range(DEEPEST):
        field = type.WhichOneof("value")
        if field == "sequence_type":
            kind, type = "sequence" if kind == "tensor" else kind, type.sequence_type.elem_type
        elif field == "optional_type":
            kind, type = "optional", type.optional_type.elem_type
        else:
            break
    if field is None:
        return Value(proto.name, 0, None, kind)
    if field not in ("tensor_type", "sparse_tensor_type"):
        raise Refused(f"value {proto.name!r}: {field.removesuffix('_type')}s are not supported")
    tensor = getattr(type, field)
    if tensor.elem_type not in TensorProto.DataType.values():
        raise ModelError(f"value {proto.name!r}: elem_type {tensor.elem_type} is unknown")
    if tensor.elem_type == TensorProto.STRING:
        raise Refused(f"value {proto.name!r}: strings are not supported")
    shape = None
    if tensor.HasField("shape"):
        shape = tuple(read_length(d, proto.name) for d in tensor.shape.dim)
    return Value(proto.name, tensor.elem_type, shape, kind)


def read_length(dim: Any, name: str) -> int | str | None:
    if dim.WhichOneof("value") == "dim_value":
        if not -1 <= dim.dim_value < MOST_ELEMENTS:
            raise ModelError(f"value {name!r}: a dimension of {dim.dim_value}")
        return dim.dim_value if dim.dim_value >= 0 else None  # exporters write -1 for any length
    return None if dim.dim_param in ("", "?") else dim.dim_param


# --- nodes --------------------------------------------------------------------------------------------------


def read_node(proto: onnx.NodeProto, source: Source, depth: int) -> Node:
    check_text(proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
    node = Node(proto.op_type, list(proto.input), list(proto.output), {}, proto.name)
    node.domain = main(proto.domain)
    node.opset = source.opsets.get(node.domain, 1)
    for attribute in proto.attribute:
        check_text(attribute.name, attribute.ref_attr_name)
        if node.opset < BROADCASTING and not node.domain:
            refuse_outdated(node, proto, attribute)
        if attribute.name in node.attributes:
            node.fail(f"attribute {attribute.name!r} is given twice")
        node.attributes[attribute.name] = read_attribute(node, attribute, source, depth)
    return node


def refuse_outdated(node: Node, proto: onnx.NodeProto, attribute: AttributeProto) -> None:
    """Refuse what meant something else before shapes alone decided about broadcasting."""
    other = attribute.name in OUTDATED and attribute.i == OUTDATED[attribute.name]
    if other or (attribute.name == "broadcast" and any(a.name == "axis" for a in proto.attribute)):
        node.refuse(f"attribute {attribute.name!r} as operators had it before opset {BROADCASTING}")


class Reference(str):
    """Name of an attribute of the function in which a node stands."""


def read_attribute(node: Node, proto: AttributeProto, source: Source, depth: int) -> Any:
    if proto.ref_attr_name:
        return Reference(proto.ref_attr_name)
    match proto.type:
        case AttributeProto.FLOAT:
            return proto.f
        case AttributeProto.INT:
            return proto.i
        case AttributeProto.STRING:
            return text(proto.s)
        case AttributeProto.FLOATS:
            return list(proto.floats)
        case AttributeProto.INTS:
            return list(proto.ints)
        case AttributeProto.STRINGS:
            return [text(s) for s in proto.strings]
        case AttributeProto.TENSOR:
            node.tensor_types[proto.name] = proto.t.data_type
            return read_tensor(proto.t, source)
        case AttributeProto.SPARSE_TENSOR:
            node.tensor_types[proto.name] = proto.sparse_tensor.values.data_type
            return read_sparse(proto.sparse_tensor, source)
        case AttributeProto.GRAPH:
            return read_graph(proto.g, source, depth + 1)
        case AttributeProto.TYPE_PROTO:
            info = onnx.ValueInfoProto(name=proto.name, type=proto.tp)
            return read_value(info)
        case _:
            return node.refuse(f"attribute {proto.name!r} is of type {proto.type}, which is not supported")


def text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


# --- tensors ------------------------------------------------------------------------------------------------


def read_tensor(proto: TensorProto, source: Source) -> np.ndarray:
    """The values of a tensor, in NumPy's dtype or that of ml_dtypes.

    Raises
    ------
    ModelError
        If dimensions and data do not fit each other, or external data lie elsewhere than they may.
    Refused
        If the elements are strings.
    """
    what = f"tensor {proto.name!r}"
    if proto.data_type not in BITS:
        if proto.data_type == TensorProto.STRING:
            raise Refused(f"{what}: strings are not supported")
        raise ModelError(f"{what}: data_type {proto.data_type} is unknown")
    shape = tuple(proto.dims)
    if any(n < 0 for n in shape) or prod(shape) > MOST_ELEMENTS:
        raise ModelError(f"{what}: dims {shape}")
    if proto.HasField("segment"):
        raise Refused(f"{what}: segments are not supported")
    bits = BITS[proto.data_type]
    expected = (prod(shape) * bits + 7) // 8
    if proto.data_location == TensorProto.EXTERNAL:
        return read_external(proto, source, shape, expected)
    if proto.HasField("raw_data"):
        got = len(proto.raw_data)
    else:
        field = helper.tensor_dtype_to_field(proto.data_type)
        count = len(getattr(proto, field))
        per = 2 if proto.data_type in (TensorProto.COMPLEX64, TensorProto.COMPLEX128) else 1
        if bits < 8:
            got = count
        else:
            got = count * bits // 8 // per
    if got != expected:
        raise ModelError(f"{what}: {got} bytes of data for dims {shape} of {name_of(proto.data_type)}, "
                         f"expected {expected}")  # fmt: skip
    try:
        array = numpy_helper.to_array(proto)
    except (ValueError, TypeError, OverflowError) as error:
        raise ModelError(f"{what}: {error}") from error
    return array


def read_external(proto: TensorProto, source: Source, shape: tuple, expected: int) -> np.ndarray:
    what = f"tensor {proto.name!r}"
    entries = {entry.key: entry.value for entry in proto.external_data}
    if source.folder is None:
        raise ModelError(f"{what}: external data of a model that was read from memory")
    path = inside(source.folder, entries.get("location", ""), what)
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", expected))
    except ValueError as error:
        raise ModelError(f"{what}: external_data: offset and length must be integers") from error
    size = path.stat().st_size
    if offset < 0 or length != expected or offset + length > size:
        raise ModelError(
            f"{what}: external_data: {length} bytes at {offset} of {path.name}, which has {size}; "
            f"expected {expected} bytes for dims {shape}"
        )
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
    if len(data) != length:
        raise ModelError(f"{what}: external_data: {path.name} ended early")
    local = TensorProto(data_type=proto.data_type, dims=shape, raw_data=data)
    return numpy_helper.to_array(local)


def inside(folder: Path, location: str, what: str) -> Path:
    """A regular file inside the model's folder, reached without symbolic links.

    Raises
    ------
    ModelError
        If the location leads elsewhere.
    """
    relative = Path(location)
    if not location or "\0" in location or relative.is_absolute() or ".." in relative.parts:
        raise ModelError(f"{what}: external_data: location {location!r} is not inside the model's folder")
    path = folder
    for part in relative.parts:
        path = path / part
        if path.is_symlink():
            raise ModelError(f"{what}: external_data: {location!r} is a symbolic link")
    if not os.path.isfile(path):
        raise ModelError(f"{what}: external_data: there is no file {location!r} beside the model")
    return path


def read_sparse(proto: onnx.SparseTensorProto, source: Source) -> np.ndarray:
    what, shape = f"sparse tensor {proto.values.name!r}", tuple(proto.dims)
    values, where = read_tensor(proto.values, source), read_tensor(proto.indices, source)
    if any(n < 0 for n in shape) or prod(shape) > 2**28:
        raise ModelError(f"{what}: dims {shape}")
    if where.ndim == 2:
        if where.shape != (values.size, len(shape)):
            raise ModelError(f"{what}: indices of shape {where.shape}")
        columns = tuple(where.T)
    else:
        if where.shape != (values.size,) or (
            where.size and not 0 <= where.min() <= where.max() < prod(shape)
        ):
            raise ModelError(f"{what}: indices of shape {where.shape}, or out of range")
        columns = np.unravel_index(where, shape) if where.size else ()
    dense = np.zeros(shape, values.dtype)
    try:
        if values.size:
            dense[columns] = values
    except IndexError as error:
        raise ModelError(f"{what}: {error}") from error
    return dense
