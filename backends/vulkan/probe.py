"""What Vulkan devices there are, asked of the loader itself: kp tells too little of them."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char, c_char_p, c_int32, c_uint8, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any

from tinyadept.errors import DeviceError

LOADER = "libvulkan.so.1"
TYPES = ("other", "integrated", "discrete", "virtual", "cpu")
PREFERENCE = ("discrete", "integrated", "virtual", "other", "cpu")
SUBGROUP_OPS = (
    "basic",
    "vote",
    "arithmetic",
    "ballot",
    "shuffle",
    "shuffle_relative",
    "clustered",
    "quad",
)
COMPUTE = 0x20  # VK_SHADER_STAGE_COMPUTE_BIT
DEVICE_LOCAL = 0x1  # VK_MEMORY_HEAP_DEVICE_LOCAL_BIT
# What kernels here rely on. Vulkan guarantees only 128 invocations and 4 bindings, but devices have more.
NEEDED = {
    "push_constants": 128,
    "workgroup_invocations": 256,
    "shared_memory": 16 << 10,
    "storage_bindings": 8,
}


@dataclass(frozen=True)
class Limits:
    """The limits of a device that kernels and the allocator keep to; sizes in bytes."""

    storage_range: int
    allocation: int
    shared_memory: int
    push_constants: int
    workgroup_invocations: int
    workgroup_size: tuple[int, int, int]
    workgroup_count: tuple[int, int, int]
    storage_bindings: int


@dataclass(frozen=True)
class Device:
    """A physical device, as the loader describes it.

    Attributes
    ----------
    index : int
        Its place in the loader's list: ``vulkan:<index>``.
    type : str
        ``"discrete"``, ``"integrated"``, ``"virtual"``, ``"cpu"`` or ``"other"``.
    driver, api_version : str
    limits : Limits
    subgroup_size : int
    subgroup_ops : frozenset of str
        Those that compute shaders may use.
    heaps : tuple of int
        Bytes of each heap in the device's own memory.
    extensions : frozenset of str
    """

    index: int
    name: str
    type: str
    driver: str
    api_version: str
    limits: Limits
    subgroup_size: int
    subgroup_ops: frozenset[str]
    heaps: tuple[int, ...]
    extensions: frozenset[str]

    @property
    def is_cpu(self) -> bool:
        """Whether a driver runs the shaders on the processor, which wants other kernels than a GPU."""
        return self.type == "cpu"

    @property
    def memory(self) -> int:
        """Bytes of the largest heap."""
        return max(self.heaps, default=0)

    def lacks(self) -> str:
        """Which limits are below what the kernels need; empty when none is."""
        return ", ".join(
            f"its limit {limit} is {getattr(self.limits, limit)}, and {least} is needed"
            for limit, least in NEEDED.items()
            if getattr(self.limits, limit) < least
        )

    def __str__(self) -> str:
        return f"{self.name} ({self.type}, Vulkan {self.api_version}, {self.driver})"


def devices() -> tuple[Device, ...]:
    """Every device of every driver that the loader finds, in its order.

    Raises
    ------
    DeviceError
        If there is no loader, or no instance can be made.
    """
    return tuple(describe(index) for index in range(len(physical_devices())))


def choose(index: int | None = None) -> Device:
    """The device of this index; without one the first of the best type, a GPU before a CPU.

    Raises
    ------
    DeviceError
        If there is no such device, or it lacks what the kernels need.
    """
    found = devices()
    if not found:
        raise DeviceError(
            f"no Vulkan device: {LOADER} is there, but found no driver; install the one of your GPU, "
            "or Mesa's software driver: apt-get install mesa-vulkan-drivers"
        )
    if index is None:
        device = min(found, key=lambda d: PREFERENCE.index(d.type))
    elif index < len(found):
        device = found[index]
    else:
        known = "; ".join(f"vulkan:{d.index} is {d}" for d in found)
        raise DeviceError(f"there is no device vulkan:{index}: {known}")
    if lacking := device.lacks():
        raise DeviceError(f"{device} cannot be used: {lacking}")
    return device


def available(index: int) -> int:
    """Bytes of the device's largest heap that this process may still take, as its driver estimates now."""
    device = devices()[index]
    if "VK_EXT_memory_budget" not in device.extensions:
        return device.memory
    budget = chain(MemoryProperties2, MemoryBudget)
    loader().vkGetPhysicalDeviceMemoryProperties2(physical_devices()[index], byref(budget.head))
    memory, found = budget.head.memory, budget.parts[0]
    heaps = [h for h in range(memory.heap_count) if memory.heaps[h].flags & DEVICE_LOCAL]
    return max(max(0, found.budget[h] - found.usage[h]) for h in heaps)


class Structure(ctypes.Structure):
    """A Vulkan struct that says its own type; `next` links the structs that extend it."""

    TYPE = 0


def extension(type_: int, *fields: tuple[str, Any]) -> type[Structure]:
    start = [("type", c_int32), ("next", c_void_p)]
    return type("Extension", (Structure,), {"TYPE": type_, "_fields_": start + list(fields)})


class RawLimits(ctypes.Structure):
    """VkPhysicalDeviceLimits, with the fields that nobody here reads left nameless."""

    _fields_ = [
        ("images", c_uint32 * 7),
        ("maxStorageBufferRange", c_uint32),
        ("maxPushConstantsSize", c_uint32),
        ("counts", c_uint32 * 2),
        ("granularity", c_uint64 * 2),
        ("descriptors", c_uint32 * 3),
        ("maxPerStageDescriptorStorageBuffers", c_uint32),
        ("graphics", c_uint32 * 34),
        ("maxComputeSharedMemorySize", c_uint32),
        ("maxComputeWorkGroupCount", c_uint32 * 3),
        ("maxComputeWorkGroupInvocations", c_uint32),
        ("maxComputeWorkGroupSize", c_uint32 * 3),
        ("rest", c_uint8 * (504 - 248)),
        ("alignment", c_uint64 * 0),
    ]


class RawProperties(ctypes.Structure):
    _fields_ = [
        ("apiVersion", c_uint32),
        ("driverVersion", c_uint32),
        ("ids", c_uint32 * 2),
        ("deviceType", c_uint32),
        ("deviceName", c_char * 256),
        ("uuid", c_uint8 * 16),
        ("limits", RawLimits),
        ("sparse", c_uint32 * 5),
    ]


class RawHeap(ctypes.Structure):
    _fields_ = [("size", c_uint64), ("flags", c_uint32)]


class RawMemory(ctypes.Structure):
    _fields_ = [
        ("type_count", c_uint32),
        ("types", c_uint32 * 64),
        ("heap_count", c_uint32),
        ("heaps", RawHeap * 16),
    ]


Properties2 = extension(1000059001, ("properties", RawProperties))
Subgroup = extension(
    1000094000, ("size", c_uint32), ("stages", c_uint32), ("ops", c_uint32), ("quad", c_uint32)
)
Maintenance3 = extension(1000168000, ("descriptors", c_uint32), ("maxMemoryAllocationSize", c_uint64))
DriverProperties = extension(
    1000196000, ("id", c_uint32), ("name", c_char * 256), ("info", c_char * 256), ("version", c_uint8 * 4)
)
MemoryProperties2 = extension(1000059006, ("memory", RawMemory))
MemoryBudget = extension(1000237000, ("budget", c_uint64 * 16), ("usage", c_uint64 * 16))


class ApplicationInfo(ctypes.Structure):
    _fields_ = [
        ("type", c_int32),
        ("next", c_void_p),
        ("name", c_char_p),
        ("version", c_uint32),
        ("engine", c_char_p),
        ("engine_version", c_uint32),
        ("api_version", c_uint32),
    ]


class InstanceCreateInfo(ctypes.Structure):
    _fields_ = [
        ("type", c_int32),
        ("next", c_void_p),
        ("flags", c_uint32),
        ("application", POINTER(ApplicationInfo)),
        ("layer_count", c_uint32),
        ("layers", c_void_p),
        ("extension_count", c_uint32),
        ("extensions", c_void_p),
    ]


class ExtensionProperties(ctypes.Structure):
    _fields_ = [("name", c_char * 256), ("version", c_uint32)]


@dataclass
class Chain:
    head: Any
    parts: list


def chain(head: type[Structure], *parts: type[Structure]) -> Chain:
    """A struct and those that extend it, linked by their `next` pointers."""
    linked = [struct(type=struct.TYPE) for struct in (head, *parts)]
    for struct, following in pairwise(linked):
        struct.next = ctypes.addressof(following)
    return Chain(linked[0], linked[1:])


@cache
def loader() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LOADER)
    except OSError as error:
        raise DeviceError(
            f"no Vulkan loader: {LOADER} cannot be opened ({error}); apt-get install libvulkan1"
        ) from error
    if not hasattr(library, "vkGetPhysicalDeviceProperties2"):
        raise DeviceError(f"{LOADER} is older than Vulkan 1.1: install a newer one, package libvulkan1")
    return library


@cache
def instance() -> c_void_p:
    """One instance for all questions, kept: making one starts every driver."""
    application = ApplicationInfo(type=0, name=b"tinyadept", api_version=1 << 22 | 1 << 12)
    info = InstanceCreateInfo(type=1, application=ctypes.pointer(application))
    handle = c_void_p()
    result = loader().vkCreateInstance(byref(info), None, byref(handle))
    if result == -9:  # VK_ERROR_INCOMPATIBLE_DRIVER: what a loader without any driver says
        return c_void_p()
    if result:
        raise DeviceError(f"vkCreateInstance failed with VkResult {result}: a Vulkan driver is broken here")
    return handle


@cache
def physical_devices() -> tuple[c_void_p, ...]:
    if not instance():
        return ()
    count = c_uint32()
    loader().vkEnumeratePhysicalDevices(instance(), byref(count), None)
    handles = (c_void_p * count.value)()
    loader().vkEnumeratePhysicalDevices(instance(), byref(count), handles)
    return tuple(c_void_p(handle) for handle in handles[: count.value])


def extensions_of(handle: c_void_p) -> frozenset[str]:
    count = c_uint32()
    loader().vkEnumerateDeviceExtensionProperties(handle, None, byref(count), None)
    found = (ExtensionProperties * count.value)()
    loader().vkEnumerateDeviceExtensionProperties(handle, None, byref(count), found)
    return frozenset(entry.name.decode() for entry in found[: count.value])


def version_text(packed: int) -> str:
    return f"{packed >> 22 & 127}.{packed >> 12 & 1023}.{packed & 4095}"


@cache
def describe(index: int) -> Device:
    handle = physical_devices()[index]
    extensions = extensions_of(handle)
    asked = chain(Properties2, Subgroup, Maintenance3, DriverProperties)
    loader().vkGetPhysicalDeviceProperties2(handle, byref(asked.head))
    memory = chain(MemoryProperties2)
    loader().vkGetPhysicalDeviceMemoryProperties2(handle, byref(memory.head))
    raw, (subgroup, maintenance, driver) = asked.head.properties, asked.parts
    ops = subgroup.ops if subgroup.stages & COMPUTE else 0
    heaps = memory.head.memory.heaps[: memory.head.memory.heap_count]
    named = f"{driver.name.decode()} {driver.info.decode()}".strip()  # empty before Vulkan 1.2
    return Device(
        index=index,
        name=raw.deviceName.decode(),
        type=TYPES[raw.deviceType] if raw.deviceType < len(TYPES) else "other",
        driver=named or f"driver {raw.driverVersion:#x}",
        api_version=version_text(raw.apiVersion),
        limits=read_limits(raw.limits, maintenance.maxMemoryAllocationSize),
        subgroup_size=subgroup.size,
        subgroup_ops=frozenset(name for bit, name in enumerate(SUBGROUP_OPS) if ops >> bit & 1),
        heaps=tuple(heap.size for heap in heaps if heap.flags & DEVICE_LOCAL),
        extensions=extensions,
    )


def read_limits(raw: RawLimits, allocation: int) -> Limits:
    return Limits(
        storage_range=raw.maxStorageBufferRange,
        allocation=allocation,
        shared_memory=raw.maxComputeSharedMemorySize,
        push_constants=raw.maxPushConstantsSize,
        workgroup_invocations=raw.maxComputeWorkGroupInvocations,
        workgroup_size=tuple(raw.maxComputeWorkGroupSize),
        workgroup_count=tuple(raw.maxComputeWorkGroupCount),
        storage_bindings=raw.maxPerStageDescriptorStorageBuffers,
    )
