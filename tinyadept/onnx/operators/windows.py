"""Where the windows of convolution and pooling lie: pads, strides, dilations and how many there are."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...view import Shape

Pairs = tuple[tuple[int, int], ...]


class Windows(NamedTuple):
    """Windows along each spatial axis.

    Attributes
    ----------
    kernel, stride, dilation : tuple of int
    padding : tuple of pair of int
        Before and after.
    counts : tuple of int
        Positions.
    """

    kernel: Shape
    stride: Shape
    dilation: Shape
    padding: Pairs
    counts: Shape


def windows(node: Any, cells: Shape, kernel: Shape) -> Windows:
    """The windows that a node's attributes describe on an input of so many cells."""
    stride, dilation = steps(node, kernel)
    reach = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    auto = node.get("auto_pad", "NOTSET")
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        count = tuple(-(-n // s) for n, s in zip(cells, stride))
        total = [max((m - 1) * s + r - n, 0) for m, s, r, n in zip(count, stride, reach, cells)]
        padding = tuple(halves(t, auto) for t in total)
        return Windows(kernel, stride, dilation, padding, count)
    padding = ((0, 0),) * len(kernel) if auto == "VALID" else pads(node, len(kernel))
    up = auto != "VALID" and bool(node.get("ceil_mode", 0))
    count = tuple(positions(node, *along, up) for along in zip(cells, padding, reach, stride))
    return Windows(kernel, stride, dilation, padding, count)


def steps(node: Any, kernel: Shape) -> tuple[Shape, Shape]:
    """Strides and dilations, one for each axis of the kernel."""
    found = []
    for name in ("strides", "dilations"):
        given = tuple(node.get(name) or (1,) * len(kernel))
        if len(given) != len(kernel) or any(n < 1 for n in given):
            node.refuse(f"{name} {given}: expected {len(kernel)} numbers of at least 1")
        found.append(given)
    return found[0], found[1]


def pads(node: Any, rank: int) -> Pairs:
    """Cells before and after each axis, from begins and ends in a row."""
    given = tuple(node.get("pads") or (0,) * 2 * rank)
    if len(given) != 2 * rank:
        node.refuse(f"pads {given}: expected {2 * rank} numbers")
    return tuple(zip(given[:rank], given[rank:]))


def halves(total: int, auto: str) -> tuple[int, int]:
    """Padding before and after; the odd cell is where the mode says."""
    less, more = total // 2, total - total // 2
    return (more, less) if auto == "SAME_LOWER" else (less, more)


def positions(node: Any, cells: int, padding: tuple[int, int], reach: int, stride: int, up: bool) -> int:
    """Windows along an axis; `up` keeps a last one that is not full if it starts before the far padding."""
    room = cells + sum(padding) - reach
    count = (room + (stride - 1 if up else 0)) // stride + 1
    if up and (count - 1) * stride >= cells + padding[0]:
        count -= 1
    if count < 1:
        node.refuse(f"a window of {reach} cells does not fit an axis of {cells} padded by {padding}")
    return count
