"""Train a model: python train.py [digits|yolo11|unet|gpt2] [options].

The last line printed says how well it does on data that it has not seen. After each epoch runs/<task>/,
or what --out names, holds a checkpoint, from which --resume continues bit for bit, and at the end a
learning curve, for yolo11 and unet weights and a picture of what they find, and for gpt2 weights.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tinyadept as ta
from tinyadept.data import WorkerDied
from tinyadept.training.detection import Detection
from tinyadept.training.digits import Digits
from tinyadept.training.language import Language
from tinyadept.training.loop import CHECKPOINT, Training, resume
from tinyadept.training.segmentation import Segmentation
from tinyadept.training.task import Task, TrainingError

TASKS: dict[str, type[Task]] = {task.name: task for task in (Digits, Detection, Segmentation, Language)}
PACKAGES = {"safetensors": "safetensors", "matplotlib": "matplotlib", "threadpoolctl": "threadpoolctl"}
PACKAGES |= {"tqdm": "tqdm", "PIL": "pillow", "yaml": "pyyaml"}  # by the names that they are imported by


def at_least(kind: Callable[[str], Any], least: float, above: bool = False) -> Callable[[str], Any]:
    def number(text: str) -> Any:
        value = kind(text)
        if not least <= value < math.inf or (above and value == least):
            raise ValueError
        return value

    number.__name__ = f"positive {kind.__name__}" if above else f"{kind.__name__} from {least}"
    return number


def positive(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    return at_least(kind, 0, above=True)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a model and measure it on data that it has not seen.")
    parser.add_argument("task", nargs="?", choices=TASKS, default="digits", help="what to train (digits)")
    parser.add_argument("--epochs", type=positive(int), help="in all, those before --resume included")
    parser.add_argument("--batch", type=positive(int), help="samples in a step")
    parser.add_argument("--lr", type=positive(float), help="the first, or the largest, learning rate")
    parser.add_argument("--seed", type=int, help="of all random numbers (0)")
    parser.add_argument("--device", help="numpy, vulkan or vulkan:1 (what TINYADEPT_DEVICE says, else numpy)")
    parser.add_argument(
        "--resume", nargs="?", const="", metavar="PATH", help="a checkpoint or its folder (that of --out)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="for checkpoint and learning curve (runs/<task>)"
    )
    add_pictures(parser.add_argument_group("yolo11 and unet"))
    add_detection(parser.add_argument_group("yolo11"))
    add_segmentation(parser.add_argument_group("unet"))
    add_language(parser.add_argument_group("gpt2"))
    options = parser.parse_args()
    task = TASKS[options.task]
    known = {*task.defaults, *task.free, "task", "device", "resume", "out"}
    for name, value in vars(options).items():
        if value is not None and name not in known:
            parser.error(f"{options.task} has no --{name}")
    return options


def add_pictures(group: Any) -> None:
    group.add_argument(
        "--data", help="a data set: in YOLO's format, or with folders images and masks (shapes)"
    )
    group.add_argument("--size", type=positive(int), help=f"pixels of a side ({usual('size')})")
    group.add_argument(
        "--augment",
        type=at_least(float, 0),
        metavar="X",
        help="strength of augmentation, 0 for none (1; unet on shapes: 0)",
    )
    group.add_argument(
        "--workers", type=at_least(int, 0), help=f"processes that read pictures ({usual('workers')})"
    )
    group.add_argument(
        "--problems", choices=("refuse", "skip"), help="what to do about broken or missing files (refuse)"
    )
    group.add_argument(
        "--every", type=positive(int), help=f"epochs between two measurements ({usual('every')})"
    )


def usual(name: str) -> str:
    """What the tasks with pictures have where nothing is given."""
    kinds = Detection, Segmentation
    values = [str((kind.defaults | kind.free)[name]) for kind in kinds]
    if len(set(values)) == 1:
        return values[0]
    return ", ".join(f"{kind.name}: {value}" for kind, value in zip(kinds, values))


def add_detection(group: Any) -> None:
    own = Detection.defaults
    group.add_argument("--model", choices="nsmlx", help=f"the size of YOLO11 ({own['model']})")
    group.add_argument(
        "--empty", choices=("keep", "refuse", "skip"), help="what to do about pictures without objects (keep)"
    )


def add_segmentation(group: Any) -> None:
    own = Segmentation.defaults
    group.add_argument(
        "--width", type=positive(int), help=f"channels of the finest maps of UNet ({own['width']})"
    )
    group.add_argument(
        "--depth", type=positive(int), help=f"steps down; 2 to this power divides --size ({own['depth']})"
    )
    group.add_argument(
        "--upwards",
        choices=("transposed", "nearest", "bilinear"),
        help=f"a transposed convolution, or interpolation before a convolution ({own['upwards']})",
    )


def add_language(group: Any) -> None:
    own = Language.defaults | Language.free
    whole, from_none = positive(int), at_least(int, 0)
    group.add_argument("--text", metavar="FILE", help="what to learn (Python's help on its language)")
    group.add_argument(
        "--vocabulary",
        type=from_none,
        help="tokens made from pairs of bytes, 256 at least; 0: characters (0)",
    )
    for name, kind, what in (
        ("layers", whole, "blocks"),
        ("heads", whole, "heads of attention"),
        ("embedding", whole, "width, a multiple of --heads"),
        ("context", whole, "tokens that are seen"),
        ("dropout", at_least(float, 0), "share of features that is dropped"),
        ("accumulate", whole, "batches whose gradients a step adds up"),
        ("steps", whole, "steps in an epoch"),
        ("sample", from_none, "tokens that are written after each epoch"),
    ):
        group.add_argument(f"--{name}", type=kind, help=f"{what} ({own[name]})")


def begin(options: argparse.Namespace) -> Training:
    kind = TASKS[options.task]
    needed = ("safetensors", "matplotlib", "threadpoolctl", "tqdm", *kind.packages)
    missing = [PACKAGES[name] for name in needed if find_spec(name) is None]
    if missing:
        raise TrainingError(f"training needs {', '.join(missing)}: pip install {' '.join(missing)}")
    if options.device:
        os.environ["TINYADEPT_DEVICE"] = options.device  # everything is made where the default device says
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TrainingError(f"--out {options.out}: {error.strerror}") from None
    settings = {name: getattr(options, name) for name in kind.defaults}
    free = {name: getattr(options, name) for name in kind.free}
    if options.resume is None:
        return Training(kind, settings, free)
    path = Path(options.resume or options.out)
    return resume(path / CHECKPOINT if path.is_dir() else path, kind, settings, free)


def main() -> int:
    options = arguments()
    options.out = options.out or Path("runs") / options.task
    training = None
    try:
        training = begin(options)
        own = training.task.settings | training.task.options
        training.run(own["epochs"], options.out)
    except (TrainingError, WorkerDied, OSError, ta.DeviceError, ta.OutOfMemory, ta.Unsupported) as error:
        print(f"train.py: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            f"\ntrain.py: interrupted; --resume {options.out} continues after the last full epoch",
            file=sys.stderr,
        )
        return 130
    finally:
        if training is not None:
            training.task.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
