"""Write tinyadept/data/digits.npz from the copy of the data that scikit-learn ships; it must be installed.

The split is drawn here, once: a fifth of each class is for testing, chosen by NumPy's PCG64 with seed 0.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]

TARGET = Path(__file__).parents[1] / "tinyadept" / "data" / "digits.npz"


def stratified(labels: np.ndarray, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the training and of the test samples, sorted."""
    random = np.random.default_rng(seed)
    test = np.zeros(len(labels), bool)
    for digit in range(10):
        members = random.permutation(np.flatnonzero(labels == digit))
        test[members[: round(len(members) / 5)]] = True
    return np.flatnonzero(~test).astype(np.int16), np.flatnonzero(test).astype(np.int16)


def main() -> None:
    pixels, labels = load_digits(return_X_y=True)  # (1797, 64), (1797,)
    train, test = stratified(labels)
    images, labels = pixels.reshape(-1, 8, 8).astype(np.uint8), labels.astype(np.uint8)
    np.savez_compressed(TARGET, images=images, labels=labels, train=train, test=test)
    print(f"{TARGET.name}: {len(train)} to train, {len(test)} to test, {TARGET.stat().st_size} bytes")


if __name__ == "__main__":
    main()
