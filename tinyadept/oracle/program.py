"""A call that fails, as a program: anyone can paste it and run it."""

from __future__ import annotations

import contextlib
import io
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np

from .. import ops
from ..ops.table import Move, Op
from .case import MEANING, Case, Given
from .checks import ABSOLUTE, CHECKS, RELATIVE, SLACK, STEP

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WIDTH = 100
IMPORTS = {
    "np": "import numpy as np",
    "ta": "import tinyadept as ta",
    "oracle": "from tinyadept import ops, oracle",
    "apply": "from tinyadept.ops.table import apply",
    "View": "from tinyadept.view import View",
}


def program(case: Case, check: str, device: str, seed: int, error: Exception) -> tuple[str, str]:
    """What is wrong, and a program that shows it: inputs, the call, and what NumPy says in float64.

    The program has been run: it fails as the check did.

    Parameters
    ----------
    case : Case
    check : str
        Of `CHECKS`: the one that fails.
    device : str
    seed : int
        Of the check.
    error : Exception
        What the check raised.
    """
    inputs = [f"{name} = {given(x)}" for name, x in zip(names(case), case.inputs)]
    text, what = "", None
    for body in (*DIRECT[check](case, device), again(case, check, device, seed)):
        text = complete(case.op, [*inputs, *body])
        what = complaint(text, AssertionError if isinstance(error, AssertionError) else type(error))
        if what is not None:
            break
    if what is None:
        what = f"{error} (a second run of the same call did not fail)"
    where = device if check in ("forward", "backward") else "numpy"
    head = f"{case.op.name} on {where}, {check}: {what}"
    return head, "\n".join([*(f"# {line}" for line in head.splitlines()), text])


def complete(op: Op, lines: list[str]) -> str:
    text = "\n".join(lines)
    used = [line for word, line in IMPORTS.items() if f"{word}." in text or f"{word}(" in text]
    if called(op).startswith("apply("):
        used.append(f"# and the module that defines {op.name}")
    return "\n".join([*used, "", text])


def complaint(text: str, kind: type[Exception]) -> str | None:
    """What a program says when it fails in this way; None when it does not."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(text, "<program>", "exec"), {})
    except kind as error:
        said = getattr(error, "what", str(error))
        return said if kind is AssertionError else f"raised {type(error).__name__}: {error}"
    return None


# --- values as Python spells them --------------------------------------------------------------


def written(value: Any) -> str:
    """A parameter as source text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {written(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (tuple, list)):
        return listed([written(entry) for entry in value])
    if isinstance(value, np.dtype):
        return f"np.dtype({quoted(value.name)})"
    if isinstance(value, Move):
        return f"ops.Move({registered(value.op)}, {written(value.params)})"
    if isinstance(value, float) and not np.isfinite(value):
        return number(np.float64(value))
    return quoted(value) if isinstance(value, str) else repr(value)


def quoted(text: str) -> str:
    return f'"{text}"'


def registered(op: Op) -> str:
    return f"ops.registry[{quoted(op.name)}]"


def listed(entries: list[str]) -> str:
    return f"({', '.join(entries)}{',' if len(entries) == 1 else ''})"


def array(values: np.ndarray) -> str:
    """A flat array as source text, every bit of it."""
    kind, content = f"np.{'bool_' if values.dtype == bool else values.dtype.name}", values.tolist()
    if values.dtype.kind != "f":
        return f"np.array({content}, {kind})"
    texts = [number(x) for x in values]
    spelled = f"np.array([{', '.join(texts)}], {kind})"
    bits = f"u{values.itemsize}"
    if np.array_equal(eval(spelled, {"np": np}).view(bits), values.view(bits)):
        return spelled
    return f"np.array({values.view(bits).tolist()}, np.uint{8 * values.itemsize}).view({kind})"


def number(x: np.floating) -> str:
    """A float as briefly as its dtype allows."""
    return str(x) if np.isfinite(x) else f"np.{x}" if x > 0 or np.isnan(x) else "-np.inf"


def given(x: Given) -> str:
    """An input: its memory, and the view that reads it."""
    view = f"View(shape={x.view.shape}, strides={x.view.strides}, offset={x.view.offset})"
    line = f"oracle.Given({array(x.memory)}, {view})"
    return textwrap.fill(
        line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def names(case: Case) -> list[str]:
    if len(case.inputs) <= len(LETTERS):
        return list(LETTERS[: len(case.inputs)])
    return [f"x{position}" for position in range(len(case.inputs))]


def called(op: Op) -> str:
    """What a program calls to run the op, up to its inputs."""
    for name, module in vars(ops).items():
        if isinstance(module, ModuleType):
            for entry in vars(module).values():
                if callable(entry) and getattr(getattr(entry, "op", None), "name", None) == op.name:
                    return f"ops.{name}.{op.name}("
    return f"apply({registered(op)}, "


def call(case: Case, inputs: list[str]) -> str:
    """The call itself."""
    start = called(case.op)
    if start.startswith("apply("):
        return f"{start}{listed(inputs)}, {written(case.params)})"
    return f"{start}{', '.join(inputs + keywords(case))})"


def keywords(case: Case) -> list[str]:
    return [f"{name}={written(value)}" for name, value in case.params.items()]


def meaning(case: Case, inputs: list[str]) -> str:
    """The same call of what defines the op in NumPy."""
    name = case.op.name
    start = f"oracle.MEANING[{quoted(name)}]" if name in MEANING else f"{registered(case.op)}.forward"
    return f"{start}({', '.join(inputs + keywords(case))})"


# --- bodies of programs, the most telling first ------------------------------------------------


def again(case: Case, check: str, device: str, seed: int) -> list[str]:
    """The check itself, where nothing more telling fails."""
    call = f"oracle.Case({registered(case.op)}, {listed(names(case))}, {written(case.params)})"
    return [f"case = {call}", f"oracle.{CHECKS[check].__name__}(case, {quoted(device)}, seed={seed})"]


def wide(case: Case) -> list[str]:
    """Each input as NumPy gets it: floats in float64, others as the op's family takes them."""
    dtypes = ["float64" if x.is_float else x.memory.dtype.name for x in case.inputs]
    if case.op.family.run is None:
        tensors = tuple(x.on("numpy", np.float64 if x.is_float else None) for x in case.inputs)
        dtypes = [x.dtype.name for x in case.op.family.infer(case.op, tensors, dict(case.params))[0]]
    return [
        f"{name}.values" + ("" if x.memory.dtype.name == dtype else f".astype(np.{dtype})")
        for name, x, dtype in zip(names(case), case.inputs, dtypes)
    ]


def compared(allowed: str) -> list[str]:
    return [
        'print(f"got      {got.tolist()}\\nexpected {expected.tolist()}")',
        f"wrong = oracle.mismatch(got, expected, {allowed})",
        "assert not wrong.any(), oracle.first_wrong(got, expected, wrong)",
    ]


def forward(case: Case, device: str) -> Iterator[list[str]]:
    """The result, and what the definition makes of it."""
    if not case.inputs or case.op.family.run is not None:
        return  # a row cannot be told the device of what it makes, or has no result but what it writes
    try:
        truth = case.truth()
        allowed, expected = bound(case.bound(truth)), meaning(case, wide(case))
    except Exception:  # the definition fails as well, after the call
        allowed, expected = "0.0", "None"
    got = call(case, [f"{name}.on({quoted(device)})" for name in names(case)])
    yield [f"got = {got}.numpy()", f"expected = {expected}  # NumPy", *compared(allowed)]


def bound(allowed: np.ndarray) -> str:
    """How far results may lie from the truth: a number for all, or one for each."""
    flat = np.unique(allowed)
    if flat.size <= 1:
        return brief(flat[0]) if flat.size else "0.0"
    numbers = ", ".join(brief(x) for x in np.ravel(allowed))
    return f"np.reshape([{numbers}], {allowed.shape})"


def brief(x: np.floating) -> str:
    return f"{x:.3g}" if np.isfinite(x) else number(x)


def backward(case: Case, device: str) -> Iterator[list[str]]:
    """The gradient of one input in float32, and in float64 on the reference."""
    tensors = [
        f"{name}.on(device, dtype).requires_grad_()" if x.is_float else f"{name}.on(device)"
        for name, x in zip(names(case), case.inputs)
    ]
    for position, x in enumerate(case.inputs):
        if x.is_float:
            yield [
                "",
                f"def gradient(device, dtype):  # of input {position}",
                f"    inputs = {listed(tensors)}",
                f"    out = {call(case, ['*inputs'])}",
                "    incoming = np.linspace(-1, 1, out.numel()).reshape(out.shape)",
                "    out.backward(ta.tensor(incoming, dtype, device))",
                f"    return inputs[{position}].grad.numpy()",
                "",
                f'got, expected = gradient({quoted(device)}, np.float32), gradient("numpy", np.float64)',
                "size = np.abs(expected)",
                *compared(f"{RELATIVE} * size + {ABSOLUTE} * size.max(initial=1.0)"),
            ]


def gradient(case: Case, device: str) -> Iterator[list[str]]:
    """The gradient of one input in float64, and differences of the definition."""
    fixed = [
        f'{name}.on("numpy"' + (", np.float64)" if x.is_float else ")")
        for name, x in zip(names(case), case.inputs)
    ]
    for position, x in enumerate(case.inputs):
        if x.is_float:
            before, after = wide(case)[:position], wide(case)[position + 1 :]
            yield [
                f"x = {names(case)[position]}.values.astype(np.float64)",
                'tensor = ta.tensor(x, ta.float64, "numpy", requires_grad=True)',
                f"out = {call(case, [*fixed[:position], 'tensor', *fixed[position + 1 :]])}",
                "incoming = np.linspace(-1, 1, out.numel()).reshape(out.shape)",
                'out.backward(ta.tensor(incoming, ta.float64, "numpy"))',
                "got, expected = tensor.grad.numpy(), np.zeros_like(x)",
                "",
                "def meaning(x):  # in NumPy",
                f"    return {meaning(case, [*before, 'x', *after])}",
                "",
                "for at in np.ndindex(x.shape):  # differences along each element",
                f"    step = np.zeros_like(x)\n    step[at] = {STEP}",
                f"    expected[at] = (incoming * (meaning(x + step) - meaning(x - step))).sum() / {2 * STEP}",
                *compared(f"{SLACK} * np.maximum(1.0, np.abs(expected))"),
            ]


DIRECT = {
    "forward": forward,
    "backward": backward,
    "gradient": gradient,
    "second gradient": lambda case, device: iter(()),
}
