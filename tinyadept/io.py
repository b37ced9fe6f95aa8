"""Tensors in files: the safetensors format, written so that a file is either complete or not there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from .device import resolve
from .dtypes import bool_, float32, float64, int32, int64, uint8
from .tensor import Tensor, from_numpy

DTYPES = {"BOOL": bool_, "U8": uint8, "I32": int32, "I64": int64, "F32": float32, "F64": float64}
MAPPED = 64 << 20  # bytes of a file that are read before what was mapped is let go


def package() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise ImportError("save and load need the package safetensors: pip install safetensors") from error
    return safetensors


def save(
    path: str | os.PathLike, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file.

    The file appears under its name once it is complete and on disk; a file of that name is replaced only
    then. A failure leaves nothing behind; a process killed in the middle may leave a hidden file whose name
    ends in ``.tmp``.

    Parameters
    ----------
    path : str or path
    tensors : mapping of str to Tensor
        Such as a `state_dict`. Views are saved by value, and any device will do.
    metadata : mapping of str to str, optional

    Raises
    ------
    TypeError
        If a name or a metadatum is no string, or a value no Tensor.
    ValueError
        If a tensor is called ``__metadata__``.
    ImportError
        If the package safetensors is missing.
    """
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise TypeError(f"save takes strings and Tensors, got {name!r}: {type(value).__name__}")
    for key, text in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise TypeError(f"save takes metadata of strings, got {key!r}: {type(text).__name__}")
    if "__metadata__" in tensors:
        raise ValueError("save: '__metadata__' is the name of the file's metadata, and cannot be a tensor's")
    arrays = {name: np.asarray(x.detach().numpy(), order="C") for name, x in tensors.items()}
    replace(Path(path), package().numpy.save(arrays, metadata=None if metadata is None else dict(metadata)))


def replace(path: Path, data: bytes) -> None:
    """Make a file hold these bytes, or leave everything as it was."""
    unfinished = path.with_name(f".{path.name}.{uuid4().hex}.tmp")
    try:
        with open(unfinished, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
    if hasattr(os, "O_DIRECTORY"):  # the new name is on disk once its folder is; Windows cannot open folders
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def load(path: str | os.PathLike, device: Any = None) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file.

    Parameters
    ----------
    path : str or path
    device : str, optional
        Where to put them; by default what TINYADEPT_DEVICE says.

    Raises
    ------
    ValueError
        If the file is no safetensors file, is damaged or cut short, or holds a dtype that tinyadept lacks.
    FileNotFoundError
        If there is no such file.
    ImportError
        If the package safetensors is missing.
    """
    with opened(path) as file:
        found = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118, the file is no dict
        for name, dtype in found.items():
            if dtype not in DTYPES:
                raise ValueError(f"{path}: {name!r} has dtype {dtype}, expected one of {', '.join(DTYPES)}")
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in found}
    sizes = {name: prod(shapes[name]) * DTYPES[dtype].itemsize for name, dtype in found.items()}
    loaded: dict[str, Tensor] = {}
    for names in batches(sizes):
        if sizes[names[0]] > MAPPED:  # one alone
            array = np.empty(shapes[names[0]], DTYPES[found[names[0]]])
            loaded[names[0]] = placed(in_pieces(path, names[0], array), device)
            continue
        with opened(path) as file:
            loaded |= {name: placed(file.get_tensor(name), device) for name in names}
    return {name: loaded[name] for name in found}


def batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Names whose tensors are read while the file is mapped once, the largest ones last.

    What was read of a mapped file counts as memory of the process until it is closed.
    """
    names, held = [], 0
    for name, size in sorted(sizes.items(), key=lambda item: item[1]):
        if names and held + size > MAPPED:
            yield names
            names, held = [], 0
        names.append(name)
        held += size
    if names:
        yield names


def in_pieces(path: str | os.PathLike, name: str, array: np.ndarray) -> np.ndarray:
    """Read a tensor of at least one axis into an array, so many rows at a time as may be mapped."""
    step = max(1, MAPPED * len(array) // array.nbytes)
    for first in range(0, len(array), step):
        with opened(path) as file:
            last = min(first + step, len(array))
            array[first:last] = file.get_slice(name)[first:last]
    return array


def placed(array: np.ndarray, device: Any) -> Tensor:
    if array.dtype == bool_:
        array = np.asarray(array.view(uint8) != 0)  # a foreign file may hold other bytes than 0 and 1
    if not array.flags.writeable:
        array = array.copy()
    return from_numpy(array).to(device=resolve(device))


def load_metadata(path: str | os.PathLike) -> dict[str, str]:
    """Read the metadata of a safetensors file; errors as in `load`."""
    with opened(path) as file:
        return dict(file.metadata() or {})


@contextmanager
def opened(path: str | os.PathLike) -> Iterator[Any]:
    safetensors = package()
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            yield file
    except safetensors.SafetensorError as error:
        raise ValueError(f"{path}: not a complete safetensors file: {error}") from error
