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
    sin cos tan atan tanh sigmoid erf floor ceil round trunc maximum minimum clamp isnan isinf isfinite logical_not
    sum mean prod max min amax amin argmax argmin any all var std norm logsumexp cumsum softmax log_softmax
    reshape flatten unflatten transpose permute t expand expand_as broadcast_to view_as squeeze unsqueeze roll
    chunk split unbind select narrow repeat tile unfold diagonal tril triu clone contiguous
    __getitem__ gather scatter scatter_add index_select take_along_dim masked_fill masked_select nonzero
    topk sort argsort matmul dot float double int long bool to item
""".split()

FUNCTIONS = """
    true_divide eq ne lt le gt ge logical_and logical_or logical_xor cat stack unique mm bmm outer broadcast_tensors
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
    def call(*args: Any, device: str = "cpu", **kwargs: Any) -> Tensor:
        return getattr(ta, name)(*args, **kwargs)

    return call


def view(x: Tensor, shape: tuple) -> Tensor:
    """PyTorch's view is reshape without a copy."""
    y = x.reshape(shape)
    if y.buffer is not x.buffer:
        raise RuntimeError(f"no view of {x.shape} has shape {shape}")
    return y


def assign(x: Tensor, indices: tuple, values: Tensor) -> Tensor:
    x = x.clone()
    x[tuple(indices)] = values
    return x


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
    "meshgrid": lambda *tensors, indexing: F.meshgrid(*ta_list(tensors), indexing=indexing),
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


def ta_list(tensors: tuple) -> Any:
    return tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors


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


def always(s: Sample) -> bool:
    return True


ARITHMETIC = "add sub mul div true_divide floor_divide remainder pow maximum minimum"
COMPARISONS = "eq ne lt le gt ge logical_and logical_or logical_xor"
REFLECTED = "__radd__ __rsub__ __rmul__ __rdiv__ __rmod__ __rpow__"

DIFFERENCES: list[Difference] = []
ACCEPTED: list[Difference] = []
