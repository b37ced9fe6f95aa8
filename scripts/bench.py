"""How fast tinyadept is, beside other libraries on the same machine.

    python scripts/bench.py [--device vulkan] [--only WORD] [--rounds N] [--threads N]

On NumPy the peers are PyTorch, HIPS autograd and NumPy itself; on a Vulkan device it is PyTorch, on the GPU
if that sees one. Each library runs in a process of its own, so that their thread pools do not meet, and
they take turns, so that noise from the rest of the machine meets all of them. A time is the shortest of all
rounds; on a Vulkan device it is their median, and that of a kernel is what a submit of twice as many takes
longer.
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
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import reference, vulkan
from benchmarks.row import Repeated, Row

LIBRARIES = {"tinyadept": "tinyadept", "torch": "PyTorch", "autograd": "HIPS autograd", "numpy": "NumPy"}
SECONDS_A_TURN = 0.25


def rows_on(device: str) -> tuple[Row, ...]:
    """The benchmarks of a device, without starting it."""
    if device == "numpy":
        return reference.ROWS
    from tinyadept.backends.vulkan import probe

    _, _, index = device.partition(":")
    return vulkan.rows(device, probe.choose(int(index) if index else None).is_cpu)


# --- one library, in its own process ---


def serve(library: str, device: str) -> None:
    """Answer each line, the name of a row, with the time in seconds of one turn."""
    try:
        importlib.import_module(library)
        found = facts(library, device)
    except (ImportError, RuntimeError) as error:
        print(json.dumps({"missing": str(error)}), flush=True)
        return
    print(json.dumps(found), flush=True)
    rows = {row.name: row for row in rows_on(device)}
    made, step = "", lambda: None
    for name in map(str.strip, sys.stdin):
        if name != made:
            del step  # and with it the operands of the last row
            made, step = name, rows[name].make(library)
            step()
        print(json.dumps(turn(step)), flush=True)


def turn(step: Callable) -> float:
    """The shortest time of a few calls; a step may measure itself, and then returns a float."""
    if isinstance(step, Repeated):
        return step()
    best, end, calls = float("inf"), time.perf_counter() + SECONDS_A_TURN, 0
    while calls < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        own = step()
        elapsed = time.perf_counter() - start
        best, calls = min(best, own if type(own) is float else elapsed), calls + 1
    return best


def facts(library: str, device: str) -> dict[str, str]:
    try:
        found = {"version": version(library)}
    except PackageNotFoundError:
        found = {"version": "from its source tree"}
    if device != "numpy":
        return found | {"place": place_of(library, device)}
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return found
    for pool in threadpool_info():
        if pool["user_api"] == "blas" and library == "tinyadept":
            kernel = f"{pool['internal_api']} {pool['version']}, kernel {pool.get('architecture', 'unknown')}"
            found["blas"] = f"NumPy's matrix products by {kernel}, {pool['num_threads']} threads"
    return found


def place_of(library: str, device: str) -> str:
    """Where a library runs beside a Vulkan device."""
    if library == "tinyadept":
        from tinyadept import device as devices

        return f"{devices.resolve(device).device}, by kp {version('kp')}"
    import torch

    if not torch.cuda.is_available():
        return "the processor"
    return f"{torch.cuda.get_device_name()}, CUDA {torch.version.cuda}, TF32 off"


class Worker:
    """A process that runs one library."""

    def __init__(self, library: str, device: str, threads: int | None):
        # These make OpenBLAS run the kernels of an older processor; measured is what it would choose.
        environment = {
            k: v for k, v in os.environ.items() if k not in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
        }
        if threads:
            environment |= {f"{pool}_NUM_THREADS": str(threads) for pool in ("OMP", "OPENBLAS", "MKL")}
        command = [sys.executable, __file__, "--device", device, "--worker", library]
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
            place = f", on {told['place']}" if "place" in told else ""
            print(f"{LIBRARIES[library]} {told['version']}{place}")
    ours = workers["tinyadept"].facts
    if "place" not in ours:
        print(ours.get("blas", "threadpoolctl is missing, which would name the BLAS kernel"))


def timed(seconds: float | None, row: Row) -> str:
    return "missing" if seconds is None else f"{row.value(seconds):.3g} {row.unit}"


def print_row(row: Row, best: dict[str, float]) -> None:
    ours = best["tinyadept"]
    for number, peer in enumerate(row.peers or ("",)):
        theirs = best.get(peer)
        ratio = f"{row.ratio(ours, theirs):.2f}x" if theirs else ""
        wanted, verdict = (row.wanted(), row.verdict(ours, theirs)) if number == 0 else ("", "")
        rival = f"{LIBRARIES[peer]} {timed(theirs, row)}" if peer else ""
        print(
            f"{row.name:<52}{timed(ours, row):>12}  {rival:<24}{ratio:>7}  {wanted:>6}  {verdict}".rstrip(),
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--device", default="numpy", help="numpy, or a Vulkan device: vulkan, vulkan:1 (numpy)"
    )
    parser.add_argument("--only", default="", metavar="WORD", help="rows whose name contains this")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each library (7)")
    parser.add_argument("--threads", type=int, help="of each library; by default what it chooses")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        serve(options.worker, options.device)
        return
    rows = [row for row in rows_on(options.device) if options.only in row.name]
    if not rows or options.rounds < 1:
        parser.error("no row has that in its name" if not rows else "--rounds must be at least 1")
    needed = [name for name in LIBRARIES if name == "tinyadept" or any(name in row.peers for row in rows)]
    workers = {library: Worker(library, options.device, options.threads) for library in needed}
    if "missing" in workers["tinyadept"].facts:
        sys.exit(f"bench: {workers['tinyadept'].facts['missing']}: install it, as in pip install -e .")
    print_facts(workers)
    print(f"\n{'benchmark':<52}{'tinyadept':>12}  {'peer':<24}{'ratio':>7}  {'target':>6}")
    for row in rows:
        rivals = [name for name in ("tinyadept", *row.peers) if "missing" not in workers[name].facts]
        rounds = [{name: workers[name].ask(row.name) for name in rivals} for _ in range(options.rounds)]
        summary = min if options.device == "numpy" else median
        print_row(row, {name: summary(each[name] for each in rounds) for name in rivals})
    for worker in workers.values():
        worker.close()


if __name__ == "__main__":
    main()
