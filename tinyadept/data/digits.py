"""1,797 handwritten digits, 8x8 pixels each, with a fixed split into training and test samples.

They are the test set of *Optical Recognition of Handwritten Digits* by E. Alpaydin and C. Kaynak (1998), UCI
Machine Learning Repository, doi:10.24432/C50P49, licensed CC BY 4.0
(https://creativecommons.org/licenses/by/4.0/), in the copy that scikit-learn ships as
``sklearn.datasets.load_digits``. The pixels were counted in 4x4 blocks of 32x32 bitmaps, hence 0 to 16. The
numbers are unchanged; scripts/make_digits.py stored them and drew the split.
"""

from importlib.resources import files

import numpy as np

CLASSES = tuple("0123456789")


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
