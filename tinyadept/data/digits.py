"""1,797 handwritten digits, 8x8 pixels each, with a fixed split into training and test samples.

They are the test set of *Optical Recognition of Handwritten Digits* by E. Alpaydin and C. Kaynak (1998), UCI
Machine Learning Repository, doi:10.24432/C50P49, licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), in the copy that scikit-learn ships as
``sklearn.datasets.load_digits``. The pixels were counted in 4x4 blocks of 32x32 bitmaps, hence 0 to 16. The
numbers are unchanged; scripts/make_digits.py stored them and drew the split.
"""

from importlib.resources import files

import numpy as np

MARGIN = 3  # pixels of paper around an image, for corners that a distortion moves out of it


def load(split: str = "train") -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of one part of the data.

    Parameters
    ----------
    split : {"train", "test", "all"}
        1,438 samples to train on, the 359 others to test, or both.

    Returns
    -------
    images : ndarray of float32, shape (N, 1, 8, 8)
        0 is paper, 1 is ink.
    labels : ndarray of int32, shape (N,)

    Raises
    ------
    ValueError
        If there is no such split.
    """
    if split not in ("train", "test", "all"):
        raise ValueError(f"split must be 'train', 'test' or 'all', got {split!r}")
    with (files("tinyadept.data") / "digits.npz").open("rb") as file, np.load(file) as stored:
        chosen = slice(None) if split == "all" else stored[split]
        images = stored["images"][chosen, None].astype(np.float32) / 16  # (N, 1, 8, 8)
        return images, stored["labels"][chosen].astype(np.int32)


def distorted(images: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """Turn, stretch and shift each image a little, as if written again, by bilinear interpolation.

    Parameters
    ----------
    images : ndarray, shape (N, 1, H, W)
    chance : ndarray, shape (5, N)
        Uniform numbers in [0, 1) for the angle (within 0.15 radians), for the height and the width (within a
        tenth) and for the shifts (within half a pixel).
    """
    count, _, height, width = images.shape
    angle, tall, wide, down, right = ((2 * chance - 1) * [[0.15], [0.1], [0.1], [0.5], [0.5]])[
        ..., None, None
    ]
    y, x = np.mgrid[:height, :width] - np.array([height - 1, width - 1]).reshape(2, 1, 1) / 2
    rows = (
        (np.cos(angle) * y + np.sin(angle) * x) * (1 + tall) + down + (height - 1) / 2 + MARGIN
    )  # (N, H, W)
    columns = (np.cos(angle) * x - np.sin(angle) * y) * (1 + wide) + right + (width - 1) / 2 + MARGIN
    top, left = rows.astype(int), columns.astype(int)
    paper = np.pad(images[:, 0], ((0, 0), (MARGIN, MARGIN), (MARGIN, MARGIN)))
    number = np.arange(count)[:, None, None]
    result = np.zeros_like(rows)
    for below, beside in np.ndindex(2, 2):
        near = (1 - abs(rows - top - below)) * (1 - abs(columns - left - beside))
        result += near * paper[number, top + below, left + beside]
    return result[:, None].astype(images.dtype)
