"""Fuzzing: random calls of an op, each checked, and of those that fail the smallest one as a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from .. import device as devices
from ..ops.table import Op, registry
from .case import Case
from .checks import CHECKS
from .families import FAMILIES, UNDRAWN, cases
from .layout import KINKED
from .program import program
from .simpler import simpler

EXAMPLES = 100
PATIENT = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)


@dataclass(frozen=True)
class Failure:
    """What fuzzing found.

    Attributes
    ----------
    op, check : str
    what : str
        The first wrong element with both values, or what was raised.
    program : str
        Shows it.
    """

    op: str
    check: str
    what: str
    program: str


@dataclass
class Outcome:
    """Of fuzzing one op: how many calls each check saw, and what failed."""

    op: str
    examples: dict[str, int] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)


def op_named(op: Any) -> Op:
    """An op from its name, its row or itself.

    Raises
    ------
    ValueError
        If there is none, or if its family has no draw.
    """
    found = registry.get(op) if isinstance(op, str) else getattr(op, "op", op)
    if not isinstance(found, Op):
        raise ValueError(
            f"there is no op {op!r}: expected a name in tinyadept.ops.registry, or what define() returned"
        )
    if found.family.name not in FAMILIES:
        raise ValueError(
            f"{found.name}: nobody says how calls of the family {found.family.name!r} are drawn; "
            "add a draw to tinyadept.oracle.families.FAMILIES"
        )
    return found


def drawn() -> list[Op]:
    """Every op of the registry that can be fuzzed."""
    return [op for op in registry.values() if op.family.name not in UNDRAWN]


def checks_of(op: Op) -> list[str]:
    """Which checks an op gets: those of gradients only where some flows."""
    return [check for check in CHECKS if check == "forward" or any(op.vjps)]


def fuzz_op(
    op: Any,
    device: Any = None,
    examples: int = EXAMPLES,
    seed: int = 0,
    checks: Sequence[str] = tuple(CHECKS),
) -> Outcome:
    """Fuzz one op; see `tinyadept.fuzz`. Of its checks only those named are made."""
    op, device = op_named(op), devices.resolve(device).name
    outcome = Outcome(op.name)
    for check in checks_of(op):
        if check not in checks:
            continue
        seen, failure = search(op, check, device, examples, seed)
        outcome.examples[check] = seen
        outcome.failures += [failure] if failure else []
    return outcome


def search(op: Op, check: str, device: str, examples: int, seed: int) -> tuple[int, Failure | None]:
    """How many calls were checked, and the smallest that fails."""
    forward = check == "forward"
    failed: list[tuple[Case, int, Exception]] = []
    seen = 0

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples, database=None, deadline=None, derandomize=False, report_multiple_bugs=False,
        phases=[Phase.generate, Phase.shrink], suppress_health_check=PATIENT,
    )  # fmt: skip
    @given(cases(op, extremes=forward), st.integers(0, 999))
    def attempt(case: Case, number: int) -> None:
        nonlocal seen
        seen += not failed
        try:
            CHECKS[check](case, device, number)
        except Exception as error:
            failed.append((case, number, error))
            raise

    try:
        attempt()
    except Exception:
        if not failed:
            raise  # drawing itself fails
    if not failed:
        return seen, None
    case, number, error = failed[-1]

    def fails(case: Case) -> bool:
        try:
            CHECKS[check](case, device, number)
        except Exception as other:
            return type(other) is type(error)
        return False

    if op.name not in KINKED or forward:
        case = simpler(case, fails, kinks=forward)
    what, text = program(case, check, device, number, error)
    return seen, Failure(op.name, check, what, text)
