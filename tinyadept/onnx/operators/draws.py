"""Random numbers. The stream is the engine's own: a seed gives the same ones on every device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import TensorProto as P

from ... import creation, random
from ...ops.elementwise import where
from ...tensor import Tensor
from ..registry import operator
from ..types import name_of


def source(node: Any, device: Any) -> random.Generator | None:
    """A stream of the node's own if it names a seed, so that it gives the same numbers each time."""
    seed = node.get("seed")
    return None if seed is None else random.Generator(int(float(seed) * 1024), device)


@operator("Dropout", since=12, reads=(1, 2))
def dropout(node: Any, x: Tensor, ratio: Tensor | None = None, training: Tensor | None = None) -> Any:
    share = 0.5 if ratio is None else node.numbers(ratio)[0]
    if training is None or not node.integers(training)[0] or share == 0:
        return untouched(node, x)
    stays = random.rand(*x.shape, generator=source(node, x.backend), device=x.backend) >= share
    y = where(stays, x * (1 / (1 - share)), 0.0).to(x.dtype)
    return y if node.wanted < 2 else (y, stays)


@operator("Dropout", since=7)
def dropout_when_run(node: Any, x: Tensor) -> Any:
    return untouched(node, x)


def untouched(node: Any, x: Tensor) -> Any:
    if node.wanted < 2:
        return x
    return x, creation.full(x.shape, True, device=x.backend)


DTYPES: dict[int, str] = {
    P.FLOAT: "float32",
    P.FLOAT16: "float32",
    P.BFLOAT16: "float32",
    P.DOUBLE: "float64",
    P.BOOL: "bool",
    P.UINT8: "uint8",
    P.INT32: "int32",
    P.INT64: "int64",
}


def dtype_of(node: Any, like: Tensor | None = None) -> Any:
    """The dtype attribute, or that of another tensor, or float32."""
    element = int(node.get("dtype", 0))
    if element and element not in DTYPES:
        node.refuse(f"dtype {name_of(element)} of random numbers")
    return DTYPES[element] if element else "float32" if like is None else like.dtype


def uniform(node: Any, shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    low, high = float(node.get("low", 0.0)), float(node.get("high", 1.0))
    return (random.rand(*shape, generator=source(node, device), device=device) * (high - low) + low).to(dtype)


def normal(node: Any, shape: Sequence[int], dtype: Any, device: Any) -> Tensor:
    mean, scale = float(node.get("mean", 0.0)), float(node.get("scale", 1.0))
    return (random.randn(*shape, generator=source(node, device), device=device) * scale + mean).to(dtype)


@operator("RandomUniform", since=1)
def random_uniform(node: Any) -> Tensor:
    return uniform(node, [int(n) for n in node.attributes["shape"]], dtype_of(node), node.device)


@operator("RandomNormal", since=1)
def random_normal(node: Any) -> Tensor:
    return normal(node, [int(n) for n in node.attributes["shape"]], dtype_of(node), node.device)


@operator("RandomUniformLike", since=1)
def random_uniform_like(node: Any, x: Tensor) -> Tensor:
    return uniform(node, x.shape, dtype_of(node, x), x.backend)


@operator("RandomNormalLike", since=1)
def random_normal_like(node: Any, x: Tensor) -> Tensor:
    return normal(node, x.shape, dtype_of(node, x), x.backend)


@operator("Bernoulli", since=15)
def bernoulli(node: Any, x: Tensor) -> Tensor:
    drawn = random.rand(*x.shape, generator=source(node, x.backend), device=x.backend)
    return (drawn < x).to(dtype_of(node, x))
