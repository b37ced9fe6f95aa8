"""The table of operations, one module a family; `define` adds a row."""

from . import (
    attention,
    create,
    elementwise,
    entropy,
    index,
    kernels,
    matmul,
    move,
    norm,
    random,
    reduce,
    resample,
    suppress,
    update,
    window,
)
from .table import Family, Move, Op, define, registry

__all__ = [
    "Family",
    "Move",
    "Op",
    "create",
    "define",
    "elementwise",
    "entropy",
    "index",
    "matmul",
    "move",
    "norm",
    "random",
    "reduce",
    "registry",
    "resample",
    "suppress",
    "update",
    "window",
]
