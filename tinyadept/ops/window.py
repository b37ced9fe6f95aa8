"""Ops that slide a window over the last axes: convolution and pooling, in any number of dimensions.

Shapes: N batch, C channels in, O channels out, G groups, K window cells, P window positions. Convolution is a matrix
product over the cells that each window sees (im2col), done for a few samples at a time so that memory stays bounded.
Its three forms close under differentiation: conv, conv_input (a transposed convolution) and conv_weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from .. import dtypes
from ..view import Shape
from .table import Family, backend_of, compute_dtype, define, lifted, operands

Pairs = tuple[tuple[int, int], ...]
CHUNK_BYTES = 4 << 20  # of unfolded windows held at a time: about a core's share of the cache


def positions(length: int, kernel: int, stride: int, pad: tuple[int, int], dilation: int) -> int:
    """How many windows fit along an axis.

    Raises
    ------
    ValueError
        If not even one does.
    """
    count = (length + pad[0] + pad[1] - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ValueError(
            f"a window of {kernel} cells with dilation {dilation} does not fit an axis of {length} padded by {pad}"
        )
    return count


def infer_conv(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (N, C, …), w (O, C/G, …) give (N, O, …)."""
    x, w = operands(op, inputs)
    groups = params["groups"]
    if x.ndim != w.ndim or x.ndim < 3:
        raise ValueError(f"conv: input of shape {x.shape} and weight of shape {w.shape}: expected (N, C, …) and (O, C/G, …)")
    if groups < 1 or x.shape[1] != w.shape[1] * groups or w.shape[0] % groups:
        raise ValueError(f"conv: input {x.shape} and weight {w.shape} do not fit {groups} groups")
    spatial = tuple(map(positions, x.shape[2:], w.shape[2:], params["stride"], params["padding"], params["dilation"]))
    dtype = compute_dtype(op, [x, w])
    return tuple(lifted(op, [x, w], dtype, backend_of(op, [x, w]))), (x.shape[0], w.shape[0], *spatial), dtype


def infer_given_shape(op: Any, inputs: tuple, params: dict) -> tuple:
    inputs = operands(op, inputs)
    return tuple(inputs), params["shape"], inputs[0].dtype


def infer_pool(op: Any, inputs: tuple, params: dict) -> tuple:
    """x (N, C, …) gives (N, C, positions…)."""
    x = operands(op, inputs)[0]
    return (x,), x.shape[:2] + params["windows"], op.gives or compute_dtype(op, [x])


def infer_pool_take(op: Any, inputs: tuple, params: dict) -> tuple:
    return inputs, inputs[1].shape, inputs[0].dtype


convolution = Family("conv", infer_conv)
convolution_back = Family("conv_back", infer_given_shape)
pooling = Family("pool", infer_pool)
pooling_back = Family("pool_back", infer_given_shape)
pool_picking = Family("pool_take", infer_pool_take)


# --- convolution ------------------------------------------------------------------------------------------------------


def padded(x: np.ndarray, padding: Pairs, fill: float = 0) -> np.ndarray:
    """The last axes with cells added before and after; negative counts take cells away."""
    if not any(map(any, padding)):
        return x
    lead = x.ndim - len(padding)
    out = np.full(x.shape[:lead] + tuple(n + a + b for n, (a, b) in zip(x.shape[lead:], padding)), fill, x.dtype)
    into = tuple(slice(max(a, 0), a + n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    taken = tuple(slice(max(-a, 0), n + min(b, 0)) for n, (a, b) in zip(x.shape[lead:], padding))
    out[(..., *into)] = x[(..., *taken)]
    return out


def unfolded(x: np.ndarray, kernel: Shape, out: Shape, stride: Shape, dilation: Shape) -> np.ndarray:
    """A view (N, C, kernel…, positions…) of what each window sees."""
    n, c, *steps = x.strides
    cells = [s * d for s, d in zip(steps, dilation, strict=True)]
    jumps = [s * d for s, d in zip(steps, stride, strict=True)]
    return np.lib.stride_tricks.as_strided(x, (*x.shape[:2], *kernel, *out), (n, c, *cells, *jumps), writeable=False)


def chunks(samples: int, bytes_each: int) -> Iterator[slice]:
    step = max(1, CHUNK_BYTES // max(bytes_each, 1))
    return (slice(start, min(start + step, samples)) for start in range(0, samples, step))


def columns(x: np.ndarray, kernel: Shape, out: Shape, groups: int, params: dict) -> Iterator[tuple[slice, np.ndarray]]:
    """Chunks of samples with their windows unfolded: (n, G, C/G·K, P)."""
    n, c = x.shape[:2]
    inner, cells = c // groups * prod(kernel), prod(out)
    x = padded(x, params["padding"])
    view = unfolded(x, kernel, out, params["stride"], params["dilation"])
    for part in chunks(n, groups * inner * cells * x.itemsize):
        yield part, view[part].reshape(part.stop - part.start, groups, inner, cells)


def np_conv(x: np.ndarray, w: np.ndarray, stride: Shape, padding: Pairs, dilation: Shape, groups: int) -> np.ndarray:
    kernel = w.shape[2:]
    out = tuple(map(positions, x.shape[2:], kernel, stride, padding, dilation))
    y = np.empty((x.shape[0], groups, w.shape[0] // groups, prod(out)), x.dtype)
    flat = w.reshape(groups, w.shape[0] // groups, -1)  # (G, O/G, C/G·K)
    where = {"stride": stride, "padding": padding, "dilation": dilation}
    for part, cols in columns(x, kernel, out, groups, where):
        np.matmul(flat, cols, out=y[part])  # (n, G, O/G, P)
    return y.reshape(x.shape[0], w.shape[0], *out)


def np_conv_input(
    g: np.ndarray, w: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    kernel, out = w.shape[2:], g.shape[2:]
    wide = tuple(n + a + b for n, (a, b) in zip(shape[2:], padding))
    dx = np.zeros((*shape[:2], *wide), g.dtype)
    flat = np.ascontiguousarray(w.reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2))  # (G, C/G·K, O/G)
    rows = g.reshape(g.shape[0], groups, -1, prod(out))  # (N, G, O/G, P)
    for part in chunks(g.shape[0], flat.shape[0] * flat.shape[1] * prod(out) * g.itemsize):
        cols = np.matmul(flat, rows[part]).reshape(-1, shape[1], *kernel, *out)
        target = dx[part]
        for cell in product(*map(range, kernel)):
            spots = (slice(k * d, k * d + s * (n - 1) + 1, s) for k, d, s, n in zip(cell, dilation, stride, out))
            target[(..., *spots)] += cols[(slice(None), slice(None), *cell)]
    crop = tuple(slice(a, a + n) for n, (a, _) in zip(shape[2:], padding))
    return dx[(..., *crop)] if any(map(any, padding)) else dx


def np_conv_weight(
    g: np.ndarray, x: np.ndarray, shape: Shape, stride: Shape, padding: Pairs, dilation: Shape, groups: int
) -> np.ndarray:
    out = g.shape[2:]
    rows = g.reshape(g.shape[0], groups, -1, prod(out))  # (N, G, O/G, P)
    dw = np.zeros((groups, shape[0] // groups, prod(shape[1:])), g.dtype)
    where = {"stride": stride, "padding": padding, "dilation": dilation}
    for part, cols in columns(x, shape[2:], out, groups, where):
        dw += np.matmul(rows[part], cols.swapaxes(-1, -2)).sum(0)
    return dw.reshape(shape)


conv = define(
    convolution,
    "conv",
    np_conv,
    lambda g, out, x, w, **p: conv_input(g, w, shape=x.shape, **p),
    lambda g, out, x, w, **p: conv_weight(g, x, shape=w.shape, **p),
    takes="number",
)
conv_input = define(
    convolution_back,
    "conv_input",
    np_conv_input,
    lambda h, out, g, w, shape, **p: conv(h, w, **p),
    lambda h, out, g, w, shape, **p: conv_weight(g, h, shape=w.shape, **p),
)
conv_weight = define(
    convolution_back,
    "conv_weight",
    np_conv_weight,
    lambda h, out, g, x, shape, **p: conv(x, h, **p),
    lambda h, out, g, x, shape, **p: conv_input(g, h, shape=x.shape, **p),
)


# --- pooling: `windows` tells how many there are, so that ceil_mode needs no second rule ------------------------


def spread(x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape, fill: float):
    """The input padded so far that every window, also one that ceil_mode added, lies inside."""
    reach = (s * (o - 1) + d * (k - 1) + 1 for s, o, d, k in zip(stride, windows, dilation, kernel))
    after = (max(r - n - p, 0) for r, n, p in zip(reach, x.shape[2:], padding))
    return padded(x, tuple(zip(padding, after)), fill)


def seen(cell: tuple, stride: Shape, dilation: Shape, windows: Shape) -> tuple:
    """Where in the padded input each window has this cell."""
    steps = zip(cell, stride, dilation, windows)
    return (..., *(slice(k * d, k * d + s * (o - 1) + 1, s) for k, s, d, o in steps))


def np_pool_index(x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape, windows: Shape) -> np.ndarray:
    """Flat position, within the last axes, of each window's maximum: the first of equals, NaN before all."""
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min if x.dtype.kind != "b" else False
    wide = spread(x, kernel, stride, padding, dilation, windows, lowest)
    lines = [s * np.arange(o) - p for s, o, p in zip(stride, windows, padding)]  # where each window begins
    entry = [np.where(a < 0, a + -(a // d) * d, a) for a, d in zip(lines, dilation)]  # its first real cell
    pitch = [prod(x.shape[2 + a + 1 :]) for a in range(len(windows))]
    flat = sum(np.ix_(*(a * p for a, p in zip(entry, pitch))), start=np.zeros(windows, np.int64))
    index = np.broadcast_to(flat.astype(np.int32), (*x.shape[:2], *windows)).copy()
    base = sum(np.ix_(*(a * p for a, p in zip(lines, pitch))), start=np.zeros(windows, np.int64)).astype(np.int32)
    best = None
    for cell in product(*map(range, kernel)):
        found = wide[seen(cell, stride, dilation, windows)]
        if best is None:
            best = np.array(found)
            continue
        better = found > best
        if x.dtype.kind == "f":
            better |= np.isnan(found) & ~np.isnan(best)
        np.copyto(best, found, where=better)
        np.copyto(index, base + np.int32(sum(k * d * p for k, d, p in zip(cell, dilation, pitch))), where=better)
    return index


def np_pool_take(x: np.ndarray, index: np.ndarray) -> np.ndarray:
    flat = x.reshape(x.shape[0] * x.shape[1], -1)
    start = np.arange(flat.shape[0])[:, None] * flat.shape[1]
    return flat.ravel()[(index.reshape(flat.shape[0], -1) + start)].reshape(index.shape)


def np_pool_put(g: np.ndarray, index: np.ndarray, shape: Shape) -> np.ndarray:
    if g.size == 0:
        return np.zeros(shape, g.dtype)
    planes, cells = shape[0] * shape[1], prod(shape[2:])
    spots = index.reshape(planes, -1) + np.arange(planes)[:, None] * cells
    return np.bincount(spots.ravel(), g.ravel(), planes * cells).reshape(shape).astype(g.dtype)


def np_avg_pool(x: np.ndarray, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape) -> np.ndarray:
    ones = (1,) * len(kernel)
    wide = spread(x, kernel, stride, padding, ones, windows, 0)
    total = np.zeros((*x.shape[:2], *windows), x.dtype)
    for cell in product(*map(range, kernel)):
        total += wide[seen(cell, stride, ones, windows)]
    return total / shares(x.shape[2:], kernel, stride, padding, divisor, windows).astype(x.dtype)


def np_avg_pool_input(
    g: np.ndarray, shape: Shape, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape
) -> np.ndarray:
    ones = (1,) * len(kernel)
    each = g / shares(shape[2:], kernel, stride, padding, divisor, windows).astype(g.dtype)
    wide = spread(np.zeros(shape, g.dtype), kernel, stride, padding, ones, windows, 0)
    for cell in product(*map(range, kernel)):
        wide[seen(cell, stride, ones, windows)] += each
    return wide[(..., *(slice(p, p + n) for p, n in zip(padding, shape[2:])))]


def shares(spatial: Shape, kernel: Shape, stride: Shape, padding: Shape, divisor: Any, windows: Shape) -> np.ndarray:
    """By what each window's sum is divided: a fixed number, or the cells it covers with or without padding.

    Cells beyond the far padding, which ceil_mode may reach, never count.
    """
    if not isinstance(divisor, str):
        return np.full(windows, divisor)
    counts = []
    for n, k, s, p, o in zip(spatial, kernel, stride, padding, windows):
        start = s * np.arange(o) - p
        end = np.minimum(start + k, n + p)
        if divisor == "inside":
            start, end = np.maximum(start, 0), np.minimum(end, n)
        counts.append(np.maximum(end - start, 0))
    return prod(np.ix_(*counts), start=np.ones(windows))


pool_index = define(pooling, "pool_index", np_pool_index, None, gives=dtypes.int32)
pool_take = define(
    pool_picking,
    "pool_take",
    np_pool_take,
    lambda g, out, x, index: pool_put(g, index, shape=x.shape),
    None,
)
pool_put = define(
    pooling_back,
    "pool_put",
    np_pool_put,
    lambda h, out, g, index, shape: pool_take(h, index),
    None,
)
avg_pool = define(
    pooling,
    "avg_pool",
    np_avg_pool,
    lambda g, out, x, **p: avg_pool_input(g, shape=x.shape, **p),
    takes="strict float",
)
avg_pool_input = define(
    pooling_back,
    "avg_pool_input",
    np_avg_pool_input,
    lambda h, out, g, shape, **p: avg_pool(h, **p),
)
