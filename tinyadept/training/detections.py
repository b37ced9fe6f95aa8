"""From what a detector says of every cell to the objects in a picture."""

from __future__ import annotations

import numpy as np

from .average_precision import Boxes, overlaps

CANDIDATES = 1000  # boxes of a picture that are compared with each other
MOST = 100  # that are kept


def suppressed(labels: np.ndarray, scores: np.ndarray, corners: np.ndarray, iou: float) -> np.ndarray:
    """Which boxes to keep, the most sure first: none overlaps a surer one of its class by more than `iou`."""
    order = np.argsort(-scores, kind="stable")[:CANDIDATES]
    rivals = overlaps(corners[order], corners[order]) > iou
    rivals &= labels[order, None] == labels[order]
    alive = np.ones(len(order), bool)
    for at in range(len(order)):
        if alive[at]:
            alive[at + 1 :] &= ~rivals[at, at + 1 :]
    return order[alive][:MOST]


def found(output: np.ndarray, least: float, iou: float) -> Boxes:
    """The objects that a detector sees in a picture.

    Parameters
    ----------
    output : ndarray
        (4 + classes, A) of `models.yolo11.YOLO11`: centre, size, probabilities.
    least : float
        Probability below which a box is left out.
    iou : float
        Overlap above which of two boxes of a class only the surer one is kept.

    Returns
    -------
    Boxes
        Corners in pixels of the input.
    """
    labels, cells = np.nonzero(output[4:] >= least)
    scores = output[4 + labels, cells]
    if len(scores) > CANDIDATES:
        best = np.argsort(-scores, kind="stable")[:CANDIDATES]
        labels, cells, scores = labels[best], cells[best], scores[best]
    middle, half = output[:2, cells].T, output[2:4, cells].T / 2
    corners = np.concatenate([middle - half, middle + half], 1)
    kept = suppressed(labels, scores, corners, iou)
    return Boxes(labels[kept], scores[kept], corners[kept])
