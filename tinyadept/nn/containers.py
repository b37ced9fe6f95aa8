"""Modules that hold modules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Self

from .module import Module


def entries(module: Module) -> dict[str, Module]:
    """The modules directly inside, duplicates included, by name."""
    return {name: value for name, value in vars(module).items() if isinstance(value, Module)}


class Sequential(Module):
    """Modules called one after another, each with the result of the one before.

    Parameters
    ----------
    *modules : Module
        Named "0", "1", …; or one dict from names to modules.
    """

    def __init__(self, *modules: Any):
        super().__init__()
        named = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        for name, module in named.items() if named is not None else enumerate(modules):
            self.add_module(str(name), module)

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input

    def __len__(self) -> int:
        return len(entries(self))

    def __iter__(self) -> Iterator[Module]:
        return iter(entries(self).values())

    def __getitem__(self, index: int | slice) -> Any:
        """One module, or a `Sequential` of several that keep their names."""
        if isinstance(index, slice):
            return Sequential(dict(list(entries(self).items())[index]))
        return list(self)[index]

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(entries(self))[index], module)

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns the `Sequential`."""
        number = len(self)
        while str(number) in entries(self):  # a slice keeps its names, which then do not begin at 0
            number += 1
        self.add_module(str(number), module)
        return self


class ModuleList(Module):
    """A list of modules, named "0", "1", …

    Parameters
    ----------
    modules : iterable of Module, optional
    """

    def __init__(self, modules: Iterable[Module] = ()):
        super().__init__()
        self.extend(modules)

    def __len__(self) -> int:
        return len(entries(self))

    def __iter__(self) -> Iterator[Module]:
        return iter(entries(self).values())

    def __getitem__(self, index: int | slice) -> Any:
        """One module, or a `ModuleList` of several."""
        found = list(self)[index]
        return ModuleList(found) if isinstance(found, list) else found

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(entries(self))[index], module)

    def append(self, module: Module) -> Self:
        """Add a module at the end; returns the list."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add modules at the end; returns the list."""
        for module in modules:
            self.append(module)
        return self


class ModuleDict(Module):
    """Modules by name.

    Parameters
    ----------
    modules : mapping of str to Module, optional
    """

    def __init__(self, modules: Mapping[str, Module] | None = None):
        super().__init__()
        for name, module in (modules or {}).items():
            self[name] = module

    def __len__(self) -> int:
        return len(entries(self))

    def __iter__(self) -> Iterator[str]:
        return iter(entries(self))

    def __contains__(self, name: str) -> bool:
        return name in entries(self)

    def __getitem__(self, name: str) -> Module:
        return entries(self)[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        delattr(self, name)

    def keys(self) -> Iterable[str]:
        return entries(self).keys()

    def values(self) -> Iterable[Module]:
        return entries(self).values()

    def items(self) -> Iterable[tuple[str, Module]]:
        return entries(self).items()
