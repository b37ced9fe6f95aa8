"""Train a model: python train.py [digits] [options].

The last line printed says how well it does on data that it has not seen. After each epoch runs/<task>/,
or what --out names, holds a checkpoint, from which --resume continues bit for bit, and at the end a
learning curve.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import io, nn, optim
from tinyadept.data import digits

CHECKPOINT = "checkpoint.safetensors"
PACKAGES = ("safetensors", "matplotlib", "threadpoolctl", "tqdm")
DECAY = 0.9  # of the learning rate, an epoch; it knows no last epoch, so that a run can be made longer


class TrainingError(Exception):
    """Training cannot begin or go on; the message says why and what to do."""


# --- tasks ---


class Task(Protocol):
    """What is trained on what. All randomness comes from the engine's default generator."""

    epochs: int
    batch: int
    lr: float
    metric: str  # what `measure` returns
    threads: int | None  # for matrix products on the host: small ones are slower when shared out
    samples: int  # in an epoch
    model: nn.Module

    def batches(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """One epoch of inputs and targets, in a new order each time; the last batch may be smaller."""
        ...

    def loss(self, inputs: ta.Tensor, targets: ta.Tensor) -> ta.Tensor: ...

    def measure(self) -> float:
        """How good the model is on the test data."""
        ...


class Digits(Task):
    """Handwritten digits of 8x8 pixels, told apart by a small convolutional network."""

    epochs, batch, lr, metric, threads = 30, 32, 0.005, "test accuracy", 1

    def __init__(self):
        from tinyadept.models.digits import DigitsNet

        self.images, self.labels = digits.load("train")
        self.unseen = digits.load("test")
        self.samples = len(self.labels)
        self.model = DigitsNet()

    def batches(self, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        order = ta.randperm(self.samples).numpy()
        for start in range(0, self.samples, size):
            chosen = order[start : start + size]
            images = digits.distorted(self.images[chosen], ta.rand(5, len(chosen)).numpy())
            yield images, self.labels[chosen]

    def loss(self, inputs: ta.Tensor, targets: ta.Tensor) -> ta.Tensor:
        return F.cross_entropy(self.model(inputs), targets, label_smoothing=0.1)

    def measure(self) -> float:
        images, labels = self.unseen
        guesses = self.model(ta.tensor(images)).argmax(1)
        return float((guesses.numpy() == labels).mean())


TASKS: dict[str, Callable[[], Task]] = {"digits": Digits}


# --- training ---


class Training:
    """A task with an optimiser and a history, which can be written to a checkpoint and read back.

    Parameters
    ----------
    name : str
        Of the task.
    settings : dict
        "batch", "lr" and "seed"; None stands for the task's own.
    """

    def __init__(self, name: str, settings: dict[str, Any]):
        ta.manual_seed(settings["seed"] or 0)
        self.name, self.task = name, TASKS[name]()
        own = {"batch": self.task.batch, "lr": self.task.lr, "seed": 0}
        self.settings = {key: own[key] if value is None else value for key, value in settings.items()}
        self.optimizer = optim.AdamW(self.task.model.parameters(), lr=self.settings["lr"], weight_decay=0.5)
        self.schedule = optim.LambdaLR(self.optimizer, lambda epoch: DECAY**epoch)
        self.history: list[tuple[float, float]] = []  # the loss and the measure of each epoch
        self.step = ta.capture(self.follow)

    def epoch(self) -> None:
        """See every sample once, then measure.

        Raises
        ------
        TrainingError
            If the loss is no longer a number.
        """
        loss = self.learn()
        if not math.isfinite(loss):
            raise TrainingError(f"the loss of epoch {len(self.history) + 1} is {loss}: try a smaller --lr")
        self.schedule.step()
        self.task.model.eval()
        with ta.no_grad():
            self.history.append((loss, self.task.measure()))

    def follow(self, inputs: ta.Tensor, targets: ta.Tensor) -> ta.Tensor:
        """One step down the gradient; returns the loss before it."""
        loss = self.task.loss(inputs, targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def learn(self) -> float:
        from tqdm import tqdm

        total = 0.0
        self.task.model.train()
        with tqdm(
            total=self.task.samples, desc=f"epoch {len(self.history) + 1}", leave=False, disable=None
        ) as bar:
            for inputs, targets in self.task.batches(self.settings["batch"]):
                if len(targets) == self.settings["batch"]:  # a recording fits one size
                    loss = self.step(inputs, targets)
                else:
                    loss = self.follow(ta.tensor(inputs), ta.tensor(targets))
                total += loss.item() * len(targets)
                bar.update(len(targets))
        return total / self.task.samples

    def save(self, path: Path) -> None:
        """Write everything that the next epoch depends on."""
        tensors = {f"model.{name}": x for name, x in self.task.model.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            for name, value in state.items():
                tensors[f"optimizer.{number}.{name}"] = (
                    value if isinstance(value, ta.Tensor) else ta.tensor(int(value))
                )
        tensors["random"] = ta.random.get_state()
        about = {"task": self.name, "settings": self.settings, "history": self.history}
        io.save(path, tensors, {"training": json.dumps(about)})


def resume(path: Path, name: str, settings: dict[str, Any]) -> Training:
    """The training that a checkpoint holds.

    Raises
    ------
    TrainingError
        If there is none, it is damaged, or it was begun for another task or with other settings.
    """
    try:
        tensors, about = io.load(path), json.loads(io.load_metadata(path)["training"])
        if about["task"] != name:
            raise TrainingError(f"{path} is a checkpoint of the task {about['task']}, not of {name}")
        for key, value in settings.items():
            if value not in (None, about["settings"][key]):
                raise TrainingError(
                    f"{path} was begun with --{key} {about['settings'][key]}: leave --{key} out"
                )
        training = Training(name, about["settings"])
        restore(training, tensors)
        training.history = [(loss, measure) for loss, measure in about["history"]]
    except FileNotFoundError:
        raise TrainingError(f"there is no checkpoint {path}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{path} is no checkpoint of this program: {str(error).splitlines()[0]}"
        ) from None
    training.schedule.load_state_dict({**training.schedule.state_dict(), "last_epoch": len(training.history)})
    return training


def restore(training: Training, tensors: dict[str, ta.Tensor]) -> None:
    """Give the model, the optimiser and the random numbers the state they were saved in."""
    model: dict[str, ta.Tensor] = {}
    moments: dict[str, dict[str, Any]] = {}
    for name, x in tensors.items():
        part, _, rest = name.partition(".")
        if part == "model":
            model[rest] = x
        elif part == "optimizer":
            number, _, key = rest.partition(".")
            moments.setdefault(number, {})[key] = x if x.is_floating_point else x.item()  # a count of steps
    training.task.model.load_state_dict(model)
    groups = training.optimizer.state_dict()["param_groups"]
    training.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    ta.random.set_state(tensors["random"])


def draw(training: Training, path: Path) -> None:
    """A picture of the learning curve: the loss on the training data, the measure on the test data."""
    from matplotlib.figure import Figure

    losses, measures = zip(*training.history, strict=True)
    epochs = range(1, len(losses) + 1)
    figure = Figure(figsize=(8, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(epochs, losses, marker=".")
    left.set(xlabel="epoch", ylabel="training loss")
    right.plot(epochs, measures, marker=".", color="tab:green")
    right.set(
        xlabel="epoch", ylabel=training.task.metric, title=f"{measures[-1]:.3f} after {len(measures)} epochs"
    )
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
    figure.savefig(path, dpi=120)


# --- the command line ---


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if not 0 < value < math.inf:
            raise ValueError
        return value

    number.__name__ = f"positive {kind.__name__}"
    return number


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a model and measure it on data that it has not seen.")
    parser.add_argument("task", nargs="?", choices=TASKS, default="digits", help="what to train (digits)")
    parser.add_argument("--epochs", type=positive(int), help="in all, those before --resume included")
    parser.add_argument("--batch", type=positive(int), help="samples in a step")
    parser.add_argument("--lr", type=positive(float), help="the first learning rate")
    parser.add_argument("--seed", type=int, help="of all random numbers (0)")
    parser.add_argument("--device", help="numpy, vulkan or vulkan:1 (what TINYADEPT_DEVICE says, else numpy)")
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="PATH", help="a checkpoint or its folder (that of --out)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="for checkpoint and learning curve (runs/<task>)"
    )
    return parser.parse_args()


def begin(options: argparse.Namespace) -> Training:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise TrainingError(f"training needs {', '.join(missing)}: pip install {' '.join(missing)}")
    if options.device:
        os.environ["TINYADEPT_DEVICE"] = options.device  # everything is made where the default device says
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"--out {options.out}: {error.strerror}") from None
    settings = {"batch": options.batch, "lr": options.lr, "seed": options.seed}
    if options.resume is None:
        return Training(options.task, settings)
    path = Path(options.resume or options.out)
    return resume(path / CHECKPOINT if path.is_dir() else path, options.task, settings)


def run(training: Training, epochs: int, out: Path) -> None:
    from threadpoolctl import threadpool_limits

    metric, width = training.task.metric, len(str(epochs))
    with threadpool_limits(training.task.threads, "blas"):
        while len(training.history) < epochs:
            start = time.perf_counter()
            training.epoch()
            training.save(out / CHECKPOINT)
            loss, measure = training.history[-1]
            seconds = time.perf_counter() - start
            done = f"{len(training.history):>{width}}/{epochs}"
            print(f"epoch {done}  loss {loss:.4f}  {metric} {measure:.3f}  {seconds:.1f} s", flush=True)
    draw(training, out / "learning-curve.png")
    print(f"{metric}: {training.history[-1][1]:.3f}")


def main() -> int:
    options = arguments()
    options.out = options.out or Path("runs") / options.task
    try:
        training = begin(options)
        run(training, options.epochs or training.task.epochs, options.out)
    except (TrainingError, ta.DeviceError, ta.OutOfMemory, ta.Unsupported) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"\ntrain.py: interrupted; --resume {options.out} continues after the last full epoch",
            file=sys.stderr,
        )
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
