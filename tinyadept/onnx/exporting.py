"""Write a module as an ONNX file, from the ops that one call of it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .. import dtypes, io
from ..ops.table import Op
from ..tape import mode, no_grad
from ..tensor import Tensor
from .registry import Refused

OPSET, IR_VERSION = 20, 9
LARGEST = 2**31 - 1  # bytes of a protobuf message
TYPES = {
    dtypes.float32: TensorProto.FLOAT,
    dtypes.float64: TensorProto.DOUBLE,
    dtypes.int32: TensorProto.INT32,
    dtypes.int64: TensorProto.INT64,
    dtypes.uint8: TensorProto.UINT8,
    dtypes.bool_: TensorProto.BOOL,
}
IN_PLACE = "the module writes over an input or parameter ({}), which a file cannot say: call eval() first"


def export(
    module: Callable, example: Any, path: str | os.PathLike, names: Sequence[str] | None = None
) -> onnx.ModelProto:
    """Write a module to an ONNX file (opset 20).

    The module is called once with the example, and what it does then is written: branches and shapes are
    those of this call. Values that depend on no input and no parameter are written as constants. Call
    ``module.eval()`` first. A model that is written is checked by `onnx.checker`.

    Parameters
    ----------
    module : Module or callable
        Takes tensors, and returns a tensor, or a tuple, list or dict of them.
    example : Tensor or tuple of Tensor
        Its arguments.
    path : str or path
    names : sequence of str, optional
        Of the inputs; by default "input", or "input_0", "input_1", …

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    Refused
        If the module runs an op that cannot be written, or writes in place; the message names it.
    ValueError
        If names and inputs differ in number, or the file would exceed 2 GiB.
    """
    inputs = example if isinstance(example, tuple) else (example,)
    names = list(names or (["input"] if len(inputs) == 1 else [f"input_{i}" for i in range(len(inputs))]))
    if len(names) != len(inputs) or len(set(names)) != len(names):
        raise ValueError(f"export: names {names} for {len(inputs)} inputs: expected one for each")
    writing = Writing()
    for name, x in zip(names, inputs):
        writing.begin(name, x)
    if hasattr(module, "state_dict"):
        for name, x in module.state_dict().items():  # type: ignore[union-attr]
            writing.parameter(name, x)
    watch, mode.watch = mode.watch, writing.note
    try:
        with no_grad():
            results = named(module(*inputs))
    finally:
        mode.watch = watch
    model = writing.finish(results)
    if model.ByteSize() > LARGEST:
        raise ValueError(f"export: the file would have {model.ByteSize()} bytes, more than protobuf's 2 GiB")
    onnx.checker.check_model(model, full_check=True)
    io.replace(Path(path), model.SerializeToString())
    return model


def named(results: Any) -> dict[str, Tensor]:
    """The results of a call by the names of outputs."""
    if isinstance(results, Tensor):
        return {"output": results}
    found = results if isinstance(results, dict) else {f"output_{i}": x for i, x in enumerate(results)}
    for name, x in found.items():
        if not isinstance(x, Tensor):
            raise Refused(f"export: the result {name} is a {type(x).__name__}, expected a tensor")
    return {str(name): x for name, x in found.items()}


class Writing:
    """A graph that grows while ops run.

    A value is known by the memory it lies in and by its view of that: tensors that share both are one value.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: dict[str, Tensor] = {}  # names, and what they hold
        self.constants: dict[str, np.ndarray] = {}
        self.names: dict[tuple, str] = {}
        self.fixed: dict[tuple, Tensor] = {}  # what depends on no input
        self.used: set[str] = set()
        self.kept: list[Any] = []  # buffers, so that no other takes their place

    # --- values ---

    def key(self, x: Tensor) -> tuple:
        return id(x.buffer), x.layout, x.dtype

    def begin(self, name: str, x: Tensor) -> None:
        """An input of the graph."""
        self.names[self.key(x)] = name
        self.kept.append(x.buffer)
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[x.dtype], x.shape))

    def parameter(self, name: str, x: Tensor) -> None:
        if self.key(x) not in self.names:
            self.names[self.key(x)] = name
            self.weights[name] = x
            self.kept.append(x.buffer)

    def name(self, x: Tensor) -> str:
        """How nodes call a value; one that was not seen before is a constant."""
        key = self.key(x)
        if key not in self.names:
            self.names[key] = self.constant(x.detach().numpy())
            self.kept.append(x.buffer)
        name = self.names[key]
        self.used.add(name)
        return name

    def constant(self, array: Any, dtype: Any = None) -> str:
        name = f"constant_{len(self.constants)}"
        self.constants[name] = np.array(array, dtype, order="C")
        self.used.add(name)
        return name

    def whole(self, *numbers: int) -> str:
        """A constant list of integers, as shapes and axes are told."""
        return self.constant(numbers, np.int64)

    # --- nodes ---

    def node(self, kind: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node of one output, and return the output's name."""
        number = len(self.nodes)
        output = output or f"value_{number}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{number}", **attributes))
        return output

    def note(self, op: Op, out: Tensor, inputs: tuple, params: dict) -> None:
        """Called for every op: see `tinyadept.tape.mode`."""
        from .writers import WRITERS

        self.kept.append(out.buffer)
        key = self.key(out)
        if op.family.name != "move" and self.names.get(key) in self.given:
            raise Refused(f"export: {IN_PLACE.format(op.name)}")
        if not any(self.depends(x) for x in inputs):
            self.fixed[key] = out
            return
        if op.name not in WRITERS:
            raise Refused(f"export: {op.name} has no counterpart that this can write")
        name = WRITERS[op.name](self, out, inputs, params)
        if op.family.name != "move":  # written over something: other views of that are no values any more
            for known in (self.names, self.fixed):
                for stale in [other for other in known if other[0] == key[0]]:
                    del known[stale]
        self.names[key] = name

    @property
    def given(self) -> set[str]:
        """Names of inputs and parameters."""
        return {x.name for x in self.inputs} | set(self.weights)

    def depends(self, x: Tensor) -> bool:
        """Whether a value depends on an input or a parameter.

        Raises
        ------
        Refused
            If it is another view of such a value, that no op told of.
        """
        key = self.key(x)
        if key in self.names:
            return self.names[key] not in self.constants
        if key not in self.fixed and any(other[0] == key[0] for other in self.names):
            raise Refused(f"export: a view of shape {x.shape} that no op made, or of what was overwritten")
        return False

    # --- the model ---

    def finish(self, results: dict[str, Tensor]) -> onnx.ModelProto:
        outputs = []
        for name, x in results.items():
            self.node("Identity", self.name(x), output=name)
            outputs.append(helper.make_tensor_value_info(name, TYPES[x.dtype], x.shape))
        values = {name: x.detach().numpy() for name, x in self.weights.items()} | self.constants
        weights = [numpy_helper.from_array(x, name) for name, x in values.items() if name in self.used]
        graph = helper.make_graph(self.nodes, "tinyadept", self.inputs, outputs, weights)
        return helper.make_model(
            graph,
            producer_name="tinyadept",
            ir_version=IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
        )
