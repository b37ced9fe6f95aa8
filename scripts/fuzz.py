"""Look for calls of ops that come out wrong, on any device; print each as a program that shows it.

    python scripts/fuzz.py                              # every op, on the default device
    python scripts/fuzz.py --op softmax "conv*" --device vulkan
    python scripts/fuzz.py --examples 1000 --seed 7 --jobs 4

Each op gets random calls, whose result is held against its definition in float64, and whose gradients are
held against float64 and against differences. The exit status is 1 when something failed. `tinyadept.fuzz` is
the same for one op, inside a program.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from fnmatch import fnmatchcase
from multiprocessing import get_context
from typing import Any

from tinyadept import DeviceError, device, oracle
from tinyadept.ops import registry


def chosen(patterns: Sequence[str]) -> list[str]:
    """Names of the ops that match, in the order of the table; all of them without patterns.

    Raises
    ------
    ValueError
        If a pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in registry):
            raise ValueError(f"no op is called {pattern!r}: the table in README.md has their names")
    names = [op.name for op in oracle.drawn()]
    wanted = [name for name in names if not patterns or any(fnmatchcase(name, p) for p in patterns)]
    if not wanted:
        raise ValueError(f"calls of {' and '.join(patterns)} are not drawn: they have tests of their own")
    return wanted


def outcomes(names: list[str], jobs: int, *given: Any) -> Iterator[oracle.Outcome]:
    """What fuzzing each op gives, as it comes; several at once in processes of their own."""
    if jobs == 1:
        for name in names:
            print(f"{name:20} ", end="", flush=True)
            yield oracle.fuzz_op(name, *given)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for done in as_completed(pool.submit(oracle.fuzz_op, name, *given) for name in names):
            print(f"{done.result().op:20} ", end="")
            yield done.result()


def report(outcome: oracle.Outcome) -> None:
    """The rest of an op's line, and a program for each failure."""
    seen = ", ".join(f"{check} {count}" for check, count in outcome.examples.items())
    failures = outcome.failures
    print(f"{seen}: {'ok' if not failures else f'FAILED {len(failures)}'}", flush=True)
    for failure in failures:
        print(f"\n{failure.program}\n", flush=True)


def plural(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fuzz ops against their definitions.")
    parser.add_argument(
        "--op",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names or patterns such as 'conv*'; all by default",
    )
    parser.add_argument("--device", help="numpy, vulkan or vulkan:1; default: what TINYADEPT_DEVICE says")
    parser.add_argument(
        "--examples", type=int, default=100, help="calls for each check (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="draw the same calls again; by default others each time")
    parser.add_argument(
        "--check",
        nargs="+",
        default=list(oracle.CHECKS),
        choices=oracle.CHECKS,
        metavar="CHECK",
        help="forward and backward concern the device, 'gradient' and 'second gradient' the rules",
    )
    parser.add_argument("--jobs", type=int, default=1, help="ops at a time (default: %(default)s)")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    try:
        names, where = chosen(given.op), device.resolve(given.device).name
    except (ValueError, DeviceError, ImportError) as error:
        print(f"fuzz: {error}", file=sys.stderr)
        return 2
    start, examples, failures = time.monotonic(), 0, 0
    for outcome in outcomes(names, given.jobs, where, given.examples, seed, given.check):
        report(outcome)
        examples += sum(outcome.examples.values())
        failures += len(outcome.failures)
    took = time.monotonic() - start
    counts = f"{plural(len(names), 'op')}, {plural(examples, 'example')}, {plural(failures, 'failure')}"
    print(f"{counts} on {where}, seed {seed}, {took:.1f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
