"""Boxes with the names of their classes, drawn on pictures; masks as pictures; and pictures side by side."""

from __future__ import annotations

import colorsys
from typing import Any

import numpy as np

from ..data.pictures import VOID
from .average_precision import Boxes

GAP = 8  # pixels between pictures


def colour(label: int) -> tuple[int, int, int]:
    """Colours that lie far apart for classes that follow each other."""
    r, g, b = colorsys.hsv_to_rgb(label * 0.381966 % 1, 0.85, 0.9)
    return round(255 * r), round(255 * g), round(255 * b)


def boxed(image: np.ndarray, boxes: Boxes, names: list[str], scores: bool = True) -> Any:
    """A Pillow image of a picture (H, W, 3) uint8 with boxes on it."""
    from PIL import Image, ImageDraw

    picture = Image.fromarray(image)
    pen = ImageDraw.Draw(picture)
    line = max(round(max(image.shape) / 320), 1)
    for label, score, corners in list(zip(*boxes))[::-1]:  # the surest on top
        x1, y1, x2, y2 = (float(edge) for edge in corners)
        pen.rectangle([x1, y1, max(x1, x2), max(y1, y2)], outline=colour(label), width=line)
        text = names[label] + (f" {score:.2f}" if scores else "")
        left, top, right, bottom = pen.textbbox((x1, max(y1 - 12, 0)), text)
        pen.rectangle([left - 1, top - 1, right + 1, bottom + 1], fill=colour(label))
        pen.text((x1, max(y1 - 12, 0)), text, fill="white")
    return picture


def painted(values: np.ndarray) -> Any:
    """A Pillow image of a picture (3, H, W) in [0, 1], or of a mask (H, W): class 0 black, 255 grey."""
    from PIL import Image

    if values.ndim == 3:
        return Image.fromarray(np.round(values.transpose(1, 2, 0) * 255).astype(np.uint8))
    palette = np.array([(0, 0, 0), *map(colour, range(VOID - 1)), (128, 128, 128)], np.uint8)
    return Image.fromarray(palette[values])


def beside(rows: list[list[Any]]) -> Any:
    """One image of Pillow images in rows."""
    from PIL import Image

    width = max(sum(x.width + GAP for x in row) - GAP for row in rows)
    height = sum(max(x.height for x in row) + GAP for row in rows) - GAP
    sheet, top = Image.new("RGB", (width, height), "white"), 0
    for row in rows:
        left = 0
        for x in row:
            sheet.paste(x, (left, top))
            left += x.width + GAP
        top += max(x.height for x in row) + GAP
    return sheet
