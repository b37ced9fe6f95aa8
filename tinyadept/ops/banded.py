"""Convolution of small images with few channels: one matrix product for whole rows.

A row of the result is a row of the input times a banded matrix that repeats the kernel along its diagonal.
The product has W / KW times the arithmetic of im2col, but only the rows are unfolded, KW times less memory
traffic, and one large product runs at the processor's full rate. Shapes as in `window`, of two spatial axes.
"""

from __future__ import annotations

from math import prod

import numpy as np

from ..view import Shape

MOST = 64  # output channels times W / KW up to which this is faster, measured on two x86-64 cores


def fits(kernel: Shape, wide: Shape, out_channels: int, groups: int) -> bool:
    """Whether a convolution of padded images of shape `wide` is faster this way."""
    return groups == 1 and len(kernel) == 2 and kernel[1] > 1 and out_channels * wide[1] <= MOST * kernel[1]


def band(matrix: np.ndarray, kernel: Shape, out: int, stride: int, dilation: int) -> np.ndarray:
    """The cells of a banded matrix (C, KH, W, O, OW) that hold the kernel, as a view (O, C, KH, KW, OW)."""
    c, i, x, o, y = matrix.strides
    shape = (matrix.shape[3], *matrix.shape[:2], kernel[1], out)
    return np.ndarray(shape, matrix.dtype, matrix, 0, (o, c, i, dilation * x, stride * x + y))


def rows_of(x: np.ndarray, kernel: Shape, out: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """What the windows of each row see, whole rows: (N·OH, C·KH·W)."""
    n, c, h, w = x.strides
    shape = (x.shape[0], out[0], x.shape[1], kernel[0], x.shape[3])
    view = np.ndarray(shape, x.dtype, x, 0, (n, stride[0] * h, c, dilation[0] * h, w))
    return view.reshape(x.shape[0] * out[0], prod(shape[2:]))


def matrix_of(w: np.ndarray, width: int, out: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """The banded matrix of a kernel (O, C, KH, KW): (C·KH·W, O·OW)."""
    o, c, *kernel = w.shape
    matrix = np.zeros((c, kernel[0], width, o, out[1]), w.dtype)
    band(matrix, tuple(kernel), out[1], stride[1], dilation[1])[...] = w[..., None]
    return matrix.reshape(c * kernel[0] * width, o * out[1])


def gradient_rows(g: np.ndarray) -> np.ndarray:
    """The outer gradient (N, O, OH, OW) row by row: (N·OH, O·OW)."""
    return g.transpose(0, 2, 1, 3).reshape(g.shape[0] * g.shape[2], g.shape[1] * g.shape[3])


def forward(x: np.ndarray, w: np.ndarray, out: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Of a padded input (N, C, H, W): (N, O, OH, OW)."""
    rows = rows_of(x, w.shape[2:], out, stride, dilation)
    y = rows @ matrix_of(w, x.shape[3], out, stride, dilation)
    return np.ascontiguousarray(y.reshape(x.shape[0], out[0], w.shape[0], out[1]).swapaxes(1, 2))


def to_input(g: np.ndarray, w: np.ndarray, wide: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the padded input: (N, C, H, W)."""
    (n, _, *out), (_, c, *kernel) = g.shape, w.shape
    rows = gradient_rows(g) @ matrix_of(w, wide[1], tuple(out), stride, dilation).T
    rows = rows.reshape(n, out[0], c, kernel[0], wide[1])
    dx = np.zeros((n, c, *wide), g.dtype)
    for i in range(kernel[0]):
        top = i * dilation[0]
        dx[:, :, top : top + stride[0] * (out[0] - 1) + 1 : stride[0]] += rows[:, :, :, i].swapaxes(1, 2)
    return dx


def to_weight(g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """Gradient of the kernel (O, C, KH, KW): the band of the banded matrix's gradient, summed along it."""
    out, kernel = g.shape[2:], shape[2:]
    matrix = rows_of(x, kernel, out, stride, dilation).T @ gradient_rows(g)
    matrix = matrix.reshape(shape[1], kernel[0], x.shape[3], shape[0], out[1])
    return band(matrix, kernel, out[1], stride[1], dilation[1]).sum(-1)
