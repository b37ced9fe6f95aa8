"""Matrix products on Vulkan: both bodies, all tiles, all ways to read a side."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.drivers.matmul import TILES
from tinyadept.ops import registry

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()


def tiled(request):
    return request.param != "cpu"


@pytest.fixture(params=["cpu", *range(len(TILES)), "split"])
def gpu(request, monkeypatch):
    forced = (
        (TILES[1], 4) if request.param == "split" else (TILES[request.param], 1) if tiled(request) else None
    )
    body = GPU.products._replace(tiled=tiled(request), forced=forced)
    monkeypatch.setattr(GPU, "products", body)
    return GPU


@given(data=st.data())
def test_drawn_products(gpu, data):
    case = data.draw(oracle.cases(registry["matmul"]))
    truth = case.truth()
    got = case.run(gpu)[0].detach().numpy()
    assert not oracle.mismatch(got, truth, case.bound(truth)).any()


def layouts(x):
    """The same matrix, laid out so that each mode of reading is met."""
    yield x
    yield ta.tensor(x.numpy().swapaxes(-1, -2).copy(), device=x.device).mT
    wide = ta.zeros(*x.shape[:-1], x.shape[-1] * 2, device=x.device)
    wide[..., ::2] = x
    yield wide[..., ::2]
    odd = ta.zeros(x.numel() + 1, device=x.device)
    odd[1:] = x.flatten()
    yield odd[1:].reshape(*x.shape)


@pytest.mark.parametrize(
    ("n", "k", "m"), [(128, 64, 128), (130, 70, 67), (1, 300, 1), (257, 16, 33), (64, 4, 36)]
)
def test_edges_and_layouts(gpu, n, k, m):
    rng = np.random.default_rng(0)
    a = ta.tensor(rng.standard_normal((n, k)), device=gpu)
    b = ta.tensor(rng.standard_normal((k, m)), device=gpu)
    exact = a.numpy().astype(np.float64) @ b.numpy()
    allowed = (k + 1) * oracle.EPS * (np.abs(a.numpy()) @ np.abs(b.numpy()))
    for left in layouts(a):
        for right in layouts(b):
            assert (np.abs((left @ right).numpy() - exact) <= allowed).all()


def test_integers_and_bytes(gpu):
    rng = np.random.default_rng(0)
    for dtype in ("int32", "uint8"):
        a, b = (rng.integers(0, 100, shape).astype(dtype) for shape in ((70, 40), (40, 50)))
        np.testing.assert_array_equal((ta.tensor(a, device=gpu) @ ta.tensor(b, device=gpu)).numpy(), a @ b)


def test_many_small_products(gpu):
    a, b = ta.ones(100, 100, 4, 5, device=gpu), ta.ones(100, 100, 5, 6, device=gpu)
    assert (a @ b == 5).all()
