"""What becomes of a product's sums: parts are joined, a bias is added, and an activation applied."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tinyadept.dtypes import uint8
from tinyadept.ops.activation import ACTIVATIONS
from tinyadept.tensor import Tensor

from ..arena import Block
from ..queue import Bound, pack
from ..shaders import Macros
from . import loops

TYPES = {"f": ("float", "vec4"), "i": ("int", "ivec4"), "u": ("int", "ivec4")}


class Finish(NamedTuple):
    """A bias, one number a channel, a residual (n, m), and an activation by its number in `ACTIVATIONS`."""

    bias: Tensor | None = None
    activation: int = 0
    residual: Tensor | None = None

    @property
    def words(self) -> tuple[int, int]:
        """Where the bias begins, -1 for none, and its step."""
        if self.bias is None:
            return -1, 0
        return self.bias.buffer.data.offset + self.bias.layout.offset, self.bias.layout.strides[0]

    @property
    def residual_words(self) -> tuple[int, int, int]:
        """Where the residual begins, -1 for none, and its steps."""
        if self.residual is None:
            return -1, 0, 0
        row, column = self.residual.layout.strides
        return self.residual.buffer.data.offset + self.residual.layout.offset, row, column

    def bound(self, other: Bound) -> Bound:
        """What to bind for the bias: `other` where there is none."""
        return other if self.bias is None else self.bias.buffer.data

    def residual_bound(self, other: Bound) -> Bound:
        """The same for the residual."""
        return other if self.residual is None else self.residual.buffer.data


PLAIN = Finish()


def finish_of(inputs: tuple, params: dict) -> Finish:
    """Of a call whose inputs behind the second are a bias, a residual as deep as the first, or both."""
    bias = next((x for x in inputs[2:] if x.ndim == 1), None)
    residual = next((x for x in inputs[2:] if x.ndim > 1), None)
    return Finish(bias, ACTIVATIONS.index(params.get("activation", "")), residual)


def join(
    gpu: Any, parts: Block, pitch: int, out: Block, splits: int, dtype: np.dtype, activation: int = 0
) -> None:
    """Note what adds the parts of sums that were cut, in order; they lie `pitch` words apart."""
    shader = gpu.shaders.get("join", types(dtype, activation), (gpu.local, activation))
    push = pack(out.words, out.offset, parts.offset, pitch, splits)
    gpu.queue.dispatch(shader, loops.grid(gpu, out.words // 4, splits + 6), push, (out, parts))


def types(dtype: np.dtype, activation: int = 0) -> Macros:
    """How a template is told the dtype that it computes in, and whether an activation follows."""
    kind, four = TYPES[dtype.kind]
    mask = 255 if dtype == uint8 else 0
    return {"TYPE": kind, "TYPE4": four, "MASK": mask, "ACTIVATED": int(activation > 0)}


def both(dtype: np.dtype) -> tuple[int, ...]:
    """Activations for which there are variants: none, and any of floats."""
    return (0, 1) if dtype.kind == "f" else (0,)
