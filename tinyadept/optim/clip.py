"""Limits on gradients, applied between backward and the optimiser's step."""

from __future__ import annotations

from collections.abc import Iterable

from ..creation import zeros
from ..functional import stack
from ..tape import no_grad
from ..tensor import Tensor


def gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in listed if p.grad is not None]


@no_grad()
def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
) -> Tensor:
    """Scale all gradients alike, in place, so that their common norm is at most `max_norm`.

    Parameters
    ----------
    parameters : Tensor or iterable of Tensor
        Those without a gradient are passed over.
    max_norm : float
    norm_type : float
        Order of the norm of all gradients seen as one vector; ``float("inf")`` is the largest absolute value.
    error_if_nonfinite : bool
        Whether to raise where the norm is NaN or infinite, instead of spoiling the gradients. The norm is
        then read back.

    Returns
    -------
    Tensor
        The norm before scaling, 0-d.

    Raises
    ------
    ValueError
        If `max_norm` is negative.
    FloatingPointError
        If the norm is not finite and `error_if_nonfinite` is set.
    """
    if not max_norm >= 0:
        raise ValueError(f"clip_grad_norm_: max_norm must not be negative, got {max_norm}")
    grads = gradients(parameters)
    if not grads:
        return zeros(())
    norms = [g.norm(norm_type) for g in grads]
    total = norms[0] if len(norms) == 1 else stack(norms).norm(norm_type)
    if error_if_nonfinite and not bool(total.isfinite()):
        raise FloatingPointError(f"clip_grad_norm_: the norm of {len(grads)} gradients is {total.item()}")
    scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
    for g in grads:
        g.mul_(scale)
    return total


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Limit every element of every gradient to [-clip_value, clip_value], in place.

    Raises
    ------
    ValueError
        If `clip_value` is negative.
    """
    if not clip_value >= 0:
        raise ValueError(f"clip_grad_value_: clip_value must not be negative, got {clip_value}")
    for g in gradients(parameters):
        g.copy_(g.clamp(-clip_value, clip_value))
