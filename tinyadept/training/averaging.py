"""A second model that follows the one in training, and is better than it for being slower."""

from __future__ import annotations

from math import exp

from .. import nn
from ..ops import update
from ..tape import no_grad
from ..tensor import Tensor


class MovingAverage:
    """An exponential moving average of a model's parameters and running statistics.

    After each step a ← k · a + (1 - k) · x with k = decay · (1 - exp(-step / warmup)): while the model still
    changes fast, the average follows closely.

    Parameters
    ----------
    model : Module
    average : Module
        Of the same kind; it takes over the model's values.
    decay : float
    warmup : float
        Steps.

    Attributes
    ----------
    steps : int
    """

    def __init__(self, model: nn.Module, average: nn.Module, decay: float = 0.998, warmup: float = 200):
        self.model, self.average = model, average
        self.decay, self.warmup, self.steps = decay, warmup, 0
        average.load_state_dict(model.state_dict())
        for parameter in average.parameters():
            parameter.requires_grad_(False)
        ours, theirs = average.state_dict(), model.state_dict()
        self.rows = [(ours[name], x) for name, x in theirs.items() if x.is_floating_point]

    @no_grad()
    def step(self) -> None:
        """Follow the model; part of a captured step."""
        update.ema(*self.rows, numbers=self.numbers)

    def numbers(self) -> tuple[float, float]:
        self.steps += 1
        keep = self.decay * (1 - exp(-self.steps / self.warmup))
        return keep, 1 - keep

    def state_dict(self) -> dict[str, Tensor]:
        return self.average.state_dict()

    def load_state_dict(self, state: dict[str, Tensor], steps: int) -> None:
        self.average.load_state_dict(state)
        self.steps = steps
