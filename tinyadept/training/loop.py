"""Epoch after epoch of a task, with checkpoints from which it goes on bit for bit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import tinyadept as ta
from tinyadept import io

from .task import Task, TrainingError

CHECKPOINT = "checkpoint.safetensors"


class Training:
    """A task with a history, which can be written to a checkpoint and read back.

    Parameters
    ----------
    kind : type of Task
    settings, options : dict
        See `Task`; None stands for the task's own.
    """

    def __init__(self, kind: type[Task], settings: dict[str, Any], options: dict[str, Any]):
        self.settings = filled(settings, kind.defaults)
        ta.manual_seed(self.settings["seed"])
        self.task = kind(self.settings, filled(options, kind.free))
        self.history: list[dict[str, float]] = []  # what was learned and measured in each epoch

    def epoch(self) -> None:
        """See every sample once, then measure.

        Raises
        ------
        TrainingError
            If the loss is no longer a number.
        """
        number = len(self.history)
        losses = self.task.learn(number)
        self.history.append(losses | self.task.measure(number))

    def save(self, path: Path) -> None:
        """Write everything that the next epoch depends on."""
        tensors = {**self.task.tensors(), "random": ta.random.get_state()}
        about = {"task": self.task.name, "settings": self.settings, "history": self.history}
        io.save(path, tensors, {"training": json.dumps(about)})

    def run(self, epochs: int, out: Path) -> None:
        """Go on until so many epochs are done, then leave pictures."""
        from threadpoolctl import threadpool_limits

        width = len(str(epochs))
        with threadpool_limits(self.task.threads, "blas"):
            while len(self.history) < epochs:
                start = time.perf_counter()
                self.epoch()
                self.save(out / CHECKPOINT)
                seconds = time.perf_counter() - start
                done = f"{len(self.history):>{width}}/{epochs}"
                print(f"epoch {done}  {told(self.history[-1])}  {seconds:.1f} s", flush=True)
            self.task.finish(out, self.history)


def filled(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    return {key: value if given.get(key) is None else given[key] for key, value in own.items()}


def told(entry: dict[str, float]) -> str:
    precise = ("loss", "box", "class", "shape", "entropy", "dice")
    return "  ".join(f"{name} {value:.{4 if name in precise else 3}f}" for name, value in entry.items())


def resume(path: Path, kind: type[Task], settings: dict[str, Any], options: dict[str, Any]) -> Training:
    """The training that a checkpoint holds.

    Raises
    ------
    TrainingError
        If there is none, it is damaged, or it was begun for another task or with other settings.
    """
    try:
        tensors, about = io.load(path), json.loads(io.load_metadata(path)["training"])
        if about["task"] != kind.name:
            raise TrainingError(f"{path} is a checkpoint of the task {about['task']}, not of {kind.name}")
        for key, value in settings.items():
            if value not in (None, about["settings"][key]):
                raise TrainingError(
                    f"{path} was begun with --{key} {about['settings'][key]}: leave --{key} out"
                )
        training = Training(kind, about["settings"], options)
        training.history = about["history"]
        training.task.restore(tensors, len(training.history))
        ta.random.set_state(tensors["random"])
    except FileNotFoundError:
        raise TrainingError(f"there is no checkpoint {path}") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise TrainingError(
            f"{path} is no checkpoint of this program: {str(error).splitlines()[0]}"
        ) from None
    return training
