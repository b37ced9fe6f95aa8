"""How the Vulkan backend runs each family of ops: the host's half of the kernels in glsl/.

A driver is ``run(gpu, op, inputs, shape, dtype, params, into)``. It notes dispatches that compute the op, and
returns the buffer of the result; or it writes over the tensor `into`, in whatever layout and dtype that has,
and returns None.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..shaders import Macros
from . import (
    attention,
    conv,
    copying,
    elementwise,
    entropy,
    index,
    kernel,
    matmul,
    matvec,
    norm,
    pool,
    random,
    reduce,
    resample,
    scan,
    sort,
    suppress,
    update,
)

DRIVERS = (
    attention,
    conv,
    copying,
    elementwise,
    entropy,
    index,
    kernel,
    matmul,
    matvec,
    norm,
    pool,
    random,
    reduce,
    resample,
    scan,
    sort,
    suppress,
    update,
)

FAMILIES: dict[str, Callable[..., Any]] = {
    "elementwise": elementwise.run,
    "cast": elementwise.run,
    "cat": copying.cat,
    "place": copying.place,
    "create": copying.create,
    "random": random.random,
    "advance": random.advance,
    "reduce": reduce.run,
    "scan": scan.run,
    "norm": norm.run,
    "statistics": norm.run_statistics,
    "matmul": matmul.run,
    "linear": matmul.run,
    "entropy": entropy.run,
    "resample": resample.run,
    "sort": sort.run,
    "suppress": suppress.run,
    "update": update.run,
    "kernel": kernel.run,
    **attention.FAMILIES,
    **index.FAMILIES,
    **conv.FAMILIES,
    **pool.FAMILIES,
}

# What transfers and the queue ask for, whatever the op.
ALWAYS = (("tick", {}), ("selftest", {}), ("fill", {}), ("copy", {"WIDE": 0}), ("copy", {"WIDE": 1}))


def variants() -> Iterator[tuple[str, Macros]]:
    """Template and macros of every shader that the package may ask for: what is shipped."""
    yield from ALWAYS
    for driver in DRIVERS:
        yield from driver.variants()
