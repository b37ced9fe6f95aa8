"""Files of pictures, and how it is told what is wrong with those of a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}
CHOICES = ("refuse", "skip")
VOID = 255  # the class of pixels in a mask that count nothing
SHOWN = 5  # problems of a kind that a message names


class DataError(ValueError):
    """A data set cannot be used as it is; the message says why and what to do."""


class Problem(NamedTuple):
    """What is wrong with a file, and what was done about it where that was asked for."""

    kind: str
    place: str
    done: str


def told(problems: list[Problem]) -> Iterator[str]:
    """Every kind of problem with its number and some of its places."""
    counts = Counter((problem.kind, problem.done) for problem in problems)
    for (kind, done), count in counts.items():
        places = [p.place for p in problems if (p.kind, p.done) == (kind, done)]
        more = f", and {count - SHOWN} more" if count > SHOWN else ""
        yield f"  {count} × {kind} ({done}): {', '.join(places[:SHOWN])}{more}"


def refused(data: Any, split: str, problems: list[Problem]) -> DataError:
    """The error that names all problems of a split."""
    first = f"{data}: {len(problems)} problems in {split!r}; skip them, or mend:"
    return DataError("\n".join([first, *told(problems)]))


def load(path: Path) -> np.ndarray:
    """A picture as (H, W, 3) uint8, RGB, turned as its camera was held.

    Raises
    ------
    OSError
        If it cannot be read, or ends too early.
    """
    return np.array(opened(path).convert("RGB"))


def opened(path: Path) -> Any:
    """A picture as Pillow has it, in its own mode, read to its end and turned as its camera was held.

    Raises
    ------
    OSError
        If it cannot be read, or ends too early.
    """
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            image.load()
            return ImageOps.exif_transpose(image)
    except (SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what some broken files lead to
        raise OSError(f"{path}: {error}") from None
