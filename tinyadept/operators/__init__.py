"""What tensors can do: operators and methods, each a row of the table or a few lines made of rows."""

from __future__ import annotations

from ..tensor import Tensor
from .arithmetic import Arithmetic
from .history import History
from .lookups import Extremum, Lookups
from .moves import Moves, sizes
from .products import Products, multiplied
from .reductions import Reductions


class Operators(Arithmetic, Moves, Reductions, Lookups, Products, History):
    """The methods of `Tensor`. Names, argument order and results are PyTorch's."""


for source in Operators.__mro__[-2::-1]:  # all but object, the most basic first
    for name, method in vars(source).items():
        if name not in ("__module__", "__dict__", "__weakref__", "__doc__"):
            setattr(Tensor, name, method)
