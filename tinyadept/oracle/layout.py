"""Where elements of random inputs lie in memory: permuted, strided, reversed, repeated, with an offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ..ops.move import strided
from ..ops.table import Op
from ..view import Shape, View
from .case import Given

Draw = Callable[[st.SearchStrategy], Any]
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e-30], np.float32)
KINKED = {"amax", "amin", "maximum", "minimum"}  # where elements tie there is no derivative


def laid_out(draw: Draw, values: np.ndarray) -> Given:
    """Put values into memory in a random layout; axes that hold one value repeated may get stride 0."""
    rank = values.ndim
    if not draw(st.booleans()) or values.size == 0:
        return Given(np.ascontiguousarray(values).ravel(), View.dense(values.shape))
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1, -2))) for _ in range(rank)]
    before, strides, step = draw(st.integers(0, 3)), [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step * steps[axis]
        step *= (values.shape[axis] - 1) * abs(steps[axis]) + 1 + draw(st.integers(0, 1))
    offset = before + sum(-s * (n - 1) for s, n in zip(strides, values.shape, strict=True) if s < 0)
    poison = np.nan if values.dtype.kind == "f" else 77
    memory = np.full(before + step + 2, poison, values.dtype)
    view = View(values.shape, tuple(strides), offset)
    strided(memory, view)[...] = values
    return Given(memory, view)


def repeated(draw: Draw, given: Given) -> Given:
    """Make some axes repeat their first element, without memory behind them."""
    strides = tuple(0 if draw(st.integers(0, 5)) == 0 else s for s in given.view.strides)
    return Given(given.memory, View(given.view.shape, strides, given.view.offset))


class Drawer:
    """Draws what an op takes; NumPy fills the arrays from a drawn seed, so that shapes shrink."""

    def __init__(self, draw: Draw, op: Op, extremes: bool):
        self.draw, self.op, self.extremes = draw, op, extremes
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def shape(self, low: int = 0, high: int = 4, longest: int = 5, shortest: int = 0) -> Shape:
        sizes = st.integers(shortest, longest) | st.integers(1, longest)
        return tuple(self.draw(st.lists(sizes, min_size=low, max_size=high)))

    def int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def floats(self, shape: Shape, position: int = 0) -> Given:
        """Numbers from the op's domain, or now and then special ones."""
        domain = self.op.domain
        low, high = domain[position] if isinstance(domain[0], tuple) else domain
        values = self.rng.uniform(low, high, shape).astype(np.float32)
        given = laid_out(self.draw, values)
        return given if self.op.name in KINKED and not self.extremes else repeated(self.draw, given)

    def special(self, shape: Shape) -> Given:
        return laid_out(self.draw, self.rng.choice(SPECIAL, shape))

    def ints(self, shape: Shape, low: int, high: int, dtype: Any = np.int32) -> Given:
        return laid_out(self.draw, self.rng.integers(low, max(high, low + 1), shape).astype(dtype))

    def bools(self, shape: Shape) -> Given:
        return laid_out(self.draw, self.rng.integers(0, 2, shape).astype(bool))

    def any_dtype(self, shape: Shape, position: int = 0) -> Given:
        """Mostly floats; for ops that take them also integers and booleans."""
        kinds = [] if self.op.takes == "whole" else ["float"] * 4
        kinds += [] if self.op.takes == "strict float" else ["int32", "uint8"]
        kinds += ["bool"] if self.op.takes in ("any", "bool", "whole") else []
        kind = self.draw(st.sampled_from(kinds))
        if kind == "float":
            return self.floats(shape, position)
        return self.bools(shape) if kind == "bool" else self.ints(shape, 0, 6, kind)

    def axis(self, shape: Shape) -> int:
        return self.int(0, len(shape) - 1)

    def axes(self, shape: Shape) -> tuple[int, ...]:
        return (
            tuple(sorted(self.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)))) if shape else ()
        )
