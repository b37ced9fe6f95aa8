"""Llama, and models that are built like it.

Touvron et al., LLaMA: open and efficient foundation language models, 2023. State dicts have the names that
Hugging Face gives them. Shapes: B batch, T tokens, C width, H heads of queries, K heads of keys and values, D
width of a head, V vocabulary.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from tinyadept import functional as F
from tinyadept import io, nn
from tinyadept.creation import arange, zeros
from tinyadept.functional.attention import rotary_embedding, rotary_table
from tinyadept.nn import init
from tinyadept.ops import attention as rows
from tinyadept.tensor import Tensor
from tinyadept.text.cache import KeyValueCache
from tinyadept.text.gguf import GGUF


@dataclass(frozen=True)
class Config:
    """What a Llama is made of, by Hugging Face's names; the defaults are SmolLM2-135M's."""

    vocab_size: int = 49152
    hidden_size: int = 576
    intermediate_size: int = 1536
    num_hidden_layers: int = 30
    num_attention_heads: int = 9
    num_key_value_heads: int = 3
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    rope_theta: float = 100000.0
    head_dim: int = 64
    tie_word_embeddings: bool = True


# Of a layer's number and its q, k and v, not rotated yet, makes what the queries take: (B, H, T, D).
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        c, d = config.hidden_size, config.head_dim
        self.heads, self.shared, self.width = config.num_attention_heads, config.num_key_value_heads, d
        self.q_proj = nn.Linear(c, self.heads * d, bias=False)
        self.k_proj = nn.Linear(c, self.shared * d, bias=False)
        self.v_proj = nn.Linear(c, self.shared * d, bias=False)
        self.o_proj = nn.Linear(self.heads * d, c, bias=False)

    def forward(self, x: Tensor, attend: Attend, layer: int, residual: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (
            y.reshape(b, t, -1, self.width).permute(0, 2, 1, 3)  # (B, H or K, T, D)
            for y in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        )
        y = attend(layer, q, k, v)
        return self.o_proj(y.permute(0, 2, 1, 3).reshape(b, t, self.heads * self.width), residual)


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        c, wide = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(c, wide, bias=False)
        self.up_proj = nn.Linear(c, wide, bias=False)
        self.down_proj = nn.Linear(wide, c, bias=False)

    def forward(self, x: Tensor, residual: Tensor) -> Tensor:
        return self.down_proj(F.swiglu(self.gate_proj(x), self.up_proj(x)), residual)


class Layer(nn.Module):
    def __init__(self, config: Config, number: int):
        super().__init__()
        self.number = number
        self.self_attn = Attention(config)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: Tensor, attend: Attend) -> Tensor:
        x = self.self_attn(self.input_layernorm(x), attend, self.number, x)
        return self.mlp(self.post_attention_layernorm(x), x)


class Decoder(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([Layer(config, at) for at in range(config.num_hidden_layers)])
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        init.normal_(self.embed_tokens.weight, std=0.02)


class Llama(nn.Module):
    """A decoder of tokens: (B, T) ids give the logits (B, T, V) of the tokens that follow.

    Parameters
    ----------
    config : Config
        By default that of SmolLM2-135M.

    Raises
    ------
    ValueError
        If the heads of queries do not share those of keys and values evenly.
    """

    def __init__(self, config: Config | None = None):
        super().__init__()
        self.config = config = config or Config()
        heads, shared = config.num_attention_heads, config.num_key_value_heads
        if shared < 1 or heads % shared:
            raise ValueError(f"Llama: {heads} heads of queries do not share {shared} of keys evenly")
        self.model = Decoder(config)
        self.lm_head = None
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        table = rotary_table(config.max_position_embeddings, config.head_dim, config.rope_theta)
        self.register_buffer("table", table, persistent=False)

    def forward(
        self,
        ids: Tensor,
        cache: KeyValueCache | None = None,
        last: bool = False,
        attend: Attend | None = None,
    ) -> Tensor:
        """Logits.

        Parameters
        ----------
        ids : Tensor
            (B, T), integers.
        cache : KeyValueCache, optional
            Of the tokens before these, which join them.
        last : bool
            Whether only the logits behind the last token are wanted, (B, 1, V).
        attend : callable, optional
            How queries attend, if not to the tokens of this call and those of the cache.

        Raises
        ------
        ValueError
            If there are more tokens than positions.
        IndexError
            If an id is not in the vocabulary, or the cache is full.
        """
        t = ids.shape[1]
        if t > self.context:
            raise ValueError(f"Llama: {t} tokens, expected at most {self.context}")
        attend = attend or self.attending(ids, cache)
        x = self.model.embed_tokens(ids)  # (B, T, C)
        for layer in self.model.layers:
            x = layer(x, attend)
        if cache is not None:
            cache.advance(t)
        x = self.model.norm(x[:, -1:] if last else x)
        return F.linear(x, self.model.embed_tokens.weight) if self.lm_head is None else self.lm_head(x)

    def attending(self, ids: Tensor, cache: KeyValueCache | None) -> Attend:
        """Each token sees itself and those before it."""
        b, t = ids.shape
        if cache is None:
            start = zeros(b, dtype="int32", device=ids.backend)
            positions = arange(t, device=ids.backend).expand(b, t)
        else:
            start, positions = cache.start, cache.positions(t)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            q, k = (rotary_embedding(x, self.table, positions) for x in (q, k))
            if cache is not None:
                k, v = cache.append(layer, k, v)  # (B, K, capacity, D)
            return rows.attention(q, k, v, start, scale=1 / sqrt(self.config.head_dim))

        return attend

    def cache(self, batch: int = 1, capacity: int | None = None) -> KeyValueCache:
        """An empty cache for this model, on its device."""
        c, device = self.config, self.model.embed_tokens.weight.backend
        capacity = min(capacity or self.context, self.context)
        return KeyValueCache(c.num_hidden_layers, batch, c.num_key_value_heads, capacity, c.head_dim, device)

    @property
    def context(self) -> int:
        """How many tokens it can see."""
        return self.config.max_position_embeddings

    @classmethod
    def from_file(cls, path: str | os.PathLike, device: Any = None) -> Llama:
        """Read a GGUF file, or ``model.safetensors`` and ``config.json`` as Hugging Face writes them.

        Parameters
        ----------
        path : str or path
            The file, or the folder of both.
        device : str, optional

        Raises
        ------
        ValueError
            If weights and settings do not fit together, or the file is damaged or of another kind.
        FileNotFoundError
            If a file is missing.
        """
        path = Path(path)
        if path.suffix == ".gguf":
            file = GGUF(path)
            config = gguf_config(file)
            state = gguf_weights(file, config)
        else:
            path = path / "model.safetensors" if path.is_dir() else path
            config = told_config(json.loads((path.parent / "config.json").read_text()))
            state = untied(io.load(path, "numpy"), config)
        with init.skipped():
            model = cls(config)
        model.load_state_dict(state, assign=True)
        return model if device is None else model.to(device)


def told_config(told: dict) -> Config:
    """From Hugging Face's ``config.json``."""
    names = Config.__dataclass_fields__
    heads = told["num_attention_heads"]
    told = {"head_dim": told["hidden_size"] // heads, "num_key_value_heads": heads, **told}
    told = {"tie_word_embeddings": False, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, **told}
    return Config(**{name: told[name] for name in names if told.get(name) is not None})


def untied(weights: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    tied = ("lm_head.weight",) if config.tie_word_embeddings else ()
    return {name: x for name, x in weights.items() if name not in tied and not name.endswith("inv_freq")}


# --- GGUF ---------------------------------------------------------------------------------------------

NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ENDS = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def gguf_config(file: GGUF) -> Config:
    """Settings, held against the shapes of the tensors before any memory is taken.

    Raises
    ------
    ValueError
        If it is no Llama, or something is missing or contradicts itself.
    """
    kind = file.setting("general.architecture", str)
    if kind != "llama":
        raise ValueError(f"{file.path}: the architecture is {kind!r}, expected 'llama'")
    heads, width = (file.setting(f"llama.{n}", int) for n in ("attention.head_count", "embedding_length"))
    rows, columns = (file.shapes.get("token_embd.weight", ()) + (0, 0))[:2]
    layers = len({name.split(".")[1] for name in file.shapes if name.startswith("blk.")})
    config = Config(
        vocab_size=rows,
        hidden_size=width,
        intermediate_size=file.setting("llama.feed_forward_length", int),
        num_hidden_layers=file.setting("llama.block_count", int),
        num_attention_heads=heads,
        num_key_value_heads=file.setting("llama.attention.head_count_kv", int, heads),
        max_position_embeddings=file.setting("llama.context_length", int),
        rms_norm_eps=file.setting("llama.attention.layer_norm_rms_epsilon", float),
        rope_theta=file.setting("llama.rope.freq_base", float, 10000.0),
        head_dim=file.setting("llama.rope.dimension_count", int, width // max(heads, 1)),
        tie_word_embeddings="output.weight" not in file.shapes,
    )
    whole = [config.vocab_size, width, heads, config.head_dim, config.intermediate_size, layers]
    if min(whole) < 1 or columns != width or layers != config.num_hidden_layers:
        raise ValueError(
            f"{file.path}: {config} does not fit {layers} layers of tensors, and embeddings of shape "
            f"{(rows, columns)}"
        )
    if not 0 < config.max_position_embeddings <= MOST_POSITIONS:
        raise ValueError(
            f"{file.path}: a context of {config.max_position_embeddings}, expected 1 to {MOST_POSITIONS}"
        )
    wide = {"ffn_gate": config.intermediate_size, "attn_q": heads * config.head_dim}
    for name, n in wide.items():
        if (shape := file.shapes.get(f"blk.0.{name}.weight")) != (n, width):
            raise ValueError(f"{file.path}: blk.0.{name}.weight has shape {shape}, expected {(n, width)}")
    return config


MOST_POSITIONS = 1 << 20


def gguf_weights(file: GGUF, config: Config) -> dict[str, Tensor]:
    """Weights by the names of this module's state dict."""
    found = {}
    for name, array in file.arrays():
        if name == "rope_freqs.weight":
            raise ValueError(f"{file.path}: scaled rotary frequencies ({name}) are not supported")
        if name.startswith("blk."):
            _, layer, part, *rest = name.split(".")
            to = ".".join(["model.layers", layer, NAMES.get(part, part), *rest])
        else:
            part, to = name, ENDS.get(name, name)
        if part in ("attn_q", "attn_k"):
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            array = halves_of_pairs(array, heads)
        found[to] = Tensor(array, device="numpy")
    return found


def halves_of_pairs(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head (heads · D, C) in the order that rotates halves; GGUF's order rotates neighbours."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
