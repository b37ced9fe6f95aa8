"""One call of one op: its inputs with their memory and views, and what the result should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import device as devices
from ..ops.move import strided
from ..ops.table import Op, apply, registry
from ..ops.update import GRADIENT, arity, updating
from ..tensor import Tensor, wrap
from ..view import View
from .bounds import bound

# The moves, said by NumPy: their rows take views.
MEANING: dict[str, Callable[..., np.ndarray]] = {
    "permute": lambda a, order: a.transpose(order),
    "expand": lambda a, shape: np.broadcast_to(a, shape),
    "reshape": lambda a, shape: a.reshape(shape),
    "index": lambda a, key: a[key],
    "diagonal": lambda a, offset, axis1, axis2: np.diagonal(a, offset, axis1, axis2),
    "windows": lambda a, axis, size, step: np.moveaxis(
        np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, size, axis), axis, 0)[::step], 0, axis
    ),
}


@dataclass(frozen=True)
class Given:
    """One input: memory, and the view that reads it."""

    memory: np.ndarray
    view: View

    @property
    def is_float(self) -> bool:
        """Whether the elements are float32, which the truth has in float64."""
        return self.memory.dtype == np.float32

    @property
    def values(self) -> np.ndarray:
        """The elements, as an array of their own."""
        return strided(self.memory, self.view).copy()

    def on(self, device: Any, dtype: Any = None) -> Tensor:
        """The input as a tensor of a device: the same memory and view."""
        backend = devices.resolve(device)
        memory = self.memory.astype(dtype or self.memory.dtype)
        return wrap(backend.upload(memory), self.view, memory.dtype, backend)


@dataclass(frozen=True)
class Case:
    """One call of one op."""

    op: Op
    inputs: tuple[Given, ...]
    params: dict

    def run(
        self, device: Any = "numpy", dtype: Any = None, requires_grad: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Result and inputs on a device; float inputs as `dtype` where given."""
        tensors = [x.on(device, dtype if x.is_float else None) for x in self.inputs]
        if self.op.family is updating:
            return self.updated(tensors, device, dtype), tensors
        for x in tensors:
            x.requires_grad = requires_grad and x.is_floating_point
        if tensors:
            return apply(self.op, tuple(tensors), dict(self.params)), tensors
        return apply(self.op, (), dict(self.params), devices.resolve(device)), tensors

    def updated(self, tensors: list[Tensor], device: Any, dtype: Any) -> Tensor:
        """All that a step of an optimiser writes, one after another; the inputs are its rows, one by one."""
        size = arity(self.op)
        operands = [
            x if at % size == GRADIENT else given.on(device, dtype)
            for at, (x, given) in enumerate(zip(tensors, self.inputs, strict=True))
        ]
        rows = tuple(tuple(operands[at : at + size]) for at in range(0, len(operands), size))
        apply(self.op, rows, {"numbers": lambda: self.params["numbers"]})
        changed = [x for at, x in enumerate(operands) if at % size != GRADIENT]
        return apply(registry["cat"], tuple(x.reshape(-1) for x in changed), {"axis": 0})

    def truth(self) -> np.ndarray:
        """The definition in float64, of dense inputs, so that one that misreads strides is noticed."""
        if self.op.name in MEANING:
            return MEANING[self.op.name](self.inputs[0].values, **self.params).astype(np.float64)
        dense = tuple(Given(x.values.ravel(), View.dense(x.view.shape)) for x in self.inputs)
        return Case(self.op, dense, self.params).run(dtype=np.float64)[0].detach().numpy()

    def bound(self, truth: np.ndarray) -> np.ndarray:
        """How far each element of a float32 result may lie from the truth."""
        return bound(self, truth)
