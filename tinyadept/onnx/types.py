"""Element types of ONNX: which dtype of the engine holds them, and which type each output of a node has."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from .. import dtypes, functional
from ..tensor import Tensor
from .registry import ModelError, Node

T = TensorProto
BITS: dict[int, int] = {
    T.FLOAT: 32, T.DOUBLE: 64, T.FLOAT16: 16, T.BFLOAT16: 16, T.BOOL: 8, T.COMPLEX64: 64, T.COMPLEX128: 128,
    T.INT8: 8, T.INT16: 16, T.INT32: 32, T.INT64: 64, T.UINT8: 8, T.UINT16: 16, T.UINT32: 32, T.UINT64: 64,
    T.FLOAT8E4M3FN: 8, T.FLOAT8E4M3FNUZ: 8, T.FLOAT8E5M2: 8, T.FLOAT8E5M2FNUZ: 8, T.FLOAT8E8M0: 8,
    T.INT4: 4, T.UINT4: 4, T.FLOAT4E2M1: 4, T.INT2: 2, T.UINT2: 2,
}  # fmt: skip
HOLDS: dict[int, np.dtype] = {  # those that are not here are held as float32
    T.DOUBLE: dtypes.float64, T.BOOL: dtypes.bool_, T.UINT8: dtypes.uint8,
    T.INT8: dtypes.int32, T.INT16: dtypes.int32, T.INT32: dtypes.int32, T.UINT16: dtypes.int32,
    T.INT4: dtypes.int32, T.UINT4: dtypes.int32, T.INT2: dtypes.int32, T.UINT2: dtypes.int32,
    T.INT64: dtypes.int64, T.UINT32: dtypes.int64, T.UINT64: dtypes.int64,
}  # fmt: skip
COMPLEX = (T.COMPLEX64, T.COMPLEX128)
NARROWED = {dtypes.int64: dtypes.int32, dtypes.float64: dtypes.float32}
# Floats that float32 holds: digits of the significand, smallest normal exponent, largest number, overflow
SMALL_FLOATS: dict[int, tuple[int, int, float, float]] = {
    T.FLOAT16: (11, -14, 65504.0, np.inf),
    T.BFLOAT16: (8, -126, 3.3895313892515355e38, np.inf),
    T.FLOAT8E4M3FN: (4, -6, 448.0, np.nan),
    T.FLOAT8E4M3FNUZ: (4, -7, 240.0, np.nan),
    T.FLOAT8E5M2: (3, -14, 57344.0, np.inf),
    T.FLOAT8E5M2FNUZ: (3, -15, 57344.0, np.nan),
    T.FLOAT4E2M1: (2, 0, 6.0, 6.0),
}
SATURATING = (T.FLOAT8E4M3FN, T.FLOAT8E4M3FNUZ, T.FLOAT8E5M2, T.FLOAT8E5M2FNUZ)
SMALL_INTS: dict[int, tuple[int, bool]] = {
    T.INT8: (8, True), T.INT16: (16, True), T.UINT16: (16, False), T.UINT32: (32, False),
    T.INT4: (4, True), T.UINT4: (4, False), T.INT2: (2, True), T.UINT2: (2, False),
}  # fmt: skip


def name_of(type: int) -> str:
    """As the specification spells it: "float16"."""
    return T.DataType.Name(type).lower() if type in T.DataType.values() else f"type {type}"


def held(type: int, host: bool = True) -> np.dtype:
    """The engine's dtype for an element type, on the host or on a device of 32 bits."""
    dtype = HOLDS.get(type, dtypes.float32)
    return dtype if host else NARROWED.get(dtype, dtype)


def to_held(array: np.ndarray, type: int, what: str) -> np.ndarray:
    """Values as the engine holds them on the host.

    Raises
    ------
    ModelError
        If a value does not fit.
    """
    if type == T.UINT64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise ModelError(f"{what}: {array.max()} does not fit int64, which holds uint64 here")
    return np.ascontiguousarray(array.astype(held(type), copy=False)).reshape(array.shape)


def from_held(array: np.ndarray, type: int) -> np.ndarray:
    """Values of the engine as those of an element type."""
    if not type:
        return array
    wanted = helper.tensor_dtype_to_np_dtype(type)
    return array if array.dtype == wanted else array.astype(wanted)


def narrowed(x: Tensor, backend: Any) -> Tensor:
    """A host value on a device of 32 bits.

    Raises
    ------
    OverflowError
        If a number does not fit.
    """
    if x.dtype == dtypes.float64:
        values = np.abs(x.detach().numpy())
        beyond = values[(values > np.finfo(np.float32).max) & np.isfinite(values)]
        if beyond.size:
            raise OverflowError(
                f"{beyond.flat[0]} does not fit float32, which holds float64 on {backend.name}"
            )
    if x.dtype == dtypes.int64 and x.numel():
        values = x.detach().numpy()
        low, high = int(values.min()), int(values.max())
        if low < -(2**31) or high >= 2**31:
            worst = high if high >= 2**31 else low
            raise OverflowError(f"{worst} does not fit int32, which holds int64 on {backend.name}")
    return x.to(NARROWED.get(x.dtype, x.dtype)).to(backend)


def fitted(x: Tensor, type: int) -> Tensor:
    """A result as its element type would hold it: integers wrapped, floats rounded."""
    if type in SMALL_FLOATS:
        return rounded(x, *SMALL_FLOATS[type])
    if type in SMALL_INTS:
        bits, signed = SMALL_INTS[type]
        if bits == 32 and x.dtype != dtypes.int64:
            return x
        half, mask = 1 << (bits - 1), (1 << bits) - 1
        return ((x + half) & mask) - half if signed else x & mask
    return x


def rounded(x: Tensor, digits: int, lowest: int, largest: float, beyond: float) -> Tensor:
    """The nearest number with so many binary digits (Veltkamp's splitting; subnormal ones by a sum)."""
    scaled = x * float(2 ** (24 - digits) + 1)
    short = scaled - (scaled - x)
    step = 1.5 * 2.0 ** (lowest - digits + 1 + 23)
    if lowest > -100:
        short = functional.where(abs(x) < 2.0**lowest, x.sign() * ((abs(x) + step) - step), short)
    short = functional.where(abs(short) > largest, x.sign() * beyond, short)
    return functional.where((abs(x) < 1e34) | x.isnan(), short, x)


# --- which type each output has -----------------------------------------------------------------------------

NAMED = {f"tensor({name_of(type)})": type for type in BITS}


DEFAULTS = {  # of what has neither an input nor an attribute that says it
    "RandomNormal": T.FLOAT, "RandomUniform": T.FLOAT, "Multinomial": T.INT32, "SequenceEmpty": T.FLOAT,
    "BlackmanWindow": T.FLOAT, "HannWindow": T.FLOAT, "HammingWindow": T.FLOAT, "MelWeightMatrix": T.FLOAT,
}  # fmt: skip


def element(text: str) -> int:
    """The element type in "tensor(float)" or "seq(tensor(float))"; 0 if there is none."""
    inner = text[text.rfind("(tensor(") + 1 :] if "(tensor(" in text else text
    return NAMED.get(inner.rstrip(")") + ")", 0)


def output_types(node: Node) -> list[int]:
    """Element types of a node's outputs, from the operator's schema and the types of its inputs."""
    types, count = node.input_types, len(node.outputs)
    if node.op == "Constant":
        return [constant_type(node)] * count
    if node.op == "ConstantOfShape":
        return [node.tensor_types.get("value", T.FLOAT)] * count
    first = next((t for t in types if t), 0)
    chosen = next((node.get(a) for a in ("to", "dtype", "output_dtype", "output_datatype") if node.get(a)), 0)
    if node.op == "QuantizeLinear":
        return [types[2] if len(types) > 2 and types[2] else chosen or T.UINT8] * count
    if node.op == "DequantizeLinear":
        return [chosen or types[1]] * count
    try:
        schema = onnx.defs.get_schema(node.op, node.opset, node.domain)
    except onnx.defs.SchemaError:
        return [chosen or first] * count
    bound: dict[str, int] = {}
    for position, type in enumerate(types):
        if type and schema.inputs:
            formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            bound.setdefault(formal.type_str, type)
    allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
    found = []
    for position in range(count):
        formal = schema.outputs[min(position, len(schema.outputs) - 1)] if schema.outputs else None
        text = formal.type_str if formal else ""
        if text in bound:
            found.append(bound[text])
        elif text in allowed and len(allowed[text]) == 1:
            found.append(element(next(iter(allowed[text]))))
        elif text in allowed or not text:
            found.append(chosen or DEFAULTS.get(node.op) or first)
        else:
            found.append(element(text))
    return found


def constant_type(node: Node) -> int:
    for name, type in node.tensor_types.items():
        if name in ("value", "sparse_value"):
            return type
    return T.INT64 if "value_int" in node.attributes or "value_ints" in node.attributes else T.FLOAT
