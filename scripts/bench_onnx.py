"""How fast ONNX models run on NumPy beside onnxruntime, in the same run, and where the time goes.

    python scripts/bench_onnx.py                          # resnet50 of the package onnx, one photo
    python scripts/bench_onnx.py model.onnx --threads 2 --rounds 9 --nodes
    python scripts/bench_onnx.py --device vulkan

Both take turns twice, and the shortest time of each counts. Lengths that the file leaves open are 1, and
integers are zeros. `--nodes` adds the time of each operator and of the slowest nodes. The last line says what
the interpreter itself costs: the time of a node that computes nothing. The engine divides large work among as
many threads as there are cores; those of its BLAS library come on top, and wait for each other.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper
from threadpoolctl import threadpool_limits

import tinyadept.onnx

RESNET50 = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
WANTED = 4.0  # times onnxruntime's time
NODE = 20.0  # µs that the interpreter may cost a node
CHAIN = 1000  # nodes of a model that computes nothing
SLOWEST = 12
BLOCKS = 2


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure ONNX models beside onnxruntime.")
    parser.add_argument("model", nargs="?", type=Path, default=RESNET50, help="a file (resnet50)")
    parser.add_argument("--device", default="numpy", help="numpy, vulkan or vulkan:1 (numpy)")
    parser.add_argument("--threads", type=int, default=2, help="of onnxruntime (2)")
    parser.add_argument("--blas", type=int, default=2, help="threads of NumPy's BLAS library (2)")
    parser.add_argument(
        "--rounds", type=int, default=7, help="runs of each, of which the shortest counts (7)"
    )
    parser.add_argument(
        "--nodes", action="store_true", help="the time of each operator and of the slowest nodes"
    )
    return parser.parse_args()


def inputs(session: onnxruntime.InferenceSession) -> dict[str, np.ndarray]:
    """An array for each input: normal floats, integers of zero."""
    rng, made = np.random.default_rng(0), {}
    for value in session.get_inputs():
        shape = [n if isinstance(n, int) and n > 0 else 1 for n in value.shape]
        floats = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
        integers = {"tensor(int32)": np.int32, "tensor(uint8)": np.uint8, "tensor(bool)": np.bool_}
        if value.type in floats:
            made[value.name] = rng.normal(size=shape).astype(floats[value.type])
        else:
            made[value.name] = np.zeros(shape, integers.get(value.type, np.int64))
    return made


def seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def session_of(path: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def show_nodes(model: Any, feeds: dict[str, np.ndarray], rounds: int) -> None:
    """The best run's time by operator, and its slowest nodes."""
    best = min((model.times(feeds) for _ in range(rounds)), key=lambda run: sum(node[2] for node in run))
    spent, count = Counter(), Counter(op for _, op, _ in best)
    for _, op, took in best:
        spent[op] += took
    for op, took in spent.most_common():
        print(f"{op:24} {count[op]:5} nodes {1e3 * took:9.2f} ms")
    for name, op, took in sorted(best, key=lambda node: -node[2])[:SLOWEST]:
        print(f"    {op:12} {name:60} {1e3 * took:7.2f} ms")


def interpreter(rounds: int) -> float:
    """Microseconds of a node that hands its input on."""
    nodes = [helper.make_node("Identity", [f"v{i}"], [f"v{i + 1}"]) for i in range(CHAIN)]
    ends = [helper.make_tensor_value_info(f"v{i}", TensorProto.FLOAT, [1]) for i in (0, CHAIN)]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    model = tinyadept.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))
    feeds = {"v0": np.zeros(1, np.float32)}
    return 1e6 * min(seconds(lambda: model.run(feeds)) for _ in range(rounds)) / CHAIN


def measured(options: argparse.Namespace) -> tuple[list[float], float, Any, dict[str, np.ndarray]]:
    """Shortest seconds here and of onnxruntime, how far the results lie apart, the model and its inputs."""
    times: tuple[list[float], list[float]] = ([], [])
    session = session_of(options.model, options.threads)
    feeds = inputs(session)
    want = session.run(None, feeds)
    del session
    model = tinyadept.onnx.load(options.model, options.device)
    got = model.run(feeds).values()
    apart = max(largest_difference(a, b) for a, b in zip(got, want, strict=True))
    for _ in range(BLOCKS):
        times[0].extend(seconds(partial(model.run, feeds)) for _ in range(options.rounds))
        session = session_of(options.model, options.threads)
        session.run(None, feeds)
        times[1].extend(seconds(partial(session.run, None, feeds)) for _ in range(options.rounds))
        del session  # its threads would go on waiting for work, on the same cores
    return [min(column) for column in times], apart, model, feeds


def largest_difference(a: np.ndarray, b: Any) -> float:
    """Relative to the largest expected number."""
    return float(np.abs(a.astype(np.float64) - b).max() / max(np.abs(b).max(), 1e-30))


def main() -> int:
    options = arguments()
    with threadpool_limits(options.blas, user_api="blas"):
        (own, peer), apart, model, feeds = measured(options)
        if options.nodes:
            show_nodes(model, feeds, options.rounds)
        cost = interpreter(options.rounds)
    slow = options.device == "numpy" and own > WANTED * peer
    print(
        f"{options.model.stem} on {options.device}: {1e3 * own:.1f} ms, onnxruntime {onnxruntime.__version__}"
        f" with {options.threads} threads {1e3 * peer:.1f} ms, ratio {own / peer:.2f}, wanted {WANTED:g}  "
        f"{'MISSED' if slow else 'met'}; results differ by {apart:.1e} of the largest"
    )
    print(f"a node of the interpreter: {cost:.1f} µs, wanted {NODE:g}  {'met' if cost <= NODE else 'MISSED'}")
    return int(slow or cost > NODE)


if __name__ == "__main__":
    raise SystemExit(main())
