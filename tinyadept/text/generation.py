"""Text from a language model, token by token."""

from __future__ import annotations

from collections import deque
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


AT_ONCE = 8  # calls of a captured function whose results can wait to be read
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
    ahead: int = 1,
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
    ahead : int
        How many tokens are drawn before the first of them is read, 1 to 8. More are faster on a GPU, where
        waiting may take as long as drawing; those behind the end are drawn in vain.

    Raises
    ------
    ValueError
        If the prompt is empty, or is longer than what the model can see together with the new tokens, or
        `ahead` is out of its range.
    IndexError
        If a token of the prompt is not in the vocabulary.
    """
    prompt = list(prompt)
    check(temperature, top_k, top_p)
    if not 1 <= ahead <= AT_ONCE:
        raise ValueError(f"ahead must be 1 to {AT_ONCE}, got {ahead}")
    size = model.config.vocab_size
    if not prompt:
        raise ValueError("the prompt is empty: a model continues at least one token")
    if (wrong := next((t for t in prompt if not 0 <= t < size), None)) is not None:
        raise IndexError(f"the prompt holds token {wrong}, expected 0 to {size - 1}")
    if len(prompt) + tokens > model.context:
        raise ValueError(
            f"a prompt of {len(prompt)} tokens and {tokens} more exceed the context of {model.context}"
        )
    return following(model, prompt, tokens, (temperature, top_k, top_p, generator), end, ahead)


def following(
    model: Any, prompt: list[int], tokens: int, how: tuple, end: int | None, ahead: int
) -> Iterator[int]:
    backend = next(model.parameters()).backend
    cache = model.cache(capacity=len(prompt) + tokens)
    token = Tensor(np.zeros((1, 1), np.int32), device=backend)  # the last one, for the next step

    def step(ids: Tensor) -> Tensor:
        with no_grad():
            drawn = sample(model(ids, cache, last=True)[:, 0], *how)  # (1,)
            token.copy_(drawn.unsqueeze(0))
        return drawn

    again = capture(lambda: step(token), device=backend)
    waiting = deque([step(Tensor(np.array([prompt], np.int32), device=backend))])
    for count in range(1, tokens + 1):
        found = int(waiting.popleft().item())
        yield found
        if found == end or count == tokens:
            return
        if not waiting:
            waiting.extend([again() for _ in range(min(ahead, tokens - count))])
