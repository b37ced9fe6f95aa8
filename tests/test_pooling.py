"""Pooling: windows that tile an axis unevenly, indices on their way between devices, and the modules."""

import inspect
from itertools import product

import numpy as np
import pytest
from conftest import DEVICES, VULKAN, absent

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn

NAN = float("nan")


def largest(plane, sizes):
    """Values and flat positions of the maxima of evenly tiling windows, one cell after another."""
    values, positions = np.empty(sizes, plane.dtype), np.empty(sizes, np.int32)
    for spot in np.ndindex(sizes):
        spans = [range(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(spot, plane.shape, sizes)]
        best = None
        for cell in product(*spans):
            here = plane[cell]
            if best is None or here > plane[best] or (np.isnan(here) and not np.isnan(plane[best])):
                best = cell
        values[spot], positions[spot] = plane[best], np.ravel_multi_index(best, plane.shape)
    return values, positions


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((7,), (3,)), ((5, 8), (3, 5)), ((6, 4), (3, 2)), ((2, 3), (4, 5)), ((3, 4, 5), (2, 3, 4))],
)
def test_uneven_windows_take_the_first_of_equals_and_nan(device, shape, sizes):
    """Small integers, so that most windows have ties."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (2, 3, *shape)).astype(np.float32)
    x[rng.uniform(size=x.shape) < 0.1] = NAN
    pool = getattr(F, f"adaptive_max_pool{len(shape)}d")
    values, indices = pool(ta.tensor(x, device=device), sizes, return_indices=True)
    assert indices.dtype == ta.int32
    for n, c in np.ndindex(2, 3):
        expected = largest(x[n, c], sizes)
        np.testing.assert_array_equal(values.numpy()[n, c], expected[0])
        np.testing.assert_array_equal(indices.numpy()[n, c], expected[1])


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_not_finite_stays_in_its_windows(device):
    x = np.ones((1, 2, 5, 4), np.float32)
    x[0, 0, 0, 3], x[0, 1, 4, 0] = np.nan, np.inf
    expected = np.ones((1, 2, 3, 3), np.float32)
    expected[0, 0, 0, 2], expected[0, 1, 2, 0] = np.nan, np.inf
    got = F.adaptive_avg_pool2d(ta.tensor(x, device=device), 3).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_windows_that_share_cells_add_up(device):
    x = ta.tensor([[[0.0, 1, 9, 1, 0]]], device=device, requires_grad=True)
    y = F.adaptive_max_pool1d(x, 2)  # cells 0 to 2, and 2 to 4
    y.backward(ta.tensor([[[2.0, 3.0]]], device=device))
    assert y.tolist() == [[[9, 9]]] and x.grad.tolist() == [[[0, 0, 5, 0, 0]]]


@absent
@pytest.mark.parametrize(("here", "there"), [("numpy", VULKAN), (VULKAN, "numpy")])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_indices_move_with_their_tensor(here, there, rank):
    """Pooled on one device, put back on the other, with the gradient's way through both moves."""
    x = (
        np.random.default_rng(rank)
        .permutation(2 * 3 * 4**rank)
        .reshape(2, 3, *(4,) * rank)
        .astype(np.float32)
    )
    leaf = ta.tensor(x, device=here, requires_grad=True)
    values, indices = getattr(F, f"max_pool{rank}d")(leaf, 2, return_indices=True)
    moved = values.to(there), indices.to(there)
    assert moved[1].device.startswith(there) and (moved[1].numpy() == indices.numpy()).all()
    back = getattr(F, f"max_unpool{rank}d")(*moved, 2)
    assert back.device.startswith(there)
    won = back.numpy() > 0
    assert won.sum() == values.numel()
    np.testing.assert_array_equal(back.numpy(), np.where(won, x, 0))
    (back * 2).sum().backward()
    np.testing.assert_array_equal(leaf.grad.numpy(), 2 * won)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_modules_agree_with_torch(rank):
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(rank).normal(size=(2, 3, *(7, 6, 5)[:rank])).astype(np.float32)
    options = [
        ("MaxPool", {"kernel_size": 3, "stride": 2, "padding": 1, "dilation": 1, "ceil_mode": True}),
        ("AvgPool", {"kernel_size": 2, "stride": 1, "padding": 1, "count_include_pad": False}),
        ("AdaptiveAvgPool", {"output_size": 3}),
        ("AdaptiveMaxPool", {"output_size": 3}),
    ]
    if rank > 1:
        options.append(("AvgPool", {"kernel_size": 2, "divisor_override": 3}))
    for name, given in options:
        ours, theirs = (getattr(library, f"{name}{rank}d")(**given) for library in (nn, torch.nn))
        expected = theirs(torch.tensor(x)).numpy()
        np.testing.assert_allclose(ours(ta.tensor(x)).numpy(), expected, rtol=1e-5, atol=1e-6)
    pools = [getattr(library, f"MaxPool{rank}d")(2, return_indices=True) for library in (nn, torch.nn)]
    unpools = [getattr(library, f"MaxUnpool{rank}d")(2) for library in (nn, torch.nn)]
    whole = x.shape[2:]
    expected = unpools[1](*pools[1](torch.tensor(x)), output_size=whole).numpy()
    np.testing.assert_array_equal(unpools[0](*pools[0](ta.tensor(x)), whole).numpy(), expected)
    module = getattr(nn, f"AdaptiveMaxPool{rank}d")(2, return_indices=True)
    assert repr(module).endswith("d(output_size=2)") and module(ta.tensor(x))[1].dtype == ta.int32


def test_each_rank_has_its_own_name_and_one_documentation():
    for rank, pool in enumerate((F.max_pool1d, F.max_pool2d, F.max_pool3d), 1):
        assert pool.__name__ == f"max_pool{rank}d" and "NaN wins" in pool.__doc__
        assert list(inspect.signature(pool).parameters)[:3] == ["input", "kernel_size", "stride"]


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (
            lambda: F.adaptive_max_pool2d(ta.zeros(1, 1, 4, 4), (2, 2, 2)),
            r"output size of 2.*got \(2, 2, 2\)",
        ),
        (lambda: F.adaptive_max_pool1d(ta.zeros(1, 1, 4), -1), "non-negative"),
        (lambda: F.adaptive_max_pool2d(ta.zeros(1, 1, 0, 4), 2), "nothing to pool"),
        (lambda: F.adaptive_max_pool3d(ta.zeros(1, 4, 4), 2), "4 or 5 axes"),
        (lambda: F.max_pool3d(ta.zeros(1, 1, 2, 2, 2), 3), "does not fit"),
    ],
)
def test_bad_input_is_named(call, what):
    with pytest.raises(ValueError, match=what):
        call()
