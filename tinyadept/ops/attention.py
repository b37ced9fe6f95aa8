"""Scaled dot-product attention, and the rotation of pairs that tells it positions.

Shapes: B batch, H heads of queries, K heads of keys and values (H / K queries' heads share one), T queries,
S keys, D width of queries and keys, E width of values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from .create import zeros
from .elementwise import where
from .index import take_along
from .move import cat
from .norm import softmax, through
from .table import Family, amended, define, met

SCORES_BYTES = 4 << 20  # of scores held at a time by the reference


def infer_attention(op: Any, inputs: tuple, params: dict) -> tuple:
    """q (B, H, T, D), k (B, K, S, D), v (B, K, S, E), perhaps start and mask, give (B, H, T, E).

    With an outer gradient before them, they give all gradients in one dimension; see `attention_input`.
    """
    outer = op.name == "attention_input"
    floats, start, mask = inputs[: 3 + outer], *inputs[3 + outer :], *(None,) * (5 + outer - len(inputs))
    (*g, q, k, v), dtype = met(op, floats)
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if not q.ndim == k.ndim == v.ndim == 4 or q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3]:
        raise ValueError(f"{op.name}: {shapes}: expected (B, H, T, D), (B, K, S, D) and (B, K, S, E)")
    (b, h, t, _), heads, s = q.shape, k.shape[1], k.shape[2]
    if k.shape[0] != b or not heads or h % heads:
        raise ValueError(f"{op.name}: {shapes}: batches differ, or {h} heads do not share {heads}")
    out = (b, h, t, v.shape[3])
    if g and g[0].shape != out:
        raise ValueError(f"{op.name}: an outer gradient of shape {g[0].shape}, expected {out}")
    if start is not None and (start.shape != (b,) or start.dtype != dtypes.int32):
        raise ValueError(
            f"{op.name}: start has shape {start.shape} and dtype {start.dtype.name}, "
            f"expected ({b},) and int32"
        )
    if mask is not None and (mask.shape != (b, h, t, s) or mask.dtype != dtype):
        raise ValueError(
            f"{op.name}: the mask has shape {mask.shape} and dtype {mask.dtype.name}, expected "
            f"{(b, h, t, s)} and {dtype.name}"
        )
    rest = [x for x in (start, mask) if x is not None]
    shape = (sum(prod(x.shape) for x in (q, k, v)),) if outer else out
    return (*g, q, k, v, *rest), shape, dtype


attending = Family("attention", infer_attention)


def shares(q: np.ndarray, k: np.ndarray, start: np.ndarray | None) -> Iterator[tuple[slice, int]]:
    """Queries that are worked on together, and how many of the first keys any of them sees."""
    (b, h, t, _), keys = q.shape, k.shape[2]
    size = max(1, SCORES_BYTES // max(1, b * h * keys * q.itemsize))
    for first in range(0, t, size):
        last, seen = min(first + size, t), keys
        if start is not None and start.size:
            seen = int(np.clip(start.max() + last, 0, keys))
        yield slice(first, last), seen


def weights(
    q: np.ndarray,
    k: np.ndarray,
    start: np.ndarray | None,
    mask: np.ndarray | None,
    queries: slice,
    scale: float,
) -> np.ndarray:
    """How much some queries (B, K, H/K, n, D) take of each key (B, K, 1, s, D): rows that sum to one."""
    scores = np.matmul(q * q.dtype.type(scale), k.swapaxes(-1, -2))  # (B, K, H/K, n, s)
    if mask is not None:
        scores += mask[:, :, queries, : k.shape[3]].reshape(scores.shape)
    if start is not None and start.size and start.min() + queries.start < k.shape[3] - 1:
        last = start[:, None] + np.arange(queries.start, queries.stop)  # (B, n)
        hidden = np.arange(k.shape[3]) > last[:, :, None]
        scores[np.broadcast_to(hidden[:, None, None], scores.shape)] = -np.inf
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    nothing = top == -np.inf  # is seen, and nothing is taken
    blind = nothing.any()
    scores -= np.where(nothing, 0, top) if blind else top
    np.exp(scores, out=scores)
    total = scores.sum(-1, dtype=np.float64, keepdims=True)
    scores *= (1 / (np.where(nothing, 1, total) if blind else total)).astype(scores.dtype)
    return scores


def np_attention(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    start: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    scale: float,
) -> np.ndarray:
    (b, h, t, _), heads = q.shape, k.shape[1]
    cut = shares(q, k, start)
    grouped, k, v = q.reshape(b, heads, h // heads, t, q.shape[3]), k[:, :, None], v[:, :, None]
    out = np.empty((*grouped.shape[:4], v.shape[-1]), q.dtype)
    for queries, s in cut:
        p = weights(grouped[:, :, :, queries], k[..., :s, :], start, mask, queries, scale)
        np.matmul(p, v[..., :s, :], out=out[:, :, :, queries])
    return out.reshape(b, h, t, v.shape[-1])


def np_attention_input(
    g: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    start: np.ndarray | None = None,
    mask: np.ndarray | None = None,
    *,
    scale: float,
) -> np.ndarray:
    (b, h, t, _), heads = q.shape, k.shape[1]
    cut = shares(q, k, start)
    g, q = (x.reshape(b, heads, h // heads, t, x.shape[3]) for x in (g, q))
    k, v = k[:, :, None], v[:, :, None]
    dq, dk, dv = np.zeros(q.shape, q.dtype), np.zeros(k.shape, q.dtype), np.zeros(v.shape, q.dtype)
    for queries, s in cut:
        some, outer = q[:, :, :, queries], g[:, :, :, queries]
        p = weights(some, k[..., :s, :], start, mask, queries, scale)
        dv[..., :s, :] += np.matmul(p.swapaxes(-1, -2), outer).sum(2, keepdims=True)
        slope = np.matmul(outer, v[..., :s, :].swapaxes(-1, -2))
        slope -= (slope * p).sum(-1, keepdims=True, dtype=np.float64).astype(p.dtype)
        slope *= p
        slope *= p.dtype.type(scale)
        dq[:, :, :, queries] = np.matmul(slope, k[..., :s, :])
        dk[..., :s, :] += np.matmul(slope.swapaxes(-1, -2), some).sum(2, keepdims=True)
    return np.concatenate([dq.ravel(), dk.ravel(), dv.ravel()])


def formula_weights(q: Tensor, k: Tensor, start: Tensor | None, mask: Tensor | None, scale: float) -> Tensor:
    """The same weights by other ops, (B, K, H/K, T, S)."""
    (b, h, t, d), heads, s = q.shape, k.shape[1], k.shape[2]
    scores = (q * scale).reshape(b, heads, h // heads, t, d) @ k.unsqueeze(2).mT
    if mask is not None:
        scores = scores + mask.reshape(scores.shape)
    if start is not None:
        keys, queries = (counted(n, q) for n in (s, t))
        hidden = keys > (start.unsqueeze(1) + queries).unsqueeze(2)  # (B, T, S)
        scores = where(hidden.reshape(b, 1, 1, t, s), -np.inf, scores)
    if not prod(scores.shape):
        return scores
    nothing = scores.amax(-1, keepdim=True) == -np.inf
    return where(nothing, 0.0, softmax(where(nothing, 0.0, scores), axis=4))


def counted(n: int, like: Tensor) -> Tensor:
    return Tensor(np.arange(n, dtype=np.int32), device=like.backend)


def formula(q: Tensor, k: Tensor, v: Tensor, start: Any = None, mask: Any = None, *, scale: float) -> Tensor:
    out = formula_weights(q, k, start, mask, scale=scale) @ v.unsqueeze(2)
    return out.reshape(*q.shape[:3], v.shape[3])


def formula_input(
    g: Tensor, q: Tensor, k: Tensor, v: Tensor, start: Any = None, mask: Any = None, *, scale: float
) -> Tensor:
    p = formula_weights(q, k, start, mask, scale=scale)
    outer = g.reshape(*p.shape[:4], g.shape[3])
    slope = outer @ v.unsqueeze(2).mT
    slope = p * (slope - (slope * p).sum(-1, keepdim=True)) * scale
    dq = slope @ k.unsqueeze(2)
    dk = (slope.mT @ q.reshape(*p.shape[:4], q.shape[3])).sum(2)
    dv = (p.mT @ outer).sum(2)
    return cat(*(x.reshape(prod(x.shape)) for x in (dq, dk, dv)), axis=0)


def gradients(g: Tensor, inputs: tuple, needs: tuple, scale: float) -> tuple:
    """Of q, k, v, start and mask; the mask's, which is seldom asked for, by other ops."""
    parts: list = [None] * len(inputs)
    if any(needs[:3]):
        flat, first = attention_input(g, *inputs, scale=scale), 0
        for at, x in enumerate(inputs[:3]):
            parts[at] = flat[first : first + prod(x.shape)].reshape(x.shape)
            first += prod(x.shape)
    if any(needs[3:]):
        parts[4] = slope_of(lambda *given: formula(*given, scale=scale), g, inputs, 4)
    return tuple(parts)


def slope_of(function: Callable, h: Tensor, inputs: tuple, at: int) -> Tensor:
    """The gradient with respect to one of the inputs."""
    return through(lambda x: function(*inputs[:at], x, *inputs[at + 1 :]), h, inputs[at])


def second(h: Tensor, inputs: tuple, needs: tuple, scale: float) -> tuple:
    """Gradients of `attention_input`, by other ops."""
    return tuple(
        slope_of(lambda *given: formula_input(*given, scale=scale), h, inputs, at) if need else None
        for at, need in enumerate(needs)
    )


def supplied(*inputs: Any) -> tuple:
    return tuple(x for x in inputs if x is not None)


attention = define(
    attending,
    "attention",
    np_attention,
    lambda g, out, q, k, v, start=None, mask=None, *, needs, scale: gradients(
        g, supplied(q, k, v, start, mask), needs, scale
    ),
    takes="strict float",
    joint=True,
    ulps=8.0,
)
attention_input = define(  # the gradients of q, k and v, each flattened, one behind another
    attending,
    "attention_input",
    np_attention_input,
    lambda h, out, g, q, k, v, start=None, mask=None, *, needs, scale: second(
        h, supplied(g, q, k, v, start, mask), needs, scale
    ),
    takes="strict float",
    joint=True,
    ulps=8.0,
)


# --- keys and values that are kept --------------------------------------------------------------------


def infer_append(op: Any, inputs: tuple, params: dict) -> tuple:
    """base (B, K, L, D), new (B, K, T, D) and start (B,) give what `base` becomes."""
    (base, new), dtype = met(op, inputs[:2])
    start, b, given = inputs[2], base.shape, new.shape
    if not len(b) == len(given) == 4 or (*b[:2], b[3]) != (*given[:2], given[3]) or given[2] > b[2]:
        raise ValueError(
            f"append: base {b} and new {given}: expected (B, K, L, D) and (B, K, T, D), T at most L"
        )
    if start.shape != b[:1] or start.dtype != dtypes.int32:
        raise ValueError(
            f"append: start has shape {start.shape} and dtype {start.dtype.name}, expected {b[:1]} and int32"
        )
    return (base, new, start), b, dtype


def append_into(base: np.ndarray, new: np.ndarray, start: np.ndarray) -> None:
    room = base.shape[2] - new.shape[2]
    for sample, first in enumerate(start.tolist()):
        if not 0 <= first <= room:
            raise IndexError(f"append: index {first} is out of range for {room + 1} entries")
        base[sample, :, first : first + new.shape[2]] = new[sample]


def window_of(g: Tensor, new: Tensor, start: Tensor) -> Tensor:
    """What stands where `new` was put: (B, K, T, D)."""
    rows = start.reshape(-1, 1, 1, 1) + counted(new.shape[2], new).reshape(-1, 1)
    return take_along(g, rows.expand(new.shape), axis=2)


keeping = Family("append", infer_append)

append = define(  # written over `base`, only the new rows are touched
    keeping,
    "append",
    amended(append_into),
    lambda g, out, base, new, start: append(g, zeros(new.shape, g), start),
    lambda g, out, base, new, start: window_of(g, new, start),
    None,
    takes="strict float",
    amend=append_into,
)


# --- rotary position embedding ------------------------------------------------------------------------


def infer_rotary(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (B, H, T, D), a table (L, R) of R/2 cosines and R/2 sines for L positions, and positions (B, T)."""
    (x, table), dtype = met(op, inputs[:2])
    positions, pairs = inputs[2], table.shape[-1] // 2
    if x.ndim != 4 or table.ndim != 2 or table.shape[1] != 2 * pairs or not 0 < 2 * pairs <= x.shape[3]:
        raise ValueError(
            f"rotary: x {x.shape} and table {table.shape}: expected (B, H, T, D) and (L, R), with R even "
            "and at most D"
        )
    if positions.shape != (x.shape[0], x.shape[2]) or positions.dtype != dtypes.int32:
        raise ValueError(
            f"rotary: positions have shape {positions.shape} and dtype {positions.dtype.name}, expected "
            f"{(x.shape[0], x.shape[2])} and int32"
        )
    return (x, table, positions), x.shape, dtype


def np_rotary(
    x: np.ndarray, table: np.ndarray, positions: np.ndarray, interleaved: bool, inverse: bool
) -> np.ndarray:
    if positions.size and not 0 <= positions.min() <= positions.max() < len(table):
        wrong = positions[(positions < 0) | (positions >= len(table))][0]
        raise IndexError(f"rotary: index {wrong} is out of range for an axis of length {len(table)}")
    width, half = table.shape[1], table.shape[1] // 2
    turns = table[positions][:, None]  # (B, 1, T, R)
    cos, sin = turns[..., :half], -turns[..., half:] if inverse else turns[..., half:]
    one, two = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(half), slice(half, width))
    out, a, b = x.copy(), x[..., one], x[..., two]
    out[..., one] = a * cos - b * sin
    out[..., two] = b * cos + a * sin
    return out


def rotary_formula(x: Tensor, table: Tensor, positions: Tensor, interleaved: bool, inverse: bool) -> Tensor:
    """The same by other ops."""
    width, half = table.shape[1], table.shape[1] // 2
    turns = table[positions].unsqueeze(1)  # (B, 1, T, R)
    cos, sin = turns[..., :half], -turns[..., half:] if inverse else turns[..., half:]
    one, two = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(half), slice(half, width))
    a, b = x[..., one], x[..., two]
    turned = [a * cos - b * sin, b * cos + a * sin]
    if interleaved:
        turned = [cat(*(part.unsqueeze(4) for part in turned), axis=4).reshape(*x.shape[:3], width)]
    return cat(*turned, x[..., width:], axis=3)


rotating = Family("rotary", infer_rotary)

rotary = define(  # the gradient turns back
    rotating,
    "rotary",
    np_rotary,
    lambda g, out, x, table, positions, interleaved, inverse: rotary(
        g, table, positions, interleaved=interleaved, inverse=not inverse
    ),
    lambda g, out, x, table, positions, **p: through(
        lambda table: rotary_formula(x, table, positions, **p), g, table
    ),
    None,
    takes="strict float",
)
