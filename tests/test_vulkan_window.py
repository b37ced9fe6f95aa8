"""Convolution and pooling on Vulkan: against the definitions, on every body, and with sums cut into parts."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison, body
from tinyadept.backends.vulkan.drivers import conv as conv_driver
from tinyadept.backends.vulkan.drivers import conv_tiles, depthwise
from tinyadept.backends.vulkan.drivers.pool import LARGE
from tinyadept.ops import registry
from tinyadept.ops.table import apply, apply_into
from tinyadept.tensor import wrap
from tinyadept.view import View

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()

FAMILIES = {"conv", "conv_back", "pool", "pool_back", "pool_take"}
ROWS = [op for op in registry.values() if op.family.name in FAMILIES]
CONVOLUTIONS = ("conv", "conv_input", "conv_weight")


@pytest.fixture(params=["own", "lanes", "tiles", "cut lanes", "cut tiles"])
def gpu(request, monkeypatch):
    """The device as it is; and either body, with workgroups of 4 where that can be, sums whole or cut."""
    if request.param == "own":
        yield GPU
        return
    monkeypatch.setattr(conv_driver, "GPU_LOCAL", 4)
    monkeypatch.setattr(conv_driver, "FEW_ROWS", 0)
    if "cut" in request.param:
        monkeypatch.setattr(conv_driver, "SHORTEST", 1)
        monkeypatch.setattr(conv_driver, "MOST_PARTS", 7)
        monkeypatch.setattr(conv_tiles, "forced", (conv_tiles.SHARED[0], 3))
        monkeypatch.setattr(depthwise, "SHORTEST", 1e-3)
    with body(GPU, "tiles" in request.param, 4):
        yield GPU


def agree(case, gpu):
    truth = case.truth()
    with Poison(gpu.allocator, gpu.transfer) as poison:
        got = case.run(gpu)[0].detach().numpy()
        poison.check()
    assert got.shape == truth.shape
    wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), (
        f"{wrong.sum()} of {wrong.size} wrong, the first at {np.argwhere(wrong)[0]}: got {got[wrong][0]}, "
        f"truth {truth[wrong][0]}; {case.params}, {[x.view for x in case.inputs]}"
    )


def dense(array):
    return oracle.Given(np.ascontiguousarray(array).ravel(), View.dense(array.shape))


def convolution(name, x, w, seed=0, dtype=np.float32, **changes):
    """A case of one of the three forms, given the shapes of input and weight."""
    rank = len(x) - 2
    params = {"stride": (1,) * rank, "padding": ((0, 0),) * rank, "dilation": (1,) * rank, "groups": 1}
    params |= changes
    rng = np.random.default_rng(seed)
    spatial = [
        (n + a + b - d * (k - 1) - 1) // s + 1
        for n, k, s, (a, b), d in zip(x[2:], w[2:], params["stride"], params["padding"], params["dilation"])
    ]
    g = (x[0], w[0], *spatial)
    shapes = {"conv": (x, w), "conv_input": (g, w), "conv_weight": (g, x)}[name]
    if name != "conv":
        params["shape"] = x if name == "conv_input" else w
    arrays = [rng.uniform(-3, 3, s) if dtype == np.float32 else rng.integers(0, 100, s) for s in shapes]
    return oracle.Case(registry[name], tuple(dense(a.astype(dtype)) for a in arrays), params)


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@given(data=st.data())
def test_every_row_is_its_definition(gpu, op, data):
    agree(data.draw(oracle.cases(op)), gpu)


GEOMETRIES = {  # edges of tiles and of blocks on all sides
    "square": ((2, 17, 9, 9), (65, 17, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "a tile and one": ((1, 3, 13, 5), (129, 3, 1, 1), {}),
    "strided": ((2, 5, 15, 14), (9, 5, 3, 2), {"stride": (2, 3), "padding": ((2, 0), (1, 3))}),
    "dilated": ((2, 4, 11, 12), (10, 4, 3, 3), {"dilation": (2, 3)}),
    "groups": ((2, 12, 8, 8), (20, 3, 3, 3), {"groups": 4, "padding": ((1, 1), (1, 1))}),
    "depthwise": ((2, 33, 8, 8), (33, 1, 3, 3), {"groups": 33, "padding": ((1, 1), (1, 1))}),
    "one axis": ((3, 10, 40), (12, 5, 7), {"groups": 2, "stride": (3,), "padding": ((3, 2),)}),
    "three axes": (
        (2, 4, 5, 6, 7),
        (11, 4, 2, 3, 2),
        {"stride": (2, 1, 2), "padding": ((1, 0), (1, 1), (0, 2))},
    ),
    "deep": ((1, 70, 3, 3), (70, 70, 3, 3), {"padding": ((1, 1), (1, 1))}),
    "single cells": ((3, 16, 6, 6), (24, 16, 1, 1), {}),
    "single cells in groups": ((3, 32, 6, 6), (24, 16, 1, 1), {"groups": 2}),
    "every other cell": ((3, 16, 7, 8), (24, 16, 1, 1), {"stride": (2, 2)}),
    "apart": ((2, 24, 8, 8), (16, 24, 2, 2), {"stride": (2, 2)}),
    "phases": ((2, 24, 8, 9), (16, 24, 3, 3), {"stride": (2, 2), "padding": ((1, 1), (1, 1))}),
    "phases that meet nothing": (
        (2, 8, 18, 18),
        (16, 8, 3, 3),
        {"stride": (4, 2), "dilation": (2, 2), "padding": ((1, 1), (1, 1))},
    ),
    "rows of eight": ((2, 8, 9, 10), (16, 8, 3, 3), {"padding": ((1, 1), (0, 0))}),
    "rows of sixteen": ((2, 8, 6, 18), (16, 8, 3, 3), {}),
    "rows of twelve": ((2, 8, 6, 14), (16, 8, 3, 3), {}),
    "depthwise, several": (
        (2, 5, 8, 8),
        (10, 1, 3, 3),
        {"groups": 5, "padding": ((1, 1), (1, 1)), "stride": (2, 1)},
    ),
    "depthwise, more cells than nine": (
        (2, 5, 18, 18),
        (5, 1, 5, 4),
        {"groups": 5, "padding": ((1, 1), (1, 1))},
    ),
}


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_many_shapes(gpu, name, geometry):
    x, w, changes = GEOMETRIES[geometry]
    agree(convolution(name, x, w, **changes), gpu)


def test_negative_padding_takes_cells_away(gpu):
    x, w, cropped = (2, 3, 12, 11), (4, 3, 3, 3), (2, 3, 9, 9)
    padding = ((-2, -1), (-1, -1))
    agree(convolution("conv", x, w, padding=padding), gpu)
    agree(convolution("conv_weight", x, w, padding=padding), gpu)
    dx = convolution("conv_input", x, w, padding=padding).run(gpu)[0].numpy()
    inner = convolution("conv_input", cropped, w).run(gpu)[0].numpy()
    np.testing.assert_allclose(dx[:, :, 2:-1, 1:-1], inner, atol=2e-5)
    dx[:, :, 2:-1, 1:-1] = 0
    assert not dx.any()


@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_integers(gpu, name, dtype):
    case = convolution(name, (2, 6, 9, 9), (10, 6, 3, 3), dtype=dtype, padding=((1, 1), (0, 0)))
    got, expected = case.run(gpu)[0], case.run("numpy")[0].numpy().astype(np.int32)
    words = wrap(got.buffer, got.layout, ta.int32, gpu)  # a word each, also of bytes
    np.testing.assert_array_equal(words.numpy(), expected)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_more_blocks_than_workgroups(name):
    agree(convolution(name, (2, 1, 1100, 1024), (1, 1, 2, 2)), GPU)


@pytest.mark.parametrize(
    ("name", "x", "w"),
    [
        ("conv", (1, 70_000, 2), (3, 70_000, 1)),
        ("conv", (2, 1, 70_000), (2, 1, 69_999)),
        ("conv_input", (1, 2, 3), (70_000, 2, 1)),
        ("conv_weight", (70_000, 2, 1), (2, 2, 1)),
        ("conv_weight", (1, 1, 300, 300), (1, 1, 2, 2)),
        ("conv_weight", (3, 1, 70_000), (1, 1, 2)),
    ],
)
def test_sums_longer_than_a_lane_can_loop(gpu, name, x, w):
    """llvmpipe ends the loops of an invocation after 65,535 turns."""
    agree(convolution(name, x, w), gpu)


def test_the_gradient_of_a_mean_over_very_many_samples(gpu):
    ones = dense(np.ones((65536, 1, 1), np.float32))
    g = dense(np.full((65536, 1, 1), 2.0**-16, np.float32))
    params = {"stride": (1,), "padding": ((0, 0),), "dilation": (1,), "groups": 1, "shape": (1, 1, 1)}
    assert oracle.Case(registry["conv_weight"], (g, ones), params).run(gpu)[0].item() == 1


def test_input_gradients_end_where_no_window_does(gpu):
    case = convolution("conv_input", (1, 1, 8, 8), (1, 1, 3, 3), stride=(2, 2))
    dx = case.run(gpu)[0].numpy()
    assert dx.shape == (1, 1, 8, 8) and not dx[0, 0, 7].any() and dx[0, 0, 6].any()
    g, w = np.array([[[1.5, 0, 0.7]]], np.float32), np.full((1, 1, 1), -0.7767, np.float32)
    params = {"stride": (2,), "padding": ((0, 0),), "dilation": (1,), "groups": 1, "shape": (1, 1, 5)}
    dx = oracle.Case(registry["conv_input"], (dense(g), dense(w)), params).run(gpu)[0].numpy()
    np.testing.assert_allclose(dx, [[[-1.16505, 0, 0, 0, -0.54369]]], rtol=1e-6)
    back = params | {"shape": (1, 1, 1)}
    agree(oracle.Case(registry["conv_weight"], (dense(g), dense(np.ones((1, 1, 5), np.float32))), back), gpu)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_a_weight_that_is_not_finite_spoils_only_what_it_touches(gpu, value):
    case = convolution("conv_input", (2, 10, 9, 9), (12, 10, 2, 3), stride=(2, 3), padding=((1, 0), (0, 2)))
    case.inputs[1].memory[7] = value
    with np.errstate(invalid="ignore"):
        agree(case, gpu)


def test_a_convolution_is_the_same_every_time(gpu):
    case = convolution("conv_weight", (8, 3, 20, 20), (10, 3, 3, 3))
    first = case.run(gpu)[0].numpy()
    for _ in range(3):
        np.testing.assert_array_equal(case.run(gpu)[0].numpy(), first)


NOTHING = {
    "conv": ((2, 0, 4), (3, 0, 2), (2, 3, 3)),
    "conv_input": ((2, 3, 4), (0, 3, 2), (2, 3, 4)),
    "conv_weight": ((0, 2, 4), (3, 2, 2), (3, 2, 2)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_nothing_to_sum_gives_zeros(gpu, name):
    x, w, shape = NOTHING[name]
    got = convolution(name, x, w).run(gpu)[0].numpy()
    assert got.shape == shape and not got.any()


def test_no_samples(gpu):
    for name in ("conv", "conv_input"):
        agree(convolution(name, (0, 2, 4), (3, 2, 2)), gpu)


# Pools


def pool(gpu, name, *arrays, **params):
    """An op of a pooling family; the geometry of windows is filled in."""
    if "kernel" in params:
        rank = len(params["kernel"])
        params = {"stride": params["kernel"], "padding": (0,) * rank, **params}
        cells = params["shape"][2:] if "shape" in params else arrays[0].shape[2:]
        if name in ("max_pool", "pool_index"):
            params.setdefault("dilation", (1,) * rank)
        params.setdefault(
            "windows",
            tuple(
                (n + 2 * p - d * (k - 1) - 1) // s + 1
                for n, k, s, p, d in zip(
                    cells,
                    params["kernel"],
                    params["stride"],
                    params["padding"],
                    params.get("dilation", (1,) * rank),
                )
            ),
        )
    return apply(
        registry[name], tuple(ta.tensor(a, dtype=a.dtype, device=gpu) for a in arrays), params
    ).numpy()


def both(gpu, name, *arrays, **params):
    got = pool(gpu, name, *arrays, **params)
    np.testing.assert_array_equal(got, pool("numpy", name, *arrays, **params))
    return got


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
def test_the_first_of_equals_wins(gpu, dtype):
    x = np.random.default_rng(0).integers(0, 3, (2, 3, 9, 8)).astype(dtype)
    both(gpu, "pool_index", x, kernel=(3, 3), stride=(2, 1), padding=(1, 1))
    both(gpu, "pool_index", x, kernel=(2, 3), dilation=(2, 2), padding=(1, 1))


def test_nan_wins_and_padding_never_does(gpu):
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    both(gpu, "pool_index", x, kernel=(3, 3), stride=(1, 1), padding=(1, 1))
    x[0, 0, 1, 2], x[0, 0, 2, 1], x[0, 0, 3, 3] = np.nan, np.nan, np.inf
    index = both(gpu, "pool_index", x, kernel=(2, 2), stride=(1, 1))
    assert index[0, 0, 1].tolist() == [9, 6, 6]
    both(
        gpu,
        "pool_index",
        -np.abs(np.ones((1, 2, 3, 3), np.float32)),
        kernel=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
    )
    special = np.random.default_rng(0).choice(oracle.SPECIAL, (3, 2, 11, 10))
    both(gpu, "pool_index", special, kernel=(3, 2), stride=(2, 2), padding=(1, 1))


def test_overlapping_windows_add_up(gpu):
    g, index = np.ones((1, 1, 2, 2), np.float32), np.full((1, 1, 2, 2), 4, np.int32)
    dx = pool(gpu, "pool_put", g, index, shape=(1, 1, 3, 3), apart=False)
    assert dx[0, 0].tolist() == [[0, 0, 0], [0, 4, 0], [0, 0, 0]]


def test_a_pool_of_real_size_backward(gpu):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 5, 37, 41)).astype(np.float32)
    index = both(gpu, "pool_index", x, kernel=(3, 3), stride=(2, 2), padding=(1, 1))
    g = rng.standard_normal(index.shape).astype(np.float32)
    case = oracle.Case(registry["pool_put"], (dense(g), dense(index)), {"shape": x.shape, "apart": False})
    agree(case, gpu)
    first = case.run(gpu)[0].numpy()
    np.testing.assert_array_equal(case.run(gpu)[0].numpy(), first)
    index = both(gpu, "pool_index", x, kernel=(2, 2))
    both(gpu, "pool_take", x, index, apart=True)
    both(gpu, "pool_put", g[..., :18, :20], index, shape=x.shape, apart=True)


@pytest.mark.parametrize("kernel, stride", [(2, 2), (3, 2), (5, 1)])
def test_windows_that_a_kernel_is_built_for(kernel, stride, gpu):
    """Results are so many that the geometry is the kernel's own."""
    rng = np.random.default_rng(7)
    windows = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "padding": (kernel // 2,) * 2}
    x = rng.integers(0, 1000, (1, 2, 190 * stride, 192 * stride)).astype(np.float32)
    index = both(gpu, "pool_index", x, **windows)
    values = both(gpu, "max_pool", x, **windows)
    assert values.size >= LARGE
    geometry = {**windows, "dilation": (1, 1), "windows": index.shape[2:]}
    apart = kernel <= stride
    both(gpu, "pool_put", values, index, shape=x.shape, apart=apart, geometry=geometry)
    both(gpu, "avg_pool", x, divisor=4, **windows)
    both(gpu, "avg_pool_input", values, shape=x.shape, divisor=4, **windows)


@pytest.mark.parametrize("wrong", [9, -1])
@pytest.mark.parametrize("name", ["pool_take", "pool_put", "pool_put apart"])
def test_a_bad_position_is_named(gpu, name, wrong):
    x, index = np.ones((1, 2, 3, 3), np.float32), np.array([0, 8, wrong, 3], np.int32).reshape(1, 2, 2)
    index = index.reshape(1, 2, 1, 2)
    name, _, apart = name.partition(" ")
    arrays = (x, index) if name == "pool_take" else (np.ones((1, 2, 1, 2), np.float32), index)
    params = {"apart": bool(apart)} | ({} if name == "pool_take" else {"shape": x.shape})
    with Poison(gpu.allocator, gpu.transfer) as poison:
        out = apply(registry[name], tuple(ta.tensor(a, dtype=a.dtype, device=gpu) for a in arrays), params)
        with pytest.raises(IndexError, match=f"{name}: index {wrong} is out of range for 9"):
            gpu.queue.flush()
        poison.check()
        assert out.numpy().shape == out.shape


def test_a_window_beyond_the_edge_has_a_smaller_share(gpu):
    g = np.array([[[2.0, 4.0, 8.0]]], np.float32)
    for divisor in ("padded", "inside"):
        dx = pool(gpu, "avg_pool_input", g, shape=(1, 1, 5), kernel=(2,), windows=(3,), divisor=divisor)
        assert dx.tolist() == [[[1, 1, 2, 2, 8]]]


def test_windows_larger_than_a_lane_can_loop(gpu):
    rng = np.random.default_rng(0)
    x = rng.integers(-1000, 1000, (1, 2, 300, 300)).astype(np.float32)
    both(gpu, "pool_index", x, kernel=(300, 300))
    mean = pool(gpu, "avg_pool", x, kernel=(300, 300), divisor="padded")
    np.testing.assert_allclose(mean, x.mean((2, 3), keepdims=True, dtype=np.float64), rtol=1e-5, atol=1e-3)
    dx = pool(gpu, "avg_pool_input", mean, shape=x.shape, kernel=(300, 300), divisor=1)
    np.testing.assert_array_equal(dx, np.broadcast_to(mean, x.shape))


def test_results_go_over_strided_tensors(gpu):
    case = convolution("conv", (2, 3, 6), (4, 3, 3))
    backing = ta.tensor(np.zeros((4, 2, 8), np.float32), device=gpu)
    target = backing[:, :, ::-2].permute(1, 0, 2)
    apply_into(case.op, target, tuple(x.on(gpu) for x in case.inputs), dict(case.params))
    np.testing.assert_array_equal(target.numpy(), case.run(gpu)[0].numpy())
    assert not backing.numpy()[:, :, ::2].any()
