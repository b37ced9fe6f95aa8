"""Rows on NumPy: beside PyTorch, HIPS autograd and NumPy itself on the same processor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from .row import Row, drawn, lenet, named

CHAIN = 1000  # additions in the chain whose time is given per op
LONG_CHAIN = 20_000


def lenet_step(library: str, pool: str) -> Callable:
    """One step of training: forward, loss, backward and update by SGD with momentum."""
    lib = named(library)
    model = lenet(lib, pool)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    images, labels = lib.tensor(drawn(64, 1, 28, 28)), lib.tensor(np.arange(64) % 10)

    def step() -> None:
        optimizer.zero_grad()
        lib.F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return step


def conv(library: str, backward: bool) -> Callable:
    lib = named(library)
    x, w = lib.tensor(drawn(8, 32, 56, 56)), lib.tensor(drawn(64, 32, 3, 3))
    if not backward:
        return lib.no_grad()(lambda: lib.F.conv2d(x, w, padding=1))
    x.requires_grad_()
    w.requires_grad_()
    g = lib.tensor(drawn(8, 64, 56, 56))

    def step() -> None:
        x.grad = w.grad = None
        lib.F.conv2d(x, w, padding=1).backward(g)

    return step


def chain(library: str, length: int, only_backward: bool = False) -> Callable:
    """Additions of 256 floats, one upon the other, and their backward."""
    if library == "autograd":
        return autograd_chain(length)
    lib = named(library)
    x, g = lib.tensor(drawn(256)).requires_grad_(), lib.tensor(drawn(256))

    def step() -> float:
        x.grad = None
        start = time.perf_counter()
        y = x
        for _ in range(length):
            y = y + x
        middle = time.perf_counter()
        y.backward(g)
        return time.perf_counter() - (middle if only_backward else start)

    return step


def autograd_chain(length: int) -> Callable:
    from autograd import make_vjp

    x, g = drawn(256), drawn(256)

    def sums(x: Any) -> Any:
        y = x
        for _ in range(length):
            y = y + x
        return y

    return lambda: make_vjp(sums)(x)[0](g)


def matmul(library: str) -> Callable:
    a, b = drawn(1024, 1024), drawn(1024, 1024)
    if library == "tinyadept":
        from tinyadept import from_numpy

        a, b = from_numpy(a), from_numpy(b)
    return lambda: a @ b


ROWS = (
    Row("LeNet training step, batch 64, max pool", lambda lib: lenet_step(lib, "MaxPool2d"), ("torch",), 2),
    Row(
        "LeNet training step, batch 64, average pool", lambda lib: lenet_step(lib, "AvgPool2d"), ("torch",), 2
    ),
    Row(
        "add of 256 floats, forward and backward",
        lambda lib: chain(lib, CHAIN),
        ("autograd", "torch"),
        1,
        "µs",
        CHAIN,
    ),
    Row("conv2d 3x3, 8x32x56x56 to 64, forward", lambda lib: conv(lib, False), ("torch",), 2),
    Row("conv2d 3x3, 8x32x56x56 to 64, forward and backward", lambda lib: conv(lib, True), ("torch",), 3),
    Row("matmul 1024 x 1024", matmul, ("numpy",), 1),
    Row(f"backward through {LONG_CHAIN:,} adds", lambda lib: chain(lib, LONG_CHAIN, True), (), 0.2, "s"),
)
