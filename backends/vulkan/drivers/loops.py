"""How long a lane may loop.

llvmpipe ends every loop of an invocation once all its loops together took 65,535 turns (Mesa's
LP_MAX_TGSI_LOOP_ITERATIONS), and says nothing: what the lane had left to do is not done. So work for a CPU is
spread over as many workgroups as that takes, and loops that may be longer are cut into several dispatches.
"""

from __future__ import annotations

import os
from typing import Any

GPU_AT_ONCE = 256  # workgroups that a large GPU runs side by side
TURNS = 50_000  # that a lane takes: a loop's last test is a turn, and so is a loop that a branch leaves out
MOST_GROUPS = 1 << 15
LONGEST = 1 << 12
ENDLESS = 1 << 30


def at_once(gpu: Any) -> int:
    """How many workgroups it takes to keep the device busy."""
    return 2 * len(os.sched_getaffinity(0)) if gpu.device.is_cpu else GPU_AT_ONCE


def grid(gpu: Any, count: int, inner: int = 2) -> tuple[int, int, int]:
    """Workgroups for ``EACH`` over `count` elements, where each takes `inner` turns of loops."""
    groups = gpu.grid(count)[0]
    if gpu.device.is_cpu:
        while groups < MOST_GROUPS and turns(count, groups * gpu.local, inner) > TURNS:
            groups *= 2
    return (groups, 1, 1)


def turns(count: int, lanes: int, inner: int) -> int:
    """How many turns the busiest of so many lanes takes."""
    return -(-count // lanes) * (inner + 2)


def longest(gpu: Any, count: int) -> int:
    """The longest inner loop, a power of two, for which there are workgroups enough."""
    if not gpu.device.is_cpu:
        return ENDLESS
    turns = min(LONGEST, TURNS // -(-count // (MOST_GROUPS * gpu.local)) - 2)
    return 1 << max(0, turns.bit_length() - 1)


def power_of_two(count: int, most: int) -> int:
    """The next power of two, `most` at most: few different ones, because each is a pipeline of its own."""
    return min(1 << max(0, count - 1).bit_length(), most)
