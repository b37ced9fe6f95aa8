"""Ops whose kernel is a whole shader: for those who write kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..tensor import Tensor
from ..view import Shape
from .table import Family, met


def infer(op: Any, inputs: tuple, params: dict) -> tuple[tuple[Tensor, ...], Shape, Any]:
    ready, dtype = met(op, inputs)
    return ready, tuple(op.family.shape(*(x.shape for x in ready))), dtype


@dataclass(frozen=True, eq=False)
class Kernel(Family):
    """A family for one op, with a shader of its own and a grid of its own.

    Shapes are all that its functions see, one argument an input. Inputs reach the shader dense, as float32;
    its source begins behind glsl/kernel.glsl, which tells how it finds them.

    Parameters
    ----------
    shape : callable
        Gives the shape of the result, or raises ValueError.
    grid : callable
        Gives the number of workgroups along x, y and z.
    local : tuple of int
        Invocations of a workgroup along x, y and z.
    numbers : callable
        Gives whole numbers that the shader is told, such as lengths; at most 24.
    draw : callable, optional
        ``draw(integer)`` gives random shapes for fuzzing, where ``integer(low, high)`` draws a number.

    Examples
    --------
    >>> outer = define(
    ...     Kernel(shape=lambda a, b: (a[0], b[0]), grid=lambda a, b: (a[0], b[0], 1), local=(1, 1, 1)),
    ...     "my_outer",
    ...     np.outer,
    ...     lambda g, out, a, b: g @ b,
    ...     lambda g, out, a, b: g.mT @ a,
    ...     takes="strict float",
    ...     glsl='''void main() {
    ...         uvec2 at = gl_WorkGroupID.xy;
    ...         result(at.x * gl_NumWorkGroups.y + at.y, input0(at.x) * input1(at.y));
    ...     }''',
    ... )
    """

    name: str = "kernel"
    infer: Callable = infer
    run: Callable | None = None
    shape: Callable[..., Shape] = field(kw_only=True)
    grid: Callable[..., tuple[int, ...]] = field(kw_only=True)
    local: tuple[int, int, int] = field(default=(64, 1, 1), kw_only=True)
    numbers: Callable[..., tuple[int, ...]] = field(default=lambda *shapes: (), kw_only=True)
    draw: Callable | None = field(default=None, kw_only=True)
