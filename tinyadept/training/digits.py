"""Handwritten digits of 8x8 pixels, told apart by a small convolutional network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import optim
from tinyadept.data import digits

from . import curves
from .task import Task, checked, progress

DECAY = 0.9  # of the learning rate, an epoch; it knows no last epoch, so that a run can be made longer


class Digits(Task):
    """All randomness comes from the engine's default generator."""

    name, metric, threads = "digits", "test accuracy", 1
    defaults: ClassVar = {"batch": 32, "lr": 0.005, "seed": 0}
    free: ClassVar = {"epochs": 30}

    def __init__(self, settings: dict[str, Any], options: dict[str, Any]):
        from tinyadept.models.digits import DigitsNet

        super().__init__(settings, options)
        self.images, self.labels = digits.load("train")
        self.unseen = digits.load("test")
        self.model = DigitsNet()
        self.optimizer = optim.AdamW(self.model.parameters(), lr=settings["lr"], weight_decay=0.5)
        self.schedule = optim.LambdaLR(self.optimizer, lambda epoch: DECAY**epoch)
        self.step = ta.capture(self.follow)

    def batches(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """One epoch of inputs and targets, in a new order each time; the last batch may be smaller."""
        order = ta.randperm(len(self.labels)).numpy()
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            images = digits.distorted(self.images[chosen], ta.rand(5, len(chosen)).numpy())
            yield images, self.labels[chosen]

    def follow(self, images: ta.Tensor, labels: ta.Tensor) -> ta.Tensor:
        """One step down the gradient; returns the loss before it."""
        loss = F.cross_entropy(self.model(images), labels, label_smoothing=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def learn(self, epoch: int) -> dict[str, float]:
        total, size = 0.0, self.settings["batch"]
        self.model.train()
        with progress(len(self.labels), epoch) as bar:
            for images, labels in self.batches(size):
                if len(labels) == size:  # a recording fits one size
                    loss = self.step(images, labels)
                else:
                    loss = self.follow(ta.tensor(images), ta.tensor(labels))
                total += loss.item() * len(labels)
                bar.update(len(labels))
        losses = checked({"loss": total / len(self.labels)}, epoch)
        self.schedule.step()
        return losses

    def measure(self, epoch: int) -> dict[str, float]:
        images, labels = self.unseen
        self.model.eval()
        with ta.no_grad():
            guesses = self.model(ta.tensor(images)).argmax(1)
        return {self.metric: float((guesses.numpy() == labels).mean())}

    def finish(self, out: Path, history: list[dict[str, float]]) -> None:
        curves.draw(history, [["loss"], [self.metric]], out / "learning-curve.png")
        print(f"{self.metric}: {history[-1][self.metric]:.3f}")
