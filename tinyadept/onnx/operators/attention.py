"""Attention, and the positions that it is told."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ... import creation
from ... import functional as F
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import operator


def as_heads(node: Any, x: Tensor, name: str) -> Tensor:
    """(B, T, heads · D) as (B, heads, T, D)."""
    if x.ndim == 4:
        return x
    heads = int(node.get(name, 0))
    if x.ndim != 3 or heads < 1 or x.shape[2] % heads:
        node.refuse(f"an input of shape {x.shape} in {heads} heads ({name})")
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(1, 2)


def joined(past: Tensor | None, x: Tensor) -> Tensor:
    return x if past is None else F.cat([past, x], 2)


@operator("Attention", since=23)
def attention(
    node: Any,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Any:
    flat = q.ndim == 3
    q, k, v = (
        as_heads(node, q, "q_num_heads"),
        as_heads(node, k, "kv_num_heads"),
        as_heads(node, v, "kv_num_heads"),
    )
    present, past = (joined(past_key, k), joined(past_value, v)), 0 if past_key is None else past_key.shape[2]
    k, v = present
    scale = float(node.get("scale") or 1 / sqrt(q.shape[3]))
    plain = not node.get("softcap", 0.0) and node.wanted < 4
    if plain and node.get("is_causal", 0) and not past and mask is None and lengths is None:
        grouped = k.shape[1] != q.shape[1]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=grouped)
        return (finished(y, flat), *present)[: max(node.wanted, 1)]
    bias = mask_of(node, q, k.shape[2], past, mask, lengths)
    if plain:
        y = F.scaled_dot_product_attention(q, k, v, bias, scale=scale, enable_gqa=k.shape[1] != q.shape[1])
        return (finished(y, flat), *present)[: max(node.wanted, 1)]
    y, shown = spelled_out(node, q, k, v, bias, scale)
    return (finished(y, flat), *present, shown)[: node.wanted]


def finished(y: Tensor, flat: bool) -> Tensor:
    """(B, heads, T, D) as (B, T, heads · D) if the inputs came so."""
    return y.transpose(1, 2).reshape(y.shape[0], y.shape[2], y.shape[1] * y.shape[3]) if flat else y


def spelled_out(
    node: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """The result, and the scores at the stage that qk_matmul_output_mode names."""
    if k.shape[1] != q.shape[1]:
        k, v = (F.repeat_interleave(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    stages = [(q * sqrt(scale)).matmul((k * sqrt(scale)).mT)]
    cap = float(node.get("softcap", 0.0))
    stages.append((stages[-1] / cap).tanh() * cap if cap else stages[-1])
    stages.append(stages[-1] if bias is None else stages[-1] + bias)
    stages.append(stages[-1].softmax(-1))
    return stages[-1].matmul(v), stages[int(node.get("qk_matmul_output_mode", 0))]


def mask_of(
    node: Any, q: Tensor, keys: int, past: int, mask: Tensor | None, lengths: Tensor | None
) -> Tensor | None:
    """What is added to the scores (…, T, S): 0 or a bias for what is seen, -inf for what is not."""
    bias = None
    if mask is not None:
        bias = where(mask, 0.0, -np.inf).to(q.dtype) if mask.dtype == np.bool_ else mask
        if bias.shape[-1] < keys:
            bias = F.pad(bias, [0, keys - bias.shape[-1]], value=-np.inf)
    places = creation.arange(keys, device=q.backend)
    seen = None
    if node.get("is_causal", 0):
        seen = places.reshape(1, -1) <= creation.arange(past, past + q.shape[2], device=q.backend).reshape(
            -1, 1
        )
    if lengths is not None:
        there = (places.reshape(1, -1) < lengths.to("int32").reshape(-1, 1)).reshape(-1, 1, 1, keys)
        seen = there if seen is None else seen & there
    if seen is None:
        return bias
    return where(seen, 0.0 if bias is None else bias, -np.inf).to(q.dtype)


@operator("RotaryEmbedding", since=23)
def rotary_embedding(
    node: Any, x: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor | None = None
) -> Tensor:
    """Pairs of features turned by angles that grow with the position (Su et al., RoFormer, 2021)."""
    heads = as_heads(node, x, "num_heads")  # (B, H, T, D)
    if positions is not None:
        cosines, sines = cosines[positions], sines[positions]
    cosines, sines = cosines.unsqueeze(1), sines.unsqueeze(1)  # (B, 1, T, R / 2)
    size = int(node.get("rotary_embedding_dim", 0)) or heads.shape[3]
    turned, rest = heads[..., :size], heads[..., size:]
    pairs = bool(node.get("interleaved", 0))
    if pairs:
        first, second = turned[..., ::2], turned[..., 1::2]
    else:
        first, second = turned[..., : size // 2], turned[..., size // 2 :]
    real, imaginary = cosines * first - sines * second, sines * first + cosines * second
    y = F.stack([real, imaginary], -1).reshape(*turned.shape) if pairs else F.cat([real, imaginary], -1)
    y = F.cat([y, rest], -1) if rest.shape[-1] else y
    return y if x.ndim == 4 else y.transpose(1, 2).reshape(*x.shape)


@operator("FlexAttention", since=1, domain="ai.onnx.preview", prepare=True)
def flex_attention(node: Any) -> Any:
    """Attention whose scores and weights are changed by graphs in the node."""
    changes = {}
    for name in ("score_mod", "prob_mod"):
        if node.get(name) is not None:
            changes[name] = node.subgraph(name, [node.input_types[0]])

    def changed(name: str, env: list, x: Tensor) -> Tensor:
        return changes[name].run(env, x)[0] if name in changes else x

    def run(*inputs: Any) -> Tensor:
        env, (q, k, v) = inputs[0], inputs[-3:]
        if k.shape[1] != q.shape[1]:
            k, v = (F.repeat_interleave(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
        scores = q.matmul(k.mT) * float(node.get("scale") or 1 / sqrt(q.shape[3]))
        weights = changed("score_mod", env, scores).softmax(-1)
        return changed("prob_mod", env, weights).matmul(v)

    return run
