"""What devices there are and whether they work: ``python -m tinyadept.backends``."""

from __future__ import annotations

import sys
from dataclasses import fields

import numpy as np

from tinyadept.errors import DeviceError

from . import start
from .vulkan import probe
from .vulkan.driver import KP, load_kp
from .vulkan.shaders import find_compiler


def main() -> int:
    """Print the report; 1 when no Vulkan device works."""
    print(f"numpy: NumPy {np.__version__}, the reference")
    for what, find in (
        ("kp", lambda: f"{KP}, {load_kp().__file__}"),
        ("shader compiler", lambda: f"{find_compiler().path}, {find_compiler().version.splitlines()[0]}"),
    ):
        print(f"{what}: {attempt(find)}")
    try:
        devices = [probe.choose(device.index) for device in probe.devices()] or [probe.choose()]
    except DeviceError as error:
        print(f"vulkan: {error}")
        return 1
    return 0 if sum(report(device) for device in devices) else 1


def report(device: probe.Device) -> bool:
    """Describe one device and start it, which runs its self-test."""
    print(f"vulkan:{device.index}: {device}")
    for field in fields(device.limits):
        print(f"    {field.name:22} {getattr(device.limits, field.name)}")
    print(f"    {'memory heaps':22} {', '.join(map(str, device.heaps))}")
    print(f"    {'subgroup':22} {device.subgroup_size}: {', '.join(sorted(device.subgroup_ops))}")
    outcome = attempt(lambda: start(f"vulkan:{device.index}") and "passed")
    print(f"    {'self-test':22} {outcome}")
    return outcome == "passed"


def attempt(action) -> str:
    try:
        return action()
    except (DeviceError, RuntimeError) as error:
        return f"failed: {error}"


if __name__ == "__main__":
    sys.exit(main())
