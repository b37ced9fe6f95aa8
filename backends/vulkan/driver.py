"""The seam: all that the backend asks of the library that drives Vulkan. Only this file imports kp.

A second driver has to offer `Driver` and nothing else; no kernel, queue or allocator would change.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from tinyadept.errors import DeviceError

from .probe import Device
from .shaders import without_unrolling

PUSH_LIMIT = 128  # bytes; what Vulkan guarantees
PAGE = 4096
KP = "kp 0.9.0"
NOTHING = np.zeros(0, np.uint32)


class Memory:
    """A buffer of the device.

    Attributes
    ----------
    size : int
        Bytes.
    base : int
        Address of its first byte. Every byte of every memory of a driver has an address of its own, so two
        ranges of addresses overlap only where the same bytes are meant.
    words : ndarray of uint32
        The contents, where the host can see them; else empty.
    native : object
        The driver's own handle.
    """

    __slots__ = ("base", "native", "size", "words")

    def __init__(self, base: int, size: int, native: Any, words: np.ndarray):
        self.base = base
        self.size = size
        self.native = native
        self.words = words

    def __repr__(self) -> str:
        kind = "host" if self.words.size else "device"
        return f"<{kind} memory of {self.size} bytes at {self.base:#x}>"


class Pipeline:
    """A shader with its constants, the number of workgroups and the memories it is bound to.

    Attributes
    ----------
    commands : dict
        The dispatches built so far, by their push constants.
    """

    __slots__ = ("commands", "native", "push_size")

    def __init__(self, native: Any, push_size: int):
        self.native = native
        self.push_size = push_size
        self.commands: dict[bytes, Any] = {}


class Driver(Protocol):
    """What the backend needs of a library that drives Vulkan."""

    device: Device
    fence: Any  # the command after which everything before it is done and visible

    def allocate(self, size: int, host: bool = False) -> Memory:
        """`size` bytes of the device's memory, or of memory that the host sees as well."""
        ...

    def free(self, memory: Memory) -> None:
        """Give memory back. No pipeline bound to it may be used again."""
        ...

    def pipeline(
        self,
        spirv: bytes,
        memories: Sequence[Memory],
        groups: tuple[int, int, int],
        constants: tuple[int, ...],
        push_size: int,
    ) -> Pipeline:
        """Build a shader for binding 0, 1, … and a number of workgroups; `push_size` in bytes."""
        ...

    def command(self, pipeline: Pipeline, push: bytes) -> Any:
        """One dispatch with these push constants, built once; equal ones are the same object."""
        ...

    def record(self, commands: Sequence[Any]) -> Any:
        """Write commands down for the device, in order."""
        ...

    def replay(self, recording: Any) -> None:
        """Run a recording and wait for it. Whether it ran is for the caller to check."""
        ...

    def close(self) -> None:
        """Release everything."""
        ...


class KomputeDriver:
    """`Driver` on Kompute's Python package.

    Kompute looks at no VkResult: an allocation that failed and a device that was lost both look like
    success. Limits and budgets are therefore checked before it is asked, and results afterwards.

    Raises
    ------
    DeviceError
        If kp is missing or broken, or does not see the device.
    """

    COMMANDS = 4096  # push constants remembered for each pipeline

    def __init__(self, device: Device):
        self.device = device
        self.kp = load_kp()
        try:
            self.manager = self.kp.Manager(device.index)
        except RuntimeError as error:
            raise DeviceError(f"{device.name} cannot start: {error}") from error
        if (name := self.manager.get_device_properties()["device_name"]) != device.name:
            raise DeviceError(f"vulkan:{device.index} is {device.name}, but {KP} sees {name}")
        self.next_base = PAGE
        self.check_arrays()
        # The only barrier between dispatches that kp can record: the copy of a word waits for all compute
        # before it, and the next dispatch for the copy.
        word = self.manager.tensor_t(np.zeros(1, np.uint32), self.kp.TensorTypes.device)
        self.fence = self.kp.OpTensorSyncLocal([word])

    def check_arrays(self) -> None:
        """Built against a pybind11 older than NumPy 2, kp makes arrays whose stride is 0."""
        words = self.allocate(5 * 4, host=True).words
        words[:] = np.arange(5)
        if words.strides != (4,) or words.tolist() != [0, 1, 2, 3, 4]:
            raise DeviceError(f"{KP} was built for an older NumPy: build it again with scripts/vulkan.sh")

    def allocate(self, size: int, host: bool = False) -> Memory:
        if not 0 < size < 2**32:
            raise ValueError(f"kp allocates 1 to 2**32 - 1 bytes at a time, got {size}")
        kind = self.kp.TensorTypes.host if host else self.kp.TensorTypes.storage
        native = self.manager.tensor_t(np.empty(-(-size // 4), np.uint32), kind)
        memory = Memory(self.next_base, size, native, native.data() if host else NOTHING)
        self.next_base += -(-size // PAGE) * PAGE + PAGE
        return memory

    def free(self, memory: Memory) -> None:
        memory.words = NOTHING
        memory.native.destroy()

    def pipeline(
        self,
        spirv: bytes,
        memories: Sequence[Memory],
        groups: tuple[int, int, int],
        constants: tuple[int, ...],
        push_size: int,
    ) -> Pipeline:
        if push_size > PUSH_LIMIT or push_size % 4:
            raise ValueError(f"push constants take whole words, {PUSH_LIMIT} bytes at most; got {push_size}")
        if self.device.driver.startswith("SwiftShader"):
            # Told to unroll, it miscompiles some loops (softmax over fours), and others take it gigabytes.
            spirv = without_unrolling(spirv)
        native = self.manager.algorithm(
            [memory.native for memory in memories],
            spirv,
            groups,
            np.array(constants, np.uint32),
            np.zeros(push_size // 4, np.uint32),
        )
        return Pipeline(native, push_size)

    def command(self, pipeline: Pipeline, push: bytes) -> Any:
        found = pipeline.commands.get(push)
        if found is None:
            if len(push) != pipeline.push_size:
                raise ValueError(f"expected {pipeline.push_size} bytes of push constants, got {len(push)}")
            if len(pipeline.commands) >= self.COMMANDS:
                pipeline.commands.clear()
            # kp turns lists into floats, so that 5 becomes 0x40A00000; arrays of uint32 pass as they are
            found = self.kp.OpAlgoDispatch(pipeline.native, np.frombuffer(push, np.uint32))
            pipeline.commands[push] = found
        return found

    def record(self, commands: Sequence[Any]) -> Any:
        recording = self.manager.sequence()
        record = recording.record
        for command in commands:
            record(command)
        return recording

    def replay(self, recording: Any) -> None:
        recording.eval()

    def close(self) -> None:
        self.manager.destroy()


def load_kp() -> Any:
    """Import kp without letting it set up the program's logging, as it otherwise does."""
    root = logging.getLogger()
    placeholder = logging.NullHandler()
    root.addHandler(placeholder)
    try:
        import kp  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise DeviceError(
            f"{KP} cannot be imported ({error}): build and install it with scripts/vulkan.sh"
        ) from error
    finally:
        root.removeHandler(placeholder)
    return kp
