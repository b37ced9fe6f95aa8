"""Comparisons, and logic of booleans and of bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ops import elementwise as rows
from ...tensor import Tensor
from ..registry import Node, operator

PLAIN: dict[str, Callable[..., Tensor]] = {
    "Equal": rows.eq,
    "Greater": rows.gt,
    "GreaterOrEqual": rows.ge,
    "Less": rows.lt,
    "LessOrEqual": rows.le,
    "And": rows.logical_and,
    "Or": rows.logical_or,
    "Xor": rows.logical_xor,
    "Not": rows.logical_not,
    "BitwiseAnd": rows.bitwise_and,
    "BitwiseOr": rows.bitwise_or,
    "BitwiseXor": rows.bitwise_xor,
    "BitwiseNot": rows.bitwise_not,
    "IsNaN": rows.isnan,
    "Where": rows.where,
}


def register(name: str, function: Callable[..., Tensor]) -> None:
    @operator(name, prepare=True)
    def prepared(node: Node) -> Callable[..., Tensor]:
        return function


for _name, _function in PLAIN.items():
    register(_name, _function)


@operator("IsInf", prepare=True)
def is_inf(node: Node) -> Callable[[Tensor], Any]:
    positive, negative = node.get("detect_positive", 1), node.get("detect_negative", 1)
    if positive and negative:
        return rows.isinf
    if positive:
        return lambda x: x == float("inf")
    return (lambda x: x == -float("inf")) if negative else (lambda x: rows.isinf(x) & False)
