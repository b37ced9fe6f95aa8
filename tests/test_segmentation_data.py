"""Pictures with masks: read from files, made, and changed by chance so that masks change with them."""

import numpy as np
import pytest
from PIL import Image

from tinyadept.data.augmentation import GREY, Augmentation, augmented_mask, squared_mask
from tinyadept.data.masks import NoClasses, classes_in, read
from tinyadept.data.pictures import VOID, DataError
from tinyadept.data.segmentation import SegmentationDataset
from tinyadept.data.shapes import NAMES, Shapes

COLOURS = np.array([(0, 0, 0), (250, 0, 0), (0, 250, 0), (0, 0, 250)], np.uint8)


class Painted:
    """Pictures of different proportions that show their masks: class c has colour c."""

    sizes = ((40, 64), (64, 30), (48, 48))

    def __len__(self):
        return len(self.sizes)

    def mask(self, index):
        h, w = self.sizes[index]
        mask = np.zeros((h, w), np.uint8)
        mask[h // 8 : h // 2, w // 4 : w // 2] = index + 1
        mask[h // 2 :, w // 2 : -w // 8] = (index + 1) % 3 + 1
        return mask

    def image(self, index):
        return COLOURS[self.mask(index)]


def agree(square, mask):
    """Away from edges, where colours mix, a picture shows its mask, and is grey where nothing counts."""
    known = mask != VOID
    wanted = COLOURS[np.where(known, mask, 0)].transpose(2, 0, 1) / 255
    wanted[:, ~known] = GREY
    wrong = np.abs(square - wanted).max(0) > 0.3
    edges = np.zeros_like(known)
    for axis, step in ((0, 1), (0, -1), (1, 1), (1, -1)):
        edges |= np.roll(mask, step, axis) != mask
    return not (wrong & ~edges).any() and wrong.mean() < 0.05


def test_a_mask_lies_where_its_picture_does():
    data = SegmentationDataset(Painted(), 64)
    for index in range(len(data)):
        square, mask = data[index]
        assert square.shape == (3, 64, 64) and square.dtype == np.float32
        assert mask.shape == (64, 64) and mask.dtype == np.uint8 and agree(square, mask)
        assert (mask == VOID).any() == (index < 2)
    assert (squared_mask(np.ones((5, 10), np.uint8), 10) == VOID).sum() == 50


@pytest.mark.parametrize("mosaic", [0.0, 1.0])
def test_masks_move_with_pictures(mosaic):
    how = Augmentation(mosaic, 0.5, 0.2, 0.5, 0.0, 0.0, 0.0, 0.5)
    data, classes = SegmentationDataset(Painted(), 64, how), set()
    for seed in range(40):
        square, mask = data.draw(seed % 3, np.random.default_rng(seed))
        assert agree(square, mask), seed
        classes |= set(np.unique(mask).tolist())
    assert classes == {0, 1, 2, 3, VOID}


def test_mirrors_are_what_they_say():
    image, mask = Painted().image(2), Painted().mask(2)
    still = {"mosaic": 0, "scale": 0, "translate": 0, "hue": 0, "saturation": 0, "value": 0}
    for flip, upend in np.ndindex(2, 2):
        how = Augmentation(**still, flip=flip, upend=upend)
        square, moved = augmented_mask([(image, mask)], 48, how, np.random.default_rng(0))
        turned = mask[:: -1 if upend else 1, :: -1 if flip else 1]
        assert (moved == turned).all() and agree(square, moved)


def test_generated_masks_outline_their_shapes():
    source, met = Shapes(20, 64, seed=3), set()
    for index in range(len(source)):
        image, mask = source.image(index).astype(float), source.mask(index)
        assert mask.shape == (64, 64) and (mask == source.mask(index)).all()
        met |= set(np.unique(mask).tolist())
        paper = np.median(image[mask == 0], 0)
        apart = np.abs(image - paper).mean(2) > 255 * 0.2
        assert (apart == (mask > 0)).mean() > 0.99
        labels, boxes = source.objects(index)
        for label, (cx, cy, w, h) in zip(labels, boxes * 64):
            part = mask[round(cy - h / 2) : round(cy + h / 2), round(cx - w / 2) : round(cx + w / 2)]
            assert set(np.unique(part)) <= {0, label + 1} and (part > 0).mean() > 0.4
    assert met == set(range(len(NAMES) + 1))


# --- files ---


def written(root, masks, size=(12, 10)):
    """Pictures a, b, … with masks, arrays or images or None."""
    for kind in ("images", "masks"):
        (root / kind).mkdir(parents=True)
    for name, mask in zip("abcdefghij", masks):
        Image.new("RGB", size, "teal").save(root / "images" / f"{name}.jpg")
        if mask is not None:
            image = mask if isinstance(mask, Image.Image) else Image.fromarray(mask)
            image.save(root / "masks" / f"{name}.png")
    return root


def classes(*values, size=(12, 10)):
    """A mask with these values in its first pixels, and 0 in the others."""
    mask = np.zeros(size[::-1], np.uint8)
    mask.ravel()[: len(values)] = values
    return mask


def palette(mask):
    image = Image.fromarray(mask, "L").convert("P")
    image.putdata(mask.ravel().tolist())
    image.putpalette([7, 7, 7, 200, 0, 0, 0, 200, 0] * 85)
    return image


def test_pairs_are_read_and_divided_always_alike(tmp_path):
    root = written(tmp_path, [classes(1, 2)] * 10)
    made = read(root)
    assert made.keys() == {"train", "val"} and [len(made[split]) for split in made] == [8, 2]
    names = {split: [pair.picture.name for pair in some.pairs] for split, some in made.items()}
    assert not set(names["train"]) & set(names["val"])
    assert names == {split: [pair.picture.name for pair in some.pairs] for split, some in read(root).items()}
    assert made["val"].names == ["0", "1", "2"] and made["val"].image(0).shape == (10, 12, 3)
    assert made["val"].mask(1).dtype == np.uint8 and (made["val"].mask(1) == classes(1, 2)).all()
    assert made["train"].report() == "8 pictures with masks: 0 98.3 %, 1 0.8 %, 2 0.8 % of the pixels"


def test_folders_say_the_split(tmp_path):
    for split, count in (("train", 3), ("val", 2), ("test", 1)):
        written(tmp_path / split, [classes(1)] * count)
    assert [len(some) for some in read(tmp_path).values()] == [3, 2, 1]
    (tmp_path / "val" / "masks").rename(tmp_path / "val" / "elsewhere")
    with pytest.raises(DataError, match=r"there is no .*val/masks"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("mask", "values"),
    [
        (classes(1, 2), [1, 2, 0]),
        (palette(classes(1, 2)), [1, 2, 0]),
        (classes(1, VOID, 3), [1, VOID, 3]),  # void beside classes
        (classes(VOID, 0), [1, 0, 0]),  # black and white
        (Image.fromarray(classes(VOID, 0) > 0), [1, 0, 0]),  # bits
        (np.stack([classes(1, 2)] * 3, 2), [1, 2, 0]),  # grey, stored as colours
        (np.stack([classes(1, 2), classes(7, 9)], 2), [1, 2, 0]),  # with transparency
        (classes(1, 2).astype(np.uint16), [1, 2, 0]),
    ],
)
def test_masks_of_every_kind(mask, values, tmp_path):
    made = read(written(tmp_path, [mask, mask]))
    assert made["train"].mask(0).ravel()[:3].tolist() == values
    assert made["train"].names == [str(n) for n in range(1 + max(v for v in values if v != VOID))]
    first = values[0] if values[0] != VOID else values[1]
    assert f"{first} 0.8 %" in made["train"].report()


def test_classes_have_names_if_a_file_says_them(tmp_path):
    root = written(tmp_path, [classes(1), classes(0)])
    (root / "classes.txt").write_text("paper\ncell\nmite\n\n")
    assert read(root)["val"].names == ["paper", "cell", "mite"]
    (root / "classes.txt").write_text("paper\n")
    with pytest.raises(DataError, match="names 1 classes: expected 2 to 255"):
        read(root)


PROBLEMS = [
    (None, "picture without a mask", "images/b.jpg"),
    (classes(1, size=(10, 12)), "mask of another size", "masks/b.png"),
    (np.stack([classes(1), classes(2), classes(3)], 2), "mask of colours", "masks/b.png"),
    (classes(1).astype(np.uint16) * 300, "class outside 0 to 254", "masks/b.png"),
    (classes(1, 2), "class without a name", "masks/b.png"),
]


@pytest.mark.parametrize(("mask", "what", "where"), PROBLEMS)
def test_what_is_wrong_is_named_and_refused_or_skipped(mask, what, where, tmp_path):
    root = written(tmp_path, [classes(1), mask, classes(1)])
    (root / "classes.txt").write_text("paper\ncell\n")
    with pytest.raises(DataError, match=rf"(?s)1 problems in 'train'.*1 × .*{what}.* \(skipped\): {where}"):
        read(root)
    made = read(root, "skip")
    assert sum(map(len, made.values())) == 2 and what in made["train"].report()


def test_broken_and_single_files(tmp_path):
    root = written(tmp_path, [classes(1)] * 6)
    (root / "images" / "a.jpg").write_bytes(b"no picture")
    whole = (root / "masks" / "b.png").read_bytes()
    (root / "masks" / "b.png").write_bytes(whole[: len(whole) // 2])
    (root / "images" / "c.jpg").unlink()
    (root / "masks" / "d.tif").write_bytes(b"")
    Image.fromarray(classes(1)).save(root / "masks" / "e.jpg")
    (root / "masks" / "e.png").unlink()
    (root / "masks" / "f.png").rename(root / "masks" / "f_mask.png")
    with pytest.raises(DataError, match="5 problems in 'train'"):
        read(root)
    with pytest.raises(DataError, match=r"(?s)no picture of 'train' can be used.*1 × mask stored as JPEG"):
        read(root, "skip")
    written(root / "more", [classes(1)] * 2)
    for kind in ("images", "masks"):
        (root / "more" / kind).rename(root / kind / "more")
    report = read(root, "skip")["train"].report()
    for kind in ("broken picture (skipped): images/a.jpg", "broken mask (skipped): masks/b.png"):
        assert f"1 × {kind}" in report
    assert "1 × mask without a picture (skipped): masks/c.png" in report
    assert "1 × several pictures or masks of one name (skipped): images/d.jpg" in report
    with pytest.raises(NoClasses, match="PNG"):
        classes_in(root / "masks" / "e.jpg")


def test_nothing_to_learn_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"there is no .*images"):
        read(tmp_path / "absent")
    with pytest.raises(DataError, match="every pixel of every mask has class 0"):
        read(written(tmp_path / "dull", [classes(0)] * 2))
    with pytest.raises(DataError, match="no picture of 'train' can be used"):
        read(written(tmp_path / "none", []))
    with pytest.raises(ValueError, match="problems must be one of"):
        read(tmp_path / "dull", "mend")
