"""Find objects in pictures, and draw boxes around them.

    python scripts/detect.py --weights runs/yolo11/weights.safetensors --source IMAGE_OR_FOLDER [--out FOLDER]

Each box is printed as class, score and corners in pixels; the pictures with the boxes are written to --out.
The weights are those that `train.py yolo11` leaves, or a state dict of YOLO11 with the same names.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tinyadept as ta
from tinyadept import io
from tinyadept.data.augmentation import squared
from tinyadept.data.pictures import SUFFIXES, load
from tinyadept.training.detections import found
from tinyadept.training.drawing import boxed

CLASSES = "model.23.cv3.0.2.bias"  # as many numbers as classes


def part_of_one(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"expected a number from 0 to 1, got {text}")
    return value


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Find objects in pictures, and draw boxes around them.")
    parser.add_argument("--weights", type=Path, required=True, help="a safetensors file")
    parser.add_argument("--source", type=Path, required=True, help="a picture, or a folder of them")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/detect"), help="folder for pictures (runs/detect)"
    )
    parser.add_argument("--conf", type=part_of_one, default=0.25, help="least score of a box (0.25)")
    parser.add_argument(
        "--iou", type=part_of_one, default=0.7, help="most overlap of two boxes of a class (0.7)"
    )
    parser.add_argument("--size", type=int, help="pixels of a side (what the weights were trained for)")
    parser.add_argument(
        "--model", choices="nsmlx", help="the size of YOLO11, if the weights do not say it (n)"
    )
    parser.add_argument("--device", help="numpy, vulkan or vulkan:1 (what TINYADEPT_DEVICE says, else numpy)")
    return parser.parse_args()


def detector(options: argparse.Namespace) -> tuple[Any, list[str], int]:
    """The model, the names of its classes, and the side of its pictures."""
    from tinyadept.models.yolo11 import YOLO11

    tensors = io.load(options.weights)
    about = json.loads(io.load_metadata(options.weights).get("yolo11", "{}"))
    if CLASSES not in tensors:
        raise ValueError(f"{options.weights} holds no YOLO11: it has no {CLASSES}")
    names = about.get("names") or [str(number) for number in range(tensors[CLASSES].shape[0])]
    model = YOLO11(options.model or about.get("size", "n"), len(names))
    model.load_state_dict(tensors)
    size = options.size or about.get("pixels", 640)
    if size % 32 or size <= 0:
        raise ValueError(f"--size must be a positive multiple of 32, got {size}")
    return model.eval().fuse(), names, size


def pictures(source: Path) -> list[Path]:
    if not source.exists():
        raise ValueError(f"there is no {source}")
    if source.is_file():
        return [source]
    found = sorted(path for path in source.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not found:
        raise ValueError(f"{source} has no pictures: expected {', '.join(sorted(SUFFIXES))}")
    return found


@ta.no_grad()
def detect(options: argparse.Namespace) -> int:
    """The number of pictures that could not be read."""
    model, names, size = detector(options)
    paths, broken = pictures(options.source), 0
    root = options.source if options.source.is_dir() else options.source.parent
    for path in paths:
        try:
            image = load(path)
        except OSError as error:
            print(f"detect.py: {path.name} cannot be read: {error}", file=sys.stderr)
            broken += 1
            continue
        square, box = squared(image, size)
        boxes = found(model(ta.tensor(square[None])).numpy()[0], options.conf, options.iou)
        boxes = boxes._replace(corners=box.back(boxes.corners))
        print(f"{path}: {len(boxes.labels)} objects")
        for label, score, corners in zip(*boxes):
            print(f"  {names[label]} {score:.3f} " + " ".join(f"{edge:.1f}" for edge in corners))
        target = (options.out / path.relative_to(root)).with_suffix(f"{path.suffix}.png")
        target.parent.mkdir(parents=True, exist_ok=True)
        boxed(image, boxes, names).save(target)
    return broken


def main() -> int:
    options = arguments()
    if options.device:
        os.environ["TINYADEPT_DEVICE"] = options.device
    missing = [
        name for module, name in (("PIL", "pillow"), ("safetensors", "safetensors")) if not find_spec(module)
    ]
    if missing:
        print(f"detect.py needs {', '.join(missing)}: pip install {' '.join(missing)}", file=sys.stderr)
        return 1
    try:
        return 1 if detect(options) else 0
    except (OSError, ValueError, KeyError, ta.DeviceError, ta.OutOfMemory, ta.Unsupported) as error:
        print(f"detect.py: {str(error).splitlines()[0]}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
