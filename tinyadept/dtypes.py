"""The six element types, as NumPy spells them, and how they mix."""

from __future__ import annotations

from typing import Any

import numpy as np

bool_ = np.dtype("bool")
uint8 = np.dtype("uint8")
int32 = np.dtype("int32")
int64 = np.dtype("int64")
float32 = np.dtype("float32")
float64 = np.dtype("float64")

# Of two, the later one holds the result, as in PyTorch: an int beside a float becomes that float.
LADDER = (bool_, uint8, int32, int64, float32, float64)
RUNG = {dtype: rung for rung, dtype in enumerate(LADDER)}
KIND = {bool_: 0, uint8: 1, int32: 1, int64: 1, float32: 2, float64: 2}
FLOATS = frozenset((float32, float64))
INTEGERS = frozenset((uint8, int32, int64))
SCALAR_KIND = {bool: 0, int: 1, float: 2}
SCALAR_DTYPE = (bool_, int32, float32)


def as_dtype(dtype: Any) -> np.dtype:
    """One of the six from whatever NumPy reads as a dtype.

    Raises
    ------
    TypeError
        If it is none of the six.
    """
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise TypeError(f"{dtype!r} is no dtype: expected one of {names()}") from error
    if found not in RUNG:
        raise TypeError(f"dtype {found.name} is not supported: expected one of {names()}")
    return found


def names() -> str:
    return ", ".join(dtype.name for dtype in LADDER)


def promote(tensors: list[tuple[np.dtype, bool]], scalars: list[type]) -> np.dtype:
    """The dtype in which operands meet.

    Tensors with axes outrank 0-d tensors of the same kind (bool < int < float), and both outrank Python
    numbers.

    Parameters
    ----------
    tensors : list of (dtype, is_0d)
    scalars : list of bool, int or float
        Types of the Python numbers among the operands.
    """
    sized = max((d for d, zero in tensors if not zero), key=RUNG.__getitem__, default=None)
    zero_d = max((d for d, zero in tensors if zero), key=RUNG.__getitem__, default=None)
    result = sized
    if zero_d is not None and (result is None or KIND[zero_d] > KIND[result]):
        result = zero_d
    kind = max((SCALAR_KIND[s] for s in scalars), default=-1)
    if result is None or kind > KIND[result]:
        result = SCALAR_DTYPE[kind]
    return result
