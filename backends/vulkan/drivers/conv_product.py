"""Convolution and its gradients as products of matrices: what all their kernels are told."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from tinyadept.errors import Unsupported
from tinyadept.tensor import Buffer, Tensor, wrap
from tinyadept.view import Shape, View

SPATIAL = 3


class Product(NamedTuple):
    """A convolution as a product of matrices; glsl/conv.comp says what the parts mean.

    Each operand has strides for (row, inner, tap...) or (outer, inner, cell...).
    """

    op: str
    rows: int
    outers: int
    inners: int
    groups: int
    places: Shape
    taps: Shape
    cells: Shape
    place_step: Shape
    tap_step: Shape
    low: Shape
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def columns(self) -> int:
        return self.outers * prod(self.places)

    @property
    def terms(self) -> int:
        """Of each result's sum."""
        return self.inners * prod(self.taps)

    @property
    def strided(self) -> bool:
        """Whether places meet different taps."""
        return self.op == "conv_input" and any(step != 1 for step in self.place_step)

    @property
    def pointwise(self) -> bool:
        """Whether windows are single cells, each of which is met by its own place."""
        kernel = self.places if self.op == "conv_weight" else self.taps
        steps = self.tap_step if self.op == "conv_weight" else self.place_step
        whole = self.op == "conv_weight" or self.places == self.cells
        return whole and prod(kernel) == 1 and all(s == 1 for s in steps) and not any(self.low)


def forward(inputs: tuple, shape: Shape, params: dict) -> Product:
    x, w = inputs[:2]
    return Product(
        op="conv",
        rows=shape[1] // params["groups"],
        outers=shape[0],
        inners=w.shape[1],
        groups=params["groups"],
        places=shape[2:],
        taps=w.shape[2:],
        cells=x.shape[2:],
        place_step=params["stride"],
        tap_step=params["dilation"],
        low=lows(params),
        a=w.layout.strides,
        b=x.layout.strides,
    )


def to_input(inputs: tuple, shape: Shape, params: dict) -> Product:
    g, w = inputs
    ws = w.layout.strides
    return Product(
        op="conv_input",
        rows=shape[1] // params["groups"],
        outers=shape[0],
        inners=w.shape[0] // params["groups"],
        groups=params["groups"],
        places=shape[2:],
        taps=w.shape[2:],
        cells=g.shape[2:],
        place_step=params["stride"],
        tap_step=params["dilation"],
        low=lows(params),
        a=(ws[1], ws[0], *ws[2:]),
        b=g.layout.strides,
    )


def to_weight(inputs: tuple, shape: Shape, params: dict) -> Product:
    g, x = inputs
    gs, xs = g.layout.strides, x.layout.strides
    return Product(
        op="conv_weight",
        rows=shape[0] // params["groups"],
        outers=shape[1],
        inners=x.shape[0],
        groups=params["groups"],
        places=shape[2:],
        taps=g.shape[2:],
        cells=x.shape[2:],
        place_step=params["dilation"],
        tap_step=params["stride"],
        low=lows(params),
        a=(gs[1], gs[0], *gs[2:]),
        b=(xs[1], xs[0], *xs[2:]),
    )


PRODUCTS: dict[str, Callable[[tuple, Shape, dict], Product]] = {
    "conv": forward,
    "conv_input": to_input,
    "conv_weight": to_weight,
}


def lows(params: dict) -> Shape:
    return tuple(low for low, _ in params["padding"])


def three(values: Shape, fill: int) -> list[int]:
    """Values for three spatial axes."""
    return [fill] * (SPATIAL - len(values)) + [*values]


def halves(how: Product, last: int) -> list[int]:
    """Steps of places and taps, what lies below, and one more number, 16 bits each, in five words.

    Raises
    ------
    Unsupported
        If one does not fit.
    """
    values = [*three(how.place_step, 1), *three(how.tap_step, 1), *three(how.low, 0), last]
    if max(map(abs, values)) >= 1 << 15:
        raise Unsupported(f"{how.op}: a stride, dilation or padding of 32,768 or more has no Vulkan kernel")
    return [(low & 0xFFFF) | (high & 0xFFFF) << 16 for low, high in zip(values[::2], values[1::2])]


def dense_cells(gpu: Any, x: Tensor) -> Tensor:
    """The tensor, or a copy of it, with cells of the spatial axes one after another; others as they are."""
    steps = View.dense(x.shape[2:]).strides
    if all(s == d or n == 1 for s, d, n in zip(x.layout.strides[2:], steps, x.shape[2:])):
        return x
    block = gpu.allocator.allocate(x.layout.size)
    gpu.transfer.gather(block, x.buffer.data, x.layout)
    return wrap(Buffer(block), View.dense(x.shape), x.dtype, gpu)


def start(x: Tensor) -> int:
    """Where a tensor's first element lies in its memory, in words."""
    return x.buffer.data.offset + x.layout.offset
