"""Planes: samples between cells, regions, blocks, and boxes."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np

from ... import creation
from ...functional import cat, pad, stack
from ...ops.elementwise import maximum, minimum, where
from ...ops.index import take
from ...ops.suppress import suppress
from ...tensor import Tensor
from ..registry import Node, operator
from .sampling import picked

# --- samples ------------------------------------------------------------------------------------------------


@operator("GridSample", since=16)
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Values at places from -1 to 1 over each axis; the grid's last axis names the axes from the last on."""
    mode, padding = node.get("mode", "linear"), node.get("padding_mode", "zeros")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        node.refuse(f"mode {mode!r} with padding_mode {padding!r}")
    if grid.ndim != x.ndim or grid.shape[-1] != x.ndim - 2:
        node.refuse(f"a grid of shape {grid.shape} for an input of shape {x.shape}")
    corners, cells = bool(node.get("align_corners", 0)), x.shape[2:]
    axes = []
    for axis, n in enumerate(cells):
        at = grid[..., len(cells) - 1 - axis]
        at = (at + 1) * ((n - 1) / 2) if corners else ((at + 1) * n - 1) * 0.5
        if mode != "cubic":  # which folds each cell that it takes, not the place between them
            at = folded(at, n, corners, padding)
        axes.append([(folded(cell, n, corners, padding), share) for cell, share in taken(at, mode)])
    total = None
    for taps in product(*axes):
        part = picked(x, [cell for cell, _ in taps])
        for _, share in taps:
            part = part if share is None else part * share.unsqueeze(1)
        total = part if total is None else total + part
    assert total is not None
    return total


def taken(at: Tensor, mode: str) -> list[tuple[Tensor, Tensor | None]]:
    """The cells that a place between them takes along one axis, and their weights."""
    if mode == "nearest":
        return [(at.round(), None)]
    low = at.floor()
    t = at - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    a = -0.75
    far, near = (
        (lambda d: ((a * d - 5 * a) * d + 8 * a) * d - 4 * a),
        (lambda d: ((a + 2) * d - (a + 3)) * d * d + 1),
    )
    return [(low - 1, far(t + 1)), (low, near(t)), (low + 1, near(1 - t)), (low + 2, far(2 - t))]


def folded(at: Tensor, n: int, corners: bool, padding: str) -> Tensor:
    """Places brought into an axis of n cells, unless what lies outside is zero."""
    if padding == "zeros":
        return at
    if padding == "reflection":
        low, length = (0.0, n - 1.0) if corners else (-0.5, float(n))
        if length == 0:
            return at * 0.0
        apart = (at - low).abs() % (2 * length)
        at = where(apart > length, 2 * length - apart, apart) + low
    return at.clamp(0, n - 1)


@operator("AffineGrid", since=20, reads=(1,))
def affine_grid(node: Any, theta: Tensor, size: Tensor) -> Tensor:
    """The places (N, …, axes) that matrices (N, axes, axes + 1) take the cells of a plane or a volume to."""
    cells = node.integers(size)[2:]
    corners = bool(node.get("align_corners", 0))
    steps = [
        np.linspace(-1, 1, n)
        if corners and n > 1
        else (2 * np.arange(n) + 1) / n - 1
        if not corners
        else np.zeros(1)
        for n in cells
    ]
    places = np.meshgrid(*steps, indexing="ij")[::-1]
    table = np.stack([*places, np.ones_like(places[0])], -1).reshape(1, -1, len(cells) + 1)
    base = Tensor(table, theta.dtype, theta.backend)
    return base.matmul(theta.mT).reshape(theta.shape[0], *cells, len(cells))


@operator("RoiAlign", since=10, reads=(1, 2))
def roi_align(node: Any, x: Tensor, rois: Tensor, batch: Tensor) -> Tensor:
    """Samples of regions, which are read back: they may say how many there are (Mask R-CNN, 2017)."""
    mode = node.get("mode", "avg")
    half = node.get(
        "coordinate_transformation_mode", "half_pixel" if node.opset >= 16 else "output_half_pixel"
    )
    out = int(node.get("output_height", 1)), int(node.get("output_width", 1))
    boxes = np.reshape(node.numbers(rois), (-1, 4)) * float(node.get("spatial_scale", 1.0))
    boxes = boxes - (0.5 if half == "half_pixel" else 0.0)
    planes = node.integers(batch)
    ratio = int(node.get("sampling_ratio", 0))
    parts = [region(x[i], box, out, ratio, half != "half_pixel", mode) for box, i in zip(boxes, planes)]
    if not parts:
        return creation.zeros(0, x.shape[1], *out, dtype=x.dtype, device=x.backend)
    return stack(parts)


def region(x: Tensor, box: np.ndarray, out: tuple, ratio: int, at_least_one: bool, mode: str) -> Tensor:
    """One region of planes (C, H, W), as (C, *out): the mean or the maximum of each cell's samples."""
    axes = []
    for axis, (n, m) in enumerate(zip(x.shape[1:], out)):
        begin, end = box[1 - axis], box[3 - axis]
        length = max(end - begin, 1.0) if at_least_one else end - begin
        count = ratio or max(int(np.ceil(length / m)), 1)
        at = begin + (np.arange(m * count) + 0.5) * (length / m / count)
        outside = (at < -1) | (at > n)
        at = np.clip(at, 0, n - 1)
        low = np.minimum(np.floor(at).astype(np.int32), n - 1)
        share = at - low
        high = np.minimum(low + 1, n - 1)
        axes.append((count, low, high, np.where(outside, 0, 1 - share), np.where(outside, 0, share)))
    values = []
    (rows, *down), (columns, *across) = axes
    for far_row, far_column in product((0, 1), (0, 1)):
        cells = take(take(x, index(down[far_row], x), axis=1), index(across[far_column], x), axis=2)
        weights = np.outer(down[2 + far_row], across[2 + far_column])
        values.append(cells * Tensor(weights, x.dtype, x.backend))
    if mode == "max":
        best = maximum(maximum(values[0], values[1]), maximum(values[2], values[3]))
        return best.reshape(-1, out[0], rows, out[1], columns).amax((2, 4))
    total = values[0] + values[1] + values[2] + values[3]
    return total.reshape(-1, out[0], rows, out[1], columns).mean((2, 4))


def index(cells: np.ndarray, like: Tensor) -> Tensor:
    return Tensor(cells.astype(np.int32), device=like.backend)


# --- blocks -------------------------------------------------------------------------------------------------


@operator("DepthToSpace", since=1)
def depth_to_space(node: Any, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = int(node.attributes["blocksize"])
    if node.get("mode", "DCR") == "DCR":
        x = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth", since=1)
def space_to_depth(node: Any, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    b = int(node.attributes["blocksize"])
    x = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    return x.reshape(n, c * b * b, h // b, w // b)


@operator("CenterCropPad", since=18, reads=(1,))
def center_crop_pad(node: Any, x: Tensor, shape: Tensor) -> Tensor:
    wanted = node.integers(shape)
    axes = [int(a) % x.ndim for a in node.get("axes") or range(x.ndim)]
    if len(axes) != len(wanted):
        node.refuse(f"{len(wanted)} lengths for {len(axes)} axes")
    before_after = [(0, 0)] * x.ndim
    for axis, m in zip(axes, wanted, strict=True):
        n = x.shape[axis]
        if m < n:
            x = x.narrow(axis, (n - m) // 2, m)
        before_after[axis] = (max(m - n, 0) // 2, max(m - n, 0) - max(m - n, 0) // 2)
    return pad(x, [n for pair in reversed(before_after) for n in pair])


# --- boxes --------------------------------------------------------------------------------------------------


@operator("NonMaxSuppression", since=10, reads=(2, 3, 4))
def non_max_suppression(
    node: Any,
    boxes: Tensor,
    scores: Tensor,
    most: Tensor | None = None,
    overlap: Tensor | None = None,
    lowest: Tensor | None = None,
) -> Tensor:
    """(batch, class, box) of the boxes that stay, (count, 3); their number is read back."""
    limit = node.integers(most)[0] if most is not None else 0
    threshold = node.numbers(overlap)[0] if overlap is not None else 0.0
    floor = node.numbers(lowest)[0] if lowest is not None else None
    corners = as_corners(boxes, bool(node.get("center_point_box", 0)))
    found = []
    for n, c in product(range(scores.shape[0]), range(scores.shape[1])):
        if limit > 0:
            stays = kept(corners[n], scores[n, c], threshold, floor)[:limit]
            lead = Tensor([[n, c]], "int32", boxes.backend).expand(stays.shape[0], 2)
            found.append(cat([lead, stays.reshape(-1, 1)], 1))
    empty = creation.zeros(0, 3, dtype="int32", device=boxes.backend)
    return cat(found, 0) if found else empty


def as_corners(boxes: Tensor, centred: bool) -> Tensor:
    first, second = boxes[..., :2], boxes[..., 2:]
    if centred:
        return cat([first - second * 0.5, first + second * 0.5], -1)
    return cat([minimum(first, second), maximum(first, second)], -1)


def kept(boxes: Tensor, scores: Tensor, threshold: float, floor: float | None) -> Tensor:
    """Indices of the boxes of one class that stay, by falling score."""
    candidates = None
    if floor is not None:
        candidates = (scores > floor).nonzero().flatten()
        boxes, scores = take(boxes, candidates, axis=0), take(scores, candidates, axis=0)
    order = scores.argsort(descending=True, stable=True)
    if scores.shape[0]:
        order = order[suppress(take(boxes, order, axis=0), threshold=threshold)]
    return order if candidates is None else take(candidates, order, axis=0)
