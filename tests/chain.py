"""Small work for a device: words, and a chain of dispatches each of which needs what the last one wrote."""

import numpy as np

from tinyadept.backends.vulkan import queue
from tinyadept.backends.vulkan.arena import Block
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.queue import Bound
from tinyadept.view import View


def floats(backend: Vulkan, data) -> Block:
    """A block that holds these numbers."""
    block = backend.allocator.allocate(len(data))
    backend.transfer.write(block, np.asarray(data, np.float32))
    return block


def values(backend: Vulkan, block: Bound) -> np.ndarray:
    """What a block holds, after all that was noted has run."""
    return backend.transfer.read(block, View.dense((block.words,)), np.dtype(np.float32))


def link(backend: Vulkan, target: Bound, source: Bound, count: int, shift: int = 0, site: int = 0) -> None:
    """Note ``target[i] = source[count - 1 - i + shift] + 1``."""
    shader = backend.shaders.get("selftest", None, (backend.local,))
    push = queue.pack(count, target.offset, source.offset, site, shift)
    backend.queue.dispatch(shader, backend.grid(count), push, (target, source, backend.queue.reports))
