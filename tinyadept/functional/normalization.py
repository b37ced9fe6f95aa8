"""Normalisations: each is x̂ = (x - mean) / √(variance + eps) over other axes, then scaled and shifted."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from .. import tape
from ..ops import norm as rows
from ..ops.elementwise import addcmul, lerp
from ..ops.table import apply_into, lift
from ..tensor import Tensor


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Over the last axes (Ba, Kiros and Hinton, 2016).

    Raises
    ------
    ValueError
        If the last axes of the input, or a parameter, have another shape than `normalized_shape`.
    """
    axes = last_axes("layer_norm", input, normalized_shape, weight, bias)
    return scaled(input, weight, bias, line_of(input, axes), axes, eps)


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """x / √(mean x² + eps) over the last axes (Zhang and Sennrich, 2019); eps is the dtype's by default."""
    axes = last_axes("rms_norm", input, normalized_shape, weight, None)
    if eps is None:
        eps = 2.0**-23 if input.dtype.itemsize == 4 else 2.0**-52
    if weight is None:
        return rows.rms_normalize(input, axes=axes, eps=eps)
    return rows.rms_normalize(input, weight.reshape(*line_of(input, axes)), axes=axes, eps=eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Over groups of channels and all that follows them (Wu and He, 2018): (N, C, …).

    Raises
    ------
    ValueError
        If the channels do not divide into groups.
    """
    if input.ndim < 2 or num_groups < 1 or input.shape[1] % num_groups:
        raise ValueError(
            f"group_norm: cannot divide the channels of shape {input.shape} into {num_groups} groups"
        )
    n, c, *rest = input.shape
    check_channels(input, weight, bias)
    grouped = input.reshape(n, num_groups, c // num_groups, prod(rest))
    line = (1, num_groups, c // num_groups, 1)
    return scaled(grouped, weight, bias, line, (2, 3), eps).reshape(*input.shape)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Over the batch and all but the channel axis (Ioffe and Szegedy, 2015): (N, C, …).

    Training normalises by the batch's own statistics and moves the running ones, if given, towards them in
    place (the variance unbiased); otherwise the running ones are used.

    Raises
    ------
    ValueError
        If training sees a single value per channel, or the running statistics are needed and missing.
    """
    if input.ndim < 2:
        raise ValueError(f"batch_norm takes an input (N, C, …), got shape {input.shape}")
    channels = input.shape[1]
    for name, given in (
        ("weight", weight),
        ("bias", bias),
        ("running_mean", running_mean),
        ("running_var", running_var),
    ):
        if given is not None and given.shape != (channels,):
            raise ValueError(f"batch_norm: {name} of shape {given.shape} where ({channels},) is expected")
    axes = tuple(axis for axis in range(input.ndim) if axis != 1)
    if not training:
        if running_mean is None or running_var is None:
            raise ValueError("batch_norm without training needs running_mean and running_var")
        scale = (running_var + eps).rsqrt()
        scale = scale if weight is None else scale * weight
        shift = addcmul(0.0 if bias is None else bias, -running_mean, scale)
        line = (-1,) + (1,) * (input.ndim - 2)
        return addcmul(shift.reshape(*line), input, scale.reshape(*line))
    if input.numel() == channels:
        raise ValueError(
            f"batch_norm: training needs more than one value per channel, got shape {input.shape}"
        )
    line = (1, channels, *(1,) * (input.ndim - 2))
    w, b = (
        lift(value, input.dtype, input.backend).reshape(*(1,) * input.ndim) if p is None else p.reshape(*line)
        for p, value in ((weight, 1.0), (bias, 0.0))
    )
    with tape.no_grad():
        moments = rows.moments(input, axes=axes)  # (1, C, 1, …, 4)
    out = rows.normalize(input, w, b, moments, axes=axes, eps=eps)
    with tape.no_grad():  # afterwards, since a device has less to do for them
        for running, word in ((running_mean, 0), (running_var, 3)):
            if running is not None:
                apply_into(
                    lerp.op, running, (running, moments[..., word].reshape(channels)), {"weight": momentum}
                )
    return out


def instance_norm(
    input: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """Over each channel of each sample by itself: (N, C, …)."""
    check_channels(input, weight, bias)
    axes, line = tuple(range(2, input.ndim)), (1, -1, *(1,) * (input.ndim - 2))
    return scaled(input, weight, bias, line, axes, eps)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    """Vectors along an axis divided by their p-norm, or by eps where that is larger."""
    return input / input.norm(p, dim, keepdim=True).clamp(min=eps)


def last_axes(
    name: str, x: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None
) -> tuple[int, ...]:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if not shape or x.shape[x.ndim - len(shape) :] != shape or len(shape) > x.ndim:
        raise ValueError(f"{name}: an input of shape {x.shape} does not end in the normalised shape {shape}")
    for given in (weight, bias):
        if given is not None and given.shape != shape:
            raise ValueError(f"{name}: a parameter of shape {given.shape} where {shape} is expected")
    return tuple(range(x.ndim - len(shape), x.ndim))


def line_of(x: Tensor, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a parameter of the last axes, with ones before."""
    lead = x.ndim - len(axes)
    return (*(1,) * lead, *x.shape[lead:])


def scaled(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, line: tuple, axes: tuple, eps: float
) -> Tensor:
    """x̂ · weight + bias, both reshaped to `line`."""
    if weight is None:
        x = rows.normalize(x, axes=axes, eps=eps)
        return x if bias is None else x + bias.reshape(*line)
    given = [p.reshape(*line) for p in (weight, bias) if p is not None]
    return rows.normalize(x, *given, axes=axes, eps=eps)


def affine(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def check_channels(x: Tensor, *parameters: Tensor | None) -> None:
    """Refuse parameters that do not have one entry for each entry of axis 1."""
    for given in parameters:
        if given is not None and given.shape != x.shape[1:2]:
            raise ValueError(f"a parameter of shape {given.shape} for {x.shape[1]} channels")
