"""How the Vulkan backend runs each family of ops: the host's half of the kernels in glsl/.

A driver is ``run(gpu, op, inputs, shape, dtype, params, into)``. It notes dispatches that compute the op, and
returns the buffer of the result; or it writes over the tensor `into`, in whatever layout and dtype that has, and
returns None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import elementwise, matmul

FAMILIES: dict[str, Callable[..., Any]] = {
    "elementwise": elementwise.run,
    "cast": elementwise.run,
    "matmul": matmul.run,
}
