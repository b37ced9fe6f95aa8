"""Losses as modules; formulas, shapes and errors are those of the functions they call.

Every one takes `reduction`: "mean" (over elements, or over the batch where a loss says so), "sum" or "none".
"""

from __future__ import annotations

from typing import ClassVar

from .. import functional as F
from ..tensor import Tensor
from .module import Module


class Loss(Module):
    """What all losses share."""

    reductions: ClassVar[tuple[str, ...]] = ("mean", "sum", "none")

    def __init__(self, reduction: str):
        super().__init__()
        if reduction not in self.reductions:
            raise ValueError(f"reduction must be one of {', '.join(self.reductions)}, got {reduction!r}")
        self.reduction = reduction


class MSELoss(Loss):
    """(input - target)²."""

    def __init__(self, *, reduction: str = "mean"):
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(input, target, reduction=self.reduction)


class L1Loss(Loss):
    """|input - target|."""

    def __init__(self, *, reduction: str = "mean"):
        super().__init__(reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.l1_loss(input, target, reduction=self.reduction)


class SmoothL1Loss(Loss):
    """d² / (2 beta) where d = |input - target| is below beta, else d - beta / 2."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0):
        super().__init__(reduction)
        self.beta = beta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.smooth_l1_loss(input, target, reduction=self.reduction, beta=self.beta)


class HuberLoss(Loss):
    """d² / 2 where d = |input - target| is at most delta, else delta · (d - delta / 2)."""

    def __init__(self, *, reduction: str = "mean", delta: float = 1.0):
        super().__init__(reduction)
        self.delta = delta

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.huber_loss(input, target, reduction=self.reduction, delta=self.delta)


class CrossEntropyLoss(Loss):
    """Cross-entropy between the softmax of logits (N, C, …) and classes (N, …), or probabilities (N, C, …).

    Parameters
    ----------
    weight : Tensor, optional
        (C,); a class's share. It moves with the module.
    ignore_index : int
        Classes of this value count nothing.
    reduction : str
    label_smoothing : float
        How much of the target is spread evenly over all classes, in [0, 1].
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        *,
        ignore_index: int = -100,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class NLLLoss(Loss):
    """Minus the log-probability (N, C, …) of each target class (N, …).

    Parameters
    ----------
    weight : Tensor, optional
        (C,); a class's share. It moves with the module.
    ignore_index : int
        Classes of this value count nothing.
    reduction : str
    """

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, ignore_index: int = -100, reduction: str = "mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.nll_loss(
            input, target, self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )


class BCELoss(Loss):
    """Binary cross-entropy of probabilities; `weight` scales each loss and is broadcast."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, *, reduction: str = "mean"):
        super().__init__(reduction)
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy(input, target, self.weight, reduction=self.reduction)


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of sigmoid(input).

    Parameters
    ----------
    weight : Tensor, optional
        Scales each loss; broadcast.
    reduction : str
    pos_weight : Tensor, optional
        Scales the loss of positive targets; broadcast.
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self, weight: Tensor | None = None, *, reduction: str = "mean", pos_weight: Tensor | None = None
    ):
        super().__init__(reduction)
        self.register_buffer("weight", weight)
        self.register_buffer("pos_weight", pos_weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.binary_cross_entropy_with_logits(
            input, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class KLDivLoss(Loss):
    """target · (log target - input) of log-probabilities; "batchmean" gives the divergence itself."""

    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False):
        super().__init__(reduction)
        self.log_target = log_target

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return F.kl_div(input, target, reduction=self.reduction, log_target=self.log_target)
