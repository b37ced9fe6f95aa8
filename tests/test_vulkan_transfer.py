"""Between host and Vulkan device: every bit, any view, several threads."""

import itertools
import threading

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept.backends.vulkan import transfer, walk
from tinyadept.view import View

GPU = vulkan()


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7), (1000, 3)])
def test_a_round_trip_keeps_every_bit(dtype, shape):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    got = ta.tensor(array, device="vulkan").numpy()
    assert got.dtype == array.dtype and got.shape == shape
    assert np.array_equal(got, array)


def test_nan_payloads_infinities_and_signed_zeros_survive():
    bits = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32)
    got = ta.tensor(bits.view(np.float32), device="vulkan").numpy()
    assert np.array_equal(got.view(np.uint32), bits)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_wide_dtypes_say_that_the_reference_has_them(dtype):
    with pytest.raises(ta.Unsupported, match=f"{dtype}.*vulkan.*reference"):
        ta.tensor(np.ones(3, dtype), dtype, device="vulkan")


VIEWS = {
    "permuted": lambda x: x.permute(2, 0, 1),
    "offset": lambda x: x[1:, 2:],
    "odd offset": lambda x: x[1, 1],
    "steps": lambda x: x[::2, ::3, 1::2],
    "reversed": lambda x: x[::-1, :, ::-1],
    "expanded": lambda x: x[:, :1].expand(4, 7, 5),
    "one element": lambda x: x[2, 3, 4],
    "empty": lambda x: x[2:2],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("ring", [None, 16])
def test_a_view_is_read_through_its_strides(monkeypatch, name, ring):
    """Also when the ring is too small for it."""
    if ring is not None:
        small = transfer.Transfer(GPU.queue, GPU.shaders, GPU.local, GPU.grid, ring)
        monkeypatch.setattr(GPU, "transfer", small)
    array = np.arange(4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)
    view = VIEWS[name]
    if name == "expanded":
        expected = np.broadcast_to(array[:, :1], (4, 7, 5))
    else:
        expected = view(ta.tensor(array, device="numpy")).numpy()
    assert np.array_equal(view(ta.tensor(array, device="vulkan")).numpy(), expected)


def test_rank_is_free_while_axes_merge():
    array = np.arange(2**8, dtype=np.int32).reshape((2,) * 8)
    x = ta.tensor(array, device="vulkan")
    assert np.array_equal(x[::-1].numpy(), array[::-1])
    with pytest.raises(ta.Unsupported, match="axes"):
        x.permute(7, 6, 5, 4, 3, 2, 1, 0).numpy()


@given(st.data())
def test_a_walk_visits_the_cells_of_its_views(data):
    rank = data.draw(st.integers(0, 6))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    dense = View.dense(tuple(shape[a] for a in order)).permute(np.argsort(order).tolist())
    strides = tuple(0 if data.draw(st.booleans()) else s for s in dense.strides)
    path = walk.walk(shape, dense.strides, strides)

    def cells(shape, strides):
        return [sum(map(int.__mul__, i, strides)) for i in itertools.product(*map(range, shape))]

    assert path.rank == len(path.shape) <= max(1, rank)
    assert cells(path.shape, path.strides[0]) == cells(shape, dense.strides)
    assert cells(path.shape, path.strides[1]) == cells(shape, strides)
    words = np.frombuffer(path.push(7, 9), np.int32)
    assert words[0] == path.count and tuple(words[7 - path.rank : 7]) == path.shape
    assert words[7] == 7 and words[14] == 9 and tuple(words[21 - path.rank : 21]) == path.strides[1]


def test_uploads_from_several_threads_do_not_mix(monkeypatch):
    small = transfer.Transfer(GPU.queue, GPU.shaders, GPU.local, GPU.grid, 64)
    monkeypatch.setattr(GPU, "transfer", small)
    wrong = []

    def work(number):
        for size in range(1, 200, 7):
            array = np.full(size, number, np.int32)
            if not np.array_equal(ta.tensor(array, device="vulkan").numpy(), array):
                wrong.append((number, size))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
