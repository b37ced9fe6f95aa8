"""Losses of classes."""

from __future__ import annotations

from typing import Any

from ...ops import norm as rows
from ...ops.elementwise import where
from ...ops.index import take
from ...tensor import Tensor
from ..registry import operator


def picked_loss(node: Any, log_prob: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """-weight · log_prob of each target's class, (N, C, …) and (N, …), reduced as the node says."""
    target = target.to("int32")
    ignored = node.get("ignore_index")
    counts = None if ignored is None else target != int(ignored)
    index = target if counts is None else where(counts, target, 0).to("int32")
    loss = -log_prob.take_along_dim(index.unsqueeze(1), 1).squeeze(1)
    share = None if weight is None else take(weight, index, axis=0)
    if counts is not None:
        share = where(counts, 1.0 if share is None else share, 0.0).to(loss.dtype)
    loss = loss if share is None else loss * share
    reduction = node.get("reduction", "mean")
    if reduction == "none":
        return loss
    if reduction == "sum":
        return loss.sum()
    return loss.mean() if share is None else loss.sum() / share.sum()


@operator("NegativeLogLikelihoodLoss", since=12)
def negative_log_likelihood_loss(
    node: Any, log_prob: Tensor, target: Tensor, weight: Tensor | None = None
) -> Tensor:
    return picked_loss(node, log_prob, target, weight)


@operator("SoftmaxCrossEntropyLoss", since=12)
def softmax_cross_entropy_loss(
    node: Any, scores: Tensor, labels: Tensor, weights: Tensor | None = None
) -> Any:
    log_prob = rows.log_softmax(scores, axis=1)
    loss = picked_loss(node, log_prob, labels, weights)
    return loss if node.wanted < 2 else (loss, log_prob)
