"""Operators that read or write where integers point, sort, or find elements."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from onnx import TensorProto

from ... import creation, dtypes
from ... import functional as F
from ...ops import elementwise
from ...ops import index as rows
from ...ops.elementwise import where
from ...tensor import Tensor
from ...view import normal_axis
from .. import types
from ..registry import Node, operator


def as_int64(node: Node, x: Tensor) -> Tensor:
    """Indices as the specification has them: int64, or int32 on devices that have nothing longer."""
    return x.to(types.held(TensorProto.INT64, x.backend.name == "numpy"))


def inside(index: Tensor, size: int) -> Tensor:
    """Indices that may count from the end as ones that do not."""
    return rows.in_range(index, size=size)


@operator("Gather")
def gather(node: Node, x: Tensor, index: Tensor) -> Tensor:
    axis = normal_axis(node.get("axis", 0), x.ndim)
    return rows.take(x, inside(index, x.shape[axis]), axis=axis)


@operator("GatherElements", since=11)
def gather_elements(node: Node, x: Tensor, index: Tensor) -> Tensor:
    axis = normal_axis(node.get("axis", 0), x.ndim)
    return rows.take_along(x, inside(index, x.shape[axis]), axis=axis)


def flat_cells(x: Tensor, index: Tensor, batch: int = 0) -> tuple[Tensor, Tensor]:
    """Slices of `x` along one axis, and which of them the tuples on the last axis of `index` mean.

    Both without their first `batch` axes, which they share.
    """
    depth = index.shape[-1]
    own, rest = x.shape[batch : batch + depth], x.shape[batch + depth :]
    flat: Any = None
    for position, n in enumerate(own):
        part = inside(index[..., position], n)
        flat = part if flat is None else flat * n + part
    if flat is None:
        flat = creation.zeros(index.shape[:-1], dtype=dtypes.int32, device=x.backend)
    count = prod(own)
    if batch:
        sheets = creation.arange(prod(x.shape[:batch]), device=x.backend) * count
        flat = flat + sheets.reshape(*x.shape[:batch], *(1,) * (flat.ndim - batch))
        count *= prod(x.shape[:batch])
    return x.reshape(count, *rest), flat


@operator("GatherND", since=11)
def gather_nd(node: Node, x: Tensor, index: Tensor) -> Tensor:
    cells, flat = flat_cells(x, index, node.get("batch_dims", 0))
    return rows.take(cells, flat, axis=0)


# --- scattering ---------------------------------------------------------------------------------------------

COMBINED: dict[str, Callable[..., Tensor]] = {
    "mul": elementwise.mul,
    "max": elementwise.maximum,
    "min": elementwise.minimum,
}


def combined(cells: Tensor, index: Tensor, updates: Tensor, function: Callable[..., Tensor]) -> Tensor:
    """Rows of `cells` combined with `updates` (n, …) where `index` (n) points, also at one row several times.

    Each round takes one update for every row that is left; how many are left is read back.
    """
    while index.numel():
        number = creation.arange(index.numel(), device=cells.backend)
        nobody = creation.full((cells.shape[0],), -1, device=cells.backend)
        last = rows.take(rows.put(nobody, index, number, axis=0), index, axis=0) == number
        chosen = last.nonzero().flatten()
        at = rows.take(index, chosen, axis=0)
        changed = function(rows.take(cells, at, axis=0), rows.take(updates, chosen, axis=0))
        cells = rows.put(cells, at, changed, axis=0)
        left = last.logical_not().nonzero().flatten()
        index, updates = rows.take(index, left, axis=0), rows.take(updates, left, axis=0)
    return cells


def reduction_of(node: Node) -> str:
    reduction = node.get("reduction", "none")
    if reduction not in ("none", "add", *COMBINED):
        node.fail(f"attribute 'reduction' is {reduction!r}, expected none, add, mul, max or min")
    return reduction


@operator("ScatterElements", since=11)
@operator("Scatter", since=9)
def scatter_elements(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    axis, reduction = normal_axis(node.get("axis", 0), x.ndim), reduction_of(node)
    index = inside(index, x.shape[axis])
    if reduction == "none":
        return rows.put_along(x, index, updates, axis=axis)
    if reduction == "add":
        return (x + rows.put_along_add(updates, index, axis=axis, shape=x.shape)).to(x.dtype)
    flat: Any = None
    for position, n in enumerate(x.shape):
        m = index.shape[position]
        beside = creation.arange(m, device=x.backend).reshape(
            *(-1 if a == position else 1 for a in range(x.ndim))
        )
        part = index if position == axis else beside.expand(index.shape)
        flat = part if flat is None else flat * n + part
    cells = combined(x.flatten(), flat.flatten(), updates.flatten(), COMBINED[reduction])
    return cells.reshape(*x.shape)


@operator("ScatterND", since=11)
def scatter_nd(node: Node, x: Tensor, index: Tensor, updates: Tensor) -> Tensor:
    reduction = reduction_of(node)
    cells, flat = flat_cells(x, index)
    flat = flat.flatten()
    updates = updates.reshape(flat.numel(), *cells.shape[1:])
    if reduction == "none":
        out = rows.put(cells, flat, updates, axis=0)
    elif reduction == "add":
        out = (cells + rows.put_add(updates, flat, axis=0, size=cells.shape[0])).to(x.dtype)
    else:
        out = combined(cells, flat, updates, COMBINED[reduction])
    return out.reshape(*x.shape)


@operator("TensorScatter", since=24)
def tensor_scatter(node: Node, past: Tensor, update: Tensor, start: Tensor | None = None) -> Tensor:
    axis = normal_axis(node.get("axis", -2), past.ndim)
    if not axis:
        node.fail("axis 0 is the batch, and cannot be written along")
    b, n, m = past.shape[0], past.shape[axis], update.shape[axis]
    at = creation.arange(m, device=past.backend).reshape(1, m)
    if start is not None:
        at = at + start.reshape(b, 1).to(dtypes.int32)
    if node.get("mode", "linear") == "circular":
        at = at % n
    shape = [b if a == 0 else m if a == axis else 1 for a in range(past.ndim)]
    return rows.put_along(past, at.expand(b, m).reshape(*shape).expand(update.shape), update, axis=axis)


# --- choosing -----------------------------------------------------------------------------------------------


@operator("OneHot", since=9, reads=(1,))
def one_hot(node: Node, index: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    n = int(depth.item())
    axis = normal_axis(node.get("axis", -1), index.ndim + 1)
    index = where(index < 0, index + n, index).unsqueeze(axis)
    cells = creation.arange(n, device=index.backend).reshape(
        *(-1 if a == axis else 1 for a in range(index.ndim))
    )
    return where(index == cells, values[1], values[0])


@operator("NonZero", since=9)
def nonzero(node: Node, x: Tensor) -> Tensor:
    return as_int64(node, x.nonzero().transpose(0, 1))


@operator("Compress", since=9)
def compress(node: Node, x: Tensor, condition: Tensor) -> Tensor:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.flatten(), 0
    return rows.take(x, condition.nonzero().flatten(), axis=axis)


@operator("TopK", reads=(1,))
def top_k(node: Node, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    count = node.get("k") if k is None else node.integer(k)
    values, index = x.topk(count, node.get("axis", -1), bool(node.get("largest", 1)))
    return values, as_int64(node, index)


def arg_extremum(name: str, function: Callable[..., Tensor]) -> None:
    @operator(name)
    def run(node: Node, x: Tensor) -> Tensor:
        axis = normal_axis(node.get("axis", 0), x.ndim)
        if node.get("select_last_index", 0):
            found = x.shape[axis] - 1 - function(x.flip(axis), axis, True)
        else:
            found = function(x, axis, True)
        return as_int64(node, found if node.get("keepdims", 1) else found.squeeze(axis))


arg_extremum("ArgMax", Tensor.argmax)
arg_extremum("ArgMin", Tensor.argmin)


@operator("Unique", since=11)
def unique(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    axis = node.get("axis")
    values, inverse, counts = F.unique(x, return_inverse=True, return_counts=True, dim=axis)
    inverse, along = inverse.flatten(), normal_axis(axis or 0, max(values.ndim, 1))
    number = creation.arange(inverse.numel(), device=x.backend)
    first = rows.put(
        counts, inverse.flip(0), number.flip(0), axis=0
    )  # of equal ones the first is written last
    if not node.get("sorted", 1):
        order = first.argsort()
        values = rows.take(values, order, axis=along)
        first, counts = rows.take(first, order, axis=0), rows.take(counts, order, axis=0)
        inverse = rows.take(order.argsort(), inverse, axis=0)
    return values, *(as_int64(node, found) for found in (first, inverse, counts))
