"""Text from a language model, token by token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .. import functional as F
from ..capture import capture
from ..ops.elementwise import where
from ..random import Generator, rand
from ..tape import no_grad
from ..tensor import Tensor


def sample(
    logits: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
) -> Tensor:
    """Draw a token for each row, on the device: (B, V) logits give (B,) ids, int32.

    Parameters
    ----------
    logits : Tensor
    temperature : float
        By which the logits are divided; 0 takes the most likely token.
    top_k : int, optional
        Only the k most likely tokens.
    top_p : float, optional
        Only the most likely tokens, until they are so probable together (Holtzman et al., The curious case of
        neural text degeneration, 2020).
    generator : Generator, optional

    Raises
    ------
    ValueError
        If a setting is out of its range.
    """
    check(temperature, top_k, top_p)
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    if top_k is not None and top_k < logits.shape[-1]:
        least = logits.topk(top_k, dim=-1).values[:, -1:]
        logits = where(logits < least, -np.inf, logits)
    if top_p is not None and top_p < 1:
        ordered = logits.sort(dim=-1, descending=True).values
        before = F.softmax(ordered, -1).cumsum(-1) - F.softmax(ordered, -1)
        least = where(before < top_p, ordered, np.inf).amin(-1, keepdim=True)
        logits = where(logits < least, -np.inf, logits)
    # The largest of logits with Gumbel noise is a draw from their softmax (Gumbel, 1954).
    noise = rand(logits.shape, generator=generator, device=logits.backend)
    return (logits - (-(noise + TINY).log()).log()).argmax(-1)


TINY = 2.0**-33  # below the steps of `rand`, so that the logarithm is finite


def check(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if not temperature >= 0:
        raise ValueError(f"temperature must not be negative, got {temperature}")
    if top_k is not None and top_k < 1:
        raise ValueError(f"top_k must be at least 1, got {top_k}")
    if top_p is not None and not 0 < top_p <= 1:
        raise ValueError(f"top_p must lie in (0, 1], got {top_p}")


def generate(
    model: Any,
    prompt: Sequence[int],
    tokens: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    generator: Generator | None = None,
    end: int | None = None,
) -> Iterator[int]:
    """Token ids that follow a prompt, one after another.

    Parameters
    ----------
    model : GPT2 or Llama
    prompt : sequence of int
    tokens : int
        How many at most.
    temperature, top_k, top_p, generator
        See `sample`.
    end : int, optional
        A token behind which nothing follows; it is given as the last one.

    Raises
    ------
    ValueError
        If the prompt is empty, or is longer than what the model can see together with the new tokens.
    IndexError
        If a token of the prompt is not in the vocabulary.
    """
    prompt = list(prompt)
    check(temperature, top_k, top_p)
    size = model.config.vocab_size
    if not prompt:
        raise ValueError("the prompt is empty: a model continues at least one token")
    if (wrong := next((t for t in prompt if not 0 <= t < size), None)) is not None:
        raise IndexError(f"the prompt holds token {wrong}, expected 0 to {size - 1}")
    if len(prompt) + tokens > model.context:
        raise ValueError(
            f"a prompt of {len(prompt)} tokens and {tokens} more exceed the context of {model.context}"
        )
    return following(model, prompt, tokens, (temperature, top_k, top_p, generator), end)


def following(model: Any, prompt: list[int], tokens: int, how: tuple, end: int | None) -> Iterator[int]:
    backend = next(model.parameters()).backend
    cache = model.cache(capacity=len(prompt) + tokens)

    def step(ids: Tensor) -> Tensor:
        with no_grad():
            return sample(model(ids, cache, last=True)[:, 0], *how)  # (1,)

    again = capture(step, device=backend)
    drawn = step(Tensor(np.array([prompt], np.int32), device=backend))
    for count in range(1, tokens + 1):
        token = int(drawn.item())
        yield token
        if token == end or count == tokens:
            return
        drawn = again(np.array([[token]], np.int32))
