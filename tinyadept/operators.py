"""What tensors can do: operators and methods, each a row of the table or a few lines made of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from . import device as devices
from . import dtypes, indexing, tape
from .ops import create, elementwise, index, matmul, move, norm, reduce, table
from .tensor import Tensor
from .view import normal_axes, normal_axis

Number = bool | int | float
Operand = Tensor | np.ndarray | bool | int | float
Axes = int | Sequence[int] | None
OPERANDS = (Tensor, bool, int, float, np.generic, np.ndarray)


class Extremum(NamedTuple):
    """What max, min, sort and topk along an axis return."""

    values: Tensor
    indices: Tensor


def unary(op: Callable) -> Callable[[Any], Tensor]:
    def method(self: Tensor) -> Tensor:
        return op(self)

    return method


def binary(function: table.Row, swapped: bool = False) -> Callable[[Any, Any], Any]:
    op = function.op

    def method(self: Tensor, other: Operand) -> Tensor:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return table.apply(op, (other, self) if swapped else (self, other), {})

    return method


def boolean(op: Callable) -> Callable[[Any, Any], Any]:
    def method(self: Tensor, other: Operand) -> Tensor:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        for x in (self, other):
            check_boolean(x)
        return op(self, other)

    return method


def check_boolean(x: Operand) -> None:
    """Refuse to read integers as truth values: in PyTorch and NumPy these operators work on their bits."""
    dtype = np.dtype(type(x)) if isinstance(x, (bool, int, float)) else x.dtype
    if dtype != dtypes.bool_:
        raise TypeError(
            f"&, |, ^ and ~ take booleans, got {dtype.name}: compare first, as in x != 0, or use logical_and"
        )


def in_place(row: table.Row) -> Callable[[Any, Any], Any]:
    def method(self: Tensor, other: Operand) -> Tensor:
        if not isinstance(other, OPERANDS):
            return NotImplemented
        return table.apply_into(row.op, self, (self, other), {})

    return method


def sizes(given: tuple) -> tuple[int, ...]:
    """A shape given as several ints or as one sequence."""
    if len(given) == 1 and not isinstance(given[0], (int, np.integer)):
        given = tuple(given[0])
    return tuple(int(n) for n in given)


def filled_in(x: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with its -1, if any, computed.

    Raises
    ------
    ValueError
        If the elements do not fill the shape exactly.
    """
    known = prod(n for n in shape if n != -1)
    wild = shape.count(-1)
    if wild > 1 or any(n < -1 for n in shape):
        raise ValueError(f"reshape: {shape} may hold one -1 and no other negative length")
    if wild and known and x.numel() % known == 0:
        shape = tuple(x.numel() // known if n == -1 else n for n in shape)
    if prod(shape) != x.numel() or -1 in shape:
        raise ValueError(f"reshape: {x.numel()} elements of shape {x.shape} do not fill shape {shape}")
    return shape


def dropped(x: Tensor, axes: Axes, keepdim: bool) -> Tensor:
    """Remove axes that were folded to length 1."""
    if keepdim:
        return x
    gone = normal_axes(axes, x.ndim)
    return x.reshape(*(n for a, n in enumerate(x.shape) if a not in gone))


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


class Operators(Conversions):
    """The methods of `Tensor`. Names, argument order and results are PyTorch's."""

    # --- arithmetic ---

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
    __and__ = __rand__ = boolean(elementwise.logical_and)
    __or__ = __ror__ = boolean(elementwise.logical_or)
    __xor__ = __rxor__ = boolean(elementwise.logical_xor)
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
        check_boolean(self)
        return elementwise.logical_not(self)

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
        return self if self.view.is_contiguous else elementwise.copy(self)

    def is_contiguous(self: Any) -> bool:
        return self.view.is_contiguous

    # --- shape: views wherever a view can express the result ---

    def reshape(self: Any, *shape: Any) -> Tensor:
        """Another shape for the same elements: a view where one exists, else a copy. One length may be -1."""
        new = filled_in(self, sizes(shape))
        if new == self.view.shape:
            return self
        x = self if self.view.reshape(new) is not None else elementwise.copy(self)
        return move.reshape(x, shape=new)

    def view_as(self: Any, other: Tensor) -> Tensor:
        return self.reshape(*other.shape)

    def flatten(self: Any, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        if not self.shape:
            return self.reshape(1)
        first, last = normal_axis(start_dim, self.ndim), normal_axis(end_dim, self.ndim)
        if first > last:
            raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape(*self.shape[:first], prod(self.shape[first : last + 1]), *self.shape[last + 1 :])

    def unflatten(self: Any, dim: int, sizes: Sequence[int]) -> Tensor:
        axis = normal_axis(dim, self.ndim)
        known = prod(n for n in sizes if n != -1)
        full = [self.shape[axis] // known if n == -1 and known else n for n in sizes]
        return self.reshape(*self.shape[:axis], *full, *self.shape[axis + 1 :])

    def permute(self: Any, *dims: Any) -> Tensor:
        order = tuple(normal_axis(d, self.ndim) for d in sizes(dims))
        if sorted(order) != list(range(self.ndim)):
            raise ValueError(f"permute: {order} does not name each of the {self.ndim} axes once")
        return move.permute(self, order=order)

    def transpose(self: Any, dim0: int, dim1: int) -> Tensor:
        a, b = normal_axis(dim0, self.ndim), normal_axis(dim1, self.ndim)
        order = list(range(self.ndim))
        if order:
            order[a], order[b] = b, a
        return move.permute(self, order=tuple(order))

    @property
    def mT(self: Any) -> Tensor:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ValueError(f"mT needs at least two axes, got shape {self.shape}")
        return move.permute(self, order=(*range(self.ndim - 2), self.ndim - 1, self.ndim - 2))

    @property
    def T(self: Any) -> Tensor:
        """All axes reversed."""
        return move.permute(self, order=tuple(reversed(range(self.ndim))))

    def t(self: Any) -> Tensor:
        if self.ndim > 2:
            raise ValueError(f"t() takes at most two axes, got shape {self.shape}")
        return self.T

    def expand(self: Any, *shape: Any) -> Tensor:
        """Repeat axes of length 1 without copying; -1 keeps an axis."""
        new, lead = sizes(shape), len(sizes(shape)) - self.ndim
        if any(n == -1 and a < lead for a, n in enumerate(new)) or any(n < -1 for n in new):
            raise ValueError(
                f"expand: {new} has a negative length that stands for no axis of shape {self.shape}"
            )
        new = tuple(self.shape[a - lead] if n == -1 else n for a, n in enumerate(new))
        return self if new == self.view.shape else move.expand(self, shape=new)

    broadcast_to = expand

    def expand_as(self: Any, other: Tensor) -> Tensor:
        return self.expand(other.shape)

    def squeeze(self: Any, dim: Axes = None) -> Tensor:
        """Remove axes of length 1: all of them, or those named that have it."""
        axes = range(self.ndim) if dim is None else () if dim == () else normal_axes(dim, self.ndim)
        return self.reshape(*(n for a, n in enumerate(self.shape) if a not in axes or n != 1))

    def unsqueeze(self: Any, dim: int) -> Tensor:
        axis = normal_axis(dim, self.ndim + 1)
        return self.reshape(*self.shape[:axis], 1, *self.shape[axis:])

    def select(self: Any, dim: int, index: int) -> Tensor:
        if not self.shape:
            raise IndexError("select: a 0-d tensor has no axes")
        return move.index(self, key=on_axis(self, dim, int(index)))

    def narrow(self: Any, dim: int, start: int, length: int) -> Tensor:
        axis = normal_axis(dim, self.ndim)
        n = self.shape[axis]
        start += n if start < 0 else 0
        if not 0 <= start <= start + length <= n:
            raise ValueError(f"narrow: {length} from {start} does not lie inside axis {axis} of length {n}")
        return move.index(self, key=on_axis(self, axis, slice(start, start + length)))

    def split(self: Any, split_size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
        """Pieces of one size (the last may be shorter), or of the sizes given."""
        axis = normal_axis(dim, self.ndim)
        n = self.shape[axis]
        if isinstance(split_size, int):
            if split_size < 0 or (split_size == 0 and n):
                raise ValueError(f"split: cannot cut an axis of {n} into pieces of {split_size}")
            count = max(1, -(-n // split_size)) if split_size else 1
            split_size = [min(split_size, n - i * split_size) for i in range(count)]
        if sum(split_size) != n or any(size < 0 for size in split_size):
            raise ValueError(
                f"split: pieces {list(split_size)} do not add up to {n}, the length of axis {axis}"
            )
        starts = [sum(split_size[:i]) for i in range(len(split_size))]
        return tuple(self.narrow(axis, start, size) for start, size in zip(starts, split_size, strict=True))

    def chunk(self: Any, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
        if chunks < 1:
            raise ValueError(f"chunk: expected at least one chunk, got {chunks}")
        n = self.shape[normal_axis(dim, self.ndim)]
        return self.split(max(1, -(-n // chunks)), dim) if n else self.split([0] * chunks, dim)

    def unbind(self: Any, dim: int = 0) -> tuple[Tensor, ...]:
        axis = normal_axis(dim, self.ndim)
        return tuple(self.select(axis, i) for i in range(self.shape[axis]))

    def flip(self: Any, *dims: Any) -> Tensor:
        """Axes read backwards; a view."""
        axes = normal_axes(sizes(dims), self.ndim) if sizes(dims) else ()
        back = slice(None, None, -1)
        return move.index(self, key=tuple(back if a in axes else slice(None) for a in range(self.ndim)))

    def roll(self: Any, shifts: int | Sequence[int], dims: Axes = None) -> Tensor:
        """Shift along axes, or along the flattened tensor; what leaves at one end enters at the other."""
        if dims is None:
            return self.flatten().roll(shifts, 0).reshape(*self.shape)
        if not self.shape:
            raise IndexError("roll: a 0-d tensor has no axes")
        shifts = [shifts] if isinstance(shifts, int) else list(shifts)
        dims = [dims] if isinstance(dims, int) else list(dims)
        if len(shifts) != len(dims):
            raise ValueError(f"roll: {len(shifts)} shifts for {len(dims)} axes")
        x = self
        for shift, dim in zip(shifts, dims, strict=True):
            axis = normal_axis(dim, x.ndim)
            n = x.shape[axis]
            if n and shift % n:
                cut = n - shift % n
                x = move.cat(x.narrow(axis, cut, n - cut), x.narrow(axis, 0, cut), axis=axis)
        return x

    def repeat(self: Any, *repeats: Any) -> Tensor:
        """Lay copies beside each other, so many along each axis; new axes come in front."""
        times = sizes(repeats)
        if len(times) < self.ndim or any(t < 0 for t in times):
            raise ValueError(
                f"repeat: {times} must name a count of at least 0 for each axis of shape {self.shape}"
            )
        shape = (1,) * (len(times) - self.ndim) + self.shape
        pairs = [n for t, s in zip(times, shape, strict=True) for n in (t, s)]
        spread = self.reshape(*[n for s in shape for n in (1, s)]).expand(*pairs)
        return spread.contiguous().reshape(*(t * s for t, s in zip(times, shape, strict=True)))

    def tile(self: Any, *dims: Any) -> Tensor:
        """As repeat, but fewer counts than axes are allowed."""
        times = sizes(dims)
        return self.repeat((1,) * (self.ndim - len(times)) + times)

    def unfold(self: Any, dimension: int, size: int, step: int) -> Tensor:
        """Windows along an axis, as a new last axis; a view, and windows may overlap."""
        if not self.shape:
            return self.reshape(1).unfold(dimension, size, step).select(0, 0)
        return move.windows(self, axis=normal_axis(dimension, self.ndim), size=size, step=step)

    def diagonal(self: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        a, b = normal_axis(dim1, self.ndim), normal_axis(dim2, self.ndim)
        if self.ndim < 2 or a == b:
            raise ValueError(
                f"diagonal needs two different axes, got {dim1} and {dim2} of shape {self.shape}"
            )
        return move.diagonal(self, offset=offset, axis1=a, axis2=b)

    def tril(self: Any, diagonal: int = 0) -> Tensor:
        """Zeros above a diagonal of the last two axes."""
        return elementwise.where(below(self, diagonal), self, False)

    def triu(self: Any, diagonal: int = 0) -> Tensor:
        """Zeros below a diagonal of the last two axes."""
        return elementwise.where(below(self, diagonal - 1), False, self)

    def sum_to(self: Any, shape: tuple) -> Tensor:
        """Fold broadcast axes back: the gradient of expand."""
        return move.sum_to(self, tuple(shape))

    # --- reductions ---

    def sum(self: Any, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.sum(x, axes=dim), dim, keepdim).to(dtype=dtype)

    def mean(self: Any, dim: Axes = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.mean(x, axes=dim), dim, keepdim)

    def prod(self: Any, dim: int | None = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
        x = self if dtype is None else self.to(dtype)
        return dropped(reduce.prod(x, axes=dim), dim, keepdim).to(dtype=dtype)

    def amax(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Largest elements; ties share the gradient evenly."""
        return dropped(reduce.amax(self, axes=dim), dim, keepdim)

    def amin(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """Smallest elements; ties share the gradient evenly."""
        return dropped(reduce.amin(self, axes=dim), dim, keepdim)

    def max(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The largest element; along an axis (values, indices) of the first; with a tensor, maximum."""
        return extremum(self, dim, keepdim, reduce.amax, reduce.argmax, elementwise.maximum)

    def min(self: Any, dim: Any = None, keepdim: bool = False) -> Any:
        """The smallest element; along an axis (values, indices) of the first; with a tensor, minimum."""
        return extremum(self, dim, keepdim, reduce.amin, reduce.argmin, elementwise.minimum)

    def argmax(self: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return arg_extremum(self, dim, keepdim, reduce.argmax)

    def argmin(self: Any, dim: int | None = None, keepdim: bool = False) -> Tensor:
        return arg_extremum(self, dim, keepdim, reduce.argmin)

    def any(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        return dropped(reduce.any(self, axes=dim), dim, keepdim)

    def all(self: Any, dim: Axes = None, keepdim: bool = False) -> Tensor:
        return dropped(reduce.all(self, axes=dim), dim, keepdim)

    def var(self: Any, dim: Axes = None, correction: float = 1, keepdim: bool = False) -> Tensor:
        """Variance with Bessel's correction by default: the squares' sum is divided by n - correction."""
        return dropped(reduce.var(self, axes=dim, correction=correction), dim, keepdim)

    def std(self: Any, dim: Axes = None, correction: float = 1, keepdim: bool = False) -> Tensor:
        """The square root of `var`."""
        return elementwise.root(self.var(dim, correction, keepdim))

    def norm(self: Any, p: Any = 2, dim: Axes = None, keepdim: bool = False) -> Tensor:
        """The p-norm over axes; p is "fro" (2), 0, 1, ±inf or any number. Its gradient at zero is zero."""
        if p in (2, "fro"):
            return dropped(reduce.norm(self, axes=dim), dim, keepdim)
        if not self.is_floating_point:
            raise TypeError(f"norm takes floating-point tensors, got {self.dtype.name}")
        if isinstance(p, str):
            raise ValueError(f"norm: p is a number or 'fro', got {p!r}")
        size = elementwise.abs(self)
        if p == float("inf"):
            return size.amax(dim, keepdim)
        if p == -float("inf"):
            return size.amin(dim, keepdim)
        if p == 0:
            return (self != 0).sum(dim, keepdim).to(self.dtype)
        if p == 1:
            return size.sum(dim, keepdim)
        total = (size**p).sum(dim, keepdim)
        zero = total == 0
        return elementwise.where(zero, 0.0, elementwise.where(zero, 1.0, total) ** (1 / p))

    def logsumexp(self: Any, dim: Axes, keepdim: bool = False) -> Tensor:
        return dropped(reduce.logsumexp(self, axes=dim), dim, keepdim)

    def cumsum(self: Any, dim: int, dtype: Any = None) -> Tensor:
        return reduce.cumsum(self.to(dtype=dtype), axis=dim).to(dtype=dtype)

    def softmax(self: Any, dim: int = -1, dtype: Any = None) -> Tensor:
        return norm.softmax(self.to(dtype=dtype), axis=dim)

    def log_softmax(self: Any, dim: int = -1, dtype: Any = None) -> Tensor:
        return norm.log_softmax(self.to(dtype=dtype), axis=dim)

    # --- indexing by tensors, sorting ---

    def gather(self: Any, dim: int, index: Tensor) -> Tensor:
        return gathered(self, dim, index)

    def take_along_dim(self: Any, indices: Tensor, dim: int | None = None) -> Tensor:
        """As gather, with the other axes broadcast; without an axis both are flattened."""
        if dim is None:
            return self.flatten().take_along_dim(indices.flatten(), 0)
        if indices.ndim != self.ndim:
            raise ValueError(
                f"take_along_dim: indices {indices.shape} and input {self.shape} need equally many axes"
            )
        axis = normal_axis(dim, self.ndim)
        shape = list(table.broadcast("take_along_dim", drop(self.shape, axis), drop(indices.shape, axis)))
        wide_x, wide_i = shape.copy(), shape.copy()
        wide_x.insert(axis, self.shape[axis])
        wide_i.insert(axis, indices.shape[axis])
        inside = index.in_range(indices.expand(*wide_i), size=self.shape[axis] if self.shape else 1)
        return index.take_along(self.expand(*wide_x), inside, axis=axis)

    def scatter(self: Any, dim: int, index: Tensor, src: Operand) -> Tensor:
        """A copy with src written where the index points; of duplicates the last wins."""
        return scattered(self, dim, index, src)

    def scatter_add(self: Any, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """A copy with src added where the index points."""
        return scatter_sum(self, dim, index, src)

    def index_select(self: Any, dim: int, index: Tensor) -> Tensor:
        return selected(self, dim, index)

    def masked_select(self: Any, mask: Tensor) -> Tensor:
        """The elements where the mask holds, in a row. The number of them is read back."""
        shape = table.broadcast("masked_select", self.shape, mask.shape)
        return indexing.get(self.expand(*shape), mask.expand(*shape))

    def nonzero(self: Any, as_tuple: bool = False) -> Any:
        """Coordinates of the elements that are not zero, int32 (count, axes), or a vector for each axis.

        The number of them is read back.
        """
        if as_tuple:
            return (self if self.shape else self.reshape(1)).nonzero().unbind(1)
        mask = self != 0
        return index.nonzero(mask, count=int(mask.sum().item()))

    def argsort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
        return index.argsort(self, axis=dim, descending=descending)

    def sort(self: Any, dim: int = -1, descending: bool = False, stable: bool = True) -> Extremum:
        """(values, indices), always stable."""
        order = index.argsort(self, axis=dim, descending=descending)
        return Extremum(gathered(self, dim, order), order)

    def topk(self: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Extremum:
        axis = normal_axis(dim, self.ndim)
        if not 0 <= k <= (self.shape[axis] if self.shape else 1):
            raise ValueError(f"topk: k = {k} of an axis of length {self.shape[axis] if self.shape else 1}")
        order = index.argsort(self, axis=axis, descending=largest)
        order = order.narrow(axis, 0, k).contiguous() if self.shape else order
        return Extremum(gathered(self, axis, order), order)

    # --- products ---

    def matmul(self: Any, other: Tensor) -> Tensor:
        """Matrix product: vectors, matrices, and batches of matrices that broadcast."""
        return multiplied(self, other)

    def dot(self: Any, other: Tensor) -> Tensor:
        if self.ndim != 1 or other.ndim != 1:
            raise ValueError(f"dot takes two vectors, got shapes {self.shape} and {other.shape}")
        return multiplied(self, other)

    # --- the tape ---

    def backward(
        self: Any, gradient: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf to the leaf's ``.grad``.

        Parameters
        ----------
        gradient : Tensor, optional
            Incoming gradient of this tensor's shape; for a single element 1 by default.
        retain_graph : bool
            Keep the saved values, so that backward can be called again.
        create_graph : bool
            Record the gradient rules, so that gradients can be differentiated.

        Raises
        ------
        RuntimeError
            If nothing needs a gradient, the graph was freed, or a saved value was overwritten in place.
        ValueError
            If a gradient is needed and none is given, or its shape is wrong.
        """
        given = None if gradient is None else [gradient]
        tape.backward([self], tape.seeds([self], given), None, retain_graph, create_graph)

    def register_hook(self: Any, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Call `hook` with this tensor's gradient once it is complete; what it returns replaces the gradient.

        Returns a function that removes the hook.
        """
        if not self.requires_grad:
            raise RuntimeError("this tensor needs no gradient, so its hook would never be called")
        owner = self.step or self
        if owner.hooks is None:
            owner.hooks = []
        owner.hooks.append(hook)
        return lambda: owner.hooks.remove(hook) if hook in owner.hooks else None

    def retain_grad(self: Any) -> None:
        """Leave the gradient of this non-leaf tensor in its ``.grad`` as well."""
        if self.step is not None:
            reference = weak(self)
            self.register_hook(lambda g: keep_grad(reference(), g))


def keep_grad(x: Tensor | None, g: Tensor) -> None:
    if x is not None:
        x.grad = g.clone() if x.grad is None else x.grad + g


def weak(x: Tensor) -> Callable[[], Tensor | None]:
    import weakref

    return weakref.ref(x)


def drop(shape: tuple, axis: int) -> tuple:
    return shape[:axis] + shape[axis + 1 :]


def on_axis(x: Tensor, dim: int, entry: Any) -> tuple:
    """An index key that leaves all axes but one alone."""
    axis = normal_axis(dim, x.ndim)
    return (slice(None),) * axis + (entry,) + (slice(None),) * (x.ndim - axis - 1)


def below(x: Tensor, diagonal: int) -> Tensor:
    """True at and below a diagonal of the last two axes."""
    if x.ndim < 2:
        raise ValueError(f"tril and triu need at least two axes, got shape {x.shape}")
    n, m = x.shape[-2:]
    row = create.create(create.arange, x.backend, shape=(n,), start=diagonal, step=1, dtype=dtypes.int32)
    column = create.create(create.arange, x.backend, shape=(m,), start=0, step=1, dtype=dtypes.int32)
    return column <= row.reshape(n, 1)


def extremum(x: Tensor, dim: Any, keepdim: bool, value: Callable, arg: Callable, pair: Callable) -> Any:
    if dim is None:
        return dropped(value(x, axes=None), None, False)
    if isinstance(dim, Tensor):
        return pair(x, dim)
    axis = normal_axis(dim, x.ndim)
    where = arg(x, axes=axis)
    return Extremum(dropped(gathered(x, axis, where), axis, keepdim), dropped(where, axis, keepdim))


def arg_extremum(x: Tensor, dim: int | None, keepdim: bool, arg: Callable) -> Tensor:
    if dim is None:
        found = arg(x.flatten(), axes=0)
        return found.reshape(*(1,) * x.ndim) if keepdim else found.reshape(())
    return dropped(arg(x, axes=dim), dim, keepdim)


def gathered(x: Tensor, dim: int, where: Tensor) -> Tensor:
    return index.take_along(x, where, axis=dim)


def scattered(x: Tensor, dim: int, where: Tensor, src: Operand) -> Tensor:
    if not isinstance(src, Tensor):
        src = table.lift(src, x.dtype, x.backend).expand(where.shape)
    return index.put_along(x, where, fitted(src, where), axis=dim)


def scatter_sum(x: Tensor, dim: int, where: Tensor, src: Tensor) -> Tensor:
    axis = normal_axis(dim, x.ndim)
    if src.dtype != x.dtype:
        raise TypeError(
            f"scatter_add: src is {src.dtype.name}, the tensor {x.dtype.name}: convert one with .to()"
        )
    return x + index.put_along_add(fitted(src, where), where, axis=axis, shape=x.shape)


def fitted(src: Tensor, where: Tensor) -> Tensor:
    """The leading part of src that the index covers."""
    if src.ndim != where.ndim or any(m > n for m, n in zip(where.shape, src.shape, strict=False)):
        raise ValueError(
            f"scatter: src of shape {src.shape} is smaller than the index of shape {where.shape}"
        )
    return src if src.shape == where.shape else src[tuple(slice(n) for n in where.shape)]


def selected(x: Tensor, dim: int, where: Tensor) -> Tensor:
    if where.ndim > 1:
        raise ValueError(f"index_select takes a vector of indices, got shape {where.shape}")
    taken = index.take(x, where.reshape(where.numel()), axis=dim)
    return taken if x.shape else taken.reshape(())


def multiplied(a: Tensor, b: Tensor) -> Tensor:
    if not isinstance(b, Tensor):
        b = Tensor(b, device=a.backend)
    if not a.shape or not b.shape:
        raise ValueError(f"matmul takes no 0-d tensors, got shapes {a.shape} and {b.shape}")
    left, right = a.ndim == 1, b.ndim == 1
    a = a.unsqueeze(0) if left else a
    b = b.unsqueeze(1) if right else b
    if a.ndim > 2 and b.ndim == 2 and a.shape[-1] == b.shape[0]:  # one large product instead of a batch
        out = matmul.matmul(a.reshape(prod(a.shape[:-1]), a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    else:
        out = matmul.matmul(a, b)
    rows, columns = () if left else out.shape[-2:-1], () if right else out.shape[-1:]
    return out.reshape(*out.shape[:-2], *rows, *columns) if left or right else out


for source in (Conversions, Operators):
    for name, method in vars(source).items():
        if name not in ("__module__", "__dict__", "__weakref__", "__doc__"):
            setattr(Tensor, name, method)
