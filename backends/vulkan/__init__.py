"""The Vulkan backend: lazily queued compute shaders on any Vulkan device.

`probe` finds devices, `driver` is the seam to the library that drives Vulkan, `arena` hands out memory, `queue`
notes dispatches and places fences, `shaders` compiles, `transfer` copies, and `backend` makes a tinyadept backend
of them.
"""

from __future__ import annotations

from . import probe
from .backend import Vulkan

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
    return running[device.index]
