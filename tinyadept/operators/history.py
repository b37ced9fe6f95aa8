"""What a tensor can do with its history: run it backwards, and watch the gradients pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from .. import tape
from ..tensor import Tensor


def keep_grad(x: Tensor | None, g: Tensor) -> None:
    if x is not None:
        x.grad = g.clone() if x.grad is None else x.grad + g


class History:
    """The way back."""

    def backward(
        self: Any, gradient: Tensor | None = None, retain_graph: bool = False, create_graph: bool = False
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf to the leaf's ``.grad``.

        Parameters
        ----------
        gradient : Tensor, optional
            Incoming gradient of this tensor's shape; for a single element 1 by default.
        retain_graph : bool
            Keep the saved values, so that backward can be called again.
        create_graph : bool
            Record the gradient rules, so that gradients can be differentiated.

        Raises
        ------
        RuntimeError
            If nothing needs a gradient, the graph was freed, or a saved value was overwritten in place.
        ValueError
            If a gradient is needed and none is given, or its shape is wrong.
        """
        given = None if gradient is None else [gradient]
        tape.backward([self], tape.seeds([self], given), None, retain_graph, create_graph)

    def register_hook(self: Any, hook: Callable[[Tensor], Tensor | None]) -> Callable[[], None]:
        """Call `hook` with this tensor's gradient once it is complete; what it returns replaces the gradient.

        Returns a function that removes the hook.
        """
        if not self.requires_grad:
            raise RuntimeError("this tensor needs no gradient, so its hook would never be called")
        owner = self.step or self
        if owner.hooks is None:
            owner.hooks = []
        owner.hooks.append(hook)
        return lambda: owner.hooks.remove(hook) if hook in owner.hooks else None

    def retain_grad(self: Any) -> None:
        """Leave the gradient of this non-leaf tensor in its ``.grad`` as well."""
        if self.step is not None:
            reference = ref(self)  # a hook that held the tensor would keep its own graph alive
            self.register_hook(lambda g: keep_grad(reference(), g))
