"""Losses. `reduction` is "mean", "sum" or "none" (one value per element or sample)."""

from __future__ import annotations

from math import exp, log, prod

from .. import dtypes
from ..creation import zeros_like
from ..ops import elementwise
from ..ops.elementwise import where
from ..ops.entropy import cross_entropy as cross_entropy_rows
from ..ops.index import put_along, take
from ..ops.table import broadcast
from ..tensor import Tensor
from .pointwise import softplus


def reduced(loss: Tensor, reduction: str) -> Tensor:
    if reduction == "mean":
        return loss.mean()
    if reduction == "sum":
        return loss.sum()
    if reduction == "none":
        return loss
    raise ValueError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")


def mse_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """(input - target)²."""
    return reduced(elementwise.square(input - target), reduction)


def l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean") -> Tensor:
    """|input - target|."""
    return reduced(elementwise.abs(input - target), reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """d² / (2 beta) where d = |input - target| is below beta, else d - beta / 2 (Girshick, 2015).

    Raises
    ------
    ValueError
        If beta is negative.
    """
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction=reduction)
    distance = elementwise.abs(input - target)
    return reduced(
        where(distance < beta, elementwise.square(distance) * (0.5 / beta), distance - 0.5 * beta), reduction
    )


def huber_loss(input: Tensor, target: Tensor, *, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """d² / 2 where d = |input - target| is at most delta, else delta · (d - delta / 2) (Huber, 1964).

    Raises
    ------
    ValueError
        If delta is not positive.
    """
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}")
    distance = elementwise.abs(input - target)
    loss = where(distance <= delta, elementwise.square(distance) * 0.5, (distance - 0.5 * delta) * delta)
    return reduced(loss, reduction)


def kl_div(input: Tensor, target: Tensor, *, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """target · (log target - input), of log-probabilities and target probabilities (or their logarithms).

    Besides the usual reductions "batchmean" divides the sum by the batch, which is the divergence itself.
    """
    loss = target.exp() * (target - input) if log_target else xlogy(target, target) - target * input
    if reduction == "batchmean":
        return loss.sum() / loss.shape[0]
    return reduced(loss, reduction)


def xlogy(x: Tensor, y: Tensor) -> Tensor:
    """x · log y, and 0 where x is 0 and log y is infinite."""
    return x * where((x == 0) & ((y == 0) | (y == float("inf"))), 1.0, y).log()


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-(target · log p + (1 - target) · log(1 - p)) of probabilities p, the logarithms no lower than -100.

    Raises
    ------
    ValueError
        If the shapes differ, or a probability lies outside [0, 1].
    """
    same_shape("binary_cross_entropy", input, target)
    if input.numel() and not bool(((input >= 0) & (input <= 1)).all()):
        raise ValueError(
            "binary_cross_entropy takes probabilities between 0 and 1; logits go to ..._with_logits"
        )
    loss = -(target * floored_log(input) + (1 - target) * floored_log(1 - input))
    return reduced(loss if weight is None else loss * weight, reduction)


def floored_log(p: Tensor) -> Tensor:
    """log p, but no lower than -100; the slope there is 10¹², as steep as PyTorch lets it become."""
    low = p <= exp(-100)
    return where(low, p * 1e12 - 100.0, where(low, 1.0, p).log())


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """Binary cross-entropy of sigmoid(input), in the form that cannot overflow.

    Parameters
    ----------
    input, target : Tensor
        Of one shape.
    weight : Tensor, optional
        Scales each loss; broadcast.
    reduction : str
    pos_weight : Tensor, optional
        Scales the loss of positive targets; broadcast.
    """
    same_shape("binary_cross_entropy_with_logits", input, target)
    if pos_weight is None:
        loss = elementwise.bce_logits(input, target)
    else:
        loss = (1 - target) * input + (1 + (pos_weight - 1) * target) * softplus(
            -input, threshold=float("inf")
        )
    return reduced(loss if weight is None else loss * weight, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log-likelihood: minus the log-probability of the target class.

    Parameters
    ----------
    input : Tensor
        Log-probabilities, (C,), (N, C) or (N, C, …).
    target : Tensor
        Integer classes, the input's shape without C.
    weight : Tensor, optional
        (C,); a class's share. The mean is the weighted one.
    ignore_index : int
        Targets of this value count nothing.
    reduction : str

    Raises
    ------
    IndexError
        If a class is neither in [0, C) nor `ignore_index`.
    ValueError, TypeError
        If shapes do not fit, or the target holds no integers.
    """
    axis, target = checked_classes("nll_loss", input, target, weight)
    loss, share = picked(input, target, weight, ignore_index, axis)
    return weighted(loss, share, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy between the softmax of logits and target classes or probabilities.

    Parameters
    ----------
    input : Tensor
        Logits, (C,), (N, C) or (N, C, …).
    target : Tensor
        Integer classes, the input's shape without C; or probabilities of the input's shape.
    weight : Tensor, optional
        (C,); a class's share. With classes the mean is the weighted one.
    ignore_index : int
        Classes of this value count nothing.
    reduction : str
    label_smoothing : float
        How much of the target, in [0, 1], is spread evenly over all classes (Szegedy et al., 2016).

    Raises
    ------
    IndexError
        If a class is neither in [0, C) nor `ignore_index`.
    ValueError, TypeError
        If shapes or dtypes do not fit, or label_smoothing lies outside [0, 1].
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"cross_entropy: label_smoothing lies between 0 and 1, got {label_smoothing}")
    if not input.shape:
        raise ValueError("cross_entropy takes logits with a class axis, got a 0-d tensor")
    if target.is_floating_point:
        return soft_cross_entropy(input, target, weight, reduction, label_smoothing)
    axis, target = checked_classes("cross_entropy", input, target, weight)
    if weight is None:
        loss = class_losses(input, target, axis, ignore_index, label_smoothing)
        return (
            loss.sum() / (target != ignore_index).sum() if reduction == "mean" else reduced(loss, reduction)
        )
    logs = input.log_softmax(axis)
    loss, share = picked(logs, target, weight, ignore_index, axis)
    if label_smoothing:
        scaled = logs * along(weight, input.ndim, axis)
        even = where(target == ignore_index, 0.0, -scaled.sum(axis))
        loss = loss * (1 - label_smoothing) + even * (label_smoothing / input.shape[axis])
    return weighted(loss, share, reduction)


def class_losses(input: Tensor, target: Tensor, axis: int, ignore: int, smoothing: float) -> Tensor:
    """The loss of each sample, 0 where ignored; without storing the softmax."""
    order = (*(a for a in range(input.ndim) if a != axis), axis)
    logits = input.permute(*order).reshape(target.numel(), input.shape[axis])  # (N, C)
    labels = target.reshape(target.numel())
    return cross_entropy_rows(logits, labels, ignore=ignore, smoothing=smoothing).reshape(*target.shape)


def soft_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, smoothing: float
) -> Tensor:
    same_shape("cross_entropy", input, target)
    axis = min(1, input.ndim - 1)
    if smoothing:
        target = target * (1 - smoothing) + smoothing / input.shape[axis]
    logs = input.log_softmax(axis)
    loss = -(logs * target if weight is None else logs * target * along(weight, input.ndim, axis)).sum(axis)
    return loss.sum() / max(prod(loss.shape), 1) if reduction == "mean" else reduced(loss, reduction)


def along(weight: Tensor, rank: int, axis: int) -> Tensor:
    return weight.reshape(*(1,) * axis, -1, *(1,) * (rank - axis - 1))


def picked(
    logs: Tensor, target: Tensor, weight: Tensor | None, ignore: int, axis: int
) -> tuple[Tensor, Tensor]:
    """Each sample's loss, and its share in a weighted mean; both 0 where ignored."""
    ignored = target == ignore
    known = where(ignored, 0, target)
    share = (
        where(ignored, 0.0, 1.0).to(logs.dtype)
        if weight is None
        else where(ignored, 0.0, take(weight, known, axis=0))
    )
    chosen = logs.gather(axis, known.unsqueeze(axis)).squeeze(axis)
    return where(ignored, 0.0, -chosen * share), share


def weighted(loss: Tensor, share: Tensor, reduction: str) -> Tensor:
    return loss.sum() / share.sum() if reduction == "mean" else reduced(loss, reduction)


def same_shape(name: str, input: Tensor, target: Tensor) -> None:
    if input.shape != target.shape:
        raise ValueError(
            f"{name}: input of shape {input.shape} and target of shape {target.shape} must be alike"
        )


def checked_classes(name: str, input: Tensor, target: Tensor, weight: Tensor | None) -> tuple[int, Tensor]:
    """The class axis of an input whose target fits it, and the target wide enough for any `ignore_index`."""
    axis = min(1, input.ndim - 1)
    if not input.shape or target.shape != input.shape[:axis] + input.shape[axis + 1 :]:
        raise ValueError(
            f"{name}: target of shape {target.shape} does not fit input {input.shape} without its classes"
        )
    if target.dtype not in dtypes.INTEGERS:
        raise TypeError(f"{name}: target classes are integers, got {target.dtype.name}")
    if weight is not None and weight.shape != (input.shape[axis],):
        raise ValueError(f"{name}: weight of shape {weight.shape} for {input.shape[axis]} classes")
    return axis, target.to(dtypes.int32) if target.dtype == dtypes.uint8 else target


def dice_loss(
    input: Tensor, target: Tensor, *, ignore_index: int = -100, smooth: float = 1.0, reduction: str = "mean"
) -> Tensor:
    """How badly the softmax of logits overlaps each class: 1 - (2 · Σ p·y + s) / (Σ p² + Σ y + s).

    p is the probability of the class, and y 1 where it is the target, else 0; the sums go over the batch and
    all positions. A small class counts as much as a large one. Source: Milletari, Navab and Ahmadi, V-Net,
    2016; and s, so that a class that is neither there nor predicted costs nothing.

    Parameters
    ----------
    input : Tensor
        Logits, (N, C, …).
    target : Tensor
        Integer classes, (N, …).
    ignore_index : int
        Positions whose target this is count nothing.
    smooth : float
        s.
    reduction : str
        "none" gives a loss for each class, (C,).

    Raises
    ------
    IndexError
        If a class is neither in [0, C) nor `ignore_index`.
    ValueError, TypeError
        If shapes do not fit, or the target holds no integers.
    """
    if input.ndim < 2:
        raise ValueError(f"dice_loss takes logits (N, C, …), got shape {input.shape}")
    axis, target = checked_classes("dice_loss", input, target, None)
    ignored = (target == ignore_index).unsqueeze(axis)
    known = where(ignored, 0, target.unsqueeze(axis))  # (N, 1, …)
    counted = where(ignored, 0.0, 1.0).to(input.dtype)
    p = input.softmax(axis) * counted
    y = put_along(zeros_like(p), known, counted, axis=axis)
    others = tuple(a for a in range(input.ndim) if a != axis)
    shared, size = (p * y).sum(others), (p * p + y).sum(others)  # (C,)
    return reduced(1 - (shared * 2 + smooth) / (size + smooth), reduction)


def dispersive_loss(input: Tensor, temperature: float = 0.5) -> Tensor:
    """How crowded the representations of a batch are: log mean over i, j of exp(-‖z_i - z_j‖² / τ).

    Added to another loss, it spreads hidden representations without needing pairs that belong together. All
    N² pairs count, also those of a sample with itself, so that it is 0 at most. Source: Wang and He, Diffuse
    and disperse: image generation with representation regularization, 2025.

    Parameters
    ----------
    input : Tensor
        Representations z, (N, …), flattened behind the first axis.
    temperature : float
        τ.

    Returns
    -------
    Tensor
        0-d.

    Raises
    ------
    ValueError
        If there is no sample, or the temperature is not positive.
    """
    if not input.ndim or not input.shape[0] or not temperature > 0:
        raise ValueError(
            f"dispersive_loss takes (N, …) with N at least 1 and a positive temperature, got shape "
            f"{input.shape} and {temperature}"
        )
    n = input.shape[0]
    z = input.reshape(n, prod(input.shape[1:]))
    z = z - z.mean(0, keepdim=True)  # distances stay, and less is cancelled below
    sizes = z.square().sum(1)
    distances = (sizes.unsqueeze(1) + sizes - 2 * (z @ z.mT)).clamp(min=0)  # (N, N)
    return (distances / -temperature).reshape(n * n).logsumexp(0) - 2 * log(n)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """Cosine of the angle between vectors along an axis."""
    shape = broadcast("cosine_similarity", x1.shape, x2.shape)
    x1, x2 = x1.expand(shape), x2.expand(shape)
    return ((x1 / x1.norm(2, dim, True).clamp(min=eps)) * (x2 / x2.norm(2, dim, True).clamp(min=eps))).sum(
        dim
    )
