"""Keys and values of the tokens that a language model has read, so that each is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..creation import arange, zeros
from ..ops import attention as rows
from ..ops.table import apply_into
from ..tape import no_grad
from ..tensor import Tensor


class KeyValueCache:
    """Memory of fixed size that is filled in place, on the device of the model.

    How far it is filled stands in memory too, so that a recorded step can be replayed (`tinyadept.capture`).

    Parameters
    ----------
    layers, batch, heads, capacity, width : int
        For each layer two tensors of shape (batch, heads, capacity, width).
    device : str, optional

    Attributes
    ----------
    start : Tensor
        (batch,), int32: how many tokens were kept before the current call.
    keys, values : list of Tensor
        One a layer.
    """

    def __init__(self, layers: int, batch: int, heads: int, capacity: int, width: int, device: Any = None):
        shape = (batch, heads, capacity, width)
        self.keys = [zeros(*shape, device=device) for _ in range(layers)]
        self.values = [zeros(*shape, device=device) for _ in range(layers)]
        self.start = Tensor(np.zeros(batch, np.int32), device=device)
        self.capacity = capacity

    def positions(self, count: int) -> Tensor:
        """Of the next `count` tokens, (batch, count), int32."""
        return self.start.unsqueeze(1) + arange(count, device=self.start.backend)

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep (batch, heads, T, width) of a layer, and return all that it has room for.

        Raises
        ------
        IndexError
            If they do not fit; on Vulkan when the queue is next checked.
        """
        kept = self.keys[layer], self.values[layer]
        with no_grad():
            for base, new in zip(kept, (keys, values)):
                apply_into(rows.append.op, base, (base, new.detach(), self.start), {})
        return kept

    def advance(self, count: int) -> None:
        """Note that `count` tokens were kept in all layers."""
        self.start += count

    def clear(self, length: int = 0) -> None:
        """Forget all tokens but the first `length`."""
        self.start.fill_(length)
