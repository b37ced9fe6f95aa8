"""Strided operands as push constants: what glsl/view.glsl reads."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from struct import Struct

from tinyadept.errors import Unsupported
from tinyadept.view import Shape

MAX_RANK = 6
WORD = Struct("i").pack
AXES = Struct(f"{MAX_RANK}i").pack


class Walk:
    """How operands are walked together; `walk` makes it, once for each combination of shape and strides.

    Attributes
    ----------
    rank : int
        Axes that are left after merging: the value of constant_id 1. At least 1.
    count : int
        Elements.
    shape : tuple of int
    strides : tuple of tuple of int
        Those of each operand, for the merged axes.
    dense : tuple of bool
        Whether an operand's elements lie one after another.
    """

    __slots__ = ("axes", "count", "dense", "head", "rank", "shape", "strides")

    def __init__(self, shape: Shape, strides: tuple[Shape, ...]):
        self.rank, self.count = len(shape), prod(shape)
        self.shape, self.strides = shape, strides
        self.dense = tuple(self.count <= 1 or steps == (1,) for steps in strides)
        pad = MAX_RANK - self.rank
        self.head = WORD(self.count) + AXES(*(1,) * pad, *shape)
        self.axes = tuple(AXES(*(0,) * pad, *steps) for steps in strides)

    def push(self, *offsets: int, params: bytes = b"") -> bytes:
        """Push constants, given each operand's first element in words from the start of its memory."""
        parts = [self.head]
        for offset, axes in zip(offsets, self.axes):
            parts += (WORD(offset), axes)
        parts.append(params)
        return b"".join(parts)


@lru_cache(maxsize=8192)
def walk(shape: Shape, *strides: Shape) -> Walk:
    """Walk operands of one shape together: axes of length 1 go, neighbours that all walk as one are merged.

    Raises
    ------
    Unsupported
        If more than six axes are left, or there are too many elements to count.
    """
    if prod(shape) >= 2**31:
        raise Unsupported(
            f"a view of shape {shape} has 2**31 elements or more, which no Vulkan kernel counts"
        )
    merged: list[tuple[int, ...]] = []  # length and one stride for each operand, the last axis first
    for n, *steps in reversed([*zip(shape, *strides, strict=True)]):
        if n == 1:
            continue
        if merged:
            length, *inner = merged[-1]
            if all(step == length * below for step, below in zip(steps, inner)):
                merged[-1] = (length * n, *inner)
                continue
        merged.append((n, *steps))
    if len(merged) > MAX_RANK:
        raise Unsupported(
            f"a view of shape {shape} has {len(merged)} axes that cannot be merged, and Vulkan kernels walk "
            f"{MAX_RANK}: make it contiguous first, or use the reference (device 'numpy')"
        )
    axes = merged[::-1] or [(1, *(1 for _ in strides))]
    columns = tuple(zip(*axes))
    return Walk(columns[0], columns[1:])
