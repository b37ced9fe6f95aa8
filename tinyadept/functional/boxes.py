"""Boxes (…, 4) as corners x1, y1, x2, y2: how well two of them agree, and which of many stay."""

from __future__ import annotations

from math import pi

from ..ops.elementwise import atan, maximum, minimum
from ..ops.suppress import suppress
from ..tape import no_grad
from ..tensor import Tensor
from .joining import cat

EPS = 1e-7  # keeps boxes without an area from dividing by zero


def sides(boxes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """x1, y1, x2 and y2, each (…).

    Raises
    ------
    ValueError
        If the last axis is not of length 4.
    """
    if boxes.ndim == 0 or boxes.shape[-1] != 4:
        raise ValueError(f"boxes have shape (…, 4): x1, y1, x2, y2; got {boxes.shape}")
    return boxes[..., 0], boxes[..., 1], boxes[..., 2], boxes[..., 3]


def overlap(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union of boxes that broadcast, and the area of the union."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = sides(a), sides(b)
    width = (minimum(ax2, bx2) - maximum(ax1, bx1)).clamp(min=0)
    height = (minimum(ay2, by2) - maximum(ay1, by1)).clamp(min=0)
    shared = width * height
    union = (ax2 - ax1) * (ay2 - ay1) + (bx2 - bx1) * (by2 - by1) - shared + EPS
    return shared / union, union


def hull(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Width and height of the smallest box around both."""
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = sides(a), sides(b)
    return maximum(ax2, bx2) - minimum(ax1, bx1), maximum(ay2, by2) - minimum(ay1, by1)


def iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union.

    Parameters
    ----------
    a, b : Tensor
        (…, 4), corners; they broadcast: ``iou(a[:, None], b)`` compares all with all.

    Returns
    -------
    Tensor
        (…), in [0, 1].
    """
    return overlap(a, b)[0]


def giou(a: Tensor, b: Tensor) -> Tensor:
    """Generalised intersection over union, in (-1, 1]; parameters as in `iou`.

    IoU - (hull - union) / hull (Rezatofighi et al., 2019).
    """
    ratio, union = overlap(a, b)
    width, height = hull(a, b)
    whole = width * height + EPS
    return ratio - (whole - union) / whole


def ciou(a: Tensor, b: Tensor) -> Tensor:
    """Complete intersection over union, which also sees centres and proportions; parameters as in `iou`.

    IoU - d² / c² - α · v: d between the centres, c the hull's diagonal, v = 4/π² · (atan(w/h) -
    atan(w'/h'))², and α = v / (1 - IoU + v), through which no gradient flows (Zheng et al., 2020).
    """
    ratio, _ = overlap(a, b)
    (ax1, ay1, ax2, ay2), (bx1, by1, bx2, by2) = sides(a), sides(b)
    width, height = hull(a, b)
    diagonal = width * width + height * height + EPS
    apart = ((ax1 + ax2 - bx1 - bx2) ** 2 + (ay1 + ay2 - by1 - by2) ** 2) * 0.25
    turn = atan((ax2 - ax1) / (ay2 - ay1 + EPS)) - atan((bx2 - bx1) / (by2 - by1 + EPS))
    v = turn * turn * (4 / pi**2)
    with no_grad():
        alpha = v / (v - ratio + (1 + EPS))
    return ratio - (apart / diagonal + v * alpha)


def cxcywh_to_xyxy(boxes: Tensor) -> Tensor:
    """Boxes (…, 4) as centre and size to corners."""
    centre, half = boxes[..., :2], boxes[..., 2:] * 0.5
    return cat([centre - half, centre + half], -1)


def xyxy_to_cxcywh(boxes: Tensor) -> Tensor:
    """Boxes (…, 4) as corners to centre and size."""
    near, far = boxes[..., :2], boxes[..., 2:]
    return cat([(near + far) * 0.5, far - near], -1)


@no_grad()
def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, classes: Tensor | None = None) -> Tensor:
    """Which boxes stay when each takes away those of lower score that overlap it.

    Parameters
    ----------
    boxes : Tensor
        (N, 4), corners.
    scores : Tensor
        (N,). Among equals the first comes first.
    iou_threshold : float
        Boxes go whose intersection over union with a better one is larger.
    classes : Tensor, optional
        (N,), integers: boxes of different classes do not touch each other.

    Returns
    -------
    Tensor
        int32, indices of the boxes that stay, by falling score. Their number depends on the data, so this
        cannot be captured.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    n = boxes.shape[:1]
    if boxes.ndim != 2 or scores.shape != n or (classes is not None and classes.shape != n):
        raise ValueError(f"nms takes boxes (N, 4) and scores (N,), got {boxes.shape} and {scores.shape}")
    if n == (0,):
        return scores.argsort()
    if classes is not None:  # a plane for each class
        apart = boxes.amax() - boxes.amin() + 1
        boxes = boxes + (classes.to(boxes.dtype) * apart).unsqueeze(1)
    order = scores.argsort(descending=True, stable=True)
    return order[suppress(boxes[order], threshold=float(iou_threshold))]
