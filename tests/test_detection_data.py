"""Pictures with boxes: read from files, made, and changed by chance so that boxes change with them."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image

from tinyadept.data.augmentation import (
    GREY,
    Augmentation,
    augmented,
    letterbox,
    mirrored,
    recoloured,
    squared,
)
from tinyadept.data.detection import DetectionDataset
from tinyadept.data.pictures import DataError
from tinyadept.data.shapes import NAMES, Shapes
from tinyadept.data.yolo import labels_of, read

COLOURS = np.array([(220, 30, 30), (30, 220, 30), (30, 30, 220), (220, 220, 30), (30, 220, 220)], np.uint8)


class Rectangles:
    """Pictures of different proportions with coloured rectangles: class c has colour c."""

    names: ClassVar = [str(number) for number in range(len(COLOURS))]
    sizes: ClassVar = [(80, 120), (120, 60), (100, 100), (60, 128)]

    def __len__(self):
        return len(self.sizes)

    def extent(self, index):
        return self.sizes[index]

    def objects(self, index):
        boxes = [(0.3, 0.25, 0.3, 0.3), (0.75, 0.7, 0.35, 0.3)]
        return np.array([index, (index + 1) % 5], np.int32), np.array(boxes, np.float32)

    def image(self, index):
        h, w = self.sizes[index]
        image = np.full((h, w, 3), 128, np.uint8)
        for label, (cx, cy, wide, tall) in zip(*self.objects(index)):
            x1, x2 = round((cx - wide / 2) * w), round((cx + wide / 2) * w)
            image[round((cy - tall / 2) * h) : round((cy + tall / 2) * h), x1:x2] = COLOURS[label]
        return image


def seen(square, label):
    """Corners of the pixels that have a class's colour."""
    apart = np.abs(square - COLOURS[label].astype(np.float32)[:, None, None] / 255).max(0)
    y, x = np.nonzero(apart < 0.2)
    return np.array([x.min(), y.min(), x.max() + 1, y.max() + 1]) if len(x) else None


def corners(boxes, size):
    return np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1) * size


# --- augmentation ---


@pytest.mark.parametrize("flip", [0.0, 1.0])
def test_boxes_move_with_one_picture(flip):
    how = Augmentation(0.0, 0.5, 0.2, flip, 0.0, 0.0, 0.0)
    data, found = DetectionDataset(Rectangles(), 128, how), 0
    for seed in range(25):
        for index in range(len(data)):
            square, labels, boxes = data.draw(index, np.random.default_rng(seed))
            for label, box in zip(labels[labels >= 0], corners(boxes[labels >= 0], 128)):
                np.testing.assert_allclose(box, seen(square, label), atol=2.1)
                found += 1
    assert found > 150


def test_boxes_move_with_four_pictures():
    data, found, pictures = (
        DetectionDataset(Rectangles(), 128, Augmentation(hue=0, saturation=0, value=0)),
        0,
        0,
    )
    for seed in range(150):
        square, labels, boxes = data.draw(0, np.random.default_rng(seed))
        labels, boxes = labels[labels >= 0], corners(boxes[labels >= 0], 128)
        pictures += len(labels) > 2
        for label, box in zip(labels, boxes):
            if (labels == label).sum() == 1:
                where = seen(square, label)
                outside = (where < box - 2.1)[:2].any() or (where > box + 2.1)[2:].any()
                if not outside:  # else a bit of another one of this class is in sight, too small to count
                    np.testing.assert_allclose(box, where, atol=2.1)
                    found += 1
    assert found > 150 and pictures > 50


def test_chance_is_the_seeds():
    data = DetectionDataset(Shapes(8, 64), 64, Augmentation())
    one, two, other = (data.draw(3, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))
    assert not np.array_equal(one[0], other[0])
    assert one[0].dtype == np.float32 and one[0].min() >= 0 and one[0].max() <= 1
    assert one[1].shape == (data.most,) and one[2].shape == (data.most, 4)


def test_every_object_finds_a_row():
    source = Shapes(8, 64)
    most = max(len(source.objects(index)[0]) for index in range(8))
    assert DetectionDataset(source, 64).most >= most
    assert DetectionDataset(source, 64, Augmentation()).most >= 4 * most
    assert DetectionDataset(source, 64, Augmentation(mosaic=0.0)).most < 4 * most


def test_an_object_mostly_out_of_sight_is_left_out():
    image, label = np.zeros((64, 64, 3), np.uint8), np.zeros(1, np.int32)
    still = Augmentation(0, 0, 0, 0, 0, 0, 0)
    for x, kept in ((-0.06, 0), (0.0, 1), (0.5, 1)):
        box = np.array([[x, 0.5, 0.14, 0.2]], np.float32)
        assert len(augmented([(image, label, box)], 64, still, np.random.default_rng(0))[1]) == kept
    box = np.array([[0.0, 0.5, 0.2, 0.2]], np.float32)
    _, _, kept = augmented([(image, label, box)], 64, still, np.random.default_rng(0))
    np.testing.assert_allclose(kept, [[0, 0.4 * 64, 0.1 * 64, 0.6 * 64]], rtol=1e-5)


def test_colours_agree_with_the_standard_library():
    import colorsys

    square = np.random.default_rng(0).uniform(size=(3, 6, 5)).astype(np.float32)
    square[:, 0, 0] = 0.3  # a grey, which has no hue
    changed = recoloured(square, 1.01, 0.6, 1.2)
    for y, x in np.ndindex(6, 5):
        h, s, v = colorsys.rgb_to_hsv(*square[:, y, x].tolist())
        wanted = colorsys.hsv_to_rgb(h * 1.01 % 1, min(s * 0.6, 1), min(v * 1.2, 1))
        np.testing.assert_allclose(changed[:, y, x], wanted, atol=1e-5)
    np.testing.assert_allclose(recoloured(square, 1, 1, 1), square, atol=1e-5)


@pytest.mark.parametrize("extent", [(480, 640), (640, 480), (33, 100), (5, 1000), (64, 64)])
def test_a_letterbox_and_back(extent):
    height, width = extent
    box = letterbox(height, width, 96)
    rng = np.random.default_rng(0)
    near = rng.uniform(0, 0.5, (20, 2)) * (width, height)
    boxes = np.concatenate([near, near + rng.uniform(0, 0.5, (20, 2)) * (width, height)], 1)
    there = box.forward(boxes)
    assert (there >= 0).all() and (there <= 96).all()
    np.testing.assert_allclose(box.back(there), boxes, rtol=1e-4, atol=1e-3)
    assert box.back(np.array([[-500.0, -500, 500, 500]])).tolist() == [[0, 0, width, height]]
    square, again = squared(np.zeros((height, width, 3), np.uint8), 96)
    assert again == box and square.shape == (3, 96, 96)
    assert (square == 0).sum() == 3 * box.width * box.height and (
        square[square > 0] == np.float32(GREY)
    ).all()


def test_samples_without_chance_have_their_boxes():
    data = DetectionDataset(Rectangles(), 128)
    for index in range(len(data)):
        square, labels, boxes = data[index]
        for label, box in zip(labels[labels >= 0], corners(boxes[labels >= 0], 128)):
            np.testing.assert_allclose(box, seen(square, label), atol=2.1)
        place, _, own = data.truth(index)
        np.testing.assert_allclose(place.forward(own), corners(boxes[labels >= 0], 128), atol=1)


def test_mirrors():
    square = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    boxes = np.array([[0.0, 0, 0.5, 2]])
    other, moved = mirrored(square, boxes)
    assert moved.tolist() == [[1.5, 0, 2, 2]] and other[0].tolist() == [[1, 0], [3, 2]]


def test_shapes_are_where_they_are_said_to_be():
    source, met = Shapes(40, 96, seed=2), set()
    for index in range(len(source)):
        image, (labels, boxes) = source.image(index), source.objects(index)
        assert np.array_equal(image, source.image(index))
        met |= set(labels.tolist())
        paper = np.median(image.reshape(-1, 3), 0)
        other = np.abs(image - paper).mean(2) > 255 * 0.2
        for x1, y1, x2, y2 in np.round(corners(boxes, 96)).astype(int):
            assert other[y1:y2, x1:x2].mean() > 0.4
            other[y1:y2, x1:x2] = False
        assert other.mean() < 0.01
    assert met == set(range(len(NAMES)))
    with pytest.raises(IndexError):
        source.image(40)


# --- files ---


def written(root, split="train", texts=("0 0.5 0.5 0.2 0.2\n", "1 0.3 0.3 0.2 0.2\n"), names="[a, b]"):
    for kind in ("images", "labels"):
        (root / kind / split).mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        Image.new("RGB", (40, 30)).save(root / "images" / split / f"{number}.png")
        if text is not None:
            (root / "labels" / split / f"{number}.txt").write_text(text)
    if names:
        (root / "data.yaml").write_text(f"{split}: images/{split}\nnames: {names}\n")
    return root


def test_a_data_set_is_read(tmp_path):
    made = read(written(tmp_path), "train")
    assert made.names == ["a", "b"] and len(made) == 2 and made.extent(0) == (30, 40)
    assert made.objects(1)[0].tolist() == [1] and made.image(0).shape == (30, 40, 3)
    np.testing.assert_allclose(made.objects(1)[1], [[0.3, 0.3, 0.2, 0.2]])
    assert made.report() == "2 pictures, 2 objects"
    named = (tmp_path / "data.yaml").read_text().replace("[a, b]", "{0: a, 1: b}")
    (tmp_path / "data.yaml").write_text(f"path: .\n{named}")
    assert read(tmp_path / "data.yaml", "train").names == ["a", "b"]
    (tmp_path / "data.yaml").unlink()
    assert read(tmp_path, "train").names == ["0", "1"]
    (tmp_path / "data.yaml").write_text("train: list.txt\nnames: [a, b]\n")
    (tmp_path / "list.txt").write_text("images/train/1.png\n")
    assert len(read(tmp_path, "train")) == 1


def test_labels_lie_beside_pictures():
    assert labels_of(Path("/images/images/train/x.y.jpg")) == Path("/images/labels/train/x.y.txt")


PROBLEMS = [
    ("0 0.5 0.5 0.2\n", "line that is not", 0),
    ("0 0.5 0.5 0.2 x\n", "line that is not", 0),
    ("0 0.5 0.5 0.2 nan\n", "line that is not", 0),
    ("2 0.5 0.5 0.2 0.2\n", "class without a name", 0),
    ("-1 0.5 0.5 0.2 0.2\n", "class without a name", 0),
    ("0.5 0.5 0.5 0.2 0.2\n", "class without a name", 0),
    ("0 1.5 0.5 0.2 0.2\n", "box outside", 0),
    ("0 0.5 0.5 0 0.2\n", "box outside", 0),
    ("0 0.95 0.5 0.2 0.2\n", "reaches out", 1),
    (None, "without a file of labels", 0),
]


@pytest.mark.parametrize(("text", "what", "kept"), PROBLEMS)
def test_what_is_wrong_is_named_and_skipped_or_refused(text, what, kept, tmp_path):
    root = written(tmp_path, texts=("0 0.5 0.5 0.2 0.2\n", text))
    with pytest.raises(DataError, match=rf"(?s)1 problems in 'train'.*1 × .*{what}.*: 1\.(txt:1|png)"):
        read(root, "train")
    made = read(root, "train", "skip")
    assert len(made.objects(1)[0]) == kept and what in made.report()
    if kept:
        np.testing.assert_allclose(made.objects(1)[1], [[0.925, 0.5, 0.15, 0.2]], rtol=1e-5)


def test_broken_and_missing_pictures(tmp_path):
    root = written(tmp_path, texts=("0 0.5 0.5 0.2 0.2\n",) * 4)
    noise = np.random.default_rng(0).integers(0, 255, (30, 40, 3)).astype(np.uint8)
    Image.fromarray(noise).save(tmp_path / "images/train/1.jpg")
    whole = (tmp_path / "images/train/1.jpg").read_bytes()
    (tmp_path / "images/train/1.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "images/train/2.png").write_bytes(b"no picture")
    (tmp_path / "images/train/3.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"3 × broken picture \(skipped\): 1.jpg, 2.png, 3.png"):
        read(root, "train")
    made = read(root, "train", "skip")
    assert len(made) == 2 and len(made.problems) == 3
    (tmp_path / "data.yaml").write_text("train: list.txt\nnames: [a, b]\n")
    (tmp_path / "list.txt").write_text("images/train/0.png\nimages/train/gone.png\n")
    with pytest.raises(DataError, match=r"missing picture \(skipped\): gone.png"):
        read(root, "train")
    assert len(read(root, "train", "skip")) == 1


def test_pictures_without_objects(tmp_path):
    root = written(tmp_path, texts=("0 0.5 0.5 0.2 0.2\n", ""))
    kept, skipped = read(root, "train"), read(root, "train", empty="skip")
    assert (len(kept), len(skipped)) == (2, 1)
    assert "1 × picture without objects (kept): 1.png" in kept.report()
    assert "1 × picture without objects (skipped): 1.png" in skipped.report()
    with pytest.raises(DataError, match="without objects"):
        read(root, "train", empty="refuse")
    (tmp_path / "labels/train/0.txt").write_text("")
    with pytest.raises(DataError, match="no picture of 'train' can be used"):
        read(root, "train", empty="skip")


@pytest.mark.parametrize(
    ("yaml", "what"),
    [
        ("train: [", "is no YAML"),
        ("- 1\n", "does not name the classes"),
        ("names: {1: a}\ntrain: images/train\n", "count from 0"),
        ("names: [a, b]\nval: images/train\n", "no split 'train', only val"),
        ("names: [a, b]\ntrain: elsewhere\n", "not there"),
        ("names: [a, b]\ntrain: empty\n", "no pictures for 'train'"),
    ],
)
def test_descriptions_that_cannot_be_used(yaml, what, tmp_path):
    written(tmp_path, names=None)
    (tmp_path / "empty").mkdir()
    (tmp_path / "data.yaml").write_text(yaml)
    with pytest.raises(DataError, match=what):
        read(tmp_path, "train")


def test_folders_that_cannot_be_used(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*absent"):
        read(tmp_path / "absent", "train")
    with pytest.raises(DataError, match=r"neither a data\.yaml nor"):
        read(tmp_path, "train")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("names: [a]\n")
    with pytest.raises(DataError, match=r"a\.yaml, b\.yaml"):
        read(tmp_path, "train")
