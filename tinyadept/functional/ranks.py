"""One function for one, two and three spatial axes, which users call by three names."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def of_rank(
    function: Callable[Concatenate[int, Arguments], Result], rank: int
) -> Callable[Arguments, Result]:
    """`pool(2, x, …)` as `pool2d(x, …)`."""

    @wraps(function)
    def fixed(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        return function(rank, *arguments, **named)

    fixed.__name__ = fixed.__qualname__ = f"{function.__name__}{rank}d"
    whole = signature(function)
    fixed.__signature__ = whole.replace(parameters=list(whole.parameters.values())[1:])  # type: ignore
    del fixed.__wrapped__
    return fixed


def of_ranks(
    function: Callable[Concatenate[int, Arguments], Result],
) -> tuple[Callable[Arguments, Result], Callable[Arguments, Result], Callable[Arguments, Result]]:
    """A function whose first argument is the number of spatial axes, for one, two and three of them.

    Each has the name with 1d, 2d or 3d behind it, the documentation, and the other parameters.
    """
    return of_rank(function, 1), of_rank(function, 2), of_rank(function, 3)
