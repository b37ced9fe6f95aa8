"""Ops from outside the package: one dispatch of the shader that came with the op."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any, cast

import numpy as np

from tinyadept.dtypes import float32
from tinyadept.errors import Unsupported
from tinyadept.ops.kernels import Kernel
from tinyadept.ops.table import Op
from tinyadept.tensor import Buffer, Tensor
from tinyadept.view import Shape

from ..queue import pack
from ..shaders import Macros
from .copying import deliver
from .matmul import dense

MOST_INPUTS, MOST_NUMBERS, MOST_GROUPS = 4, 24, 65_535  # glsl/kernel.glsl has the first two

HEAD = """#version 450
#extension GL_GOOGLE_include_directive : require
#include "kernel.glsl"
#line 1
"""


def run(
    gpu: Any, op: Op, inputs: tuple, shape: Shape, dtype: np.dtype, params: dict, into: Tensor | None = None
) -> Buffer | None:
    """Run an op of a family `Kernel`.

    Raises
    ------
    Unsupported
        If it has no shader, or not for this dtype.
    ValueError
        If its grid or its workgroups exceed what there is.
    """
    family = cast(Kernel, op.family)
    if op.glsl is None or dtype != float32:
        raise Unsupported(f"{op.name} on {gpu.name} needs glsl=... and float32, got {dtype.name}")
    shapes = [x.shape for x in inputs]
    numbers = [int(n) for n in family.numbers(*shapes)]
    grid = (*(int(n) for n in family.grid(*shapes)), 1, 1)[:3]
    lanes = gpu.device.limits.workgroup_invocations
    for what, got, most in (
        ("inputs", len(inputs), MOST_INPUTS),
        ("numbers", len(numbers), MOST_NUMBERS),
        ("workgroups along an axis", max(grid), MOST_GROUPS),
        ("invocations of a workgroup", prod(family.local), lanes),
    ):
        if got > most:
            raise ValueError(f"{op.name}: {got} {what}, expected at most {most}")
    out = gpu.allocator.allocate(prod(shape))
    if prod(shape) and min(grid) > 0:
        ready = [dense(gpu, x) for x in inputs]
        offsets = [out.offset, *(x.buffer.data.offset + x.layout.offset for x in ready)]
        offsets += [0] * (1 + MOST_INPUTS - len(offsets))
        macros = {"INPUTS": len(inputs), **dict(zip("XYZ", family.local, strict=True))}
        shader = gpu.shaders.get(op.name, macros, (), HEAD + op.glsl)
        push = pack(*offsets, *numbers, *[0] * (MOST_NUMBERS - len(numbers)))
        gpu.queue.dispatch(shader, grid, push, (out, *(x.buffer.data for x in ready)))
    return deliver(gpu, out, shape, dtype, into)


def variants() -> Iterator[tuple[str, Macros]]:
    """None of the package's own."""
    yield from ()
