"""Non-maximum suppression: of boxes that overlap, the first one stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dtypes
from .table import Family, define, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    """Boxes (N, 4), the best first, give a bool (N,): which of them stay."""
    ready, _ = met(op, inputs)
    if ready[0].ndim != 2 or ready[0].shape[1] != 4:
        raise ValueError(f"{op.name} takes boxes (N, 4) as x1, y1, x2, y2, got shape {ready[0].shape}")
    return ready, ready[0].shape[:1], dtypes.bool_


def np_suppress(boxes: np.ndarray, threshold: float) -> np.ndarray:
    stays = np.ones(len(boxes), bool)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    for i, box in enumerate(boxes):
        if stays[i]:
            rest = boxes[i + 1 :]
            sides = np.minimum(box[2:], rest[:, 2:]) - np.maximum(box[:2], rest[:, :2])
            shared = np.maximum(sides, 0).prod(1)
            stays[i + 1 :] &= ~(shared > threshold * (areas[i] + areas[i + 1 :] - shared))
    return stays


suppress = define(
    Family("suppress", infer), "suppress", np_suppress, None, takes="strict float", gives=dtypes.bool_
)
