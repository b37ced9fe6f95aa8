"""Data sets in YOLO's format: a folder of pictures, and beside it one of texts with a line for each object.

images/train/a.jpg has its objects in labels/train/a.txt, each as ``class cx cy w h``: the centre and the size
of its box as parts of the picture's width and height. A data.yaml may name the folders and the classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .pictures import CHOICES, SUFFIXES, DataError, Problem, load, refused, told

OVERHANG = 0.01  # of the picture's side: a box may reach so far beyond it, for labels are rounded


@dataclass
class Picture:
    """A picture's file, size, and objects: classes (n,) and boxes (n, 4), cx cy w h as parts of it."""

    path: Path
    width: int
    height: int
    labels: np.ndarray
    boxes: np.ndarray


@dataclass
class Pictures:
    """One split of a data set.

    Attributes
    ----------
    names : list of str
        Of the classes.
    pictures : list of Picture
    problems : list of Problem
        What was skipped.
    """

    names: list[str]
    pictures: list[Picture]
    problems: list[Problem] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.pictures)

    def extent(self, index: int) -> tuple[int, int]:
        """Height and width."""
        return self.pictures[index].height, self.pictures[index].width

    def image(self, index: int) -> np.ndarray:
        """(H, W, 3) uint8, RGB."""
        return load(self.pictures[index].path)

    def objects(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,) int32 and boxes (n, 4) float32: cx cy w h as parts of the picture."""
        return self.pictures[index].labels, self.pictures[index].boxes

    def report(self) -> str:
        """How much there is, and every kind of problem with its number and some of its places."""
        objects = sum(len(picture.labels) for picture in self.pictures)
        return "\n".join([f"{len(self)} pictures, {objects} objects", *told(self.problems)])


def read(data: str | Path, split: str, problems: str = "refuse", empty: str = "keep") -> Pictures:
    """The pictures of one split and their objects, every file having been looked at.

    Parameters
    ----------
    data : path
        A data.yaml, a folder that has one, or a folder that has images/<split> and labels/<split>.
    split : str
        "train", "val" or "test".
    problems : {"refuse", "skip"}
        What to do about a picture that cannot be read or has no file of labels, a line that says no object, a
        class without a name, or a box outside the picture. "skip" leaves out what is wrong, cuts off what
        reaches out of the picture, takes a picture without a file of labels for one without objects, and
        lists it.
    empty : {"keep", "refuse", "skip"}
        What to do about pictures without objects.

    Raises
    ------
    DataError
        If there is a problem to be refused, or nothing is left.
    """
    if problems not in CHOICES or empty not in ("keep", *CHOICES):
        raise ValueError(f"problems and empty must be one of {CHOICES} (or 'keep'), got {problems}, {empty}")
    names, folders = described(Path(data), split)
    paths = sorted(path for folder in folders for path in listed(folder))
    if not paths:
        raise DataError(f"{data}: no pictures for {split!r} in {', '.join(map(str, folders))}")
    with ThreadPoolExecutor() as threads:
        read_all = list(threads.map(lambda path: examined(path, names), paths))
    if names is None:
        known = [labels.max() for picture, _ in read_all if picture and len(labels := picture.labels)]
        names = [str(number) for number in range(1 + max(known, default=0))]
    found = [problem for _, some in read_all for problem in some]
    if found and problems == "refuse":
        raise refused(data, split, found)
    pictures = [picture for picture, _ in read_all if picture is not None]
    return without_empty(Pictures(names, pictures, found), empty, data, split)


def without_empty(made: Pictures, empty: str, data: Any, split: str) -> Pictures:
    bare = [picture.path.name for picture in made.pictures if not len(picture.labels)]
    done = "skipped" if empty == "skip" else "kept"
    made.problems += [Problem("picture without objects", name, done) for name in bare]
    if bare and empty == "refuse":
        raise DataError("\n".join([f"{data}: pictures without objects in {split!r}", *told(made.problems)]))
    if empty == "skip":
        made.pictures = [picture for picture in made.pictures if len(picture.labels)]
    if not made.pictures:
        raise DataError("\n".join([f"{data}: no picture of {split!r} can be used", *told(made.problems)]))
    return made


# --- where things are ---


def described(data: Path, split: str) -> tuple[list[str] | None, list[Path]]:
    """The names of the classes, if known, and the folders or lists of pictures of a split."""
    if not data.exists():
        raise DataError(f"there is no {data}: expected a data.yaml, or a folder with images/ and labels/")
    if data.is_dir():
        found = [data / name for name in ("data.yaml", "data.yml") if (data / name).exists()]
        found = found or sorted([*data.glob("*.yaml"), *data.glob("*.yml")])
        if len(found) > 1:
            raise DataError(f"{data} has several: {', '.join(p.name for p in found)}; name the one to use")
        if not found:
            folder = data / "images" / split
            if not folder.is_dir():
                raise DataError(f"{data} has neither a data.yaml nor a folder images/{split}")
            return None, [folder]
        data = found[0]
    return from_yaml(data, split)


def from_yaml(file: Path, split: str) -> tuple[list[str], list[Path]]:
    import yaml

    try:
        described = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is no YAML: {error}") from None
    if not isinstance(described, dict) or "names" not in described:
        raise DataError(f"{file} does not name the classes: expected `names:`, a list or numbers with names")
    names = described["names"]
    if isinstance(names, dict):
        if sorted(names) != list(range(len(names))):
            raise DataError(f"{file}: `names` must count from 0, got {sorted(names)}")
        names = [names[number] for number in range(len(names))]
    if described.get(split) is None:
        have = [key for key in ("train", "val", "test") if described.get(key) is not None]
        raise DataError(f"{file} has no split {split!r}, only {', '.join(have) or 'none'}")
    root = file.parent / (described.get("path") or "")
    entries = described[split] if isinstance(described[split], list) else [described[split]]
    folders = [root / entry for entry in entries]
    for folder in folders:
        if not folder.exists():
            raise DataError(f"{file}: {split!r} is in {folder}, which is not there")
    return [str(name) for name in names], folders


def listed(folder: Path) -> Iterator[Path]:
    """The pictures in a folder and those below, or those that a text names."""
    if folder.is_file():
        lines = folder.read_text(encoding="utf-8").splitlines()
        yield from (folder.parent / line.strip() for line in lines if line.strip())
    else:
        yield from (path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)


def labels_of(path: Path) -> Path:
    """The text beside a picture: the last folder called images is called labels there."""
    parts = list(path.parts)
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] == "images":
            parts[at] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


# --- one picture ---


def examined(path: Path, names: list[str] | None) -> tuple[Picture | None, list[Problem]]:
    """A picture with its objects, or None if it cannot be used, and what is wrong."""
    if not path.exists():
        return None, [Problem("missing picture", path.name, "skipped")]
    try:
        height, width = load(path).shape[:2]
    except OSError:
        return None, [Problem("broken picture", path.name, "skipped")]
    text = labels_of(path)
    problems: list[Problem] = []
    rows = []
    if not text.exists():
        problems.append(Problem("picture without a file of labels", path.name, "taken for an empty one"))
    else:
        for number, line in enumerate(text.read_text(errors="replace").splitlines(), 1):
            if line.strip():
                row, problem = parsed(line, names)
                if problem:
                    problems.append(Problem(problem[0], f"{text.name}:{number}", problem[1]))
                if row is not None:
                    rows.append(row)
    array = np.array(rows, np.float32).reshape(-1, 5)
    return Picture(path, width, height, array[:, 0].astype(np.int32), array[:, 1:]), problems


def parsed(line: str, names: list[str] | None) -> tuple[list[float] | None, tuple[str, str] | None]:
    """``class cx cy w h`` of a line, if it says an object, and what is wrong with it, if anything is."""
    try:
        row = [float(word) for word in line.split()]
    except ValueError:
        row = []
    if len(row) != 5 or not np.isfinite(row).all():
        return None, ("line that is not `class cx cy w h`", "skipped")
    label, cx, cy, w, h = row
    if label != int(label) or label < 0 or (names is not None and label >= len(names)):
        return None, ("class without a name", "skipped")
    near = np.clip([cx - w / 2, cy - h / 2], 0, 1)
    far = np.clip([cx + w / 2, cy + h / 2], 0, 1)
    if w <= 0 or h <= 0 or (far <= near).any():
        return None, ("box outside the picture or without an area", "skipped")
    if min(cx - w / 2, cy - h / 2) < -OVERHANG or max(cx + w / 2, cy + h / 2) > 1 + OVERHANG:
        return [label, *(near + far) / 2, *(far - near)], ("box that reaches out of the picture", "cut off")
    return [label, *(near + far) / 2, *(far - near)], None
