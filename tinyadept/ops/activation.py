"""Activations that products apply to their results as they write them: ``act(x ⊛ w + b)`` in one pass."""

from __future__ import annotations

import numpy as np

from ..tape import mode
from ..tensor import Tensor, wrap
from ..view import View
from .table import Op, apply, finish, registry

# Rows of one input and no parameters; glsl/activation.glsl numbers them in this order.
PIECE = 1 << 16  # elements
ACTIVATIONS = ("", "relu", "silu", "gelu", "gelu_tanh", "sigmoid", "tanh")


def activate(y: np.ndarray, activation: str, bias: np.ndarray | None = None) -> np.ndarray:
    """Overwrite a dense array (…, rows, n) with what a row of the table makes of it and a bias (rows,).

    It is done in pieces that a processor's cache holds.
    """
    if not activation and bias is None:
        return y
    if not y.size:
        return y
    rows, n = y.shape[-2:] if bias is not None else (y.size // y.shape[-1], y.shape[-1])
    size = max(1, PIECE // n)
    for sample in y.reshape(-1, rows, n):
        for first in range(0, rows, size):
            some = sample[first : first + size]
            if bias is not None:
                some += bias[first : first + size, None]
            overwrite(some, activation)
    return y


def overwrite(y: np.ndarray, activation: str) -> None:
    if activation == "relu":
        np.maximum(y, y.dtype.type(0), out=y)
    elif activation == "silu":  # y / (1 + exp(-y))
        below = np.negative(y)
        np.exp(below, out=below)
        below += 1
        np.divide(y, below, out=y)
    elif activation:
        y[...] = registry[activation].forward(y)


def activated(op: Op, inputs: tuple, params: dict) -> Tensor:
    """Run a row that takes an activation.

    The tape gets two steps, the product and the activation, whose gradient is that of its row. Between them
    nothing is kept: where that gradient needs more than the result, and for integers, two ops run.

    Raises
    ------
    ValueError
        If there is no such activation.
    """
    params = dict(params)
    activation = params.pop("activation")
    if activation not in ACTIVATIONS:
        expected = ", ".join(ACTIVATIONS[1:])
        raise ValueError(f"{op.name}: activation {activation!r}: expected one of {expected}")
    if not activation:
        return apply(op, inputs, params)
    after = registry[activation]
    inputs, shape, dtype = op.family.infer(op, inputs, params)
    recorded = mode.grad and any(x.requires_grad for x in inputs)
    if dtype.kind != "f" or (recorded and reads_input(after)):
        return apply(after, (apply(op, inputs, params),), {})
    backend = inputs[0].backend
    buffer = backend.run(op, inputs, shape, dtype, {**params, "activation": activation})
    product, out = (wrap(buffer, View.dense(shape), dtype, backend) for _ in range(2))
    finish(op, product, inputs, params)
    return finish(after, out, (product,), {})


def reads_input(op: Op) -> bool:
    """Whether the gradient of an op of one input needs what that held."""
    plan = op.plan((True,))
    return plan is not None and any(plan[1] or ())
