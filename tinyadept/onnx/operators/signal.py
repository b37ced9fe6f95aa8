"""Fourier transforms, and the bands of sound."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from onnx import TensorProto as P

from ...functional import pad, stack
from ...tensor import Tensor
from ..registry import operator


@lru_cache(maxsize=32)
def waves(n: int, inverse: bool) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines (n, n) of the transform's matrix, whose exponent is negative unless `inverse`."""
    angles = 2 * np.pi * (np.outer(np.arange(n), np.arange(n)) % n) / n
    return np.cos(angles), np.sin(angles) if inverse else -np.sin(angles)


def transformed(x: Tensor, n: int, onesided: bool, inverse: bool = False) -> Tensor:
    """Real or complex numbers along the last axis but one, (…, m, 1 or 2), as n frequencies (…, n, 2).

    Parameters
    ----------
    x : Tensor
        Cut off or filled with zeros to n entries.
    n : int
    onesided : bool
        Forwards, whether only the first n // 2 + 1 frequencies are wanted; of an inverse, whether those are
        given, and the result is real: (…, n, 1).
    inverse : bool
    """
    given = n // 2 + 1 if onesided and inverse else n
    x = x.narrow(-2, 0, min(given, x.shape[-2]))
    x = pad(x, [0, 0, 0, given - x.shape[-2]])
    tables = waves(n, inverse)
    if inverse and onesided:  # a frequency and its mirror image add up to twice the real part
        twice = np.full((n, 1), 2.0)
        twice[0] = 1
        twice[n // 2 :] = 1 if n % 2 == 0 else 2
        tables = tuple((table * twice)[:given] for table in tables)  # type: ignore[assignment]
    elif onesided:
        tables = tuple(table[:, : n // 2 + 1] for table in tables)  # type: ignore[assignment]
    scale = 1 / n if inverse else 1.0
    c, s = (Tensor(table * scale, x.dtype, x.backend) for table in tables)
    real = x[..., 0]
    if x.shape[-1] == 1:
        return stack([real.matmul(c), real.matmul(s)], -1)
    imaginary = x[..., 1]
    first = real.matmul(c) - imaginary.matmul(s)
    if inverse and onesided:
        return first.unsqueeze(-1)
    return stack([first, real.matmul(s) + imaginary.matmul(c)], -1)


@operator("DFT", since=17, reads=(1,))
def dft_along_attribute(node: Any, x: Tensor, length: Tensor | None = None) -> Tensor:
    return dft_along(node, x, length, int(node.get("axis", 1)))


@operator("DFT", since=20, reads=(1, 2))
def dft(node: Any, x: Tensor, length: Tensor | None = None, axis: Tensor | None = None) -> Tensor:
    return dft_along(node, x, length, -2 if axis is None else node.integers(axis)[0])


def dft_along(node: Any, x: Tensor, length: Tensor | None, axis: int) -> Tensor:
    """Discrete Fourier transform of (…, 1 or 2) along an axis, as a product with its matrix."""
    onesided, inverse = bool(node.get("onesided", 0)), bool(node.get("inverse", 0))
    axis = axis % x.ndim
    if axis == x.ndim - 1 or x.shape[-1] not in (1, 2):
        node.refuse(f"axis {axis} of an input of shape {x.shape}: expected real or complex numbers last")
    x = x.transpose(axis, -2)
    usual = 2 * (x.shape[-2] - 1) if onesided and inverse else x.shape[-2]
    n = usual if length is None else node.integers(length)[0]
    return transformed(x, n, onesided, inverse).transpose(axis, -2)


@operator("STFT", since=17, reads=(1, 3))
def stft(
    node: Any, x: Tensor, step: Tensor, window: Tensor | None = None, length: Tensor | None = None
) -> Tensor:
    """Transforms of pieces of a signal (B, length, 1 or 2), as (B, pieces, frequencies, 2)."""
    n = node.integers(length)[0] if length is not None else window.shape[0] if window is not None else 0
    if n < 1 or n > x.shape[1]:
        node.refuse(f"pieces of {n} entries of a signal of shape {x.shape}")
    x = x if x.ndim == 3 else x.unsqueeze(2)
    pieces = x.unfold(1, n, node.integers(step)[0]).transpose(2, 3)  # (B, pieces, n, 1 or 2)
    if window is not None:
        pieces = pieces * window.reshape(n, 1)
    return transformed(pieces, n, bool(node.get("onesided", 1)))


@operator("MelWeightMatrix", since=17, reads=(0, 1, 2, 3, 4))
def mel_weight_matrix(
    node: Any, bins: Tensor, length: Tensor, rate: Tensor, lower: Tensor, upper: Tensor
) -> Tensor:
    """Triangles over the frequencies of a transform, evenly spaced on the mel scale: (frequencies, bands)."""
    bands, n, samples = (node.integers(x)[0] for x in (bins, length, rate))
    low, high = (2595 * np.log10(1 + node.numbers(x)[0] / 700) for x in (lower, upper))
    mel = np.arange(bands + 2) * ((high - low) / (bands + 2)) + low
    edges = ((n + 1) * (700 * (10 ** (mel / 2595) - 1)) // samples).astype(int)
    table = np.zeros(
        (n // 2 + 1, bands), np.float64 if node.get("output_datatype", 1) == P.DOUBLE else np.float32
    )
    for band, (first, peak, last) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        table[peak, band] = 1
        for bin in range(first, peak):
            table[bin, band] = (bin - first) / (peak - first)
        for bin in range(peak, last):
            table[bin, band] = (last - bin) / (last - peak)
    return Tensor(table, table.dtype, node.device)
