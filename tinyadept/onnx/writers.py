"""How rows of the op table are written as ONNX nodes; `exporting` calls these while a module runs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from onnx import TensorProto

from ..tensor import Tensor
from .registry import Refused

if TYPE_CHECKING:
    from .exporting import Writing

Writer = Callable[["Writing", Tensor, tuple, dict], str]
WRITERS: dict[str, Writer] = {}
SAME = {  # rows and nodes that mean the same
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "neg": "Neg", "abs": "Abs", "sign": "Sign",
    "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "reciprocal": "Reciprocal", "pow": "Pow", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "atan": "Atan", "tanh": "Tanh", "erf": "Erf", "sigmoid": "Sigmoid",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "relu": "Relu", "maximum": "Max", "minimum": "Min",
    "eq": "Equal", "lt": "Less", "le": "LessOrEqual", "gt": "Greater", "ge": "GreaterOrEqual",
    "isnan": "IsNaN", "isinf": "IsInf", "where": "Where", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "logical_not": "Not", "hardswish": "HardSwish", "mish": "Mish", "gelu": "Gelu",
    "copy": "Identity", "matmul": "MatMul",
}  # fmt: skip
REDUCING = {
    "sum": "ReduceSum", "mean": "ReduceMean", "prod": "ReduceProd", "amax": "ReduceMax", "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
}  # fmt: skip


def writes(*names: str) -> Callable[[Writer], Writer]:
    """A decorator: this function writes these rows."""

    def add(writer: Writer) -> Writer:
        WRITERS.update(dict.fromkeys(names, writer))
        return writer

    return add


def same(kind: str, **attributes: Any) -> Writer:
    return lambda w, out, inputs, params: w.node(kind, *map(w.name, inputs), **attributes)


WRITERS.update({row: same(kind) for row, kind in SAME.items()})
for row in ("And", "Or", "Xor", "Not"):
    WRITERS[f"bitwise_{row.lower()}"] = lambda w, out, inputs, params, row=row: w.node(
        row if out.dtype.kind == "b" else f"Bitwise{row}", *map(w.name, inputs)
    )
WRITERS["gelu_tanh"] = same("Gelu", approximate="tanh")
WRITERS["hardsigmoid"] = same("HardSigmoid", alpha=1 / 6, beta=0.5)


# --- elementwise ---


@writes("rsqrt")
def rsqrt(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Reciprocal", w.node("Sqrt", w.name(inputs[0])))


@writes("square")
def square(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Mul", *[w.name(inputs[0])] * 2)


@writes("ne")
def ne(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Not", w.node("Equal", *map(w.name, inputs)))


@writes("silu", "swiglu")
def silu(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    x, *more = map(w.name, inputs)
    active = w.node("Mul", x, w.node("Sigmoid", x))
    return w.node("Mul", active, *more) if more else active


@writes("addcmul")
def addcmul(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    a, b, c = map(w.name, inputs)
    return w.node("Add", a, w.node("Mul", b, c))


@writes("leaky_relu", "elu", "softplus")
def shaped(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    x = w.name(inputs[0])
    if "slope" in params:
        return w.node("LeakyRelu", x, alpha=float(params["slope"]))
    if "alpha" in params:
        return w.node("Elu", x, alpha=float(params["alpha"]))
    beta = w.constant(params["beta"], out.dtype)
    return w.node("Div", w.node("Softplus", w.node("Mul", x, beta)), beta)


@writes("clamp")
def clamp(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    x, low, high = map(w.name, inputs)
    return w.node("Min", w.node("Max", x, low), high)


@writes("cast")
def cast(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    from .exporting import TYPES

    return w.node("Cast", w.name(inputs[0]), to=TYPES[out.dtype])


# --- views, and where elements go ---


@writes("reshape")
def reshape(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Reshape", w.name(inputs[0]), w.whole(*out.shape))


@writes("expand")
def expand(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Expand", w.name(inputs[0]), w.whole(*out.shape))


@writes("permute")
def permute(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Transpose", w.name(inputs[0]), perm=[int(a) for a in params["order"]])


@writes("index")
def index(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    name, axis, cuts = w.name(inputs[0]), 0, []
    for key in params["key"]:
        if key is None:
            continue
        n = inputs[0].shape[axis]
        first, last, step = key.indices(n) if isinstance(key, slice) else (key % n, key % n + 1, 1)
        if (first, last, step) != (0, n, 1):
            cuts.append((first, last if last >= 0 else -n - 1, axis, step))
        axis += 1
    if cuts:
        name = w.node("Slice", name, *(w.whole(*column) for column in zip(*cuts)))
    return w.node("Reshape", name, w.whole(*out.shape))


@writes("cat")
def cat(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    axis = params["axis"]
    there = [x for x in inputs if x.ndim == out.ndim]
    return w.node("Concat", *map(w.name, there), axis=axis)


@writes("take")
def take(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Gather", *map(w.name, inputs), axis=params["axis"])


@writes("take_along")
def take_along(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("GatherElements", *map(w.name, inputs), axis=params["axis"])


@writes("place")
def place(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    """Values that stand in a region of a constant: padding."""
    (x,), move = inputs, params["move"]
    keys = dict(move.params).get("key", ())
    cuts = [key.indices(n) for key, n in zip(keys, out.shape) if isinstance(key, slice)]
    if len(cuts) != out.ndim or any(step != 1 for _, _, step in cuts):
        raise Refused(f"export: {move.op.name} that is written into, but as padding")
    pads = [first for first, _, _ in cuts] + [n - last for n, (_, last, _) in zip(out.shape, cuts)]
    return w.node("Pad", w.name(x), w.whole(*pads), w.constant(params.get("fill", 0), out.dtype))


# --- reductions and normalisations ---


def position_of(kind: str) -> Writer:
    def write(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
        (x,), axes = inputs, params["axes"]
        name, axis = w.name(x), axes[0] if axes else 0
        if not axes:  # the position among all
            name = w.node("Reshape", name, w.whole(x.numel()))
        found = w.node("Cast", w.node(kind, name, axis=axis, keepdims=1), to=TensorProto.INT32)
        return found if axes else w.node("Reshape", found, w.whole(*out.shape))

    return write


WRITERS["argmax"], WRITERS["argmin"] = position_of("ArgMax"), position_of("ArgMin")


def reducing(kind: str) -> Writer:
    return lambda w, out, inputs, params: w.node(
        kind, w.name(inputs[0]), w.whole(*params["axes"]), keepdims=1
    )


def along(kind: str) -> Writer:
    return lambda w, out, inputs, params: w.node(kind, w.name(inputs[0]), axis=params["axis"])


WRITERS.update({row: reducing(kind) for row, kind in REDUCING.items()})
WRITERS["softmax"], WRITERS["log_softmax"] = along("Softmax"), along("LogSoftmax")


def over_root(w: Writing, x: str, axes: str, eps: float, dtype: np.dtype) -> str:
    """x / √(mean x² + eps)."""
    mean = w.node("ReduceMean", w.node("Mul", x, x), axes, keepdims=1)
    return w.node("Div", x, w.node("Sqrt", w.node("Add", mean, w.constant(eps, dtype))))


@writes("normalize", "rms_normalize")
def normalize(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    """Weights and biases follow; a centred normalisation of the last axes is one node."""
    a, *affine = inputs
    if any(x.ndim > a.ndim for x in affine):
        raise Refused("export: a normalisation by statistics of the batch: call eval() first")
    last = tuple(range(a.ndim - len(params["axes"]), a.ndim))
    names, axes = [w.name(x) for x in affine], w.whole(*params["axes"])
    own = [x.shape == (*(1,) * last[0], *a.shape[last[0] :]) for x in affine] if last else []
    if params.get("centred", True) and own and all(own) and params["axes"] == last:
        scale = [w.node("Reshape", name, w.whole(*a.shape[last[0] :])) for name in names]
        return w.node("LayerNormalization", w.name(a), *scale, axis=last[0], epsilon=params["eps"])
    x = w.name(a)
    if params.get("centred", True):
        x = w.node("Sub", x, w.node("ReduceMean", x, axes, keepdims=1))
    x = over_root(w, x, axes, params["eps"], out.dtype)
    for kind, name in zip(("Mul", "Add"), names):
        x = w.node(kind, x, name)
    return x


WRITERS["rms_normalize"] = lambda w, out, inputs, params: normalize(
    w, out, inputs, {**params, "centred": False}
)


# --- products ---


@writes("linear")
def linear(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    x, weight, *added = inputs
    if x.ndim == 2 and len(added) == 1:
        return w.node("Gemm", *map(w.name, inputs), transB=1)
    y = w.node("MatMul", w.name(x), w.node("Transpose", w.name(weight), perm=[1, 0]))
    for more in added:
        y = w.node("Add", y, w.name(more))
    return y


@writes("attention")
def attention(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    """The product of queries and keys, what is hidden, a softmax and a product with values."""
    (q, k, v, *rest), (b, h, t, d) = inputs, inputs[0].shape
    heads, s = k.shape[1:3]
    start = next((x for x in rest if x.ndim == 1), None)
    if start is not None and w.depends(start):
        raise Refused("export: attention whose start is no constant: leave caches out")
    shape = (b, heads, h // heads, t)
    keys, values = (w.node("Unsqueeze", w.name(x), w.whole(2)) for x in (k, v))
    scaled = w.node("Mul", w.name(q), w.constant(params["scale"], q.dtype))
    queries = w.node("Reshape", scaled, w.whole(*shape, d))
    scores = w.node("MatMul", queries, w.node("Transpose", keys, perm=[0, 1, 2, 4, 3]))
    if start is not None:
        last = start.numpy()[:, None] + np.arange(t)  # (B, T)
        if t and s and last.min() < 0:
            raise Refused("export: attention of queries that see nothing")
        hidden = np.where(np.arange(s) > last[:, :, None], -np.inf, 0)[:, None, None]
        scores = w.node("Add", scores, w.constant(hidden, q.dtype))
    for mask in (x for x in rest if x.ndim > 1):
        scores = w.node("Add", scores, w.node("Reshape", w.name(mask), w.whole(*shape, s)))
    y = w.node("MatMul", w.node("Softmax", scores, axis=4), values)
    return w.node("Reshape", y, w.whole(*out.shape))


# --- windows ---


def both_ends(padding: tuple) -> list[int]:
    if any(n < 0 for pair in padding for n in pair):
        raise Refused(f"export: negative padding {padding}")
    return [before for before, _ in padding] + [after for _, after in padding]


def sliding(params: dict) -> dict[str, Any]:
    return {
        "strides": params["stride"],
        "dilations": params["dilation"],
        "group": params["groups"],
        "pads": both_ends(params["padding"]),
    }


@writes("conv")
def conv(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    return w.node("Conv", *map(w.name, inputs), kernel_shape=inputs[1].shape[2:], **sliding(params))


@writes("conv_input")
def conv_input(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    """A transposed convolution."""
    x, weight = inputs
    sizes = zip(out.shape[2:], x.shape[2:], weight.shape[2:], strict=True)
    steps = zip(params["stride"], params["dilation"], params["padding"], strict=True)
    more = [
        n - ((m - 1) * step + (k - 1) * apart + 1 - before - after)
        for (n, m, k), (step, apart, (before, after)) in zip(sizes, steps, strict=True)
    ]
    shape = {"kernel_shape": weight.shape[2:], "output_padding": more}
    return w.node("ConvTranspose", w.name(x), w.name(weight), **shape, **sliding(params))


def ends(x: Tensor, params: dict) -> list[int]:
    """Padding behind each axis that makes as many windows as there are."""
    dilation = params.get("dilation", (1,) * len(params["kernel"]))
    windows = zip(params["windows"], params["stride"], dilation, params["kernel"], strict=True)
    reach = [(n - 1) * step + apart * (k - 1) + 1 for n, step, apart, k in windows]
    return [max(0, m - n - pad) for m, n, pad in zip(reach, x.shape[2:], params["padding"], strict=True)]


@writes("max_pool")
def max_pool(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    pads = [*params["padding"], *ends(inputs[0], params)]
    return w.node(
        "MaxPool", w.name(inputs[0]), kernel_shape=params["kernel"], strides=params["stride"], pads=pads,
        dilations=params["dilation"],
    )  # fmt: skip


@writes("avg_pool")
def avg_pool(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    divisor, behind = params["divisor"], ends(inputs[0], params)
    if divisor == "padded" and any(end > pad for end, pad in zip(behind, params["padding"])):
        raise Refused("export: an average pool whose last windows leave the padding")
    y = w.node(
        "AveragePool", w.name(inputs[0]), kernel_shape=params["kernel"], strides=params["stride"],
        pads=[*params["padding"], *behind], count_include_pad=int(divisor != "inside"),
    )  # fmt: skip
    if isinstance(divisor, str):
        return y
    return w.node("Mul", y, w.constant(prod(params["kernel"]) / divisor, out.dtype))


@writes("resample")
def resample(w: Writing, out: Tensor, inputs: tuple, params: dict) -> str:
    (x,), scales = inputs, params["scales"]
    how = {"nearest": "asymmetric", "nearest-exact": "half_pixel"}.get(
        params["mode"], "align_corners" if params["corners"] else "half_pixel"
    )
    kind = {"mode": "linear"} if params["mode"] == "linear" else {"mode": "nearest"}
    if kind["mode"] == "nearest":
        kind["nearest_mode"] = "floor" if params["mode"] == "nearest" else "round_prefer_ceil"
    if all(scale for scale in scales):
        sizes = (w.constant((1, 1, *scales), np.float32),)
    else:
        sizes = ("", w.whole(*out.shape))
    return w.node("Resize", w.name(x), "", *sizes, coordinate_transformation_mode=how, **kind)
