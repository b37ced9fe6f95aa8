"""YOLO11 against recorded results of Ultralytics' implementation, and its parts against what they mean."""

from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
import tinyadept.functional as F
from tinyadept.models.detection import assign, detection_loss
from tinyadept.models.yolo11 import SIZES, YOLO11

GOLDEN = Path(__file__).parent.parent.parent / "shared" / "data" / "yolo11n"
golden = pytest.mark.skipif(
    not GOLDEN.exists(), reason=f"the recorded results are not there: {GOLDEN.resolve()}"
)
COUNTS = {"n": 2_624_080, "s": 9_458_752, "m": 20_114_688, "l": 25_372_160, "x": 56_966_176}


@pytest.fixture(scope="module")
def recorded():
    return np.load(GOLDEN / "oracle.npz")


def loaded(device):
    model = YOLO11("n")
    model.load_state_dict(ta.load(GOLDEN / "weights.safetensors"))
    return model.to(device)


def padded_objects(recorded):
    """The recorded batch with as many rows for each picture, -1 where there is no object."""
    pictures = recorded["batch_idx"].astype(int)
    most = np.bincount(pictures).max()
    labels, boxes = np.full((2, most), -1, np.int32), np.zeros((2, most, 4), np.float32)
    for picture in range(2):
        mine = pictures == picture
        labels[picture, : mine.sum()] = recorded["cls"][mine, 0]
        boxes[picture, : mine.sum()] = recorded["bboxes"][mine]
    return labels, boxes


def distance(got, expected):
    """The largest error as a part of the largest value."""
    return np.abs(got - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_as_many_parameters(size):
    assert sum(p.numel() for p in YOLO11(size).parameters()) == COUNTS[size]


@golden
@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_every_layer_agrees(device, recorded):
    model = loaded(device).eval()
    x = ta.tensor(recorded["x"], device=device)
    with ta.no_grad():
        for at, y in enumerate(model.features(x)):
            assert distance(y.numpy(), recorded[f"eval_layer{at:02d}"]) < 1e-4, f"layer {at}"
        whole = model(x).numpy()
        assert whole.shape == (2, 84, 525)
        assert distance(whole, recorded["eval_out"]) < 1e-4
        assert distance(whole[:, 4:], recorded["eval_out"][:, 4:]) < 1e-4
        assert distance(model.fuse()(x).numpy(), recorded["eval_out"]) < 1e-4
    assert not any("bn" in name for name in model.state_dict())


@golden
@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_loss_and_all_gradients_agree(device, recorded):
    model = loaded(device).train()
    labels, boxes = (ta.tensor(x, device=device) for x in padded_objects(recorded))
    levels = model(ta.tensor(recorded["x"], device=device))
    distances = np.concatenate([x.detach().numpy().reshape(2, 144, -1) for x in levels], 2)
    assert distance(distances[:, :64], recorded["train_boxes"]) < 1e-4
    assert distance(distances[:, 64:], recorded["train_scores"]) < 1e-4
    loss, parts = detection_loss(levels, labels, boxes)
    np.testing.assert_allclose(parts.numpy() * 2, recorded["loss"], rtol=1e-4)
    assert loss.item() == pytest.approx(recorded["loss"].sum(), rel=1e-4)
    loss.backward()
    learned = {name: p.grad.numpy() for name, p in model.named_parameters() if p.requires_grad}
    assert len(learned) == 255
    for name, got in learned.items():
        expected = recorded[f"grad/{name}"]
        if np.abs(expected).max() < 1e-7:  # zero but for rounding: what follows takes the mean away
            assert np.abs(got).max() < 1e-6, name
        else:
            assert distance(got, expected) < 1e-3, name


def test_pictures_that_do_not_fit_are_refused():
    model = YOLO11("n").eval()
    for shape in ((1, 3, 100, 64), (1, 1, 64, 64), (3, 64, 64)):
        with pytest.raises(ValueError, match=r"multiples of 32, got \("):
            model(ta.zeros(shape))
    with pytest.raises(ValueError, match="sizes n, s, m, l, x"):
        YOLO11("q")


def test_objects_that_do_not_fit_are_refused():
    levels = [ta.zeros((2, 84, s, s)) for s in (8, 4, 2)]
    for labels, boxes in (((1, 3), (1, 3, 4)), ((2, 3), (2, 2, 4)), ((2, 3), (2, 3, 5))):
        with pytest.raises(ValueError, match=r"expected labels \(2, M\)"):
            detection_loss(levels, ta.zeros(labels, dtype=ta.int32), ta.zeros(boxes))


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_without_objects_teaches_classes_only(device):
    levels = [ta.rand(2, 84, s, s).to(device).requires_grad_() for s in (8, 4, 2)]
    labels = ta.full((2, 3), -1, dtype=ta.int32, device=device)
    loss, parts = detection_loss(levels, labels, ta.zeros((2, 3, 4), device=device))
    loss.backward()
    assert parts.numpy()[0] == parts.numpy()[2] == 0 < parts.numpy()[1]
    assert all(np.isfinite(x.grad.numpy()).all() for x in levels)
    assert all((x.grad.numpy()[:, :64] == 0).all() for x in levels)


def test_cells_go_to_the_object_they_fit_best():
    """Two objects over the same cells: a cell has one owner, and only cells inside their object are taken."""
    side = np.arange(8) * 8 + 4.0
    centres = ta.tensor(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2))  # (64, 2), of 8 pixels
    objects = ta.tensor([[[0.0, 0, 32, 32], [8, 8, 48, 48], [0, 0, 0, 0]]])
    labels = ta.tensor([[1, 0, -1]], dtype=ta.int32)
    boxes = F.cat([centres - 14, centres + 14], 1).unsqueeze(0)
    scores = ta.full((1, 64, 2), 0.5)
    targets = assign(scores, boxes, centres, labels, objects)
    chosen = targets.chosen.numpy()[0] > 0
    assert 10 <= chosen.sum() <= 20
    for cell in np.flatnonzero(chosen):
        x1, y1, x2, y2 = targets.boxes.numpy()[0, cell]
        assert x1 < centres.numpy()[cell, 0] < x2 and y1 < centres.numpy()[cell, 1] < y2
        assert (targets.scores.numpy()[0, cell] > 0).sum() == 1
    assert (targets.scores.numpy()[0, ~chosen] == 0).all()
    assert targets.scores.numpy()[0].max(0) == pytest.approx([1, 1], abs=0.7)


@pytest.mark.slow
def test_eight_boxes_are_learned_by_heart():
    """A few steps on one batch must bring every part of the loss down."""
    ta.manual_seed(0)
    model = YOLO11("n", classes=3).train()
    optimizer = ta.optim.AdamW(model.parameters(), lr=2e-3)
    images = ta.rand(2, 3, 64, 64)
    labels = ta.tensor([[0, 1], [2, -1]], dtype=ta.int32)
    boxes = ta.tensor([[[0.3, 0.3, 0.4, 0.4], [0.7, 0.6, 0.3, 0.5]], [[0.5, 0.5, 0.8, 0.6], [0, 0, 0, 0]]])
    history = []
    for _ in range(40):
        loss, parts = detection_loss(model(images), labels, boxes)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(parts.numpy())
    assert (np.mean(history[-5:], 0) < 0.6 * np.mean(history[:5], 0)).all()
