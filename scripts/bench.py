"""How fast the reference is, beside PyTorch, HIPS autograd and NumPy on the same processor.

    python scripts/bench.py [--only WORD] [--rounds N] [--threads N]

Each library runs in a process of its own, so that their thread pools do not meet, and they take turns, so
that noise from the rest of the machine meets all of them. A time is the shortest of all rounds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

LIBRARIES = {"tinyadept": "tinyadept", "torch": "PyTorch", "autograd": "HIPS autograd", "numpy": "NumPy"}
SECONDS_A_TURN = 0.25
CHAIN = 1000  # additions in the chain whose time is given per op
LONG_CHAIN = 20_000


# --- what is timed; PyTorch and tinyadept share names, and so they share code ---


def named(library: str) -> Any:
    """The parts of a library that PyTorch and tinyadept spell alike."""
    root = importlib.import_module(library)
    functional = {"torch": "torch.nn.functional", "tinyadept": "tinyadept.functional"}[library]
    return SimpleNamespace(
        F=importlib.import_module(functional),
        nn=importlib.import_module(f"{library}.nn"),
        optim=importlib.import_module(f"{library}.optim"),
        tensor=lambda array: root.from_numpy(array),
        no_grad=root.no_grad,
    )


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def lenet(library: str, pool: str) -> Callable:
    """One step of training: forward, loss, backward and update by SGD with momentum."""
    lib = named(library)
    nn, smaller = lib.nn, getattr(lib.nn, pool)
    model = nn.Sequential(  # (64, 1, 28, 28)
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), smaller(2)),  # (64, 6, 14, 14)
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), smaller(2)),  # (64, 16, 5, 5)
        *(nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)),
    )
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


@dataclass(frozen=True)
class Row:
    """One benchmark: what is run, against whom, and which time or ratio is wanted."""

    name: str
    make: Callable[[str], Callable]
    peers: tuple[str, ...]
    target: float | None  # of the time divided by the first peer's, or of the seconds where there is no peer
    unit: str = "ms"
    ops: int = 1  # over which the time is divided


ROWS = (
    Row("LeNet training step, batch 64, max pool", lambda lib: lenet(lib, "MaxPool2d"), ("torch",), 2),
    Row("LeNet training step, batch 64, average pool", lambda lib: lenet(lib, "AvgPool2d"), ("torch",), 2),
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


# --- one library, in its own process ---


def serve(library: str) -> None:
    """Answer each line, the name of a row, with the shortest time in seconds of one turn."""
    try:
        importlib.import_module(library)
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps(facts(library)), flush=True)
    steps: dict[str, Callable] = {}
    for name in map(str.strip, sys.stdin):
        if name not in steps:
            steps[name] = next(row for row in ROWS if row.name == name).make(library)
            steps[name]()
        print(json.dumps(turn(steps[name])), flush=True)


def turn(step: Callable) -> float:
    """The shortest time of a few calls; a step may measure itself, and then returns a float."""
    best, end, calls = float("inf"), time.perf_counter() + SECONDS_A_TURN, 0
    while calls < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        own = step()
        elapsed = time.perf_counter() - start
        best, calls = min(best, own if type(own) is float else elapsed), calls + 1
    return best


def facts(library: str) -> dict[str, str]:
    found = {"version": version(library)}
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return found
    for pool in threadpool_info():
        if pool["user_api"] == "blas" and library == "tinyadept":
            kernel = f"{pool['internal_api']} {pool['version']}, kernel {pool.get('architecture', 'unknown')}"
            found["blas"] = f"NumPy's matrix products by {kernel}, {pool['num_threads']} threads"
    return found


class Worker:
    """A process that runs one library."""

    def __init__(self, library: str, threads: int | None):
        # These make OpenBLAS run the kernels of an older processor; measured is what it would choose.
        environment = {
            k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
        }
        if threads:
            environment |= {f"{pool}_NUM_THREADS": str(threads) for pool in ("OMP", "OPENBLAS", "MKL")}
        command = [sys.executable, __file__, "--worker", library]
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.facts = self.read()

    def ask(self, name: str) -> float:
        assert self.process.stdin is not None
        self.process.stdin.write(name + "\n")
        return self.read()

    def read(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"bench: the process of {self.process.args[-1]} ended early")  # type: ignore[index]
        return json.loads(line)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# --- the table ---


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    return model or platform.processor() or platform.machine()


def print_facts(workers: dict[str, Worker]) -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    print(f"{processor()}, {cores} cores; {platform.system()}, Python {platform.python_version()}")
    for library, worker in workers.items():
        told = worker.facts
        if "missing" in told:
            print(f"{LIBRARIES[library]}: missing, so that nothing is compared with it ({told['missing']})")
        else:
            print(f"{LIBRARIES[library]} {told['version']}")
    print(
        workers["tinyadept"].facts.get("blas", "threadpoolctl is missing, which would name the BLAS kernel")
    )


def timed(seconds: float | None, row: Row) -> str:
    if seconds is None:
        return "missing"
    return f"{seconds / row.ops * {'s': 1, 'ms': 1e3, 'µs': 1e6}[row.unit]:.3g} {row.unit}"


def print_row(row: Row, best: dict[str, float]) -> None:
    ours = best["tinyadept"]
    for number, peer in enumerate(row.peers or ("",)):
        theirs = best.get(peer)
        ratio, wanted, verdict = "", "", ""
        if theirs:
            ratio = f"{ours / theirs:.2f}x"
        if row.target and number == 0:
            wanted = f"{row.target:g}x" if peer else f"{row.target:g} s"
            reached = ours / theirs if theirs else ours
            verdict = "" if peer and not theirs else "met" if round(reached, 1) <= row.target else "MISSED"
        rival = f"{LIBRARIES[peer]} {timed(theirs, row)}" if peer else ""
        print(
            f"{row.name:<52}{timed(ours, row):>10}  {rival:<24}{ratio:>7}  {wanted:>6}  {verdict}".rstrip(),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each library (7)")
    parser.add_argument("--threads", type=int, help="of each library; by default what it chooses")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker)
        return
    rows = [row for row in ROWS if options.only in row.name]
    if not rows or options.rounds < 1:
        parser.error("no row has that in its name" if not rows else "--rounds must be at least 1")
    needed = [name for name in LIBRARIES if name == "tinyadept" or any(name in row.peers for row in rows)]
    workers = {library: Worker(library, options.threads) for library in needed}
    if "missing" in workers["tinyadept"].facts:
        sys.exit(f"bench: {workers['tinyadept'].facts['missing']}: install it, as in pip install -e .")
    print_facts(workers)
    print(f"\n{'benchmark':<52}{'tinyadept':>10}  {'peer':<24}{'ratio':>7}  {'target':>6}")
    for row in rows:
        rivals = [name for name in ("tinyadept", *row.peers) if "missing" not in workers[name].facts]
        rounds = [{name: workers[name].ask(row.name) for name in rivals} for _ in range(options.rounds)]
        print_row(row, {name: min(each[name] for each in rounds) for name in rivals})
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
