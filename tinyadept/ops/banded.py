"""Convolution of small images with few channels: one matrix product for whole stretches of rows.

A stretch of a result's row is a stretch of input rows times a banded matrix that repeats the kernel along its
diagonal. The product has more arithmetic than im2col, by the width of its matrix over the kernel's, but only
stretches are unfolded, which is several times less memory traffic, and one large product runs at full rate.
Shapes as in `window`, of two spatial axes; S stretches of Q results see P cells each.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..view import Shape, row_major

MOST = 64  # output channels times W / KW up to which this is faster, measured on two x86-64 cores


def fits(kernel: Shape, wide: Shape, out_channels: int, groups: int) -> bool:
    """Whether a convolution of padded images of shape `wide` is faster this way."""
    return groups == 1 and len(kernel) == 2 and kernel[1] > 1 and out_channels * wide[1] <= MOST * kernel[1]


def stretch(out: int, kernel: int) -> int:
    """How many results of a row are computed together: the fewest that divide it and are twice the kernel."""
    return next(q for q in range(min(2 * kernel, out), out + 1) if out % q == 0)


def seen(results: int, kernel: int, stride: int, dilation: int) -> int:
    """How many neighbouring cells so many neighbouring results see."""
    return (results - 1) * stride + (kernel - 1) * dilation + 1


def band(matrix: np.ndarray, kernel: int, stride: int, dilation: int) -> np.ndarray:
    """The cells of a banded matrix (C, KH, P, O, Q) that hold the kernel, as a view (O, C, KH, KW, Q)."""
    c, i, x, o, q = matrix.strides
    shape = (matrix.shape[3], *matrix.shape[:2], kernel, matrix.shape[4])
    return np.ndarray(shape, matrix.dtype, matrix, 0, (o, c, i, dilation * x, stride * x + q))


def unfolded(
    x: np.ndarray, kernel: Shape, out: Shape, stride: Shape, dilation: Shape, one: bool = False
) -> np.ndarray:
    """What each stretch of results sees, and a `one` behind it if asked: (N·OH·S, C·KH·P)."""
    q = stretch(out[1], kernel[1])
    n, c, h, w = x.strides
    shape = (
        x.shape[0],
        out[0],
        out[1] // q,
        x.shape[1],
        kernel[0],
        seen(q, kernel[1], stride[1], dilation[1]),
    )
    steps = (n, stride[0] * h, q * stride[1] * w, c, dilation[0] * h, w)
    view = np.ndarray(shape, x.dtype, x, 0, steps)
    rows, cells = prod(shape[:3]), prod(shape[3:])
    if not one:
        return view.reshape(rows, cells)
    unfolded = np.empty((rows, cells + 1), x.dtype)
    unfolded[:, cells] = 1
    pitch = (cells + 1) * x.itemsize
    places = (out[0] * shape[2] * pitch, shape[2] * pitch, pitch)
    within = tuple(step * x.itemsize for step in row_major(shape[3:]))
    np.ndarray(shape, x.dtype, unfolded, 0, (*places, *within))[...] = view
    return unfolded


def matrix_of(
    w: np.ndarray, out: Shape, stride: Shape, dilation: Shape, bias: np.ndarray | None = None
) -> np.ndarray:
    """The banded matrix of a kernel (O, C, KH, KW), below it the bias: (C·KH·P, O·Q)."""
    o, c, kh, kw = w.shape
    q = stretch(out[1], kw)
    shape = (c, kh, seen(q, kw, stride[1], dilation[1]), o, q)
    matrix = np.zeros((prod(shape[:3]) + (bias is not None), o * q), w.dtype)
    band(matrix[: prod(shape[:3])].reshape(shape), kw, stride[1], dilation[1])[...] = w[..., None]
    if bias is not None:
        matrix[-1].reshape(o, q)[...] = bias[:, None]
    return matrix


def gradient_rows(g: np.ndarray, kernel: int) -> np.ndarray:
    """The outer gradient (N, O, OH, OW), one row a stretch: (N·OH·S, O·Q)."""
    n, o, oh, ow = g.shape
    q = stretch(ow, kernel)
    return g.reshape(n, o, oh, ow // q, q).transpose(0, 2, 3, 1, 4).reshape(n * oh * (ow // q), o * q)


def forward(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, out: Shape, stride: Shape, dilation: Shape
) -> np.ndarray:
    """Of a padded input (N, C, H, W): (N, O, OH, OW)."""
    q, one = stretch(out[1], w.shape[3]), bias is not None
    cells = unfolded(x, w.shape[2:], out, stride, dilation, one)
    y = cells @ matrix_of(w, out, stride, dilation, bias)
    y = y.reshape(x.shape[0], out[0], out[1] // q, w.shape[0], q).transpose(0, 3, 1, 2, 4)
    return np.ascontiguousarray(y).reshape(x.shape[0], w.shape[0], *out)


def to_input(g: np.ndarray, w: np.ndarray, wide: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the padded input: (N, C, H, W)."""
    (n, _, *out), (_, c, kh, kw) = g.shape, w.shape
    q = stretch(out[1], kw)
    cells = gradient_rows(g, kw) @ matrix_of(w, tuple(out), stride, dilation).T
    cells = cells.reshape(n, out[0], out[1] // q, c, kh, -1 if cells.size else 1)
    dx = np.zeros((n, c, *wide), g.dtype)
    for i in range(kh):
        rows = slice(i * dilation[0], i * dilation[0] + stride[0] * (out[0] - 1) + 1, stride[0])
        for s in range(out[1] // q):
            left = s * q * stride[1]
            dx[:, :, rows, left : left + cells.shape[-1]] += cells[:, :, s, :, i].swapaxes(1, 2)
    return dx


def to_weight(g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the kernel (O, C, KH, KW): the band of the banded matrix's gradient, summed along it."""
    out, (o, c, kh, kw) = g.shape[2:], shape
    matrix = unfolded(x, shape[2:], out, stride, dilation).T @ gradient_rows(g, kw)
    q = stretch(out[1], kw)
    matrix = matrix.reshape(c, kh, seen(q, kw, stride[1], dilation[1]), o, q)
    return band(matrix, kw, stride[1], dilation[1]).sum(-1)
