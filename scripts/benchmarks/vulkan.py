"""Rows on a Vulkan device: beside PyTorch on a GPU where it sees one, else on the processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .row import Repeated, Row, drawn, lenet, named

BATCH = 128
CHAIN = 1000  # additions in the chain whose time is given per op
STEPS = 80  # of training that are waited for at once
LAYERS = 100  # of three ops each, whose recording is timed
PEER = ("torch",)


class Place:
    """A library, and the device on which it is timed.

    Attributes
    ----------
    lib : namespace
    device : str
        Where tensors are made.
    wait : callable
        Returns when the device has done everything.
    noted, on_gpu : bool
        Whether ops only note what `wait` runs, and whether that is a GPU.
    load : tensor or None
        What `stay_awake` multiplies.
    """

    def __init__(self, library: str, device: str):
        self.lib = named(library)
        root = self.lib.root
        self.device, self.wait, self.noted, self.on_gpu = "cpu", lambda: None, False, False
        self.load: Any = None
        if library == "tinyadept":
            backend = root.device.resolve(device)
            self.device = backend.name
            if device != "numpy":
                self.wait, self.noted, self.on_gpu = backend.queue.flush, True, not backend.device.is_cpu
        elif device != "numpy" and root.cuda.is_available():
            root.backends.cuda.matmul.allow_tf32 = root.backends.cudnn.allow_tf32 = False
            self.device, self.wait, self.on_gpu = "cuda", root.cuda.synchronize, True

    def drawn(self, *shape: int) -> Any:
        """Standard normal numbers; large tensors repeat some."""
        return self.put(np.resize(drawn(1 << 22), shape))

    def stay_awake(self, seconds: float) -> None:
        """Keep a GPU busy for so long: one that idles lowers its clock, to a sixth on an H200."""
        if not self.on_gpu:
            return
        self.load = self.drawn(4096, 4096) if self.load is None else self.load
        end = time.perf_counter() + seconds
        with self.lib.no_grad():
            while time.perf_counter() < end:
                kept = [self.load @ self.load for _ in range(4)]
                self.wait()
                del kept

    def put(self, array: np.ndarray) -> Any:
        return self.lib.tensor(array).to(self.device)

    def repeated(self, call: Callable[[], Any], count: int) -> Repeated:
        return Repeated(self.lib.no_grad()(call), self.wait, count, self.noted, self.on_gpu)


Make = Callable[[Place], Callable]


def rows(device: str, is_cpu: bool) -> tuple[Row, ...]:
    """The benchmarks on a device of this name; small ones if it is a processor that plays a GPU."""

    def on_device(make: Make) -> Callable[[str], Callable]:
        return lambda library: make(Place(library, device))

    described = (*products(is_cpu), *memory(is_cpu), *host())
    return tuple(
        Row(name, on_device(make), PEER, None if is_cpu else target, *rest)
        for name, make, target, *rest in described
    )


# --- products; targets are shares of PyTorch's speed ---


def products(is_cpu: bool) -> list[tuple]:
    sizes = (256, 512) if is_cpu else (256, 1024, 2048, 4096, 8192)
    turned, (count, small) = (512, (4, 128)) if is_cpu else (4096, (64, 512))
    targets, at_once = {1024: 0.6, 4096: 0.8}, 4e8 if is_cpu else 2e12
    shapes = [(f"{n}", (n, n), "nn", targets.get(n)) for n in sizes]
    shapes += [(f"{turned}, a.mT @ b", (turned, turned), "tn", targets.get(turned))]
    shapes += [(f"{turned}, a @ b.mT", (turned, turned), "nt", targets.get(turned))]
    shapes += [(f"{count} x {small}", (count, small, small), "nn", None)]
    return [
        (f"matmul {name}", product(shape, turn, at_once), target, "TFLOP/s", 1, operations(shape))
        for name, shape, turn, target in shapes
    ]


def operations(shape: tuple[int, ...]) -> int:
    return 2 * int(np.prod(shape)) * shape[-1]


def product(shape: tuple[int, ...], turn: str, at_once: float) -> Make:
    count = max(2, min(200, round(at_once / operations(shape))))

    def make(place: Place) -> Callable:
        a, b = place.drawn(*shape), place.drawn(*shape)
        a = a.mT if turn == "tn" else a
        b = b.mT if turn == "nt" else b
        return place.repeated(lambda: a @ b, count)

    return make


# --- what memory bounds ---


def memory(is_cpu: bool) -> list[tuple]:
    length, count = (1 << 10, 2) if is_cpu else (1 << 16, 10)
    shape, size = (length, 1024), length * 1024 * 4
    mib = f"{size >> 20} MiB"

    def of(call: Callable[[Any, Any, Any], Any]) -> Make:
        def make(place: Place) -> Callable:
            x, y = place.drawn(*shape), place.drawn(*shape)
            return place.repeated(lambda: call(place.lib.F, x, y), count)

        return make

    return [
        (f"{name}, {mib}", of(call), 0.75, "GB/s", 1, tensors * size)
        for name, tensors, call in (
            ("a + b", 3, lambda F, x, y: x + y),
            ("exp", 2, lambda F, x, y: x.exp()),
            ("sum", 1, lambda F, x, y: x.sum()),
            (f"sum of the last axis, {length} x 1024", 1, lambda F, x, y: x.sum(1)),
            (f"sum of the first axis, {length} x 1024", 1, lambda F, x, y: x.sum(0)),
            (f"softmax, {length} x 1024", 2, lambda F, x, y: F.softmax(x, 1)),
            (f"layer_norm, {length} x 1024", 2, lambda F, x, y: F.layer_norm(x, (1024,))),
        )
    ] + ([] if is_cpu else transfers(size))


def transfers(size: int) -> list[tuple]:
    def upload(place: Place) -> Callable:
        array = np.resize(drawn(1 << 20), size // 4)

        def step() -> None:
            place.put(array)
            place.wait()

        return step

    def download(place: Place) -> Callable:
        x = place.drawn(size // 4)
        return lambda: x.cpu().numpy() if place.device in ("cpu", "cuda") else x.numpy()

    mib = f"{size >> 20} MiB"
    return [
        (f"upload, {mib}", upload, None, "GB/s", 1, size),
        (f"download, {mib}", download, None, "GB/s", 1, size),
    ]


# --- what the host bounds ---


def host() -> list[tuple]:
    add = 256
    return [
        (f"LeNet training step, batch {BATCH}, replayed", lambda place: training_step(place, True), 1, "ms"),
        (f"LeNet training step, batch {BATCH}", lambda place: training_step(place, False), None, "ms"),
        ("recording an op with gradient", recording, 25, "µs", 3 * LAYERS, 0, True),
        (f"add of {add} floats in a chain", lambda place: chain(place, add, False), None, "µs", CHAIN),
        ("the same, forward and backward", lambda place: chain(place, add, True), None, "µs", CHAIN),
        (f"one add of {add} floats, and wait", lambda place: alone(place, add), None, "µs"),
    ]


def training_step(place: Place, replayed: bool) -> Callable:
    """Forward, loss, backward and SGD. PyTorch's runs eagerly; one that is replayed copies its batch, too.

    Replayed steps, and PyTorch's beside them, are waited for many at once: no step needs the last loss.
    """
    lib = place.lib
    model = lenet(lib, "MaxPool2d").to(place.device)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def train(images: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    images, labels = drawn(BATCH, 1, 28, 28), np.arange(BATCH) % 10
    if place.noted and replayed:
        captured = lib.root.capture(train, place.device)
        return together(place, lambda: captured(images, labels.astype(np.int32)))
    on_device = place.put(images), place.put(labels.astype(np.int32 if place.noted else np.int64))

    def step() -> None:
        train(*on_device)
        place.wait()

    return together(place, lambda: train(*on_device)) if replayed else step


def together(place: Place, step: Callable[[], Any]) -> Repeated:
    """Steps that are waited for at once; the host's part counts."""
    for _ in range(4):
        step()
    return Repeated(step, place.wait, STEPS, on_gpu=place.on_gpu)


def recording(place: Place) -> Callable:
    """Host time of ops that note themselves and their gradient; what they note runs outside the time."""
    relu = place.lib.F.relu
    w, b = place.drawn(64, 64).requires_grad_(), place.drawn(64).requires_grad_()
    x = place.drawn(64, 64)

    def record() -> float:
        start, y = time.perf_counter(), x
        for _ in range(LAYERS):
            y = relu(y @ w + b)
        elapsed = time.perf_counter() - start
        place.wait()
        return elapsed

    return record


def chain(place: Place, length: int, backward: bool) -> Callable:
    x, g = place.drawn(length), place.drawn(length)
    if backward:
        x.requires_grad_()

    def forth() -> None:
        x.grad = None
        y = x
        for _ in range(CHAIN):
            y = y + x
        if backward:
            y.backward(g)
        place.wait()

    return forth


def alone(place: Place, length: int) -> Callable:
    x = place.drawn(length)

    def add() -> None:
        y = x + x
        place.wait()
        del y

    return add
