"""What tasks share that learn from pictures: a loader, decay, a learning rate that rises and falls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from .. import nn, optim
from ..data import DataLoader
from ..data.augmentation import Augmentation
from ..data.pictures import DataError
from ..data.scaled import ScaledPictures
from .task import Task, TrainingError, checked, groups, progress, rising_and_falling

WARMUP, END = 100, 0.01  # steps until the learning rate is whole, and the part of it that is left at the end
DECAY = 0.01  # of weights; not of biases and what normalises


class PictureTask(Task):
    """A task whose batches a loader makes, and whose step returns several losses.

    A subclass calls `load`, makes a model, calls `optimise`, and sets `step`.

    Attributes
    ----------
    losses : tuple of str
        Names of what `step` returns.
    loader : DataLoader
    step : callable
        Takes a batch, changes the model, and returns the losses before that.
    """

    losses: ClassVar[tuple[str, ...]]
    train: ScaledPictures
    loader: DataLoader
    step: Callable[..., Any]

    def load(self, train: ScaledPictures) -> None:
        """Make the loader of a data set.

        Raises
        ------
        TrainingError
            If it makes no batch.
        """
        size, seed = self.settings["batch"], self.settings["seed"]
        self.train = train
        self.loader = DataLoader(
            train,
            size,
            shuffle=True,
            num_workers=self.options["workers"],
            drop_last=True,  # a recording fits one size
            seed=seed,
        )
        if not len(self.loader):
            raise TrainingError(f"{len(train)} pictures make no batch of {size}: try a smaller --batch")

    def optimise(self, model: nn.Module) -> None:
        """Make what changes a model."""
        self.model = model
        self.optimizer = optim.AdamW(groups(model, DECAY), lr=self.settings["lr"])
        self.steps = self.settings["epochs"] * len(self.loader)
        self.schedule = optim.LambdaLR(self.optimizer, rising_and_falling(self.steps, WARMUP, END))

    def learn(self, epoch: int) -> dict[str, float]:
        self.arrange(epoch)
        self.model.train()
        total = np.zeros(len(self.losses))
        with progress(len(self.loader), epoch) as bar:
            for number, batch in enumerate(self.loader, 1):
                total += self.step(*batch).numpy()
                self.schedule.step()
                bar.update()
                means = total / number
                bar.set_postfix(
                    {name: f"{mean:.3f}" for name, mean in zip(self.losses, means)}, refresh=False
                )
        return checked(dict(zip(self.losses, (total / len(self.loader)).tolist())), epoch)

    def arrange(self, epoch: int) -> None:
        """Set the loader to the beginning of an epoch."""
        self.loader.load_state_dict({"epoch": epoch, "position": 0, "seed": self.settings["seed"]})

    def due(self, epoch: int) -> bool:
        """Whether the model is to be measured after an epoch."""
        return (epoch + 1) % self.options["every"] == 0 or epoch + 1 == self.settings["epochs"]

    def scheduled(self, epochs: int) -> int:
        return epochs * len(self.loader)

    def close(self) -> None:
        self.loader.close()


def augmentation_of(own: Augmentation, strength: float, **changes: float) -> Augmentation | None:
    """An augmentation times a strength; none for 0."""
    if not strength:
        return None
    values = {name: min(value * strength, 1.0) for name, value in vars(own).items()}
    return Augmentation(**(values | {"scale": min(values["scale"], 0.9)} | changes))


def explained(error: DataError) -> TrainingError:
    """What is wrong with a data set, and what can be done about it."""
    hint = "; --problems skip leaves out what is wrong" if "problems in" in str(error) else ""
    return TrainingError(f"{error}{hint}")
