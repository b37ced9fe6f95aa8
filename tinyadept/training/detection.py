"""Objects in pictures, found by YOLO11 that begins with random weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import tinyadept as ta
from tinyadept import io
from tinyadept.data.augmentation import Augmentation
from tinyadept.data.detection import DetectionDataset, Source
from tinyadept.data.pictures import DataError
from tinyadept.data.shapes import Shapes
from tinyadept.data.yolo import described, read

from . import curves
from .average_precision import Boxes, Precision, average_precision
from .averaging import MovingAverage
from .detections import found
from .drawing import beside, boxed
from .pictures import PictureTask, augmentation_of, explained
from .task import TrainingError, part

WEIGHTS = "weights.safetensors"
GENERATED = {"train": 256, "val": 64, "test": 64}  # pictures, where no data set is given
LEAST, IOU = 0.001, 0.7  # of boxes that are measured
PLAIN = 1 / 3  # of the epochs, the last ones, see no mosaics


class Detection(PictureTask):
    """YOLO11 on a data set in YOLO's format, or on shapes."""

    name, metric = "yolo11", "mAP50"
    defaults: ClassVar = {
        "batch": 8,
        "lr": 0.002,
        "seed": 0,
        "epochs": 30,
        "data": "shapes",
        "size": 320,
        "model": "n",
        "augment": 1.0,
    }
    free: ClassVar = {"workers": 2, "problems": "refuse", "empty": "keep", "every": 5}
    packages, losses = ("PIL", "yaml"), ("box", "class", "shape")

    def __init__(self, settings: dict[str, Any], options: dict[str, Any]):
        super().__init__(settings, options)
        if settings["size"] % 32:
            raise TrainingError(f"--size must be a multiple of 32, got {settings['size']}")
        train = self.dataset("train")
        self.names = train.source.names
        self.val = self.dataset("val")
        self.load(train)
        self.prepare()

    def prepare(self) -> None:
        """Make the model, its average, and what changes them."""
        from tinyadept.models.yolo11 import YOLO11

        self.optimise(YOLO11(self.settings["model"], len(self.names)))
        self.average = MovingAverage(self.model, YOLO11(self.settings["model"], len(self.names)))
        self.average.average.eval()
        self.step, self.look = ta.capture(self.follow), ta.capture(self.average.average)

    def dataset(self, split: str) -> DetectionDataset:
        """The pictures of a split; those to train on are augmented."""
        source: Source
        if self.settings["data"] == "shapes":
            size, seed = self.settings["size"] // 2, list(GENERATED).index(split)
            source = Shapes(GENERATED[split], size, self.settings["seed"] * len(GENERATED) + seed)
        else:
            try:
                source = read(self.settings["data"], split, self.options["problems"], self.options["empty"])
            except DataError as error:
                raise explained(error) from None
        print(f"{split}: {source.report()}", flush=True)
        augmentation = augmentation_of(Augmentation(), self.settings["augment"]) if split == "train" else None
        return DetectionDataset(source, self.settings["size"], augmentation)

    # --- learning ---

    def follow(self, images: ta.Tensor, labels: ta.Tensor, boxes: ta.Tensor) -> ta.Tensor:
        """One step down the gradient; the parts of the loss before it."""
        from tinyadept.models.detection import detection_loss

        loss, parts = detection_loss(self.model(images), labels, boxes)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.average.step()
        return parts

    def arrange(self, epoch: int) -> None:
        """Set the loader to the beginning of an epoch, and end mosaics when it is time."""
        how, epochs = self.train.augmentation, self.settings["epochs"]
        if how is not None and how.mosaic and epoch >= epochs - round(epochs * PLAIN):
            self.train.augmentation = augmentation_of(Augmentation(), self.settings["augment"], mosaic=0.0)
            self.loader.close()  # workers have the data set as it was
        super().arrange(epoch)

    # --- measuring ---

    def measure(self, epoch: int) -> dict[str, float]:
        if not self.due(epoch):
            return {}
        precision = self.precision(self.val)
        return {"mAP50": precision.at_50, "mAP50-95": precision.at_50_95}

    def precision(self, data: DetectionDataset) -> Precision:
        """How well the averaged model finds the objects of a data set, in the pictures' own pixels."""
        boxes = self.found(data, range(len(data)), LEAST)
        return average_precision(boxes, [data.truth(index)[1:] for index in range(len(data))])

    @ta.no_grad()
    def found(self, data: DetectionDataset, indices: Any, least: float) -> list[Boxes]:
        size, boxes = self.settings["batch"], []
        for start in range(0, len(indices), size):
            chosen = list(indices[start : start + size])
            images = np.stack([data[index][0] for index in chosen])
            spare = np.zeros((size - len(chosen), *images.shape[1:]), np.float32)  # a recording fits one size
            outputs = self.look(np.concatenate([images, spare])).numpy()
            for index, output in zip(chosen, outputs):
                seen = found(output, least, IOU)
                boxes.append(seen._replace(corners=data.truth(index)[0].back(seen.corners)))
        return boxes

    # --- what remains ---

    def tensors(self) -> dict[str, ta.Tensor]:
        average = {f"average.{name}": x for name, x in self.average.state_dict().items()}
        return super().tensors() | average

    def restore(self, tensors: dict[str, ta.Tensor], epochs: int) -> None:
        super().restore(tensors, epochs)
        self.average.load_state_dict(part(tensors, "average"), self.scheduled(epochs))

    def finish(self, out: Path, history: list[dict[str, float]]) -> None:
        about = {"size": self.settings["model"], "names": self.names, "pixels": self.settings["size"]}
        io.save(out / WEIGHTS, self.average.state_dict(), {"yolo11": json.dumps(about)})
        curves.draw(history, [list(self.losses), ["mAP50", "mAP50-95"]], out / "learning-curve.png")
        shown = range(min(4, len(self.val)))
        seen = self.found(self.val, shown, 0.25)
        beside([self.pair(index, boxes) for index, boxes in zip(shown, seen)]).save(out / "predictions.png")
        split = "test" if self.has_test() else "val"
        precision = self.precision(self.dataset("test") if split == "test" else self.val)
        for label, (at_50, at_50_95) in precision.classes.items():
            print(f"{split} {self.names[label]}: mAP50 {at_50:.3f}, mAP50-95 {at_50_95:.3f}")
        print(f"{split} mAP50: {precision.at_50:.3f}, mAP50-95: {precision.at_50_95:.3f}")

    def has_test(self) -> bool:
        if self.settings["data"] == "shapes":
            return True
        try:
            described(Path(self.settings["data"]), "test")
        except DataError:
            return False
        return True

    def pair(self, index: int, boxes: Boxes) -> list[Any]:
        """A picture with its objects, and with what was found."""
        image = self.val.source.image(index)
        _, labels, corners = self.val.truth(index)
        true = Boxes(labels, np.ones(len(labels)), corners)
        return [boxed(image, true, self.names, scores=False), boxed(image, boxes, self.names)]
