"""Which call of tinyadept stands for which op of PyTorch's OpInfo database, and where the two differ on purpose."""

from __future__ import annotations

import operator

import tinyadept as ta
from tinyadept import Tensor

METHODS = """
    add sub mul div true_divide floor_divide remainder pow __radd__ __rsub__ __rmul__ __rmod__ __rpow__ __rmatmul__
    eq ne lt le gt ge logical_and logical_or logical_xor logical_not
    neg abs sign square exp log log1p expm1 sqrt rsqrt reciprocal sin cos tan atan tanh sigmoid erf
    floor ceil round trunc maximum minimum clamp clamp_min clamp_max isnan isinf isfinite
    sum mean prod max min amax amin argmax argmin any all var std norm logsumexp cumsum softmax log_softmax
    reshape view flatten unflatten transpose permute t expand expand_as broadcast_to view_as squeeze unsqueeze flip roll
    chunk split unbind select narrow repeat tile unfold diagonal tril triu clone contiguous
    __getitem__ gather scatter scatter_add index_select take_along_dim masked_fill masked_select nonzero
    topk sort argsort unique matmul mm bmm dot outer
    float double int long bool
""".split()


def index_put(x: Tensor, indices: tuple, values: Tensor, accumulate: bool = False) -> Tensor:
    if accumulate:
        raise NotImplementedError("assignment does not accumulate: use scatter_add")
    x = x.clone()
    x[tuple(indices)] = values
    return x


CALLS = {name: operator.methodcaller for name in ()}
CALLS |= {name: (lambda name: lambda x, *args, **kwargs: getattr(Tensor, name)(x, *args, **kwargs))(name) for name in METHODS}
CALLS |= {
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "index_put": index_put,
    "where": lambda x, condition, other: x.where(condition, other),
}
for name, o in {"eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
          "logical_and": operator.and_, "logical_or": operator.or_, "logical_xor": operator.xor}.items():
    CALLS[name] = o
DIFFERENCES = []
