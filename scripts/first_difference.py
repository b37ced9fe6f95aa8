"""Run a program, and stop at the first op whose result on the device is not the reference's.

    python scripts/first_difference.py train.py --epochs 1 --device vulkan
    python scripts/first_difference.py --on vulkan:1 my_program.py

Every op that the program runs on the device is run on the reference as well, in float64 and with the same
inputs. The report names the op, the line that called it or recorded what it is the gradient of, the first
wrong element with both values, and how the inputs lie in memory. The exit status is then 1.
`tinyadept.oracle.first_difference` is the same as a context manager.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence

from tinyadept import DeviceError, device
from tinyadept.oracle import Comparison, first_difference


def watched(program: str, arguments: Sequence[str], where: str, tolerance: float) -> Comparison:
    """Run a program as ``python program arguments`` would, watched.

    What it prints stays, and so do its own errors and exit status; a difference ends it.
    """
    sys.argv = [program, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    with first_difference(where, tolerance) as comparison:
        try:
            runpy.run_path(program, run_name="__main__")
        except BaseException as error:
            if comparison.found is None and not (isinstance(error, SystemExit) and not error.code):
                raise
    return comparison


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Find the first op that a device gets wrong in a program.")
    parser.add_argument("--on", default="vulkan", metavar="DEVICE", help="default: %(default)s")
    parser.add_argument(
        "--tolerance", type=float, default=1e-6,
        help="allowed beside the op's bound, relative to the largest element (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program is given")
    given = parser.parse_args(arguments)
    try:
        where = device.resolve(given.on).name
    except DeviceError as error:
        parser.error(str(error))
    os.environ["TINYADEPT_DEVICE"] = where
    comparison = watched(given.program, given.arguments, where, given.tolerance)
    if comparison.found is not None:
        print(f"first difference: {comparison.found}", file=sys.stderr)
        return 1
    if not comparison.compared:
        print(f"no op ran on {where}: does the program choose another device?", file=sys.stderr)
        return 2
    print(f"no difference: {comparison.compared} ops on {where} agree with the reference", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
