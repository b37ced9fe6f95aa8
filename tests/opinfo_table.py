"""Which call of tinyadept stands for which op of PyTorch's OpInfo database, and where the two differ on purpose."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import tinyadept.functional as F
from tinyadept import Tensor

METHODS = """
    add sub mul div floor_divide remainder pow neg abs sign square exp log log1p expm1 sqrt rsqrt reciprocal
    sin cos tan atan tanh sigmoid erf floor ceil round trunc maximum minimum clamp isnan isinf isfinite logical_not
    sum mean prod max min amax amin argmax argmin any all var std norm logsumexp cumsum softmax log_softmax
    reshape flatten unflatten transpose permute t expand expand_as broadcast_to view_as squeeze unsqueeze roll
    chunk split unbind select narrow repeat tile unfold diagonal tril triu clone contiguous
    __getitem__ gather scatter scatter_add index_select take_along_dim masked_fill masked_select nonzero
    topk sort argsort matmul dot float double int long bool
""".split()

FUNCTIONS = """
    true_divide eq ne lt le gt ge logical_and logical_or logical_xor cat stack unique mm bmm outer broadcast_tensors meshgrid
    repeat_interleave
""".split()

NN_FUNCTIONS = """
    relu leaky_relu elu silu gelu softplus mish hardswish hardsigmoid logsigmoid pad one_hot linear embedding dropout
    layer_norm group_norm batch_norm rms_norm instance_norm normalize cosine_similarity
    conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
    mse_loss l1_loss smooth_l1_loss huber_loss cross_entropy nll_loss binary_cross_entropy
    binary_cross_entropy_with_logits kl_div
    scaled_dot_product_attention interpolate relu6 hardtanh selu celu glu pixel_shuffle softmin softsign
""".split()


def method(name: str) -> Callable:
    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a method of tensors")
        return getattr(x, name)(*args, **kwargs)

    return call


def index_put(x: Tensor, indices: tuple, values: Tensor, accumulate: bool = False) -> Tensor:
    x = x.clone()
    x[tuple(indices)] = values
    return x


def shared(x: Tensor, shape: tuple) -> Tensor:
    y = x.reshape(shape)
    assert y.buffer is x.buffer, "not a view"
    return y


CALLS: dict[str, Callable] = {name: method(name) for name in METHODS}
CALLS |= {name: getattr(F, name) for name in FUNCTIONS if hasattr(F,name)}
CALLS |= {f"nn.functional.{name}": getattr(F, name) for name in NN_FUNCTIONS if hasattr(F, name)}
CALLS |= {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "view": shared,
    "flip": lambda x, dims: x.flip(dims),
    "index_put": index_put,
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
    "__rand__": operator.and_, "__ror__": operator.or_, "__rxor__": operator.xor,
}
DIFFERENCES = []
