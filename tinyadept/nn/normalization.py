"""Layers that bring activations to a common scale and then learn the scale again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from .. import functional as F
from ..creation import ones, zeros
from ..dtypes import int32
from ..tape import no_grad
from ..tensor import Tensor
from . import init
from .module import Module, Parameter


class BatchNorm(Module):
    """What `BatchNorm1d` and `BatchNorm2d` share."""

    ranks: ClassVar[tuple[int, ...]]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
    ):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        self.weight = Parameter(ones(num_features)) if affine else None
        self.bias = Parameter(zeros(num_features)) if affine else None
        self.register_buffer("running_mean", zeros(num_features) if track_running_stats else None)
        self.register_buffer("running_var", ones(num_features) if track_running_stats else None)
        self.register_buffer("num_batches_tracked", zeros((), dtype=int32) if track_running_stats else None)

    def reset_running_stats(self) -> None:
        """Mean 0 and variance 1 again, as before any batch."""
        if (
            self.running_mean is not None
            and self.running_var is not None
            and self.num_batches_tracked is not None
        ):
            init.zeros_(self.running_mean)
            init.ones_(self.running_var)
            init.zeros_(self.num_batches_tracked)

    def reset_parameters(self) -> None:
        """Scale 1, shift 0, and no running statistics."""
        self.reset_running_stats()
        if self.weight is not None and self.bias is not None:
            init.ones_(self.weight)
            init.zeros_(self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim not in self.ranks or input.shape[1] != self.num_features:
            axes = " or ".join(map(str, self.ranks))
            raise ValueError(
                f"{type(self).__name__} takes {axes} axes, the second of {self.num_features} channels, "
                f"got shape {input.shape}"
            )
        momentum = self.momentum or 0.0
        if self.training and self.num_batches_tracked is not None:
            with no_grad():
                self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1 / self.num_batches_tracked.item()
        training = self.training or self.running_mean is None
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, training, momentum, self.eps
        )

    def extra_repr(self) -> str:
        return (
            f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
            f"track_running_stats={self.track_running_stats}"
        )


class BatchNorm1d(BatchNorm):
    """Each channel brought to mean 0 and variance 1 over the batch: (N, C) or (N, C, L).

    Parameters and errors are those of `BatchNorm2d`.
    """

    ranks = (2, 3)


class BatchNorm2d(BatchNorm):
    """Each channel of (N, C, H, W) brought to mean 0 and variance 1 over the batch (Ioffe and Szegedy, 2015).

    In training by the batch's own mean and (biased) variance, while the running mean and (unbiased) variance
    move towards them; in use by the running ones.

    Parameters
    ----------
    num_features : int
        Channels, C.
    eps : float
        Added to the variance.
    momentum : float or None
        How far the running statistics move with each batch; None makes them the averages over all batches.
    affine : bool
        Whether to learn a scale and a shift for each channel.
    track_running_stats : bool
        Whether to keep running statistics; without them those of the batch are always used.

    Raises
    ------
    ValueError
        On use, if the input has other axes or channels, or training sees a single value per channel.
    """

    ranks = (4,)


class InstanceNorm2d(Module):
    """Each channel of each sample of (N, C, H, W) brought to mean 0 and variance 1 (Ulyanov et al., 2016).

    Parameters
    ----------
    num_features : int
        Channels, C.
    eps : float
        Added to the variance.
    affine : bool
        Whether to learn a scale and a shift for each channel.

    Raises
    ------
    ValueError
        On use, if the input has other axes or channels.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_features: int, eps: float = 1e-5, *, affine: bool = False):
        super().__init__()
        self.num_features, self.eps, self.affine = num_features, eps, affine
        self.weight = Parameter(ones(num_features)) if affine else None
        self.bias = Parameter(zeros(num_features)) if affine else None

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim != 4 or input.shape[1] != self.num_features:
            raise ValueError(f"InstanceNorm2d takes (N, {self.num_features}, H, W), got shape {input.shape}")
        return F.instance_norm(input, weight=self.weight, bias=self.bias, eps=self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, affine={self.affine}"


class LayerNorm(Module):
    """The last axes brought to mean 0 and variance 1 (Ba, Kiros and Hinton, 2016).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Lengths of the last axes, which are also the shape of scale and shift.
    eps : float
        Added to the variance.
    elementwise_affine : bool
        Whether to learn a scale.
    bias : bool
        Whether to learn a shift as well.

    Raises
    ------
    ValueError
        On use, if the input does not end in these lengths.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
    ):
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape)) if elementwise_affine else None
        self.bias = Parameter(zeros(self.normalized_shape)) if elementwise_affine and bias else None

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class RMSNorm(Module):
    """The last axes divided by √(mean x² + eps) (Zhang and Sennrich, 2019).

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Lengths of the last axes, which are also the shape of the scale.
    eps : float, optional
        The dtype's own epsilon by default.
    elementwise_affine : bool
        Whether to learn a scale.

    Raises
    ------
    ValueError
        On use, if the input does not end in these lengths.
    """

    weight: Parameter | None

    def __init__(
        self, normalized_shape: int | Sequence[int], eps: float | None = None, elementwise_affine: bool = True
    ):
        super().__init__()
        self.normalized_shape = as_shape(normalized_shape)
        self.eps, self.elementwise_affine = eps, elementwise_affine
        self.weight = Parameter(ones(self.normalized_shape)) if elementwise_affine else None

    def forward(self, input: Tensor) -> Tensor:
        return F.rms_norm(input, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Groups of channels of (N, C, …) brought to mean 0 and variance 1 (Wu and He, 2018).

    Parameters
    ----------
    num_groups, num_channels : int
    eps : float
        Added to the variance.
    affine : bool
        Whether to learn a scale and a shift for each channel.

    Raises
    ------
    ValueError
        If the channels do not divide into groups, or, on use, the input has other channels.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True):
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ValueError(f"{num_channels} channels do not divide into {num_groups} groups")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        self.weight = Parameter(ones(num_channels)) if affine else None
        self.bias = Parameter(zeros(num_channels)) if affine else None

    def forward(self, input: Tensor) -> Tensor:
        if input.ndim < 2 or input.shape[1] != self.num_channels:
            raise ValueError(f"GroupNorm takes (N, {self.num_channels}, …), got shape {input.shape}")
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"


def as_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
