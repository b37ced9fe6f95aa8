"""Attention, rotary embedding and the cache of keys and values, against PyTorch and by cases."""

import tracemalloc

import numpy as np
import pytest
from conftest import DEVICES

import tinyadept as ta
from tinyadept import functional as F
from tinyadept.ops import attention as rows
from tinyadept.text import KeyValueCache

torch = pytest.importorskip("torch")

SHAPES = [  # B, H, K, T, S, D, E
    (2, 3, 3, 5, 7, 8, 6),
    (1, 6, 2, 5, 9, 8, 5),
    (2, 2, 1, 1, 4, 4, 4),
    (1, 1, 1, 3, 1, 1, 1),
]


def drawn(shape, seed):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("b, h, k, t, s, d, e", SHAPES)
@pytest.mark.parametrize("kind", ["plain", "causal", "bool", "float", "scaled"])
def test_it_is_pytorchs(b, h, k, t, s, d, e, kind):
    arrays = drawn((b, h, t, d), 0), drawn((b, k, s, d), 1), drawn((b, k, s, e), 2)
    options = {
        "is_causal": kind == "causal",
        "enable_gqa": h != k,
        "scale": 0.3 if kind == "scaled" else None,
    }
    mask = None
    if kind == "bool":
        mask = np.random.default_rng(3).random((t, s)) > 0.4
        mask[:, 0] = True
    elif kind == "float":
        mask = drawn((b, 1, t, s), 3)
    ours = [ta.tensor(x, requires_grad=True) for x in arrays]
    theirs = [torch.tensor(x, requires_grad=True) for x in arrays]
    y = F.scaled_dot_product_attention(*ours, attn_mask=None if mask is None else ta.tensor(mask), **options)
    z = torch.nn.functional.scaled_dot_product_attention(
        *theirs, attn_mask=None if mask is None else torch.tensor(mask), **options
    )
    g = drawn(y.shape, 4)
    y.backward(ta.tensor(g))
    z.backward(torch.tensor(g))
    np.testing.assert_allclose(y.detach().numpy(), z.detach().numpy(), rtol=1.3e-6, atol=1e-5)
    for x, x_theirs in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), x_theirs.grad.numpy(), rtol=1.3e-6, atol=1e-5)


@pytest.mark.parametrize("rank", [2, 3, 5])
def test_any_number_of_axes_may_lead(rank):
    lead = (2, 1, 3)[: rank - 2]
    q, k, v = (drawn((*lead, n, 4), n) for n in (5, 6, 6))
    k, v = k, v + 1
    ours = F.scaled_dot_product_attention(*map(ta.tensor, (q, k, v)), is_causal=True)
    theirs = torch.nn.functional.scaled_dot_product_attention(*map(torch.tensor, (q, k, v)), is_causal=True)
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_the_mask_gets_a_gradient(device):
    arrays = [
        drawn(shape, at) for at, shape in enumerate([(1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4), (2, 3, 5)])
    ]
    *ours, mask = (ta.tensor(x, requires_grad=True, device=device) for x in arrays)
    *theirs, bias = (torch.tensor(x, requires_grad=True) for x in arrays)
    F.scaled_dot_product_attention(*ours, attn_mask=mask).square().sum().backward()
    torch.nn.functional.scaled_dot_product_attention(*theirs, attn_mask=bias).square().sum().backward()
    np.testing.assert_allclose(mask.grad.numpy(), bias.grad.numpy(), atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_who_sees_nothing_gets_nothing(device):
    q, k, v = (ta.tensor(drawn((1, 1, 3, 4), n), device=device, requires_grad=True) for n in range(3))
    seen = ta.tensor(np.array([[True] * 3, [False] * 3, [False, True, False]]), device=device)
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
    y.sum().backward()
    assert not y.detach().numpy()[0, 0, 1].any()
    np.testing.assert_allclose(y.detach().numpy()[0, 0, 2], v.detach().numpy()[0, 0, 1], rtol=1e-6)
    assert all(np.isfinite(x.grad.numpy()).all() for x in (q, k, v))
    assert not q.grad.numpy()[0, 0, 1].any()


@pytest.mark.parametrize("device", DEVICES)
def test_large_scores_do_not_overflow(device):
    q = ta.tensor(np.full((1, 1, 2, 4), 300.0, np.float32), device=device)
    k = ta.tensor(np.array([[1.0], [1.0], [-1.0]], np.float32) * np.full(4, 300, np.float32), device=device)
    v = ta.tensor(np.arange(6, dtype=np.float32).reshape(1, 1, 3, 2), device=device)
    y = F.scaled_dot_product_attention(q, k.reshape(1, 1, 3, 4), v)
    np.testing.assert_allclose(y.numpy(), [[[[1, 2], [1, 2]]]])


def test_memory_grows_linearly():
    """Four times as many tokens: the scores would take sixteen times as much."""

    def peak(tokens):
        q, k, v = (ta.tensor(drawn((1, 2, tokens, 8), n)) for n in range(3))
        tracemalloc.start()
        F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    scores = 2 * 8192 * 8192 * 4
    assert peak(8192) < scores / 8
    assert peak(8192) < 3 * peak(4096)


def test_dropout_keeps_the_mean():
    ta.manual_seed(0)
    q, k, v = (ta.ones(1, 1, 200, 4) for _ in range(3))
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5).numpy()
    assert y.std() > 0 and abs(y.mean() - 1) < 0.02


@pytest.mark.parametrize(
    "shapes, message",
    [
        (((1, 2, 3, 4), (1, 2, 5, 3), (1, 2, 5, 4)), "expected"),
        (((1, 2, 3, 4), (1, 2, 5, 4), (1, 2, 6, 4)), "expected"),
        (((2, 2, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), "batches differ"),
        (((1, 3, 3, 4), (1, 2, 5, 4), (1, 2, 5, 4)), "do not share"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=message):
        rows.attention(*(ta.zeros(*shape) for shape in shapes), scale=1.0)


def test_a_mask_beside_is_causal_is_refused():
    q = ta.zeros(1, 1, 2, 2)
    with pytest.raises(ValueError, match="put both into the mask"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=ta.zeros(2, 2), is_causal=True)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_rotation_depends_on_distance_only(interleaved, device):
    """⟨R(m) q, R(n) k⟩ is the same for equal m - n, which is what the rotation is for."""
    table = F.rotary_table(40, 8, device=device)
    q, k = (ta.tensor(drawn((1, 1, 1, 10), n), device=device) for n in (0, 1))

    def score(m, n):
        at = [ta.tensor(np.array([[p]], np.int32), device=device) for p in (m, n)]
        a, b = (F.rotary_embedding(x, table, p, interleaved) for x, p in zip((q, k), at, strict=True))
        return (a * b).sum().item()

    assert score(3, 1) == pytest.approx(score(33, 31), rel=1e-5)
    assert score(3, 1) != pytest.approx(score(4, 1), rel=1e-2)


def test_a_position_outside_the_table():
    with pytest.raises(IndexError, match="index 4 is out of range for an axis of length 4"):
        F.rotary_embedding(ta.zeros(1, 1, 1, 2), F.rotary_table(4, 2), ta.tensor(np.array([[4]], np.int32)))


@pytest.mark.parametrize("device", DEVICES)
def test_a_cache_in_pieces_is_attention_at_once(device):
    q, k, v = (ta.tensor(drawn((2, 3, 7, 4), n), device=device) for n in range(3))
    whole = F.scaled_dot_product_attention(q, k, v, is_causal=True).numpy()
    cache = KeyValueCache(1, 2, 3, 9, 4, device)
    for piece in (slice(0, 4), slice(4, 5), slice(5, 7)):
        keys, values = cache.append(0, k[:, :, piece], v[:, :, piece])
        y = rows.attention(q[:, :, piece], keys, values, cache.start, scale=0.5)
        np.testing.assert_allclose(y.numpy(), whole[:, :, piece], atol=1e-6)
        cache.advance(piece.stop - piece.start)
    assert cache.start.numpy().tolist() == [7, 7]


def test_a_cache_that_is_full():
    cache = KeyValueCache(1, 1, 1, 2, 1, "numpy")
    cache.advance(1)
    with pytest.raises(IndexError, match="out of range"):
        cache.append(0, ta.zeros(1, 1, 2, 1), ta.zeros(1, 1, 2, 1))
