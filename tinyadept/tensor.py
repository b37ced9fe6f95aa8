"""A tensor is a buffer on a backend, a view that reads it, and the step that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import device as devices
from . import dtypes
from .view import Shape, View

if TYPE_CHECKING:  # at run time operators.py fills the methods in, so that imports point one way
    from .operators import Operators
else:
    Operators = object


class Buffer:
    """Memory of one backend, shared by every view of it.

    Attributes
    ----------
    data : object
        What the backend keeps: an ndarray on the reference, a place in an arena on Vulkan.
    version : int
        How often it was written in place.
    recorded : int
        The version that the last write *on the tape* made: views taken before it no longer know their own
        history.
    """

    __slots__ = ("__weakref__", "data", "recorded", "version")

    def __init__(self, data: Any):
        self.data = data
        self.version = 0
        self.recorded = 0


class Tensor(Operators):
    """A multi-dimensional array that remembers how it was computed.

    Parameters
    ----------
    data : array_like or Tensor
        Copied. NumPy views keep their values whatever their strides.
    dtype : dtype, optional
        By default that of a tensor; float64 arrays and Python floats become float32, Python ints and NumPy's
        default ints int32.
    device : str, optional
        ``"numpy"``, ``"vulkan"``, ``"vulkan:1"``; by default what TINYADEPT_DEVICE says.
    requires_grad : bool
        Whether `backward` shall leave a gradient in ``.grad``. Floating point only.

    Raises
    ------
    TypeError
        If the data are not numbers, or a gradient is asked of integers.
    ValueError
        If nested lists are ragged.
    OverflowError
        If an int does not fit the dtype.
    """

    __slots__ = (
        "__weakref__",
        "backend",
        "buffer",
        "dtype",
        "grad",
        "hooks",
        "layout",
        "requires_grad",
        "step",
        "version",
    )
    __array_ufunc__ = None  # NumPy leaves array + tensor to the tensor
    __hash__ = object.__hash__

    buffer: Buffer
    layout: View
    dtype: np.dtype
    backend: Any
    grad: Tensor | None
    requires_grad: bool
    step: Any
    hooks: list | None
    version: int

    def __init__(self, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False):
        if isinstance(data, Tensor):
            device, dtype = device or data.backend, dtype or data.dtype
            data = data.detach().numpy()
        array = as_array(data, dtype)
        backend = devices.resolve(device)
        fill_in(self, backend.upload(array), View.dense(array.shape), array.dtype, backend)
        if requires_grad:
            self.requires_grad_()

    @property
    def shape(self) -> Shape:
        """Length of each axis."""
        return self.layout.shape

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.layout.shape)

    @property
    def device(self) -> str:
        """Name of the device that holds the values."""
        return self.backend.name

    @property
    def is_leaf(self) -> bool:
        """Whether no recorded step made this tensor, so that `backward` may leave a gradient here."""
        return self.step is None

    @property
    def is_floating_point(self) -> bool:
        return self.dtype in dtypes.FLOATS

    def numel(self) -> int:
        """Number of elements."""
        return self.layout.size

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Ask for a gradient, or stop asking; returns the tensor itself.

        Raises
        ------
        TypeError
            If the elements are not floating point.
        ValueError
            If the tensor was computed from others that need gradients (``detach()`` makes one that was not).
        """
        if requires_grad and not self.is_floating_point:
            raise TypeError(f"only floating-point tensors have gradients, and this one is {self.dtype.name}")
        if not requires_grad and self.step is not None:
            raise ValueError(
                "this tensor was made by a recorded step; use .detach() for one that needs no gradient"
            )
        self.requires_grad = requires_grad
        return self

    def detach(self) -> Tensor:
        """The same memory without the history."""
        return wrap(self.buffer, self.layout, self.dtype, self.backend)

    def numpy(self) -> np.ndarray:
        """The values as an ndarray: the same memory on the reference, a copy from other devices.

        It is read-only where the tape may rely on the values, that is where `requires_grad` is true.
        """
        array = self.backend.download(self)
        if self.requires_grad:
            array = array.view()
            array.flags.writeable = False
        return array

    def item(self) -> Any:
        """The only element as a Python number.

        Raises
        ------
        ValueError
            If there is not exactly one element.
        """
        if self.layout.size != 1:
            raise ValueError(f"item() takes a tensor of one element, and this one has shape {self.shape}")
        return self.backend.download(self).item()

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        return self.backend.download(self).tolist()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        array = self.numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"{self.dtype.name} cannot become {np.dtype(dtype).name} without a copy")
            return array.astype(dtype)
        return array.copy() if copy else array

    def __dlpack__(self, **options: Any) -> Any:
        if self.requires_grad:
            raise BufferError("this tensor needs gradients, which DLPack cannot carry: export x.detach()")
        return self.backend.download(self).__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.backend.download(self).__dlpack_device__()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d tensor has no length")
        return self.shape[0]

    def __bool__(self) -> bool:
        if self.layout.size != 1:
            raise ValueError(
                f"the truth of a tensor of shape {self.shape} is ambiguous: use .any() or .all()"
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.is_floating_point:
            raise TypeError(f"a {self.dtype.name} tensor is no index")
        return int(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.layout.size == 1 else repr(self)

    def __repr__(self) -> str:
        values = np.array2string(
            self.backend.download(self), separator=", ", precision=4, prefix="tensor(", threshold=200
        )
        notes = [values]
        if self.layout.size == 0:
            notes.append(f"shape={self.shape}")
        if self.dtype not in (dtypes.float32, dtypes.int32, dtypes.bool_):
            notes.append(f"dtype={self.dtype.name}")
        notes.append(f"device={self.device}")
        if self.step is not None:
            notes.append(f"made_by={self.step.op.name}")
        elif self.requires_grad:
            notes.append("requires_grad=True")
        return f"tensor({', '.join(notes)})"

    def __deepcopy__(self, memo: dict) -> Tensor:
        if self.step is not None:
            raise ValueError("only leaf tensors can be deep-copied; use .detach().clone() of this one")
        twin = object.__new__(type(self))
        array = self.backend.download(self)
        fill_in(twin, self.backend.upload(np.array(array)), View.dense(self.shape), self.dtype, self.backend)
        twin.requires_grad = self.requires_grad
        memo[id(self)] = twin
        return twin

    def __reduce__(self):
        raise TypeError("tensors are not pickled: use tinyadept.save, which writes safetensors")


def fill_in(tensor: Tensor, buffer: Buffer, view: View, dtype: np.dtype, backend: Any) -> None:
    tensor.buffer = buffer
    tensor.layout = view
    tensor.dtype = dtype
    tensor.backend = backend
    tensor.version = buffer.version
    tensor.requires_grad = False
    tensor.step = tensor.grad = tensor.hooks = None


def wrap(buffer: Buffer, view: View, dtype: np.dtype, backend: Any) -> Tensor:
    """A tensor around memory that exists already."""
    tensor = object.__new__(Tensor)
    fill_in(tensor, buffer, view, dtype, backend)
    return tensor


def as_array(data: Any, dtype: Any = None) -> np.ndarray:
    """A fresh, dense ndarray of one of the six dtypes; see `Tensor` for the rules and errors."""
    if isinstance(data, (list, tuple)):
        data = unwrap(data)
    array = np.asarray(data)
    if dtype is not None:
        wanted = dtypes.as_dtype(dtype)
        if wanted in dtypes.INTEGERS and array.dtype.kind in "iu":
            check_range(array, wanted)
    elif array.dtype in (dtypes.float32, dtypes.int32, dtypes.uint8, dtypes.bool_):
        wanted = array.dtype
    elif array.dtype.kind == "f" or array.size == 0:
        wanted = dtypes.float32
    elif array.dtype.kind in "iu":
        wanted = dtypes.int32
        check_range(array, wanted)
    else:
        raise TypeError(f"cannot make a tensor of {array.dtype} data: expected numbers or booleans")
    if array.dtype.kind not in "biuf":
        raise TypeError(f"cannot make a tensor of {array.dtype} data: expected numbers or booleans")
    return np.array(array, dtype=wanted, order="C")


def unwrap(data: Any) -> Any:
    """Nested lists with their tensors replaced by arrays."""
    if isinstance(data, (list, tuple)):
        return [unwrap(entry) for entry in data]
    return data.detach().numpy() if isinstance(data, Tensor) else data


def check_range(array: np.ndarray, dtype: np.dtype) -> None:
    bounds = np.iinfo(dtype)
    if array.size and (array.min() < bounds.min or array.max() > bounds.max):
        worst = array.max() if array.max() > bounds.max else array.min()
        raise OverflowError(f"{worst} does not fit {dtype.name}; ask for dtype=int64 by name, or for a float")


def tensor(data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """Copy data into a new tensor; parameters and errors as in `Tensor`."""
    return Tensor(data, dtype, device, requires_grad)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor on the reference that shares the array's memory, dtype and strides.

    Raises
    ------
    TypeError
        If it is no ndarray, or of another dtype than the six.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"from_numpy takes an ndarray, got {type(array).__name__}; tensor() takes anything array-like"
        )
    if not array.dtype.isnative or not array.flags.aligned:
        raise ValueError(
            f"the byte order of {array.dtype} or its alignment is foreign: pass array.copy(), or astype"
        )
    dtype, backend = dtypes.as_dtype(array.dtype), devices.resolve("numpy")
    steps, odd = (
        zip(*(divmod(s, array.itemsize) for s in array.strides), strict=True) if array.ndim else ((), ())
    )
    if any(odd):
        raise ValueError(
            f"strides {array.strides} are no multiples of {array.itemsize} bytes: pass array.copy()"
        )
    if array.size == 0:
        return wrap(Buffer(np.empty(0, dtype)), View(array.shape, tuple(steps)), dtype, backend)
    low, high = View(array.shape, tuple(steps)).span
    corner = array[tuple(slice(-1, None) if s < 0 else slice(0, 1) for s in steps)]
    flat = np.lib.stride_tricks.as_strided(
        corner, (high - low,), (array.itemsize,), writeable=array.flags.writeable
    )
    return wrap(Buffer(flat), View(array.shape, tuple(steps), -low), dtype, backend)


def from_dlpack(source: Any) -> Tensor:
    """A tensor on the reference that shares the memory of another library's CPU tensor (DLPack)."""
    return from_numpy(np.from_dlpack(source))
