"""Operators by name, domain and opset, and what an operator knows about the node that it computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from ..tensor import Tensor


class ModelError(ValueError):
    """A file is no valid ONNX model, or what is given to a model does not fit it."""


class Refused(NotImplementedError):
    """A model is valid, but asks for something that is not there; the message names node and operator."""


class Node:
    """What an operator is told about the node that it computes.

    Attributes
    ----------
    op, domain, name : str
    opset : int
        Version of the domain that the model asks for.
    attributes : dict
        By name: int, float, str, bytes, lists of them, ndarray for tensors, `Graph` for subgraphs.
    inputs, outputs : list of str
        Names of values; the empty name stands for one that is left out.
    input_types, output_types : list of int
        Element types (`onnx.TensorProto`), 0 where they are not known.
    wanted : int
        How many outputs are asked for, counted up to the last that has a name.
    device : Any
        Where the model's values live: a backend.
    """

    __slots__ = (
        "activation",
        "attributes",
        "device",
        "domain",
        "input_types",
        "inputs",
        "name",
        "op",
        "opset",
        "output_types",
        "outputs",
        "subgraph",
        "tensor_types",
    )

    def __init__(self, op: str, inputs: list[str], outputs: list[str], attributes: dict, name: str = ""):
        self.op, self.inputs, self.outputs, self.attributes = op, inputs, outputs, attributes
        self.name = name
        self.domain, self.opset = "", 1
        self.device: Any = None
        self.input_types: list[int] = [0] * len(inputs)
        self.output_types: list[int] = [0] * len(outputs)
        self.tensor_types: dict[str, int] = {}  # of the tensors among the attributes
        self.subgraph: Callable[..., Any] | None = None  # compiles the graph in an attribute
        self.activation = ""  # that folding has put into the node

    @property
    def wanted(self) -> int:
        return max((i + 1 for i, name in enumerate(self.outputs) if name), default=0)

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute, or what the specification takes for it."""
        return self.attributes.get(name, default)

    def __str__(self) -> str:
        shown = self.name or f"that makes {', '.join(name for name in self.outputs if name)}"
        return f"node {shown} ({self.domain + '.' if self.domain else ''}{self.op})"

    def refuse(self, reason: str) -> NoReturn:
        """Say that this node cannot be computed.

        Raises
        ------
        Refused
            Always.
        """
        raise Refused(f"{self}: {reason}")

    def fail(self, reason: str) -> NoReturn:
        """Say that this node is not valid.

        Raises
        ------
        ModelError
            Always.
        """
        raise ModelError(f"{self}: {reason}")

    def integers(self, x: Tensor) -> tuple[int, ...]:
        """A tensor read as Python ints: a parameter. Free on the host, a read-back from a device."""
        return tuple(int(n) for n in np.ravel(x.detach().numpy()))

    def integer(self, x: Tensor) -> int:
        """The only element of a tensor, read as a Python int."""
        values = self.integers(x)
        if len(values) != 1:
            self.fail(f"expected one integer, got a tensor of shape {x.shape}")
        return values[0]

    def numbers(self, x: Tensor) -> tuple[float, ...]:
        """A tensor read as Python floats: a parameter."""
        return tuple(float(n) for n in np.ravel(x.detach().numpy()))


class Operator:
    """One entry of the registry.

    Attributes
    ----------
    function : callable
        ``function(node, *inputs)`` returns a tensor or a tuple of them; with `prepare` ``function(node)``
        returns ``run(*inputs)``.
    since : int
        First opset that it is right for.
    reads : tuple of int, or None
        Positions of inputs that are read as parameters, and stay where they are; the others are brought
        together on one device. None: no input is moved at all.
    """

    __slots__ = ("function", "prepare", "reads", "since")

    def __init__(self, function: Callable, since: int, reads: tuple[int, ...] | None, prepare: bool):
        self.function, self.since, self.reads, self.prepare = function, since, reads, prepare

    def bind(self, node: Node) -> Callable:
        """What is called at run time."""
        if self.prepare:
            return self.function(node)
        function = self.function

        def run(*inputs: Any) -> Any:
            return function(node, *inputs)

        return run


operators: dict[tuple[str, str], list[Operator]] = {}


def operator(
    name: str,
    since: int = 1,
    domain: str = "",
    reads: tuple[int, ...] | None = (),
    prepare: bool = False,
) -> Callable[[Callable], Callable]:
    """Register a function for an operator; parameters as in `Operator`.

    Several versions of one operator are registered with different `since`; a model gets the newest that is
    not newer than its opset.
    """

    def register(function: Callable) -> Callable:
        versions = operators.setdefault((domain, name), [])
        if any(version.since == since for version in versions):
            raise ValueError(f"operator {domain}.{name} is registered twice for opset {since}")
        versions.append(Operator(function, since, reads, prepare))
        versions.sort(key=lambda version: version.since)
        return function

    return register


def find(name: str, domain: str, opset: int) -> Operator | None:
    """The newest version of an operator that is not newer than the opset; None where there is none."""
    fitting = [version for version in operators.get((domain, name), ()) if version.since <= opset]
    return fitting[-1] if fitting else None
