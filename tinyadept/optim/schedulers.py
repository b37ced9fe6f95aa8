"""Schedules: the learning rate of each group as a function of how many steps were made."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import cos, pi
from typing import Any

from .optimizers import Optimizer


class LRScheduler:
    """What all schedules share: `step` counts, and sets the "lr" of the optimiser's groups.

    Every schedule is a formula of the count and the initial rate, so setting the count is enough to resume.
    Making a schedule sets the rates for step 0. To chain several, use `SequentialLR`.

    Attributes
    ----------
    last_epoch : int
        How often `step` was called.
    base_lrs : list of float
        The initial rate of each group.
    """

    def __init__(self, optimizer: Optimizer):
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__} takes an Optimizer, got {type(optimizer).__name__}")
        self.optimizer = optimizer
        self.base_lrs = [group.setdefault("initial_lr", group["lr"]) for group in optimizer.param_groups]
        self.last_epoch = 0
        self.set(0)

    def lr(self, epoch: int, group: int) -> float:
        """The learning rate of a group after so many steps."""
        raise NotImplementedError(f"{type(self).__name__} has no lr()")

    def set(self, epoch: int) -> None:
        """Set the rates of all groups to those after so many steps."""
        for i, group in enumerate(self.optimizer.param_groups):
            group["lr"] = self.lr(epoch, i)

    def step(self) -> None:
        """Count one step, after the optimiser's, and set the rates."""
        self.last_epoch += 1
        self.set(self.last_epoch)

    def get_last_lr(self) -> list[float]:
        """The present rate of each group."""
        return [group["lr"] for group in self.optimizer.param_groups]

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to continue, as plain numbers."""
        return {"last_epoch": self.last_epoch, "base_lrs": list(self.base_lrs)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from what `state_dict` returned.

        Raises
        ------
        ValueError
            If it was made for another number of groups.
        """
        if len(state_dict["base_lrs"]) != len(self.base_lrs):
            got, expected = len(state_dict["base_lrs"]), len(self.base_lrs)
            raise ValueError(f"{type(self).__name__}: the state has {got} groups, expected {expected}")
        self.last_epoch, self.base_lrs = state_dict["last_epoch"], list(state_dict["base_lrs"])
        self.set(self.last_epoch)


def positive(name: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{name} must be at least 1, got {value}")
    return value


class LambdaLR(LRScheduler):
    """The initial rate times ``lr_lambda(step)``.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : callable, or one per group
    """

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]]
    ):
        count = len(optimizer.param_groups)
        self.lr_lambdas = [lr_lambda] * count if callable(lr_lambda) else list(lr_lambda)
        if len(self.lr_lambdas) != count:
            raise ValueError(f"LambdaLR got {len(self.lr_lambdas)} functions for {count} groups")
        super().__init__(optimizer)

    def lr(self, epoch: int, group: int) -> float:
        return self.base_lrs[group] * self.lr_lambdas[group](epoch)


class StepLR(LRScheduler):
    """The rate times gamma every `step_size` steps."""

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1):
        self.step_size, self.gamma = positive("step_size", step_size), gamma
        super().__init__(optimizer)

    def lr(self, epoch: int, group: int) -> float:
        return self.base_lrs[group] * self.gamma ** (epoch // self.step_size)


class MultiStepLR(LRScheduler):
    """The rate times gamma at each of the milestones, which are counts of steps."""

    def __init__(self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1):
        self.milestones, self.gamma = sorted(milestones), gamma
        super().__init__(optimizer)

    def lr(self, epoch: int, group: int) -> float:
        return self.base_lrs[group] * self.gamma ** bisect_right(self.milestones, epoch)


class LinearLR(LRScheduler):
    """The initial rate times a factor that moves evenly from `start_factor` to `end_factor`: a warm-up.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor : float
        In (0, 1].
    end_factor : float
        In [0, 1].
    total_iters : int
        The steps that it takes; from then on the factor is `end_factor`.

    Raises
    ------
    ValueError
        If a factor is out of range, or there are no steps.
    """

    def __init__(
        self, optimizer: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0, total_iters: int = 5
    ):
        if not 0 < start_factor <= 1 or not 0 <= end_factor <= 1:
            got = f"{start_factor} and {end_factor}"
            raise ValueError(f"LinearLR: start_factor must lie in (0, 1] and end_factor in [0, 1], got {got}")
        self.start_factor, self.end_factor = start_factor, end_factor
        self.total_iters = positive("total_iters", total_iters)
        super().__init__(optimizer)

    def lr(self, epoch: int, group: int) -> float:
        done = min(epoch, self.total_iters) / self.total_iters
        return self.base_lrs[group] * (self.start_factor + (self.end_factor - self.start_factor) * done)


class CosineAnnealingLR(LRScheduler):
    """From the initial rate down to `eta_min` along half a cosine in `T_max` steps, then up again.

    The formula is that of Loshchilov and Hutter (2017), without their restarts.
    """

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0):
        self.T_max, self.eta_min = positive("T_max", T_max), eta_min
        super().__init__(optimizer)

    def lr(self, epoch: int, group: int) -> float:
        return between(self.base_lrs[group], self.eta_min, epoch / self.T_max)


def between(start: float, end: float, done: float) -> float:
    """From start to end along half a cosine, `done` of the way."""
    return end + (start - end) * (1 + cos(pi * done)) / 2


def evenly(start: float, end: float, done: float) -> float:
    """From start to end along a line, `done` of the way."""
    return start + (end - start) * done


class OneCycleLR(LRScheduler):
    """Up to `max_lr` and down to almost nothing, while momentum goes the other way (Smith and Topin, 2018).

    Parameters
    ----------
    optimizer : Optimizer
    max_lr : float, or one per group
    total_steps : int, optional
        Steps of the whole cycle; by default `epochs` times `steps_per_epoch`. There are no steps beyond it.
    epochs, steps_per_epoch : int, optional
    pct_start : float
        The share of the steps that lead up, in [0, 1].
    anneal_strategy : str
        "cos" or "linear".
    cycle_momentum : bool
        Whether momentum (or the first beta) goes from `max_momentum` down to `base_momentum` and back.
    base_momentum, max_momentum : float
    div_factor : float
        The rate begins at max_lr / div_factor,
    final_div_factor : float
        and ends at that divided by this.

    Raises
    ------
    ValueError
        If the number of steps is not given, or something is out of range; on a step beyond the last.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | Sequence[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
    ):
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                raise ValueError("OneCycleLR needs total_steps, or epochs and steps_per_epoch")
            total_steps = epochs * steps_per_epoch
        if not 0 <= pct_start <= 1:
            raise ValueError(f"OneCycleLR: pct_start must lie in [0, 1], got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: expected the strategy 'cos' or 'linear', got {anneal_strategy!r}")
        count = len(optimizer.param_groups)
        self.max_lrs = [max_lr] * count if isinstance(max_lr, (int, float)) else list(max_lr)
        if len(self.max_lrs) != count:
            raise ValueError(f"OneCycleLR got {len(self.max_lrs)} rates for {count} groups")
        settings = ("momentum", "betas")
        if cycle_momentum and not all(any(s in group for s in settings) for group in optimizer.param_groups):
            raise ValueError("OneCycleLR: the optimizer has no momentum to cycle: pass cycle_momentum=False")
        self.total_steps, self.pct_start = positive("total_steps", total_steps), pct_start
        self.anneal = between if anneal_strategy == "cos" else evenly
        self.cycle_momentum = cycle_momentum
        self.base_momentum, self.max_momentum = base_momentum, max_momentum
        self.div_factor, self.final_div_factor = div_factor, final_div_factor
        super().__init__(optimizer)

    def along(self, epoch: int, start: float, middle: float, end: float) -> float:
        """From start by way of middle to end."""
        peak = self.pct_start * self.total_steps - 1
        if epoch <= peak:
            return self.anneal(start, middle, epoch / peak if peak else 1.0)
        done = (epoch - peak) / (self.total_steps - 1 - peak) if epoch < self.total_steps - 1 else 1.0
        return self.anneal(middle, end, done)

    def lr(self, epoch: int, group: int) -> float:
        if epoch > self.total_steps:
            raise ValueError(f"OneCycleLR: step {epoch} of a cycle that has {self.total_steps}")
        start = self.max_lrs[group] / self.div_factor
        return self.along(epoch, start, self.max_lrs[group], start / self.final_div_factor)

    def set(self, epoch: int) -> None:
        super().set(epoch)
        if not self.cycle_momentum:
            return
        momentum = self.along(epoch, self.max_momentum, self.base_momentum, self.max_momentum)
        for group in self.optimizer.param_groups:
            if "betas" in group:
                group["betas"] = (momentum, *group["betas"][1:])
            else:
                group["momentum"] = momentum


class SequentialLR(LRScheduler):
    """One schedule after another, each counting from its own beginning.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
        Of this optimiser.
    milestones : sequence of int
        The steps at which the second, third, … schedule takes over.

    Raises
    ------
    ValueError
        If there is not one milestone fewer than schedules, or a schedule is of another optimiser.

    Examples
    --------
    Warm-up and cosine::

        warmup = LinearLR(optimizer, 0.01, total_iters=100)
        cosine = CosineAnnealingLR(optimizer, T_max=900)
        schedule = SequentialLR(optimizer, [warmup, cosine], milestones=[100])
    """

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int]):
        if len(milestones) != len(schedulers) - 1:
            got = f"{len(milestones)} milestones for {len(schedulers)} schedules"
            raise ValueError(f"SequentialLR got {got}, expected one fewer")
        if list(milestones) != sorted(milestones):
            raise ValueError(f"SequentialLR: milestones must increase, got {list(milestones)}")
        if any(scheduler.optimizer is not optimizer for scheduler in schedulers):
            raise ValueError("SequentialLR got a schedule of another optimizer")
        self.schedulers, self.milestones = list(schedulers), list(milestones)
        super().__init__(optimizer)

    def present(self, epoch: int) -> tuple[LRScheduler, int]:
        """The schedule in charge after so many steps, and how many of them are its own."""
        index = bisect_right(self.milestones, epoch)
        return self.schedulers[index], epoch - (self.milestones[index - 1] if index else 0)

    def lr(self, epoch: int, group: int) -> float:
        scheduler, own = self.present(epoch)
        return scheduler.lr(own, group)

    def set(self, epoch: int) -> None:
        scheduler, own = self.present(epoch)
        scheduler.set(own)
