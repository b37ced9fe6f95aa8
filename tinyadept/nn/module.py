"""Modules: objects whose attributes are parameters, buffers and other modules, found again by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple, Self

from .. import tape
from ..tensor import Tensor, fill_in


class Parameter(Tensor):
    """A tensor that a module learns: assigned to an attribute of a `Module`, it is one of its parameters.

    Parameters
    ----------
    data : Tensor
        Its memory is shared, its history is not.
    requires_grad : bool
        Whether `backward` shall leave a gradient in ``.grad``.

    Raises
    ------
    TypeError
        If the data are no tensor, or a gradient is asked of integers.
    """

    __slots__ = ()

    def __init__(self, data: Tensor, requires_grad: bool = True):
        if not isinstance(data, Tensor):
            raise TypeError(f"Parameter takes a Tensor, got {type(data).__name__}: wrap it in tensor(...)")
        fill_in(self, data.buffer, data.layout, data.dtype, data.backend)
        self.requires_grad_(requires_grad)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Incompatible(NamedTuple):
    """What `Module.load_state_dict` could not match, name by name."""

    missing_keys: list[str]
    unexpected_keys: list[str]


class Module:
    """A part of a network: subclasses assign their parts in ``__init__`` and compute in ``forward``.

    Whatever `Parameter` or `Module` is assigned to an attribute belongs to the module under the attribute's
    name. Tensors that are no parameters but part of the state, such as running means, are named by
    `register_buffer`.

    Attributes
    ----------
    training : bool
        Whether layers such as `Dropout` and `BatchNorm2d` behave as in training; set by `train` and `eval`.
    """

    training: bool

    def __init__(self):
        self.training = True
        self._buffers: dict[str, bool] = {}  # name: whether it belongs in the state_dict
        self._pre_hooks: dict[object, Callable] = {}
        self._hooks: dict[object, Callable] = {}

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What calling the module computes."""
        raise NotImplementedError(f"{type(self).__name__} has no forward()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not self._hooks and not self._pre_hooks:
            return self.forward(*args, **kwargs)
        for hook in tuple(self._pre_hooks.values()):
            changed = hook(self, args)
            if changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        output = self.forward(*args, **kwargs)
        for hook in tuple(self._hooks.values()):
            changed = hook(self, args, output)
            if changed is not None:
                output = changed
        return output

    # --- attributes ---

    def __setattr__(self, name: str, value: Any) -> None:
        own, who = vars(self), type(self).__name__
        if "_buffers" not in own and isinstance(value, (Parameter, Module)):
            raise AttributeError(
                f"{who} was given {name!r} before super().__init__() ran: call that first in {who}.__init__"
            )
        old = own.get(name)
        if isinstance(old, Parameter) and value is not None and not isinstance(value, Parameter):
            raise TypeError(
                f"{name!r} of {who} is a parameter and takes a Parameter or None, "
                f"got {type(value).__name__}: "
                f"write {name}.copy_(value) under no_grad, or delete the attribute first"
            )
        if isinstance(value, Parameter):
            self._buffers.pop(name, None)
        elif name in own.get("_buffers", ()) and value is not None and not isinstance(value, Tensor):
            got = type(value).__name__
            raise TypeError(f"{name!r} of {who} is a buffer and takes a Tensor or None, got {got}")
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)
        self._buffers.pop(name, None)

    def __getattr__(self, name: str) -> Any:  # only called when the attribute does not exist
        hint = "" if "_buffers" in vars(self) else ": was super().__init__() called?"
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}")

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Make a tensor part of the module's state without making it a parameter.

        Parameters
        ----------
        name : str
            The attribute's name.
        tensor : Tensor or None
        persistent : bool
            Whether `state_dict` holds it.

        Raises
        ------
        TypeError
            If it is no tensor.
        ValueError
            If the name is taken, empty, or has a dot.
        """
        self._register(name, tensor, Tensor)
        self._buffers[name] = persistent

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Assign a parameter under a computed name; errors as in `register_buffer`."""
        self._register(name, param, Parameter)

    def add_module(self, name: str, module: Module | None) -> None:
        """Assign a module under a computed name; errors as in `register_buffer`."""
        self._register(name, module, Module)

    def _register(self, name: str, value: Any, kind: type) -> None:
        who = type(self).__name__
        if not isinstance(name, str) or (value is not None and not isinstance(value, kind)):
            got = f"{type(name).__name__} and {type(value).__name__}"
            raise TypeError(f"{who} takes a name and a {kind.__name__} or None, got {got}")
        if not name or "." in name:
            raise ValueError(f"{who} cannot have an attribute {name!r}: a name is not empty and has no dot")
        if not isinstance(getattr(self, name, None), (Tensor, Module, type(None))):
            raise ValueError(f"{who} has another attribute {name!r}, which cannot become a {kind.__name__}")
        setattr(self, name, value)

    # --- what belongs to the module ---

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Names and modules directly inside this one."""
        seen = set()
        for name, value in tuple(vars(self).items()):
            if isinstance(value, Module) and value not in seen:
                seen.add(value)
                yield name, value

    def children(self) -> Iterator[Module]:
        """Modules directly inside this one."""
        return (module for _, module in self.named_children())

    def named_modules(self, prefix: str = "", remove_duplicate: bool = True) -> Iterator[tuple[str, Module]]:
        """Dotted names and modules, this one (with an empty name) before those inside it, at any depth.

        Parameters
        ----------
        prefix : str
            Put before each name.
        remove_duplicate : bool
            Name a module that appears in several places once.
        """
        return self._walk(prefix, set() if remove_duplicate else None)

    def _walk(self, prefix: str, seen: set | None) -> Iterator[tuple[str, Module]]:
        if seen is not None:
            if self in seen:
                return
            seen.add(self)
        yield prefix, self
        for name, value in tuple(vars(self).items()):
            if isinstance(value, Module):
                yield from value._walk(dotted(prefix, name), seen)

    def modules(self) -> Iterator[Module]:
        """This module and those inside it, at any depth."""
        return (module for _, module in self.named_modules())

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """Dotted names and parameters.

        Parameters
        ----------
        prefix : str
            Put before each name.
        recurse : bool
            Include those of the modules inside.
        remove_duplicate : bool
            Name a parameter that appears in several places once.
        """
        return self._members(Module._own_parameters, prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Dotted names and buffers; the parameters of this method are those of `named_parameters`."""
        return self._members(Module._own_buffers, prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def _members(
        self, own: Callable, prefix: str, recurse: bool, remove_duplicate: bool
    ) -> Iterator[tuple[str, Any]]:
        seen: set[int] = set()
        for path, module in self.named_modules(prefix, remove_duplicate) if recurse else [(prefix, self)]:
            for name, x in own(module):
                if not remove_duplicate or id(x) not in seen:
                    seen.add(id(x))
                    yield dotted(path, name), x

    def _own_parameters(self) -> Iterator[tuple[str, Parameter]]:
        return ((name, value) for name, value in tuple(vars(self).items()) if isinstance(value, Parameter))

    def _own_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return ((name, vars(self)[name]) for name in tuple(self._buffers) if vars(self)[name] is not None)

    def _own_state(self) -> Iterator[tuple[str, Tensor]]:
        persistent = ((name, x) for name, x in self._own_buffers() if self._buffers[name])
        return chain(self._own_parameters(), persistent)

    # --- the state ---

    def state_dict(self, prefix: str = "") -> dict[str, Tensor]:
        """Every parameter and persistent buffer by its dotted name, detached, sharing the module's memory.

        Clone the tensors to keep their present values through further training.
        """
        return {name: x.detach() for name, x in self._members(Module._own_state, prefix, True, False)}

    def load_state_dict(
        self, state_dict: Mapping[str, Tensor], strict: bool = True, assign: bool = False
    ) -> Incompatible:
        """Copy values into the parameters and buffers, converted to their dtypes and devices.

        Parameters
        ----------
        state_dict : mapping of str to Tensor
            As `state_dict` returns it.
        strict : bool
            Whether names that are missing or unexpected are an error. Shapes must always fit.
        assign : bool
            Whether parameters and buffers take over the given memory instead, if it is of their dtype and on
            their device: a large model then is never held twice.

        Returns
        -------
        missing_keys, unexpected_keys : list of str

        Raises
        ------
        ValueError
            If something does not fit. All that does not is listed, and the module stays as it was.
        TypeError
            If it is no mapping, or a value no tensor.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"load_state_dict takes a mapping, got {type(state_dict).__name__}")
        own = dict(self._members(Module._own_state, "", True, False))
        for name, value in state_dict.items():
            if not isinstance(value, Tensor):
                raise TypeError(f"load_state_dict: {name!r} is a {type(value).__name__}, expected a Tensor")
        missing = [name for name in own if name not in state_dict]
        unexpected = [name for name in state_dict if name not in own]
        both = [name for name in own if name in state_dict]
        lines = [f"missing: {name!r}" for name in missing] if strict else []
        lines += [f"unexpected: {name!r}" for name in unexpected] if strict else []
        lines += [
            f"shape of {name!r}: got {state_dict[name].shape}, expected {own[name].shape}"
            for name in both
            if state_dict[name].shape != own[name].shape
        ]
        if lines:
            raise ValueError("\n    ".join([f"the state does not fit {type(self).__name__}:", *lines]))
        with tape.no_grad():
            for name in both:
                x, value = own[name], state_dict[name].detach()
                if assign and x.step is None:
                    take_over(x, value)
                else:
                    x.copy_(value)
        return Incompatible(missing, unexpected)

    # --- changes to everything inside ---

    def train(self, mode: bool = True) -> Self:
        """Behave as in training, here and in all modules inside; returns the module."""
        if not isinstance(mode, bool):
            raise ValueError(f"train takes True or False, got {mode!r}")
        for module in self.modules():
            module.training = mode
        return self

    def eval(self) -> Self:
        """Behave as in use: ``train(False)``."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Ask for gradients of all parameters, or stop asking; returns the module."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients of all parameters, or fill them with zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None
            elif parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def apply(self, fn: Callable[[Module], Any]) -> Self:
        """Call `fn` with every module, those inside before the one that holds them; returns the module."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def to(self, *targets: Any, dtype: Any = None, device: Any = None) -> Self:
        """Move parameters and buffers to another device or floating-point dtype.

        The tensors remain the same objects, so that optimisers keep hold of them; their memory is replaced.
        Integer buffers keep their dtype. Returns the module, which stays as it was if something cannot be
        moved.

        Parameters
        ----------
        *targets
            Dtypes, device names, or a tensor whose dtype and device are meant.

        Raises
        ------
        TypeError
            If the dtype is not floating point.
        """
        moves = []
        for x in {id(x): x for x in chain(self.parameters(), self.buffers())}.values():
            moved = x.detach().to(*targets, dtype=dtype, device=device)
            if x.is_floating_point and not moved.is_floating_point:
                raise TypeError(
                    f"a module's parameters are floating point, and cannot be made {moved.dtype.name}"
                )
            moves.append((x, moved if x.is_floating_point else x.detach().to(device=moved.backend)))
        for x, moved in moves:
            x.buffer, x.layout, x.version = moved.buffer, moved.layout, moved.version
            x.dtype, x.backend = moved.dtype, moved.backend
            if x.grad is not None:
                x.grad = x.grad.detach().to(moved)
        return self

    # --- hooks ---

    def register_forward_pre_hook(self, hook: Callable) -> Callable[[], None]:
        """Call ``hook(module, args)`` before each forward; a result other than None replaces the arguments.

        Returns a function that removes the hook.
        """
        return attach(self._pre_hooks, hook)

    def register_forward_hook(self, hook: Callable) -> Callable[[], None]:
        """Call ``hook(module, args, output)`` after each forward; a result other than None replaces it.

        Returns a function that removes the hook.
        """
        return attach(self._hooks, hook)

    # --- how it prints ---

    def extra_repr(self) -> str:
        """What a layer prints between its parentheses."""
        return ""

    def __repr__(self) -> str:
        children = ((name, value) for name, value in vars(self).items() if isinstance(value, Module))
        inside = [f"({name}): {indented(repr(module))}" for name, module in children]
        extra = self.extra_repr()
        if not inside:
            return f"{type(self).__name__}({extra})"
        return "\n  ".join([f"{type(self).__name__}(", *([extra] if extra else []), *inside]) + "\n)"


def take_over(x: Tensor, value: Tensor) -> None:
    """Have a parameter or buffer hold the memory of another tensor."""
    requires_grad, value = x.requires_grad, value.to(x.dtype).to(x.backend)
    fill_in(x, value.buffer, value.layout, value.dtype, value.backend)
    x.requires_grad_(requires_grad)


def dotted(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def attach(hooks: dict[object, Callable], hook: Callable) -> Callable[[], None]:
    token = object()
    hooks[token] = hook
    return lambda: hooks.pop(token, None) and None
