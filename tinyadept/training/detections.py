"""From what a detector says of every cell to the objects in a picture."""

from __future__ import annotations

import numpy as np

from ..functional.boxes import nms
from ..tensor import from_numpy
from .average_precision import Boxes

CANDIDATES = 1000  # boxes of a picture that are compared with each other
MOST = 100  # that are kept


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
    boxes, sure, classes = (from_numpy(x) for x in (corners, scores, labels))
    kept = nms(boxes, sure, iou, classes).numpy()[:MOST]
    return Boxes(labels[kept], scores[kept], corners[kept])
