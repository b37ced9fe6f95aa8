"""A Vulkan device all of whose memory the host sees: tests look at it, and write it without a kernel."""

import numpy as np

from tinyadept.backends.vulkan import probe
from tinyadept.backends.vulkan.arena import Block
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.driver import KomputeDriver


class MappedDriver(KomputeDriver):
    """Gives host-visible memory alone."""

    def allocate(self, size, host=False):
        return super().allocate(size, host=True)


def mapped(driver: type[MappedDriver] = MappedDriver) -> Vulkan:
    """A backend of its own in such memory."""
    device = probe.choose()
    return Vulkan("vulkan", device, driver(device))


def write(target: Block, values: np.ndarray) -> None:
    """What `Transfer.write` does, at once and with no kernel; for fresh blocks."""
    words = values.view(np.uint32) if values.itemsize == 4 else values
    target.memory.words[target.offset : target.offset + words.size] = words
