"""RNN, GRU and LSTM: both directions, both layouts, sequences of several lengths, any activations.

Shapes: T steps, B samples, I inputs, H units, D directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from ... import creation
from ... import functional as F
from ...ops import matmul as rows
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import Node, operator

Function = Callable[[Tensor], Tensor]

# Name: how many numbers it takes, with what stands for those not given, and the function.
ACTIVATIONS: dict[str, tuple[tuple[float | None, float | None], Callable[..., Tensor]]] = {
    "relu": ((None, None), lambda x: x.relu()),
    "tanh": ((None, None), lambda x: x.tanh()),
    "sigmoid": ((None, None), lambda x: x.sigmoid()),
    "softsign": ((None, None), lambda x: x / (x.abs() + 1)),
    "softplus": ((None, None), F.softplus),
    "affine": ((1.0, 0.0), lambda x, a, b: x * a + b),
    "scaledtanh": ((1.0, 1.0), lambda x, a, b: (x * b).tanh() * a),
    "hardsigmoid": ((0.2, 0.5), lambda x, a, b: (x * a + b).clamp(0.0, 1.0)),
    "leakyrelu": ((0.01, None), F.leaky_relu),
    "thresholdedrelu": ((1.0, None), lambda x, a: where(x > a, x, 0.0)),
    "elu": ((1.0, None), F.elu),
}


def activations(node: Any, usual: list[str], directions: int) -> list[list[Function]]:
    """The functions of each direction; the attributes' numbers go to those that take some, in order."""
    names = list(node.get("activations") or usual * directions)
    if len(names) != len(usual) * directions:
        node.refuse(f"{len(names)} activations for {directions} directions of {len(usual)}")
    alphas, betas = iter(node.get("activation_alpha") or ()), iter(node.get("activation_beta") or ())
    made = [function(node, name, alphas, betas) for name in names]
    return [made[d * len(usual) : (d + 1) * len(usual)] for d in range(directions)]


def function(node: Any, name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    if name.lower() not in ACTIVATIONS:
        node.refuse(f"activation {name!r}: expected one of {', '.join(sorted(ACTIVATIONS))}")
    usual, run = ACTIVATIONS[name.lower()]
    given = [
        float(next(source, d)) for source, d in zip((alphas, betas), usual, strict=True) if d is not None
    ]
    return lambda x: run(x, *given)


class Layer(NamedTuple):
    """One direction: the steps' inputs already multiplied, (T, B, gates · H), and what the steps need.

    Attributes
    ----------
    inputs : Tensor
    weight : Tensor
        (gates · H, H).
    bias : Tensor or None
        (gates · H,): that of the recurrent product, where it is not part of `inputs` already.
    peepholes : Tensor or None
        (3 · H,).
    functions : list of callable
    """

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None
    peepholes: Tensor | None
    functions: list[Function]


def run_layers(
    node: Node,
    step: Callable,
    usual: list[str],
    states: list[Tensor | None],
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None,
    lengths: Tensor | None,
    peepholes: Tensor | None = None,
    apart: bool = False,
) -> tuple[Tensor, ...]:
    """Run `step` along the sequence, in each direction; `apart` keeps the two biases apart.

    Returns Y, then each state's last value, in the node's layout.
    """
    direction, batch_first = node.get("direction", "forward"), bool(node.get("layout", 0))
    backward = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(direction)
    if backward is None or len(backward) != w.shape[0]:
        node.refuse(f"direction {direction!r} with weights of shape {w.shape}")
    if batch_first:
        x = x.transpose(0, 1)
        states = [None if s is None else s.transpose(0, 1) for s in states]
    units, functions = r.shape[2], activations(node, usual, len(backward))
    live = None if lengths is None else before_end(x.shape[0], lengths)
    outputs, finals = [], []
    for d, reverse in enumerate(backward):
        bias, own = biases(b, d, apart)
        inputs = F.linear(x, w[d], bias)
        layer = Layer(inputs, r[d], own, None if peepholes is None else peepholes[d], functions[d])
        zeros = creation.zeros(x.shape[1], units, dtype=x.dtype, device=x.backend)
        begin = [zeros if s is None else s[d] for s in states]
        y, last = run_direction(node, step, layer, begin, live, reverse)
        outputs.append(y)
        finals.append(last)
    y = F.stack(outputs, 1)  # (T, D, B, H)
    last = [F.stack(list(values), 0) for values in zip(*finals, strict=True)]  # (D, B, H)
    if batch_first:
        return y.permute(2, 0, 1, 3), *(s.transpose(0, 1) for s in last)
    return y, *last


def before_end(steps: int, lengths: Tensor) -> Tensor:
    """Which steps of sequences of several lengths exist, (T, B, 1)."""
    step = creation.arange(steps, device=lengths.backend).reshape(-1, 1, 1)
    return step < lengths.to("int32").reshape(1, -1, 1)


def biases(b: Tensor | None, direction: int, apart: bool) -> tuple[Tensor | None, Tensor | None]:
    if b is None:
        return None, None
    half = b.shape[1] // 2
    first, second = b[direction, :half], b[direction, half:]
    return (first, second) if apart else (first + second, None)


def run_direction(
    node: Any, step: Callable, layer: Layer, states: list[Tensor], live: Tensor | None, reverse: bool
) -> tuple[Tensor, list[Tensor]]:
    count = layer.inputs.shape[0]
    outputs: list[Tensor] = [layer.inputs] * count
    for t in reversed(range(count)) if reverse else range(count):
        new = step(node, layer, layer.inputs[t], *states)
        if live is not None:  # sequences that have ended keep their state and give zeros
            new = [where(live[t], s, old) for s, old in zip(new, states, strict=True)]
            outputs[t] = where(live[t], new[0], 0.0)
        else:
            outputs[t] = new[0]
        states = list(new)
    return F.stack(outputs, 0), states


def clipped(node: Any, x: Tensor) -> Tensor:
    clip = node.get("clip")
    return x if clip is None else x.clamp(-float(clip), float(clip))


def product(layer: Layer, h: Tensor, low: int = 0, high: int | None = None) -> Tensor:
    """h times the recurrent weights of some of the gates' units, and their bias."""
    weight = layer.weight[low:high]
    return rows.linear(h, weight) if layer.bias is None else rows.linear(h, weight, layer.bias[low:high])


def rnn_step(node: Any, layer: Layer, x: Tensor, h: Tensor) -> list[Tensor]:
    return [layer.functions[0](clipped(node, x + product(layer, h)))]


def gru_step(node: Any, layer: Layer, x: Tensor, h: Tensor) -> list[Tensor]:
    f, g = layer.functions
    n = h.shape[1]
    if node.get("linear_before_reset", 0):
        whole = product(layer, h)
        gates, last = whole[:, : 2 * n], whole[:, 2 * n :]
    else:
        gates, last = product(layer, h, 0, 2 * n), None
    both = f(clipped(node, x[:, : 2 * n] + gates))
    z, r = both[:, :n], both[:, n:]
    last = product(layer, r * h, 2 * n) if last is None else r * last
    new = g(clipped(node, x[:, 2 * n :] + last))
    return [(1 - z) * new + z * h]


def lstm_step(node: Any, layer: Layer, x: Tensor, h: Tensor, c: Tensor) -> list[Tensor]:
    f, g, out = layer.functions
    n = h.shape[1]
    gates = x + product(layer, h)  # input, output, forget, cell
    i, o, forget, cell = (gates[:, k * n : (k + 1) * n] for k in range(4))
    p = layer.peepholes
    if p is not None:
        i, forget = i + p[:n] * c, forget + p[2 * n :] * c
    i, forget = f(clipped(node, i)), f(clipped(node, forget))
    if node.get("input_forget", 0):
        forget = 1 - i
    c = forget * c + i * g(clipped(node, cell))
    if p is not None:
        o = o + p[n : 2 * n] * c
    return [f(clipped(node, o)) * out(c), c]


@operator("RNN", since=7)
def rnn(
    node: Any,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    return run_layers(node, rnn_step, ["Tanh"], [h], x, w, r, b, lengths)


@operator("GRU", since=7)
def gru(
    node: Any,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
) -> tuple[Tensor, ...]:
    apart = bool(node.get("linear_before_reset", 0))
    return run_layers(node, gru_step, ["Sigmoid", "Tanh"], [h], x, w, r, b, lengths, apart=apart)


@operator("LSTM", since=7)
def lstm(
    node: Any,
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    h: Tensor | None = None,
    c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor, ...]:
    usual = ["Sigmoid", "Tanh", "Tanh"]
    return run_layers(node, lstm_step, usual, [h, c], x, w, r, b, lengths, peepholes)
