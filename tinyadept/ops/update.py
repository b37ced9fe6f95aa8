"""What optimisers do to parameters, in place: one row of the table changes any number of tensors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import signature
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from ..view import Shape
from .table import Family, Op, apply, apply_into, check_writable, define, overwritten, registry

Numbers = Callable[[], Sequence[float]]
GRADIENT = 1  # the operand that is only read; all others are written


def infer(op: Op, rows: tuple, params: dict) -> tuple[tuple, Shape, np.dtype]:
    """Refuse rows that do not fit together; there is no result but what is written.

    Raises
    ------
    TypeError
        If an operand is no tensor, or not of floating point.
    ValueError
        If the operands of a row differ in number, shape, dtype or device.
    """
    first = rows[0][0]
    for row in rows:
        if len(row) != arity(op):
            raise ValueError(f"{op.name} takes rows of {arity(op)} tensors, got {len(row)}")
        for x in row:
            if not isinstance(x, Tensor) or x.dtype not in dtypes.FLOATS:
                raise TypeError(f"{op.name} takes floating-point tensors, got {x!r}")
            if x.shape != row[0].shape or x.dtype != first.dtype or x.backend is not first.backend:
                got = f"{x.dtype.name} {x.shape} on {x.device}"
                expected = f"{first.dtype.name} {row[0].shape} on {first.device}"
                raise ValueError(f"{op.name}: an operand is {got}, expected {expected}")
    return rows, (0,), first.dtype


def run(op: Op, rows: tuple, params: dict) -> None:
    """Change the tensors of all rows; those that share memory one row after another."""
    if not rows:
        return
    rows, shape, dtype = infer(op, rows, params)
    for row in rows:
        for x in written(row):
            check_writable(op, x)
    numbers = tuple(params["numbers"]()) if len({id(row[0].buffer) for row in rows}) < len(rows) else None
    if numbers is None:
        change(op, rows, shape, dtype, params["numbers"])
    else:
        for row in rows:
            change(op, (row,), shape, dtype, lambda: numbers)


def change(op: Op, rows: Sequence, shape: Shape, dtype: np.dtype, numbers: Numbers) -> None:
    ready = [[copied(x) if must_copy(at, x, row) else x for at, x in enumerate(row)] for row in rows]
    operands = tuple(x for column in zip(*ready) for x in column)
    operands[0].backend.run(op, operands, shape, dtype, {"numbers": numbers})
    for row, used in zip(rows, ready):
        for x, y in zip(written(row), written(used)):
            if x is not y:
                apply_into(registry["copy"], x, (y,), {})
            else:
                overwritten(x)


def written(row: Sequence[Tensor]) -> list[Tensor]:
    return [x for at, x in enumerate(row) if at != GRADIENT]


def must_copy(at: int, x: Tensor, row: Sequence[Tensor]) -> bool:
    """Whether a row's operand is not dense, or a gradient that the write to the parameter would change."""
    return not x.layout.is_contiguous or (at == GRADIENT and x.buffer is row[0].buffer)


def copied(x: Tensor) -> Tensor:
    return apply(registry["copy"], (x.detach(),), {})


updating = Family("update", infer, run)


def arity(op: Op) -> int:
    """How many tensors a row has."""
    return len(op.domain)


def rule(name: str, change: Callable, *domain: tuple[float, float]) -> Any:
    """Add a row to the table.

    Parameters
    ----------
    name : str
    change : callable
        ``change(p, g, *state, **numbers)`` on NumPy arrays; returns the new values of p and of each state.
        The numbers that it takes by keyword are those of an optimiser's step.
    *domain : pair of float
        For p, g and each state: where random values may lie.
    """
    names = tuple(n for n, p in signature(change).parameters.items() if p.kind is p.KEYWORD_ONLY)

    def forward(*operands: np.ndarray, numbers: Numbers) -> np.ndarray:
        values = dict(zip(names, numbers(), strict=True))
        count = len(operands) // len(domain)
        for row in zip(*(operands[at * count : (at + 1) * count] for at in range(len(domain)))):
            new = change(*row, **values)
            for x, value in zip((row[0], *row[2:]), new, strict=True):
                x[...] = value
        return np.empty(0, operands[0].dtype)

    forward.numbers = names  # type: ignore[attr-defined]  # for those who draw random steps
    return define(updating, name, forward, domain=domain, takes="strict float")


# --- the rules: new values from old ones, an element at a time ----------------------------------------------


def decayed(p: Any, g: Any, decay: float) -> Any:
    return g + decay * p if decay else g


def descend(p: Any, g: Any, *, lr: float, decay: float) -> tuple:
    return (p - lr * decayed(p, g, decay),)


def descend_with_momentum(
    p: Any, g: Any, v: Any, *, lr: float, decay: float, momentum: float, share: float, nesterov: float
) -> tuple:
    g = decayed(p, g, decay)
    v = momentum * v + share * g
    return p - lr * (g + momentum * v if nesterov else v), v


def average(p: Any, g: Any, *, keep: float, share: float) -> tuple:
    return (keep * p + share * g,)  # no optimiser's: p follows other weights, which stand where gradients do


def scale_by_moments(
    p: Any,
    g: Any,
    m: Any,
    v: Any,
    *,
    rate: float,
    eps: float,
    decay: float,
    keep: float,
    beta1: float,
    share1: float,
    beta2: float,
    share2: float,
) -> tuple:
    g = decayed(p, g, decay)
    m = beta1 * m + share1 * g
    v = beta2 * v + share2 * (g * g)
    return keep * p - rate * m / (np.sqrt(v) + eps), m, v


def scale_by_square(
    p: Any, g: Any, s: Any, *, lr: float, decay: float, eps: float, alpha: float, share: float
) -> tuple:
    g = decayed(p, g, decay)
    s = alpha * s + share * (g * g)
    return p - lr * (g / (np.sqrt(s) + eps)), s


def scale_by_square_with_momentum(
    p: Any,
    g: Any,
    s: Any,
    b: Any,
    *,
    lr: float,
    decay: float,
    eps: float,
    alpha: float,
    share: float,
    momentum: float,
) -> tuple:
    g = decayed(p, g, decay)
    s = alpha * s + share * (g * g)
    b = momentum * b + g / (np.sqrt(s) + eps)
    return p - lr * b, s, b


def scale_by_variance(
    p: Any, g: Any, s: Any, mean: Any, *, lr: float, decay: float, eps: float, alpha: float, share: float
) -> tuple:
    g = decayed(p, g, decay)
    s = alpha * s + share * (g * g)
    mean = alpha * mean + share * g
    return p - lr * (g / (np.sqrt(s - mean * mean) + eps)), s, mean


def scale_by_variance_with_momentum(
    p: Any,
    g: Any,
    s: Any,
    mean: Any,
    b: Any,
    *,
    lr: float,
    decay: float,
    eps: float,
    alpha: float,
    share: float,
    momentum: float,
) -> tuple:
    g = decayed(p, g, decay)
    s = alpha * s + share * (g * g)
    mean = alpha * mean + share * g
    b = momentum * b + g / (np.sqrt(s - mean * mean) + eps)
    return p - lr * b, s, mean, b


ANY, SQUARE, SMALL = (-3.0, 3.0), (1.0, 9.0), (-0.9, 0.9)
sgd = rule("sgd", descend, ANY, ANY)
sgd_momentum = rule("sgd_momentum", descend_with_momentum, ANY, ANY, ANY)
ema = rule("ema", average, ANY, ANY)
adam = rule("adam", scale_by_moments, ANY, ANY, ANY, SQUARE)
rmsprop = rule("rmsprop", scale_by_square, ANY, ANY, SQUARE)
rmsprop_momentum = rule("rmsprop_momentum", scale_by_square_with_momentum, ANY, ANY, SQUARE, ANY)
rmsprop_centered = rule("rmsprop_centered", scale_by_variance, ANY, ANY, SQUARE, SMALL)
rmsprop_centered_momentum = rule(
    "rmsprop_centered_momentum", scale_by_variance_with_momentum, ANY, ANY, SQUARE, SMALL, ANY
)
