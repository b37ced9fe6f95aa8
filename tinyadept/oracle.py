"""The oracle: random inputs for any op of the table, and how far a result may lie from the truth.

Each family says how to draw shapes and parameters; every input is then laid out in memory at random:
permuted, strided, reversed, repeated, with an offset, and with NaN in the cells that nobody should read. The
truth is the definition in float64 (integers: in the dtype itself). Needs the package hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st

from . import device as devices
from . import dtypes
from .ops.move import index as index_row
from .ops.table import Move, Op, apply
from .ops.window import positions
from .tensor import Tensor, wrap
from .view import Shape, View

Draw = Callable[[st.SearchStrategy], Any]
EPS = float(np.finfo(np.float32).eps)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e-30], np.float32)


@dataclass(frozen=True)
class Given:
    """One input: memory, and the view that reads it."""

    memory: np.ndarray
    view: View

    @property
    def values(self) -> np.ndarray:
        size = self.memory.itemsize
        strides = [s * size for s in self.view.strides]
        return np.ndarray(
            self.view.shape, self.memory.dtype, self.memory, self.view.offset * size, strides
        ).copy()

    def on(self, device: Any, dtype: Any = None) -> Tensor:
        """The input as a tensor of a device: the same memory and view."""
        backend = devices.resolve(device)
        memory = self.memory.astype(dtype or self.memory.dtype)
        return wrap(backend.upload(memory), self.view, memory.dtype, backend)


@dataclass(frozen=True)
class Case:
    """One call of one op."""

    op: Op
    inputs: tuple[Given, ...]
    params: dict

    def run(
        self, device: Any = "numpy", dtype: Any = None, requires_grad: bool = False
    ) -> tuple[Tensor, list[Tensor]]:
        """Result and inputs on a device; float inputs as `dtype` where given."""
        tensors = [x.on(device, dtype if x.memory.dtype == np.float32 else None) for x in self.inputs]
        for x in tensors:
            x.requires_grad = requires_grad and x.is_floating_point
        if tensors:
            return apply(self.op, tuple(tensors), dict(self.params)), tensors
        return apply(self.op, (), dict(self.params), devices.resolve(device)), tensors

    def truth(self) -> np.ndarray:
        """The definition in float64, of dense inputs, so that one that misreads strides is noticed."""
        dense = tuple(Given(x.values.ravel(), View.dense(x.view.shape)) for x in self.inputs)
        return Case(self.op, dense, self.params).run(dtype=np.float64)[0].detach().numpy()

    def bound(self, truth: np.ndarray) -> np.ndarray:
        """How far each element of a float32 result may lie from the truth.

        So many ulps, and for sums the rounding bound n · eps · Σ|terms| of n terms.
        """
        allowed = self.op.ulps * EPS * np.abs(truth) + 2.0**-126
        if self.op.name in SUMS:
            return allowed + self.op.ulps * EPS * SUMS[self.op.name](self)
        terms = TERMS.get(self.op.name)
        if terms is None:
            return allowed
        sizes = tuple(
            Given(np.abs(x.memory), x.view) if x.memory.dtype == np.float32 else x for x in self.inputs
        )
        return allowed + terms(self) * EPS * np.abs(Case(self.op, sizes, self.params).truth())


def mismatch(got: np.ndarray, truth: np.ndarray, allowed: np.ndarray | float) -> np.ndarray:
    """Where a result is wrong: NaN must meet NaN and infinity the same infinity."""
    with np.errstate(all="ignore"):
        rounded = truth.astype(got.dtype)
        if got.dtype.kind != "f":
            return got != rounded
        close = np.abs(got.astype(np.float64) - truth) <= allowed
        return ~(close | (got == rounded) | (np.isnan(got) & np.isnan(truth)))


# --- memory: where the elements of an input lie ----------------------------------------


def laid_out(draw: Draw, values: np.ndarray) -> Given:
    """Put values into memory in a random layout; axes that hold one value repeated may get stride 0."""
    rank = values.ndim
    if not draw(st.booleans()) or values.size == 0:
        return Given(np.ascontiguousarray(values).ravel(), View.dense(values.shape))
    order = draw(st.permutations(range(rank)))
    steps = [draw(st.sampled_from((1, 1, 1, 2, -1, -2))) for _ in range(rank)]
    before, strides, step = draw(st.integers(0, 3)), [0] * rank, 1
    for axis in reversed(order):
        strides[axis] = step * steps[axis]
        step *= (values.shape[axis] - 1) * abs(steps[axis]) + 1 + draw(st.integers(0, 1))
    offset = before + sum(-s * (n - 1) for s, n in zip(strides, values.shape, strict=True) if s < 0)
    poison = np.nan if values.dtype.kind == "f" else 77
    memory = np.full(before + step + 2, poison, values.dtype)
    view = View(values.shape, tuple(strides), offset)
    size = values.itemsize
    np.ndarray(view.shape, values.dtype, memory, offset * size, [s * size for s in strides])[...] = values
    return Given(memory, view)


def repeated(draw: Draw, given: Given) -> Given:
    """Make some axes repeat their first element, without memory behind them."""
    strides = tuple(0 if draw(st.integers(0, 5)) == 0 else s for s in given.view.strides)
    return Given(given.memory, View(given.view.shape, strides, given.view.offset))


class Drawer:
    """Draws what an op takes; NumPy fills the arrays from a drawn seed, so that shapes shrink."""

    def __init__(self, draw: Draw, op: Op, extremes: bool):
        self.draw, self.op, self.extremes = draw, op, extremes
        self.rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def shape(self, low: int = 0, high: int = 4, longest: int = 5, shortest: int = 0) -> Shape:
        sizes = st.integers(shortest, longest) | st.integers(1, longest)
        return tuple(self.draw(st.lists(sizes, min_size=low, max_size=high)))

    def int(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def floats(self, shape: Shape, position: int = 0) -> Given:
        """Numbers from the op's domain, or now and then special ones."""
        domain = self.op.domain
        low, high = domain[position] if isinstance(domain[0], tuple) else domain
        values = self.rng.uniform(low, high, shape).astype(np.float32)
        given = laid_out(self.draw, values)
        return given if self.op.name in KINKED and not self.extremes else repeated(self.draw, given)

    def special(self, shape: Shape) -> Given:
        return laid_out(self.draw, self.rng.choice(SPECIAL, shape))

    def ints(self, shape: Shape, low: int, high: int, dtype: Any = np.int32) -> Given:
        return laid_out(self.draw, self.rng.integers(low, max(high, low + 1), shape).astype(dtype))

    def bools(self, shape: Shape) -> Given:
        return laid_out(self.draw, self.rng.integers(0, 2, shape).astype(bool))

    def any_dtype(self, shape: Shape, position: int = 0) -> Given:
        """Mostly floats; for ops that take them also integers and booleans."""
        kinds = [] if self.op.takes == "whole" else ["float"] * 4
        kinds += [] if self.op.takes == "strict float" else ["int32", "uint8"]
        kinds += ["bool"] if self.op.takes in ("any", "bool", "whole") else []
        kind = self.draw(st.sampled_from(kinds))
        if kind == "float":
            return self.floats(shape, position)
        return self.bools(shape) if kind == "bool" else self.ints(shape, 0, 6, kind)

    def axis(self, shape: Shape) -> int:
        return self.int(0, len(shape) - 1)

    def axes(self, shape: Shape) -> tuple[int, ...]:
        return (
            tuple(sorted(self.draw(st.sets(st.sampled_from(range(len(shape))), min_size=1)))) if shape else ()
        )


# --- families: shapes and parameters --------------------------------------------------


def elementwise_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape()
    count, name = len(d.op.vjps), d.op.name
    inner = [tuple(n if d.draw(st.integers(0, 3)) else 1 for n in shape) for _ in range(count)]
    inner = [
        s[d.int(0, len(s)) :] if all(n == 1 for n in s[: len(s) // 2]) and d.draw(st.booleans()) else s
        for s in inner
    ]
    params = {name: draw(d) for name, draw in ELEMENTWISE_PARAMS.get(name, {}).items()}
    if d.op.mask:
        return [d.bools(inner[0]), *(d.floats(s, i) for i, s in enumerate(inner[1:]))], params
    if d.extremes and name in SPECIAL_OPS and d.int(0, 3) == 0:
        return [d.special(s) for s in inner], params
    first = d.any_dtype(inner[0])
    rest = [
        d.floats(s, i) if first.memory.dtype == np.float32 else d.ints(s, 1, 5, first.memory.dtype)
        for i, s in enumerate(inner[1:], 1)
    ]
    return [first, *rest], params


ELEMENTWISE_PARAMS: dict[str, dict[str, Callable[[Drawer], Any]]] = {
    "leaky_relu": {"slope": lambda d: d.draw(st.sampled_from((0.01, 0.5, -1.0)))},
    "elu": {"alpha": lambda d: d.draw(st.sampled_from((1.0, 0.3)))},
    "softplus": {
        "beta": lambda d: d.draw(st.sampled_from((1.0, 2.5))),
        "threshold": lambda d: d.draw(st.sampled_from((20.0, 2.0))),
    },
}
KINKED = {"amax", "amin", "maximum", "minimum"}  # where elements tie there is no derivative
SPECIAL_OPS = set(
    (
        "add sub mul div neg abs exp log sqrt tanh sigmoid relu maximum minimum eq ne lt le gt ge "
        "isnan isinf isfinite floor ceil round trunc copy silu gelu gelu_tanh sin cos erf sign "
        "square reciprocal"
    ).split()
)


def cast_case(d: Drawer) -> tuple[list, dict]:
    x = d.any_dtype(d.shape())
    if x.memory.dtype == np.float32:
        x = Given(np.where(np.isnan(x.memory), 0, x.memory).astype(np.float32), x.view)
    choices = (dtypes.float32, dtypes.int32, dtypes.bool_) if d.extremes else (dtypes.float64, dtypes.int32)
    return [x], {"dtype": d.draw(st.sampled_from(choices))}


def reduce_case(d: Drawer) -> tuple[list, dict]:
    needs_elements = d.op.name in ("amax", "amin", "argmax", "argmin")
    shape = d.shape(shortest=1 if needs_elements else 0)
    axes = (d.axis(shape),) if d.op.name.startswith("arg") and shape else d.axes(shape)
    params = {"axes": axes}
    if d.op.name == "var":
        params["correction"] = d.draw(st.sampled_from((0, 1, 2)))
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


def norm_case(d: Drawer) -> tuple[list, dict]:
    shape = d.shape(1, 4, shortest=1)
    if "softmax" in d.op.name:
        return [d.floats(shape)], {"axis": d.axis(shape)}
    axes = d.axes(shape)
    return [d.floats(shape) for _ in d.op.vjps], {"axes": axes, "eps": 1e-2}


def random_case(d: Drawer) -> tuple[list, dict]:
    words = d.rng.integers(-(2**31), 2**31, 4).astype(np.int32)
    return [Given(words, View.dense((4,)))], {"shape": d.shape()}


def advance_case(d: Drawer) -> tuple[list, dict]:
    return random_case(d)[0], {"blocks": d.int(0, 2**40)}


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


def conv_case(d: Drawer) -> tuple[list, dict]:
    _, spatial, w = window_geometry(d)
    groups = d.int(1, 2)
    n, c, o = d.int(1, 3), groups * d.int(1, 3), groups * d.int(1, 3)
    padding = tuple(zip(w["low"], w["high"], strict=True))
    reach = tuple(d_ * (k - 1) + 1 for k, d_ in zip(w["kernel"], w["dilation"], strict=True))
    spatial = tuple(max(s, r) for s, r in zip(spatial, reach, strict=True))
    out = tuple(map(positions, spatial, w["kernel"], w["stride"], padding, w["dilation"]))
    x, weight, g = (n, c, *spatial), (o, c // groups, *w["kernel"]), (n, o, *out)
    params = {"stride": w["stride"], "padding": padding, "dilation": w["dilation"], "groups": groups}
    if d.op.name == "conv":
        return [d.floats(x), d.floats(weight)], params
    if d.op.name == "conv_input":
        return [d.floats(g), d.floats(weight)], {"shape": x, **params}
    return [d.floats(g), d.floats(x)], {"shape": weight, **params}


def pool_case(d: Drawer) -> tuple[list, dict]:
    rank, spatial, w = window_geometry(d)
    padding = tuple(min(p, k // 2) for p, k in zip(w["low"], w["kernel"], strict=True))
    dilation = w["dilation"] if d.op.name == "pool_index" else (1,) * rank
    reach = tuple(e * (k - 1) + 1 for k, e in zip(w["kernel"], dilation, strict=True))
    spatial = tuple(max(s, r) for s, r in zip(spatial, reach, strict=True))
    pairs = tuple((p, p) for p in padding)
    windows = tuple(map(positions, spatial, w["kernel"], w["stride"], pairs, dilation))
    x = (d.int(1, 2), d.int(1, 3), *spatial)
    if d.op.name in ("pool_take", "pool_put"):
        return pool_index_case(d, x, windows)
    params = {"kernel": w["kernel"], "stride": w["stride"], "padding": padding, "windows": windows}
    if d.op.name == "pool_index":
        ties = d.draw(st.booleans())
        return [d.ints(x, 0, 3) if ties else d.floats(x)], {**params, "dilation": dilation}
    params["divisor"] = d.draw(st.sampled_from(("padded", "inside", 3)))
    if d.op.name == "avg_pool":
        return [d.floats(x)], params
    return [d.floats((*x[:2], *windows))], {"shape": x, **params}


def pool_index_case(d: Drawer, x: Shape, windows: Shape) -> tuple[list, dict]:
    """Windows that share no cell have different winners; others may not."""
    count, apart = prod(windows), prod(windows) <= prod(x[2:]) and d.draw(st.booleans())
    flat = np.stack([d.rng.permutation(prod(x[2:]))[:count] for _ in range(x[0] * x[1])]) if apart else None
    shape = (*x[:2], *windows)
    drawn = d.rng.integers(0, prod(x[2:]), shape) if flat is None else flat.reshape(shape)
    index = laid_out(d.draw, drawn.astype(np.int32))
    if d.op.name == "pool_take":
        return [d.floats(x), index], {"apart": apart}
    return [d.floats(shape), index], {"shape": x, "apart": apart}


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
    "norm": norm_case,
    "random": random_case,
    "advance": advance_case,
    "conv": conv_case,
    "conv_back": conv_case,
    "pool": pool_case,
    "pool_take": pool_case,
    "pool_back": pool_case,
}
UNDRAWN = {"transfer"}  # families without a draw: moving between devices has tests of its own


@st.composite
def cases(draw: Draw, op: Op, extremes: bool = True) -> Case:
    """A random call of an op; with `extremes` now and then at NaN, infinities, signed zeros and ties."""
    inputs, params = FAMILIES[op.family.name](Drawer(draw, op, extremes))
    return Case(op, tuple(inputs), params)


# --- sums: what rounding may cost --------------------------------------------------


def folded(case: Case) -> int:
    shape = case.inputs[0].view.shape
    return prod(shape[a] for a in case.params["axes"])


def everything(case: Case) -> int:
    return prod(case.inputs[0].view.shape)


# Of how many terms an element is the sum. Σ|terms| is then what the op makes of the inputs' absolute values.
TERMS: dict[str, Callable[[Case], int]] = {
    "sum": folded,
    "mean": folded,
    "cumsum": lambda case: (case.inputs[0].view.shape or (1,))[case.params["axis"]],
    "matmul": lambda case: case.inputs[0].view.shape[-1] + 1,
    "conv": lambda case: prod(case.inputs[1].view.shape[1:]) + 1,
    "conv_input": lambda case: prod(case.inputs[1].view.shape) + 1,
    "conv_weight": everything,
    "put_add": everything,
    "put_along_add": everything,
    "pool_put": everything,
    "avg_pool": lambda case: prod(case.params["kernel"]) + 1,
    "avg_pool_input": lambda case: prod(case.params["kernel"]) + 1,
    "silu_slope": lambda case: 6,
}


def normalised_terms(case: Case) -> np.ndarray:
    """Of a normalisation's gradient: scale · (|g| + mean |g| + |x̂| · mean |g · x̂|)."""
    g, a = (x.values.astype(np.float64) for x in case.inputs)
    axes, centred = case.params["axes"], not case.op.name.startswith("rms")
    apart = a - a.mean(axes, keepdims=True) if centred else a
    scale = 1 / np.sqrt(np.square(apart).mean(axes, keepdims=True) + case.params["eps"])
    hat = np.abs(apart * scale)
    g = np.abs(g)
    return scale * (g + g.mean(axes, keepdims=True) + hat * (g * hat).mean(axes, keepdims=True))


# Σ|terms| of ops whose terms cannot be had that way.
SUMS: dict[str, Callable[[Case], np.ndarray]] = {
    "normalize_input": normalised_terms,
    "rms_normalize_input": normalised_terms,
}
