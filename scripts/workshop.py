"""A workshop: write kernels for a GPT-2, plug them in, and count tokens per second and bytes.

    python scripts/workshop.py --device vulkan

1. GELU as a function of one element. 2. A matrix product, one result an invocation. 3. The same by tiles that
a workgroup shares. 4. GELU inside the product, so that what lies between them never goes to memory. Each is a
row like those of the engine: with a gradient, fuzzed before it is used, and plugged into the same model.

Where the time goes: a kernel reads and writes memory, and a GPU computes much faster than it does that. So
beside each step stand the bytes that its products and activations ask for, counted from the shapes of all
their calls. Caches answer some of that, which is why the first version is not as slow as its bytes say.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import pi, sqrt
from typing import Any
from unittest import mock

import numpy as np

import tinyadept as ta
from tinyadept import functional as F
from tinyadept import oracle
from tinyadept.models import gpt2
from tinyadept.ops import define
from tinyadept.ops.elementwise import elementwise, wide
from tinyadept.ops.kernels import Kernel

TILE = 16
C = sqrt(2 / pi)
SIZES = {"tiny": gpt2.Config(2, 2, 64, 512, 128), "small": gpt2.Config()}

# --- 1. GELU, an element at a time ------------------------------------------------------------------------


def slope(a: Any) -> Any:
    """The derivative of GELU in its tanh form."""
    t = (C * (a + 0.044715 * a * a * a)).tanh()
    return 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * C * (1 + 3 * 0.044715 * a * a)


GELU_GLSL = """
float op_my_gelu(float a) {
    return 0.5 * a * (1.0 + op_tanh(0.7978845608 * fma(0.044715 * a * a, a, a)));
}
"""
my_gelu = define(
    elementwise,
    "my_gelu",
    wide(lambda a: 0.5 * a * (1 + np.tanh(C * (a + 0.044715 * a**3)))),
    lambda g, out, a: g * slope(a),
    takes="strict float",
    ulps=16.0,
    domain=(-1.0, 3.0),  # further down 1 + tanh(…) cancels: the engine's own gelu_tanh does better there
    glsl=GELU_GLSL,
)

# --- 2. and 3. A matrix product ---------------------------------------------------------------------------

NAIVE = """
void main() {
    uint column = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;
    uint rows = number(0), depth = number(1), columns = number(2);
    if (row >= rows || column >= columns) return;
    float sum = 0.0;
    for (uint k = 0; k < depth; ++k) sum = fma(input0(row * depth + k), input1(k * columns + column), sum);
    result(row * columns + column, sum);
}
"""

# Each invocation brings one element of both tiles, and everybody in the workgroup uses all of them.
TILED = """
shared float left[16][16], right[16][16];
float finish(float x);

void main() {
    uvec2 lane = gl_LocalInvocationID.xy;
    uint column = gl_GlobalInvocationID.x, row = gl_GlobalInvocationID.y;
    uint rows = number(0), depth = number(1), columns = number(2);
    float sum = 0.0;
    for (uint first = 0; first < depth; first += 16) {
        uint a = first + lane.x, b = first + lane.y;
        left[lane.y][lane.x] = row < rows && a < depth ? input0(row * depth + a) : 0.0;
        right[lane.y][lane.x] = b < depth && column < columns ? input1(b * columns + column) : 0.0;
        barrier();
        for (uint k = 0; k < 16; ++k) sum = fma(left[lane.y][k], right[k][lane.x], sum);
        barrier();
    }
    if (row < rows && column < columns) result(row * columns + column, finish(sum));
}
"""
PLAIN = "float finish(float x) { return x; }\n"

# --- 4. GELU where the sum is still in a register ---------------------------------------------------------

FUSED = """
#include "math.glsl"
float finish(float x) {
    float y = 0.7978845608 * fma(0.044715 * x * x, x, x);
    return x * math_sigmoid(2.0 * y);  // the same as 0.5 x (1 + tanh y)
}
"""


def fitting(a: tuple, b: tuple) -> tuple:
    """The shape of a product.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    if len(a) != 2 or len(b) != 2 or a[1] != b[0]:
        raise ValueError(f"shapes {a} and {b}: expected (n, k) and (k, m)")
    return a[0], b[1]


def product(name: str, glsl: str, forward: Callable, *rules: Callable) -> Any:
    """A row for a matrix product; its gradients are products too."""
    row = define(
        Kernel(
            shape=fitting,
            grid=lambda a, b: (-(-b[1] // TILE), -(-a[0] // TILE)),
            local=(TILE, TILE, 1),
            numbers=lambda a, b: (a[0], a[1], b[1]),
            draw=lambda integer: [(integer(1, 40), k := integer(1, 40)), (k, integer(1, 40))],
        ),
        name,
        forward,
        *rules,
        takes="strict float",
        glsl=glsl,
    )
    oracle.TERMS[name] = lambda case: case.inputs[0].view.shape[1]  # so many terms are rounded in a sum
    return row


def gelu(x: np.ndarray) -> np.ndarray:
    return my_gelu.op.forward(x)


naive = product(
    "my_product", NAIVE, np.matmul, lambda g, out, a, b: naive(g, b.mT), lambda g, out, a, b: naive(a.mT, g)
)
tiled = product(
    "my_tiles",
    TILED + PLAIN,
    np.matmul,
    lambda g, out, a, b: tiled(g, b.mT),
    lambda g, out, a, b: tiled(a.mT, g),
)
fused = product(
    "my_product_gelu",
    TILED + FUSED,
    lambda a, b: gelu(np.matmul(a, b)),
    lambda g, out, a, b: tiled(g * slope(tiled(a, b)), b.mT),
    lambda g, out, a, b: tiled(a.mT, g * slope(tiled(a, b))),
)

# --- plugging them in -------------------------------------------------------------------------------------


class Traffic:
    """Bytes that products and activations ask for, from the shapes of their calls."""

    def __init__(self) -> None:
        self.bytes = 0

    def product(self, a: tuple, b: tuple, tile: int) -> None:
        """Each tile of results reads a strip of both operands; the results are written once."""
        (n, k), m = a, b[1]
        self.bytes += 4 * (n * m * k // tile * 2 + n * m)

    def activation(self, shape: tuple) -> None:
        self.bytes += 4 * 2 * int(np.prod(shape))


@contextmanager
def plugged(
    matmul: Callable | None, tile: int, activation: Callable | None, both: Callable | None
) -> Iterator[Traffic]:
    """Inside, GPT-2 computes with these rows; None leaves what the engine has."""
    traffic = Traffic()

    def linear(
        layer: Any, x: ta.Tensor, residual: ta.Tensor | None = None, row: Callable | None = None
    ) -> ta.Tensor:
        y = product(layer, x, row)
        return y if residual is None else y + residual

    def product(layer: Any, x: ta.Tensor, row: Callable | None) -> ta.Tensor:
        rows = x.reshape(-1, x.shape[-1])
        traffic.product(rows.shape, layer.weight.shape, tile)
        if row is None:
            if matmul is None:
                return F.linear(x, layer.weight.mT, layer.bias)
            return (matmul(rows, layer.weight) + layer.bias).reshape(*x.shape[:-1], -1)
        # The bias goes into the product as one more column of a matrix of ones.
        ones = ta.ones(rows.shape[0], 1, device=x.backend)
        wide = F.cat([rows, ones], 1), F.cat([layer.weight, layer.bias.unsqueeze(0)], 0)
        return row(*wide).reshape(*x.shape[:-1], -1)

    def mlp(self: Any, x: ta.Tensor, residual: ta.Tensor | None) -> ta.Tensor:
        if both is not None:
            return linear(self.c_proj, product(self.c_fc, x, both), residual)
        h = linear(self.c_fc, x)
        traffic.activation(h.shape)
        act = activation or (lambda h: F.gelu(h, approximate="tanh"))
        return linear(self.c_proj, act(h), residual)

    with (
        mock.patch.object(gpt2.Conv1D, "forward", linear),
        mock.patch.object(gpt2.MLP, "forward", mlp),
        ta.no_grad(),
    ):
        yield traffic


STEPS: dict[str, tuple] = {
    "the engine's kernels": (None, 128, None, None),
    "1. GELU of our own": (None, 128, my_gelu, None),
    "2. a product, an invocation a result": (naive, 1, my_gelu, None),
    "3. a product by tiles of 16 x 16": (tiled, TILE, my_gelu, None),
    "4. the same, with GELU inside": (tiled, TILE, my_gelu, fused),
}


def logits_of(model: gpt2.GPT2, ids: ta.Tensor, calls: int) -> tuple[np.ndarray, float]:
    """The last logits, and the seconds of the fastest of a few calls."""
    best, out = float("inf"), None
    for _ in range(calls):
        start = time.perf_counter()
        out = model(ids).numpy()
        best = min(best, time.perf_counter() - start)
    assert out is not None
    return out, best


def torch_function(row: Any) -> Any:
    """A row of one input as a function that PyTorch differentiates, on this machine's processor."""
    import torch

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.from_numpy(row(ta.from_numpy(x.detach().numpy())).numpy())

        @staticmethod
        def backward(ctx: Any, *grad_outputs: Any) -> Any:
            (x,), (grad,) = ctx.saved_tensors, grad_outputs
            inner = ta.tensor(x.detach().numpy(), requires_grad=True)
            row(inner).backward(ta.from_numpy(grad.contiguous().numpy()))
            assert inner.grad is not None
            return torch.from_numpy(inner.grad.numpy())

    return Function.apply


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--device", help="numpy, vulkan, vulkan:1; by default what TINYADEPT_DEVICE says")
    parser.add_argument("--size", choices=SIZES, default="tiny", help="of the GPT-2, random weights (tiny)")
    parser.add_argument("--tokens", type=int, default=64, help="that are read at once (64)")
    parser.add_argument("--calls", type=int, default=5, help="of which the fastest counts (5)")
    parser.add_argument("--examples", type=int, default=30, help="random calls of each row and check (30)")
    options = parser.parse_args()
    for row in (my_gelu, naive, tiled, fused):
        assert ta.fuzz(row, device=options.device, examples=options.examples)
        print(f"{row.op.name} is what its definition says, and so are its gradients")
    ta.manual_seed(0)
    model = gpt2.GPT2(SIZES[options.size])
    model = model if options.device is None else model.to(options.device)
    ids = ta.randint(0, 512, (1, options.tokens), device=next(model.parameters()).backend)
    expected = None
    print(f"\n{'':<40}{'tokens/s':>10}{'MB a token':>12}")
    for name, rows in STEPS.items():
        with plugged(*rows) as traffic:
            logits, seconds = logits_of(model, ids, options.calls)
        expected = logits if expected is None else expected
        np.testing.assert_allclose(logits, expected, atol=2e-4)
        megabytes = traffic.bytes / options.calls / options.tokens / 1e6
        print(f"{name:<40}{options.tokens / seconds:>10.1f}{megabytes:>12.2f}")
    try:
        import torch
    except ImportError:
        return
    x = torch.linspace(-1, 3, 9, dtype=torch.float32, requires_grad=True)
    y = torch_function(my_gelu)(x)
    y.sum().backward()
    theirs = torch.nn.functional.gelu(x.detach().requires_grad_(), approximate="tanh")
    print(f"\nin PyTorch: my_gelu differs from torch's by {(y - theirs).abs().max().item():.1e}")


if __name__ == "__main__":
    main()
