"""The Vulkan backend: lazily queued compute shaders on any Vulkan device.

`probe` finds devices, `driver` is the seam to the library that drives Vulkan, `arena` hands out memory,
`queue` notes dispatches and places fences where `hazards` finds overlaps, `shaders` compiles, `walk` packs
strided operands, `transfer` copies, and `backend` makes a tinyadept backend of them.
"""

from __future__ import annotations

import atexit

from tinyadept.errors import DeviceError

from . import probe
from .backend import Vulkan
from .driver import load_kp

running: dict[int, Vulkan] = {}  # one backend for each device, by the device's index


def start(name: str) -> Vulkan:
    """Start the backend called ``"vulkan"`` (the best device) or ``"vulkan:<index>"``.

    The two names of one device give the same backend.

    Raises
    ------
    DeviceError
        If there is no such device, or it cannot start; the message says what to install.
    """
    _, _, index = name.partition(":")
    device = probe.choose(int(index) if index else None)
    if device.index not in running:
        best = probe.choose().index
        called = "vulkan" if device.index == best else f"vulkan:{device.index}"
        running[device.index] = Vulkan(called, device)
        atexit.register(running[device.index].close)
    return running[device.index]


def names() -> list[str]:
    """``"vulkan:<index>"`` of every device that has what the kernels need; none where a part is missing."""
    try:
        load_kp()
        return [f"vulkan:{device.index}" for device in probe.devices() if not device.lacks()]
    except DeviceError:
        return []
