"""Pictures changed so that boxes or masks change with them: squares, mosaics, mirrors, colours.

Pictures are (H, W, 3) uint8 or (3, S, S) float32 in [0, 1], boxes (n, 4) corners in pixels of the square,
masks (H, W) or (S, S) uint8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .pictures import VOID

GREY = 114 / 255  # around pictures
LEFT = 0.1  # of an object's area must be in sight, or it is left out
SMALLEST = 2.0  # pixels of a side
Sample = tuple[np.ndarray, np.ndarray, np.ndarray]  # a picture, classes, and boxes as parts of it


@dataclass(frozen=True)
class Augmentation:
    """How much is left to chance: probabilities, or largest changes as parts of 1.

    Attributes
    ----------
    mosaic : float
        How often four pictures are put together.
    scale, translate : float
        Of the picture's size, and of the square's side.
    flip : float
        How often left and right are exchanged.
    hue, saturation, value : float
    upend : float
        How often top and bottom are exchanged.
    """

    mosaic: float = 1.0
    scale: float = 0.5
    translate: float = 0.1
    flip: float = 0.5
    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    upend: float = 0.0


class Letterbox(NamedTuple):
    """How a picture is put into a square: pixels (x, y) become (x · gain_x + left, y · gain_y + top)."""

    width: int
    height: int
    left: int
    top: int
    gain_x: float
    gain_y: float

    def forward(self, boxes: np.ndarray) -> np.ndarray:
        """Corners (n, 4) in the picture's pixels to those in the square's."""
        return boxes * self.gains() + self.shifts()

    def back(self, boxes: np.ndarray) -> np.ndarray:
        """Corners (n, 4) in the square's pixels to those in the picture's, none outside of it."""
        far = np.array([self.width / self.gain_x, self.height / self.gain_y] * 2)
        return np.clip((boxes - self.shifts()) / self.gains(), 0, far).astype(np.float32)

    def gains(self) -> np.ndarray:
        return np.array([self.gain_x, self.gain_y] * 2)

    def shifts(self) -> np.ndarray:
        return np.array([self.left, self.top] * 2)


def letterbox(height: int, width: int, size: int) -> Letterbox:
    """The largest place for a picture in the middle of a square."""
    gain = size / max(height, width)
    wide, tall = max(round(width * gain), 1), max(round(height * gain), 1)
    return Letterbox(wide, tall, (size - wide) // 2, (size - tall) // 2, wide / width, tall / height)


def resized(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """(H, W, 3) uint8 in another size, each pixel the mean of those that it covers; of (H, W) one of them."""
    if image.shape[:2] == (height, width):
        return image
    from PIL import Image

    how = Image.Resampling.BILINEAR if image.ndim == 3 else Image.Resampling.NEAREST
    return np.asarray(Image.fromarray(image).resize((width, height), how))


def squared(image: np.ndarray, size: int) -> tuple[np.ndarray, Letterbox]:
    """A picture (H, W, 3) uint8 in a grey square (3, size, size) float32, and how it got there."""
    height, width = image.shape[:2]
    box = letterbox(height, width, size)
    square = np.full((3, size, size), GREY, np.float32)
    inside = square[:, box.top : box.top + box.height, box.left : box.left + box.width]
    np.multiply(resized(image, box.width, box.height).transpose(2, 0, 1), np.float32(1 / 255), out=inside)
    return square, box


def squared_mask(mask: np.ndarray, size: int) -> np.ndarray:
    """A mask (H, W) where `squared` puts its picture, (size, size); nothing counts around it."""
    height, width = mask.shape
    box = letterbox(height, width, size)
    square = np.full((size, size), VOID, np.uint8)
    inside = square[box.top : box.top + box.height, box.left : box.left + box.width]
    inside[...] = resized(mask, box.width, box.height)
    return square


class Tile(NamedTuple):
    """Where a picture goes: pixel (x, y) to (x · gain + left, y · gain + top), within bounds.

    Attributes
    ----------
    height, width : int
        Of the picture.
    left, top, gain : float
    bounds : tuple of float
        x1, y1, x2, y2 in the square: what is outside is cut off.
    """

    height: int
    width: int
    left: float
    top: float
    gain: float
    bounds: tuple[float, float, float, float]

    def window(self, size: int) -> tuple[float, float, float, float]:
        """What of the square the picture covers."""
        x1, y1, x2, y2 = self.bounds
        return (
            max(0.0, x1, self.left),
            max(0.0, y1, self.top),
            min(float(size), x2, self.left + self.width * self.gain),
            min(float(size), y2, self.top + self.height * self.gain),
        )

    def pixels(self, size: int) -> tuple[slice, slice]:
        """Rows and columns of the square that the picture covers."""
        x1, y1, x2, y2 = (int(np.floor(edge + 0.5)) for edge in self.window(size))
        return slice(y1, max(y1, y2)), slice(x1, max(x1, x2))

    def draw(self, image: np.ndarray, square: np.ndarray) -> None:
        """Draw the picture into a square (3, S, S), between pixels by bilinear interpolation."""
        inside = self.pixels(square.shape[1])
        above, rows = between(inside[0], self.top, self.gain, self.height)
        before, columns = between(inside[1], self.left, self.gain, self.width)
        lines = image[above].astype(np.float32)  # (h', W, 3)
        lines += (image[np.minimum(above + 1, self.height - 1)] - lines) * rows[:, None, None]
        planes = np.ascontiguousarray(lines.transpose(2, 0, 1))  # (3, h', W)
        pixels = planes[..., before]
        pixels += (planes[..., np.minimum(before + 1, self.width - 1)] - pixels) * columns
        np.multiply(pixels, np.float32(1 / 255), out=square[:, inside[0], inside[1]])

    def draw_mask(self, mask: np.ndarray, square: np.ndarray) -> None:
        """Draw the picture's mask into a square (S, S), of each place the nearest pixel."""
        inside = self.pixels(square.shape[0])
        above, rows = between(inside[0], self.top, self.gain, self.height)
        before, columns = between(inside[1], self.left, self.gain, self.width)
        square[inside] = mask[np.ix_(above + (rows >= 0.5), before + (columns >= 0.5))]

    def objects(self, labels: np.ndarray, boxes: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes and corners in pixels of the square of what is still in sight.

        Parameters
        ----------
        labels, boxes : ndarray
            (n,), and (n, 4): cx cy w h as parts of the picture.
        size : int
            Of the square.
        """
        extent = np.array([self.width, self.height]) * self.gain
        middle, half = boxes[:, :2] * extent + (self.left, self.top), boxes[:, 2:] * extent / 2
        x1, y1, x2, y2 = self.window(size)
        corners = np.concatenate([middle - half, middle + half], 1).reshape(-1, 4)
        seen = np.clip(corners, (x1, y1, x1, y1), (max(x1, x2), max(y1, y2)) * 2)
        sides, whole = seen[:, 2:] - seen[:, :2], np.prod(2 * half, 1)
        kept = (sides > SMALLEST).all(1) & (np.prod(sides, 1) > LEFT * whole)
        return labels[kept], seen[kept]


def between(where: slice, start: float, gain: float, length: int) -> tuple[np.ndarray, np.ndarray]:
    """The pixel before each place, and how far behind it the place is."""
    places = np.clip((np.arange(where.start, where.stop) + 0.5 - start) / gain - 0.5, 0, length - 1)
    before = places.astype(np.intp)
    return before, (places - before).astype(np.float32)


def arranged(
    extents: list[tuple[int, ...]], size: int, how: Augmentation, rng: np.random.Generator
) -> list[Tile]:
    """Places for one picture, or for four around a point, after a change of scale and a shift by chance.

    Parameters
    ----------
    extents : list of (height, width)
        Of one or four pictures whose longer side is `size`.
    """
    gain = 1 + rng.uniform(-how.scale, how.scale)
    to = (0.5 + rng.uniform(-how.translate, how.translate, 2)) * size
    if len(extents) == 1:
        ((h, w),) = extents
        everywhere = (-np.inf, -np.inf, np.inf, np.inf)
        return [Tile(h, w, to[0] - w * gain / 2, to[1] - h * gain / 2, gain, everywhere)]
    # On a sheet of twice the size, whose middle goes to `to`, the pictures meet in a point.
    x, y = rng.uniform(0.5 * size, 1.5 * size, 2)
    (x1, y1), (x2, y2) = to - size * gain, to + size * gain
    tiles = []
    for number, (h, w) in enumerate(extents):
        left, top = x - w * (number % 2 == 0), y - h * (number < 2)
        left, top = (left - size) * gain + to[0], (top - size) * gain + to[1]
        tiles.append(Tile(h, w, left, top, gain, (x1, y1, x2, y2)))
    return tiles


def pasted(
    images: list[np.ndarray], size: int, how: Augmentation, rng: np.random.Generator
) -> tuple[np.ndarray, list[Tile]]:
    """A square picture (3, size, size) of one or four, in other colours, and where each of them is."""
    square = np.full((3, size, size), GREY, np.float32)
    tiles = arranged([image.shape[:2] for image in images], size, how, rng)
    for tile, image in zip(tiles, images, strict=True):
        tile.draw(image, square)
    gains = 1 + rng.uniform(-1, 1, 3) * (how.hue, how.saturation, how.value)
    return recoloured(square, *gains.tolist()), tiles


def augmented(
    samples: list[Sample], size: int, how: Augmentation, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A square picture of one or four, classes (n,), and corners (n, 4) in its pixels; see `arranged`."""
    square, tiles = pasted([image for image, _, _ in samples], size, how, rng)
    seen = [tile.objects(labels, boxes, size) for tile, (_, labels, boxes) in zip(tiles, samples)]
    labels, boxes = (np.concatenate(parts) for parts in zip(*seen))
    if rng.uniform() < how.flip:
        square, boxes = mirrored(square, boxes)
    if rng.uniform() < how.upend:
        square, boxes = upended(square, boxes)
    return square, labels, boxes


def augmented_mask(
    samples: list[tuple[np.ndarray, np.ndarray]], size: int, how: Augmentation, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """A square picture of one or four, and a mask (size, size) of their masks; see `arranged`."""
    square, tiles = pasted([image for image, _ in samples], size, how, rng)
    mask = np.full((size, size), VOID, np.uint8)
    for tile, (_, classes) in zip(tiles, samples, strict=True):
        tile.draw_mask(classes, mask)
    if rng.uniform() < how.flip:
        square, mask = square[..., ::-1], mask[..., ::-1]
    if rng.uniform() < how.upend:
        square, mask = square[..., ::-1, :], mask[..., ::-1, :]
    return square, mask


def mirrored(square: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Left and right exchanged."""
    size = square.shape[2]
    return square[:, :, ::-1], np.stack([size - boxes[:, 2], boxes[:, 1], size - boxes[:, 0], boxes[:, 3]], 1)


def upended(square: np.ndarray, boxes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Top and bottom exchanged."""
    size = square.shape[1]
    return square[:, ::-1], np.stack([boxes[:, 0], size - boxes[:, 3], boxes[:, 2], size - boxes[:, 1]], 1)


def recoloured(square: np.ndarray, hue: float, saturation: float, value: float) -> np.ndarray:
    """A picture (3, H, W) in [0, 1] whose hue, saturation and value are multiplied.

    Source: A. R. Smith, Color gamut transform pairs, 1978.
    """
    r, g, b = square
    top = square.max(0)
    chroma = top - square.min(0)
    share = chroma / np.maximum(top, 1e-6)  # saturation
    apart = 1 / np.maximum(chroma, 1e-6)
    sector = np.where(top == r, (g - b) * apart, np.where(top == g, (b - r) * apart + 2, (r - g) * apart + 4))
    sector = (sector % 6) * hue  # [0, 6)
    share = np.minimum(share * saturation, 1)
    top = np.minimum(top * value, 1)
    result = np.empty_like(square)
    for channel, offset in enumerate((5, 3, 1)):
        k = (sector + offset) % 6
        result[channel] = top - top * share * np.clip(np.minimum(k, 4 - k), 0, 1)
    return result
