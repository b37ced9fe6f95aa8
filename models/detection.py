"""What a detector of YOLO11's kind is trained for: which cell tells of which object, and three losses.

Sources: Feng et al., TOOD: task-aligned one-stage object detection, 2021 (the assignment); Zheng et al., 2020
(complete IoU); Li et al., Generalized focal loss, 2020 (distances as distributions). All shapes are fixed by
the batch, the cells and the most objects in a picture, so that a training step can be captured.
N pictures, A cells, M objects, C classes.
"""

from __future__ import annotations

from typing import NamedTuple

import tinyadept.functional as F
from tinyadept import arange, no_grad, zeros_like
from tinyadept.functional import boxes as box_ops
from tinyadept.tensor import Tensor

from .yolo11 import BINS, STRIDES, cells, flattened

BEST = 10  # cells that an object may have
SCORE_POWER, IOU_POWER = 0.5, 6.0
GAINS = (7.5, 0.5, 1.5)  # of the losses for boxes, classes and distributions
TINY = 1e-9


class Targets(NamedTuple):
    """What each cell shall tell.

    Attributes
    ----------
    boxes : Tensor
        (N, A, 4), corners in pixels.
    scores : Tensor
        (N, A, C): how sure of each class; zeros where a cell has no object.
    chosen : Tensor
        (N, A), 1 where a cell has an object, else 0.
    """

    boxes: Tensor
    scores: Tensor
    chosen: Tensor


@no_grad()
def assign(scores: Tensor, boxes: Tensor, centres: Tensor, labels: Tensor, objects: Tensor) -> Targets:
    """Give each object the cells that predict it best already, by score^0.5 · IoU^6.

    Parameters
    ----------
    scores : Tensor
        (N, A, C), probabilities.
    boxes : Tensor
        (N, A, 4), corners in pixels.
    centres : Tensor
        (A, 2), of the cells, in pixels.
    labels : Tensor
        (N, M) int32, the objects' classes; -1 fills up where a picture has fewer.
    objects : Tensor
        (N, M, 4), corners in pixels.
    """
    real = (labels >= 0).to(scores.dtype).unsqueeze(2)  # (N, M, 1)
    known = labels.clamp(min=0)
    near = centres - objects[..., :2].unsqueeze(2)  # (N, M, A, 2)
    far = objects[..., 2:].unsqueeze(2) - centres
    inside = (F.cat([near, far], -1).amin(-1) > TINY).to(scores.dtype) * real  # (N, M, A)
    fit = box_ops.ciou(objects.unsqueeze(2), boxes.unsqueeze(1)).clamp(min=0) * inside
    n, m, a = fit.shape
    sure = scores.mT.take_along_dim(known.unsqueeze(2).expand(n, m, a), 1) * inside
    aligned = sure**SCORE_POWER * fit**IOU_POWER
    best = aligned.topk(min(BEST, a), -1)[1]  # (N, M, 10)
    taken = zeros_like(inside).scatter(2, best, 1.0) * inside  # (N, M, A)
    # A cell that several objects want goes to the one that its box fits best.
    fitting = marked(fit.argmax(1), m).mT  # (N, M, A)
    taken = F.where(taken.sum(1, keepdim=True) > 1, fitting, taken)
    chosen, owner = taken.sum(1), taken.argmax(1)  # (N, A)
    return Targets(
        objects.take_along_dim(owner.unsqueeze(2).expand(n, a, 4), 1),
        wanted(taken, aligned, fit, known.take_along_dim(owner, 1), scores.shape[2]),
        chosen,
    )


def wanted(taken: Tensor, aligned: Tensor, fit: Tensor, classes: Tensor, count: int) -> Tensor:
    """The scores to be reached (N, A, C): the object's best cell its best IoU, the others in proportion."""
    aligned = aligned * taken
    share = aligned / (aligned.amax(-1, keepdim=True) + TINY) * (fit * taken).amax(-1, keepdim=True)
    return marked(classes, count) * (share.amax(1) * taken.amax(1)).unsqueeze(2)


def marked(indices: Tensor, count: int) -> Tensor:
    """1 where the index is, else 0, along a new last axis; reads nothing back, for steps to be captured."""
    return (indices.unsqueeze(-1) == arange(count, device=indices.backend)).to("float32")


def detection_loss(levels: list[Tensor], labels: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
    """The loss of a batch.

    Parameters
    ----------
    levels : list of Tensor
        What the model returns in training: (N, 64 + C, H / s, W / s) for s = 8, 16, 32.
    labels : Tensor
        (N, M) int32; -1 fills up.
    objects : Tensor
        (N, M, 4): centre x and y, width and height, as parts of the picture's width and height.

    Returns
    -------
    loss : Tensor
        To be minimised: the sum of the parts times N.
    parts : Tensor
        (3,), of boxes, classes and distributions, each with its gain.

    Raises
    ------
    ValueError
        If labels and objects do not fit the maps or each other.
    """
    n = levels[0].shape[0]
    if labels.ndim != 2 or objects.shape != (*labels.shape, 4) or labels.shape[0] != n:
        raise ValueError(
            f"expected labels ({n}, M) and objects ({n}, M, 4), got {labels.shape} and {objects.shape}"
        )
    distances, logits = flattened(levels)  # (N, 64, A), (N, C, A)
    logits = logits.mT  # (N, A, C)
    bins = distances.mT.reshape(n, -1, 4, BINS)  # (N, A, 4, bins)
    centres, strides = (x.mT if x.ndim > 1 else x.unsqueeze(1) for x in cells(levels))  # (A, 2), (A, 1)
    boxes = corners(bins, centres)  # (N, A, 4), in cells
    h, w = (side * STRIDES[0] for side in levels[0].shape[2:])
    pixels = F.stack([objects[..., 0] * w, objects[..., 1] * h, objects[..., 2] * w, objects[..., 3] * h], -1)
    with no_grad():
        found = logits.detach().sigmoid(), boxes.detach() * strides
        targets = assign(*found, centres * strides, labels, box_ops.cxcywh_to_xyxy(pixels))
        total = targets.scores.sum().clamp(min=1)
        weights = targets.scores.sum(2) * targets.chosen / total  # (N, A)
        aims = targets.boxes / strides  # in cells
    classes = F.binary_cross_entropy_with_logits(logits, targets.scores, reduction="sum") / total
    box = ((1 - box_ops.ciou(boxes, aims)) * weights).sum()
    shape = (distribution_loss(bins, aims, centres) * weights).sum()
    parts = F.stack([box * GAINS[0], classes * GAINS[1], shape * GAINS[2]])
    return parts.sum() * n, parts.detach()


def corners(bins: Tensor, centres: Tensor) -> Tensor:
    """Boxes (N, A, 4) as corners, from the distributions (N, A, 4, bins) of distances from the centres."""
    values = F.softmax(bins, -1) @ arange(float(BINS), device=bins.backend)  # (N, A, 4)
    return F.cat([centres - values[..., :2], centres + values[..., 2:]], -1)


def distribution_loss(bins: Tensor, aims: Tensor, centres: Tensor) -> Tensor:
    """Cross-entropy (N, A) of the distances' distributions with the two bins beside the true distance."""
    far = BINS - 1.01  # the last bin must remain to the right
    distances = F.cat([centres - aims[..., :2], aims[..., 2:] - centres], -1).clamp(0, far)  # (N, A, 4)
    left = distances.floor()
    share = distances - left
    logs = F.log_softmax(bins, -1)
    at = left.to("int32").unsqueeze(3)
    low, high = logs.take_along_dim(at, -1).squeeze(3), logs.take_along_dim(at + 1, -1).squeeze(3)
    return -(low * (1 - share) + high * share).mean(2)
