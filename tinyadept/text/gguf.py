"""GGUF files: a model's weights, often quantised, with its settings and its tokenizer, in one file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np


def package() -> Any:
    try:
        import gguf
    except ImportError as error:
        raise ImportError("reading GGUF files needs the package gguf: pip install gguf") from error
    return gguf


class GGUF:
    """An opened file. What is large stays on the disk until it is asked for.

    Parameters
    ----------
    path : str or path

    Attributes
    ----------
    settings : dict
        By their names in the file, such as ``"llama.block_count"``.
    shapes : dict of str to tuple
        Of every tensor, outermost axis first.

    Raises
    ------
    ValueError
        If the file is no GGUF file, is damaged or cut short, names something twice, or holds a kind of
        quantisation that the package gguf cannot undo.
    FileNotFoundError
        If there is no such file.
    ImportError
        If the package gguf is missing.
    """

    def __init__(self, path: str | os.PathLike):
        gguf = package()
        if not Path(path).is_file():
            raise FileNotFoundError(f"{path}: no such file")
        self.path = path
        try:
            reader = gguf.GGUFReader(path)
            self.settings = {name: field.contents() for name, field in reader.fields.items()}
        # The reader trusts the file: whatever a damaged one makes of it, the file is what is wrong.
        except Exception as error:
            raise ValueError(f"{path}: not a complete GGUF file: {error}") from error
        self.tensors = {tensor.name: tensor for tensor in reader.tensors}
        self.shapes = {name: tuple(int(n) for n in reversed(x.shape)) for name, x in self.tensors.items()}
        known = {kind for kind in gguf.GGMLQuantizationType if undone(kind)}
        for name, tensor in self.tensors.items():
            if tensor.tensor_type not in known:
                raise ValueError(
                    f"{path}: {name!r} is quantised as {tensor.tensor_type.name}, which is unknown"
                )

    def setting(self, name: str, kind: type, default: Any = None) -> Any:
        """A setting of a known type.

        Raises
        ------
        ValueError
            If it is missing and has no default, or is of another type.
        """
        value = self.settings.get(name, default)
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool) is not (kind is bool):
            raise ValueError(f"{self.path}: {name} is {str(value)[:60]!r}, expected {kind.__name__}")
        return value

    def arrays(self) -> Iterator[tuple[str, np.ndarray]]:
        """Every tensor as float32, one after another."""
        for name in self.tensors:
            yield name, self.array(name)

    def array(self, name: str) -> np.ndarray:
        """One tensor as float32."""
        tensor = self.tensors[name]
        values = package().quants.dequantize(tensor.data, tensor.tensor_type)
        return np.ascontiguousarray(values, np.float32).reshape(self.shapes[name])


def undone(kind: Any) -> bool:
    """Whether the package can turn a kind of quantisation into numbers."""
    plain = ("F32", "F16", "BF16")
    return kind.name in plain or kind in package().quants._type_traits
