"""Products of which the left side has few rows: glsl/matvec.comp, which reads the right side once."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any

from tinyadept.tensor import Tensor

from ..shaders import Macros
from . import loops
from .joining import Finish

ROWS = (1, 4)  # of the left side, at most
FOURS = (8, 4, 2)  # fours of columns of a workgroup: the most that leave enough workgroups
PUSH = Struct("14i").pack


def suits(gpu: Any, a: Tensor, b: Tensor) -> bool:
    """Whether these are such a product of floats, on a GPU, with sides that can be read by fours."""
    if not gpu.products.tiled or gpu.products.forced or a.dtype.kind != "f" or not a.ndim == b.ndim == 2:
        return False
    return a.shape[0] <= ROWS[-1] and (is_deep(a, b) or by_fours(b, 0, 1))


def is_deep(a: Tensor, b: Tensor) -> bool:
    return by_fours(b, 1, 0) and by_fours(a, 0, 1)


def by_fours(x: Tensor, step: int, dense: int) -> bool:
    """Whether every line along an axis consists of whole fours on 16 bytes."""
    strides, first = x.layout.strides, x.buffer.data.offset + x.layout.offset
    return strides[dense] == 1 and not (first % 4 or x.shape[dense] % 4 or strides[step] % 4)


def multiply(gpu: Any, a: Tensor, b: Tensor, out: Any, finish: Finish) -> None:
    """Note the dispatch."""
    deep, (n, k), m = is_deep(a, b), a.shape, b.shape[1]
    first_a, first_b = (x.buffer.data.offset + x.layout.offset for x in (a, b))
    rows = next(most for most in ROWS if n <= most)
    fours = next((f for f in FOURS if m >= 4 * f * loops.GPU_AT_ONCE // 2), FOURS[-1])
    push = PUSH(
        *(n, k, m, first_a, *a.layout.strides, first_b, b.layout.strides[1 if deep else 0]),
        *(out.offset, *finish.words, *finish.residual_words),
    )
    act = finish.activation
    shader = gpu.shaders.get("matvec", macros_of(rows, deep, act > 0), (0, act, fours))
    groups = loops.power_of_two(-(-m // (4 * fours)), loops.MOST_GROUPS), 1, 1
    spans = [x.buffer.data.part(x.layout.span[0], x.layout.span[1] - x.layout.span[0]) for x in (a, b)]
    added = finish.bound(spans[0]), finish.residual_bound(spans[0])
    gpu.queue.dispatch(shader, groups, push, (out, *spans, *added))


def macros_of(rows: int, deep: bool, activated: bool) -> Macros:
    return {"ROWS": rows, "DEEP": int(deep), "ACTIVATED": int(activated)}


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that this file asks for."""
    for rows in ROWS:
        yield from (("matvec", macros_of(rows, deep, act)) for deep in (False, True) for act in (False, True))
