"""Circles, squares and triangles on noise, made by a seed: pictures with objects to be found or outlined."""

from __future__ import annotations

import numpy as np

NAMES = ["circle", "square", "triangle"]
MOST = 5  # objects in a picture
APART = 0.3  # of the brightness, at least, between an object and the paper
TRIES = 20  # for a place where nothing is yet


class Shapes:
    """Pictures that exist when they are looked at, each the same whenever it is.

    Parameters
    ----------
    count : int
    size : int
        Pixels of a side.
    seed : int

    Attributes
    ----------
    names : list of str
        Of the classes.
    """

    names = NAMES

    def __init__(self, count: int, size: int = 160, seed: int = 0):
        self.count, self.size, self.seed = count, size, seed

    def __len__(self) -> int:
        return self.count

    def report(self) -> str:
        objects = sum(len(self.objects(index)[0]) for index in range(self.count))
        return f"{self.count} generated pictures, {objects} objects"

    def rng(self, index: int) -> np.random.Generator:
        if not 0 <= index < self.count:
            raise IndexError(f"there are {self.count} pictures, got {index}")
        return np.random.default_rng((self.seed, index))

    def placed(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,), and centres with half the height (n, 3) as parts of the picture; none touch."""
        labels, spots = [], []
        for _ in range(rng.integers(1, MOST + 1)):
            for _ in range(TRIES):
                half = rng.uniform(0.06, 0.18)
                x, y = rng.uniform(half, 1 - half, 2)
                if all(max(abs(x - a), abs(y - b)) > half + c for a, b, c in spots):
                    labels.append(rng.integers(len(NAMES)))
                    spots.append((x, y, half))
                    break
        return np.array(labels, np.int32), np.array(spots).reshape(-1, 3)

    def objects(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Classes (n,) int32 and boxes (n, 4) float32: cx cy w h as parts of the picture."""
        labels, spots = self.placed(self.rng(index))
        return labels, np.concatenate([spots[:, :2], 2 * spots[:, 2:].repeat(2, 1)], 1).astype(np.float32)

    def extent(self, index: int) -> tuple[int, int]:
        """Height and width."""
        return self.size, self.size

    def image(self, index: int) -> np.ndarray:
        """(H, W, 3) uint8, RGB."""
        rng, side = self.rng(index), self.size
        labels, spots = self.placed(rng)
        paper = rng.uniform(0, 1, 3)
        image = paper + rng.normal(0, 0.08, (side, side, 3))
        for label, spot in zip(labels, spots):
            colour = rng.uniform(0, 1, 3)
            while abs(colour - paper).mean() < APART:
                colour = rng.uniform(0, 1, 3)
            inside = self.inside(label, spot)
            image[inside] = colour + rng.normal(0, 0.03, (int(inside.sum()), 3))
        return (np.clip(image, 0, 1) * 255).astype(np.uint8)

    def mask(self, index: int) -> np.ndarray:
        """(H, W) uint8: 0 for paper, and 1 + the class of the object that a pixel belongs to."""
        mask = np.zeros((self.size, self.size), np.uint8)
        for label, spot in zip(*self.placed(self.rng(index))):
            mask[self.inside(label, spot)] = label + 1
        return mask

    def inside(self, label: int, spot: np.ndarray) -> np.ndarray:
        """The pixels (H, W) of an object."""
        cx, cy, half = spot
        y, x = (np.mgrid[: self.size, : self.size] + 0.5) / self.size
        across, down = (x - cx) / half, (y - cy) / half
        if NAMES[label] == "circle":
            return across**2 + down**2 <= 1
        if NAMES[label] == "square":
            return np.maximum(abs(across), abs(down)) <= 1
        return (down <= 1) & (2 * abs(across) <= down + 1)
