"""Planes at another resolution or other places, and channels traded for it."""

from __future__ import annotations

from math import prod
from typing import Any

from ..dtypes import int32
from ..ops.elementwise import where
from ..ops.resample import resample
from ..tensor import Tensor
from .pooling import adaptive_avg_pool

MODES = {
    "nearest": 0,
    "nearest-exact": 0,
    "area": 0,
    "linear": 1,
    "bilinear": 2,
    "trilinear": 3,
}  # spatial axes; 0: any


def interpolate(
    input: Tensor,
    size: int | tuple[int, ...] | None = None,
    scale_factor: float | tuple[float, ...] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """Resample the spatial axes: (N, C, …) gives (N, C, size…).

    Parameters
    ----------
    input : Tensor
        With one to three spatial axes.
    size : int or one per axis, optional
    scale_factor : float or one per axis, optional
        Results to a cell; either this or `size`. Lengths are rounded down.
    mode : str
        "nearest", "nearest-exact" (from the centres, as pictures are resized elsewhere), "area" (means, as
        `adaptive_avg_pool2d`), or "linear", "bilinear" or "trilinear" for one, two or three axes.
    align_corners : bool, optional
        For linear modes: whether the centres of the outermost cells meet, instead of their outer edges.
    recompute_scale_factor : bool, optional
        Go by the quotient of the lengths instead of by `scale_factor`.

    Raises
    ------
    ValueError
        If the mode does not fit the axes, both or none of `size` and `scale_factor` are given, there is
        nothing to resample, or `align_corners` meets another mode.
    """
    rank = input.ndim - 2
    if mode not in MODES or not 1 <= rank <= 3 or MODES[mode] not in (0, rank):
        raise ValueError(
            f"interpolate: mode {mode!r} does not fit shape {input.shape}: expected nearest, nearest-exact, "
            "area, or linear, bilinear or trilinear for (N, C, L), (N, C, H, W) or (N, C, D, H, W)"
        )
    if align_corners is not None and MODES[mode] == 0:
        raise ValueError(f"interpolate: align_corners is for linear modes, got {mode!r}")
    if (size is None) == (scale_factor is None):
        raise ValueError(f"interpolate takes size or scale_factor, got {size} and {scale_factor}")
    sizes, scales = lengths(input.shape[2:], size, scale_factor)
    if recompute_scale_factor or size is not None:
        scales = (None,) * rank
    if any(n < 1 for n in (*sizes, *input.shape[2:])):
        raise ValueError(f"interpolate: from {input.shape[2:]} to {sizes}: there is nothing to resample")
    if mode == "area":
        return adaptive_avg_pool(rank, input, sizes)
    kind = mode if MODES[mode] == 0 else "linear"
    return resample(input, sizes=sizes, mode=kind, corners=bool(align_corners), scales=scales)


def lengths(cells: tuple[int, ...], size: Any, scale: Any) -> tuple[tuple[int, ...], tuple[Any, ...]]:
    """The lengths of the result, and the scales that were asked for."""
    given = size if scale is None else scale
    each = (given,) * len(cells) if isinstance(given, (int, float)) else tuple(given)
    if len(each) != len(cells):
        raise ValueError(f"interpolate: expected one number or {len(cells)}, got {given}")
    if scale is None:
        return tuple(int(n) for n in each), (None,) * len(cells)
    if any(not s > 0 for s in each):
        raise ValueError(f"interpolate: scale factors must be positive, got {given}")
    return tuple(int(n * s) for n, s in zip(cells, each, strict=True)), tuple(float(s) for s in each)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """Channels as finer cells: (…, C · r², H, W) gives (…, C, H · r, W · r) (Shi et al., 2016).

    Raises
    ------
    ValueError
        If the channels do not divide.
    """
    r = upscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-3] % (r * r):
        raise ValueError(f"pixel_shuffle: channels of shape {input.shape} do not divide by {r} squared")
    *lead, c, h, w = input.shape
    x = input.reshape(prod(lead), c // (r * r), r, r, h, w).permute(0, 1, 4, 2, 5, 3)  # (N, C, H, r, W, r)
    return x.reshape(*lead, c // (r * r), h * r, w * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """The inverse of `pixel_shuffle`: (…, C, H · r, W · r) gives (…, C · r², H, W).

    Raises
    ------
    ValueError
        If height or width do not divide.
    """
    r = downscale_factor
    if input.ndim < 3 or r < 1 or input.shape[-2] % r or input.shape[-1] % r:
        raise ValueError(f"pixel_unshuffle: the plane of shape {input.shape} does not divide by {r}")
    *lead, c, h, w = input.shape
    x = input.reshape(prod(lead), c, h // r, r, w // r, r).permute(0, 1, 3, 5, 2, 4)  # (N, C, r, r, H, W)
    return x.reshape(*lead, c * r * r, h // r, w // r)


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of planes at given places (Jaderberg et al., Spatial transformer networks, 2015).

    Parameters
    ----------
    input : Tensor
        (N, C, H, W).
    grid : Tensor
        (N, H', W', 2): x and y of each place, from -1 to 1 over the plane.
    mode : str
        "bilinear" or "nearest".
    padding_mode : str
        What lies outside: "zeros", the "border" cells, or a "reflection".
    align_corners : bool, optional
        Whether -1 and 1 are the centres of the outermost cells, instead of their outer edges.

    Returns
    -------
    Tensor
        (N, C, H', W').

    Raises
    ------
    ValueError
        If the shapes do not fit, or a mode is unknown.
    """
    if input.ndim != 4 or grid.ndim != 4 or grid.shape[0] != input.shape[0] or grid.shape[3] != 2:
        raise ValueError(
            f"grid_sample takes (N, C, H, W) and (N, H', W', 2), got {input.shape} and {grid.shape}"
        )
    if mode not in ("bilinear", "nearest") or padding_mode not in ("zeros", "border", "reflection"):
        raise ValueError(f"grid_sample: mode {mode!r} with padding {padding_mode!r} does not exist")
    if 0 in input.shape[2:]:
        raise ValueError(f"grid_sample: an input of shape {input.shape} has nothing to sample")
    h, w = input.shape[2:]
    places = [place(grid[..., a], n, bool(align_corners), padding_mode) for a, n in ((1, h), (0, w))]
    if mode == "nearest":
        return picked(input, [p.round() for p in places])
    low = [p.floor() for p in places]
    (ty, tx), (y, x) = [p - q for p, q in zip(places, low, strict=True)], low
    corners = (
        (y, x, (1 - ty) * (1 - tx)),
        (y, x + 1, (1 - ty) * tx),
        (y + 1, x, ty * (1 - tx)),
        (y + 1, x + 1, ty * tx),
    )
    parts = [picked(input, [v, u]) * share.unsqueeze(1) for v, u, share in corners]
    return parts[0] + parts[1] + parts[2] + parts[3]


def place(at: Tensor, cells: int, corners: bool, padding: str) -> Tensor:
    """Where along an axis of so many cells, from its first centre on."""
    x = (at + 1) * ((cells - 1) / 2) if corners else ((at + 1) * cells - 1) * 0.5
    if padding == "reflection":
        low, high = (0.0, cells - 1.0) if corners else (-0.5, cells - 0.5)
        x = reflected(x, low, high)
    return x if padding == "zeros" else x.clamp(0, cells - 1)


def reflected(x: Tensor, low: float, high: float) -> Tensor:
    """A number folded back and forth between two others."""
    if high <= low:
        return x * 0.0
    length = high - low
    apart = (x - low).abs()
    turns = (apart / length).floor()
    rest = apart - turns * length
    return where(turns.detach() % 2 == 0, rest + low, high - rest)


def picked(x: Tensor, at: list[Tensor]) -> Tensor:
    """The cells (N, C, H', W') at rows and columns (N, H', W'); 0 outside of the plane."""
    n, c, h, w = x.shape
    row, column = (p.detach() for p in at)
    inside = (row >= 0) & (row <= h - 1) & (column >= 0) & (column <= w - 1)
    cell = row.clamp(0, h - 1) * w + column.clamp(0, w - 1)
    index = where(cell == cell, cell, 0.0).to(int32).reshape(n, 1, -1).expand(n, c, cell.numel() // max(n, 1))
    found = x.reshape(n, c, h * w).take_along_dim(index, 2).reshape(n, c, *row.shape[1:])
    return where(inside.unsqueeze(1), found, 0.0)
