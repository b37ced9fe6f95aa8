"""The reference: run the definition itself."""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any

import numpy as np

from tinyadept.ops.elementwise import elementwise
from tinyadept.ops.move import strided
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # <malloc.h>
PIECE = 1 << 16  # elements
KEPT, LARGE = 256 << 20, 32 << 20  # bytes


class Reference:
    """NumPy in this process. A buffer's data is an ndarray of dense memory."""

    name = "numpy"
    largest = None  # bytes of a tensor: what memory has

    def __init__(self) -> None:
        keep_freed_memory()

    def __repr__(self) -> str:
        return "<backend numpy>"

    def upload(self, array: np.ndarray) -> Buffer:
        """Take over a dense ndarray."""
        return Buffer(array)

    def download(self, x: Tensor) -> np.ndarray:
        """The tensor's memory, read through its view: no copy."""
        data, view = x.buffer.data, x.layout
        if data.shape == view.shape and view.is_contiguous and not view.offset:
            return data
        return strided(data, view)

    def run(
        self, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
    ) -> Any:
        """Run an op on arrays; into fresh memory, or over `into`."""
        arrays = list(map(self.download, inputs))
        with np.errstate(all="ignore"):
            if into is not None and isinstance(op.forward, np.ufunc):
                op.forward(*arrays, out=self.download(into), casting="unsafe", **params)
                return None
            if into is not None and op.amend is not None and only_first(inputs, into):
                op.amend(self.download(into), *arrays[1:], **params)
                return None
            if op.family is elementwise and in_pieces(op, arrays, shape):
                out = piece_by_piece(op, arrays, shape, dtype, params)
            else:
                out = op.forward(*arrays, **params)
            if into is not None:
                self.download(into)[...] = out
                return None
        if type(out) is not np.ndarray or out.dtype != dtype or not out.flags.c_contiguous:
            out = np.array(out, dtype, order="C")
        if out.shape != shape:
            raise AssertionError(f"{op.name}: its forward made shape {out.shape}, its family says {shape}")
        return Buffer(out)


def in_pieces(op: Op, arrays: list, shape: Shape) -> bool:
    """Whether an elementwise op makes several passes over arrays that no cache holds."""
    return (
        prod(shape) >= 2 * PIECE
        and not isinstance(op.forward, np.ufunc)
        and all(a.shape == shape and a.flags.c_contiguous for a in arrays)
    )


def piece_by_piece(op: Op, arrays: list, shape: Shape, dtype: np.dtype, params: dict) -> np.ndarray:
    """The same, so that all passes over a piece find it in the cache."""
    out = np.empty(shape, dtype)
    into, *flat = (a.reshape(-1) for a in (out, *arrays))
    for at in range(0, out.size, PIECE):
        into[at : at + PIECE] = op.forward(*(a[at : at + PIECE] for a in flat), **params)
    return out


def only_first(inputs: tuple, into: Tensor) -> bool:
    """Whether the result is to be written over the first input, and no other shares its memory."""
    first, *others = inputs
    alone = all(x.buffer is not into.buffer for x in others)
    return alone and first.buffer is into.buffer and first.layout == into.layout and first.dtype == into.dtype


def keep_freed_memory() -> None:
    """Have the C library keep up to `KEPT` freed bytes for the next array.

    Left alone, glibc returns memory to the system when some megabytes are free, and every step of a training
    loop faults the same pages in again: a fifth of the time of a small network.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        return  # another C library
    mallopt(M_TRIM_THRESHOLD, KEPT)
    mallopt(M_MMAP_THRESHOLD, LARGE)
