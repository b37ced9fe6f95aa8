"""How fast the ops of vision are beside PyTorch's, in the same run, and YOLO11n as a whole.

    python scripts/bench_vision.py [--device vulkan] [--only WORD] [--path PATH] [--scale N] [--layers]
                                    [--memory]

Each library runs in a process of its own, one after the other. Ops are timed forward and both ways: on a
Vulkan device that is kernels alone, without what it takes to note them. Convolutions name the way that each
goes; `--path` forces one (see tinyadept/ops/convolution.py) where it can compute the row. `--scale` divides
the batch for slow machines, and `--layers` adds every convolution of YOLO11n for pictures of 640 × 640.
`--memory` tells, of YOLO11n on the processor, the most memory that a process ever had beyond its imports.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from benchmarks.vulkan import Place

BUDGET = 0.05  # seconds that a measurement takes, about
MOST = 20  # calls in one
ROUNDS = 9  # calls of a network, after as many or more
WARMING = 1.0  # seconds of calls of a network before those that count, on a GPU
ROUSING, NUDGE = 0.5, 0.02  # seconds of load that raise a GPU's clock, and that keep it up between calls
YOLO11 = Path(__file__).parent.parent / "models" / "yolo11.py"


class Call(NamedTuple):
    """One call of an op: shapes of its operands, and what is called with them."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    call: Callable[..., Any]  # F and the operands
    times: int = 1  # that the network has it


class Network(NamedTuple):
    """YOLO11n as a whole: of so many pictures with sides of so many pixels."""

    name: str
    batch: int
    side: int
    fused: bool
    train: bool = False


Row = Call | Network


def conv(name: str, x: tuple, w: tuple, times: int = 1, transposed: bool = False, **geometry: int) -> Call:
    way = "conv_transpose2d" if transposed else "conv2d"
    return Call(name, (x, w), lambda F, x, w: getattr(F, way)(x, w, **geometry), times)


def norm(shape: tuple[int, ...]) -> Call:
    channels = (shape[1],)
    name = f"batch_norm, {'×'.join(map(str, shape))}"
    return Call(name, (shape, *(channels,) * 4), trained_norm)


def trained_norm(F: Any, x: Any, mean: Any, variance: Any, w: Any, b: Any) -> Any:
    """Moves running statistics, whatever they are."""
    return F.batch_norm(x, mean.detach(), variance.detach(), w, b, True)


LARGE = (16, 64, 160, 160)
CALLS = (
    conv("3×3, 64 to 64 of 160×160", LARGE, (64, 64, 3, 3), padding=1),
    conv("3×3, 256 to 256 of 40×40", (16, 256, 40, 40), (256, 256, 3, 3), padding=1),
    conv("depthwise 3×3, 128 of 80×80", (16, 128, 80, 80), (128, 1, 3, 3), padding=1, groups=128),
    conv("transposed 2×2, 128 to 64 of 80×80", (16, 128, 80, 80), (128, 64, 2, 2), transposed=True, stride=2),
    conv("1×1, 128 to 256 of 80×80", (16, 128, 80, 80), (256, 128, 1, 1)),
    conv("3×3 by steps of 2, 64 to 128 of 80×80", (16, 64, 80, 80), (128, 64, 3, 3), stride=2, padding=1),
    Call("max pool 2×2 by steps of 2", (LARGE,), lambda F, x: F.max_pool2d(x, 2)),
    Call("max pool 3×3 by steps of 2", (LARGE,), lambda F, x: F.max_pool2d(x, 3, 2, 1)),
    Call("max pool 5×5 by steps of 1", (LARGE,), lambda F, x: F.max_pool2d(x, 5, 1, 2)),
    Call("average pool 2×2 by steps of 2", (LARGE,), lambda F, x: F.avg_pool2d(x, 2)),
    Call("upsample nearest", (LARGE,), lambda F, x: F.interpolate(x, scale_factor=2)),
    Call("upsample bilinear", (LARGE,), lambda F, x: F.interpolate(x, scale_factor=2, mode="bilinear")),
    norm(LARGE),
    norm((16, 256, 40, 40)),
)
NETWORKS = {
    "numpy": (
        Network("YOLO11n 320, forward as built, batch 1", 1, 320, fused=False),
        Network("YOLO11n 320, forward fused, batch 1", 1, 320, fused=True),
        Network("YOLO11n 320, training step, batch 4", 4, 320, fused=False, train=True),
    ),
    "vulkan": (
        Network("YOLO11n 640, forward fused, batch 1, replayed", 1, 640, fused=True),
        Network("YOLO11n 640, forward fused, batch 16, replayed", 16, 640, fused=True),
        Network("YOLO11n 640, training step, batch 16, replayed", 16, 640, fused=False, train=True),
    ),
}


def yolo_layers(batch: int) -> list[Call]:
    """The different convolutions of YOLO11n, for pictures of 640 × 640; found with smaller ones."""
    import tinyadept as ta
    from tinyadept.models.yolo11 import YOLO11  # pyright: ignore[reportMissingImports]
    from tinyadept.ops import window

    found: dict[tuple, int] = {}
    own = window.conv

    def noted(x: Any, w: Any, *bias: Any, **params: Any) -> Any:
        layer = (x.shape, w.shape, params["stride"][0], params["padding"][0][0], params["groups"])
        found[layer] = found.get(layer, 0) + 1
        return own(x, w, *bias, **params)

    window.conv = noted  # type: ignore[assignment]
    try:
        with ta.no_grad():
            YOLO11("n")(ta.zeros(1, 3, 64, 64))
    finally:
        window.conv = own
    calls = []
    for (x, w, stride, padding, groups), times in found.items():
        kind, side = f"{w[2]}×{w[3]} s{stride} g{groups}", x[2] * 10
        name = f"layer {kind}, {x[1]} to {w[0]} of {side}"
        shape = (batch, x[1], side, x[3] * 10)
        calls.append(conv(name, shape, w, times, stride=stride, padding=padding, groups=groups))
    return calls


# --- one library, in its own process ---


def timed(place: Place, call: Callable[[], Any]) -> float:
    """Seconds of a call; of its kernels alone, on a device that notes first what it runs later."""

    def several(count: int) -> float:
        place.stay_awake(NUDGE)
        start = time.perf_counter()
        kept = [call() for _ in range(count)]  # so that no call waits until memory is free again
        if place.noted:
            start = time.perf_counter()
        place.wait()
        elapsed = time.perf_counter() - start
        del kept
        return elapsed

    place.stay_awake(ROUSING)
    several(2)
    count = max(1, min(MOST, int(BUDGET / max(several(1), 1e-6))))
    return max(median(several(2 * count) - several(count) for _ in range(5)) / count, 1e-9)


def waited(place: Place, call: Callable[[], Any]) -> float:
    """Seconds of a call that is waited for: the median of the later half, on a device that is awake."""
    place.stay_awake(ROUSING)
    seconds, end = [], time.perf_counter() + WARMING
    while len(seconds) < 2 * ROUNDS or (place.on_gpu and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return median(seconds[len(seconds) // 2 :])


def ways(place: Place, row: Call) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """An op forward, and both ways."""
    operands = [place.drawn(*shape).requires_grad_() for shape in row.shapes]
    g = row.call(place.lib.F, *operands).detach() * 0.01

    def both() -> None:
        row.call(place.lib.F, *operands).backward(g)
        for x in operands:
            x.grad = None

    return place.lib.no_grad()(lambda: row.call(place.lib.F, *operands)), both


def network(place: Place, row: Network) -> Callable[[], Any]:
    """YOLO11n's forward, or a training step that brings its maps to zero."""
    lib, train = place.lib, row.train
    model = spelled(lib).YOLO11("n").to(place.device).train(train)
    if row.fused:
        model.fuse()
    pixels = np.resize(
        np.random.default_rng(0).random(1 << 20, np.float32), (row.batch, 3, row.side, row.side)
    )
    images, optimizer = place.put(pixels), lib.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)

    def step() -> Any:
        optimizer.zero_grad()
        loss: Any = sum((level * level).mean() for level in model(images))
        loss.backward()
        optimizer.step()
        return loss

    step = step if train else lib.no_grad()(lambda: model(images))
    step = lib.root.capture(step, place.device) if place.noted else step

    def call() -> None:
        step()
        place.wait()

    return call


def spelled(lib: Any) -> ModuleType:
    """models/yolo11.py for a library: all that it imports is spelled alike in PyTorch."""
    if lib.root.__name__ == "tinyadept":
        return importlib.import_module("tinyadept.models.yolo11")
    functional, root = ModuleType("tinyadept.functional"), ModuleType("tinyadept")
    functional.__dict__.update(vars(lib.root) | vars(lib.F))  # where PyTorch has cat and stack
    root.__dict__.update(vars(lib.root), nn=lib.nn, functional=functional)
    lib.root.Tensor.backend = property(lambda self: self.device)
    lib.nn.Conv2d.activation = None  # where it has none, layers apply their own
    imported = {"tinyadept": root, "tinyadept.functional": functional, "tinyadept.tensor": lib.root}
    module = ModuleType("yolo11")
    with mock.patch.dict(sys.modules, imported):
        exec(compile(YOLO11.read_text(encoding="utf-8"), str(YOLO11), "exec"), module.__dict__)
    return module


def serve(library: str, options: argparse.Namespace) -> None:
    """Time all rows in this process, a line of JSON each: seconds forward and both ways, ways and start."""
    place, reasons = Place(library, options.device), explained(library, options.path)
    if options.memory:
        (row,), before = rows(options), resident()
        call = network(place, row)  # type: ignore[arg-type]
        for _ in range(3):
            call()
        print(json.dumps(resident() - before))
        return
    for row in rows(options):
        start = time.perf_counter()
        with reasons() as chosen:
            steps = ways(place, row) if isinstance(row, Call) else [network(place, row)]
            for step in steps:
                step()
            place.wait()
        started = time.perf_counter() - start
        way = (
            [f"{op}: {choice.path} ({choice.why})" for op, choice in chosen] if isinstance(row, Call) else []
        )
        repeat = timed if isinstance(row, Call) else waited
        print(json.dumps([[repeat(place, step) for step in steps], dict.fromkeys(way), started]), flush=True)


def resident() -> float:
    """MiB that this process had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def explained(library: str, path: str | None) -> Callable[[], Any]:
    """What to enter to be told which ways convolutions go, and to force one."""
    if library != "tinyadept":
        return lambda: contextlib.nullcontext([])
    from tinyadept.ops import convolution

    @contextlib.contextmanager
    def forced() -> Iterator[Any]:
        with convolution.using(path) if path else contextlib.nullcontext(), convolution.explained() as chosen:
            yield chosen

    return forced


# --- the table ---


def rows(options: argparse.Namespace) -> list[Row]:
    layers = yolo_layers(16) if options.layers else []
    every: list[Row] = [*CALLS, *layers, *NETWORKS[options.device.partition(":")[0]]]
    return [scaled(row, options.scale) for row in every if options.only in row.name]


def scaled(row: Row, scale: int) -> Row:
    if isinstance(row, Network):
        return row._replace(batch=max(1, row.batch // scale))
    first, *others = row.shapes
    return row._replace(shapes=((max(1, first[0] // scale), *first[1:]), *others))


def compare_memory(options: argparse.Namespace) -> None:
    """Each network and library in a process of its own."""
    print(f"{'MiB at most':<48}{'':>9}{'PyTorch':>9}{'ratio':>7}")
    for row in rows(options):
        if not isinstance(row, Network):
            continue
        told = []
        for library in ("tinyadept", "torch"):
            command = [sys.executable, __file__, *sys.argv[1:], "--only", row.name, "--worker", library]
            told.append(float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))
        print(f"{row.name:<48}{told[0]:9.0f}{told[1]:9.0f}{told[0] / told[1]:7.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", default="numpy")
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name has this in it")
    parser.add_argument("--path", help="a way of convolution that is forced")
    parser.add_argument("--scale", type=int, default=1, help="divides the batch")
    parser.add_argument("--layers", action="store_true", help="also every convolution of YOLO11n")
    parser.add_argument("--memory", action="store_true", help="of YOLO11n on the processor, instead of times")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker, options)
        return
    if options.memory:
        if options.device != "numpy":
            parser.error("--memory measures the processor: leave --device out")
        compare_memory(options)
        return
    told = []
    for library in ("torch", "tinyadept"):
        command = [sys.executable, __file__, *sys.argv[1:], "--worker", library]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        told.append([json.loads(line) for line in lines])
    columns = f"{'forward':>9}{'PyTorch':>9}{'speed':>7}{'both':>9}{'PyTorch':>9}{'speed':>7}"
    print(f"{'milliseconds; shares of PyTorch' + chr(39) + 's speed':<48}{columns}")
    totals = np.zeros((2, 2))
    for row, (theirs, _, _), (ours, reasons, started) in zip(rows(options), *told, strict=True):
        pairs = [(1e3 * a, 1e3 * b, b / a) for a, b in zip(ours, theirs, strict=True)]
        print(f"{row.name:<48}" + "".join(f"{a:9.3f}{b:9.3f}{r:7.2f}" for a, b, r in pairs))
        print("".join(f"    {reason}\n" for reason in reasons), end="")
        if isinstance(row, Network):
            print(f"    the first call: {started:.1f} s")
        elif row.name.startswith("layer"):
            totals += row.times * np.array([pair[:2] for pair in pairs])
    if totals.any():
        print(
            f"{'all layers of YOLO11n':<48}"
            + "".join(f"{ours:9.3f}{theirs:9.3f}{theirs / ours:7.2f}" for ours, theirs in totals)
        )


if __name__ == "__main__":
    main()
