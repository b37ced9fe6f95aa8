"""Several workers of one Llama that write at once into one cache, and see each other's tokens as they appear.

Rodionov et al., Hogwild! Inference: parallel LLM generation via concurrent attention, 2025. The cache is a
few blocks: block 0 is the history that all share, block 1 + w is what worker w is writing. Keys are kept
rotated for their place within their block. A worker reads the blocks in an order of its own: the history, the
blocks of other workers, its own one last. So one key stands at another position for each worker; instead of
encoding it again, a *query* is rotated by how far it is from the block's beginning. Shapes: W workers,
N = 1 + W blocks, L capacity of a block, H heads of queries, K heads of keys and values, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from .. import functional as F
from ..capture import capture
from ..creation import arange, zeros
from ..functional.attention import rotary_embedding
from ..ops import attention as rows
from ..ops.elementwise import where
from ..ops.table import apply_into
from ..tape import no_grad
from ..tensor import Tensor
from .generation import sample


class Hogwild:
    """A cache of chat blocks, and workers that fill it token by token, all in one batch.

    Parameters
    ----------
    model : Llama
    prompt : sequence of int
        Tokens that begin the shared history.
    workers : int
    capacity : int
        Tokens that each block has room for.
    how : tuple
        Temperature, top_k, top_p and generator; see `sample`.

    Attributes
    ----------
    lengths : list of int
        How many tokens each block holds.
    texts : list of list of int
        The tokens of each block.

    Raises
    ------
    ValueError
        If the prompt is empty, or what all blocks hold may exceed the model's context.
    """

    def __init__(
        self,
        model: Any,
        prompt: Sequence[int],
        workers: int,
        capacity: int = 512,
        how: tuple = (0.0, None, None, None),
    ):
        if not prompt or workers < 1 or (workers + 1) * capacity > model.context or len(prompt) >= capacity:
            raise ValueError(
                f"{workers} workers and a prompt of {len(prompt)} tokens in blocks of {capacity}: expected "
                f"at least one of both, the prompt in one block, all blocks within {model.context} tokens"
            )
        c, backend = model.config, next(model.parameters()).backend
        shape = (1 + workers, c.num_key_value_heads, capacity, c.head_dim)
        self.keys = [zeros(*shape, device=backend) for _ in range(c.num_hidden_layers)]
        self.values = [zeros(*shape, device=backend) for _ in range(c.num_hidden_layers)]
        self.model, self.workers, self.capacity, self.how = model, workers, capacity, how
        self.lengths, self.texts = [0] * (1 + workers), [[] for _ in range(1 + workers)]
        self.replayed = capture(self.forward, device=backend)
        self.remember(prompt)

    @no_grad()
    def remember(self, prompt: Sequence[int]) -> None:
        """Encode tokens that every worker sees before all others."""
        backend, cache = self.keys[0].backend, self.model.cache(capacity=len(prompt))
        self.model(Tensor(np.array([prompt], np.int32), device=backend), cache, last=True)
        for layer in range(len(self.keys)):
            self.write(layer, 0, cache.keys[layer], cache.values[layer], 0)
        self.lengths[0], self.texts[0] = len(prompt), list(prompt)

    def write(self, layer: int, block: int, keys: Tensor, values: Tensor, at: int) -> None:
        """Put keys and values (1, K, T, D) into a block."""
        start = Tensor(np.array([at], np.int32), device=keys.backend)
        for kept, new in ((self.keys[layer], keys), (self.values[layer], values)):
            base = kept[block : block + 1]
            apply_into(rows.append.op, base, (base, new, start), {})

    # --- one step of all workers -----------------------------------------------------------------------

    def distances(self) -> np.ndarray:
        """How far each worker's next token is from the beginning of each block, as it reads them: (N, W)."""
        n, lengths = self.workers, self.lengths
        found = np.zeros((1 + n, n), np.int32)
        for worker in range(n):
            order = [0, *(1 + other for other in range(n) if other != worker), 1 + worker]
            before = np.cumsum([0, *(lengths[block] for block in order)])
            for place, block in enumerate(order):
                found[block, worker] = before[-1] - before[place]
        return found

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Give each worker a token, and draw the one that follows it.

        Raises
        ------
        IndexError
            If a block is full.
        """
        if max(self.lengths[1:]) >= self.capacity:
            raise IndexError(
                f"a block of {self.capacity} tokens is full: publish() it, or give more capacity"
            )
        distances = self.distances()
        for worker, token in enumerate(tokens):
            self.texts[1 + worker].append(token)
        ids = np.array(tokens, np.int32)[:, None]
        drawn = self.replayed(ids, np.array(self.lengths, np.int32), distances)
        for worker in range(self.workers):
            self.lengths[1 + worker] += 1
        return drawn.numpy().tolist()

    @no_grad()
    def forward(self, ids: Tensor, lengths: Tensor, distances: Tensor) -> Tensor:
        """Tokens (W, 1), how long the blocks (N,) are, and `distances` give the tokens that follow, (W,)."""
        own, backend = lengths[1:], lengths.backend
        ends = lengths + Tensor(np.array([0] + [1] * self.workers, np.int32), device=backend)
        # A replay sees all that there is room for; elsewhere what is filled will do.
        seen = self.capacity if hasattr(backend, "replay") else max(self.lengths) + 1
        hidden = (arange(seen, device=backend) >= ends.unsqueeze(1)).reshape(-1, 1, 1, seen)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            k = rotary_embedding(k, self.model.table, own.unsqueeze(1))
            for kept, new in ((self.keys[layer], k), (self.values[layer], v)):
                base = kept[1:]
                apply_into(rows.append.op, base, (base, new, own), {})
            keys, values = (kept[layer][:, :, :seen] for kept in (self.keys, self.values))
            return self.shared(keys, values, q, distances, hidden)

        return sample(self.model(ids, attend=attend)[:, 0], *self.how)

    def shared(self, keys: Tensor, values: Tensor, q: Tensor, distances: Tensor, hidden: Tensor) -> Tensor:
        """What queries (W, H, 1, D) take of all blocks: one softmax over the keys (N, K, L, D) of all."""
        (n, heads, _, d), w = keys.shape, self.workers
        q = q.permute(2, 1, 0, 3).expand(n, q.shape[1], w, d)
        q = rotary_embedding(q, self.model.table, distances)  # (N, H, W, D)
        scores = q.reshape(n, heads, -1, d) @ keys.mT * (1 / sqrt(d))  # (N, K, H/K·W, L)
        scores = where(hidden, -np.inf, scores).permute(1, 2, 0, 3)
        weights = F.softmax(scores.reshape(*scores.shape[:2], -1), -1).reshape(*scores.shape)
        taken = (weights.permute(2, 0, 1, 3) @ values).sum(0)  # (K, H/K·W, D)
        return taken.reshape(-1, w, d).permute(1, 0, 2).unsqueeze(2)

    # --- paragraphs -------------------------------------------------------------------------------------

    @no_grad()
    def publish(self, worker: int) -> None:
        """Move all that a worker has written to the end of the shared history.

        Its keys are rotated on by as far as they move; nothing is encoded again.

        Raises
        ------
        IndexError
            If the history has no room for it.
        """
        block, count, at = 1 + worker, self.lengths[1 + worker], self.lengths[0]
        if at + count > self.capacity:
            raise IndexError(
                f"a history of {at} tokens has no room for {count} more in a block of {self.capacity}"
            )
        if not count:
            return
        backend = self.keys[0].backend
        moved = Tensor(np.full((1, count), at, np.int32), device=backend)
        for layer, (keys, values) in enumerate(zip(self.keys, self.values, strict=True)):
            turned = rotary_embedding(keys[block : block + 1, :, :count], self.model.table, moved)
            self.write(layer, 0, turned, values[block : block + 1, :, :count].clone(), at)
        self.texts[0] += self.texts[block]
        self.lengths[0], self.lengths[block], self.texts[block] = at + count, 0, []
