"""Indexing and sorting on Vulkan: against the definitions, on both bodies, with odd group sizes."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison
from tinyadept.ops import registry
from tinyadept.ops.table import apply, apply_into
from tinyadept.tensor import wrap

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()

FAMILIES = {
    "take",
    "take_along",
    "put",
    "put_along",
    "put_add",
    "put_along_add",
    "in_range",
    "nonzero",
    "sort",
}
ROWS = [op for op in registry.values() if op.family.name in FAMILIES]
DTYPES = ("float32", "int32", "uint8", "bool")


def run(name, arrays, device, **params):
    inputs = tuple(ta.tensor(a, dtype=np.asarray(a).dtype, device=device) for a in arrays)
    out = apply(registry[name], inputs, params)
    if (
        device is GPU and out.dtype.itemsize == 1
    ):  # a word each, and what the dtype cannot hold must not be there
        words = wrap(out.buffer, out.layout, ta.int32, GPU).numpy()
        assert words.min(initial=0) >= 0 and words.max(initial=0) <= (255 if out.dtype == ta.uint8 else 1)
    return out.numpy()


def agrees(name, arrays, gpu, **params):
    got, expected = run(name, arrays, gpu, **params), run(name, arrays, "numpy", **params)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def noise(rng, shape, dtype="float32"):
    if dtype == "float32":
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0, 2 if dtype == "bool" else 250, shape).astype(dtype)


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@given(data=st.data())
def test_every_row_is_its_definition(gpu, op, data):
    case = data.draw(oracle.cases(op))
    truth = case.truth()
    with Poison(gpu.allocator, gpu.transfer) as poison:
        got = case.run(gpu)[0].detach().numpy()
        poison.check()
    assert got.shape == truth.shape
    wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), f"{case.params}, {[x.view for x in case.inputs]}: got {got}, truth {truth}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["int32", "uint8"])
def test_dtypes_of_values_and_of_indices(gpu, dtype, kind):
    rng = np.random.default_rng(0)
    x, index = noise(rng, (5, 7, 3), dtype), rng.integers(0, 5, (2, 6)).astype(kind)
    agrees("take", (x, index), gpu, axis=0)
    agrees("take_along", (x, rng.integers(0, 7, (4, 9, 3)).astype(kind)), gpu, axis=1)
    values = noise(rng, (2, 6, 3), dtype)
    agrees("put", (noise(rng, (5, 3), dtype), index, values), gpu, axis=0)
    along = rng.integers(0, 3, (5, 4)).astype(kind)
    agrees("put_along", (noise(rng, (5, 3), dtype), along, noise(rng, (5, 4), dtype)), gpu, axis=1)
    if dtype != "float32":  # whose sums need not agree to the bit
        agrees("put_add", (values, index), gpu, axis=0, size=6)
        agrees("put_along_add", (noise(rng, (5, 4), dtype), along), gpu, axis=1, shape=(6, 3))


@pytest.mark.parametrize("count", [2, 40, 50_000])
def test_of_duplicates_the_last_wins(gpu, count):
    rng = np.random.default_rng(count)
    index = rng.integers(0, 5, count).astype(np.int32)
    agrees("put", (np.zeros((3, 5, 2), np.float32), index, noise(rng, (3, count, 2))), gpu, axis=1)
    along = rng.integers(0, 5, (3, count)).astype(np.int32)
    agrees("put_along", (np.zeros((4, 5), np.float32), along, noise(rng, (3, count))), gpu, axis=1)


def test_sums_are_compensated_and_the_same_every_time(gpu):
    big = np.array([2**24, *[1] * 64, -(2**24)], np.float32)
    assert run("put_add", (big, np.zeros(66, np.int32)), gpu, axis=0, size=3).tolist() == [64, 0, 0]
    rng = np.random.default_rng(1)
    values, index = noise(rng, (2000, 3)), rng.integers(0, 50, 2000).astype(np.int32)
    first = run("put_add", (values, index), gpu, axis=0, size=50)
    for _ in range(3):
        np.testing.assert_array_equal(run("put_add", (values, index), gpu, axis=0, size=50), first)
    exact = np.zeros((50, 3))
    np.add.at(exact, index, values.astype(np.float64))
    np.testing.assert_allclose(first, exact, rtol=2e-7, atol=1e-7)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_runs_longer_than_a_lane_can_loop(gpu, dtype):
    """llvmpipe ends the loops of an invocation after 65,535 turns."""
    count = 200_001
    index = np.where(np.arange(count) % 10, 1, 2).astype(np.int32)
    got = run("put_add", (np.ones(count, dtype), index), gpu, axis=0, size=4)
    assert got.tolist() == [0, 180_000, 20_001, 0]
    tenths = run(
        "put_along_add",
        (np.full((2, count), 0.1, np.float32), np.stack([index] * 2)),
        gpu,
        axis=1,
        shape=(2, 3),
    )
    np.testing.assert_allclose(
        tenths, np.float32(0.1) * np.array([[0, 180_000, 20_001]] * 2, float), rtol=1e-7
    )


def test_infinite_and_undefined_sums(gpu):
    values = np.array([np.inf, 1, 2, -np.inf, np.inf, np.nan, 3], np.float32)
    index = np.array([0, 0, 1, 2, 2, 3, 3], np.int32)
    got = run("put_add", (values, index), gpu, axis=0, size=4)
    np.testing.assert_array_equal(got, [np.inf, 2, np.nan, np.nan])


ZEROS = [
    ("take", [(0, 3), (0,)], {"axis": 0}),
    ("take", [(4, 0), (2,)], {"axis": 0}),
    ("take", [(4, 3), (0, 2)], {"axis": 1}),
    ("take", [(), (3,)], {"axis": 0}),
    ("take", [(3,), ()], {"axis": 0}),
    ("take_along", [(0, 3), (0, 3)], {"axis": 0}),
    ("take_along", [(), ()], {"axis": 0}),
    ("put", [(4, 0), (2,), (2, 0)], {"axis": 0}),
    ("put", [(4, 3), (0,), (0, 3)], {"axis": 0}),
    ("put", [(4,), (), ()], {"axis": 0}),
    ("put_along", [(), (), ()], {"axis": 0}),
    ("put_along", [(4, 3), (0, 3), (0, 3)], {"axis": 0}),
    ("put_add", [(0, 3), (0,)], {"axis": 0, "size": 2}),
    ("put_add", [(2, 0), (2,)], {"axis": 0, "size": 2}),
    ("put_add", [(3,), ()], {"axis": 0, "size": 2}),
    ("put_along_add", [(), ()], {"axis": 0, "shape": ()}),
    ("put_along_add", [(0, 3), (0, 3)], {"axis": 0, "shape": (2, 3)}),
    ("argsort", [(0,)], {"axis": 0, "descending": False}),
    ("argsort", [()], {"axis": 0, "descending": True}),
    ("argsort", [(3, 0)], {"axis": 0, "descending": False}),
    ("nonzero", [(0, 3)], {"count": 0}),
    ("in_range", [()], {"size": 1}),
]


@pytest.mark.parametrize(("name", "shapes", "params"), ZEROS)
def test_no_elements_and_no_axes(gpu, name, shapes, params):
    index = 0 if name in ("in_range",) else 1
    arrays = [
        np.full(s, 0 if i == index else 1.5, np.int32 if i == index else np.float32)
        for i, s in enumerate(shapes)
    ]
    agrees(name, arrays, gpu, **params)


BAD = [
    ("take", lambda i: (np.ones((4, 3), np.float32), i), {"axis": 1}),
    ("take", lambda i: (np.ones((3, 0), np.float32), i), {"axis": 0}),
    ("take_along", lambda i: (np.ones((4, 3), np.float32), i[None]), {"axis": 1}),
    ("put", lambda i: (np.ones((3, 4), np.float32), i, np.ones((i.size, 4), np.float32)), {"axis": 0}),
    ("put_along", lambda i: (np.ones(3, np.float32), i, np.ones(i.size, np.float32)), {"axis": 0}),
    ("put_add", lambda i: (np.ones((i.size, 2), np.float32), i), {"axis": 0, "size": 3}),
    ("put_add", lambda i: (np.ones((i.size, 0), np.float32), i), {"axis": 0, "size": 3}),
    ("put_along_add", lambda i: (np.ones(i.size, np.float32), i), {"axis": 0, "shape": (3,)}),
    ("in_range", lambda i: (np.where(i < 0, i - 3, i),), {"size": 3}),
]


@pytest.mark.parametrize("wrong", [3, 2**30, -1, -(2**30)])
@pytest.mark.parametrize(("name", "make", "params"), BAD)
def test_a_bad_index_is_named_and_touches_nothing(gpu, name, make, params, wrong):
    index = np.array([0, 2, wrong, 1], np.int32)
    shown = wrong - 3 if name == "in_range" and wrong < 0 else wrong
    with Poison(gpu.allocator, gpu.transfer) as poison:
        inputs = tuple(ta.tensor(a, dtype=a.dtype, device=gpu) for a in make(index))
        out = apply(registry[name], inputs, dict(params))
        with pytest.raises(IndexError, match=rf"{name}: index {shown} is out of range for 3"):
            gpu.queue.flush()
        poison.check()
        assert np.isin(out.numpy(), range(5)).all()  # nothing that lies beside the inputs
    index[2] = 2  # and the device goes on
    agrees(name, make(index), gpu, **params)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 100, 1025])
def test_sorting_lines_of_every_length(gpu, length, descending):
    rng = np.random.default_rng(length)
    for dtype in DTYPES:
        x = noise(rng, (3, length, 2), dtype)
        x = x if dtype != "float32" else np.round(x * 3)  # ties, and zeros of both signs
        agrees("argsort", (x,), gpu, axis=1, descending=descending)


@pytest.mark.parametrize("descending", [False, True])
def test_sorting_special_values(gpu, descending):
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 1e-38, -1e-38, 3e38], np.float32)
    bits = np.array([0x7FC00000, 0xFFC00000, 0x7F800001], np.uint32).view(np.float32)
    x = np.random.default_rng(0).choice(np.concatenate([special, bits]), (20, 50))
    agrees("argsort", (x,), gpu, axis=1, descending=descending)
    extremes = np.array([[2**31 - 1, -(2**31), 0, -1, 1, -(2**31), 2**31 - 1]], np.int32)
    agrees("argsort", (extremes,), gpu, axis=1, descending=descending)


def test_a_long_line_and_many_short_ones(gpu):
    rng = np.random.default_rng(0)
    agrees("argsort", (rng.integers(0, 1000, (1, 70_001)).astype(np.int32),), gpu, axis=1, descending=True)
    agrees("argsort", (rng.integers(0, 9, (60_000, 5)).astype(np.int32),), gpu, axis=1, descending=False)


def test_more_lanes_than_groups(gpu):
    """More elements than 65,535 workgroups of 4 lanes have."""
    rng = np.random.default_rng(0)
    count = 4 * 65_535 + 7
    x, index = noise(rng, (1000,)), rng.integers(0, 1000, count).astype(np.int32)
    agrees("take", (x, index), gpu, axis=0)
    agrees(
        "put_along",
        (np.zeros(count, np.float32), rng.permutation(count).astype(np.int32), noise(rng, count)),
        gpu,
        axis=0,
    )
    agrees("put_add", (np.ones(count, np.int32), index), gpu, axis=0, size=1000)
    mask = rng.integers(0, 2, (7, count // 7 + 1)).astype(bool)
    agrees("nonzero", (mask,), gpu, count=int(mask.sum()))


@pytest.mark.parametrize("size", [1, 63, 64, 65, 64 * 64, 64 * 64 + 1, 300_000])
def test_nonzero_at_the_edges_of_its_parts(gpu, size):
    mask = np.random.default_rng(size).random(size) < 0.3
    mask[-1] = True
    agrees("nonzero", (mask,), gpu, count=int(mask.sum()))


def test_negative_zero_is_zero(gpu):
    x = np.array([[0.0, -0.0, np.nan], [1.0, -1e-38, np.inf]], np.float32)
    agrees("nonzero", (x,), gpu, count=4)


def test_results_go_over_strided_tensors(gpu):
    rng = np.random.default_rng(0)
    x, index, order = (
        noise(rng, (5, 3)),
        np.array([3, 0, 0, 2], np.int32),
        np.array([3.0, 1.0, 2.0], np.float32),
    )
    for name, arrays, params in [
        ("take", (x, index), {"axis": 0}),
        ("put", (noise(rng, (4, 3)), index, noise(rng, (4, 3))), {"axis": 0}),
        ("put_add", (np.ones((4, 3), np.float32), index), {"axis": 0, "size": 4}),
        ("argsort", (np.stack([order] * 4),), {"axis": 1, "descending": True}),
    ]:
        target = ta.zeros(3, 8, device=gpu)[:, ::-2].mT
        inputs = tuple(ta.tensor(a, device=gpu) for a in arrays)
        apply_into(registry[name], target, inputs, params)
        np.testing.assert_array_equal(target.numpy(), run(name, arrays, "numpy", **params))


def test_an_input_may_be_the_target(gpu):
    x = ta.tensor(np.arange(6, dtype=np.float32), device=gpu)
    apply_into(registry["take"], x, (x, ta.tensor([5, 4, 3, 2, 1, 0], device=gpu)), {"axis": 0})
    assert x.numpy().tolist() == [5, 4, 3, 2, 1, 0]
