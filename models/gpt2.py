"""GPT-2.

Radford et al., Language models are unsupervised multitask learners, 2019. State dicts have the names that
Hugging Face gives them.
Shapes: B batch, T tokens, C width, H heads, D = C / H, V vocabulary.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from math import sqrt
from pathlib import Path
from typing import Any

from tinyadept import functional as F
from tinyadept import io, nn
from tinyadept.creation import arange, zeros
from tinyadept.nn import init
from tinyadept.ops import attention as rows
from tinyadept.tensor import Tensor
from tinyadept.text.cache import KeyValueCache

SIZES = {"small": (12, 12, 768), "medium": (24, 16, 1024), "large": (36, 20, 1280), "xl": (48, 25, 1600)}


@dataclass(frozen=True)
class Config:
    """What a GPT-2 is made of, by Hugging Face's names; `dropout` is of embeddings and of what blocks add."""

    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    vocab_size: int = 50257
    n_positions: int = 1024
    layer_norm_epsilon: float = 1e-5
    dropout: float = 0.0


class Conv1D(nn.Module):
    """A linear layer whose weight is kept as (in, out), as in the original's files."""

    def __init__(self, n_in: int, n_out: int, std: float = 0.02):
        super().__init__()
        self.weight = nn.Parameter(zeros(n_in, n_out))
        self.bias = nn.Parameter(zeros(n_out))
        init.normal_(self.weight, std=std)

    def forward(self, x: Tensor, activation: str | None = None, residual: Tensor | None = None) -> Tensor:
        return F.linear(x, self.weight.mT, self.bias, activation=activation, residual=residual)


class Attention(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        c = config.n_embd
        self.heads = config.n_head
        self.c_attn = Conv1D(c, 3 * c)
        self.c_proj = Conv1D(c, c, 0.02 / sqrt(2 * config.n_layer))

    def forward(
        self, x: Tensor, start: Tensor, cache: KeyValueCache | None, layer: int, residual: Tensor | None
    ) -> Tensor:
        b, t, c = x.shape
        qkv = self.c_attn(x).reshape(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, H, T, D) each
        if cache is not None:
            k, v = cache.append(layer, k, v)  # (B, H, capacity, D)
        y = rows.attention(q, k, v, start, scale=1 / sqrt(c // self.heads))
        return self.c_proj(y.permute(0, 2, 1, 3).reshape(b, t, c), residual=residual)


class MLP(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = Conv1D(config.n_embd, 4 * config.n_embd)
        self.c_proj = Conv1D(4 * config.n_embd, config.n_embd, 0.02 / sqrt(2 * config.n_layer))

    def forward(self, x: Tensor, residual: Tensor | None) -> Tensor:
        return self.c_proj(self.c_fc(x, "gelu_tanh"), residual=residual)


class Block(nn.Module):
    def __init__(self, config: Config, layer: int):
        super().__init__()
        self.layer = layer
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, start: Tensor, cache: KeyValueCache | None) -> Tensor:
        if self.training and self.drop.p:
            x = x + self.drop(self.attn(self.ln_1(x), start, cache, self.layer, None))
            return x + self.drop(self.mlp(self.ln_2(x), None))
        x = self.attn(self.ln_1(x), start, cache, self.layer, x)  # added as the product is written
        return self.mlp(self.ln_2(x), x)


class Transformer(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.drop = nn.Dropout(config.dropout)
        self.h = nn.ModuleList([Block(config, layer) for layer in range(config.n_layer)])
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        init.normal_(self.wte.weight, std=0.02)
        init.normal_(self.wpe.weight, std=0.02)


class GPT2(nn.Module):
    """A decoder of tokens: (B, T) ids give the logits (B, T, V) of the tokens that follow.

    Parameters
    ----------
    size : str or Config
        "small" (124 million parameters), "medium", "large", "xl", or a configuration of one's own.

    Raises
    ------
    ValueError
        If the size has no such name, or the width does not divide into heads.
    """

    def __init__(self, size: str | Config = "small"):
        super().__init__()
        if isinstance(size, str) and size not in SIZES:
            raise ValueError(f"GPT-2 comes in the sizes {', '.join(SIZES)}, got {size!r}")
        config = Config(*SIZES[size]) if isinstance(size, str) else size
        if config.n_embd % config.n_head:
            raise ValueError(f"GPT-2: a width of {config.n_embd} does not divide into {config.n_head} heads")
        self.config = config
        self.transformer = Transformer(config)

    def forward(self, ids: Tensor, cache: KeyValueCache | None = None, last: bool = False) -> Tensor:
        """Logits.

        Parameters
        ----------
        ids : Tensor
            (B, T), integers.
        cache : KeyValueCache, optional
            Of the tokens before these, which join them.
        last : bool
            Whether only the logits behind the last token are wanted, (B, 1, V).

        Raises
        ------
        ValueError
            If there are more tokens than positions.
        IndexError
            If an id is not in the vocabulary, or the cache is full.
        """
        (b, t), net = ids.shape, self.transformer
        if t > self.config.n_positions:
            raise ValueError(f"GPT-2: {t} tokens, expected at most {self.config.n_positions}")
        if cache is None:
            start, positions = zeros(b, dtype="int32", device=ids.backend), arange(t, device=ids.backend)
        else:
            start, positions = cache.start, cache.positions(t)
        x = net.drop(net.wte(ids) + net.wpe(positions))  # (B, T, C)
        for block in net.h:
            x = block(x, start, cache)
        if cache is not None:
            cache.advance(t)
        return F.linear(net.ln_f(x[:, -1:] if last else x), net.wte.weight)

    def cache(self, batch: int = 1, capacity: int | None = None) -> KeyValueCache:
        """An empty cache for this model, on its device."""
        c = self.config
        capacity = min(capacity or c.n_positions, c.n_positions)
        device = self.transformer.wte.weight.backend
        return KeyValueCache(c.n_layer, batch, c.n_head, capacity, c.n_embd // c.n_head, device)

    @property
    def context(self) -> int:
        """How many tokens it can see."""
        return self.config.n_positions

    @classmethod
    def from_file(cls, path: str | os.PathLike, device: Any = None) -> GPT2:
        """Read ``model.safetensors`` as Hugging Face writes it, and ``config.json`` beside it.

        Parameters
        ----------
        path : str or path
            The file, or the folder of both.
        device : str, optional

        Raises
        ------
        ValueError
            If weights or configuration do not fit together.
        FileNotFoundError
            If a file is missing.
        """
        path = Path(path)
        path = path / "model.safetensors" if path.is_dir() else path
        told = json.loads((path.parent / "config.json").read_text())
        names = {field.name for field in fields(Config)}
        with init.skipped():
            model = cls(Config(**{name: value for name, value in told.items() if name in names}))
        model.load_state_dict(renamed(io.load(path, device="numpy")), assign=True)
        return model if device is None else model.to(device)


def renamed(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights by this module's names: files may lack the prefix, hold masks, and name the tied head only."""
    weights = {f"transformer.{name.removeprefix('transformer.')}": x for name, x in weights.items()}
    head = weights.pop("transformer.lm_head.weight", None)
    if head is not None:
        weights.setdefault("transformer.wte.weight", head)
    masks = (".attn.bias", ".attn.masked_bias")
    return {name: x for name, x in weights.items() if not name.endswith(masks)}
