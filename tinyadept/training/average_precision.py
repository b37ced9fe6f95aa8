"""How good found boxes are: average precision as the COCO challenge defines it (Lin et al., 2014).

A detection is right if it overlaps enough an object of its class that no surer one has taken; from the most
sure detection on, precision is read off at 101 values of recall, and averaged over them and the classes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of the intersection over the union
RECALLS = np.linspace(0, 1, 101)
MOST = 100  # detections of a class in a picture that count


class Boxes(NamedTuple):
    """Found in a picture: classes (n,), scores (n,), and corners (n, 4) in pixels."""

    labels: np.ndarray
    scores: np.ndarray
    corners: np.ndarray


class Precision(NamedTuple):
    """Mean average precision at an overlap of 0.5, and over 0.5 to 0.95; and each class's of both kinds."""

    at_50: float
    at_50_95: float
    classes: dict[int, tuple[float, float]]


def overlaps(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Intersection over union of all corners (n, 4) with all corners (m, 4)."""
    near = np.maximum(a[:, None, :2], b[:, :2])
    far = np.minimum(a[:, None, 2:], b[:, 2:])
    shared = np.prod(np.clip(far - near, 0, None), 2)
    areas = np.prod(a[:, 2:] - a[:, :2], 1)[:, None] + np.prod(b[:, 2:] - b[:, :2], 1)
    return shared / np.maximum(areas - shared, np.finfo(float).tiny)


def matched(found: np.ndarray, objects: np.ndarray) -> np.ndarray:
    """Which detections are right at each threshold, (thresholds, n).

    Parameters
    ----------
    found : ndarray
        (n, 4), the most sure first.
    objects : ndarray
        (m, 4).
    """
    right = np.zeros((len(THRESHOLDS), len(found)), bool)
    if len(found) and len(objects):
        fits = overlaps(found, objects)
        for at, threshold in enumerate(THRESHOLDS):
            free = np.ones(len(objects), bool)
            for number in np.flatnonzero(fits.max(1) >= threshold):
                fit = np.where(free, fits[number], -1)
                best = len(fit) - 1 - int(fit[::-1].argmax())  # of equal ones the last, as COCO's code has it
                if fit[best] >= threshold:
                    free[best], right[at, number] = False, True
    return right


def precision_at_recalls(right: np.ndarray, objects: int) -> np.ndarray:
    """Mean over the recalls of the best precision from there on, (thresholds,); `right` as of `matched`."""
    hits = right.cumsum(1)
    precision = hits / np.arange(1, right.shape[1] + 1)
    precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    result = np.zeros(len(right))
    for at, recall in enumerate(hits / objects):
        where = np.searchsorted(recall, RECALLS)
        result[at] = np.append(precision[at], 0.0)[np.minimum(where, right.shape[1])].mean()
    return result


def average_precision(found: list[Boxes], objects: list[tuple[np.ndarray, np.ndarray]]) -> Precision:
    """How well the boxes that were found in pictures agree with their objects.

    Parameters
    ----------
    found : list of Boxes
        One a picture, in any order.
    objects : list of (labels, corners)
        (m,) and (m, 4) in pixels, one a picture.

    Returns
    -------
    Precision
        Of the classes that have objects; NaN if there are none.
    """
    per_class = {}
    for label in sorted({int(label) for labels, _ in objects for label in labels}):
        scores, right, count = [], [], 0
        for boxes, (labels, corners) in zip(found, objects, strict=True):
            mine = np.flatnonzero(boxes.labels == label)
            mine = mine[np.argsort(-boxes.scores[mine], kind="stable")[:MOST]]
            wanted = corners[labels == label]
            scores.append(boxes.scores[mine])
            right.append(matched(boxes.corners[mine].astype(float), wanted.astype(float)))
            count += len(wanted)
        order = np.argsort(-np.concatenate(scores), kind="stable")
        values = precision_at_recalls(np.concatenate(right, 1)[:, order], count)
        per_class[label] = float(values[0]), float(values.mean())
    if not per_class:
        return Precision(float("nan"), float("nan"), {})
    at_50, at_50_95 = np.mean(list(per_class.values()), 0).tolist()
    return Precision(at_50, at_50_95, per_class)
