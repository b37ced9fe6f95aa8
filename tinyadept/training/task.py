"""What a task has to know so that train.py can train it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from .. import nn, optim
from ..tensor import Tensor


class TrainingError(Exception):
    """Training cannot begin or go on; the message says why and what to do."""


class Task:
    """A model, data, and how the one learns from the other.

    A subclass sets `model`, `optimizer` and `schedule` when it is made, and defines `learn` and `measure`.
    Random numbers come from the engine's default generator, or follow from the seed and the epoch.

    Parameters
    ----------
    settings : dict
        What a checkpoint keeps, and with which alone it can be continued; see `defaults`.
    options : dict
        What may be another when training goes on; see `free`.

    Attributes
    ----------
    name, metric : str
        The metric is the one of `measure` that says how good the model is.
    defaults, free : dict
        Settings and options with their values where none are given.
    packages : tuple of str
        What must be installed, by the names that they are imported by.
    threads : int or None
        For matrix products on the host: small ones are slower when shared out.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    defaults: ClassVar[dict[str, Any]]
    free: ClassVar[dict[str, Any]] = {}
    packages: ClassVar[tuple[str, ...]] = ()
    threads: ClassVar[int | None] = None
    model: nn.Module
    optimizer: optim.Optimizer
    schedule: optim.lr_scheduler.LRScheduler

    def __init__(self, settings: dict[str, Any], options: dict[str, Any]):
        self.settings, self.options = settings, options

    def learn(self, epoch: int) -> dict[str, float]:
        """See every sample once, in epoch 0, 1, …; the means of the losses by name."""
        raise NotImplementedError

    def measure(self, epoch: int) -> dict[str, float]:
        """How good the model is on data that it has not seen, by name; nothing where it was not looked at."""
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on, under names that `restore` knows."""
        tensors = {f"model.{name}": x for name, x in self.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{name}"] = (
                    value if isinstance(value, Tensor) else Tensor(int(value))
                )
        return tensors

    def restore(self, tensors: dict[str, Tensor], epochs: int) -> None:
        """Go on after so many epochs from what `tensors` returned."""
        moments: dict[str, dict[str, Any]] = {}
        for name, x in part(tensors, "optimizer").items():
            number, _, key = name.partition(".")
            moments.setdefault(number, {})[key] = x if x.is_floating_point else x.item()  # a count of steps
        self.model.load_state_dict(part(tensors, "model"))
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        done = self.scheduled(epochs)
        self.schedule.load_state_dict({**self.schedule.state_dict(), "last_epoch": done})

    def scheduled(self, epochs: int) -> int:
        """Steps that the schedule has made after so many epochs."""
        return epochs

    def finish(self, out: Path, history: list[dict[str, float]]) -> None:
        """Leave pictures in a folder; `history` is what was learned and measured, an epoch an entry."""

    def close(self) -> None:
        """End what runs beside this process."""


def part(tensors: dict[str, Tensor], first: str) -> dict[str, Tensor]:
    """Those whose names begin with a word and a dot, by the rest of their names."""
    return {name[len(first) + 1 :]: x for name, x in tensors.items() if name.startswith(f"{first}.")}


def groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """The parameters that decay, which are matrices or more, and those that do not: biases and scales."""
    learned = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in learned if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in learned if p.ndim <= 1], "weight_decay": 0.0},
    ]


def rising_and_falling(steps: int, warmup: int, end: float) -> Callable[[int], float]:
    """The part of the learning rate in each step: up in a line, then along a cosine down to `end`."""
    warmup = min(warmup, steps // 4)

    def rate(step: int) -> float:
        if step < warmup:
            return (step + 1) / warmup
        done = (step - warmup) / max(steps - warmup, 1)
        return end + (1 - end) * (1 + math.cos(math.pi * min(done, 1))) / 2

    return rate


def progress(total: int, epoch: int) -> Any:
    """A bar on the terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=f"epoch {epoch + 1}", leave=False, disable=None)


def checked(losses: dict[str, float], epoch: int) -> dict[str, float]:
    """The losses.

    Raises
    ------
    TrainingError
        If one is no number any more.
    """
    for name, loss in losses.items():
        if not math.isfinite(loss):
            what = name if name == "loss" else f"{name} loss"
            raise TrainingError(f"the {what} of epoch {epoch + 1} is {loss}: try a smaller --lr")
    return losses
