"""Runs the test models that the package onnx ships, and counts what passes.

    python scripts/onnx_conformance.py --device numpy
    python scripts/onnx_conformance.py --device vulkan --core FILE --only reduce
    python scripts/onnx_conformance.py --write        # the table in docs/onnx.md, of both devices

Each case is a model with inputs and the outputs that are expected. *Refused* means that loading or running
said by name what is missing; a wrong result or any other exception is *failed*. *Open*: it ran, with outputs
of the right shape and type, whose values decide nothing: they are random, or those expected are less exact
than ours. Neither counts as passed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import prod
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.case.test_case import TestCase
from onnx.backend.test.loader import load_model_tests

from tinyadept.errors import OutOfMemory
from tinyadept.onnx import Model, Refused, load

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
PASSED, FAILED, REFUSED, OPEN = OUTCOMES = ("passed", "failed", "refused", "open")
INEXACT = ("test_dft_inverse", "test_dft_inverse_opset19")  # 1.9e-7 where NumPy in float64 has 7e-16
PAGE = Path(__file__).parents[1] / "docs" / "onnx.md"
README = PAGE.parent.parent / "README.md"
MARKS = "<!-- cases: scripts/onnx_conformance.py --write -->", "<!-- end of cases -->"
DRAWING = (
    "Bernoulli",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Multinomial",
)


def main() -> int:
    args = arguments()
    if args.write:
        write()
        return 0
    chosen = set(Path(args.core).read_text(encoding="utf-8").split()) if args.core else None
    started = time.perf_counter()
    counts, total = counted(args.device, args.kinds, args.only, chosen, args.quiet)
    if not args.quiet:
        show(counts)
    rest = ", ".join(f"{total[outcome]} {outcome}" for outcome in OUTCOMES[1:])
    print(f"{rest}, {time.perf_counter() - started:.0f} s")
    print(f"passed {total[PASSED]} of {sum(total.values())}")
    return 1 if total[FAILED] else 0


def counted(
    device: str, kinds: Sequence[str] = KINDS, only: str = "", chosen: Any = None, quiet: bool = True
) -> tuple[dict[str, Counter], Counter]:
    """Outcomes by operator, and all together."""
    counts: dict[str, Counter] = defaultdict(Counter)
    total: Counter = Counter()
    for case in cases(kinds):
        if only not in case.name or (chosen is not None and case.name not in chosen):
            continue
        outcome, reason = judged(case, device)
        total[outcome] += 1
        for op in ops_of(case):
            counts[op][outcome] += 1
        if outcome != PASSED and not quiet:
            print(f"{outcome} {case.name}: {reason}", flush=True)
    return counts, total


def write() -> None:
    """Put what both devices pass into the page, and the sums into the README."""
    devices = ("numpy", "vulkan")
    by_kind = {device: {kind: counted(device, (kind,)) for kind in KINDS} for device in devices}
    found = {device: together(by_kind[device].values()) for device in devices}
    sums = ["| cases of onnx | number | pass on numpy | on vulkan |", "|---|---|---|---|"]
    for kind in KINDS:
        totals = [by_kind[device][kind][1] for device in devices]
        passed = " | ".join(str(total[PASSED]) for total in totals)
        sums.append(f"| {kind} | {sum(totals[0].values())} | {passed} |")
    put(README, "\n".join(sums))
    ops = sorted(set().union(*(counts for counts, _ in found.values())))
    whole = [op for op in ops if all(set(found[d][0][op]) == {PASSED} for d in devices)]
    lines = [
        "| operator or kind | cases | passed on numpy | on vulkan | refused on numpy | on vulkan |",
        "|---|---|---|---|---|---|",
    ]
    for op in [op for op in ops if op not in whole]:
        lines.append(row(f"`{op}`", [found[device][0][op] for device in devices]))
    lines.append(row("**all cases**", [found[device][1] for device in devices]))
    names = fill(f"Everything passes on both devices: {' '.join(f'`{op}`' for op in whole)}.", 116)
    put(PAGE, names + "\n\n" + "\n".join(lines))


def put(page: Path, text: str) -> None:
    """Write a text between the marks of a page."""
    before, _, rest = page.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    page.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{after}", encoding="utf-8")


def together(found: Iterable[tuple[dict[str, Counter], Counter]]) -> tuple[dict[str, Counter], Counter]:
    """Several results of `counted` as one."""
    counts: dict[str, Counter] = defaultdict(Counter)
    total: Counter = Counter()
    for some, sum_of_them in found:
        total += sum_of_them
        for op, outcomes in some.items():
            counts[op] += outcomes
    return counts, total


def row(name: str, counts: list[Counter]) -> str:
    cells = [sum(counts[0].values()), *(c[PASSED] for c in counts), *(c[REFUSED] for c in counts)]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="numpy", help="numpy, vulkan, vulkan:1")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--core", help="a file with names of cases, one a line: no others")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--quiet", action="store_true", help="only the sums")
    parser.add_argument(
        "--write", action="store_true", help="write the table of both devices into docs/onnx.md"
    )
    return parser.parse_args()


def cases(kinds: Sequence[str]) -> Iterator[TestCase]:
    for kind in kinds:
        found = load_model_tests(kind="real" if kind == "light" else kind)
        yield from sorted(found, key=lambda case: case.name)


def ops_of(case: TestCase) -> set[str]:
    """The operators of a case; a model of many counts under its own name."""
    if case.model_dir is None:
        return {case.name}
    model = onnx.load(Path(case.model_dir) / "model.onnx", load_external_data=False)
    names = {node.op_type for node in model.graph.node}
    return names if len(names) <= 3 else {case.kind}


def judged(case: TestCase, device: str) -> tuple[str, str]:
    """What became of a case, and why."""
    try:
        model, held = load(path_of(case), device), 0
        for inputs, expected in data_sets(case, model):
            held += len(expected)
            got = model.run(inputs)
            for value, wanted in zip(model.outputs, expected, strict=True):
                compare(got[value.name], wanted, case.rtol, case.atol, value.name)
    except (Refused, OutOfMemory) as error:
        return REFUSED, str(error)
    except AssertionError as error:
        if isinstance(error, Differ) and (draws(case) or case.name in INEXACT):
            return OPEN, "it ran, and its values decide nothing"
        return FAILED, " ".join(str(error).split())[:300]
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}"
    return (PASSED, "") if held else (FAILED, "there is nothing to compare with")


def draws(case: TestCase) -> bool:
    """Whether the outputs of a case are random numbers, by another generator than ours."""
    nodes = onnx.load(path_of(case)).graph.node
    return any(
        node.op_type in DRAWING or (node.op_type == "Dropout" and len(node.input) == 3) for node in nodes
    )


def path_of(case: TestCase) -> Path:
    if case.model_dir is not None:
        return Path(case.model_dir) / "model.onnx"
    return LIGHT / Path(str(case.url)).name


def data_sets(case: TestCase, model: Model) -> Iterator[tuple[dict, list]]:
    """Each pair of inputs by name and outputs in order."""
    if case.model_dir is None:  # the light models: a ramp, as the package's own runner makes it
        (value,) = model.inputs
        size = prod(value.shape or ())
        ramp = (np.arange(size) / size).astype(np.float32).reshape(value.shape)
        expected = numpy_helper.to_array(onnx.load_tensor(f"{path_of(case).with_suffix('')}_output_0.pb"))
        yield {value.name: ramp}, [expected]
        return
    for folder in sorted(path_of(case).parent.glob("test_data_set_*")):
        inputs = [read(folder / f"input_{i}.pb", v) for i, v in enumerate(model.inputs)]
        outputs = [read(folder / f"output_{i}.pb", v) for i, v in enumerate(model.outputs)]
        yield {v.name: x for v, x in zip(model.inputs, inputs)}, outputs


def read(path: Path, value: Any) -> Any:
    """An array, a list of them or None, as the type of the value says."""
    data = path.read_bytes()
    if value.kind == "sequence":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if value.kind == "optional":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


class Differ(AssertionError):
    """Values are not those expected; shapes and dtypes are."""


def compare(got: Any, wanted: Any, rtol: float, atol: float, name: str) -> None:
    """Hold a result against what is expected.

    Raises
    ------
    AssertionError
        If shape, dtype or a value differs.
    """
    if isinstance(wanted, list) or wanted is None:
        assert type(got) is type(wanted) and len(got or ()) == len(wanted or ()), (
            f"{name}: got {type(got).__name__}, expected {wanted}"
        )
        for a, b in zip(got or [], wanted or []):
            compare(a, b, rtol, atol, name)
        return
    assert got.shape == wanted.shape, f"{name} has shape {got.shape}, expected {wanted.shape}"
    assert got.dtype == wanted.dtype, f"{name} is {got.dtype}, expected {wanted.dtype}"
    if wanted.dtype.kind in "biu":
        if not np.array_equal(got, wanted):
            raise Differ(f"{name}: {got.ravel()[:4]}, expected {wanted.ravel()[:4]}")
        return
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    try:
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)
    except AssertionError as error:
        raise Differ(str(error)) from error


def show(counts: dict[str, Counter]) -> None:
    print(f"{'operator':32} {PASSED:>7} {FAILED:>7} {REFUSED:>7}")
    for op, count in sorted(counts.items()):
        if count[FAILED] or count[REFUSED]:
            print(f"{op:32} {count[PASSED]:7} {count[FAILED]:7} {count[REFUSED]:7}")


if __name__ == "__main__":
    sys.exit(main())
