"""Data sets for segmentation: a folder of pictures, and beside it one of masks, pictures of classes.

images/a.jpg has its mask in masks/a.png (or a_mask.png), of the same size, whose numbers, grey or of a
palette, are the pixels' classes; 255 beside other classes marks pixels that count nothing. Masks of 0 and 255
alone have the classes 0 and 1. Folders train, val and perhaps test have such pairs of folders; without them a
fifth of the pictures is set apart, always the same. A file classes.txt may name the classes, one a line.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .pictures import CHOICES, SUFFIXES, VOID, DataError, Problem, load, opened, refused, told

SPLITS = ("train", "val", "test")
APART = 0.2  # of the pictures, for measuring
NUMBERS = {
    "1",
    "L",
    "LA",
    "P",
    "PA",
    "I",
    "I;16",
    "I;16B",
    "I;16L",
}  # modes of masks whose pixels are numbers
LOSSY = {".jpg", ".jpeg"}


@dataclass
class Pair:
    """A picture and its mask as files, and how many pixels each class has, (256,)."""

    picture: Path
    mask: Path
    counts: np.ndarray


@dataclass
class MaskedPictures:
    """One split of a data set.

    Attributes
    ----------
    names : list of str
        Of the classes.
    pairs : list of Pair
    white : bool
        Whether 255 in the files stands for class 1.
    problems : list of Problem
        What was skipped.
    """

    names: list[str]
    pairs: list[Pair]
    white: bool = False
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pairs)

    def image(self, index: int) -> np.ndarray:
        """(H, W, 3) uint8, RGB."""
        return load(self.pairs[index].picture)

    def mask(self, index: int) -> np.ndarray:
        """(H, W) uint8: the class of each pixel; 255 where nothing counts."""
        mask = classes_in(self.pairs[index].mask)
        return (mask == VOID).astype(np.uint8) if self.white else mask.astype(np.uint8)

    def report(self) -> str:
        """How much there is of each class, and every kind of problem with its number and some places."""
        counts = np.sum([pair.counts for pair in self.pairs], 0)
        if self.white:
            counts[[1, VOID]] = counts[[VOID, 1]]
        known = max(counts[:VOID].sum(), 1)
        shares = [f"{name} {100 * count / known:.1f} %" for name, count in zip(self.names, counts)]
        first = f"{len(self)} pictures with masks: {', '.join(shares)} of the pixels"
        return "\n".join([first, *told(self.problems)])


def read(data: str | Path, problems: str = "refuse") -> dict[str, MaskedPictures]:
    """The splits of a data set by name, "train", "val" and perhaps "test", every file having been looked at.

    Parameters
    ----------
    data : path
        A folder that has images and masks, or train and perhaps val and test that have them.
    problems : {"refuse", "skip"}
        What to do about a picture or mask that has no counterpart, cannot be read or differs from it in size,
        and a mask whose pixels are no classes. "skip" leaves the pair out, and lists it.

    Raises
    ------
    DataError
        If there is a problem to be refused, or nothing is left.
    """
    root = Path(data)
    if problems not in CHOICES:
        raise ValueError(f"problems must be one of {CHOICES}, got {problems}")
    made, names = {}, named(root)
    for split, folder in folders(root).items():
        pairs, found = paired(folder, root)
        with ThreadPoolExecutor() as threads:
            looked = list(threads.map(lambda pair: examined(pair, names, root), pairs))
        found += [problem for _, problem in looked if problem]
        if found and problems == "refuse":
            raise refused(data, split, found)
        made[split] = MaskedPictures(names or [], [pair for pair, _ in looked if pair], problems=found)
    if "val" not in made:
        made |= divided(made["train"])
    for split, some in made.items():
        if not some.pairs:
            raise DataError("\n".join([f"{data}: no picture of {split!r} can be used", *told(some.problems)]))
    settle(made, data)
    return made


def settle(made: dict[str, MaskedPictures], data: str | Path) -> None:
    """Agree for all splits on what 255 stands for, and on the classes."""
    counts = np.sum([pair.counts for some in made.values() for pair in some.pairs], 0)
    values = np.flatnonzero(counts).tolist()
    white = VOID in values and values[:-1] in ([], [0])
    highest = 1 if white else max([value for value in values if value != VOID], default=0)
    if highest == 0:
        raise DataError(f"{data}: every pixel of every mask has class 0, so that there is nothing to learn")
    for some in made.values():
        some.white = white
        some.names = some.names or [str(number) for number in range(highest + 1)]


def divided(whole: MaskedPictures) -> dict[str, MaskedPictures]:
    """A fifth of the pictures, chosen by their order alone, to measure with, and the others."""
    count = len(whole.pairs)
    apart = set(np.random.default_rng(0).permutation(count)[: max(round(APART * count), 1)].tolist())
    parts: dict[str, list[Pair]] = {"train": [], "val": []}
    for number, pair in enumerate(whole.pairs):
        parts["val" if number in apart else "train"].append(pair)
    problems = {"train": whole.problems, "val": []}
    return {name: MaskedPictures(whole.names, some, problems=problems[name]) for name, some in parts.items()}


# --- where things are ---


def named(root: Path) -> list[str] | None:
    """The names of the classes, if a file has them."""
    file = root / "classes.txt"
    if not file.exists():
        return None
    names = file.read_text(encoding="utf-8").split("\n")
    names = [name.strip() for name in names if name.strip()]
    if not 2 <= len(names) <= VOID:
        raise DataError(f"{file} names {len(names)} classes: expected 2 to {VOID}, one a line")
    return names


def folders(root: Path) -> dict[str, Path]:
    """The folder of each split that has one of its own; "train" may be all there is."""
    found = {split: root / split for split in SPLITS if (root / split).is_dir()}
    if "train" not in found:
        found = {"train": root}
    for folder in found.values():
        for kind in ("images", "masks"):
            if not (folder / kind).is_dir():
                raise DataError(
                    f"there is no {folder / kind}: expected pictures in images/ and masks in masks/"
                )
    return found


def paired(folder: Path, root: Path) -> tuple[list[tuple[Path, Path]], list[Problem]]:
    """Pictures with their masks in the order of their names, and what has no counterpart."""
    pictures, masks = by_name(folder / "images"), by_name(folder / "masks")
    for name in list(masks):
        if name.endswith("_mask") and name not in pictures:
            masks.setdefault(name.removesuffix("_mask"), []).extend(masks.pop(name))
    pairs, problems = [], []
    for name in sorted(pictures.keys() | masks.keys()):
        here, there = pictures.get(name, []), masks.get(name, [])
        if len(here) == len(there) == 1:
            pairs.append((here[0], there[0]))
            continue
        if not there:
            kind = "picture without a mask"
        else:
            kind = "several pictures or masks of one name" if here else "mask without a picture"
        problems.append(Problem(kind, str((here or there)[0].relative_to(root)), "skipped"))
    return pairs, problems


def by_name(folder: Path) -> dict[str, list[Path]]:
    """The pictures in a folder and those below, by their names without endings."""
    found: dict[str, list[Path]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES:
            found.setdefault(str(path.relative_to(folder).with_suffix("")), []).append(path)
    return found


# --- one pair ---


class NoClasses(ValueError):
    """A mask's pixels are no classes; the message says why."""


def classes_in(path: Path) -> np.ndarray:
    """The numbers (H, W) in a mask.

    Raises
    ------
    OSError
        If it cannot be read.
    NoClasses
        If it has colours, or was stored with loss.
    """
    if path.suffix.lower() in LOSSY:
        raise NoClasses("mask stored as JPEG, which changes numbers: store it as PNG")
    image = opened(path)
    values = np.array(image)
    if values.ndim == 3 and (image.mode in NUMBERS or (values[..., :3] == values[..., :1]).all()):
        return values[..., 0]
    if image.mode not in NUMBERS:
        raise NoClasses("mask of colours: expected grey values or a palette that count classes")
    return values


def examined(
    pair: tuple[Path, Path], names: list[str] | None, root: Path
) -> tuple[Pair | None, Problem | None]:
    """A pair, or None if it cannot be used, and what is wrong."""
    picture, mask = pair

    def wrong(kind: str, path: Path) -> tuple[None, Problem]:
        return None, Problem(kind, str(path.relative_to(root)), "skipped")

    try:
        extent = load(picture).shape[:2]
    except OSError:
        return wrong("broken picture", picture)
    try:
        values = classes_in(mask)
    except OSError:
        return wrong("broken mask", mask)
    except NoClasses as error:
        return wrong(str(error), mask)
    if values.shape != extent:
        return wrong("mask of another size than its picture", mask)
    if values.min() < 0 or values.max() > VOID:
        return wrong(f"class outside 0 to {VOID - 1}", mask)
    counts = np.bincount(values.ravel(), minlength=VOID + 1)
    if names is not None and counts[len(names) : VOID].any():
        return wrong("class without a name in classes.txt", mask)
    return Pair(picture, mask, counts), None
