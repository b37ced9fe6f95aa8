"""Initial values, written over a tensor: constants, and random numbers that suit a layer's size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from math import erf, prod, sqrt
from typing import Any, ParamSpec

from ..ops.elementwise import where
from ..random import Generator, rand, randn
from ..tape import no_grad
from ..tensor import Tensor

P = ParamSpec("P")
skipping: list[bool] = []
GAINS = {"relu": sqrt(2.0), "tanh": 5 / 3, "selu": 3 / 4}
LINEAR = (
    "linear",
    "sigmoid",
    *(f"{kind}{rank}d" for kind in ("conv", "conv_transpose") for rank in (1, 2, 3)),
)


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much weights must be larger for a nonlinearity to keep the scale of what flows through it.

    Parameters
    ----------
    nonlinearity : str
        "linear", "sigmoid", "tanh", "relu", "leaky_relu", "selu", or the name of a convolution.
    param : float, optional
        The slope of "leaky_relu", 0.01 by default.

    Raises
    ------
    ValueError
        If the nonlinearity is another.
    """
    if nonlinearity in LINEAR:
        return 1.0
    if nonlinearity == "leaky_relu":
        return sqrt(2 / (1 + (0.01 if param is None else param) ** 2))
    if nonlinearity not in GAINS:
        known = ", ".join(("leaky_relu", *GAINS, *LINEAR))
        raise ValueError(f"no gain is known for {nonlinearity!r}: expected one of {known}")
    return GAINS[nonlinearity]


@contextmanager
def skipped() -> Iterator[None]:
    """Inside, nothing is written: for modules whose values are loaded next."""
    skipping.append(True)
    try:
        yield
    finally:
        skipping.pop()


def writing(write: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """An initialiser that the tape does not see, and that `skipped` turns off."""

    @wraps(write)
    def initialise(*args: P.args, **kwargs: P.kwargs) -> Tensor:
        if skipping:
            return args[0]  # type: ignore[return-value]
        with no_grad():
            return write(*args, **kwargs)

    return initialise


def fans(tensor: Tensor) -> tuple[int, int]:
    """How many inputs one output of a weight (out, in, *kernel) sees, and how many outputs one input reaches.

    Raises
    ------
    ValueError
        If there are fewer than two axes.
    """
    if tensor.ndim < 2:
        raise ValueError(f"a weight (out, in, …) has at least two axes, got shape {tensor.shape}")
    field = prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


@writing
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform numbers between a and b."""
    return tensor.copy_(rand(tensor.shape, generator=generator, device=tensor.backend) * (b - a) + a)


@writing
def normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None
) -> Tensor:
    """Normal numbers of this mean and standard deviation."""
    return tensor.copy_(randn(tensor.shape, generator=generator, device=tensor.backend) * std + mean)


@writing
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers, drawn again where they lie outside [a, b].

    Raises
    ------
    ValueError
        If less than a tenth of the distribution lies inside.
    """
    inside = (erf((b - mean) / std / sqrt(2)) - erf((a - mean) / std / sqrt(2))) / 2
    if inside < 0.1:
        raise ValueError(
            f"trunc_normal_: [{a}, {b}] holds {max(inside, 0):.2%} of a normal distribution "
            f"of mean {mean} and std {std}, expected at least 10%"
        )
    normal_(tensor, mean, std, generator)
    while bool((outside := (tensor < a) | (tensor > b)).any()):
        again = randn(tensor.shape, generator=generator, device=tensor.backend) * std + mean
        tensor.copy_(where(outside, again.to(tensor.dtype), tensor))
    return tensor


@writing
def constant_(tensor: Tensor, val: Any) -> Tensor:
    """One number everywhere."""
    return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    return constant_(tensor, 0)


def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    return constant_(tensor, 1)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform of variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010); see `fans`."""
    bound = sqrt(3.0) * gain * sqrt(2 / max(sum(fans(tensor)), 1))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal of variance gain² · 2 / (fan_in + fan_out) (Glorot and Bengio, 2010); see `fans`."""
    return normal_(tensor, 0.0, gain * sqrt(2 / max(sum(fans(tensor)), 1)), generator)


def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Uniform of variance gain² / fan (He et al., 2015).

    Parameters
    ----------
    tensor : Tensor
        A weight (out, in, *kernel).
    a : float
        The slope of "leaky_relu".
    mode : str
        "fan_in" keeps the scale of what flows forward, "fan_out" that of the gradients.
    nonlinearity : str
        What follows the layer; see `calculate_gain`.
    generator : Generator, optional

    Raises
    ------
    ValueError
        If there are fewer than two axes, or the mode or nonlinearity is another.
    """
    bound = sqrt(3.0) * kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor,
    a: float = 0.0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal of variance gain² / fan (He et al., 2015); parameters and errors as in `kaiming_uniform_`."""
    return normal_(tensor, 0.0, kaiming_std(tensor, a, mode, nonlinearity), generator)


def kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise ValueError(f"mode must be 'fan_in' or 'fan_out', got {mode!r}")
    fan = fans(tensor)[mode == "fan_out"]
    return calculate_gain(nonlinearity, a) / sqrt(max(fan, 1))
