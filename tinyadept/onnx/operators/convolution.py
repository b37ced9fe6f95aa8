"""Convolutions and what is made of them."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ... import functional as F
from ...dtypes import int32
from ...ops import window
from ...tensor import Tensor
from ..registry import operator
from .sampling import linear
from .windows import Windows, halves, pads, steps, windows


@operator("Conv")
def conv(node: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    kernel = w.shape[2:]
    at = windows(node, x.shape[2:], kernel)
    padding = at.padding
    if any(p < 0 for pair in padding for p in pair):
        x, padding = F.pad(x, [p for pair in padding[::-1] for p in pair]), ((0, 0),) * len(kernel)
    given = (x, w) if b is None else (x, w, b)
    after = {"activation": node.activation} if node.activation else {}
    groups = node.get("group", 1)
    return window.conv(
        *given, stride=at.stride, padding=padding, dilation=at.dilation, groups=groups, **after
    )


@operator("ConvTranspose")
def conv_transpose(node: Any, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
    kernel, groups = w.shape[2:], node.get("group", 1)
    stride, dilation = steps(node, kernel)
    extra = tuple(node.get("output_padding") or (0,) * len(kernel))
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    full = tuple((n - 1) * s + r + e for n, s, r, e in zip(x.shape[2:], stride, reach, extra))
    auto, out = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if out is None and auto in ("SAME_UPPER", "SAME_LOWER"):
        out = [n * s for n, s in zip(x.shape[2:], stride)]
    if out is not None:
        out = tuple(out)[-len(kernel) :]
        # Of an odd cell, SAME_UPPER and no mode at all differ here from what they are in Conv.
        side = "SAME_UPPER" if auto == "SAME_UPPER" else "SAME_LOWER"
        padding = tuple(halves(max(n - m, 0), side) for n, m in zip(full, out))
    else:
        padding = ((0, 0),) * len(kernel) if auto == "VALID" else pads(node, len(kernel))
        out = tuple(n - before - after for n, (before, after) in zip(full, padding))
    if any(n < 1 for n in out):
        node.refuse(f"an input of shape {x.shape} gives positions {out}")
    shape = (x.shape[0], w.shape[1] * groups, *out)
    y = window.conv_input(x, w, shape=shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    return y if b is None else y + b.reshape(-1, *(1,) * len(kernel))


@operator("ConvInteger")
def conv_integer(
    node: Any, x: Tensor, w: Tensor, xz: Tensor | None = None, wz: Tensor | None = None
) -> Tensor:
    return conv(node, shifted(x, xz), shifted(w, wz, 0))


def shifted(x: Tensor, zero: Tensor | None, axis: int | None = None) -> Tensor:
    """An 8-bit tensor as int32, less its zero point: one, or one for each entry of an axis."""
    x = x.to(int32)
    if zero is None:
        return x
    zero = zero.to(int32)
    if zero.numel() == 1:
        return x - zero.reshape(())
    line = [1] * x.ndim
    line[axis or 0] = -1
    return x - zero.reshape(*line)


@operator("Col2Im", since=18, reads=(1, 2))
def col2im(node: Any, x: Tensor, image: Tensor, block: Tensor) -> Tensor:
    """Blocks (N, C · cells, positions) added up where they lie in images (N, C, …)."""
    out, kernel = tuple(node.integers(image)), tuple(node.integers(block))
    stride, dilation = steps(node, kernel)
    padding, cells = pads(node, len(kernel)), prod(kernel)
    channels = x.shape[1] // cells
    count = tuple(
        (n + sum(p) - d * (k - 1) - 1) // s + 1
        for n, p, k, d, s in zip(out, padding, kernel, dilation, stride)
    )
    one = np.eye(cells, dtype=np.float32).reshape(cells, 1, *kernel)
    weight = Tensor(np.tile(one, (channels, 1, *(1,) * len(kernel))), x.dtype, x.backend)
    return window.conv_input(
        x.reshape(x.shape[0], x.shape[1], *count),
        weight,
        shape=(x.shape[0], channels, *out),
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=channels,
    )


@operator("CausalConvWithState", since=1)
def causal_conv_with_state(
    node: Any, x: Tensor, w: Tensor, b: Tensor | None = None, past: Tensor | None = None
) -> Any:
    """Each channel of (B, C, length) by itself, looking back alone; what was seen last is handed on."""
    seen = w.shape[2] - 1
    x = F.pad(x, [seen, 0]) if past is None else F.cat([past, x], 2)
    y = F.conv1d(x, w, b, groups=x.shape[1])
    if node.get("activation", "none") in ("silu", "swish"):
        y = F.silu(y)
    return y if node.wanted < 2 else (y, x.narrow(2, x.shape[2] - seen, seen))


@operator("DeformConv", since=19)
def deform_conv(
    node: Any,
    x: Tensor,
    w: Tensor,
    offset: Tensor,
    b: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Each cell of each window is read beside its place (Zhu et al., Deformable ConvNets v2, 2019)."""
    if x.ndim != 4:
        node.refuse(f"an input of shape {x.shape}: only planes (N, C, H, W) are deformed")
    (n, c), groups, shared = x.shape[:2], node.get("group", 1), node.get("offset_group", 1)
    at = windows(node, x.shape[2:], w.shape[2:])
    cells, (oh, ow) = prod(at.kernel), at.counts
    offset = offset.reshape(n, shared, cells, 2, oh, ow)
    places = [offset[:, :, :, axis] + starts(at, axis, x) for axis in (0, 1)]  # (N, shared, K, OH, OW)
    planes = x.reshape(n * shared, c // shared, *x.shape[2:])
    read = linear(planes, [p.reshape(n * shared, cells * oh, ow) for p in places])
    read = read.reshape(n, shared, c // shared, cells, oh, ow)
    if mask is not None:
        read = read * mask.reshape(n, shared, 1, cells, oh, ow)
    columns = read.reshape(n, groups, c // groups * cells, oh * ow)
    y = F.matmul(w.reshape(1, groups, w.shape[0] // groups, -1), columns).reshape(n, w.shape[0], oh, ow)
    return y if b is None else y + b.reshape(-1, 1, 1)


def starts(at: Windows, axis: int, like: Tensor) -> Tensor:
    """Where along an axis each cell of each window lies, (K, OH, 1) or (K, 1, OW)."""
    cell = np.indices(at.kernel)[axis].reshape(-1, 1, 1) * at.dilation[axis]
    begin = np.arange(at.counts[axis]) * at.stride[axis] - at.padding[axis][0]
    begin = begin.reshape((1, -1, 1) if axis == 0 else (1, 1, -1))
    return Tensor((cell + begin).astype(np.float32), like.dtype, like.backend)
