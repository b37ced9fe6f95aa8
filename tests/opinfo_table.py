"""Which call of tinyadept stands for which op of PyTorch's OpInfo database, and where the two differ on purpose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import Tensor

# --- the ops that both have -------------------------------------------------------------------------------------------

METHODS = """
    add sub mul div floor_divide remainder pow neg abs sign square exp log log1p expm1 sqrt rsqrt reciprocal
    sin cos tan atan tanh sigmoid erf floor ceil round trunc clamp isnan isinf isfinite logical_not
    sum mean prod max min amax amin argmax argmin any all var std norm logsumexp cumsum softmax log_softmax
    reshape flatten unflatten transpose permute t expand expand_as broadcast_to view_as squeeze unsqueeze roll
    chunk split unbind select narrow repeat tile unfold diagonal tril triu clone contiguous
    __getitem__ gather scatter scatter_add index_select take_along_dim masked_fill masked_select nonzero
    topk sort argsort matmul dot float double int long bool item
""".split()

FUNCTIONS = """
    true_divide maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor cat stack unique mm bmm outer broadcast_tensors
    repeat_interleave xlogy
""".split()

NN_FUNCTIONS = """
    relu leaky_relu elu silu gelu softplus mish hardswish hardsigmoid logsigmoid pad one_hot linear embedding dropout
    layer_norm group_norm batch_norm rms_norm instance_norm normalize cosine_similarity conv1d conv2d conv3d
    max_pool1d max_pool2d avg_pool1d avg_pool2d adaptive_avg_pool1d adaptive_avg_pool2d
    mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div
""".split()

CREATION = "arange linspace eye full full_like ones_like zeros_like".split()

NOT_COMPARED = {
    "bernoulli randn randint": "random: tests of the generator compare it with its definition",
    "ones zeros": "OpInfo's samples are shapes on other devices and in other layouts",
    "to": "every sample asks for a memory format",
    "zero_": "in place: OpInfo's call clones first",
    "take": "the row `take` selects along an axis; PyTorch's function of that name flattens",
    "nn.functional.unfold": "the method unfold is Tensor.unfold; im2col is done inside convolutions",
}


def method(name: str) -> Callable:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a method of tensors, not of {type(x).__name__}")
        return getattr(x, name)(*args, **kwargs)

    return call


def creation(name: str) -> Callable:
    def call(*args: Any, device: Any = None, requires_grad: bool = False, **kwargs: Any) -> Tensor:
        return getattr(ta, name)(*args, **kwargs)

    return call


def view(x: Tensor, shape: tuple) -> Tensor:
    """PyTorch's view is reshape without a copy."""
    y = x.reshape(shape)
    if y.buffer is not x.buffer:
        raise RuntimeError(f"no view of {x.shape} has shape {shape}")
    return y


def assign(x: Tensor, indices: tuple, values: Tensor, accumulate: bool) -> Tensor:
    if accumulate:
        raise NotImplementedError("assignment overwrites")
    x = x.clone()
    x[tuple(indices)] = values
    return x


def meshgrid(*tensors: Any, indexing: str) -> tuple[Tensor, ...]:
    """PyTorch also takes a single list of them."""
    return F.meshgrid(*(tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors), indexing=indexing)


CALLS: dict[str, Callable] = {name: method(name) for name in METHODS}
CALLS |= {name: getattr(F, name) for name in FUNCTIONS}
CALLS |= {f"nn.functional.{name}": getattr(F, name) for name in NN_FUNCTIONS}
CALLS |= {name: creation(name) for name in CREATION}
CALLS |= {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "view": view,
    "flip": lambda x, dims: x.flip(*dims),
    "index_put": assign,
    "where": lambda x, condition, other: F.where(condition, x, other),
    "meshgrid": meshgrid,
    "einsum": lambda tensors, equation: F.einsum(equation, *tensors),
    "nn.functional.embedding": lambda weight, index, **options: F.embedding(index, weight, **options),
    "__radd__": lambda x, y: y + x,
    "__rsub__": lambda x, y: y - x,
    "__rmul__": lambda x, y: y * x,
    "__rdiv__": lambda x, y: y / x,
    "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y**x,
    "__rmatmul__": lambda x, y: y @ x,
    "__rand__": lambda x, y: y & x,
    "__ror__": lambda x, y: y | x,
    "__rxor__": lambda x, y: y ^ x,
}


# OpInfo's own, for long sums of products.
TOLERANCES = {"nn.functional.conv3d": {"rtol": 5e-6, "atol": 5e-5}}

# --- where they differ ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """One call of PyTorch's: its dtype is that which OpInfo was asked for, and None for inputs that PyTorch refuses."""

    op: str
    dtype: str | None
    input: Any
    args: tuple
    kwargs: dict


@dataclass(frozen=True, eq=False)
class Difference:
    """Samples on which tinyadept does something else than PyTorch, and what.

    Attributes
    ----------
    ops : str
        Names in the OpInfo database.
    when : callable
        Whether a sample is one of them.
    reason : str
        For the README.
    then : type of exception, or str
        What is asserted: that the call raises this, or one of the checks `then_…` of test_opinfo.
    """

    ops: str
    when: Callable[[Sample], Any]
    reason: str
    then: type[Exception] | str


def are_numbers(s: Sample) -> tuple[bool, ...]:
    return tuple(not isinstance(x, torch.Tensor) for x in (s.input, *s.args))


def whole_with_ties(s: Sample) -> bool:
    """Integers and booleans often tie; OpInfo's floats do not."""
    return s.dtype != "float32"


def negative_exponent(s: Sample) -> bool:
    return s.dtype == "int32" and bool((s.input < 0).any())


def odd_index(s: Sample) -> bool:
    return s.args[1].ndim != s.input.ndim


def drops(s: Sample) -> bool:
    return s.kwargs.get("training", True) and s.kwargs.get("p", 0.5) not in (0, 1)


DIFFERENCES = [
    Difference(
        "topk sort argsort",
        whole_with_ties,
        "PyTorch leaves open which of equal elements comes first; here sorting is always stable, and topk takes the first",
        "stable",
    ),
    Difference(
        "nn.functional.dropout",
        drops,
        "other random numbers: a seed gives the same ones on every device",
        "dropped",
    ),
    Difference(
        "__rpow__",
        negative_exponent,
        "an integer to a negative power raises, as in NumPy, because the result is no integer; PyTorch rounds it to 0",
        ValueError,
    ),
    Difference(
        "__rand__ __ror__ __rxor__",
        lambda s: s.dtype == "int32",
        "there are no bitwise operators: &, |, ^ and ~ are logical and take booleans alone",
        TypeError,
    ),
    Difference(
        "square", lambda s: s.dtype == "bool", "arithmetic does not take booleans, but for + and *", TypeError
    ),
    Difference(
        "var std",
        lambda s: (
            "unbiased" in s.kwargs
            or s.args[:1] in ((True,), (False,))
            or s.kwargs.get("correction", 1) is None
        ),
        "the older spelling `unbiased` is not taken, nor correction=None: say correction=1 or correction=0",
        TypeError,
    ),
    Difference(
        "norm",
        lambda s: s.args[:1] == ("nuc",),
        "there are no singular values, so no nuclear norm",
        ValueError,
    ),
    Difference(
        "norm",
        lambda s: s.args[:1] == (0,),
        "norm(0) counts, and a count has no gradient; PyTorch has one that is zero",
        "no gradient",
    ),
    Difference(
        "gather",
        odd_index,
        "the index has as many axes as the input, also where one is 0-d or the index empty",
        ValueError,
    ),
    Difference(
        "scatter", lambda s: "reduce" in s.kwargs, "scatter has no `reduce`: scatter_add adds", TypeError
    ),
    Difference(
        "index_put",
        lambda s: s.kwargs.get("accumulate"),
        "x[index] = values overwrites, there is no `accumulate`: scatter_add adds",
        NotImplementedError,
    ),
    Difference(
        "float double int long bool",
        lambda s: "memory_format" in s.kwargs,
        "there are no memory formats",
        TypeError,
    ),
    Difference(
        "nn.functional.batch_norm",
        lambda s: s.input.ndim < 2,
        "the input is (N, C, …), never a lone vector",
        ValueError,
    ),
    Difference(
        "nn.functional.instance_norm",
        lambda s: "running_mean" in s.kwargs,
        "instance_norm keeps no running statistics",
        TypeError,
    ),
    Difference(
        "repeat_interleave",
        lambda s: isinstance(s.kwargs.get("repeats"), torch.Tensor),
        "one count for all elements, no tensor of counts",
        TypeError,
    ),
    Difference(
        "arange",
        lambda s: s.dtype == "int32" and any(isinstance(n, float) and n % 1 for n in (s.input, *s.args)),
        "integers from fractions: each number start + i * step is cut off, where PyTorch cuts off start and step",
        "cut off",
    ),
    Difference(
        "linspace", lambda s: s.kwargs.get("dtype") == torch.int32, "linspace makes floats alone", TypeError
    ),
]

# Inputs that PyTorch refuses and tinyadept takes.
ACCEPTED = [
    Difference(
        "maximum minimum eq ne lt le gt ge xlogy logical_and logical_or logical_xor __radd__ __rsub__ __rmul__ __rdiv__ __rmod__ "
        "__rpow__",
        lambda s: any(are_numbers(s)),
        "Python numbers are operands like any other, on either side",
        "as tensors",
    ),
    Difference(
        "__rand__ __ror__ __rxor__",
        lambda s: all(are_numbers(s)),
        "Python itself answers 2 & 3",
        "as tensors",
    ),
    Difference(
        "nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d",
        lambda s: s.input.dtype == torch.int64,
        "operands of several dtypes are promoted",
        "promoted",
    ),
]
