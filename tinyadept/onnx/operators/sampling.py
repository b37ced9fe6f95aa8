"""Values of planes at places between their cells."""

from __future__ import annotations

from math import prod

from ...ops.elementwise import where
from ...tensor import Tensor


def picked(x: Tensor, at: list[Tensor]) -> Tensor:
    """Cells (N, C, *P) at whole places of each axis, each (N, *P); 0 outside of the axes."""
    n, c, *cells = x.shape
    inside, flat = None, None
    for place, length in zip(at, cells, strict=True):
        within = (place >= 0) & (place <= length - 1)
        inside = within if inside is None else inside & within
        step = where(within, place, 0.0).to("int32")
        flat = step if flat is None else flat * length + step
    assert inside is not None and flat is not None
    count = prod(flat.shape[1:])
    index = flat.reshape(n, 1, count).expand(n, c, count)
    found = x.reshape(n, c, prod(cells)).take_along_dim(index, 2).reshape(n, c, *flat.shape[1:])
    return where(inside.unsqueeze(1), found, 0.0)


def linear(x: Tensor, places: list[Tensor]) -> Tensor:
    """Interpolated between the two cells around each place, along every axis."""
    low = [place.floor() for place in places]
    share = [place - floor for place, floor in zip(places, low, strict=True)]
    total = None
    for corner in range(1 << len(places)):
        far = [bool(corner >> axis & 1) for axis in range(len(places))]
        cell = picked(x, [floor + 1 if f else floor for floor, f in zip(low, far, strict=True)])
        for s, f in zip(share, far, strict=True):
            cell = cell * (s if f else 1 - s).unsqueeze(1)
        total = cell if total is None else total + cell
    assert total is not None
    return total
