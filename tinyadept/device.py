"""Which backend a name means. Backends load when asked for; the reference needs NumPy alone."""

from __future__ import annotations

import importlib
import os
from typing import Any

backends: dict[str, Any] = {}  # the ones that have started


def resolve(device: Any = None) -> Any:
    """The backend called `device`.

    Parameters
    ----------
    device : str or Backend, optional
        ``"numpy"``, ``"vulkan"`` or ``"vulkan:1"``; by default what the environment variable
        TINYADEPT_DEVICE says, else ``"numpy"``.

    Raises
    ------
    DeviceError
        If there is no such device, or it cannot start.
    """
    if device is not None and not isinstance(device, str):
        return device
    name = device or os.environ.get("TINYADEPT_DEVICE") or "numpy"
    if name not in backends:
        backends[name] = importlib.import_module("tinyadept.backends").start(name)
    return backends[name]
