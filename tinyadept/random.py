"""Random tensors. The numbers come from a counter, so a seed gives the same ones on every device."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import device as devices
from . import dtypes
from .operators import sizes
from .ops import random as rows
from .ops.table import apply, apply_into
from .tape import no_grad
from .tensor import Tensor


class Generator:
    """A stream of random numbers on one device.

    Parameters
    ----------
    seed : int
        Any integer; its low 64 bits count.
    device : str, optional

    Attributes
    ----------
    state : Tensor
        int32 (4,): the key's two words, then the counter's. It lives on the device, so drawing needs no host.
    """

    def __init__(self, seed: int = 0, device: Any = None):
        self.state = Tensor(words(seed, 0), device=device)

    def manual_seed(self, seed: int) -> Generator:
        """Begin the stream of another seed."""
        self.state.copy_(words(seed, 0))
        return self

    def draw(self, op: Any, shape: tuple[int, ...]) -> Tensor:
        """Run a row of the family `random` and move the counter past what it used."""
        if any(n < 0 for n in shape):
            raise ValueError(f"{op.name}: shape {shape} has a negative length")
        with no_grad():
            out = apply(op, (self.state,), {"shape": shape})
            blocks = -(-int(np.prod(shape, dtype=np.int64)) // 4)
            apply_into(rows.advance.op, self.state, (self.state,), {"blocks": blocks})
        return out


def words(seed: int, counter: int) -> np.ndarray:
    pair = np.array([seed & 0xFFFFFFFFFFFFFFFF, counter], np.uint64)
    return pair.astype("<u8").view("<u4").view("<i4").astype(np.int32)


seed_now = 0
generators: dict[Any, Generator] = {}


def manual_seed(seed: int) -> None:
    """Restart the default streams of all devices from one seed."""
    global seed_now
    seed_now = int(seed)
    generators.clear()


def default_generator(device: Any = None) -> Generator:
    """The stream from which a device draws unless told otherwise."""
    backend = devices.resolve(device)
    if backend not in generators:
        generators[backend] = Generator(seed_now, backend)
    return generators[backend]


def get_state(device: Any = None) -> Tensor:
    """Where a device's default stream stands, as an int32 tensor (4,)."""
    return default_generator(device).state.clone()


def set_state(state: Tensor, device: Any = None) -> None:
    """Continue a device's default stream from a state that `get_state` returned."""
    default_generator(device).state.copy_(state)


def source(generator: Generator | None, device: Any) -> Generator:
    return default_generator(device) if generator is None else generator


def finished(x: Tensor, dtype: Any, requires_grad: bool) -> Tensor:
    x = x.to(dtype)
    return x.requires_grad_() if requires_grad else x


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = dtypes.float32,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform numbers, multiples of 2⁻²⁴ in [0, 1)."""
    return finished(source(generator, device).draw(rows.uniform.op, sizes(size)), dtype, requires_grad)


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: Any = dtypes.float32,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Normal numbers of mean 0 and variance 1 (Box and Muller's transform)."""
    return finished(source(generator, device).draw(rows.normal.op, sizes(size)), dtype, requires_grad)


def randint(
    low: int,
    high: int | None = None,
    size: Any = (),
    generator: Generator | None = None,
    dtype: Any = dtypes.int32,
    device: Any = None,
) -> Tensor:
    """Integers from low up to but without high, or below low alone. The range may hold at most 2²⁴ numbers.

    Raises
    ------
    ValueError
        If the range is empty or too wide.
    """
    low, high = (0, low) if high is None else (low, high)
    if not 0 < high - low <= 1 << 24:
        raise ValueError(f"randint: the range {low} to {high} must hold between 1 and 2**24 integers")
    drawn = source(generator, device).draw(rows.uniform.op, sizes((size,)))
    return ((drawn * (high - low)).floor().to(dtypes.int32) + low).to(dtype)


def randperm(n: int, generator: Generator | None = None, device: Any = None) -> Tensor:
    """The integers below n in random order, int32."""
    return source(generator, device).draw(rows.random_bits.op, (n,)).argsort()


def bernoulli(p: float, size: Any, generator: Generator | None = None, device: Any = None) -> Tensor:
    """True with probability p."""
    return source(generator, device).draw(rows.uniform.op, sizes((size,))) < p
