"""Fresh tensors: constants, ranges, and the identity."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from . import dtypes
from .operators import sizes
from .ops import create
from .tensor import Tensor


def full(
    size: Sequence[int], fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of one number; its dtype is that of the number (float32, int32 or bool) unless given."""
    dtype = (
        dtypes.SCALAR_DTYPE[dtypes.SCALAR_KIND[type(fill_value)]] if dtype is None else dtypes.as_dtype(dtype)
    )
    made = create.create(create.full, device, shape=sizes((size,)), value=fill_value, dtype=dtype)
    return made.requires_grad_() if requires_grad else made


def zeros(*size: Any, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Zeros; the size as ints or as one sequence."""
    return full(sizes(size), 0, dtype, device, requires_grad)


def ones(*size: Any, dtype: Any = dtypes.float32, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Ones; the size as ints or as one sequence."""
    return full(sizes(size), 1, dtype, device, requires_grad)


def zeros_like(input: Tensor, dtype: Any = None, device: Any = None) -> Tensor:
    return full_like(input, 0, dtype, device)


def ones_like(input: Tensor, dtype: Any = None, device: Any = None) -> Tensor:
    return full_like(input, 1, dtype, device)


def full_like(input: Tensor, fill_value: Any, dtype: Any = None, device: Any = None) -> Tensor:
    """One number, with the shape, dtype and device of another tensor unless given."""
    return full(input.shape, fill_value, input.dtype if dtype is None else dtype, device or input.backend)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: Any = None, device: Any = None) -> Tensor:
    """start, start + step, … up to but without end; int32 where all are ints, else float32.

    Raises
    ------
    ValueError
        If the step is zero or leads away from the end.
    """
    start, end = (0, start) if end is None else (start, end)
    if step == 0 or (end - start) * step < 0:
        raise ValueError(f"arange: a step of {step} does not lead from {start} to {end}")
    count = -int((start - end) // step)
    if dtype is None:
        dtype = dtypes.int32 if all(isinstance(n, int) for n in (start, end, step)) else dtypes.float32
    return create.create(
        create.arange, device, shape=(count,), start=start, step=step, dtype=dtypes.as_dtype(dtype)
    )  # fmt: skip


def linspace(start: float, end: float, steps: int, dtype: Any = dtypes.float32, device: Any = None) -> Tensor:
    """Evenly spaced numbers from start to end, both included.

    Raises
    ------
    ValueError
        If steps is negative.
    TypeError
        If the dtype is no float: rounded down, the last number would miss the end.
    """
    if dtypes.as_dtype(dtype) not in dtypes.FLOATS:
        raise TypeError(
            f"linspace makes floats, got dtype {dtypes.as_dtype(dtype).name}: use arange for integers"
        )
    start, end, steps = float(start), float(end), index(steps)
    step = (end - start) / (steps - 1) if steps > 1 else 0
    return create.create(
        create.arange, device, shape=(steps,), start=start, step=step, dtype=dtypes.as_dtype(dtype)
    )


def eye(n: int, m: int | None = None, dtype: Any = dtypes.float32, device: Any = None) -> Tensor:
    """Ones on the diagonal of an (n, m) matrix, square by default."""
    row = arange(n, device=device).reshape(n, 1)
    return (row == arange(n if m is None else m, device=device)).to(dtype)
