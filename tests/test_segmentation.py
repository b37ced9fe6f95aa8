"""A UNet learns: the loss, the measure, training and resuming, and what it refuses."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICES
from PIL import Image

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import io
from tinyadept.data.pictures import VOID
from tinyadept.data.shapes import Shapes
from tinyadept.training.loop import Training
from tinyadept.training.overlap import Overlap
from tinyadept.training.segmentation import Segmentation

ROOT = Path(__file__).parents[1]


# --- the loss ---


def dice(logits, target, ignored, smooth):
    """Class by class and pixel by pixel, in plain Python."""
    losses = []
    for c in range(logits.shape[1]):
        shared = size = 0.0
        for n, *place in np.ndindex(target.shape):
            if target[n, *place] == ignored:
                continue
            scores = np.exp(logits[n, :, *place].astype(float))
            p, y = scores[c] / scores.sum(), float(target[n, *place] == c)
            shared, size = shared + p * y, size + p * p + y
        losses.append(1 - (2 * shared + smooth) / (size + smooth))
    return np.array(losses)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 7), (2, 4, 5, 3)])
def test_dice_agrees_with_a_loop(device, shape):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=shape).astype(np.float32)
    target = rng.integers(0, shape[1] - 1, (shape[0], *shape[2:])).astype(
        np.uint8
    )  # the last class is absent
    target.ravel()[::4] = VOID
    expected = dice(logits, target, VOID, 0.5)
    options = {"ignore_index": VOID, "smooth": 0.5}
    x, y = ta.tensor(logits, device=device), ta.tensor(target, device=device)
    got = F.dice_loss(x, y, reduction="none", **options)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)
    assert F.dice_loss(x, y, **options).item() == pytest.approx(expected.mean(), rel=1e-5)


def test_dice_has_its_gradient():
    rng = np.random.default_rng(0)
    logits = ta.tensor(rng.normal(size=(2, 3, 4)), dtype=ta.float64, requires_grad=True)
    target = ta.tensor([[0, 1, 2, -100], [2, 2, 0, 1]])
    ta.gradcheck(lambda x: F.dice_loss(x, target), [logits])
    F.dice_loss(logits, target).backward()
    assert (logits.grad.numpy()[0, :, 3] == 0).all() and (logits.grad.numpy()[1] != 0).all()


def test_dice_at_its_ends():
    target = ta.tensor([[0, 1, 1]])
    sure = ta.tensor([[[50.0, -50, -50], [-50, 50, 50], [-99, -99, -99]]])
    assert F.dice_loss(sure, target).item() == pytest.approx(0, abs=1e-6)  # the third class costs nothing
    assert F.dice_loss(-sure, target, smooth=1e-6).item() == pytest.approx(1, abs=1e-4)


def test_what_dice_refuses():
    with pytest.raises(ValueError, match=r"\(N, C, …\), got shape \(3,\)"):
        F.dice_loss(ta.zeros(3), ta.tensor(0))
    with pytest.raises(ValueError, match="does not fit input"):
        F.dice_loss(ta.zeros(2, 3, 4), ta.zeros((2, 3), dtype=ta.int32))
    with pytest.raises(TypeError, match="integers"):
        F.dice_loss(ta.zeros(2, 3), ta.zeros(2))
    with pytest.raises(IndexError):
        F.dice_loss(ta.zeros(2, 3), ta.tensor([0, 3]))


# --- the measure ---


def test_overlaps_by_hand():
    overlap = Overlap(4)
    assert np.isnan(overlap.mean())
    overlap.add(np.array([[0, 0, 1], [1, 2, 2]]), np.array([[0, 1, 1], [1, VOID, 0]]))
    ious = overlap.ious()
    np.testing.assert_allclose(ious, [1 / 3, 2 / 3, 0, np.nan])
    assert overlap.mean() == pytest.approx(1 / 3)
    overlap.add(np.array([3]), np.array([3], np.uint8))
    np.testing.assert_allclose(overlap.ious(), [1 / 3, 2 / 3, 0, 1])


# --- training ---


def written(root, counts, size=32):
    """Shapes as pairs of files: a picture, and a mask with a palette."""
    for number, (split, count) in enumerate(counts.items()):
        source = Shapes(count, size, seed=number)
        for kind in ("images", "masks"):
            (root / split / kind).mkdir(parents=True)
        for index in range(count):
            Image.fromarray(source.image(index)).save(root / split / "images" / f"{index}.png")
            Image.fromarray(source.mask(index)).save(root / split / "masks" / f"{index}.png")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("upwards", ["transposed", "nearest", "bilinear"])
def test_six_pictures_are_learned_by_heart(upwards, tmp_path):
    data = written(tmp_path, {"train": 6})
    (data / "val").symlink_to(data / "train")
    settings = {"size": 32, "width": 16, "depth": 2, "batch": 3, "augment": 0.0, "lr": 0.01, "epochs": 80}
    settings |= {"data": str(data), "upwards": upwards}
    training = Training(Segmentation, settings, {"workers": 0, "every": 5})
    while not training.history or training.history[-1].get("mean IoU", 0) <= 0.9:
        assert len(training.history) < 80, training.history[-1]
        training.epoch()
    assert training.history[-1]["dice"] < 0.5 * training.history[0]["dice"]


def run(*arguments):
    command = [sys.executable, str(ROOT / "train.py"), "unet", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_a_training_leaves_pictures_and_resumes_bit_for_bit(tmp_path):
    """Two epochs by two workers; and one without workers, interrupted and gone on with by one."""
    data, out = written(tmp_path / "data", {"train": 7, "val": 3}), tmp_path / "straight"
    small = ("--data", data, "--size", 32, "--width", 4, "--depth", 2, "--batch", 3, "--epochs", 2)
    result = run(*small, "--workers", 2, "--out", out)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0].startswith("train: 7 pictures with masks: 0 ") and lines[1].startswith("val: 3 pictures")
    epoch = r"epoch [12]/2  entropy \d\.\d{4}  dice 0\.\d{4}  mean IoU 0\.\d{3}  \d+\.\d s"
    assert len([line for line in lines if re.fullmatch(epoch, line)]) == 2
    assert len([line for line in lines if re.fullmatch(r"val [0-3]: IoU (0\.\d{3}|nan)", line)]) == 4
    assert re.fullmatch(r"val mean IoU: 0\.\d{3}", lines[-1])
    left = {"checkpoint.safetensors", "weights.safetensors", "learning-curve.png", "predictions.png"}
    assert {file.name for file in out.iterdir()} == left
    with Image.open(out / "predictions.png") as picture:
        assert picture.size == (3 * 32 + 2 * 8, 3 * 32 + 2 * 8) and np.array(picture).std() > 10

    settings = {"data": str(data), "size": 32, "width": 4, "depth": 2, "batch": 3, "epochs": 2}
    training = Training(Segmentation, settings, {"workers": 0})
    training.epoch()
    (tmp_path / "again").mkdir()
    training.save(tmp_path / "again" / "checkpoint.safetensors")
    result = run("--resume", "--out", tmp_path / "again", "--workers", 1)
    assert result.returncode == 0, result.stderr
    for name in ("checkpoint.safetensors", "weights.safetensors"):
        once, twice = io.load(out / name), io.load(tmp_path / "again" / name)
        assert once.keys() == twice.keys()
        for key, x in once.items():
            assert x.numpy().tobytes() == twice[key].numpy().tobytes(), key
        assert io.load_metadata(out / name) == io.load_metadata(tmp_path / "again" / name)


@pytest.mark.slow
def test_a_captured_step_learns_the_same_on_every_device(monkeypatch):
    """Four steps, of which Vulkan replays the last, and the masks that are found afterwards."""
    seen = {}
    for device in DEVICES:
        name = device if isinstance(device, str) else device.values[0]
        monkeypatch.setenv("TINYADEPT_DEVICE", name)
        settings = {"size": 32, "width": 4, "depth": 2, "batch": 2}
        task = Training(Segmentation, settings, {"workers": 0}).task
        task.model.train()
        losses = []
        for _, batch in zip(range(4), task.loader):
            losses.append(task.step(*batch).numpy().copy())
            task.schedule.step()
        assert task.step.captured == (name != "numpy")
        found = task.found(task.unseen["val"], 9)
        assert len(found) == 9 and found[0].shape == (32, 32)
        seen[name] = np.array(losses)
    for others in seen.values():
        np.testing.assert_allclose(others, seen["numpy"], rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--size", 44), "multiple of 8"),
        (("--size", 4, "--depth", 2), "at least 8"),
        (("--data", "absent"), "there is no absent/images"),
    ],
)
def test_what_does_not_fit_is_refused(options, what, tmp_path):
    result = run("--out", tmp_path, *options)
    assert result.returncode == 1 and what in result.stderr and "Traceback" not in result.stderr


def test_broken_pairs_are_refused_or_skipped(tmp_path):
    data = written(tmp_path, {"train": 4, "val": 1}, 16)
    (data / "train" / "masks" / "2.png").unlink()
    settings = {"data": str(data), "size": 16, "width": 2, "depth": 1, "batch": 3}
    with pytest.raises(Exception, match=r"(?s)without a mask.*train/images/2.png; --problems skip"):
        Training(Segmentation, settings, {"workers": 0})
    assert len(Training(Segmentation, settings, {"workers": 0, "problems": "skip"}).task.train) == 3
    with pytest.raises(Exception, match="make no batch of 4: try a smaller --batch"):
        Training(Segmentation, settings | {"batch": 4}, {"workers": 0, "problems": "skip"})
