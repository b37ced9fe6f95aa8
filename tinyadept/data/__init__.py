"""Data that models are trained on, and how it comes to them: data sets, samplers and a loader."""

from . import digits
from .collate import default_collate
from .datasets import Dataset, Subset, TensorDataset
from .loader import DataLoader
from .samplers import BatchSampler, RandomSampler, SequentialSampler
from .workers import WorkerDied

__all__ = [
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "RandomSampler",
    "SequentialSampler",
    "Subset",
    "TensorDataset",
    "WorkerDied",
    "default_collate",
    "digits",
]
