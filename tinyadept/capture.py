"""Record a function once, and later only submit what it asked the device to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from . import device as devices
from .tensor import Tensor, as_array

COMPARED = 2  # the call that is held against the third; the first one makes states and kernels


def capture(function: Callable, device: Any = None) -> Captured:
    """A function whose calls are replayed on the device, without running its Python code again.

    The first call runs as usual, so does the second, and the third while it is recorded; each later one
    copies its arguments to memory that the device sees, and notes that the recording runs again. Like all
    that is noted it runs when a value is read, or when a few calls wait: up to eight are submitted at once.
    Where a device keeps no recordings (the reference) every call runs as usual.

    A replay reads from memory what may change: the arguments, parameters, the state of random numbers, and
    the settings of optimisers, whose learning rate a schedule may set between the calls. Everything else is
    frozen: branches, shapes, numbers in the code, ``train()`` or ``eval()``.

    Parameters
    ----------
    function : callable
        Takes and returns tensors, or tuples, lists and dicts of them.
    device : str, optional
        Where its arguments go; the default device.

    Returns
    -------
    Captured
        Called like the function, with tensors or NumPy arrays. What a replay returns carries no gradient, and
        lasts until the call after the next one: reading it later either gives the right values or raises.
        Reading it runs the calls that wait. An array is written straight to memory that the device sees; a
        tensor that lives on the device costs a submit of its own.

    Raises
    ------
    RuntimeError
        From the second call on, when something cannot be replayed: a value is read back inside, or the
        second and the third run asked for different things.
    ValueError
        From a replay, if an argument has another shape or dtype than the recorded one.
    TypeError
        If it returns what a replay could not renew, such as a float.

    Examples
    --------
    >>> def step(images, labels):
    ...     loss = F.cross_entropy(model(images), labels)
    ...     optimizer.zero_grad()
    ...     loss.backward()
    ...     optimizer.step()
    ...     return loss
    >>> step = ta.capture(step)
    """
    return Captured(function, device)


class Captured:
    """What `capture` returns.

    Attributes
    ----------
    function : callable
        As it was: call it for the odd batch of another shape.
    captured : bool
        Whether the next call is a replay.
    """

    def __init__(self, function: Callable, device: Any = None):
        self.function = function
        self.device = device
        self.calls = 0
        self.trace: Any = None
        self.replay: Any = None
        self.arguments: Any = None  # their shapes and dtypes, and what is no tensor
        self.holders: list[Argument] = []
        self.results: Any = None
        self.written: list[Callable] = []  # weak references to what it changes in place
        self.refusal: str | None = None

    @property
    def captured(self) -> bool:
        return self.replay is not None

    def __call__(self, *args: Any) -> Any:
        backend = devices.resolve(self.device)
        if self.refusal is not None:
            raise RuntimeError(self.refusal)
        if self.replay is not None:
            return self.again(backend, args)
        if self.calls + 1 > COMPARED:
            return self.record(backend, args)
        ready = mapped(args, lambda x: placed(x, backend))
        if not hasattr(backend, "replay"):
            return self.function(*ready)
        with backend.traced() as trace:
            results = self.function(*ready)
        self.calls += 1
        if self.calls == COMPARED and trace.reads:
            self.refuse("a value is read back inside: move .numpy(), .item(), print or if behind the call")
        self.trace = trace
        return results

    def record(self, backend: Any, args: tuple) -> Any:
        """Run once more, noting what is asked of the device."""
        holders: list[Argument] = []
        mapped(args, lambda x: holders.append(Argument(x, backend)) if holds(x) else x)
        ready = iter(holders)
        backend.start_capture(sum(holder.size for holder in holders))
        try:
            with backend.traced() as trace:
                results = self.function(*mapped(args, lambda x: next(ready).begin() if holds(x) else x))
            results = mapped(results, lambda x: renewed(x, backend))
        except BaseException:
            backend.abandon_capture()
            raise
        replay = backend.end_capture()
        if (difference := self.trace.difference(trace)) is not None:
            self.refuse(f"its runs differ, and a replay could only repeat one of them: {difference}")
        self.replay, self.holders, self.results = replay, holders, results
        self.arguments = mapped(args, outline)
        self.written, self.trace = trace.written, None
        return mapped(results, lambda x: x and x.take(0))

    def again(self, backend: Any, args: tuple) -> Any:
        if (now := mapped(args, outline)) != self.arguments:
            raise ValueError(
                f"captured for arguments {self.arguments}, got {now}: call .function "
                "with tensors, or capture it anew"
            )
        ready = iter(self.holders)
        mapped(args, lambda x: next(ready).renew(x) if holds(x) else x)
        turn = backend.replay(self.replay)
        for buffer in filter(None, (reference() for reference in self.written)):
            buffer.version += 1  # so that the tape notices, as after any write in place
        return mapped(self.results, lambda x: x and x.take(turn))

    def refuse(self, reason: str) -> None:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        self.refusal = f"{name} cannot be captured: {reason}"
        raise RuntimeError(self.refusal)


class Argument:
    """Where a recording finds an argument.

    Parameters
    ----------
    value : Tensor or array
        Of the recorded call.
    backend : Backend
    """

    def __init__(self, value: Any, backend: Any):
        self.backend = backend
        self.tensor: Tensor | None = None
        self.array: np.ndarray | None = None
        if isinstance(value, Tensor) and value.backend is backend:
            self.tensor = value.detach().clone()
        else:
            self.array = as_array(value)

    @property
    def size(self) -> int:
        """Elements that the host writes before each call."""
        return 0 if self.array is None else self.array.size

    def begin(self) -> Tensor:
        """The tensor that the function is given, asked for once the recording has begun."""
        return self.backend.argument(lambda: self.array) if self.tensor is None else self.tensor

    def renew(self, value: Any) -> None:
        """Hold another value of the same shape and dtype."""
        if self.tensor is None:
            self.array = as_array(value)
        else:
            self.tensor.copy_(value.detach() if isinstance(value, Tensor) else value)


def holds(x: Any) -> bool:
    """Whether an argument may change from call to call."""
    return isinstance(x, (Tensor, np.ndarray, np.generic))


def placed(x: Any, backend: Any) -> Any:
    """An argument as a tensor on the device; what is no array stays."""
    if not holds(x):
        return x
    tensor = x if isinstance(x, Tensor) else Tensor(x, device=backend)
    return tensor.clone() if tensor.numel() == 1 else tensor  # a fresh number is not taken for a constant


def outline(x: Any) -> Any:
    """What may not change about an argument."""
    if isinstance(x, Tensor):
        return x.shape, x.dtype.name
    return (x.shape, as_array(np.empty(0, x.dtype)).dtype.name) if holds(x) else x


def renewed(x: Any, backend: Any) -> Any:
    """Where each call leaves a result; see the backend's `result`."""
    if x is None:
        return None
    if not isinstance(x, Tensor) or x.backend is not backend:
        got = f"a tensor on {x.device}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"a captured function returned {got}, which a replay could not renew")
    return backend.result(x)


def mapped(tree: Any, function: Callable) -> Any:
    """The same tuples, lists and dicts around what the function makes of each entry."""
    if isinstance(tree, dict):
        return {key: mapped(value, function) for key, value in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(mapped(value, function) for value in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(mapped(value, function) for value in tree)
    return function(tree)
