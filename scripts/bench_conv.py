"""How fast convolutions are beside PyTorch's, on the same machine in the same run, and which way each goes.

    python scripts/bench_conv.py [--device vulkan] [--only WORD] [--path PATH] [--scale N] [--yolo]

Each library runs in a process of its own, one after the other. `--path` forces a way (see
tinyadept/ops/convolution.py) where it can compute the row, `--scale` divides the batch for slow machines, and
`--yolo` adds every different layer of YOLO11n for pictures of 640 × 640.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import numpy as np


class Layer(NamedTuple):
    """A convolution: shapes of its input and weight, and its geometry, the same along both axes."""

    name: str
    x: tuple[int, ...]
    w: tuple[int, ...]
    stride: int = 1
    padding: int = 0
    groups: int = 1
    transposed: bool = False
    times: int = 1  # that the network has it


LAYERS = (
    Layer("3×3, 64 to 64 of 160×160", (16, 64, 160, 160), (64, 64, 3, 3), padding=1),
    Layer("3×3, 256 to 256 of 40×40", (16, 256, 40, 40), (256, 256, 3, 3), padding=1),
    Layer("depthwise 3×3, 128 of 80×80", (16, 128, 80, 80), (128, 1, 3, 3), padding=1, groups=128),
    Layer(
        "transposed 2×2, 128 to 64 of 80×80", (16, 128, 80, 80), (128, 64, 2, 2), stride=2, transposed=True
    ),
    Layer("1×1, 128 to 256 of 80×80", (16, 128, 80, 80), (256, 128, 1, 1)),
    Layer("3×3 by steps of 2, 64 to 128 of 80×80", (16, 64, 80, 80), (128, 64, 3, 3), stride=2, padding=1),
)
BUDGET = 0.05  # seconds that a measurement takes, about


def yolo_layers(batch: int) -> list[Layer]:
    """The different convolutions of YOLO11n, for pictures of 640 × 640; found with smaller ones."""
    import tinyadept as ta
    from tinyadept.models.yolo11 import YOLO11
    from tinyadept.ops import window

    found: dict[Layer, int] = {}
    own = window.conv

    def noted(x: Any, w: Any, *bias: Any, **params: Any) -> Any:
        stride, groups = params["stride"][0], params["groups"]
        shape = (batch, x.shape[1], x.shape[2] * 10, x.shape[3] * 10)
        kind, sizes = f"{w.shape[2]}×{w.shape[3]} s{stride} g{groups}", f"{x.shape[1]} to {w.shape[0]}"
        name = f"YOLO11n {kind}, {sizes} of {shape[2]}"
        layer = Layer(name, shape, w.shape, stride, params["padding"][0][0], groups)
        found[layer] = found.get(layer, 0) + 1
        return own(x, w, *bias, **params)

    window.conv = noted  # type: ignore[assignment]
    try:
        with ta.no_grad():
            YOLO11("n")(ta.zeros(1, 3, 64, 64))
    finally:
        window.conv = own
    return [layer._replace(times=count) for layer, count in found.items()]


def timed(call: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """Seconds of a call: what twice as many calls take longer, the median of a few measurements."""

    def several(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            call()
        wait()
        return time.perf_counter() - start

    several(2)
    count = max(1, min(40, int(BUDGET / max(several(1), 1e-6))))
    return max(median(several(2 * count) - several(count) for _ in range(5)) / count, 1e-9)


def steps(library: str, device: str, layer: Layer) -> tuple[Callable, Callable, Callable]:
    """Forward, both ways, and what waits for either."""
    rng = np.random.default_rng(0)
    x, w = (np.resize(rng.standard_normal(1 << 20), shape).astype(np.float32) for shape in (layer.x, layer.w))
    lib: Any = importlib.import_module(library)
    functional: Any = importlib.import_module(f"{library}{'.nn' * (library == 'torch')}.functional")
    if library == "torch":
        lib.backends.cudnn.allow_tf32 = lib.backends.cuda.matmul.allow_tf32 = False
        place = "cuda" if device != "numpy" and lib.cuda.is_available() else "cpu"
        wait = lib.cuda.synchronize if place == "cuda" else lambda: None
        x, w = (lib.tensor(a, device=place, requires_grad=True) for a in (x, w))
    else:
        backend = lib.device.resolve(device)
        wait = getattr(getattr(backend, "queue", None), "flush", lambda: None)
        x, w = (lib.tensor(a, device=device, requires_grad=True) for a in (x, w))
    way = functional.conv_transpose2d if layer.transposed else functional.conv2d
    params = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
    g = way(x, w, **params).detach() * 0.01

    def forward() -> None:
        with lib.no_grad():
            way(x, w, **params)

    def both() -> None:
        way(x, w, **params).backward(g)
        x.grad = w.grad = None

    return forward, both, wait


def serve(library: str, options: argparse.Namespace) -> None:
    """Time all rows in this process, a line of JSON each."""
    from tinyadept.ops import convolution

    forced = convolution.using(options.path) if options.path else contextlib.nullcontext()
    with forced:
        for layer in layers(options):
            forward, both, wait = steps(library, options.device, layer)
            reasons: list[str] = []
            if library == "tinyadept":
                with convolution.explained() as chosen:
                    both()
                    wait()
                reasons = [f"{op}: {choice.path} ({choice.why})" for op, choice in chosen]
            print(json.dumps([timed(forward, wait), timed(both, wait), reasons]), flush=True)


def layers(options: argparse.Namespace) -> list[Layer]:
    every = list(LAYERS) + (yolo_layers(16) if options.yolo else [])
    every = [layer._replace(x=(max(1, layer.x[0] // options.scale), *layer.x[1:])) for layer in every]
    return [layer for layer in every if options.only in layer.name]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    parser.add_argument("--path", help="a way that is forced")
    parser.add_argument("--scale", type=int, default=1, help="divides the batch")
    parser.add_argument("--yolo", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker, options)
        return
    rows = []
    for library in ("torch", "tinyadept"):
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", library]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        rows.append([json.loads(line) for line in lines])
    totals = np.zeros((2, 2))
    print(
        f"{'milliseconds':<44}{'forward':>9}{'PyTorch':>9}{'ratio':>7}{'both':>9}{'PyTorch':>9}{'ratio':>7}"
    )
    for layer, theirs, ours in zip(layers(options), *rows, strict=True):
        pairs = [(1e3 * a, 1e3 * b, a / b) for a, b in zip(ours[:2], theirs[:2], strict=True)]
        print(f"{layer.name:<44}" + "".join(f"{a:9.3f}{b:9.3f}{r:7.2f}" for a, b, r in pairs))
        print("".join(f"    {reason}\n" for reason in ours[2]), end="")
        if layer.name.startswith("YOLO"):
            totals += layer.times * np.array([pair[:2] for pair in pairs])
    if totals.any():
        ratios = totals[:, 0] / totals[:, 1]
        print(
            "all of YOLO11n"
            + "".join(f"{a:9.2f}{b:9.2f}{r:7.2f}" for (a, b), r in zip(totals, ratios, strict=True))
        )


if __name__ == "__main__":
    main()
