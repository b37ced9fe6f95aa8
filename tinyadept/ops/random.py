"""Counter-based random numbers: the same bits on every device.

Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, SC11). The state is an int32
tensor of four words, (key low, key high, counter low, counter high). Element i of a draw is word ``i % 4``
of block ``counter + i // 4``, so that no element depends on another.
"""

from __future__ import annotations

from math import pi, prod
from typing import Any

import numpy as np

from .. import dtypes
from ..view import Shape
from .table import Family, define

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = np.array([0x9E3779B9, 0xBB67AE85], np.uint32)
LOW_WORD, WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    (state,) = inputs
    if state.shape != (4,) or state.dtype != dtypes.int32:
        raise ValueError(f"{op.name} takes a state of four int32 words, got {state.dtype.name} {state.shape}")
    return inputs, params["shape"], op.gives


def infer_advance(op: Any, inputs: tuple, params: dict) -> tuple:
    return inputs, (4,), dtypes.int32


drawing = Family("random", infer)
advancing = Family("advance", infer_advance)


def philox(state: np.ndarray, blocks: int) -> np.ndarray:
    """Four random words for each of the next blocks, as uint32 of shape (blocks, 4)."""
    words = state.astype(np.int32).view(np.uint32)
    key = words[:2].copy()
    start = np.uint64(words[2]) | np.uint64(words[3]) << WORD
    counter = start + np.arange(blocks, dtype=np.uint64)
    c = [counter & LOW_WORD, counter >> WORD, np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)]
    for _ in range(10):
        first, second = MULTIPLIERS[0] * c[0], MULTIPLIERS[1] * c[2]
        c = [
            (second >> WORD) ^ c[1] ^ key[0],
            second & LOW_WORD,
            (first >> WORD) ^ c[3] ^ key[1],
            first & LOW_WORD,
        ]
        key += KEY_STEPS
    return np.stack(c, axis=-1).astype(np.uint32)


def words(state: np.ndarray, count: int) -> np.ndarray:
    return philox(state, -(-count // 4)).ravel()[:count]


def np_uniform(state: np.ndarray, shape: Shape) -> np.ndarray:
    """Multiples of 2⁻²⁴ in [0, 1)."""
    return ((words(state, prod(shape)) >> np.uint32(8)) * 2.0**-24).astype(np.float32).reshape(shape)


def np_normal(state: np.ndarray, shape: Shape) -> np.ndarray:
    """Box and Muller: words 2j and 2j + 1 give a radius and an angle, and so elements 2j and 2j + 1."""
    count = prod(shape)
    pairs = words(state, count + count % 2).reshape(-1, 2) >> np.uint32(8)
    radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1.0) * 2.0**-24))
    angle = 2 * pi * (pairs[:, 1] * 2.0**-24)
    both = np.stack([radius * np.cos(angle), radius * np.sin(angle)], axis=-1)
    return both.ravel()[:count].astype(np.float32).reshape(shape)


def np_advance(state: np.ndarray, blocks: int) -> np.ndarray:
    now = state.view(np.uint32)
    counter = (int(now[2]) | int(now[3]) << 32) + blocks
    return np.array([now[0], now[1], counter & 0xFFFFFFFF, counter >> 32 & 0xFFFFFFFF], np.uint32).view(
        np.int32
    )


random_bits = define(
    drawing,
    "random_bits",
    lambda state, shape: words(state, prod(shape)).view(np.int32).reshape(shape),
    None,
    gives=dtypes.int32,
)
uniform = define(drawing, "uniform", np_uniform, None, gives=dtypes.float32)
normal = define(drawing, "normal", np_normal, None, gives=dtypes.float32)
advance = define(advancing, "advance", np_advance, None)
