"""Every row of the table on a Vulkan device, forward and backward, a few drawn calls of each.

What watches the device (a validation layer, a look at memory) needs something to look at that meets every
kernel. Run as a program, ``python tests/rows.py EXAMPLES lanes|tiles|both [ROW ...]`` does that for one body
of the kernels or both, and says which templates ran.
"""

import sys
from collections.abc import Iterator, Sequence
from math import prod

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from mapped import MappedDriver, mapped, write

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.debug import body
from tinyadept.backends.vulkan.shaders import without_unrolling
from tinyadept.functional import conv2d
from tinyadept.ops import registry
from tinyadept.ops.attention import attention
from tinyadept.ops.convolution import using
from tinyadept.ops.table import Op

DRAWN = [op for op in registry.values() if op.family.name in oracle.FAMILIES]


def calls(op: Op, examples: int) -> list[oracle.Case]:
    """Drawn calls of an op, the same ones every time."""
    drawn = []

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(oracle.cases(op, extremes=False).filter(has_work))
    def draw(case: oracle.Case) -> None:
        drawn.append(case)

    draw()
    return drawn


def has_work(case: oracle.Case) -> bool:
    """Whether a call has something to compute, on Vulkan."""
    full = all(x.view.size for x in case.inputs) and prod(case.params.get("shape", ()))
    return bool(full) and case.params.get("dtype", ta.float32) != ta.float64


def run(case: oracle.Case, device: object, backward: bool = True) -> list[ta.Tensor]:
    """The result of a call and the gradients of its inputs; nothing is read back."""
    out, inputs = case.run(device, requires_grad=backward)
    if out.requires_grad:
        out.backward(ta.tensor(np.ones(out.shape, np.float32), device=out.backend))
    return [out.detach(), *[x.grad for x in inputs if x.grad is not None]]


def large(device: object) -> Iterator[list[ta.Tensor]]:
    """What drawn calls are too small for: sums in several parts, products and attention that are joined."""
    ones = lambda *shape: ta.ones(*shape, device=device)  # noqa: E731
    for x in (ones(1 << 15, 2), ones(2, 1 << 15)):
        yield [x.sum(0), x.sum(1), x.softmax(0), x.softmax(1), x.cumsum(0), x.cumsum(1), x.mT + x.mT]
    yield [ones(2, 1 << 15) @ ones(1 << 15, 2)]
    yield [attention(ones(1, 1, 1, 1), *(ones(1, 1, 70_000, 1) for _ in range(2)), scale=1.0)]


def few_rows(gpu: Vulkan) -> Iterator[list[ta.Tensor]]:
    """A product that a GPU has a kernel of its own for."""
    with body(gpu, True):
        yield [ta.ones(1, 8, device=gpu) @ ta.ones(8, 8, device=gpu)]


def convolutions(gpu: Vulkan) -> Iterator[list[ta.Tensor]]:
    """Every way to compute one on a GPU, forwards and backwards."""
    for path in ("tiles", "depthwise", "winograd2"):
        for groups in (1, 6):
            with body(gpu, True), using(path):
                x = ta.ones(2, 6, 5, 5, device=gpu, requires_grad=True)
                w = ta.ones(6, 6 // groups, 3, 3, device=gpu, requires_grad=True)
                y = conv2d(x, w, padding=1, groups=groups)
                y.backward(ta.ones(*y.shape, device=gpu))
            yield [z for z in (y.detach(), x.grad, w.grad) if z is not None]


def everything(device: Vulkan, examples: int, names: Sequence[str] = ()) -> Iterator[list[ta.Tensor]]:
    """Results and gradients of so many calls of every row, and of what takes other kernels; or of some rows.

    Of a few rows that are named a product goes forward alone: its gradients run the same kernel.
    """
    for op in DRAWN:
        if not names or op.name in names:
            for case in calls(op, examples):
                yield run(case, device, backward=not names or op.name != "matmul")
    if not names:
        yield from large(device)
        yield from few_rows(device)
        yield from convolutions(device)


class Rolled(MappedDriver):
    """Leaves loops as they are: unrolled ones take minutes to compile with a layer's checks in them."""

    def pipeline(self, spirv, *arguments):
        return super().pipeline(without_unrolling(spirv), *arguments)


def main(examples: int, bodies: str, *names: str) -> int:
    gpu, ran, results = mapped(Rolled), set(), 0
    gpu.transfer.write = write  # kernels that upload would be most of those that run
    gpu.queue.observers.append(lambda entries: ran.update(entry.shader.name for entry in entries if entry))
    for tiled in {"lanes": [False], "tiles": [True], "both": [False, True]}[bodies]:
        with body(gpu, tiled):
            for made in everything(gpu, examples, names):
                gpu.queue.flush()
                results += len(made)
    print(f"made {results} tensors on {gpu.device.name} with {' '.join(sorted(ran))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
