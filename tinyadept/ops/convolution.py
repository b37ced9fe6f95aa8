"""Convolution and its gradients in NumPy: which of several ways is taken, with a reason, and each of them.

Shapes: N batch, C channels in, O channels out, G groups, K window cells, P window positions. Other backends
choose among ways of their own; all say what they chose to `explained`, and `using` forces one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from ..view import Shape
from . import banded, depthwise, im2col, winograd
from .activation import activate
from .im2col import Pairs, padded, positions

MANY_CHANNELS, MANY_POSITIONS = 128, 1024  # from which Winograd's 4 × 4 is faster on two x86-64 cores


WINOGRAD = {
    "winograd2": "3 × 3 cells and many channels: 16 products for 2 × 2 results instead of 36",
    "winograd4": "3 × 3 cells, many channels, and allowed: 36 products for 4 × 4 results instead of 144",
}


class Choice(NamedTuple):
    """A way to compute a convolution, and why it is taken."""

    path: str
    why: str


forced: list[str] = []  # the innermost `using` comes last
listeners: list[list[tuple[str, Choice]]] = []
allowed: set[str] = {"winograd2"}  # of the ways whose errors are larger; see docs/convolution.md


@contextmanager
def using(path: str) -> Iterator[None]:
    """Inside, convolutions go this way wherever it can compute them, on every device: for tests."""
    forced.append(path)
    try:
        yield
    finally:
        forced.pop()


@contextmanager
def allowing(*paths: str) -> Iterator[None]:
    """Inside, these of "winograd2" and "winograd4", and no others, are taken where they are faster."""
    before = set(allowed)
    allowed.clear()
    allowed.update(paths)
    try:
        yield
    finally:
        allowed.clear()
        allowed.update(before)


@contextmanager
def explained() -> Iterator[list[tuple[str, Choice]]]:
    """Gives a list, to which each convolution inside adds its op's name and its choice."""
    listeners.append([])
    try:
        yield listeners[-1]
    finally:
        listeners.pop()


def settle(op: str, possible: dict[str, str]) -> Choice:
    """The path that was forced if it is among the possible ones, which have reasons; else the last one."""
    path = forced[-1] if forced and forced[-1] in possible else next(reversed(possible))
    choice = Choice(path, "forced" if forced and forced[-1] == path else possible[path])
    if listeners:
        listeners[-1].append((op, choice))
    return choice


class Geometry(NamedTuple):
    """What the choice depends on: spatial shapes of input and positions, channels, and the window."""

    kind: str  # of the dtype
    samples: int
    channels: tuple[int, int]  # C, O
    cells: Shape
    out: Shape
    kernel: Shape
    stride: Shape
    padding: Pairs
    dilation: Shape
    groups: int

    @property
    def wide(self) -> Shape:
        """The padded input's spatial shape."""
        return tuple(n + a + b for n, (a, b) in zip(self.cells, self.padding))

    @property
    def windows(self) -> tuple[str, Shape, Shape, Shape]:
        return self.kind, self.kernel, self.stride, self.dilation


def choose(op: str, given: Geometry) -> Choice:
    """How the reference computes one of the three forms, and why."""
    return settle(op, ways(op, given, "winograd4" in allowed))


@lru_cache(maxsize=1024)
def ways(op: str, given: Geometry, rough: bool) -> dict[str, str]:
    """How it can be computed, each with a reason, the best last; `rough`: whether larger errors may be."""
    c, o = given.channels
    general = {"im2col": "a matrix product over unfolded windows"}
    tiles = WINOGRAD if op != "conv_weight" and winograd.fits(*given.windows) else {}
    possible = {**tiles, **general}
    if tiles and rough and many(given):  # the smaller tiles never were faster
        possible["winograd4"] = possible.pop("winograd4")
    if banded.fits(given.kernel, given.wide, o, given.groups):
        possible["banded"] = "small images of few channels: whole stretches of rows"
    if c == o == given.groups and c > 1:  # forwards, a product for each group is faster
        alone = {"depthwise": "groups of one channel: a pass for each cell of the window"}
        possible = {**alone, **possible} if op == "conv" else {**possible, **alone}
    # Not so where a transposed convolution has more cells than positions reach.
    whole = given.out == given.cells and not any(map(any, given.padding))
    single = prod(given.kernel) == 1 and all(s == 1 for s in given.stride)
    if single and whole and op != "conv_weight":
        possible["pointwise"] = "windows of one cell: a matrix product of the input as it is"
    return possible


def many(given: Geometry) -> bool:
    """Whether Winograd's products save more than its transforms cost."""
    few = min(given.channels) // given.groups < MANY_CHANNELS
    return not few and given.samples * prod(given.out) >= MANY_POSITIONS


def np_conv(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    stride: Shape,
    padding: Pairs,
    dilation: Shape,
    groups: int,
    activation: str = "",
) -> np.ndarray:
    kernel, (n, c), o = w.shape[2:], x.shape[:2], w.shape[0]
    out = tuple(map(positions, x.shape[2:], kernel, stride, padding, dilation))
    given = Geometry(x.dtype.kind, n, (c, o), x.shape[2:], out, kernel, stride, padding, dilation, groups)
    path = choose("conv", given).path
    if path == "pointwise":
        y = pointwise(x, w.reshape(groups, o // groups, c // groups)).reshape(n, o, prod(out))
        return activate(y, activation, bias).reshape(n, o, *out)
    shift = np.zeros(o, x.dtype) if bias is None else bias
    if path.startswith("winograd"):
        y = winograd.forward(x, w, shift, padding, out, groups, int(path[-1]))
        if np.isfinite(y).all():  # what is not finite spoils whole tiles
            return activate(y, activation)
    if path == "banded":
        y = banded.forward(padded(x, padding), w, bias, out, stride, dilation)
        if np.isfinite(y).all():  # zeros of the band meet cells that no window sees: zero times infinity
            return activate(y, activation)
    if path == "depthwise":
        return activate(depthwise.forward(padded(x, padding), w, shift, out, stride, dilation), activation)
    return im2col.forward(x, w, bias, out, stride, padding, dilation, groups, activation)


def pointwise(x: np.ndarray, matrices: np.ndarray) -> np.ndarray:
    """Channels of every cell (N, C, …) through a matrix (G, O/G, C/G) of their group: (N, G, O/G, P)."""
    n, (groups, _, c) = x.shape[0], matrices.shape
    columns = x.reshape(n, groups, c, prod(x.shape[2:]))
    if columns.strides[-1] != x.itemsize:  # which BLAS would not take
        columns = np.ascontiguousarray(columns)
    return np.matmul(matrices, columns)


def np_conv_input(
    g: np.ndarray, w: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    kernel, out, channels = w.shape[2:], g.shape[2:], (shape[1], w.shape[0])
    given = Geometry(
        g.dtype.kind, shape[0], channels, shape[2:], out, kernel, stride, padding, dilation, groups
    )
    path = choose("conv_input", given).path
    if path == "pointwise":
        matrices = w.reshape(groups, w.shape[0] // groups, w.shape[1]).swapaxes(1, 2)
        return pointwise(g, matrices).reshape(shape)
    crop = (..., *(slice(a, a + m) for m, (a, _) in zip(shape[2:], padding)))
    dx = None
    if path.startswith("winograd"):
        dx = winograd.to_input(g, w, shape, padding, groups, int(path[-1]))
    elif path in ("banded", "depthwise"):
        way = banded if path == "banded" else depthwise
        dx = way.to_input(g, w, given.wide, stride, dilation)[crop]
    if dx is None or not np.isfinite(dx).all():
        dx = im2col.to_input(g, w, (*shape[:2], *given.wide), stride, dilation, groups)[crop]
    return np.ascontiguousarray(dx)


def np_conv_weight(
    g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    channels = (x.shape[1], shape[0])
    given = Geometry(
        g.dtype.kind,
        x.shape[0],
        channels,
        x.shape[2:],
        g.shape[2:],
        shape[2:],
        stride,
        padding,
        dilation,
        groups,
    )
    path = choose("conv_weight", given).path
    if path in ("banded", "depthwise"):
        way = banded if path == "banded" else depthwise
        dw = way.to_weight(g, padded(x, padding), shape, stride, dilation)
        if np.isfinite(dw).all():
            return dw
    return im2col.to_weight(g, x, shape, stride, padding, dilation, groups)
