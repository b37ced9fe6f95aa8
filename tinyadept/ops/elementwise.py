"""Ops that look at one element of each input: arithmetic, comparisons, functions, activations."""

from __future__ import annotations

from functools import wraps
from math import pi, sqrt
from typing import Any

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from . import special
from .create import zeros
from .table import Family, backend_of, broadcast, compute_dtype, define, lifted, meet, met, operands


def infer(op: Any, inputs: tuple, params: dict) -> tuple:
    if not op.mask:
        ready, dtype = met(op, inputs)
    else:
        mask, *values = operands(op, inputs)
        backend, dtype = backend_of(op, [mask, *values]), compute_dtype(op, values)
        ready = condition(op, mask, backend), *lifted(op, values, dtype, backend)
    return ready, common_shape(op, ready), op.gives or dtype


def common_shape(op: Any, inputs: Any) -> tuple[int, ...]:
    shape = inputs[0].layout.shape
    for x in inputs:
        if x.layout.shape != shape and x.layout.shape != ():
            return broadcast(op.name, *[x.layout.shape for x in inputs])
    return shape


def condition(op: Any, mask: Any, backend: Any) -> Tensor:
    if not isinstance(mask, bool) and not (isinstance(mask, Tensor) and mask.dtype == dtypes.bool_):
        got = mask.dtype.name if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"{op.name} takes a bool condition, got {got}: compare first, as in x != 0")
    return meet(op, mask, dtypes.bool_, backend)


def infer_cast(op: Any, inputs: tuple, params: dict) -> tuple:
    (x,) = operands(op, inputs)
    params["dtype"] = dtypes.as_dtype(params["dtype"])
    return (x,), x.layout.shape, params["dtype"]


elementwise = Family("elementwise", infer)
casting = Family("cast", infer_cast)


def wide(function: Any) -> Any:
    """Compute float32 in float64 and round once: for formulas whose float32 form loses digits."""

    @wraps(function)
    def run(*arrays: np.ndarray, **params: Any) -> np.ndarray:
        dtype = arrays[0].dtype
        if dtype != np.float32:
            return function(*arrays, **params)
        return function(*(np.asarray(a, np.float64) for a in arrays), **params).astype(np.float32)

    return run


def level(g: Tensor) -> Tensor:
    """The gradient of what is constant in pieces: zero, also where g is infinite or NaN."""
    return zeros(g.shape, g)


# --- arithmetic ---------------------------------------------------------------------------------------------

add = define(elementwise, "add", np.add, lambda g, out, a, b: g, lambda g, out, a, b: g)
sub = define(elementwise, "sub", np.subtract, lambda g, out, a, b: g, lambda g, out, a, b: -g, takes="number")
mul = define(elementwise, "mul", np.multiply, lambda g, out, a, b: g * b, lambda g, out, a, b: g * a)
div = define(
    elementwise,
    "div",
    np.true_divide,
    lambda g, out, a, b: g / b,
    lambda g, out, a, b: -(g * out / b),
    takes="float",
    domain=((-3.0, 3.0), (0.5, 3.0)),
)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f" and np.any(b < 0):
        raise ValueError("pow: an integer to a negative power is no integer; make the base a float")
    if b.ndim == 0 and b == 2:
        return a * a
    return np.power(a, b)


def floor_quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    refuse_zero(b, "floor_divide")
    return np.floor_divide(a, b)


def remainder_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    refuse_zero(b, "remainder")
    return np.remainder(a, b)


def refuse_zero(b: np.ndarray, name: str) -> None:
    if b.dtype.kind != "f" and np.any(b == 0):
        raise ZeroDivisionError(f"{name}: an integer was divided by zero")


pow = define(
    elementwise,
    "pow",
    power,
    lambda g, out, a, b: where(b == 0, 0.0, g * b * pow(a, where(b == 0, 1.0, b) - 1)),
    lambda g, out, a, b: where((a == 0) & (b >= 0), 0.0, g * out * log(where(a == 0, 1.0, a))),
    takes="number",
    domain=((0.1, 3.0), (-2.0, 2.0)),
    ulps=8.0,
)
square = define(elementwise, "square", np.square, lambda g, out, a: g * (a * 2), takes="number")
floor_divide = define(
    elementwise,
    "floor_divide",
    floor_quotient,
    lambda g, out, a, b: level(g),
    lambda g, out, a, b: level(g),
    takes="number",
    domain=((-9, 9), (1, 4)),
)
remainder = define(
    elementwise,
    "remainder",
    remainder_of,
    lambda g, out, a, b: g,
    lambda g, out, a, b: -g * floor_divide(a, b),
    takes="number",
    domain=((-9.0, 9.0), (1.0, 4.0)),
)
neg = define(elementwise, "neg", np.negative, lambda g, out, a: -g, takes="number")
abs = define(elementwise, "abs", np.abs, lambda g, out, a: g * sign(a))
sign = define(
    elementwise, "sign", lambda a: np.array(a) if a.dtype == bool else np.sign(a), lambda g, out, a: level(g)
)
reciprocal = define(
    elementwise,
    "reciprocal",
    np.reciprocal,
    lambda g, out, a: -g * out * out,
    takes="float",
    domain=(0.5, 3.0),
)
copy = define(elementwise, "copy", np.array, lambda g, out, a: g)
cast = define(
    casting,
    "cast",
    lambda a, dtype: a.astype(dtype),
    lambda g, out, a, dtype: g.to(a.dtype) if a.dtype in dtypes.FLOATS else None,
)

# --- rounding: piecewise constant, so gradients are zero ----------------------------------------------------

floor = define(elementwise, "floor", np.floor, lambda g, out, a: level(g), takes="number")
ceil = define(elementwise, "ceil", np.ceil, lambda g, out, a: level(g), takes="number")
trunc = define(elementwise, "trunc", np.trunc, lambda g, out, a: level(g), takes="number")
round = define(elementwise, "round", np.rint, lambda g, out, a: level(g), takes="number")  # ties to even

# --- exponentials, logarithms, trigonometry -----------------------------------------------------------------

exp = define(elementwise, "exp", np.exp, lambda g, out, a: g * out, takes="float", ulps=8.0)
expm1 = define(elementwise, "expm1", np.expm1, lambda g, out, a: g * (out + 1), takes="float", ulps=8.0)
log = define(
    elementwise, "log", np.log, lambda g, out, a: g / a, takes="float", domain=(0.01, 100.0), ulps=8.0
)
log1p = define(
    elementwise, "log1p", np.log1p, lambda g, out, a: g / (a + 1), takes="float", domain=(-0.9, 9.0), ulps=8.0
)
root = define(
    elementwise, "sqrt", np.sqrt, lambda g, out, a: g / (out * 2), takes="float", domain=(0.01, 9.0)
)
rsqrt = define(
    elementwise,
    "rsqrt",
    wide(lambda a: 1 / np.sqrt(a)),
    lambda g, out, a: g * out * out * out * -0.5,
    takes="float",
    domain=(0.01, 9.0),
)
sin = define(elementwise, "sin", np.sin, lambda g, out, a: g * cos(a), takes="float", ulps=8.0)
cos = define(elementwise, "cos", np.cos, lambda g, out, a: -g * sin(a), takes="float", ulps=8.0)
tan = define(
    elementwise,
    "tan",
    np.tan,
    lambda g, out, a: g * (out * out + 1),
    takes="float",
    domain=(-1.4, 1.4),
    ulps=8.0,
)
atan = define(elementwise, "atan", np.arctan, lambda g, out, a: g / (a * a + 1), takes="float", ulps=8.0)
tanh = define(elementwise, "tanh", np.tanh, lambda g, out, a: g * (1 - out * out), takes="float", ulps=8.0)
erf = define(
    elementwise,
    "erf",
    special.erf,
    lambda g, out, a: g * (exp(-(a * a)) * (2 / sqrt(pi))),
    takes="float",
    ulps=8.0,
)
sigmoid = define(
    elementwise,
    "sigmoid",
    lambda a: 1 / (1 + np.exp(-a)),
    lambda g, out, a: g * (out * (1 - out)),
    takes="float",
    ulps=8.0,
)

# --- comparisons and logic: no gradient flows ---------------------------------------------------------------

eq = define(elementwise, "eq", np.equal, None, None, gives=dtypes.bool_)
ne = define(elementwise, "ne", np.not_equal, None, None, gives=dtypes.bool_)
lt = define(elementwise, "lt", np.less, None, None, gives=dtypes.bool_)
le = define(elementwise, "le", np.less_equal, None, None, gives=dtypes.bool_)
gt = define(elementwise, "gt", np.greater, None, None, gives=dtypes.bool_)
ge = define(elementwise, "ge", np.greater_equal, None, None, gives=dtypes.bool_)
logical_and = define(elementwise, "logical_and", np.logical_and, None, None, takes="bool")
logical_or = define(elementwise, "logical_or", np.logical_or, None, None, takes="bool")
logical_xor = define(elementwise, "logical_xor", np.logical_xor, None, None, takes="bool")
logical_not = define(elementwise, "logical_not", np.logical_not, None, takes="bool")
bitwise_and = define(elementwise, "bitwise_and", np.bitwise_and, None, None, takes="whole")
bitwise_or = define(elementwise, "bitwise_or", np.bitwise_or, None, None, takes="whole")
bitwise_xor = define(elementwise, "bitwise_xor", np.bitwise_xor, None, None, takes="whole")
bitwise_not = define(elementwise, "bitwise_not", np.invert, None, takes="whole")
isnan = define(elementwise, "isnan", np.isnan, None, gives=dtypes.bool_)
isinf = define(elementwise, "isinf", np.isinf, None, gives=dtypes.bool_)
isfinite = define(elementwise, "isfinite", np.isfinite, None, gives=dtypes.bool_)

# --- choosing: NaN wins, ties share -------------------------------------------------------------------------


def choose(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """np.where, for large arrays by bits: a branch for each element of a random mask is slow."""
    if c.size < 4096 or a.dtype.itemsize < 4:
        return np.where(c, a, b)
    word = np.int32 if a.dtype.itemsize == 4 else np.int64
    if a.ndim == 0 and not a.view(word):  # nothing but zero: the other's bits, or none
        bits = np.subtract(c.view(np.int8), np.int8(1), dtype=np.int8).astype(word)  # none or all
        return kept(b.view(word), bits).view(b.dtype)
    bits = np.negative(c.view(np.int8)).astype(word)  # all or none
    other = b.view(word)
    return (kept(a.view(word) ^ other, bits) ^ other).view(a.dtype)


def kept(words: np.ndarray, bits: np.ndarray) -> np.ndarray:
    """Those bits of the words, over the memory of `bits` where the shapes allow."""
    return np.bitwise_and(words, bits, out=bits if words.shape == bits.shape or not words.ndim else None)


where = define(
    elementwise,
    "where",
    choose,
    None,
    lambda g, out, c, a, b: where(c, g, 0.0),
    lambda g, out, c, a, b: where(c, 0.0, g),
    mask=True,
)
maximum = define(
    elementwise,
    "maximum",
    np.maximum,
    lambda g, out, a, b: where(a == b, g * 0.5, where(a < b, 0.0, g)),
    lambda g, out, a, b: where(a == b, g * 0.5, where(a > b, 0.0, g)),
)
minimum = define(
    elementwise,
    "minimum",
    np.minimum,
    lambda g, out, a, b: where(a == b, g * 0.5, where(a > b, 0.0, g)),
    lambda g, out, a, b: where(a == b, g * 0.5, where(a < b, 0.0, g)),
)
clamp = define(
    elementwise,
    "clamp",
    lambda a, low, high: np.minimum(np.maximum(a, low), high),
    lambda g, out, a, low, high: where((a >= low) & (a <= high), g, 0.0),
    lambda g, out, a, low, high: where((a < low) & (low < high), g, 0.0),
    lambda g, out, a, low, high: where((a > high) | (high < low), g, 0.0),
    takes="number",
)

# --- activations --------------------------------------------------------------------------------------------

ROOT_HALF, ROOT_2_OVER_PI = sqrt(0.5), sqrt(2 / pi)


@wide
def gelu_exact(a: np.ndarray) -> np.ndarray:
    return 0.5 * a * special.erfc(-a * ROOT_HALF)


@wide
def gelu_by_tanh(a: np.ndarray) -> np.ndarray:
    return a / (1 + np.exp(-2 * ROOT_2_OVER_PI * a * (1 + 0.044715 * a * a)))


@wide
def soft_plus(a: np.ndarray, beta: float, threshold: float) -> np.ndarray:
    return np.where(a * beta > threshold, a, np.logaddexp(0, a * beta) / beta)


@wide
def mish_of(a: np.ndarray) -> np.ndarray:
    return a * np.tanh(np.logaddexp(0, a))


def gelu_slope(a: Tensor) -> Tensor:
    """Φ(a) + a·φ(a)."""
    return 0.5 * (1 + erf(a * ROOT_HALF)) + a * exp(a * a * -0.5) * (1 / sqrt(2 * pi))


def gelu_tanh_slope(a: Tensor) -> Tensor:
    s = sigmoid(2 * ROOT_2_OVER_PI * a * (1 + 0.044715 * a * a))
    return s + a * s * (1 - s) * (2 * ROOT_2_OVER_PI * (1 + 3 * 0.044715 * a * a))


def mish_slope(a: Tensor) -> Tensor:
    t = tanh(softplus(a, beta=1.0, threshold=20.0))
    return t + a * (1 - t * t) * sigmoid(a)


addcmul = define(
    elementwise,
    "addcmul",
    lambda a, b, c: a + b * c,
    lambda g, out, a, b, c: g,
    lambda g, out, a, b, c: g * c,
    lambda g, out, a, b, c: g * b,
    takes="strict float",
)
lerp = define(
    elementwise,
    "lerp",
    lambda a, b, weight: a * a.dtype.type(1 - weight) + b * a.dtype.type(weight),
    lambda g, out, a, b, weight: g * (1 - weight),
    lambda g, out, a, b, weight: g * weight,
    takes="strict float",
)
relu = define(
    elementwise,
    "relu",
    lambda a: np.maximum(a, a.dtype.type(0)),
    lambda g, out, a: relu_input(g, out),
)
relu_input = define(  # g where a is positive or NaN
    elementwise,
    "relu_input",
    lambda g, a: choose(a <= 0, np.zeros((), g.dtype), g),
    lambda h, out, g, a: relu_input(h, a),
    lambda h, out, g, a: level(h),
    takes="number",
)
leaky_relu = define(
    elementwise,
    "leaky_relu",
    lambda a, slope: np.where(a > 0, a, a * a.dtype.type(slope)),
    lambda g, out, a, slope: where(a > 0, g, g * slope),
    takes="strict float",
)
elu = define(
    elementwise,
    "elu",
    lambda a, alpha: np.where(a > 0, a, a.dtype.type(alpha) * np.expm1(np.minimum(a, 0))),
    lambda g, out, a, alpha: where(a > 0, g, g * (exp(minimum(a, 0.0)) * alpha)),
    takes="strict float",
    ulps=8.0,
)
silu = define(
    elementwise,
    "silu",
    lambda a: a / (1 + np.exp(-a)),
    lambda g, out, a: silu_input(g, a),
    takes="strict float",
    ulps=8.0,
)
gelu = define(
    elementwise, "gelu", gelu_exact, lambda g, out, a: g * gelu_slope(a), takes="strict float", ulps=8.0
)
gelu_tanh = define(
    elementwise,
    "gelu_tanh",
    gelu_by_tanh,
    lambda g, out, a: g * gelu_tanh_slope(a),
    takes="strict float",
    ulps=8.0,
)
softplus = define(
    elementwise,
    "softplus",
    soft_plus,
    lambda g, out, a, beta, threshold: where(a * beta > threshold, g, g * sigmoid(a * beta)),
    takes="strict float",
    ulps=8.0,
)
mish = define(
    elementwise, "mish", mish_of, lambda g, out, a: g * mish_slope(a), takes="strict float", ulps=8.0
)
hardsigmoid = define(
    elementwise,
    "hardsigmoid",
    lambda a: np.clip(a + 3, 0, 6) / 6,
    lambda g, out, a: where((a > -3) & (a < 3), g * (1 / 6), 0.0),
    takes="strict float",
    domain=(-5.0, 5.0),
)
hardswish = define(
    elementwise,
    "hardswish",
    lambda a: a * np.clip(a + 3, 0, 6) / 6,
    lambda g, out, a: where(a < -3, 0.0, where(a <= 3, g * (a * (1 / 3) + 0.5), g)),
    takes="strict float",
    domain=(-5.0, 5.0),
)


def np_silu_input(g: np.ndarray, a: np.ndarray) -> np.ndarray:
    s = 1 / (1 + np.exp(-a))
    return g * s * (1 + np.where(np.isinf(a), 0, a) * (1 - s))


def silu_bend(a: Tensor) -> Tensor:
    """Second derivative: s'(2 + a(1 - 2s)), with s' = s(1 - s)."""
    s = sigmoid(a)
    return s * (1 - s) * (2 + a * (1 - 2 * s))


silu_input = define(
    elementwise,
    "silu_input",
    np_silu_input,
    lambda h, out, g, a: silu_input(h, a),
    lambda h, out, g, a: h * g * silu_bend(a),
    takes="strict float",
    ulps=8.0,
)
swiglu = define(  # silu(a) · b
    elementwise,
    "swiglu",
    lambda a, b: a / (1 + np.exp(-a)) * b,
    lambda g, out, a, b: silu_input(g * b, a),
    lambda g, out, a, b: swiglu(a, g),
    takes="strict float",
    ulps=8.0,
)

# --- binary cross-entropy of logits x and targets t: x · (step(x) - t) + log(1 + exp(-|x|)) ----------------


def bce_logits_of(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    return x * ((x > 0).astype(x.dtype) - t) + np.log1p(np.exp(-np.abs(x)))


def slope_of_bce(x: np.ndarray, t: np.ndarray) -> np.ndarray:
    """sigmoid(x) - t, also where both are nearly one."""
    small = np.exp(-np.abs(x)) / (1 + np.exp(-np.abs(x)))  # sigmoid(-|x|)
    return np.where(x > 0, (1 - t) - small, small - t)


bce_logits = define(
    elementwise,
    "bce_logits",
    bce_logits_of,
    lambda g, out, x, t: g * bce_slope(x, t),
    lambda g, out, x, t: -g * x,
    takes="strict float",
    domain=((-3.0, 3.0), (0.0, 1.0)),
)
bce_slope = define(
    elementwise,
    "bce_slope",
    slope_of_bce,
    lambda g, out, x, t: g * (sigmoid(x) * sigmoid(-x)),
    lambda g, out, x, t: -g,
    takes="strict float",
    domain=((-3.0, 3.0), (0.0, 1.0)),
)
