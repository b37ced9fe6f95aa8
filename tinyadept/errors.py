"""The exceptions for which Python has no word."""


class DeviceError(RuntimeError):
    """A device cannot start, was lost, or does not exist; the message says what to install or choose."""


class OutOfMemory(MemoryError):
    """A device has no room; the message tells the size asked for and what is in use."""


class Unsupported(NotImplementedError):
    """A device lacks an op or a dtype; the message names op, dtype and device."""
