"""A model read from an ONNX file: a module whose forward runs the file's graph."""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any, Self

import numpy as np
from onnx import helper

from .. import device as devices
from .. import dtypes, nn, tape
from ..tensor import Tensor
from . import (
    operators,  # noqa: F401  (fills the registry)
    reading,
    types,
)
from .compiling import HOST_ELEMENTS, Compiler, execute
from .folding import folded, split_weights
from .reading import Value
from .registry import ModelError, Refused


def load(model: Any, device: Any = None, fold: bool = True) -> Model:
    """A module that computes what an ONNX model computes.

    Parameters
    ----------
    model : path, bytes or onnx.ModelProto
    device : str, optional
        As for tensors.
    fold : bool
        Whether what depends on constants alone is computed now, and batch normalisations and activations are
        joined with the convolutions before them. Their weights are then what is trained.

    Raises
    ------
    ModelError
        If it is no valid model, or not all of it can be.
    Refused
        If it asks for something that is not supported; the message names node and operator.
    FileNotFoundError
        If there is no such file.
    """
    source, backend = reading.read(model), devices.resolve(device)
    if fold:
        folded(source.graph)
        if backend.largest is not None:
            split_weights(source.graph, backend.largest)
    return Model(source, backend)


class Model(nn.Module):
    """What `load` returns.

    Initialisers of floating point are parameters, found under their names in the file, and so are Constant
    nodes of more than one element; means and variances are buffers. Other constants are no part of the state.

    Attributes
    ----------
    inputs, outputs : list of Value
        Name, element type and shape, as the file declares them.
    """

    def __init__(self, source: reading.Source, device: Any):
        super().__init__()
        compiler = Compiler(source)
        body = compiler.graph(source.graph)
        self.inputs: list[Value] = source.graph.inputs
        self.outputs: list[Value] = source.graph.outputs
        for value, type in zip(self.outputs, body.output_types):
            value.type = value.type or type
        self._body, self._template = body, compiler.template
        self._used = compiler.used
        self._host, self._nodes, self._moving = compiler.host, compiler.nodes, compiler.moving
        self._given = dict(zip((value.name for value in self.inputs), body.inputs))
        self._weights: list[tuple[int, Tensor]] = []
        self.bind(device)
        for slot, (name, array, type, weight) in compiler.constants.items():
            if slot not in compiler.used:
                continue  # only read, and on the host already
            x = self.place(array, type)
            if x.is_floating_point and weight:
                x = x if slot in compiler.statistics else nn.Parameter(x)
                attach(self, name, x)
            self._template[slot] = x
            self._weights.append((slot, x))

    def bind(self, device: Any) -> None:
        """Have the steps run on a device, where the weights are already or will be."""
        self.device = device
        for node in self._nodes:
            node.device = device
        for step in self._moving:
            step.bind(device, self._host)

    def to(self, *targets: Any, dtype: Any = None, device: Any = None) -> Self:
        """Move to another device or floating-point dtype; see `nn.Module.to`."""
        super().to(*targets, dtype=dtype, device=device)
        named = [t for t in targets if isinstance(t, str) and t not in dtypes.names().split(", ")]
        backend = devices.resolve(device or (named[0] if named else self.device))
        if backend is not self.device:
            self.bind(backend)
            for at, (slot, x) in enumerate(self._weights):
                if x.backend is not backend:
                    x = self.moved(x)
                    self._template[slot], self._weights[at] = x, (slot, x)
        return self

    def moved(self, x: Tensor) -> Tensor:
        """A constant that is no parameter where it belongs on the present device."""
        if self.device is self._host:
            return x.to(self._host)
        small = x.numel() <= HOST_ELEMENTS and not x.is_floating_point
        return x if small else types.narrowed(x, self.device)

    def place(self, array: np.ndarray, type: int) -> Tensor:
        """Values that the file gives, on the host or the device; see `docs/onnx.md` for which."""
        return self.moved(Tensor(array, types.held(type) if type else array.dtype, self._host))

    def forward(self, *args: Any, **named: Any) -> Any:
        """Tensors for tensors: a single one, or a tuple where the graph has several outputs.

        Parameters
        ----------
        *args, **named
            Inputs in the order of the file, or by name.

        Raises
        ------
        ModelError
            If inputs are missing or too many, or a shape, dtype or device is not what is expected.
        """
        names = [value.name for value in self.inputs]
        if len(args) > len(names):
            raise ModelError(f"got {len(args)} inputs, expected {len(names)}: {', '.join(names)}")
        given = dict(zip(names, args)) | named
        lengths: dict[str, int] = {}
        for value in self.inputs:
            if isinstance(given.get(value.name), Tensor):
                self.check(value, given[value.name], lengths)
        results = self.compute(given)
        return results[0] if len(results) == 1 else tuple(results)

    def check(self, value: Value, x: Tensor, lengths: dict[str, int]) -> None:
        """Hold a tensor against what the file declares for an input; int32 will do for int64."""
        check_shape(value, x.shape, lengths)
        expected = types.held(value.type) if value.type else x.dtype
        if x.dtype not in (expected, types.NARROWED.get(expected)):
            raise ModelError(f"input {value.name!r}: dtype {x.dtype.name}, expected {expected.name}")
        if x.backend is not self.device and x.backend is not self._host:
            raise ModelError(f"input {value.name!r} is on {x.device}, and the model on {self.device.name}")

    def compute(self, given: Mapping[str, Any]) -> list:
        env = self.filled(given)
        try:
            execute(self._body.steps, env)
            return [env[slot] for slot in self._body.outputs]
        finally:
            env[0] = None

    def filled(self, given: Mapping[str, Any]) -> list:
        """What the slots hold when a run begins."""
        if given.keys() != self._given.keys():
            wrong = [name for name in given if name not in self._given]
            missing = [name for name in self._given if name not in given]
            raise ModelError(
                f"inputs: {', '.join(map(repr, wrong)) or 'none'} unknown, "
                f"{', '.join(map(repr, missing)) or 'none'} missing"
            )
        env = self._template.copy()
        env[0] = env
        for name, value in given.items():
            env[self._given[name]] = value
        return env

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays for arrays, without gradients.

        Parameters
        ----------
        feeds : mapping of str to array_like
            By input; of the dtypes and shapes that the file declares. Lists of arrays for sequences.

        Returns
        -------
        dict of str to ndarray
            By output, in the dtypes that the file declares.

        Raises
        ------
        ModelError
            If a name, dtype or shape is not what the file declares.
        """
        lengths: dict[str, int] = {}
        declared = {value.name: value for value in self.inputs}
        given = {}
        for name, data in feeds.items():
            if name not in declared:
                raise ModelError(f"input {name!r} is unknown: expected {', '.join(declared) or 'none'}")
            given[name] = self.arrived(declared[name], data, lengths)
        with tape.no_grad():
            results = self.compute(given)
        return {value.name: returned(x, value) for value, x in zip(self.outputs, results)}

    def arrived(self, value: Value, data: Any, lengths: dict[str, int]) -> Any:
        if data is None and value.kind == "optional":
            return None
        if isinstance(data, (list, tuple)) and value.kind != "tensor":
            part = Value(value.name, value.type, value.shape)
            return [self.arrived(part, entry, {}) for entry in data]
        array = np.asarray(data)
        wanted = helper.tensor_dtype_to_np_dtype(value.type) if value.type else array.dtype
        if array.dtype != wanted:
            raise ModelError(f"input {value.name!r}: dtype {array.dtype}, expected {wanted}")
        check_shape(value, array.shape, lengths)
        held = types.to_held(array, value.type, f"input {value.name!r}")
        x = Tensor(held, held.dtype, self._host)
        if self._given[value.name] not in self._used:  # only read, as a shape or the like
            return x
        try:
            return x if self.device is self._host else types.narrowed(x, self.device)
        except OverflowError as error:
            raise Refused(f"input {value.name!r}: {error}") from error

    def times(self, feeds: Mapping[str, Any]) -> list[tuple[str, str, float]]:
        """Name, operator and seconds of each node in one run; on a device the time to ask for it."""
        lengths: dict[str, int] = {}
        declared = {value.name: value for value in self.inputs}
        env = self.filled({n: self.arrived(declared[n], x, lengths) for n, x in feeds.items()})
        measured = []
        with tape.no_grad():
            for step in self._body.steps:
                start = perf_counter()
                execute([step], env)
                measured.append((step[4].name or step[4].outputs[0], step[4].op, perf_counter() - start))
        env[0] = None
        return measured


def check_shape(value: Value, shape: tuple[int, ...], lengths: dict[str, int]) -> None:
    """Compare a shape with the declared one; lengths of the same name must agree.

    Raises
    ------
    ModelError
        If they differ.
    """
    if value.shape is None:
        return
    fits = len(shape) == len(value.shape)
    for n, wanted in zip(shape, value.shape):
        if isinstance(wanted, str):
            wanted = lengths.setdefault(wanted, n)
        fits = fits and (wanted is None or n == wanted)
    if not fits:
        known = {name: lengths[name] for name in value.shape if isinstance(name, str) and name in lengths}
        where = f" with {known}" if known else ""
        raise ModelError(f"input {value.name!r}: shape {shape}, expected {value.shape}{where}")


def returned(x: Any, value: Value) -> Any:
    """A result as arrays of the declared type."""
    if isinstance(x, (list, tuple)):
        return [returned(entry, value) for entry in x]
    if x is None:
        return None
    if value.type and x.is_floating_point != (types.held(value.type) in dtypes.FLOATS):
        made, wanted = x.dtype.name, types.name_of(value.type)
        raise ModelError(f"output {value.name!r} came out as {made}, and the file declares {wanted}")
    return types.from_held(x.detach().numpy(), value.type)


def attach(model: nn.Module, name: str, x: Tensor) -> None:
    """Register a parameter or buffer under a dotted name, or one near it where the name is no attribute's."""
    *path, last = name.split(".")
    spot = model
    for part in path:
        inner = vars(spot).get(part)
        if inner is None and part and not hasattr(type(spot), part) and part not in vars(spot):
            inner = nn.Module()
            spot.add_module(part, inner)
        if not isinstance(inner, nn.Module):
            spot, last = model, name.replace(".", "_")
            break
        spot = inner
    last = last or "weight"
    while hasattr(type(spot), last) or last in vars(spot):
        last += "_"
    if isinstance(x, nn.Parameter):
        spot.register_parameter(last, x)
    else:
        spot.register_buffer(last, x)
