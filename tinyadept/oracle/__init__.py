"""The oracle: how far any call of any op may lie from the truth, and random calls to hold it to that.

`case` is one call, its inputs laid out in memory as they come; the truth is the definition in float64
(integers: in the dtype itself). `bounds` says how far from it a result may lie, `checks` what must hold of
every call. `families` and `layout` draw calls at random: permuted, strided, reversed, repeated, with an
offset, and with NaN in the cells that nobody should read. `fuzzing` looks for calls that fail, `simpler` and
`program` show them, and `comparison` watches the calls that a program makes.

Drawing needs the package hypothesis; the rest needs NumPy alone.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .bounds import EPS, SUMS, TERMS, mismatch, ulps
from .case import MEANING, Case, Given
from .checks import (
    CHECKS,
    Wrong,
    check_backward,
    check_forward,
    check_gradient,
    check_second_gradient,
    first_wrong,
)
from .comparison import Comparison, first_difference

DRAWING = {
    "cases": "families",
    "FAMILIES": "families",
    "UNDRAWN": "families",
    "Drawer": "layout",
    "SPECIAL": "layout",
    "laid_out": "layout",
    "Failure": "fuzzing",
    "Outcome": "fuzzing",
    "drawn": "fuzzing",
    "fuzz_op": "fuzzing",
}


def __getattr__(name: str) -> Any:
    """What needs hypothesis is imported when it is asked for."""
    if name not in DRAWING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(drawing(DRAWING[name]), name)


def drawing(module: str) -> Any:
    """A module that draws.

    Raises
    ------
    ImportError
        If hypothesis is not there.
    """
    try:
        import_module("hypothesis")
    except ImportError as error:
        raise ImportError("fuzzing needs the package hypothesis: pip install 'tinyadept[fuzz]'") from error
    return import_module(f"{__name__}.{module}")


def fuzz(op: Any, device: str | None = None, examples: int = 100, seed: int = 0) -> bool:
    """Check an op on random calls: its result and gradients against its definition in float64, and its rules
    against differences.

    Shapes, dtypes, parameters, memory layouts and numbers are drawn as the op's family says. A call that
    fails is shrunk.

    Parameters
    ----------
    op : str, Op or what ``define`` returned
        Of any family whose calls can be drawn, from inside the package or not.
    device : str, optional
        ``"numpy"``, ``"vulkan"``, …; by default what TINYADEPT_DEVICE says.
    examples : int
        Calls for each of the checks: forward, backward, gradient and second gradient.
    seed : int
        Another seed draws other calls, the same seed the same.

    Returns
    -------
    bool
        True; anything else raises.

    Raises
    ------
    AssertionError
        If a check fails. The message holds a program for each, which shows the failure when it is run.
    ValueError
        If there is no such op, or nobody says how its calls are drawn.
    ImportError
        If the package hypothesis is missing.
    """
    outcome = drawing("fuzzing").fuzz_op(op, device, examples, seed)
    if outcome.failures:
        programs = "\n\n".join(failure.program for failure in outcome.failures)
        raise AssertionError(f"{outcome.op} fails {len(outcome.failures)} of its checks:\n\n{programs}")
    return True
