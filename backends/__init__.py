"""Backends: how a device runs a family of ops. The reference needs NumPy alone."""

from __future__ import annotations

from typing import Any

from tinyadept.errors import DeviceError


def start(name: str) -> Any:
    """Start the backend of a device name.

    Raises
    ------
    DeviceError
        If there is no such device, or it cannot start; the message says what to install.
    """
    if name == "numpy":
        from .reference import Reference

        return Reference()
    kind, _, number = name.partition(":")
    if kind == "vulkan" and (not number or number.isdigit()):
        from . import vulkan

        return vulkan.start(name)
    raise DeviceError(f"there is no device {name!r}: expected 'numpy', 'vulkan' or 'vulkan:<number>'")


def devices() -> list[str]:
    """Names of the devices that can be used here, the reference first; no device is started."""
    from . import vulkan

    return ["numpy", *vulkan.names()]
