"""Joining, placing, creating and random numbers on Vulkan: the same bits as on the reference."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison
from tinyadept.ops import random as rows
from tinyadept.ops import registry
from tinyadept.ops.move import index
from tinyadept.ops.table import Move, apply, apply_into
from tinyadept.view import View

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()

FAMILIES = {"cat", "place", "create", "random", "advance"}
ROWS = [op for op in registry.values() if op.family.name in FAMILIES]


@pytest.fixture(params=["own", "lanes of 4"])
def gpu(request, monkeypatch):
    if request.param != "own":
        monkeypatch.setattr(GPU, "local", 4)
    return GPU


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@given(data=st.data())
def test_random_cases(op, data):
    case = data.draw(oracle.cases(op))
    truth = case.truth()
    with Poison(GPU.allocator, GPU.transfer) as poison:
        got = case.run(GPU)[0].numpy()
        poison.check()
    assert got.shape == truth.shape
    wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), f"{op.name} {case.params}: got {got[wrong][:3]}, truth {truth[wrong][:3]}"


def on(array, device):
    return ta.tensor(np.asarray(array), device=device)


def both(gpu, make):
    """The same tensor made on the device and on the reference."""
    got, expected = make(gpu).numpy(), make("numpy").numpy()
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_cat_of_views(dtype, axis, gpu):
    array = np.random.default_rng(0).integers(0, 256, (5, 6, 7)).astype(dtype)

    def make(device):
        x = on(array, device)
        pieces = (x[:3], x[::-2, :3, 1:], x.permute(1, 0, 2)[:5, :3, :3], x[1:2, :, :0])
        same = [tuple(min(p.shape[a] for p in pieces[:3]) for a in range(3) if a != axis)]
        shapes = [list(same[0]) for _ in pieces[:3]]
        for piece, shape in zip(pieces, shapes):
            shape.insert(axis, piece.shape[axis])
        cut = [p[tuple(slice(0, n) for n in shape)] for p, shape in zip(pieces, shapes)]
        return apply(registry["cat"], tuple(cut), {"axis": axis})

    both(gpu, make)


def test_special_values_are_moved_bit_for_bit(gpu):
    bits = np.array([0x7FC00001, 0x7F800000, 0x80000000, 0xFFC12345, 0x7F7FFFFF], np.uint32).view(np.float32)
    got = apply(registry["cat"], (on(bits, gpu), on(bits[::-1].copy(), gpu)), {"axis": 0}).numpy()
    np.testing.assert_array_equal(got.view(np.uint32), np.concatenate([bits, bits[::-1]]).view(np.uint32))


def test_place_and_assign(gpu):
    spot = Move(index.op, (("key", (slice(None, None, -2), 1, None, slice(1, 4))),))

    def place(device):
        value = on(np.arange(9, dtype=np.float32).reshape(3, 1, 3), device)
        return apply(registry["place"], (value,), {"shape": (5, 2, 6), "move": spot, "fill": -1.5})

    def assign(device):
        base = on(np.arange(60, dtype=np.float32).reshape(6, 2, 5), device).permute(2, 1, 0)
        return apply(registry["assign"], (base, on(np.ones((3, 1, 3), np.float32), device)), {"move": spot})

    both(gpu, place)
    both(gpu, assign)


def test_into_a_strided_view_of_another_dtype(gpu):
    def make(device):
        target = on(np.zeros((4, 6), np.float32), device)
        pieces = (on(np.array([[1, 2]], np.int32), device), on(np.array([[3, 4]], np.int32), device))
        apply_into(registry["cat"], target.mT[1:5:2, ::2], pieces, {"axis": 0})
        # The result reads the cells that it is written over, in another order.
        apply_into(registry["cat"], target[:2], (target[1:2], target[:1]), {"axis": 0})
        return target

    both(gpu, make)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_full(dtype, gpu):
    for value in (0, 1, True, 200):
        both(gpu, lambda device: ta.full((3, 5), value, dtype=dtype, device=device))  # noqa: B023
    both(gpu, lambda device: ta.full((), 1, dtype=dtype, device=device))
    both(gpu, lambda device: ta.full((0, 2), 1, dtype=dtype, device=device))
    if dtype == "float32":
        for value in (-0.0, float("nan"), float("inf"), 0.1):
            both(gpu, lambda device: ta.full((7,), value, dtype=dtype, device=device))  # noqa: B023


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_arange(dtype, gpu):
    ranges = [(0, 300, 1), (-7, 900, 3), (5, -40, -1), (2**31 - 9, 2**31 - 1, 2), (-(2**31), -(2**31) + 9, 1)]
    for start, end, step in ranges:
        both(gpu, lambda device: ta.arange(start, end, step, dtype=dtype, device=device))  # noqa: B023


@pytest.mark.parametrize("step", [0.1, 1 / 3, -0.7, 1e-9, 123456.789, 2.0**-24, 1e-30])
@pytest.mark.parametrize("start", [0.0, -5.0, 0.3, 16777216.0])
def test_arange_of_floats_is_rounded_once(start, step, gpu):
    def make(device):
        return apply(
            registry["arange"],
            (),
            {"shape": (100_000,), "start": start, "step": step, "dtype": np.dtype("float32")},
            ta.device.resolve(device),
        )

    both(gpu, make)


# --- random numbers -----------------------------------------------------------------------------------------

STATES = [(0, 0, 0, 0), (7, -1, -1, 5), (1 << 30, 3, -2, -1)]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("count", [1, 3, 4, 50_003])
def test_bits_and_uniforms_are_the_same_on_every_device(state, count, gpu):
    for name in ("random_bits", "uniform"):
        both(gpu, lambda device: draw(name, state, count, device))  # noqa: B023


def draw(name, state, count, device):
    return apply(registry[name], (on(np.array(state, np.int32), device),), {"shape": (count,)})


@pytest.mark.parametrize("state", STATES)
def test_normals_are_within_four_ulps(state, gpu):
    count = 100_000
    pairs = rows.words(np.array(state, np.int32), count).reshape(-1, 2) >> np.uint32(8)
    radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1.0) * 2.0**-24))
    angle = 2 * np.pi * (pairs[:, 1] * 2.0**-24)
    truth = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1).ravel()
    got = draw("normal", state, count, gpu).numpy()
    assert np.max(np.abs(got - truth) / np.spacing(np.abs(truth).astype(np.float32))) <= 4


def test_a_stream_goes_on_and_counts_in_64_bits(gpu):
    for counter in (0, 2**32 - 2, 2**64 - 1):
        generators = [ta.random.Generator(12, device) for device in (gpu, "numpy")]
        for generator in generators:
            generator.state.copy_(ta.random.words(12, counter))
        for count in (5, 1, 4, 1000):
            a, b = (
                ta.rand(count, generator=generator, device=generator.state.backend)
                for generator in generators
            )
            np.testing.assert_array_equal(a.numpy(), b.numpy())
        np.testing.assert_array_equal(*(generator.state.numpy() for generator in generators))


def test_the_counter_is_moved_on_the_device(monkeypatch):
    generator = ta.random.Generator(3, GPU)
    GPU.queue.flush()
    seen = []
    monkeypatch.setattr(GPU.queue, "observers", [lambda entries: seen.extend(filter(None, entries))])
    ta.rand(8, generator=generator, device=GPU)
    GPU.queue.flush()
    assert [entry.shader.name for entry in seen] == ["random", "random"]


def test_a_state_with_strides(gpu):
    words = np.arange(8, dtype=np.int32)
    for device in (gpu, "numpy"):
        on(words, device)
    both(gpu, lambda device: apply(registry["uniform"], (on(words, device)[::-2],), {"shape": (9,)}))
    both(gpu, lambda device: apply(registry["advance"], (on(words, device)[::-2],), {"blocks": 2**33 + 5}))


def test_views_are_dense_after_joining():
    x = apply(registry["cat"], (on(np.ones((2, 3), np.float32), GPU).mT,), {"axis": 0})
    assert x.layout == View.dense((3, 2))
