"""Overlaps of boxes, and the suppression of all but the best."""

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
from tinyadept.functional import boxes as bx

A = [0.0, 0, 4, 4]
PAIRS = [  # other box, IoU and GIoU
    (A, 1, 1),
    ([2.0, 0, 6, 4], 8 / 24, 8 / 24),
    ([4.0, 4, 8, 8], 0, -(64 - 32) / 64),
    ([1.0, 1, 3, 3], 4 / 16, 4 / 16),
    ([8.0, 0, 12, 4], 0, -(48 - 32) / 48),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("other", "iou", "giou"), PAIRS)
def test_overlaps_by_hand(device, other, iou, giou):
    a, b = (ta.tensor(x, device=device) for x in (A, other))
    assert bx.iou(a, b).item() == pytest.approx(iou, abs=1e-6)
    assert bx.giou(a, b).item() == pytest.approx(giou, abs=1e-6)


def test_complete_iou_sees_centres_and_proportions():
    a, b = ta.tensor(A), ta.tensor([2.0, 0, 6, 4])  # as large and as wide: only the centres differ
    assert bx.ciou(a, b).item() == pytest.approx(8 / 24 - 4 / (36 + 16), abs=1e-6)
    flat = ta.tensor([0.0, 1, 4, 3])  # the same centre
    v = 4 / np.pi**2 * (np.arctan(1) - np.arctan(2)) ** 2
    assert bx.ciou(a, flat).item() == pytest.approx(0.5 - v * v / (v - 0.5 + 1), abs=1e-6)


@pytest.mark.parametrize("function", [bx.iou, bx.giou])
def test_gradients(function):
    rng = np.random.default_rng(0)
    near = rng.random((5, 2))
    corners = lambda low: np.concatenate([low, low + 0.5 + rng.random((5, 2))], 1)  # noqa: E731
    a, b = (ta.tensor(corners(near), dtype=ta.float64, requires_grad=True) for _ in range(2))
    ta.gradcheck(function, [a, b])


def test_formats_are_inverse():
    boxes = ta.tensor(np.random.default_rng(0).random((3, 5, 4)))
    np.testing.assert_allclose(bx.cxcywh_to_xyxy(bx.xyxy_to_cxcywh(boxes)).numpy(), boxes.numpy(), atol=1e-6)


def suppressed(boxes, scores, threshold, classes):
    """A pair at a time, in plain Python."""
    stay = []
    for i in sorted(range(len(boxes)), key=lambda i: -scores[i]):
        for j in stay:
            (ax, ay, aw, ah), (bx_, by, bw, bh) = boxes[i], boxes[j]
            w, h = min(aw, bw) - max(ax, bx_), min(ah, bh) - max(ay, by)
            both = max(w, 0) * max(h, 0)
            union = (aw - ax) * (ah - ay) + (bw - bx_) * (bh - by) - both
            if classes[i] == classes[j] and both > threshold * union:
                break
        else:
            stay.append(i)
    return stay


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 1, 64, 65, 300])
def test_nms_keeps_the_best_of_each_class(device, n):
    rng = np.random.default_rng(n)
    near = rng.integers(0, 40, (n, 2))
    boxes = np.concatenate([near, near + rng.integers(1, 20, (n, 2))], 1).astype(np.float32)
    scores, classes = rng.permutation(n).astype(np.float32), rng.integers(0, 3, n).astype(np.int32)
    for some in (np.zeros(n, np.int32), classes):
        got = bx.nms(
            *(ta.tensor(x, device=device) for x in (boxes, scores)), 0.4501, ta.tensor(some, device=device)
        )
        assert got.tolist() == suppressed(boxes.tolist(), scores.tolist(), 0.4501, some.tolist())


def test_shapes_are_checked():
    for call in (
        lambda: bx.iou(ta.zeros(3), ta.zeros(4)),
        lambda: bx.nms(ta.zeros((2, 4)), ta.zeros(3), 0.5),
        lambda: bx.nms(ta.zeros((2, 5)), ta.zeros(2), 0.5),
    ):
        with pytest.raises(ValueError, match="got"):
            call()
