"""NumPy and DLPack in both directions, copies and conversions, and what tensors look like."""

import copy
import pickle

import numpy as np
import pytest

import tinyadept as ta


def test_from_numpy_shares_memory_both_ways():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    x = ta.from_numpy(a)
    a[0, 0] = 9
    assert x[0, 0].item() == 9
    x[1] = 5
    assert (a[1] == 5).all()
    assert np.shares_memory(x.numpy(), a) and np.shares_memory(np.asarray(x), a)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int32", "int64", "float32", "float64"])
def test_from_numpy_keeps_the_dtype(dtype):
    assert ta.from_numpy(np.zeros(3, dtype)).dtype == np.dtype(dtype)


def test_from_numpy_refuses_what_it_cannot_share():
    with pytest.raises(TypeError, match="float16"):
        ta.from_numpy(np.zeros(3, np.float16))
    with pytest.raises(TypeError, match="ndarray, got list"):
        ta.from_numpy([1, 2])
    with pytest.raises(ValueError, match="byte order"):
        ta.from_numpy(np.zeros(3, ">f4"))
    fields = np.zeros(4, [("a", "u1"), ("b", "f4")])["b"]  # strides of 5 bytes
    with pytest.raises(ValueError, match=r"strides|alignment"):
        ta.from_numpy(fields)


def test_read_only_memory_stays_read_only():
    a = np.zeros(3, np.float32)
    a.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        ta.from_numpy(a)[0] = 1


def test_tensor_copies():
    a = np.zeros(3, np.float32)
    x = ta.tensor(a)
    a[:] = 7
    assert x.tolist() == [0, 0, 0]
    y = ta.tensor(x)
    x[0] = 1
    assert y.tolist() == [0, 0, 0]
    assert ta.tensor(ta.tensor([1.0], dtype=ta.float64)).dtype == ta.float64


def test_numpy_of_a_recorded_tensor_cannot_be_written():
    x = ta.tensor([1.0], requires_grad=True)
    with pytest.raises(ValueError, match="read-only"):
        x.numpy()[0] = 2
    with pytest.raises(ValueError, match="read-only"):
        (x * 2).numpy()[0] = 2
    x.detach().numpy()[0] = 3
    assert x.item() == 3


def test_array_protocol():
    x = ta.tensor([[1.0, 2.0]])
    assert np.asarray(x, dtype=np.float64).dtype == np.float64
    assert not np.shares_memory(np.array(x), x.numpy())
    assert np.sum(np.asarray(x)) == 3
    with pytest.raises(ValueError, match="without a copy"):
        x.__array__(np.float64, copy=False)


def test_arrays_beside_tensors():
    x, a = ta.tensor([1.0, 2.0]), np.array([10.0, 20.0], np.float32)
    for y in (x + a, a + x, a * x / a + a):
        assert isinstance(y, ta.Tensor)
    assert (a - x).tolist() == [9, 18] and (a @ x).item() == 50


def test_dlpack_round_trip():
    a = np.arange(4, dtype=np.float32)
    assert np.shares_memory(a, ta.from_dlpack(a).numpy())
    x = ta.tensor(a)
    back = np.from_dlpack(x)
    assert np.shares_memory(x.numpy(), back) and back.tolist() == [0, 1, 2, 3]
    with pytest.raises(BufferError, match="detach"):
        np.from_dlpack(ta.tensor([1.0], requires_grad=True))


def test_dlpack_with_torch():
    torch = pytest.importorskip("torch")
    x = torch.from_dlpack(ta.tensor([[1.0, 2.0], [3.0, 4.0]]).T)
    assert x.tolist() == [[1, 3], [2, 4]]
    assert ta.from_dlpack(torch.arange(3, dtype=torch.int32)).tolist() == [0, 1, 2]


def test_repr_tells_dtype_device_and_maker():
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    assert repr(x) == "tensor([1., 2.], device=numpy, requires_grad=True)"
    assert repr(x * 2) == "tensor([2., 4.], device=numpy, made_by=mul)"
    assert repr(ta.tensor([1], dtype=ta.int64)) == "tensor([1], dtype=int64, device=numpy)"
    assert repr(ta.zeros(0, 3)) == "tensor([], shape=(0, 3), device=numpy)"
    assert len(repr(ta.zeros(100, 100))) < 1000


def test_copies_of_leaves_and_no_pickles():
    x = ta.tensor([[1.0, 2.0]], requires_grad=True).requires_grad_()
    twin = copy.deepcopy({"x": x})["x"]
    assert twin.requires_grad and twin.tolist() == x.tolist() and twin.buffer is not x.buffer
    with pytest.raises(ValueError, match="leaf"):
        copy.deepcopy(x * 2)
    with pytest.raises(TypeError, match="safetensors"):
        pickle.dumps(x)


def test_to_converts_and_keeps():
    x = ta.tensor([1.7, -1.7])
    assert x.to(ta.int32).tolist() == [1, -1] and x.to("int32").dtype == ta.int32
    assert x.to("numpy") is x and x.to(ta.float32) is x
    assert x.to(ta.tensor([1])).dtype == ta.int32
    assert x.double().dtype == ta.float64 and x.bool().tolist() == [True, True]
    y = ta.tensor([1.0], requires_grad=True)
    y.double().sum().backward()
    assert y.grad.dtype == ta.float32


def test_moving_between_devices_is_differentiable():
    from tinyadept.backends.reference import Reference

    other = Reference()
    x = ta.tensor([1.0, 2.0], requires_grad=True)
    y = x.T.to(other) * 3
    assert y.backend is other
    y.sum().backward()
    assert x.grad.tolist() == [3, 3] and x.grad.backend is x.backend
    with pytest.raises(ValueError, match="move one with"):
        y + x
