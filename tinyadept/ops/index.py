"""Ops that read or write where integer tensors point, and sorting."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..view import Shape, normal_axis
from .create import zeros
from .table import Family, amended, compute_dtype, define, operands


def index_tensor(op: Any, index: Any) -> Tensor:
    if not isinstance(index, Tensor) or index.dtype not in dtypes.INTEGERS:
        got = index.dtype.name if isinstance(index, Tensor) else type(index).__name__
        raise TypeError(f"{op.name} takes an integer tensor as index, got {got}")
    return index


def checked(index: np.ndarray, size: int, lowest: int = 0) -> np.ndarray:
    """Indices that lie inside an axis.

    Raises
    ------
    IndexError
        If one does not.
    """
    index = index.astype(np.int64)
    wrong = (index < lowest) | (index >= size)
    if wrong.any():
        raise IndexError(f"index {index[wrong].flat[0]} is out of range for an axis of length {size}")
    return index


def wrapped(index: np.ndarray, size: int) -> np.ndarray:
    """Non-negative int32 indices from ones that may count from the end."""
    index = checked(index, size, -size)
    return np.where(index < 0, index + size, index).astype(np.int32)


def infer_take(op: Any, inputs: tuple, params: dict) -> tuple:
    x, index = operands(op, inputs)
    axis = params["axis"] = normal_axis(params["axis"], x.ndim)
    index_tensor(op, index)
    return (x, index), x.shape[:axis] + index.shape + x.shape[axis + 1 :], x.dtype


def infer_put_add(op: Any, inputs: tuple, params: dict) -> tuple:
    values, index = inputs
    axis = params["axis"]
    after = values.shape[axis + index_tensor(op, index).ndim :]
    if values.shape[axis : axis + index.ndim] != index.shape:
        raise ValueError(
            f"put_add: values {values.shape} do not hold the index shape {index.shape} at axis {axis}"
        )
    return inputs, values.shape[:axis] + (params["size"],) + after, values.dtype


def infer_put(op: Any, inputs: tuple, params: dict) -> tuple:
    base, index, values = operands(op, inputs)
    axis = params["axis"] = normal_axis(params["axis"], base.ndim)
    expected = base.shape[:axis] + index_tensor(op, index).shape + base.shape[axis + 1 :]
    if values.shape != expected or values.dtype != base.dtype:
        raise ValueError(
            f"put: values of shape {values.shape} and dtype {values.dtype.name} where {expected} and "
            f"{base.dtype.name} are expected"
        )
    return (base, index, values), base.shape, base.dtype


def check_along(op: Any, shape: Shape, index: Tensor, axis: int) -> None:
    index_tensor(op, index)
    fits = index.ndim == len(shape) and all(
        m <= n for a, (m, n) in enumerate(zip(index.shape, shape)) if a != axis
    )
    if not fits:
        raise ValueError(
            f"{op.name}: an index of shape {index.shape} does not fit shape {shape} outside axis {axis}"
        )


def infer_take_along(op: Any, inputs: tuple, params: dict) -> tuple:
    x, index = operands(op, inputs)
    params["axis"] = normal_axis(params["axis"], x.ndim)
    check_along(op, x.shape, index, params["axis"])
    return (x, index), index.shape, x.dtype


def infer_put_along_add(op: Any, inputs: tuple, params: dict) -> tuple:
    values, index = inputs
    check_along(op, params["shape"], index, params["axis"])
    return inputs, params["shape"], values.dtype


def infer_put_along(op: Any, inputs: tuple, params: dict) -> tuple:
    base, index, values = operands(op, inputs)
    params["axis"] = normal_axis(params["axis"], base.ndim)
    check_along(op, base.shape, index, params["axis"])
    if values.shape != index.shape or values.dtype != base.dtype:
        raise ValueError(f"{op.name}: values {values.shape} {values.dtype.name} for an index {index.shape}")
    return (base, index, values), base.shape, base.dtype


def infer_in_range(op: Any, inputs: tuple, params: dict) -> tuple:
    return (index_tensor(op, inputs[0]),), inputs[0].shape, dtypes.int32


def infer_nonzero(op: Any, inputs: tuple, params: dict) -> tuple:
    return inputs, (params["count"], inputs[0].ndim), dtypes.int32


def infer_argsort(op: Any, inputs: tuple, params: dict) -> tuple:
    (x,) = operands(op, inputs)
    compute_dtype(op, [x])
    params["axis"] = normal_axis(params["axis"], x.ndim)
    return (x,), x.shape, dtypes.int32


taking = Family("take", infer_take)
adding = Family("put_add", infer_put_add)
putting = Family("put", infer_put)
taking_along = Family("take_along", infer_take_along)
adding_along = Family("put_along_add", infer_put_along_add)
putting_along = Family("put_along", infer_put_along)
ranging = Family("in_range", infer_in_range)
finding = Family("nonzero", infer_nonzero)
sorting = Family("sort", infer_argsort)


def np_take(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    return np.take(x.reshape(1) if x.ndim == 0 else x, checked(index, x.shape[axis] if x.ndim else 1), axis)


def np_put_add(values: np.ndarray, index: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Sort the index, then sum each run of equal ones in float64: deterministic, and faster than ufunc.at."""
    before, after = values.shape[:axis], values.shape[axis + index.ndim :]
    rows = np.moveaxis(values.reshape(*before, index.size, *after), axis, 0)
    out = np.zeros((size, *before, *after), values.dtype)
    if rows.size:
        flat = checked(index, size).ravel()
        order = np.argsort(flat, kind="stable")
        starts = np.flatnonzero(np.diff(flat[order], prepend=-1))
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        out[flat[order][starts]] = np.add.reduceat(rows[order], starts, axis=0, dtype=wide)
    return np.moveaxis(out, 0, axis)


def put_into(base: np.ndarray, index: np.ndarray, values: np.ndarray, axis: int) -> None:
    flat = checked(index, base.shape[axis]).ravel()
    cells = values.reshape(*base.shape[:axis], index.size, *base.shape[axis + 1 :])
    base[(slice(None),) * axis + (flat,)] = cells


def cells_along(index: np.ndarray, axis: int, size: int) -> tuple:
    """Where each element of the index points: a tuple of broadcastable index arrays, one an axis."""
    if index.ndim == 0:
        index = index.reshape(1)
    cells = list(np.ogrid[tuple(slice(n) for n in index.shape)])
    cells[axis] = checked(index, size)
    return tuple(cells)


def np_take_along(x: np.ndarray, index: np.ndarray, axis: int) -> np.ndarray:
    x = x.reshape(1) if x.ndim == 0 else x
    return x[cells_along(index, axis, x.shape[axis])].reshape(index.shape)


def np_put_along_add(values: np.ndarray, index: np.ndarray, axis: int, shape: Shape) -> np.ndarray:
    full = shape or (1,)
    if index.size == 0:
        return np.zeros(shape, values.dtype)
    flat = np.ravel_multi_index(np.broadcast_arrays(*cells_along(index, axis, full[axis])), full).ravel()
    if values.dtype.kind == "f":
        total = np.bincount(flat, values.ravel().astype(np.float64), int(np.prod(full)))
    else:
        total = np.zeros(int(np.prod(full)), np.int64)
        np.add.at(total, flat, values.ravel())
    return total.reshape(shape)


def put_along_into(base: np.ndarray, index: np.ndarray, values: np.ndarray, axis: int) -> None:
    if index.size:
        base.reshape(base.shape or (1,))[cells_along(index, axis, base.shape[axis] if base.ndim else 1)] = (
            values
        )


def np_argsort(x: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Stable both ways: equal elements keep their order. NaN is the largest."""
    if x.ndim == 0:
        return np.zeros((), np.int32)
    if not descending:
        return np.argsort(x, axis, kind="stable").astype(np.int32)
    order = np.argsort(np.flip(x, axis), axis, kind="stable")
    return (x.shape[axis] - 1 - np.flip(order, axis)).astype(np.int32)


take = define(
    taking,
    "take",
    np_take,
    lambda g, out, x, index, axis: (
        put_add(g, index, axis=axis, size=x.shape[axis])
        if x.shape
        else put_add(g, index, axis=0, size=1).reshape(())
    ),
    None,
)
put_add = define(
    adding, "put_add", np_put_add, lambda g, out, values, index, axis, size: take(g, index, axis=axis), None
)
put = define(
    putting,
    "put",
    amended(put_into),
    lambda g, out, base, index, values, axis: put(g, index, zeros(values.shape, g), axis=axis),
    None,
    lambda g, out, base, index, values, axis: take(g, index, axis=axis),
    amend=put_into,
)
take_along = define(
    taking_along,
    "take_along",
    np_take_along,
    lambda g, out, x, index, axis: put_along_add(g, index, axis=axis, shape=x.shape),
    None,
)
put_along_add = define(
    adding_along,
    "put_along_add",
    np_put_along_add,
    lambda g, out, values, index, axis, shape: take_along(g, index, axis=axis),
    None,
)
put_along = define(
    putting_along,
    "put_along",
    amended(put_along_into),
    lambda g, out, base, index, values, axis: put_along(g, index, zeros(values.shape, g), axis=axis),
    None,
    lambda g, out, base, index, values, axis: take_along(g, index, axis=axis),
    amend=put_along_into,
)
in_range = define(ranging, "in_range", wrapped, None)
nonzero = define(finding, "nonzero", lambda mask, count: np.argwhere(mask).astype(np.int32), None)
argsort = define(sorting, "argsort", np_argsort, None)
