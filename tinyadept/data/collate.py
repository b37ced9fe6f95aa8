"""Samples become a batch, and a batch the arrays in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np


class Rows:
    """Arrays of one shape that are yet to be stacked: straight to where the batch shall lie.

    Parameters
    ----------
    rows : list of ndarray
    """

    def __init__(self, rows: list[np.ndarray]):
        self.rows = rows
        self.shape, self.dtype = (len(rows), *rows[0].shape), np.result_type(*{row.dtype for row in rows})

    def copy_to(self, target: np.ndarray) -> None:
        np.stack(self.rows, out=target)


def default_collate(samples: Sequence[Any], stack: Callable[[list[np.ndarray]], Any] = np.stack) -> Any:
    """Samples of one structure as one such structure, with arrays that have a first axis more.

    Arrays and numbers are stacked; tuples, lists and dicts are gone through; strings and other values are
    listed.

    Parameters
    ----------
    samples : sequence
        At least one.
    stack : callable
        Makes one array of many.

    Raises
    ------
    ValueError
        If arrays differ in shape, or tuples, lists or dicts in their entries.
    """
    first = samples[0]
    if isinstance(first, dict):
        if any(sample.keys() != first.keys() for sample in samples):
            raise ValueError(f"samples have different entries: {[sorted(map(str, s)) for s in samples]}")
        return {key: default_collate([sample[key] for sample in samples], stack) for key in first}
    if isinstance(first, (tuple, list)):
        if any(len(sample) != len(first) for sample in samples):
            raise ValueError(f"samples have different numbers of parts: {[len(s) for s in samples]}")
        parts = [default_collate(part, stack) for part in zip(*samples)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if isinstance(first, (str, bytes)) or first is None:
        return list(samples)
    arrays = [numbers(sample) for sample in samples]
    if arrays[0].dtype == object:
        return list(samples)
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise ValueError(
            f"arrays of different shapes make no batch: {sorted(shapes)}; pad them, or give a collate_fn"
        )
    return stack(arrays)


def numbers(sample: Any) -> np.ndarray:
    """As an array; Python's numbers with tinyadept's dtypes."""
    if isinstance(sample, bool):
        return np.array(sample)
    if isinstance(sample, int):
        return np.array(sample, np.int32)
    return np.array(sample, np.float32) if type(sample) is float else np.asarray(sample)


class Hole:
    """Where an array was taken out of a structure."""


def taken_apart(tree: Any, arrays: list[Any]) -> Any:
    """The structure with a `Hole` for each array or `Rows`, which is appended to a list.

    Raises
    ------
    TypeError
        If an array's elements are Python objects.
    """

    def take(leaf: Any) -> Any:
        if not isinstance(leaf, (np.ndarray, Rows)):
            return leaf
        if leaf.dtype.hasobject:
            raise TypeError(f"a batch has an array of {leaf.dtype}: workers hand over numbers only")
        arrays.append(leaf)
        return Hole()

    return mapped(tree, take)


def put_together(tree: Any, arrays: Iterator[np.ndarray]) -> Any:
    """The structure that `taken_apart` was given, with arrays in the same order."""
    return mapped(tree, lambda leaf: next(arrays) if isinstance(leaf, Hole) else leaf)


def mapped(tree: Any, function: Callable[[Any], Any]) -> Any:
    if type(tree) is dict:
        return {key: mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, function) for value in tree))
    if type(tree) in (tuple, list):
        return type(tree)(mapped(value, function) for value in tree)
    return function(tree)
