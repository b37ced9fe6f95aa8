"""Arithmetic on tensors, in-place writes, and changes of dtype and device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import device as devices
from .. import dtypes, indexing
from ..ops import elementwise, move, table
from ..tensor import Tensor

Number = bool | int | float
Operand = Tensor | np.ndarray | bool | int | float
OPERANDS = (Tensor, bool, int, float, np.generic, np.ndarray)


def unary(op: Callable) -> Callable[[Any], Tensor]:
    def method(self: Tensor) -> Tensor:
        return op(self)

    return method


def binary(function: table.Row, swapped: bool = False) -> Callable[[Any, Any], Tensor]:
    op = function.op

    def method(self: Tensor, other: Operand) -> Any:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return table.apply(op, (other, self) if swapped else (self, other), {})

    return method


def in_place(row: table.Row) -> Callable[[Any, Any], Tensor]:
    def method(self: Tensor, other: Operand) -> Any:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return table.apply_into(row.op, self, (self, other), {})

    return method


class Conversions:
    """Methods with the names of Python's types; a class of their own, so that they hide no annotation."""

    def float(self: Any) -> Tensor:
        return self.to(dtypes.float32)

    def double(self: Any) -> Tensor:
        return self.to(dtypes.float64)

    def int(self: Any) -> Tensor:
        return self.to(dtypes.int32)

    def long(self: Any) -> Tensor:
        return self.to(dtypes.int64)

    def bool(self: Any) -> Tensor:
        return self.to(dtypes.bool_)


class Arithmetic(Conversions):
    """What is computed one element at a time."""

    __add__ = binary(elementwise.add)
    __radd__ = binary(elementwise.add, True)
    __sub__ = binary(elementwise.sub)
    __rsub__ = binary(elementwise.sub, True)
    __mul__ = binary(elementwise.mul)
    __rmul__ = binary(elementwise.mul, True)
    __truediv__ = binary(elementwise.div)
    __rtruediv__ = binary(elementwise.div, True)
    __floordiv__ = binary(elementwise.floor_divide)
    __rfloordiv__ = binary(elementwise.floor_divide, True)
    __mod__ = binary(elementwise.remainder)
    __rmod__ = binary(elementwise.remainder, True)
    __pow__ = binary(elementwise.pow)
    __rpow__ = binary(elementwise.pow, True)
    __lt__ = binary(elementwise.lt)
    __le__ = binary(elementwise.le)
    __gt__ = binary(elementwise.gt)
    __ge__ = binary(elementwise.ge)
    __and__ = __rand__ = binary(elementwise.bitwise_and)
    __or__ = __ror__ = binary(elementwise.bitwise_or)
    __xor__ = __rxor__ = binary(elementwise.bitwise_xor)
    __iadd__ = add_ = in_place(elementwise.add)
    __isub__ = sub_ = in_place(elementwise.sub)
    __imul__ = mul_ = in_place(elementwise.mul)
    __itruediv__ = div_ = in_place(elementwise.div)
    __hash__ = object.__hash__

    def __eq__(self: Any, other: Any) -> Tensor:  # type: ignore[override]
        return elementwise.eq(self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __ne__(self: Any, other: Any) -> Tensor:  # type: ignore[override]
        return elementwise.ne(self, other) if isinstance(other, OPERANDS) else NotImplemented

    def __neg__(self: Any) -> Tensor:
        return elementwise.neg(self)

    def __pos__(self: Any) -> Tensor:
        return self

    def __abs__(self: Any) -> Tensor:
        return elementwise.abs(self)

    def __invert__(self: Any) -> Tensor:
        return elementwise.bitwise_not(self)

    def __matmul__(self: Any, other: Tensor) -> Tensor:
        return self.matmul(other) if isinstance(other, (Tensor, np.ndarray)) else NotImplemented

    def __rmatmul__(self: Any, other: np.ndarray) -> Tensor:
        return (
            Tensor(other, device=self.backend).matmul(self)
            if isinstance(other, np.ndarray)
            else NotImplemented
        )

    def __getitem__(self: Any, key: Any) -> Tensor:
        return indexing.get(self, key)

    def __setitem__(self: Any, key: Any, value: Operand) -> None:
        indexing.set(self, key, value)

    def __iter__(self: Any) -> Iterator[Tensor]:
        if not self.shape:
            raise TypeError("a 0-d tensor cannot be iterated over")
        return (self.select(0, i) for i in range(self.shape[0]))

    def __contains__(self: Any, value: Number) -> bool:
        return bool((self == value).any())

    # --- one element at a time ---

    neg = unary(elementwise.neg)
    abs = unary(elementwise.abs)
    sign = unary(elementwise.sign)
    square = unary(elementwise.square)
    reciprocal = unary(elementwise.reciprocal)
    floor = unary(elementwise.floor)
    ceil = unary(elementwise.ceil)
    trunc = unary(elementwise.trunc)
    exp = unary(elementwise.exp)
    expm1 = unary(elementwise.expm1)
    log = unary(elementwise.log)
    log1p = unary(elementwise.log1p)
    rsqrt = unary(elementwise.rsqrt)
    sin = unary(elementwise.sin)
    cos = unary(elementwise.cos)
    tan = unary(elementwise.tan)
    atan = unary(elementwise.atan)
    tanh = unary(elementwise.tanh)
    erf = unary(elementwise.erf)
    sigmoid = unary(elementwise.sigmoid)
    relu = unary(elementwise.relu)
    logical_not = unary(elementwise.logical_not)
    isnan = unary(elementwise.isnan)
    isinf = unary(elementwise.isinf)
    isfinite = unary(elementwise.isfinite)
    sqrt = unary(elementwise.root)

    def add(self: Any, other: Operand, alpha: Number = 1) -> Tensor:
        return elementwise.add(self, other if alpha == 1 else other * alpha)

    def sub(self: Any, other: Operand, alpha: Number = 1) -> Tensor:
        return elementwise.sub(self, other if alpha == 1 else other * alpha)

    def mul(self: Any, other: Operand) -> Tensor:
        return elementwise.mul(self, other)

    def div(self: Any, other: Operand, rounding_mode: str | None = None) -> Tensor:
        """True division; `rounding_mode` "floor" or "trunc" rounds the quotient."""
        if rounding_mode == "floor":
            return elementwise.floor_divide(self, other)
        if rounding_mode == "trunc":
            return elementwise.trunc(elementwise.div(self, other)).to(
                table.compute_dtype(elementwise.add.op, [self, other])
            )
        if rounding_mode is not None:
            raise ValueError(f"div: rounding_mode must be None, 'floor' or 'trunc', got {rounding_mode!r}")
        return elementwise.div(self, other)

    def round(self: Any, decimals: int = 0) -> Tensor:
        """To the nearest multiple of 10 to the power -decimals; ties go to the even one."""
        if decimals > 0:
            return elementwise.round(self * 10**decimals) / 10**decimals
        return (
            elementwise.round(self / 10**-decimals) * 10**-decimals if decimals else elementwise.round(self)
        )

    def pow(self: Any, exponent: Operand) -> Tensor:
        return elementwise.pow(self, exponent)

    def floor_divide(self: Any, other: Operand) -> Tensor:
        return elementwise.floor_divide(self, other)

    def remainder(self: Any, other: Operand) -> Tensor:
        return elementwise.remainder(self, other)

    def maximum(self: Any, other: Operand) -> Tensor:
        return elementwise.maximum(self, other)

    def minimum(self: Any, other: Operand) -> Tensor:
        return elementwise.minimum(self, other)

    def clamp(self: Any, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Limit to [min, max]; either may be left out, not both."""
        if min is None and max is None:
            raise ValueError("clamp needs a min, a max, or both")
        if self.is_floating_point or isinstance(min, float) or isinstance(max, float):
            low, high = -float("inf"), float("inf")
        else:
            low, high = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        return elementwise.clamp(self, low if min is None else min, high if max is None else max)

    def where(self: Any, condition: Tensor, other: Operand) -> Tensor:
        """Elements of self where the condition holds, else of other."""
        return elementwise.where(condition, self, other)

    def masked_fill(self: Any, mask: Tensor, value: Operand) -> Tensor:
        """A copy with one number wherever the mask holds."""
        if np.shape(value):
            raise ValueError(
                f"masked_fill takes one number, got a value of shape {np.shape(value)}: where() takes tensors"
            )
        return elementwise.where(mask, value, self).to(self.dtype)

    # --- in place: the history continues from the write ---

    def copy_(self: Any, source: Operand) -> Tensor:
        """Overwrite with the values of another tensor, broadcast and converted."""
        indexing.set(self, ..., source)
        return self

    def fill_(self: Any, value: Number) -> Tensor:
        return self.copy_(value)

    def zero_(self: Any) -> Tensor:
        return self.copy_(0)

    # --- dtype and device ---

    def to(self: Any, *targets: Any, dtype: Any = None, device: Any = None) -> Tensor:
        """The tensor in another dtype or on another device; the same tensor where nothing changes.

        Parameters
        ----------
        *targets
            Dtypes, device names, or a tensor whose dtype and device are meant.
        """
        for target in targets:
            if isinstance(target, Tensor):
                dtype, device = target.dtype, target.backend
            elif (isinstance(target, str) and target not in dtypes.names().split(", ")) or hasattr(
                target, "upload"
            ):
                device = target
            else:
                dtype = target
        x = self
        if dtype is not None and dtypes.as_dtype(dtype) != x.dtype:
            x = elementwise.cast(x, dtype=dtypes.as_dtype(dtype))
        backend = x.backend if device is None else devices.resolve(device)
        return x if backend is x.backend else move.transfer(x, backend=backend)

    def clone(self: Any) -> Tensor:
        """A copy with memory of its own; gradients flow through."""
        return elementwise.copy(self)

    def contiguous(self: Any) -> Tensor:
        """The same elements laid out row by row: itself where they are, else a copy."""
        return self if self.layout.is_contiguous else elementwise.copy(self)

    def is_contiguous(self: Any) -> bool:
        return self.layout.is_contiguous
