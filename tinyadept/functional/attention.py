"""Attention, and the positions that it is told."""

from __future__ import annotations

from math import prod, sqrt

import numpy as np

from .. import dtypes
from ..ops import attention as rows
from ..ops.elementwise import where
from ..ops.table import broadcast
from ..tensor import Tensor
from ..view import Shape
from .pointwise import dropout


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(query keyᵀ · scale + mask) value (Vaswani et al., Attention is all you need, 2017).

    One op that never holds all scores; with dropout, several ops that do. Shapes: query (…, T, D), key
    (…, S, D) and value (…, S, E) give (…, T, E); what leads is broadcast. Who sees no key gets zeros.

    Parameters
    ----------
    query, key, value : Tensor
    attn_mask : Tensor, optional
        Broadcast to (…, T, S): of bool, True for what is seen; or numbers that are added to the scores.
    dropout_p : float
        Share of the weights that are dropped.
    is_causal : bool
        Whether query t sees only the keys 0 to t.
    scale : float, optional
        By default 1 / √D.
    enable_gqa : bool
        Whether fewer heads of keys and values than of queries, on the third axis from the end, are shared by
        neighbours (Ainslie et al., GQA, 2023).

    Raises
    ------
    ValueError
        If the shapes do not fit, or a mask is given beside `is_causal`.
    """
    if is_causal and attn_mask is not None:
        raise ValueError("scaled_dot_product_attention: a mask beside is_causal: put both into the mask")
    if min(query.ndim, key.ndim, value.ndim) < 2 + enable_gqa:
        raise ValueError(
            f"scaled_dot_product_attention: shapes {query.shape}, {key.shape} and {value.shape}: expected "
            "(…, T, D), (…, S, D) and (…, S, E), with heads before the last two if enable_gqa"
        )
    own = 3 if enable_gqa else 2  # axes that do not broadcast
    batch = broadcast("scaled_dot_product_attention", *(x.shape[:-own] for x in (query, key, value)))
    query, key, value = (x.broadcast_to((*batch, *x.shape[-own:])) for x in (query, key, value))
    q, k, v = (heads(x, enable_gqa) for x in (query, key, value))
    lead, (b, h, t, d), s = query.shape[:-2], q.shape, k.shape[2]
    mask = None if attn_mask is None else added(attn_mask, (*lead, t, s), q).reshape(b, h, t, s)
    scale = 1 / sqrt(max(d, 1)) if scale is None else float(scale)
    start = None
    if is_causal or mask is not None:
        start = Tensor(np.full(b, 0 if is_causal else s, np.int32), device=q.backend)
    if dropout_p:
        p = dropout(rows.formula_weights(q, k, start, mask, scale=scale), dropout_p)
        out = p @ v.unsqueeze(2)
    else:
        out = rows.attention(q, k, v, *rows.supplied(start, mask), scale=scale)
    return out.reshape(*lead, t, value.shape[-1])


def heads(x: Tensor, grouped: bool) -> Tensor:
    """(…, T, D) as (B, H, T, D), H being the third axis from the end if heads are grouped, otherwise 1."""
    lead = x.shape[:-2]
    h = lead[-1] if grouped and lead else 1
    return x.reshape(prod(lead) // max(h, 1), h, *x.shape[-2:])


def added(mask: Tensor, shape: Shape, like: Tensor) -> Tensor:
    """A mask as numbers to be added to scores of this shape."""
    if mask.dtype == dtypes.bool_:
        mask = where(mask, 0.0, -np.inf)
    return mask.to(like.dtype).broadcast_to(shape)


def rotary_table(length: int, dim: int, base: float = 10000.0, device: object = None) -> Tensor:
    """Cosines and sines for `rotary_embedding`: (length, dim), for each position dim/2 of both.

    Pair i of position p is turned by p · base^(-2i / dim) (Su et al., RoFormer, 2021).

    Raises
    ------
    ValueError
        If `dim` is not even and positive.
    """
    if dim < 2 or dim % 2:
        raise ValueError(f"rotary_table: dim must be even and positive, got {dim}")
    angles = np.arange(length)[:, None] * base ** (-np.arange(0, dim, 2) / dim)  # float64
    return Tensor(np.concatenate([np.cos(angles), np.sin(angles)], 1).astype(np.float32), device=device)


def rotary_embedding(input: Tensor, table: Tensor, positions: Tensor, interleaved: bool = False) -> Tensor:
    """Turn pairs of features by angles that grow with the position (Su et al., RoFormer, 2021).

    Parameters
    ----------
    input : Tensor
        (B, H, T, D).
    table : Tensor
        From `rotary_table`, (L, R): the first R features are turned.
    positions : Tensor
        (B, T), int32.
    interleaved : bool
        Whether neighbours form pairs; otherwise feature i and i + R/2 do.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    IndexError
        If a position is not in the table; on Vulkan when the queue is next checked.
    """
    return rows.rotary(input, table, positions, interleaved=interleaved, inverse=False)
