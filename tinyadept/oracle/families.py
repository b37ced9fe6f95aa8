"""Random calls of any op: for each family, how shapes and parameters are drawn."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from math import prod, sqrt
from typing import cast

import numpy as np
from hypothesis import strategies as st

from .. import dtypes
from ..ops.activation import ACTIVATIONS
from ..ops.kernels import Kernel
from ..ops.move import index as index_row
from ..ops.norm import np_moments
from ..ops.table import Move, Op
from ..ops.window import are_apart, np_pool_index, positions
from ..view import Shape, View, normal_axes
from .case import Case, Given
from .layout import Draw, Drawer, laid_out


def elementwise_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape()
    count, name = len(d.op.vjps), d.op.name
    inner = [tuple(n if d.draw(st.integers(0, 3)) else 1 for n in shape) for _ in range(count)]
    inner = [
        s[d.int(0, len(s)) :] if all(n == 1 for n in s[: len(s) // 2]) and d.draw(st.booleans()) else s
        for s in inner
    ]
    params = numbers(d)
    if d.op.mask:
        return [d.bools(inner[0]), *(d.floats(s, i) for i, s in enumerate(inner[1:]))], params
    if d.extremes and name in SPECIAL_OPS and d.int(0, 3) == 0:
        return [d.special(s) for s in inner], params
    first = d.any_dtype(inner[0])
    rest = [
        d.floats(s, i) if first.is_float else d.ints(s, 1, 5, first.memory.dtype)
        for i, s in enumerate(inner[1:], 1)
    ]
    return [first, *rest], params


def numbers(d: Drawer, *known: str) -> dict:
    """A value for each number that an op takes after its inputs, but for those already `known`."""
    if not inspect.isfunction(d.op.forward):  # NumPy's own functions take none
        return {}
    takes = list(inspect.signature(d.op.forward).parameters.values())[len(d.op.vjps) :]
    names = [p.name for p in takes if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in known]
    return {name: d.draw(st.sampled_from(NUMBERS.get((d.op.name, name), (0.5, 1.0, 2.0)))) for name in names}


NUMBERS: dict[tuple[str, str], tuple[float, ...]] = {
    ("leaky_relu", "slope"): (0.01, 0.5, -1.0),
    ("elu", "alpha"): (1.0, 0.3),
    ("softplus", "beta"): (1.0, 2.5),
    ("softplus", "threshold"): (20.0, 2.0),
    ("var", "correction"): (0, 1, 2),
    ("lerp", "weight"): (0.1, 0.5, 1.0),
}
SPECIAL_OPS = set(
    (
        "add sub mul div neg abs exp log sqrt tanh sigmoid relu maximum minimum eq ne lt le gt ge "
        "isnan isinf isfinite floor ceil round trunc copy silu gelu gelu_tanh sin cos erf sign "
        "square reciprocal"
    ).split()
)


def cast_case(d: Drawer) -> tuple[list, dict]:
    x = d.any_dtype(d.shape())
    if x.is_float:
        x = Given(np.where(np.isnan(x.memory), 0, x.memory).astype(np.float32), x.view)
    choices = (dtypes.float32, dtypes.int32, dtypes.bool_) if d.extremes else (dtypes.float64, dtypes.int32)
    return [x], {"dtype": d.draw(st.sampled_from(choices))}


def reduce_case(d: Drawer) -> tuple[list, dict]:
    needs_elements = d.op.name in ("amax", "amin", "argmax", "argmin")
    shape = d.shape(shortest=1 if needs_elements else 0)
    axes = (d.axis(shape),) if d.op.name.startswith("arg") and shape else d.axes(shape)
    params = {"axes": axes, **numbers(d, "axes")}
    if d.op.name in ("amax", "amin", "argmax", "argmin") and d.int(0, 3) == 0:
        return [d.ints(shape, 0, 3)], params
    return [d.any_dtype(shape)], params


def move_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(2 if d.op.name == "diagonal" else 1, 4, shortest=1)
    x = d.floats(shape)
    axis = d.axis(shape)
    if d.op.name == "permute":
        return [x], {"order": tuple(d.draw(st.permutations(range(len(shape)))))}
    if d.op.name == "expand":
        single = tuple(1 if d.draw(st.booleans()) else n for n in shape)
        return [d.floats(single)], {"shape": d.shape(0, 2, 3, 1) + shape}
    if d.op.name == "reshape":
        choices = [new for new in reshapes(shape) if x.view.reshape(new) is not None]
        return [x], {"shape": d.draw(st.sampled_from(choices or [shape]))}
    if d.op.name == "index":
        return [x], {"key": tuple(entry for n in shape for entry in index_entries(d, n))}
    if d.op.name == "diagonal":
        other = d.draw(st.sampled_from([a for a in range(len(shape)) if a != axis]))
        return [x], {"offset": d.int(-3, 3), "axis1": axis, "axis2": other}
    return [x], {"axis": axis, "size": d.int(1, shape[axis]), "step": d.int(1, 3)}


def reshapes(shape: Shape) -> list[Shape]:
    total = prod(shape)
    merged = [shape[:a] + (shape[a] * shape[a + 1],) + shape[a + 2 :] for a in range(len(shape) - 1)]
    cut = [shape[:a] + (2, n // 2) + shape[a + 1 :] for a, n in enumerate(shape) if n % 2 == 0]
    return [(total,), (1, *shape, 1), shape, *merged, *cut]


def index_entries(d: Drawer, n: int) -> list:
    kind = d.int(0, 5)
    if kind == 0:
        return [d.int(-n, n - 1)]
    if kind == 1:
        return [None, slice(None)]
    bound = st.none() | st.integers(-n - 1, n + 1)
    return [slice(d.draw(bound), d.draw(bound), d.draw(st.sampled_from((None, 1, 2, -1, -2))))]


def cat_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1)
    axis = d.axis(shape)
    pieces = [shape[:axis] + (d.int(0, 3),) + shape[axis + 1 :] for _ in range(d.int(1, 4))]
    return [d.floats(piece) for piece in pieces], {"axis": axis}


def place_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, shortest=1)
    spot = Move(index_row.op, (("key", tuple(e for n in shape for e in index_entries(d, n))),))
    value = d.floats(spot.view(shape).shape)
    if d.op.name == "assign":
        return [d.floats(shape), value], {"move": spot}
    return [value], {"shape": shape, "move": spot, "fill": d.draw(st.sampled_from((0, -1.5)))}


def create_case(d: Drawer) -> tuple[list, dict]:
    if d.op.name == "full":
        return [], {
            "shape": d.shape(),
            "value": d.int(-3, 3),
            "dtype": d.draw(st.sampled_from(dtypes.LADDER[2:5:2])),
        }
    kind = d.draw(st.sampled_from((dtypes.int32, dtypes.float32)))
    step = d.int(-3, 3) if kind == dtypes.int32 else d.draw(st.sampled_from((0.1, -0.75, 1 / 3)))
    return [], {"shape": (d.int(0, 40),), "start": d.int(-5, 5), "step": step, "dtype": kind}


def take_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 3, shortest=1)
    axis = d.axis(shape)
    index = d.ints(d.shape(0, 2), 0, shape[axis])
    return [d.floats(shape), index], {"axis": axis}


def put_add_case(d: Drawer) -> tuple[list, dict]:
    before, after, size = d.shape(0, 1), d.shape(0, 2), d.int(1, 4)
    index = d.ints(d.shape(0, 2), 0, size)
    return [d.floats(before + index.view.shape + after), index], {"axis": len(before), "size": size}


def put_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 3, shortest=1)
    axis = d.axis(shape)
    count = d.int(0, shape[axis])
    index = laid_out(
        d.draw, d.rng.permutation(shape[axis])[:count].astype(np.int32)
    )  # of duplicates any may win
    return [d.floats(shape), index, d.floats(shape[:axis] + (count,) + shape[axis + 1 :])], {"axis": axis}


def along_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 3, shortest=1)
    axis = d.axis(shape)
    smaller = tuple(d.int(1, n) if a != axis else d.int(0, n) for a, n in enumerate(shape))
    if d.op.name == "put_along":
        order = np.argsort(d.rng.random(shape), axis).astype(np.int32)[tuple(slice(n) for n in smaller)]
        return [d.floats(shape), laid_out(d.draw, order), d.floats(smaller)], {"axis": axis}
    index = d.ints(smaller, 0, shape[axis])
    if d.op.name == "take_along":
        return [d.floats(shape), index], {"axis": axis}
    return [d.floats(smaller), index], {"axis": axis, "shape": shape}


def in_range_case(d: Drawer) -> tuple[list, dict]:
    size = d.int(1, 6)
    return [d.ints(d.shape(), -size, size)], {"size": size}


def nonzero_case(d: Drawer) -> tuple[list, dict]:
    mask = d.bools(d.shape(1, 3))
    return [mask], {"count": int(mask.values.sum())}


def sort_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1)
    x = (
        d.ints(shape, 0, 3)
        if d.draw(st.booleans())
        else d.special(shape)
        if d.draw(st.booleans())
        else d.floats(shape)
    )
    return [x], {"axis": d.axis(shape), "descending": d.draw(st.booleans())}


def matmul_case(d: Drawer) -> tuple[list, dict]:
    n, k, m = (d.draw(st.sampled_from((1, 2, 3, 5, 8, 17, 0))) for _ in range(3))
    batch = d.shape(0, 2, 3)
    left = tuple(b if d.draw(st.booleans()) else 1 for b in batch)
    right = tuple(b if d.draw(st.booleans()) else 1 for b in batch)
    right = right[d.int(0, len(right)) :] if all(b == 1 for b in right) else right
    return [d.floats((*left, n, k)), d.floats((*right, k, m))], {}


def linear_case(d: Drawer) -> tuple[list, dict]:
    n, k, m = (d.draw(st.sampled_from((1, 2, 3, 5, 8, 17, 0))) for _ in range(3))
    rows = (*d.shape(0, 1, 2), n)
    added = [d.floats(shape) for shape in ((m,), (*rows, m)) if d.draw(st.booleans())]
    return [d.floats((*rows, k)), d.floats((m, k)), *added], activation(d)


def activation(d: Drawer) -> dict:
    """None, or one of those that a product applies; without `extremes` one that has no kink."""
    smooth = [name for name in ACTIVATIONS if d.extremes or name != "relu"]
    return {"activation": d.draw(st.sampled_from(smooth))} if d.draw(st.booleans()) else {}


def entropy_case(d: Drawer) -> tuple[list, dict]:
    n, c = d.int(0, 6), d.draw(st.sampled_from((1, 2, 5, 17, 70)))
    ignore = d.draw(st.sampled_from((-100, 0)))
    labels = d.rng.integers(0, c, n).astype(np.int32)
    labels[d.rng.random(n) < 0.2] = ignore
    given = [d.floats((n, c)), laid_out(d.draw, labels)]
    params = {"ignore": ignore, "smoothing": d.draw(st.sampled_from((0.0, 0.1)))}
    return ([d.floats((n,)), *given] if d.op.name.endswith("_input") else given), params


def kernel_case(d: Drawer) -> tuple[list, dict]:
    """A call of an op from outside the package, whose family draws the shapes."""
    family = cast(Kernel, d.op.family)
    assert family.draw is not None, f"{d.op.name} cannot be drawn: give its Kernel draw=..."
    return [d.floats(shape) for shape in family.draw(d.int)], {}


def attention_case(d: Drawer) -> tuple[list, dict]:
    b, heads, share = d.int(0, 2), d.int(1, 2), d.int(1, 3)
    t, s = d.int(0, 6), d.int(0, 7)
    if d.extremes:  # second gradients of many equal keys are what rounding leaves of them
        t, s = d.draw(st.sampled_from((t, 17, 66))), d.draw(st.sampled_from((s, 66)))
    width, out = d.draw(st.sampled_from((1, 2, 4, 5, 8, 17))), d.draw(st.sampled_from((1, 3, 4, 8)))
    q, k, v = (b, heads * share, t, width), (b, heads, s, width), (b, heads, s, out)
    outer = [d.floats((*q[:3], out))] if d.op.name == "attention_input" else []
    rest = [d.ints((b,), -1, s + 1)] if d.draw(st.booleans()) else []
    if rest and d.draw(st.booleans()):
        mask = d.floats((*q[:3], s))
        if d.draw(st.booleans()):
            mask.memory[d.rng.random(mask.memory.shape) < 0.3] = -np.inf
        rest.append(mask)
    inputs = [d.floats(q), d.floats(k), d.floats(v)]
    scale = d.draw(st.sampled_from((0.3, 1.0)))
    if outer:  # second gradients of scores of a hundred are what rounding leaves of them
        scale /= sqrt(width)
    return [*outer, *inputs, *rest], {"scale": scale}


def append_case(d: Drawer) -> tuple[list, dict]:
    b, heads, length, width = d.int(0, 3), d.int(1, 3), d.int(1, 6), d.int(1, 5)
    count = d.int(0, length)
    base, new = d.floats((b, heads, length, width)), d.floats((b, heads, count, width))
    return [base, new, d.ints((b,), 0, length - count + 1)], {}


def rotary_case(d: Drawer) -> tuple[list, dict]:
    length, pairs = d.int(1, 5), d.int(1, 5)
    x = (d.int(0, 2), d.int(1, 3), d.int(0, 4), 2 * pairs + d.int(0, 2))
    table, positions = d.floats((length, 2 * pairs)), d.ints((x[0], x[2]), 0, length - 1)
    return [d.floats(x), table, positions], {
        "interleaved": d.draw(st.booleans()),
        "inverse": d.draw(st.booleans()),
    }


def norm_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 4, shortest=1)
    if "softmax" in d.op.name:
        return [d.floats(shape)], {"axis": d.axis(shape)}
    axes, sources = d.axes(shape), 2 if d.op.name.endswith("_input") else 1
    # A weight, and a bias.
    most = {"normalize": 2, "normalize_input": 1, "rms_normalize": 1}.get(d.op.name, 0)
    line = tuple(n if d.draw(st.booleans()) else 1 for n in shape)
    affine = [d.floats(line) for _ in range(d.int(0, most))]
    eps = 1e-2 if d.extremes else 0.1  # gradients of rows that hardly differ are what rounding leaves of them
    return [*(d.floats(shape) for _ in range(sources)), *affine], {"axes": axes, "eps": eps}


def statistics_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 4, shortest=1)
    axes, a, eps = d.axes(shape), d.floats(shape), 1e-2 if d.extremes else 0.1
    if d.op.name == "moments":
        return [a], {"axes": axes}
    m = np_moments(a.values, normal_axes(axes, len(shape)))
    return [d.floats(shape), a, laid_out(d.draw, m)], {"axes": axes, "eps": eps}


def random_case(d: Drawer) -> tuple[list, dict]:
    words = d.rng.integers(-(2**31), 2**31, 4).astype(np.int32)
    return [Given(words, View.dense((4,)))], {"shape": d.shape()}


def advance_case(d: Drawer) -> tuple[list, dict]:
    return random_case(d)[0], {"blocks": d.int(0, 2**40)}


def update_case(d: Drawer) -> tuple[list, dict]:
    """One step for a few tensors, none of which repeats cells that are written."""
    rows = [d.shape() for _ in range(d.int(1, 3))]
    operands = [
        laid_out(d.draw, d.rng.uniform(low, high, shape).astype(np.float32))
        for shape in rows
        for low, high in d.op.domain
    ]
    names: tuple[str, ...] = d.op.forward.numbers  # type: ignore[attr-defined]
    values = {name: d.draw(st.sampled_from(STEPS[name])) for name in names}
    if "alpha" in values:  # or the square of a mean might exceed the mean of squares
        values["share"] = 1 - values["alpha"]
    return operands, {"numbers": tuple(values.values())}


STEPS: dict[str, tuple[float, ...]] = {
    "lr": (0.1, 0.01),
    "rate": (0.1, 0.01),
    "decay": (0.0, 0.1),
    "keep": (1.0, 0.99),
    "eps": (1e-8, 0.1),
    "momentum": (0.9, 0.5),
    "share": (1.0, 0.1),
    "nesterov": (0.0, 1.0),
    "alpha": (0.99, 0.9),
    "beta1": (0.9, 0.5),
    "share1": (0.1, 0.5),
    "beta2": (0.999, 0.9),
    "share2": (0.001, 0.1),
}


def window_geometry(d: Drawer) -> tuple[int, Shape, dict]:
    rank = d.int(1, 3)
    spatial = tuple(d.int(3, 7) for _ in range(rank))
    each = lambda low, high: tuple(d.int(low, high) for _ in range(rank))  # noqa: E731
    return (
        rank,
        spatial,
        {
            "kernel": each(1, 3),
            "stride": each(1, 3),
            "dilation": each(1, 2),
            "low": each(0, 1),
            "high": each(0, 2),
        },
    )


def conv_shapes(d: Drawer) -> tuple[int, int, int, Shape, dict]:
    """Groups, channels in and out, cells, and a window: of any kind, or of one that has a way of its own."""
    rank, spatial, w = window_geometry(d)
    groups = d.int(1, 2)
    c, o = groups * d.int(1, 3), groups * d.int(1, 3)
    kind = d.draw(st.sampled_from(("any", "any", "depthwise", "pointwise", "square", "wide")))
    if kind == "depthwise":
        groups = c = d.int(2, 5)
        o = c * d.int(1, 2)
    if kind == "pointwise":
        w |= {"kernel": (1,) * rank, "stride": (1,) * rank, "low": (0,) * rank, "high": (0,) * rank}
    if kind == "square" or (kind == "depthwise" and d.draw(st.booleans())):
        spatial = (*spatial, *spatial)[:2]
        w = {key: (*w[key], *w[key])[:2] for key in w} | {
            "kernel": (3, 3),
            "stride": (1, 1),
            "dilation": (1, 1),
        }
    if kind == "wide" or (kind == "pointwise" and d.draw(st.booleans())):
        c, o = groups * d.int(4, 9), groups * d.int(4, 17)
        spatial = tuple(n + d.int(0, 5) for n in spatial)
    return groups, c, o, spatial, w


def conv_case(d: Drawer) -> tuple[list, dict]:
    groups, c, o, spatial, w = conv_shapes(d)
    n = d.int(1, 3)
    padding = tuple(zip(w["low"], w["high"], strict=True))
    reach = tuple(d_ * (k - 1) + 1 for k, d_ in zip(w["kernel"], w["dilation"], strict=True))
    spatial = tuple(max(s, r) for s, r in zip(spatial, reach, strict=True))
    out = tuple(map(positions, spatial, w["kernel"], w["stride"], padding, w["dilation"]))
    x, weight, g = (n, c, *spatial), (o, c // groups, *w["kernel"]), (n, o, *out)
    params = {"stride": w["stride"], "padding": padding, "dilation": w["dilation"], "groups": groups}
    if d.op.name == "conv":
        bias = [d.floats((o,))] if d.draw(st.booleans()) else []
        return [d.floats(x), d.floats(weight), *bias], params | activation(d)
    if d.op.name == "conv_input":  # also more cells than the positions reach, as with output padding
        least = (
            (o - 1) * s - sum(p) + r for o, s, p, r in zip(out, w["stride"], padding, reach, strict=True)
        )
        extra = (d.int(0, max(s, e) - 1) for s, e in zip(w["stride"], w["dilation"], strict=True))
        x = (n, c, *(max(1, m + e) for m, e in zip(least, extra, strict=True)))
        return [d.floats(g), d.floats(weight)], {"shape": x, **params}
    return [d.floats(g), d.floats(x)], {"shape": weight, **params}


def pool_case(d: Drawer) -> tuple[list, dict]:
    rank, spatial, w = window_geometry(d)
    padding = tuple(min(p, k // 2) for p, k in zip(w["low"], w["kernel"], strict=True))
    dilation = (1,) * rank if d.op.name.startswith("avg_pool") else w["dilation"]
    reach = tuple(e * (k - 1) + 1 for k, e in zip(w["kernel"], dilation, strict=True))
    spatial = tuple(max(s, r) for s, r in zip(spatial, reach, strict=True))
    pairs = tuple((p, p) for p in padding)
    windows = tuple(map(positions, spatial, w["kernel"], w["stride"], pairs, dilation))
    x = (d.int(1, 2), d.int(1, 3), *spatial)
    if d.op.name in ("pool_take", "pool_put"):
        geometry = {"kernel": w["kernel"], "stride": w["stride"], "padding": padding, "dilation": dilation}
        return pool_index_case(d, x, {**geometry, "windows": windows})
    params = {"kernel": w["kernel"], "stride": w["stride"], "padding": padding, "windows": windows}
    if d.op.name in ("pool_index", "max_pool"):
        ties = d.draw(st.booleans())
        return [d.ints(x, 0, 3) if ties else distinct(d, x)], {**params, "dilation": dilation}
    params["divisor"] = d.draw(st.sampled_from(("padded", "inside", 3)))
    if d.op.name == "avg_pool":
        return [d.floats(x)], params
    return [d.floats((*x[:2], *windows))], {"shape": x, **params}


def distinct(d: Drawer, shape: Shape) -> Given:
    """Floats of which no two are equal, nor nearly: the largest one stays the largest."""
    count = prod(shape)
    return laid_out(d.draw, (d.rng.permutation(count).reshape(shape) / count * 6 - 3).astype(np.float32))


def pool_index_case(d: Drawer, x: Shape, geometry: dict) -> tuple[list, dict]:
    """Windows that share no cell have different winners; others may not."""
    windows = geometry["windows"]
    if d.draw(st.booleans()):
        index = laid_out(d.draw, np_pool_index(d.rng.uniform(-3, 3, x), **geometry))
        params = {"apart": are_apart(geometry), "geometry": geometry}
        if d.op.name == "pool_take":
            return [d.floats(x), index], params
        return [d.floats((*x[:2], *windows)), index], {"shape": x, **params}
    count, apart = prod(windows), prod(windows) <= prod(x[2:]) and d.draw(st.booleans())
    flat = np.stack([d.rng.permutation(prod(x[2:]))[:count] for _ in range(x[0] * x[1])]) if apart else None
    shape = (*x[:2], *windows)
    drawn = d.rng.integers(0, prod(x[2:]), shape) if flat is None else flat.reshape(shape)
    index = laid_out(d.draw, drawn.astype(np.int32))
    if d.op.name == "pool_take":
        return [d.floats(x), index], {"apart": apart}
    return [d.floats(shape), index], {"shape": x, "apart": apart}


def suppress_case(d: Drawer) -> tuple[list, dict]:
    """Boxes on whole coordinates, so that no overlap is near the threshold."""
    near = d.rng.integers(0, 12, (d.draw(st.sampled_from((0, 1, 5, 70, 150))), 2))
    boxes = np.concatenate([near, near + d.rng.integers(0, 9, near.shape)], 1).astype(np.float32)
    return [laid_out(d.draw, boxes)], {"threshold": d.draw(st.sampled_from((0.4501, 0.7003)))}


def resample_case(d: Drawer) -> tuple[list, dict]:
    rank, mode = d.int(1, 3), d.draw(st.sampled_from(("nearest", "nearest-exact", "linear")))
    cells = tuple(d.int(1, 6) for _ in range(rank))
    scales = tuple(d.draw(st.sampled_from((None, 0.5, 1.5, 2.0, 3.7))) for _ in range(rank))
    sizes = tuple(max(1, int(n * s)) if s else d.int(1, 9) for n, s in zip(cells, scales, strict=True))
    lead = d.int(1, 2), d.int(1, 3)
    params = {"mode": mode, "corners": mode == "linear" and d.draw(st.booleans()), "scales": scales}
    if d.op.name == "resample":
        return [d.floats((*lead, *cells))], {"sizes": sizes, **params}
    return [d.floats((*lead, *sizes))], {"sizes": cells, **params}


FAMILIES: dict[str, Callable[[Drawer], tuple[list, dict]]] = {
    "elementwise": elementwise_case,
    "cast": cast_case,
    "reduce": reduce_case,
    "scan": lambda d: ([d.any_dtype(shape := d.shape(1))], {"axis": d.axis(shape)}),
    "move": move_case,
    "cat": cat_case,
    "place": place_case,
    "create": create_case,
    "take": take_case,
    "put_add": put_add_case,
    "put": put_case,
    "take_along": along_case,
    "put_along_add": along_case,
    "put_along": along_case,
    "in_range": in_range_case,
    "nonzero": nonzero_case,
    "sort": sort_case,
    "matmul": matmul_case,
    "linear": linear_case,
    "entropy": entropy_case,
    "attention": attention_case,
    "kernel": kernel_case,
    "append": append_case,
    "rotary": rotary_case,
    "norm": norm_case,
    "statistics": statistics_case,
    "random": random_case,
    "advance": advance_case,
    "update": update_case,
    "resample": resample_case,
    "suppress": suppress_case,
    "conv": conv_case,
    "conv_back": conv_case,
    "pool": pool_case,
    "pool_take": pool_case,
    "pool_back": pool_case,
}
UNDRAWN = {"transfer"}  # the family without a draw: moving between devices has tests of its own


@st.composite
def cases(draw: Draw, op: Op, extremes: bool = True) -> Case:
    """A random call of an op; with `extremes` now and then at NaN, infinities, signed zeros and ties."""
    inputs, params = FAMILIES[op.family.name](Drawer(draw, op, extremes))
    return Case(op, tuple(inputs), params)
