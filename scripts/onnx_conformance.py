"""Runs the test models that the package onnx ships, and counts what passes.

    python scripts/onnx_conformance.py --device numpy
    python scripts/onnx_conformance.py --device vulkan --core FILE --only reduce
    python scripts/onnx_conformance.py --write        # the table in README.md

Each case is a model with inputs and the outputs that are expected. *Refused* means that loading or running
said by name what is missing; a wrong result, or any other exception, is *failed*. *Random*: it ran, and its
outputs are random numbers, so that only shapes and types could be compared; it does not count as passed.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.case.test_case import TestCase

from tinyadept.errors import OutOfMemory
from tinyadept.onnx import Model, Refused, load

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
LIGHT = Path(onnx.backend.test.__file__).parent / "data" / "light"
PASSED, FAILED, REFUSED, RANDOM = "passed", "failed", "refused", "random"
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
    chosen = set(Path(args.core).read_text().split()) if args.core else None
    counts: dict[str, Counter] = defaultdict(Counter)
    total: Counter = Counter()
    started = time.perf_counter()
    for case in cases(args.kinds):
        if args.only not in case.name or (chosen is not None and case.name not in chosen):
            continue
        outcome, reason = judged(case, args.device)
        total[outcome] += 1
        for op in ops_of(case):
            counts[op][outcome] += 1
        if outcome != PASSED and not args.quiet:
            print(f"{outcome} {case.name}: {reason}", flush=True)
        if outcome == FAILED and args.trace:
            traceback.print_exc()
    if not args.quiet:
        show(counts)
    print(f"{total[REFUSED]} refused, {total[FAILED]} failed, {time.perf_counter() - started:.0f} s")
    print(f"passed {total[PASSED]} of {sum(total.values())}")
    return 1 if total[FAILED] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="numpy", help="numpy, vulkan, vulkan:1")
    parser.add_argument("--only", default="", help="cases whose name has this")
    parser.add_argument("--core", help="a file with names of cases, one a line: no others")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--quiet", action="store_true", help="only the sums")
    parser.add_argument("--trace", action="store_true", help="tracebacks of what failed")
    return parser.parse_args()


def cases(kinds: list[str]) -> Iterator[TestCase]:
    for kind in kinds:
        yield from load_model_tests(kind="real" if kind == "light" else kind)


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
        model = load(path_of(case), device)
        for inputs, expected in data_sets(case, model):
            got = model.run(inputs)
            for value, wanted in zip(model.outputs, expected, strict=True):
                compare(got[value.name], wanted, case.rtol, case.atol, value.name)
    except (Refused, OutOfMemory) as error:
        return REFUSED, str(error)
    except AssertionError as error:
        if draws(case):
            return RANDOM, "it ran; its values are random, and cannot be those expected"
        return FAILED, " ".join(str(error).split())[:300]
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error}"
    return PASSED, ""


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
        assert np.array_equal(got, wanted), f"{name}: {got.ravel()[:4]}, expected {wanted.ravel()[:4]}"
        return
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol, err_msg=name)


def show(counts: dict[str, Counter]) -> None:
    print(f"{'operator':32} {PASSED:>7} {FAILED:>7} {REFUSED:>7}")
    for op, count in sorted(counts.items()):
        if count[FAILED] or count[REFUSED]:
            print(f"{op:32} {count[PASSED]:7} {count[FAILED]:7} {count[REFUSED]:7}")


if __name__ == "__main__":
    sys.exit(main())
