"""Are the gradients right? Compare them with differences of the function itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any

import numpy as np

from . import dtypes, tape
from .tensor import Tensor


def gradcheck(
    function: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    order: int = 1,
    directions: int = 2,
    step: float = 1e-6,
    tolerance: float = 1e-5,
    seed: int = 0,
) -> bool:
    """Check gradients against central differences along random directions, in float64.

    For a direction u of the inputs and v of the outputs, ⟨v, (f(x + hu) - f(x - hu)) / 2h⟩ must equal ⟨Jᵀv,
    u⟩. One direction tests every element at once.

    Parameters
    ----------
    function : callable
        Takes the inputs and returns a tensor or a tuple of tensors.
    inputs : Tensor or sequence of Tensor
        Those that are float64 and require gradients are checked.
    order : int
        1, or 2 to check the gradient's own gradient as well.
    directions : int
        How many random directions are tried.
    step : float
        The h above.
    tolerance : float
        Allowed difference, relative to the size of the terms.
    seed : int
        Of the directions.

    Returns
    -------
    bool
        True; anything else raises.

    Raises
    ------
    TypeError
        If an input that requires a gradient is not float64.
    ValueError
        If there is nothing to check: no input requires a gradient, or no output is floating point.
    AssertionError
        If a gradient is wrong or no finite number; the message holds both numbers.
    """
    inputs = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    if not any(x.requires_grad for x in inputs):
        raise ValueError(f"gradcheck has nothing to check: none of {len(inputs)} inputs requires a gradient")
    for position, x in enumerate(inputs):
        if x.requires_grad and x.dtype != dtypes.float64:
            raise TypeError(
                f"gradcheck needs float64 for differences, and input {position} is {x.dtype.name}"
            )
    rng = np.random.default_rng(seed)
    for _ in range(directions):
        check_direction(function, inputs, rng, step, tolerance)
    if order > 1:
        first, extra = first_order(function, inputs, rng)
        gradcheck(first, extra, order - 1, directions, step, tolerance, seed + 1)
    return True


def outputs_of(function: Callable, inputs: Sequence[Tensor]) -> list[Tensor]:
    out = function(*inputs)
    outs = [out] if isinstance(out, Tensor) else list(out)
    return [y for y in outs if y.is_floating_point]


def check_direction(
    function: Callable, inputs: list[Tensor], rng: Any, step: float, tolerance: float
) -> None:
    checked = [x.requires_grad for x in inputs]
    along = [rng.standard_normal(x.shape) if flag else None for x, flag in zip(inputs, checked, strict=True)]

    def shifted(h: float) -> list[np.ndarray]:
        moved = [
            x if u is None else Tensor(x.detach().numpy() + h * u, x.dtype, x.backend)
            for x, u in zip(inputs, along, strict=True)
        ]
        return [y.detach().numpy() for y in outputs_of(function, moved)]

    fresh = [x.detach().requires_grad_() if flag else x for x, flag in zip(inputs, checked, strict=True)]
    outs = outputs_of(function, fresh)
    if not outs:
        raise ValueError("gradcheck has nothing to check: the function returned no floating-point tensor")
    into = [rng.standard_normal(y.shape) for y in outs]
    numeric = sum(
        (v * (up - down)).sum() for v, up, down in zip(into, shifted(step), shifted(-step), strict=True)
    ) / (2 * step)  # fmt: skip
    leaves = [x for x, flag in zip(fresh, checked, strict=True) if flag]
    flowing = [(y, Tensor(v, y.dtype, y.backend)) for y, v in zip(outs, into, strict=True) if y.requires_grad]
    if flowing:
        ys, vs = zip(*flowing, strict=True)
        found = tape.grad(ys, leaves, vs, allow_unused=True)
    else:
        found = [None] * len(leaves)
    terms = [
        g.detach().numpy() * u
        for g, u in zip(found, (u for u in along if u is not None), strict=True)
        if g is not None
    ]
    analytic = sum(term.sum() for term in terms)
    size = max(1.0, abs(numeric), sum(np.abs(term).sum() for term in terms))
    if not (isfinite(numeric - analytic) and abs(numeric - analytic) <= tolerance * size):
        raise AssertionError(
            f"the gradient along a random direction is {analytic:.9g}, differences say {numeric:.9g}"
        )


def first_order(function: Callable, inputs: list[Tensor], rng: Any) -> tuple[Callable, list[Tensor]]:
    """The gradient as a function of inputs and incoming gradient, for another round of checking."""
    outs = outputs_of(function, inputs)
    incoming = [
        Tensor(rng.standard_normal(y.shape), y.dtype, y.backend, True) for y in outs if y.requires_grad
    ]

    def gradients(*everything: Tensor) -> list[Tensor]:
        xs, vs = everything[: len(inputs)], everything[len(inputs) :]
        with tape.enable_grad():
            fresh = [
                x if x.requires_grad or not flag else x.detach().requires_grad_()
                for x, flag in zip(xs, needed)
            ]
            ys = [y for y in outputs_of(function, fresh) if y.requires_grad]
            leaves = [x for x, flag in zip(fresh, needed) if flag]
            found = tape.grad(ys, leaves, list(vs), create_graph=True, allow_unused=True)
        return [g for g in found if g is not None]

    needed = [x.requires_grad for x in inputs]
    return gradients, [*inputs, *incoming]
