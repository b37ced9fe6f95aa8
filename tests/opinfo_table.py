"""Which call of tinyadept stands for which op of PyTorch's OpInfo database, and where the two differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import Tensor

# --- the ops that both have -----------------------------------------------------------------------------

METHODS = """
    add sub mul div floor_divide remainder pow neg abs sign square exp log log1p expm1 sqrt rsqrt reciprocal
    sin cos tan atan tanh sigmoid erf floor ceil round trunc clamp isnan isinf isfinite logical_not
    sum mean prod max min amax amin argmax argmin any all var std norm logsumexp cumsum softmax log_softmax
    reshape view flip flatten unflatten transpose permute t expand expand_as broadcast_to view_as squeeze
    unsqueeze roll chunk split unbind select narrow repeat tile unfold diagonal tril triu clone contiguous
    __getitem__ gather scatter scatter_add index_select take_along_dim masked_fill masked_select nonzero
    topk sort argsort matmul dot float double int long bool item
"""

FUNCTIONS = """
    true_divide maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor bitwise_not xlogy
    cat stack repeat_interleave broadcast_tensors unique mm bmm outer
"""

NN_FUNCTIONS = """
    relu leaky_relu elu silu gelu softplus mish hardswish hardsigmoid logsigmoid dropout
    pad one_hot embedding linear layer_norm group_norm batch_norm rms_norm instance_norm normalize
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    max_pool1d max_pool2d max_pool3d max_unpool1d max_unpool2d max_unpool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    interpolate pixel_shuffle pixel_unshuffle grid_sample
    mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div cosine_similarity scaled_dot_product_attention
"""

CREATION = "arange linspace eye full ones zeros full_like ones_like zeros_like"

NOT_COMPARED = {
    "bernoulli randn randint": "random numbers: the tests of the generator compare them with its definition",
    "to": "every sample asks for a memory format",
    "take": "the row `take` selects along an axis, where PyTorch's function of that name flattens",
    "nn.functional.unfold": "Tensor.unfold is compared; im2col has no function of its own",
    "nn.functional.interpolate-bicubic": "there is no bicubic interpolation",
    "nn.functional.silu-complex": "samples of complex numbers alone",
    "nn.functional.batch_norm-without_cudnn": "samples for CUDA alone",
}

TOLERANCES = {
    "nn.functional.conv3d": {"rtol": 5e-6, "atol": 5e-5},  # sums of 1320 products: OpInfo's own tolerance
    "nn.functional.scaled_dot_product_attention": {
        "rtol": 1.3e-6,
        "atol": 1e-4,
    },  # scores of some 100 are rounded before they are exponents: a weight is off by 1e-5 of itself
    "nn.functional.normalize": {
        "rtol": 1.3e-6,
        "atol": 1e-4,
    },  # one element: terms of some 300 cancel exactly
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


def assign(x: Tensor, indices: tuple, values: Tensor, accumulate: bool) -> Tensor:
    if accumulate:
        raise NotImplementedError("assignment overwrites")
    x = x.clone()
    x[tuple(indices)] = values
    return x


def meshgrid(*tensors: Any, indexing: str) -> tuple[Tensor, ...]:
    """PyTorch also takes one list of them."""
    listed = isinstance(tensors[0], (list, tuple))
    return F.meshgrid(*(tensors[0] if listed else tensors), indexing=indexing)


CALLS: dict[str, Callable] = {name: method(name) for name in METHODS.split()}
CALLS |= {name: getattr(F, name) for name in FUNCTIONS.split()}
CALLS |= {f"nn.functional.{name}": getattr(F, name) for name in NN_FUNCTIONS.split()}
CALLS |= {name: creation(name) for name in CREATION.split()}
CALLS |= {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "zero_": lambda x: x.clone().zero_(),
    "index_put": assign,
    "meshgrid": meshgrid,
    "where": lambda x, condition, other: F.where(condition, x, other),
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


# --- where they differ ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A call of PyTorch's, with the dtype that OpInfo was asked for; None for inputs that PyTorch refuses."""

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
        Whether a sample of these ops is meant.
    reason : str
        What the README says.
    then : type of exception, or str
        What is asserted: that the call raises this, or one of the checks in test_opinfo.THEN.
    """

    ops: str
    when: Callable[[Sample], Any]
    reason: str
    then: type[Exception] | str


def are_numbers(s: Sample) -> list[bool]:
    return [not isinstance(x, torch.Tensor) for x in (s.input, *s.args)]


DIFFERENCES = [
    Difference(
        "topk sort argsort",
        lambda s: s.dtype != "float32",  # integers and booleans tie; OpInfo's floats do not
        "PyTorch leaves open which of equal elements comes first; sorting is stable, topk takes the first",
        "stable",
    ),
    Difference(
        "nn.functional.dropout",
        lambda s: s.kwargs.get("training", True) and s.kwargs.get("p", 0.5) not in (0, 1),
        "the random numbers are others: a seed gives the same ones on every device",
        "dropped",
    ),
    Difference(
        "nn.functional.scaled_dot_product_attention",
        lambda s: s.kwargs.get("dropout_p", 0) > 0,
        "the random numbers are others: a seed gives the same ones on every device",
        "on average",
    ),
    Difference(
        "__rpow__",
        lambda s: s.dtype == "int32" and bool((s.input < 0).any()),
        "an integer to a negative power raises, as in NumPy: the result is no integer, and PyTorch gives 0",
        ValueError,
    ),
    Difference(
        "square",
        lambda s: s.dtype == "bool",
        "of booleans PyTorch makes an int64 square; here they raise",
        TypeError,
    ),
    Difference(
        "norm", lambda s: s.args[:1] == ("nuc",), "no nuclear norm: it needs singular values", ValueError
    ),
    Difference(
        "norm",
        lambda s: s.args[:1] == (0,),
        "norm(0) counts, and a count has no gradient; PyTorch has one that is zero",
        "no gradient",
    ),
    Difference(
        "gather",
        lambda s: s.args[1].ndim != s.input.ndim,
        "the index needs as many axes as the input, also where it is empty or the input 0-d",
        ValueError,
    ),
    Difference("scatter", lambda s: "reduce" in s.kwargs, "no `reduce`: scatter_add adds", TypeError),
    Difference(
        "index_put",
        lambda s: s.kwargs["accumulate"],
        "x[index] = values overwrites, and nothing accumulates but scatter_add",
        NotImplementedError,
    ),
    Difference(
        "float double int long bool", lambda s: "memory_format" in s.kwargs, "no memory formats", TypeError
    ),
    Difference(
        "nn.functional.batch_norm",
        lambda s: s.input.ndim < 2,
        "the input is (N, C, …), also where there are no elements",
        ValueError,
    ),
    Difference(
        "nn.functional.instance_norm",
        lambda s: "running_mean" in s.kwargs,
        "no running statistics",
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
        "integers from fractions: every start + i · step is cut off, where PyTorch cuts off start and step",
        "cut off",
    ),
    Difference(
        "nn.functional.grid_sample",
        lambda s: s.kwargs["mode"] == "bicubic" or s.input.ndim == 5,
        "planes alone, and no bicubic interpolation",
        ValueError,
    ),
    Difference("linspace", lambda s: s.kwargs.get("dtype") == torch.int32, "floats alone", TypeError),
]

# Inputs that PyTorch refuses and tinyadept takes.
ACCEPTED = [
    Difference(
        "maximum minimum xlogy eq ne lt le gt ge logical_and logical_or logical_xor "
        "bitwise_and bitwise_or bitwise_xor "
        "__radd__ __rsub__ __rmul__ __rdiv__ __rmod__ __rpow__",
        lambda s: any(are_numbers(s)),
        "Python numbers are operands like tensors, in every place",
        "as tensors",
    ),
    Difference(
        "__rand__ __ror__ __rxor__",
        lambda s: any(are_numbers(s)),
        "Python numbers are operands",
        "as tensors",
    ),
    Difference(
        "nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d",
        lambda s: s.input.dtype == torch.int64,
        "operands of several dtypes are promoted",
        "promoted",
    ),
]
