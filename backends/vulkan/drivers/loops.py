"""How long a lane may loop.

llvmpipe ends every loop of an invocation once all its loops together took 65,535 turns (Mesa's
LP_MAX_TGSI_LOOP_ITERATIONS), and says nothing: what the lane had left to do is not done. So work for a CPU is
spread over as many workgroups as that takes, and loops that may be longer are cut into several dispatches.
"""

from __future__ import annotations

from typing import Any

TURNS = 60_000
MOST_GROUPS = 1 << 15


def grid(gpu: Any, count: int, inner: int = 2) -> tuple[int, int, int]:
    """Workgroups for ``EACH`` over `count` elements, where each takes `inner` turns of loops."""
    groups = gpu.grid(count)[0]
    if gpu.device.is_cpu:
        while groups < MOST_GROUPS and turns(count, groups * gpu.local, inner) > TURNS:
            groups *= 2
    return (groups, 1, 1)


def turns(count: int, lanes: int, inner: int) -> int:
    """How many turns the busiest of so many lanes takes."""
    return -(-count // lanes) * (inner + 1)


def longest(gpu: Any, count: int, wanted: int) -> int:
    """The longest inner loop, up to `wanted` turns, for which there are workgroups enough."""
    if not gpu.device.is_cpu:
        return wanted
    return max(1, min(wanted, TURNS // -(-count // (MOST_GROUPS * gpu.local)) - 1))


def power_of_two(count: int, most: int) -> int:
    """The next power of two, `most` at most: few different ones, because each is a pipeline of its own."""
    return min(1 << max(0, count - 1).bit_length(), most)
