"""A detector learns: the measure, the average of weights, training and resuming, and scripts/detect.py."""

import contextlib
import io as text
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES
from PIL import Image

import tinyadept as ta
from tinyadept import io, nn
from tinyadept.data.shapes import Shapes
from tinyadept.ops import update
from tinyadept.training.average_precision import Boxes, average_precision, matched, overlaps
from tinyadept.training.averaging import MovingAverage
from tinyadept.training.detection import Detection
from tinyadept.training.detections import found
from tinyadept.training.loop import Training

ROOT = Path(__file__).parents[1]
CELLS = ROOT.parent / "shared" / "data" / "bccd"


def boxes_of(*rows):
    """Boxes from rows of label, score, x1, y1, x2, y2."""
    array = np.array(rows, float).reshape(-1, 6)
    return Boxes(array[:, 0].astype(int), array[:, 1], array[:, 2:])


def objects_of(*rows):
    array = np.array(rows, float).reshape(-1, 5)
    return array[:, 0].astype(int), array[:, 1:]


# --- average precision ---


def drawn(rng, ties, many):
    found, objects = [], []
    for _ in range(12):
        n = rng.integers(0, 12)
        near = rng.integers(0, 40, (n, 2))
        corners = np.concatenate([near, near + rng.integers(1, 20, (n, 2))], 1).astype(float)
        labels = rng.integers(0, 3, n)
        objects.append((labels, corners))
        k = (150 if many else 25) * (n > 0)
        which = rng.integers(0, max(n, 1), k)
        moved = corners[which] + rng.integers(-3, 4, (k, 4)) if n else np.zeros((0, 4))
        moved[:, 2:] = np.maximum(moved[:, 2:], moved[:, :2] + 1)
        guesses = np.where(rng.uniform(size=k) < 0.7, labels[which] if n else 0, rng.integers(0, 3, k))
        scores = rng.integers(0, 20, k) / 20 if ties else rng.uniform(size=k)
        found.append(Boxes(guesses, scores, moved))
    return found, objects


def official(found, objects):
    """What pycocotools says."""
    coco = pytest.importorskip("pycocotools.coco")
    from pycocotools.cocoeval import COCOeval

    truth = coco.COCO()
    rows = [(i, *row) for i, pair in enumerate(objects) for row in zip(*pair)]
    truth.dataset = {
        "images": [{"id": i + 1} for i in range(len(objects))],
        "categories": [{"id": i + 1} for i in range(3)],
        "annotations": [
            {
                "id": number + 1,
                "image_id": i + 1,
                "category_id": int(label) + 1,
                "bbox": [x1, y1, x2 - x1, y2 - y1],
                "area": (x2 - x1) * (y2 - y1),
                "iscrowd": 0,
            }
            for number, (i, label, (x1, y1, x2, y2)) in enumerate(rows)
        ],
    }
    results = [
        (i + 1, x1, y1, x2 - x1, y2 - y1, score, label + 1)
        for i, boxes in enumerate(found)
        for label, score, (x1, y1, x2, y2) in zip(*boxes)
    ]
    with contextlib.redirect_stdout(text.StringIO()):
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(np.array(results)), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return judge.stats[1], judge.stats[0]


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_agrees_with_cocos(seed):
    found, objects = drawn(np.random.default_rng(seed), ties=seed % 2, many=seed > 3)
    np.testing.assert_allclose(average_precision(found, objects)[:2], official(found, objects), rtol=1e-12)


def test_of_objects_that_fit_alike_the_last_is_taken():
    found = [boxes_of((0, 0.9, 2, 0, 12, 10), (0, 0.8, 0, 0, 10, 10))]
    objects = [objects_of((0, 0, 0, 10, 10), (0, 4, 0, 14, 10))]
    assert average_precision(found, objects).at_50 == pytest.approx(official(found, objects)[0]) == 1
    objects = [objects_of((0, 4, 0, 14, 10), (0, 0, 0, 10, 10))]
    assert average_precision(found, objects).at_50 == pytest.approx(official(found, objects)[0]) == 51 / 101


def test_average_precision_by_hand():
    objects = [objects_of((0, 0, 0, 10, 10), (0, 20, 20, 30, 30))]
    right, wrong = (0, 0.9, 0, 0, 10, 10), (0, 0.95, 50, 50, 60, 60)
    assert average_precision([boxes_of(right)], objects).at_50 == pytest.approx(51 / 101)  # recall up to 0.5
    assert average_precision([boxes_of(right, wrong)], objects).at_50 == pytest.approx(51 / 101 / 2)
    assert average_precision([boxes_of(right, right)], objects).at_50 == pytest.approx(
        51 / 101
    )  # twice is once
    close = (0, 0.8, 20, 20, 30, 27)  # overlaps by 0.7
    both = average_precision([boxes_of(right, close)], objects)
    assert both.at_50 == 1 and both.at_50_95 == pytest.approx((5 + 5 * 51 / 101) / 10)
    assert average_precision([boxes_of()], objects)[:2] == (0, 0)
    assert average_precision([boxes_of((1, *right[1:]))], objects).at_50 == 0
    assert np.isnan(average_precision([boxes_of(right)], [objects_of()]).at_50)


def test_overlaps_and_matches():
    a, b = np.array([[0.0, 0, 2, 2]]), np.array([[1.0, 1, 3, 3], [0, 0, 2, 2], [5, 5, 6, 6], [1, 1, 1, 1]])
    np.testing.assert_allclose(overlaps(a, b), [[1 / 7, 1, 0, 0]])
    assert matched(np.repeat(a, 2, 0), b).tolist() == [[True, False]] * 10


def test_of_many_boxes_the_surest_hundred_are_kept():
    rows = np.arange(300)
    output = np.stack([rows * 9, rows * 9, 0 * rows + 5, 0 * rows + 5, np.linspace(0.1, 1, 300)])
    boxes = found(output, 0.05, 0.5)
    np.testing.assert_allclose(boxes.scores, np.linspace(0.1, 1, 300)[:199:-1])
    twice = np.concatenate([output[:, 290:], output[:, 290:] + [[1], [0], [0], [0], [-0.05]]], 1)
    assert found(twice, 0.05, 0.5).corners[:, 0].tolist() == [x * 9 - 2.5 for x in range(299, 289, -1)]
    assert len(found(twice, 0.05, 0.8).labels) == 20 and len(found(output, 1.1, 0.5).labels) == 0


def test_what_a_detector_says_becomes_boxes():
    output = np.array([[10.0, 10, 4, 6, 0.9, 0.1], [50, 50, 2, 2, 0.2, 0.3]]).T
    boxes = found(output, 0.25, 0.7)
    assert boxes.labels.tolist() == [0, 1] and boxes.scores.tolist() == [0.9, 0.3]
    assert boxes.corners.tolist() == [[8, 7, 12, 13], [49, 49, 51, 51]]


# --- the average of weights ---


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("captured", [False, True])
def test_an_average_follows(device, captured):
    rng = np.random.default_rng(0)
    values = rng.normal(size=(7, 3, 5)).astype(np.float32)
    model, average = nn.Linear(5, 3).to(device), nn.Linear(5, 3).to(device)
    follower = MovingAverage(model, average, decay=0.9, warmup=3)
    wanted = model.weight.detach().numpy().astype(float)

    def step(weight):
        with ta.no_grad():
            model.weight.copy_(weight)
        follower.step()
        return model.weight.sum()

    step = ta.capture(step, device) if captured else step
    for number, value in enumerate(values, 1):
        step(value if captured else ta.tensor(value, device=device))
        keep = 0.9 * (1 - np.exp(-number / 3))
        wanted = keep * wanted + (1 - keep) * value
        np.testing.assert_allclose(average.weight.numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert follower.steps == len(values)
    np.testing.assert_allclose(average.bias.numpy(), model.bias.detach().numpy(), rtol=1e-6)
    assert not any(p.requires_grad for p in average.parameters())


@pytest.mark.parametrize("device", DEVICES)
def test_ema_reads_its_second_operand(device):
    a, b = ta.tensor([1.0, 2.0], device=device), ta.tensor([3.0, -6.0], device=device)
    update.ema((a, b), numbers=lambda: (0.75, 0.25))
    assert a.numpy().tolist() == [1.5, 0] and b.numpy().tolist() == [3, -6]


# --- train.py and detect.py ---


def run(program, *arguments):
    command = [sys.executable, str(ROOT / program), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def trained(*arguments):
    result = run("train.py", "yolo11", *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def written(root, counts):
    """Shapes as files in YOLO's format."""
    for number, (split, count) in enumerate(counts.items()):
        source = Shapes(count, 48, seed=number)
        for kind in ("images", "labels"):
            (root / kind / split).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(source.image(index)).save(root / "images" / split / f"{index}.png")
            lines = [f"{label} {' '.join(map(str, box))}" for label, box in zip(*source.objects(index))]
            (root / "labels" / split / f"{index}.txt").write_text("\n".join(lines))
    listed = "".join(f"{split}: images/{split}\n" for split in counts)
    (root / "data.yaml").write_text(f"{listed}names: {Shapes.names}\n")
    return root


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    """Data, the folder and the output of three epochs without interruption."""
    data = written(tmp_path_factory.mktemp("data"), {"train": 9, "val": 3})
    out = tmp_path_factory.mktemp("straight")
    options = ("--data", data, "--size", 64, "--batch", 4, "--every", 2)
    return data, options, out, trained(*options, "--epochs", 3, "--workers", 2, "--out", out)


@pytest.mark.slow
def test_what_a_training_prints_and_leaves(straight):
    _, _, out, told = straight
    lines = told.splitlines()
    assert lines[0].startswith("train: 9 pictures, ") and lines[1].startswith("val: 3 pictures, ")
    losses = re.findall(
        r"^epoch \d/3  box \d+\.\d{4}  class \d+\.\d{4}  shape \d+\.\d{4}", told, re.MULTILINE
    )
    assert len(losses) == 3
    assert len(re.findall(r"^epoch [23]/3 .*  mAP50 0\.\d{3}  mAP50-95 0\.\d{3}  ", told, re.MULTILINE)) == 2
    assert re.fullmatch(r"val mAP50: 0\.\d{3}, mAP50-95: 0\.\d{3}", lines[-1])
    left = {"checkpoint.safetensors", "weights.safetensors", "learning-curve.png", "predictions.png"}
    assert {file.name for file in out.iterdir()} == left
    for name in ("learning-curve.png", "predictions.png"):
        with Image.open(out / name) as picture:
            assert np.array(picture).std() > 10


@pytest.mark.slow
def test_training_resumes_bit_for_bit_with_other_workers(straight, tmp_path):
    """As if interrupted after the first epoch: the last one of three has no mosaics."""
    data, _, out, _ = straight
    settings = {"data": str(data), "size": 64, "batch": 4, "epochs": 3}
    training = Training(Detection, settings, {"workers": 0, "every": 2})
    training.epoch()
    training.save(tmp_path / "checkpoint.safetensors")
    training.task.arrange(1)
    assert training.task.train.augmentation.mosaic == 1
    training.task.arrange(2)
    assert training.task.train.augmentation.mosaic == 0
    trained("--resume", "--out", tmp_path, "--workers", 1, "--every", 2)
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        once, twice = io.load(out / name), io.load(tmp_path / name)
        assert once.keys() == twice.keys()
        for key, x in once.items():
            assert x.numpy().tobytes() == twice[key].numpy().tobytes(), key
        assert io.load_metadata(out / name) == io.load_metadata(tmp_path / name)
    result = run("train.py", "yolo11", "--resume", "--out", tmp_path, "--epochs", 9)
    assert result.returncode == 1 and "was begun with --epochs 3" in result.stderr


@pytest.mark.slow
def test_detect_draws_what_it_finds(straight, tmp_path):
    data, _, out, _ = straight
    source = data / "images" / "val"
    result = run(
        "scripts/detect.py", "--weights", out / "weights.safetensors", "--source", source, "--out", tmp_path,
        "--conf", 0.001,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"^\S+\.png: \d+ objects$", result.stdout, re.MULTILINE)) == 3
    shown = re.findall(r"^  (\w+) 0\.\d{3}((?: \d+\.\d){4})$", result.stdout, re.MULTILINE)
    assert shown and {name for name, _ in shown} <= set(Shapes.names)
    edges = np.array([[float(edge) for edge in corners.split()] for _, corners in shown])
    assert edges.min() >= 0 and edges.max() <= 48
    with Image.open(tmp_path / "0.png.png") as drawn, Image.open(source / "0.png") as plain:
        assert drawn.size == plain.size and (np.array(drawn) != np.array(plain)).any()


@pytest.mark.slow
def test_detect_refuses(straight, tmp_path):
    _, _, out, _ = straight
    io.save(tmp_path / "other", {"x": ta.zeros(2)})
    (tmp_path / "broken.png").write_bytes(b"nothing")
    for weights, source, what in (
        (tmp_path / "absent", tmp_path, "no such file"),
        (tmp_path / "other", tmp_path, "holds no YOLO11"),
        (out / "weights.safetensors", tmp_path / "absent", "there is no"),
        (out / "weights.safetensors", out / "absent", "there is no"),
        (out / "weights.safetensors", tmp_path / "broken.png", "cannot be read"),
    ):
        result = run("scripts/detect.py", "--weights", weights, "--source", source, "--out", tmp_path)
        assert result.returncode == 1 and what in result.stderr and "Traceback" not in result.stderr


def test_train_refuses_what_does_not_fit(tmp_path):
    data = written(tmp_path / "data", {"train": 2, "val": 1})
    for options, what in (
        (("--size", 100), "multiple of 32"),
        (("--data", tmp_path / "absent"), "there is no"),
        (("--data", data, "--batch", 4), "make no batch of 4"),
    ):
        result = run("train.py", "yolo11", "--out", tmp_path / "out", *options)
        assert result.returncode == 1 and what in result.stderr and "Traceback" not in result.stderr
    (data / "labels" / "train" / "0.txt").write_text("nonsense")
    result = run("train.py", "yolo11", "--data", data, "--out", tmp_path / "out")
    assert result.returncode == 1 and "0.txt:1" in result.stderr and "--problems skip" in result.stderr
    result = run("train.py", "digits", "--size", 64)
    assert result.returncode == 2 and "digits has no --size" in result.stderr


@pytest.mark.slow
@pytest.mark.skipif(not CELLS.exists(), reason=f"the pictures of blood cells are not there: {CELLS}")
def test_eight_pictures_are_learned_by_heart(tmp_path):
    for split in ("train", "val"):
        for kind in ("images", "labels"):
            (tmp_path / kind / split).mkdir(parents=True)
            for file in sorted((CELLS / kind / "train").iterdir())[:8]:
                shutil.copy(file, tmp_path / kind / split)
    settings = {"data": str(tmp_path), "size": 192, "batch": 2, "lr": 0.003, "epochs": 60, "augment": 0.0}
    training = Training(Detection, settings, {"workers": 0, "every": 60})
    for _ in range(60):
        training.epoch()
    assert training.history[-1]["mAP50"] > 0.95
    assert training.history[-1]["box"] < 0.5 * training.history[0]["box"]


@pytest.mark.slow
def test_a_captured_step_learns_the_same_on_every_device(monkeypatch):
    """Four steps, of which Vulkan replays the last, with the average of weights and what it finds."""
    seen = {}
    for device in DEVICES:
        name = device if isinstance(device, str) else device.values[0]
        monkeypatch.setenv("TINYADEPT_DEVICE", name)
        task = Training(Detection, {"size": 64, "batch": 2}, {"workers": 0}).task
        task.model.train()
        losses = []
        for _, batch in zip(range(4), task.loader):
            losses.append(task.step(*batch).numpy().copy())
            task.schedule.step()
        assert task.step.captured == (name != "numpy") and task.average.steps == 4
        seen[name] = losses, task.average.state_dict()["model.0.bn.running_mean"].numpy()
        assert len(task.found(task.val, range(3), 0.0)) == 3
    losses, means = seen["numpy"]
    for others, other_means in seen.values():
        np.testing.assert_allclose(np.array(others)[:, 1], np.array(losses)[:, 1], rtol=0.02)
        np.testing.assert_allclose(other_means, means, rtol=1e-3, atol=1e-5)
