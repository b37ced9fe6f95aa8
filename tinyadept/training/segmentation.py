"""The class of every pixel, told by a UNet that begins with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import io
from tinyadept.data.augmentation import Augmentation
from tinyadept.data.masks import read
from tinyadept.data.pictures import VOID, DataError
from tinyadept.data.segmentation import SegmentationDataset
from tinyadept.data.shapes import Shapes

from . import curves
from .drawing import beside, painted
from .overlap import Overlap
from .pictures import PictureTask, augmentation_of, explained
from .task import TrainingError

WEIGHTS = "weights.safetensors"
GENERATED = {"train": 256, "val": 64, "test": 64}  # pictures, where no data set is given
OWN = Augmentation(mosaic=0.0, scale=0.25, flip=0.5, upend=0.5, saturation=0.3, value=0.2)
SHOWN = 4  # pictures that are painted


class Segmentation(PictureTask):
    """UNet on pictures with masks, or on shapes."""

    name, metric = "unet", "mean IoU"
    losses, packages = ("entropy", "dice"), ("PIL",)
    defaults: ClassVar = {
        "batch": 8,
        "lr": 0.003,
        "seed": 0,
        "epochs": 12,
        "data": "shapes",
        "size": 64,
        "width": 16,
        "depth": 3,
        "upwards": "transposed",
        "augment": None,  # 1, but 0 for shapes, of which enough are generated
    }
    free: ClassVar = {"workers": 2, "problems": "refuse", "every": 1}

    def __init__(self, settings: dict[str, Any], options: dict[str, Any]):
        super().__init__(settings, options)
        from tinyadept.models.unet import UNet

        step, size = 1 << settings["depth"], settings["size"]
        if size % step or size < 2 * step:
            raise TrainingError(
                f"--size must be a multiple of {step}, 2 for each step of --depth, and at least {2 * step}, "
                f"got {size}"
            )
        self.names, sources = self.sources()
        for split, source in sources.items():
            print(f"{split}: {source.report()}", flush=True)
        strength = settings["augment"]
        if strength is None:
            strength = float(settings["data"] != "shapes")
        augmentation = augmentation_of(OWN, strength)
        self.unseen = {
            split: SegmentationDataset(source, size) for split, source in sources.items() if split != "train"
        }
        self.load(SegmentationDataset(sources["train"], size, augmentation))
        self.optimise(UNet(len(self.names), 3, settings["width"], settings["depth"], settings["upwards"]))
        self.step, self.look = ta.capture(self.follow), ta.capture(self.guess)

    def sources(self) -> tuple[list[str], dict[str, Any]]:
        """The names of the classes, and pictures with masks by split."""
        if self.settings["data"] == "shapes":
            seed, size = self.settings["seed"] * len(GENERATED), self.settings["size"]
            made = {
                split: Shapes(count, size, seed + number)
                for number, (split, count) in enumerate(GENERATED.items())
            }
            return ["paper", *Shapes.names], made
        try:
            found = read(self.settings["data"], self.options["problems"])
        except DataError as error:
            raise explained(error) from None
        return found["train"].names, found

    # --- learning and measuring ---

    def follow(self, images: ta.Tensor, masks: ta.Tensor) -> ta.Tensor:
        """One step down the gradient; the parts of the loss before it."""
        scores = self.model(images)
        entropy = F.cross_entropy(scores, masks, ignore_index=VOID)
        dice = F.dice_loss(scores, masks, ignore_index=VOID)
        self.optimizer.zero_grad()
        (entropy + dice).backward()
        self.optimizer.step()
        return F.stack([entropy, dice]).detach()

    @ta.no_grad()
    def guess(self, images: ta.Tensor) -> ta.Tensor:
        return self.model(images).argmax(1)

    def measure(self, epoch: int) -> dict[str, float]:
        return {self.metric: self.overlap("val").mean()} if self.due(epoch) else {}

    def overlap(self, split: str) -> Overlap:
        """How well the masks of a split are found, in squares of the size that the network sees."""
        data, overlap = self.unseen[split], Overlap(len(self.names))
        for index, found in enumerate(self.found(data, len(data))):
            overlap.add(found, data[index][1])
        return overlap

    def found(self, data: SegmentationDataset, count: int) -> list[np.ndarray]:
        """The classes (S, S) in the first pictures of a data set."""
        self.model.eval()
        size, masks = self.settings["batch"], []
        for start in range(0, count, size):
            images = np.stack([data[index][0] for index in range(start, min(start + size, count))])
            spare = np.zeros((size - len(images), *images.shape[1:]), np.float32)  # a recording fits one size
            masks += list(self.look(np.concatenate([images, spare])).numpy()[: len(images)])
        return masks

    # --- what remains ---

    def finish(self, out: Path, history: list[dict[str, float]]) -> None:
        about = {key: self.settings[key] for key in ("width", "depth", "upwards", "size")}
        io.save(out / WEIGHTS, self.model.state_dict(), {"unet": json.dumps(about | {"names": self.names})})
        curves.draw(history, [list(self.losses), [self.metric]], out / "learning-curve.png")
        val = self.unseen["val"]
        found = self.found(val, min(SHOWN, len(val)))
        rows = [[*map(painted, (*val[index], mask))] for index, mask in enumerate(found)]
        beside(rows).save(out / "predictions.png")
        split = "test" if "test" in self.unseen else "val"
        overlap = self.overlap(split)
        for name, iou in zip(self.names, overlap.ious(), strict=True):
            print(f"{split} {name}: IoU {iou:.3f}")
        print(f"{split} mean IoU: {overlap.mean():.3f}")
