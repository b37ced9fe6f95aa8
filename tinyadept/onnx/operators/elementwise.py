"""Arithmetic, roundings and functions of one element."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log as ln
from typing import Any

from ...ops import elementwise as rows
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import Node, operator


def one_to_one(name: str, function: Callable[[Tensor], Tensor]) -> None:
    """Register a function of one tensor that has no attributes."""
    operator(name, prepare=True)(lambda node: function)


for _name, _function in {
    "Abs": rows.abs,
    "Neg": rows.neg,
    "Sign": rows.sign,
    "Floor": rows.floor,
    "Ceil": rows.ceil,
    "Round": rows.round,
    "Reciprocal": rows.reciprocal,
    "Sqrt": rows.root,
    "Exp": rows.exp,
    "Log": rows.log,
    "Erf": rows.erf,
    "Sin": rows.sin,
    "Cos": rows.cos,
    "Tan": rows.tan,
    "Atan": rows.atan,
    "Tanh": rows.tanh,
    "Sigmoid": rows.sigmoid,
    "Relu": rows.relu,
}.items():
    one_to_one(_name, _function)


# --- two operands -------------------------------------------------------------------------------------------


def two_operands(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    operator(name, prepare=True)(lambda node: function)


def quotient(a: Tensor, b: Tensor) -> Tensor:
    """a / b, of integers cut off towards zero."""
    if a.is_floating_point:
        return rows.div(a, b)
    down = rows.floor_divide(a, b)
    inexact = (down * b != a) & ((a < 0) != (b < 0))
    return down + inexact.to(down.dtype)


two_operands("Add", rows.add)
two_operands("Sub", rows.sub)
two_operands("Mul", rows.mul)
two_operands("Div", quotient)


@operator("Pow")
def power(node: Node, base: Tensor, exponent: Tensor) -> Tensor:
    if base.is_floating_point:
        return rows.pow(base, exponent.to(base.dtype))
    return rows.pow(base, exponent).to(base.dtype)


@operator("Mod", prepare=True)
def modulus(node: Node) -> Callable:
    return with_sign_of_dividend if node.get("fmod", 0) else rows.remainder


def with_sign_of_dividend(a: Tensor, b: Tensor) -> Tensor:
    rest = rows.remainder(a.abs(), b.abs())
    return where(a < 0, -rest, rest)


@operator("BitShift", prepare=True)
def shift(node: Node) -> Callable:
    direction = node.get("direction")
    if direction not in ("LEFT", "RIGHT"):
        node.fail(f"attribute 'direction' is {direction!r}, expected LEFT or RIGHT")

    def run(x: Tensor, by: Tensor) -> Tensor:
        wide = x if x.dtype.itemsize > 1 else x.to("int32")
        factor = rows.pow(2, by.to(wide.dtype))
        return (wide * factor if direction == "LEFT" else wide.floor_divide(factor)).to(x.dtype)

    return run


# --- any number of operands ---------------------------------------------------------------------------------


def folding(name: str, function: Callable[[Any, Any], Tensor]) -> None:
    @operator(name)
    def run(node: Node, *inputs: Tensor) -> Tensor:
        if not inputs:
            node.fail("it needs at least one input")
        return reduce(function, inputs)


folding("Sum", rows.add)
folding("Max", rows.maximum)
folding("Min", rows.minimum)


@operator("Mean")
def mean(node: Node, *inputs: Tensor) -> Tensor:
    return reduce(rows.add, inputs) / len(inputs)


# --- inverse and hyperbolic functions -----------------------------------------------------------------------


def asin(x: Tensor) -> Tensor:
    return rows.atan(x / (((1 - x) * (1 + x)).sqrt() + 1)) * 2


def acos(x: Tensor) -> Tensor:
    return rows.atan((1 - x).sqrt() / (1 + x).sqrt()) * 2


def with_sign(x: Tensor, size: Tensor) -> Tensor:
    return where(x < 0, -size, size)


def sinh(x: Tensor) -> Tensor:
    size = x.abs()
    grown = rows.expm1(rows.minimum(size, 20.0))
    half = rows.exp(size * 0.5)
    return with_sign(x, where(size > 20, half * 0.5 * half, (grown + grown / (grown + 1)) * 0.5))


def cosh(x: Tensor) -> Tensor:
    half = rows.exp(x.abs() * 0.5)
    return half * 0.5 * half + 0.5 / half / half


def asinh(x: Tensor) -> Tensor:
    size = x.abs()
    near = rows.minimum(size, 1e6)
    square = near * near
    small = rows.log1p(near + square / ((square + 1).sqrt() + 1))
    return with_sign(x, where(size > 1e6, rows.log(rows.maximum(size, 1.0)) + ln(2), small))


def acosh(x: Tensor) -> Tensor:
    beyond = rows.minimum(x, 1e6) - 1
    small = rows.log1p(beyond + (beyond * (beyond + 2)).sqrt())
    return where(x > 1e6, rows.log(rows.maximum(x, 1.0)) + ln(2), small)


def atanh(x: Tensor) -> Tensor:
    size = x.abs()
    return with_sign(x, rows.log1p(size * 2 / (1 - size)) * 0.5)


for _name, _function in {
    "Asin": asin,
    "Acos": acos,
    "Sinh": sinh,
    "Cosh": cosh,
    "Asinh": asinh,
    "Acosh": acosh,
    "Atanh": atanh,
}.items():
    one_to_one(_name, _function)
