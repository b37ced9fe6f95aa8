"""How fast the data loader's workers hand over batches.

    python scripts/bench_data.py [--workers N] [--rounds N]

The samples lie ready in each worker's memory, so that what is measured is making batches of them, and handing
these over. The time is the shortest of all rounds, of whole epochs after a first one.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np

from tinyadept.data import DataLoader, Dataset

SHAPE = (3, 320, 320)  # float32: 1.2 MB
BATCH, SAMPLES, WANTED = 16, 1024, 1.0


class Ready(Dataset):
    """A few pictures, again and again."""

    def __init__(self):
        self.pictures: list[np.ndarray] = []

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        if not self.pictures:
            self.pictures = [np.full(SHAPE, i, np.float32) for i in range(BATCH)]
        return self.pictures[index % BATCH], index


def epoch(loader: DataLoader) -> float:
    """Bytes a second, a part of each page being read."""
    start, size = time.perf_counter(), 0
    for pictures, numbers in loader:
        assert pictures[-1, -1, -1, -1] == numbers[-1] % BATCH
        size += pictures.nbytes
    return size / (time.perf_counter() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure how fast workers hand over batches.")
    parser.add_argument("--workers", type=int, default=2, help="processes (2)")
    parser.add_argument("--rounds", type=int, default=5, help="epochs to measure (5)")
    options = parser.parse_args()
    loader = DataLoader(Ready(), BATCH, num_workers=options.workers)
    epoch(loader)
    speed = max(epoch(loader) for _ in range(options.rounds)) / 1e9
    loader.close()
    verdict = "met" if speed >= WANTED else "MISSED"
    print(
        f"{options.workers} workers, batches of {BATCH} pictures {SHAPE}: {speed:.2f} GB/s, "
        f"wanted {WANTED:g} GB/s  {verdict}  ({os.cpu_count()} cores)"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
