"""Read the text in a picture with the three models of PP-OCRv4.

    pip install --no-deps rapidocr-onnxruntime==1.4.4      # the models; nothing of the package is run
    python scripts/ocr.py                                  # scikit-image's page
    python scripts/ocr.py photo.png --device vulkan --out runs/ocr.png

Each line of text is printed as score, the box around it in pixels, and text, from top to bottom. One model
marks pixels of text (Liao et al., Real-time scene text detection with differentiable binarization, 2020), one
says which lines stand on their heads, and one reads a line column by column (Shi et al., CRNN, 2017). Lines
that slant are straightened before they are read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from skimage import data, draw, io, measure, transform, util

import tinyadept.onnx

PACKAGE = "rapidocr_onnxruntime"
FILES = {
    "detector": "ch_PP-OCRv4_det_infer.onnx",
    "turner": "ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "reader": "ch_PP-OCRv4_rec_infer.onnx",
}
SHORTEST_SIDE, STEP = 736, 32  # of the picture that is searched, and what its sides are multiples of
MARKED, CERTAIN = 0.3, 0.5  # a pixel's and a region's least probability of being text
GROWTH = 1.6  # regions are shrunken text: area times this over the perimeter is what they lack on each side
HEIGHT, TURNER_WIDTH = 48, 192  # of the lines that are read, and that are turned
SURE_TO_TURN = 0.9
AT_ONCE = 6  # lines


class Line(NamedTuple):
    """A line of text: its corners (4, 2) as x, y, what it says, and the mean score of its characters."""

    corners: np.ndarray
    text: str
    score: float


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Read the text in a picture.")
    parser.add_argument("picture", nargs="?", type=Path, help="a file (scikit-image's page)")
    parser.add_argument("--models", type=Path, help=f"folder of the models (that of {PACKAGE})")
    parser.add_argument("--device", help="numpy, vulkan or vulkan:1 (what TINYADEPT_DEVICE says, else numpy)")
    parser.add_argument("--out", type=Path, help="where the picture is written with the boxes drawn")
    return parser.parse_args()


def models_folder() -> Path:
    """Where the package keeps its models; it is not imported.

    Raises
    ------
    SystemExit
        If it is not installed.
    """
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        sys.exit("ocr.py needs models: pip install --no-deps rapidocr-onnxruntime==1.4.4, or --models FOLDER")
    return Path(spec.submodule_search_locations[0]) / "models"


class Reader:
    """The three models, and what is done between them.

    Parameters
    ----------
    folder : Path
        Of the files in `FILES`.
    device : str, optional
    """

    def __init__(self, folder: Path, device: str | None = None):
        loaded = {name: onnx.load(folder / file) for name, file in FILES.items()}
        self.models = {name: tinyadept.onnx.load(model, device) for name, model in loaded.items()}
        listed = {entry.key: entry.value for entry in loaded["reader"].metadata_props}["character"]
        self.characters = ["", *listed.splitlines(), " "]  # the first stands for: nothing new

    def __call__(self, picture: np.ndarray) -> list[Line]:
        """Lines of a picture (H, W, 3) of uint8, from top to bottom."""
        found = rectangles(self.text_map(picture), picture.shape)
        lines = self.upright([straightened(picture, corners) for corners in found])
        read = [Line(corners, *said) for corners, said in zip(found, self.said(lines), strict=True)]
        return [line for line in read if line.text]

    def compute(self, name: str, x: np.ndarray) -> np.ndarray:
        model = self.models[name]
        (result,) = model.run({model.inputs[0].name: x}).values()
        return result

    def text_map(self, picture: np.ndarray) -> np.ndarray:
        """How probably each pixel of a resized picture belongs to text, (H', W')."""
        larger = max(SHORTEST_SIDE / min(picture.shape[:2]), 1.0)
        size = [max(round(n * larger / STEP), 1) * STEP for n in picture.shape[:2]]
        return self.compute("detector", as_input([resized(picture, *size)]))[0, 0]

    def upright(self, lines: list[np.ndarray]) -> list[np.ndarray]:
        """The lines, those turned around that stand on their heads."""
        turned = []
        for line in lines:
            x = as_input([fitted(line, TURNER_WIDTH)])
            heads_down = self.compute("turner", x)[0, 1] > SURE_TO_TURN
            turned.append(line[::-1, ::-1] if heads_down else line)
        return turned

    def said(self, lines: list[np.ndarray]) -> list[tuple[str, float]]:
        """Text and score of each line; lines of about one width are read together."""
        said: dict[int, tuple[str, float]] = {}
        order = sorted(range(len(lines)), key=lambda i: lines[i].shape[1] / lines[i].shape[0])
        for start in range(0, len(order), AT_ONCE):
            chosen = order[start : start + AT_ONCE]
            width = max(round(HEIGHT * lines[i].shape[1] / lines[i].shape[0]) for i in chosen)
            width = max(-(-width // STEP) * STEP, STEP)
            scores = self.compute("reader", as_input([fitted(lines[i], width) for i in chosen]))
            said |= {i: self.decoded(s) for i, s in zip(chosen, scores, strict=True)}
        return [said[i] for i in range(len(lines))]

    def decoded(self, scores: np.ndarray) -> tuple[str, float]:
        """The best character of each column (T, characters); repeated ones count once (Graves, 2006)."""
        best = scores.argmax(1)
        fresh = (best != 0) & (np.diff(best, prepend=0) != 0)
        text = "".join(self.characters[i] for i in best[fresh]).strip()
        return text, float(scores.max(1)[fresh].mean()) if fresh.any() else 0.0


def as_input(pictures: Sequence[np.ndarray]) -> np.ndarray:
    """Pictures (H, W, 3) as float32 (N, 3, H, W) from -1 to 1, blue first, as the models were trained."""
    batch = np.stack(pictures)[..., ::-1].transpose(0, 3, 1, 2)
    return np.ascontiguousarray(batch, np.float32)


def resized(picture: np.ndarray, height: int, width: int) -> np.ndarray:
    """A picture of another size, from -1 to 1."""
    shrinks = picture.shape[0] > height
    return np.asarray(transform.resize(picture, (height, width), order=1, anti_aliasing=shrinks)) * 2 - 1


def fitted(line: np.ndarray, width: int) -> np.ndarray:
    """A line at the models' height, with grey behind it up to a width."""
    own = min(max(round(HEIGHT * line.shape[1] / line.shape[0]), 1), width)
    out = np.zeros((HEIGHT, width, 3))
    out[:, :own] = resized(line, HEIGHT, own)
    return out


def rectangles(probability: np.ndarray, shape: Sequence[int]) -> list[np.ndarray]:
    """Corners (4, 2) of likely text in a picture of this shape, from top to bottom."""
    scale = np.array([shape[1] / probability.shape[1], shape[0] / probability.shape[0]])
    found = []
    for region in measure.regionprops(measure.label(probability > MARKED), probability):
        top, left, bottom, right = region.bbox
        if region.intensity_mean >= CERTAIN and min(bottom - top, right - left) >= 3:
            found.append(rectangle((region.coords[:, ::-1] + 0.5) * scale))
    return sorted(found, key=lambda corners: (corners[:, 1].mean(), corners[:, 0].min()))


def rectangle(points: np.ndarray) -> np.ndarray:
    """Corners of the rectangle along a region's slant around its points (N, 2), grown by what it lacks."""
    wide = np.ptp(points[:, 0]) > np.ptp(points[:, 1])
    slope = np.polyfit(points[:, 0], points[:, 1], 1)[0] if wide else 0.0
    along = np.array([1, slope]) / np.hypot(1, slope)
    axes = np.stack([along, [-along[1], along[0]]])
    turned = points @ axes.T
    low, high = turned.min(0) - 0.5, turned.max(0) + 0.5
    width, height = high - low
    more = GROWTH * width * height / (2 * (width + height))
    (x1, y1), (x2, y2) = low - more, high + more
    return np.array([[x1, y1], [x2, y1], [x2, y2], [x1, y2]]) @ axes


def straightened(picture: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The pixels of a rectangle, (height, width, 3) from 0 to 1."""
    width, height = (max(round(np.hypot(*(corners[i] - corners[0]))), 1) for i in (1, 3))
    turn = np.eye(3)
    turn[:2, 0], turn[:2, 1] = (corners[1] - corners[0]) / width, (corners[3] - corners[0]) / height
    turn[:2, 2] = corners[0]
    return transform.warp(picture, turn, output_shape=(height, width), mode="edge")


def coloured(picture: np.ndarray) -> np.ndarray:
    """A picture of any kind as (H, W, 3) of uint8."""
    picture = util.img_as_ubyte(picture)
    return np.repeat(picture[..., None], 3, 2) if picture.ndim == 2 else picture[..., :3]


def drawn(picture: np.ndarray, lines: Sequence[Line]) -> np.ndarray:
    """A copy of the picture with the rectangles of the lines in red."""
    out = picture.copy()
    for corners, *_ in lines:
        rows, columns = draw.polygon_perimeter(corners[:, 1], corners[:, 0], picture.shape[:2], clip=True)
        out[rows, columns] = (255, 0, 0)
    return out


def main() -> None:
    options = arguments()
    picture = coloured(data.page() if options.picture is None else io.imread(options.picture))
    lines = Reader(options.models or models_folder(), options.device)(picture)
    for line in lines:
        box = (*line.corners.min(0), *line.corners.max(0))
        print(f"{line.score:.2f}  {' '.join(f'{n:4.0f}' for n in box)}  {line.text}")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        io.imsave(options.out, drawn(picture, lines))
    if not lines:
        sys.exit("no text was found")


if __name__ == "__main__":
    main()
