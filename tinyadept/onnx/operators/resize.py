"""Resize and Upsample: each axis by itself, as a weighted sum of the cells that its results take."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from ...ops.elementwise import where
from ...ops.index import take
from ...ops.resample import resample
from ...tensor import Tensor
from ..registry import Node, operator


class Rule(NamedTuple):
    """The attributes that say what a result takes.

    Attributes
    ----------
    mode : str
        "nearest", "linear" or "cubic".
    places : str
        coordinate_transformation_mode: where a result lies along the input's axis.
    rounding : str
        nearest_mode.
    a : float
        cubic_coeff_a.
    exclude_outside, antialias : bool
        Whether cells outside weigh nothing, and whether the filter widens when the axis shrinks.
    """

    mode: str
    places: str
    rounding: str
    a: float
    exclude_outside: bool
    antialias: bool


class Taps(NamedTuple):
    """Cells and weights of each result of an axis, both (taps, results), and which results lie outside."""

    cells: np.ndarray
    weights: np.ndarray
    outside: np.ndarray


def coordinates(rule: Rule, n: int, m: int, scale: float, low: float, high: float) -> np.ndarray:
    """Where each of m results lies along an axis of n cells, from the centre of the first on."""
    i = np.arange(m, dtype=np.float64)
    length = scale * n  # of the result, before it was rounded down to m
    if rule.places == "half_pixel":
        return (i + 0.5) / scale - 0.5
    if rule.places == "pytorch_half_pixel":
        return (i + 0.5) / scale - 0.5 if m > 1 else np.zeros(m)
    if rule.places == "align_corners":
        return i * (n - 1) / (length - 1) if length != 1 else np.zeros(m)
    if rule.places == "asymmetric":
        return i / scale
    if rule.places == "half_pixel_symmetric":
        return n / 2 * (1 - m / length) + (i + 0.5) / scale - 0.5
    if rule.places == "tf_half_pixel_for_nn":
        return (i + 0.5) / scale
    if m > 1:  # tf_crop_and_resize
        return low * (n - 1) + i * (high - low) * (n - 1) / (m - 1)
    return np.full(m, 0.5 * (low + high) * (n - 1))


ROUNDINGS = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def cubic(x: np.ndarray, a: float) -> np.ndarray:
    """The cubic convolution kernel (Keys, 1981)."""
    x = np.abs(x)
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))


@lru_cache(maxsize=256)
def taps(rule: Rule, n: int, m: int, scale: float, low: float, high: float) -> Taps:
    """What each of m results along an axis of n cells takes."""
    at = coordinates(rule, n, m, scale, low, high)
    outside = (at < 0) | (at > n - 1)
    if rule.mode == "nearest":
        cells = np.clip(ROUNDINGS[rule.rounding](at), 0, n - 1).astype(np.int32)
        return Taps(cells[None], np.ones((1, m), np.float32), outside)
    radius = 1 if rule.mode == "linear" else 2
    narrow = min(scale, 1.0) if rule.antialias else 1.0
    reach = int(np.ceil(radius / narrow))
    cells = np.floor(at).astype(np.int64) + np.arange(1 - reach, reach + 1)[:, None]
    distance = (at - cells) * narrow
    weights = triangle(distance) if rule.mode == "linear" else cubic(distance, rule.a)
    if rule.exclude_outside:
        weights = np.where((cells < 0) | (cells >= n), 0, weights)
    if rule.exclude_outside or rule.antialias:
        weights = weights / weights.sum(0)
    used = (weights != 0).any(1)
    cells = np.clip(cells, 0, n - 1).astype(np.int32)
    return Taps(cells[used], weights[used].astype(np.float32), outside)


@lru_cache(maxsize=256)
def tables(rule: Rule, n: int, m: int, scale: float, region: tuple, dtype: Any, backend: Any) -> list:
    """For each tap the cells and, unless all are 1, the weights of the results: tensors on a device, kept."""
    found = taps(rule, n, m, scale, *region)
    return [
        (Tensor(cells, device=backend), None if (weights == 1).all() else Tensor(weights, dtype, backend))
        for cells, weights in zip(found.cells, found.weights, strict=True)
    ]


def resized_axis(x: Tensor, axis: int, table: list) -> Tensor:
    """Resample one axis."""
    total, line = None, (-1, *(1,) * (x.ndim - axis - 1))
    for cells, weights in table:
        part = take(x, cells, axis=axis)
        part = part if weights is None else part * weights.reshape(*line)
        total = part if total is None else total + part
    assert total is not None
    return total


def resized(
    x: Tensor, rule: Rule, sizes: Sequence[int], scales: Sequence[float], region: Sequence, beyond: float
) -> Tensor:
    """Resample every axis whose length or scale says so; `region` holds starts and ends for crops."""
    if fits_resample(x, rule, sizes, scales):
        corners = rule.places == "align_corners"
        same = tuple(m / n for m, n in zip(sizes[2:], x.shape[2:], strict=True)) == tuple(scales[2:])
        given = (None,) * (x.ndim - 2) if same else tuple(scales[2:])
        return resample(x, sizes=tuple(sizes[2:]), mode="linear", corners=corners, scales=given)
    outside: list[tuple[int, np.ndarray]] = []
    for axis, (n, m, scale) in enumerate(zip(tuple(x.shape), sizes, scales, strict=True)):
        ends = (float(region[axis]), float(region[axis + x.ndim])) if region else (0.0, 1.0)
        if m == n and scale == 1 and ends == (0.0, 1.0):
            continue
        x = resized_axis(x, axis, tables(rule, n, m, float(scale), ends, x.dtype, x.backend))
        outside.append((axis, taps(rule, n, m, float(scale), *ends).outside))
    if rule.places == "tf_crop_and_resize":
        for axis, beside in outside:
            mask = Tensor(beside, device=x.backend).reshape(-1, *(1,) * (x.ndim - axis - 1))
            x = where(mask, beyond, x).to(x.dtype)
    return x


def fits_resample(x: Tensor, rule: Rule, sizes: Sequence[int], scales: Sequence[float]) -> bool:
    """Whether the engine's own linear interpolation means the same."""
    if rule.mode != "linear" or rule.antialias or rule.exclude_outside or not 3 <= x.ndim <= 5:
        return False
    if tuple(sizes[:2]) != x.shape[:2] or tuple(scales[:2]) != (1, 1) or not x.is_floating_point:
        return False
    if rule.places == "align_corners":
        return all(round(s * n) == s * n for s, n in zip(scales[2:], x.shape[2:], strict=True))
    if rule.places == "pytorch_half_pixel":
        return min(sizes[2:]) > 1
    return rule.places == "half_pixel"


def rule_of(node: Node, version: int) -> Rule:
    mode = node.get("mode", "nearest")
    places = node.get("coordinate_transformation_mode", "half_pixel" if version > 10 else "asymmetric")
    rounding = node.get("nearest_mode", "round_prefer_floor" if version > 10 else "floor")
    mode = {"bilinear": "linear"}.get(mode, mode)
    if mode not in ("nearest", "linear", "cubic"):
        node.refuse(f"mode {mode!r}: expected nearest, linear or cubic")
    known = (
        "half_pixel pytorch_half_pixel align_corners asymmetric half_pixel_symmetric "
        "tf_half_pixel_for_nn tf_crop_and_resize"
    )
    if places not in known.split() or rounding not in ROUNDINGS:
        node.refuse(f"coordinate_transformation_mode {places!r} with nearest_mode {rounding!r}")
    return Rule(
        mode,
        places,
        rounding,
        float(node.get("cubic_coeff_a", -0.75)),
        bool(node.get("exclude_outside", 0)),
        bool(node.get("antialias", 0)),
    )


@operator("Resize", since=11, reads=(1, 2, 3))
def resize(
    node: Any,
    x: Tensor,
    roi: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    rule = rule_of(node, 11)
    axes = [int(a) % x.ndim for a in node.get("axes") or range(x.ndim)]
    factors, lengths = [1.0] * x.ndim, list(x.shape)
    if sizes is not None and sizes.numel():
        wanted = node.integers(sizes)
        kept = kept_ratio(node, [x.shape[a] for a in axes], wanted)
        for axis, size, factor in zip(axes, *kept, strict=True):
            lengths[axis], factors[axis] = size, factor
    elif scales is not None and scales.numel():
        for axis, factor in zip(axes, node.numbers(scales), strict=True):
            lengths[axis], factors[axis] = scaled_length(x.shape[axis], factor), factor
    else:
        node.refuse("neither scales nor sizes are given")
    region: list[float] = []
    if rule.places == "tf_crop_and_resize" and roi is not None:
        region = [0.0] * x.ndim + [1.0] * x.ndim
        given = node.numbers(roi)
        for position, axis in enumerate(axes):
            region[axis], region[axis + x.ndim] = given[position], given[position + len(axes)]
    return resized(x, rule, lengths, factors, region, float(node.get("extrapolation_value", 0.0)))


def scaled_length(n: int, factor: float) -> int:
    """Rounded down from the product in float32, which is what exporters reckon with."""
    return int(np.float32(n) * np.float32(factor))


def kept_ratio(node: Any, old: list[int], wanted: Sequence[int]) -> tuple[list[int], list[float]]:
    """Lengths and factors for the sizes asked for, by keep_aspect_ratio_policy."""
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    if len(wanted) != len(old):
        node.refuse(f"{len(wanted)} sizes for {len(old)} axes")
    factors = [m / n for m, n in zip(wanted, old, strict=True)]
    if policy == "stretch":
        return list(wanted), factors
    if policy not in ("not_larger", "not_smaller"):
        node.refuse(f"keep_aspect_ratio_policy {policy!r}: expected stretch, not_larger or not_smaller")
    factor = min(factors) if policy == "not_larger" else max(factors)
    return [int(factor * n + 0.5) for n in old], [factor] * len(old)


@operator("Resize", since=10, reads=(1,))
def resize_by_scales(node: Any, x: Tensor, scales: Tensor) -> Tensor:
    """Before version 11 there were scales alone, and results began at the cells' edges."""
    return scaled(node, x, node.numbers(scales))


@operator("Upsample", since=9, reads=(1,))
def upsample(node: Any, x: Tensor, scales: Tensor) -> Tensor:
    return scaled(node, x, node.numbers(scales))


@operator("Upsample", since=7)
def upsample_by_attribute(node: Any, x: Tensor) -> Tensor:
    return scaled(node, x, node.attributes["scales"])


def scaled(node: Any, x: Tensor, factors: Sequence[float]) -> Tensor:
    lengths = [scaled_length(n, float(s)) for n, s in zip(x.shape, factors, strict=True)]
    return resized(x, rule_of(node, 10), lengths, [float(s) for s in factors], [], 0.0)
