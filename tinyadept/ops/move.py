"""Ops that only change the view (no backend is involved), and the copies that a view cannot express."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..tape import as_view
from ..tensor import Tensor, wrap
from ..view import Shape, View, normal_axis
from .create import zeros
from .table import Family, Move, compute_dtype, define, finish, lifted, operands


def look(op: Any, inputs: tuple, params: dict) -> Tensor:
    (x,) = inputs
    return finish(op, as_view(x, op.forward(x.layout, **params)), inputs, params)


def carry(op: Any, inputs: tuple, params: dict) -> Tensor:
    """Move values to another device."""
    (x,), backend = inputs, params["backend"]
    out = wrap(
        backend.upload(np.array(x.backend.download(x), order="C")), View.dense(x.shape), x.dtype, backend
    )
    return finish(op, out, inputs, params)


def infer_cat(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs = tuple(operands(op, inputs))
    if not inputs:
        raise ValueError("cat of no tensors: expected at least one")
    axis = params["axis"] = normal_axis(params["axis"], max(x.ndim for x in inputs))
    first = max(inputs, key=lambda x: x.ndim)
    for x in inputs:
        if (
            x.ndim != first.ndim
            or x.shape[:axis] + x.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]
        ):
            raise ValueError(
                f"cat along axis {axis}: shapes {first.shape} and {x.shape} differ in another axis"
            )
    if first.ndim == 0:
        raise ValueError("cat takes tensors with at least one axis: stack() makes a new one")
    length = sum(x.shape[axis] for x in inputs)
    dtype = compute_dtype(op, inputs)
    shape = (*first.shape[:axis], length, *first.shape[axis + 1 :])
    return tuple(lifted(op, inputs, dtype, first.backend)), shape, dtype


def infer_place(op: Any, inputs: tuple, params: dict) -> tuple:
    *base, value = inputs
    shape = base[0].shape if base else params["shape"]
    region = params["move"].view(shape)
    if value.shape != region.shape:
        raise ValueError(
            f"{op.name}: a value of shape {value.shape} does not fill a region of shape {region.shape}"
        )
    return inputs, shape, inputs[0].dtype


move = Family("move", lambda op, inputs, params: None, look)
transferring = Family("transfer", lambda op, inputs, params: None, carry)
joining = Family("cat", infer_cat)
placing = Family("place", infer_place)


def strided(array: np.ndarray, view: View) -> np.ndarray:
    """An ndarray that reads dense memory through a view."""
    if not view.size:  # NumPy refuses some strides here, though nothing is read
        return np.empty(view.shape, array.dtype)
    size = array.itemsize
    strides = tuple([s * size for s in view.strides])
    return np.ndarray(view.shape, array.dtype, array, view.offset * size, strides)


def inverse(order: tuple) -> tuple:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def put_place(value: np.ndarray, shape: Shape, move: Move, fill: float = 0) -> np.ndarray:
    out = np.full(shape, fill, value.dtype)
    strided(out, move.view(shape))[...] = value
    return out


def put_assign(base: np.ndarray, value: np.ndarray, move: Move) -> np.ndarray:
    out = np.array(base, order="C")
    strided(out, move.view(base.shape))[...] = value
    return out


def part(g: Tensor, position: int, xs: tuple, axis: int) -> Tensor:
    """The piece of a concatenation that came from one input."""
    start = sum(x.shape[axis] for x in xs[:position])
    return g.narrow(axis, start, xs[position].shape[axis])


def fold(g: Tensor, shape: Shape, axis: int, size: int, step: int) -> Tensor:
    """Add windows back to where they were cut: the gradient of `windows`."""
    count, total = g.shape[axis], None
    for k in range(size):
        cells = slice(k, k + step * (count - 1) + 1, step)
        spot = Move(
            index.op, (("key", (slice(None),) * axis + (cells,) + (slice(None),) * (len(shape) - axis - 1)),)
        )
        piece = place(g.select(-1, k), shape=shape, move=spot)
        total = piece if total is None else total + piece
    return zeros(shape, g) if total is None else total


permute = define(
    move,
    "permute",
    lambda view, order: view.permute(order),
    lambda g, out, a, order: g.permute(inverse(order)),
)
expand = define(
    move, "expand", lambda view, shape: view.expand(shape), lambda g, out, a, shape: g
)  # summed by the tape
reshape = define(
    move, "reshape", lambda view, shape: view.reshape(shape), lambda g, out, a, shape: g.reshape(a.shape)
)
index = define(
    move,
    "index",
    lambda view, key: view.index(key),
    lambda g, out, a, key: place(g, shape=a.shape, move=Move(index.op, (("key", key),))),
)
diagonal = define(
    move,
    "diagonal",
    lambda view, offset, axis1, axis2: view.diagonal(offset, axis1, axis2),
    lambda g, out, a, offset, axis1, axis2: place(
        g,
        shape=a.shape,
        move=Move(diagonal.op, (("offset", offset), ("axis1", axis1), ("axis2", axis2))),
    ),
)
windows = define(
    move,
    "windows",
    lambda view, axis, size, step: view.windows(axis, size, step),
    lambda g, out, a, axis, size, step: fold(g, a.shape, axis, size, step),
)
transfer = define(
    transferring, "transfer", lambda a, backend: a, lambda g, out, a, backend: transfer(g, backend=a.backend)
)
cat = define(
    joining,
    "cat",
    lambda *arrays, axis: np.concatenate(arrays, axis),
    lambda g, out, position, *xs, axis: part(g, position, xs, axis),
    variadic=True,
)
place = define(
    placing,
    "place",
    put_place,
    lambda g, out, value, shape, move, fill=0: move(g),
)
assign = define(
    placing,
    "assign",
    put_assign,
    lambda g, out, base, value, move: assign(g, zeros(value.shape, g), move=move),
    lambda g, out, base, value, move: move(g),
)


def sum_to(x: Tensor, shape: Shape) -> Tensor:
    """Undo a broadcast: the gradient of repeating is summing."""
    if x.shape == shape:
        return x
    lead = x.ndim - len(shape)
    axes = tuple(a for a, n in enumerate(x.shape) if a < lead or shape[a - lead] != n)
    total = x.sum(axes, keepdim=True) if axes else x
    return total.reshape(shape)
