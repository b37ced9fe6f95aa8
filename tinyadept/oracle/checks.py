"""What must hold of every call of an op, forwards and backwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import dtypes
from ..gradcheck import gradcheck
from ..ops.table import apply
from ..tensor import Tensor, tensor
from .bounds import mismatch, ulps
from .case import Case

STEP, SLACK = 1e-6, 1e-5  # of central differences, and how far a gradient may lie from them
SECOND_SLACK = 1e-4
RELATIVE, ABSOLUTE = 1e-4, 2e-5  # of float32 gradients: relative to the element, and to the largest one
MOST = 8  # inputs whose views a message has


class Wrong(AssertionError):
    """A call whose result is not what it should be.

    Attributes
    ----------
    case : Case
    what : str
        What is wrong with it.
    """

    def __init__(self, case: Case, what: str):
        lines = [f"{case.op.name}: {what}", f"parameters: {case.params}"]
        lines += [f"input {at}: {x.memory.dtype} of {x.view}" for at, x in enumerate(case.inputs[:MOST])]
        lines += [f"and {len(case.inputs) - MOST} more inputs"] if len(case.inputs) > MOST else []
        super().__init__("\n    ".join(lines))
        self.case, self.what = case, what

    def __reduce__(self) -> tuple:
        return (type(self), (self.case, self.what))


def first_wrong(got: np.ndarray, truth: np.ndarray, wrong: np.ndarray) -> str:
    """The first wrong element, both values, and how far they lie apart."""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if got.ndim else ()
    apart = ulps(got[at], truth[at])
    unit = "ulps" if got.dtype.kind == "f" else "apart"
    count = int(np.count_nonzero(wrong))
    return (
        f"element {at} is {got[at].item()!r}, expected {truth[at].item()!r} ({apart:.4g} {unit}); "
        f"{count} of {got.size} {'is' if count == 1 else 'are'} wrong"
    )


def check_forward(case: Case, device: Any = "numpy", seed: int = 0) -> None:
    """The result is the definition's in float64, within the bound, and no input has changed.

    Raises
    ------
    Wrong
    """
    out, inputs = case.run(device)
    got, truth = out.detach().numpy(), case.truth()
    if out.device == "numpy" and case.op.family.name != "move":
        aliased = [at for at, x in enumerate(inputs) if np.shares_memory(got, x.buffer.data)]
        if aliased:
            raise Wrong(case, f"the result shares memory with input {aliased[0]}")
    if got.shape != truth.shape:
        raise Wrong(case, f"the result has shape {got.shape}, expected {truth.shape}")
    wrong = mismatch(got, truth, case.bound(truth))
    if wrong.any():
        raise Wrong(case, first_wrong(got, truth, wrong))
    for position, (x, before) in enumerate(zip(inputs, case.inputs, strict=True)):
        changed = mismatch(x.numpy(), before.values, 0)
        if changed.any():
            raise Wrong(
                case, f"input {position} was changed: {first_wrong(x.numpy(), before.values, changed)}"
            )


def incoming(out: Tensor) -> np.ndarray:
    """The gradient that a result gets: another one for each element."""
    return np.linspace(-1, 1, out.numel()).reshape(out.shape)


def gradients(case: Case, device: Any, dtype: Any) -> list[np.ndarray | None] | None:
    """Of each input; None where differences cannot be taken, as at infinities."""
    out, inputs = case.run(device, dtype=dtype, requires_grad=True)
    if not out.requires_grad or not np.isfinite(out.detach().numpy()).all():
        return None
    before = incoming(out).astype(dtype)
    g = tensor(before, dtype=dtype, device=device)
    out.backward(g)
    changed = mismatch(g.numpy(), before, 0)
    if changed.any():
        raise Wrong(
            case, f"a rule changed the gradient that it got: {first_wrong(g.numpy(), before, changed)}"
        )
    return [None if x.grad is None else x.grad.numpy() for x in inputs]


def check_backward(case: Case, device: Any = "numpy", seed: int = 0) -> None:
    """Gradients in float32 are those in float64 on the reference.

    Raises
    ------
    Wrong
    """
    if case.params.get("dtype", dtypes.float32) == dtypes.float64:
        return  # a cast that only the reference has
    narrow, wide = (gradients(case, *where) for where in ((device, np.float32), ("numpy", np.float64)))
    for position, (got, truth) in enumerate(zip(narrow or (), wide or (), strict=False)):
        if got is None or truth is None:
            continue
        allowed = RELATIVE * np.abs(truth) + ABSOLUTE * np.abs(truth).max(initial=1.0)
        wrong = mismatch(got, truth, allowed)
        if wrong.any():
            raise Wrong(case, f"the gradient of input {position}: {first_wrong(got, truth, wrong)}")


def smooth(case: Case) -> tuple[Callable[..., Tensor], list[Tensor]] | None:
    """The op as a function of its float inputs, in float64, and those; None where it has no differences."""
    where = [position for position, x in enumerate(case.inputs) if x.is_float]
    fixed = [x.on("numpy") for x in case.inputs]
    wide = [tensor(case.inputs[at].values, dtypes.float64, "numpy", requires_grad=True) for at in where]

    def function(*floats: Tensor) -> Tensor:
        inputs = list(fixed)
        for position, x in zip(where, floats, strict=True):
            inputs[position] = x
        return apply(case.op, tuple(inputs), dict(case.params))

    if not wide:
        return None
    out = function(*wide)
    return (function, wide) if out.is_floating_point and np.isfinite(out.detach().numpy()).all() else None


def check_gradient(case: Case, device: Any = "numpy", seed: int = 0) -> None:
    """The rule agrees with differences of the op itself, on the reference and in float64.

    Raises
    ------
    Wrong
    """
    if (ready := smooth(case)) is not None:
        try:
            gradcheck(*ready, directions=1, step=STEP, tolerance=SLACK, seed=seed)
        except AssertionError as error:
            raise Wrong(case, str(error)) from error


def check_second_gradient(case: Case, device: Any = "numpy", seed: int = 0) -> None:
    """So does the gradient of the gradient.

    Raises
    ------
    Wrong
    """
    if (ready := smooth(case)) is not None:
        try:
            gradcheck(*ready, order=2, directions=1, step=STEP, tolerance=SECOND_SLACK, seed=seed)
        except AssertionError as error:
            raise Wrong(case, f"second order: {error}") from error


Check = Callable[[Case, Any, int], None]
CHECKS: dict[str, Check] = {
    "forward": check_forward,
    "backward": check_backward,
    "gradient": check_gradient,
    "second gradient": check_second_gradient,
}
