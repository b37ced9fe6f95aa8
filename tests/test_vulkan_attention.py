"""Attention on Vulkan: all bodies against the definition; the cache, rotations, and products of few rows."""

import numpy as np
import pytest
from conftest import vulkan
from mutants import broken

import tinyadept as ta
from tinyadept import functional as F
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison, body
from tinyadept.backends.vulkan.drivers import attention as driver
from tinyadept.backends.vulkan.drivers import loops
from tinyadept.models import gpt2
from tinyadept.ops import attention as rows
from tinyadept.ops import registry
from tinyadept.ops.table import apply_into
from tinyadept.text import KeyValueCache, generate
from tinyadept.view import View

GPU = vulkan()
BODIES = {"lanes": False, "tiles": True}
NAMES = ("attention", "attention_input")

# B, H, K, T, S, D, E, start and whether there is a mask
CALLS = {
    "few queries": (2, 4, 2, 3, 70, 8, 12, [3, 60], True),
    "several tiles": (1, 2, 1, 70, 130, 9, 5, [40], False),
    "mask": (1, 2, 2, 66, 67, 8, 8, None, True),
    "who sees nothing": (2, 1, 1, 20, 9, 4, 4, [-8, 30], False),
    "wide": (1, 1, 1, 18, 20, 70, 130, None, False),
}


def made(name, b, h, k, t, s, d, e, start, mask):
    """A call whose inputs are views of larger memory, as those of a model are."""
    rng = np.random.default_rng(0)

    def turned(heads, count, width):
        memory = rng.normal(size=(b, count, heads, width)).astype(np.float32)
        return oracle.Given(memory.ravel(), View.dense(memory.shape).permute((0, 2, 1, 3)))

    outer = [turned(h, t, e)] if name == "attention_input" else []
    inputs = [*outer, turned(h, t, d), turned(k, s, d), turned(k, s, e)]
    if start is not None or mask:
        begin = np.array(start if start is not None else [s] * b, np.int32)
        inputs.append(oracle.Given(begin, View.dense((b,))))
    if mask:
        scores = rng.normal(size=(t, s)).astype(np.float32)
        scores[rng.random(scores.shape) < 0.3] = -np.inf
        inputs.append(oracle.Given(scores.ravel(), View.dense((t, s)).expand((b, h, t, s))))
    return oracle.Case(registry[name], tuple(inputs), {"scale": 0.4})


def check(case):
    truth = case.truth()
    got = case.run(GPU)[0].numpy()
    assert not oracle.mismatch(got, truth, case.bound(truth)).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("call", CALLS)
def test_it_is_the_definition(call, tiled, name):
    case = made(name, *CALLS[call])
    with body(GPU, tiled), Poison(GPU.allocator, GPU.transfer) as poison:
        check(case)
        poison.check()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
def test_keys_in_parts(tiled, name, monkeypatch):
    """What one lane, or one workgroup, may not go through alone."""
    monkeypatch.setattr(loops, "TURNS", 300)
    monkeypatch.setattr(driver, "LONGEST", 128)
    seen = []
    GPU.queue.observers.append(lambda entries: seen.extend(entry.shader for entry in entries if entry))
    with body(GPU, tiled):
        check(made(name, 2, 2, 1, 5, 300, 6, 3, [200, 20], True))
    GPU.queue.observers.pop()
    names = [shader.name for shader in seen]
    if name == "attention":
        assert names.count("attention_join") == 1
    else:
        assert names.count("attention_input") == (3 if tiled else 11)


@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
def test_rows_too_wide_for_tiles(tiled):
    with body(GPU, tiled):
        check(made("attention", 1, 1, 1, 20, 4, 300, 2, None, False))


@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("queries", [1, 20])
def test_room_that_is_not_filled_is_not_read(tiled, queries):
    """NaN there would come out."""
    rng = np.random.default_rng(0)
    k, v = (rng.normal(size=(1, 2, 200, 4)).astype(np.float32) for _ in range(2))
    q = rng.normal(size=(1, 2, queries, 4)).astype(np.float32)
    k[:, :, 30 + queries :] = v[:, :, 30 + queries :] = np.nan
    with body(GPU, tiled):
        given = [ta.tensor(x, device=GPU) for x in (q, k, v, np.array([30], np.int32))]
        assert np.isfinite(rows.attention(*given, scale=0.5).numpy()).all()


@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("queries", [1, 20])
def test_nan_spoils_what_sees_it(tiled, queries):
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 1, n, 4)).astype(np.float32) for n in (queries, 40, 40))
    k[0, 0, 15] = np.nan
    start = np.array([39 - queries], np.int32)
    expected = rows.attention(*map(ta.tensor, (q, k, v, start)), scale=0.5).numpy()
    assert np.isnan(expected).any()
    with body(GPU, tiled):
        got = rows.attention(*(ta.tensor(x, device=GPU) for x in (q, k, v, start)), scale=0.5).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)


MUTANTS = {
    "mask": ("attention.glsl", "return push.mask < 0 ? score", "return true ? score"),
    "start": ("attention.glsl", "+ at.z + 1, 0", "+ at.z, 0"),
    "offset": ("attention.glsl", "(push.what + STEPS", "(0 + STEPS"),
    "step": ("attention.glsl", "(at).y * push.what##_step[1]", "(at).y * push.what##_step[2]"),
    "heads": ("attention.glsl", "at.y / push.share", "at.y"),
}
MUTANTS_OF = {
    ("attention", False): {
        "scale": ("attention.comp", "q[from_q + d] * push.scale", "q[from_q + d]"),
        "tail": ("attention.comp", "s[j] = first + j < last ? masked", "s[j] = true ? masked"),
        "shrink": ("attention.comp", "math_exp(top - shift_of(above))", "1.0"),
    },
    ("attention", True): {
        "scale": ("attention.comp", "    s *= push.scale;", ""),
        "few, scale": ("attention.comp", "4 * d) * push.scale", "4 * d)"),
        "tail": ("attention.comp", "if (key + j >= sees)", "if (key + j > sees)"),
        "few, tail": ("attention.comp", "min(seen(at), first + PART) - first", "min(push.keys, PART)"),
        "shrink": ("attention.comp", "[lane()] = math_exp(tops[lane()]", "[lane()] = exp(top"),
        "rows": ("attention_tiles.glsl", "first < min(SIDE, rows);", "first < min(SIDE, rows) - DEPTH;"),
    },
    ("attention_input", False): {
        "scale": ("attention_input.comp", "(r[j] - sums.z) * push.scale", "(r[j] - sums.z)"),
        "tail": ("attention_input.comp", "s[j] = first + j < last && at.z", "s[j] = at.z"),
        "mean": ("attention_input.comp", "(r[j] - those.z)", "r[j]"),
    },
    ("attention_input", True): {
        "scale": ("attention_input.comp", "(r[j] - sum_r) * push.scale", "(r[j] - sum_r)"),
        "tail": ("attention_input.comp", "key < those.sees[j] ? math_exp", "key <= those.sees[j] ? math_exp"),
        "mean": ("attention_input.comp", "(r[j] - those.mean[j])", "r[j]"),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, tiled, mutant",
    [
        (*of, mutant)
        for of, own in MUTANTS_OF.items()
        for mutant in {**(MUTANTS if of[0] == "attention" else {}), **own}
    ],
)
def test_a_broken_kernel_is_caught(name, tiled, mutant, tmp_path):
    change = {**MUTANTS, **MUTANTS_OF[name, tiled]}[mutant]
    with body(GPU, tiled), broken(GPU, tmp_path, *change), pytest.raises(AssertionError):
        for call in CALLS.values():
            check(made(name, *call))


# --- keys and values that are kept, and rotations ---------------------------------------------------------


def test_only_new_rows_are_written():
    cache = KeyValueCache(1, 2, 3, 50, 4, GPU)
    new = ta.ones(2, 3, 2, 4, device=GPU)
    GPU.queue.flush()
    noted = []
    GPU.queue.observers.append(noted.extend)
    cache.start += ta.tensor(np.array([5, 7], np.int32), device=GPU)
    cache.append(0, new, new * 2)
    GPU.queue.flush()
    GPU.queue.observers.pop()
    assert [entry.shader.name for entry in noted if entry].count("append") == 2
    assert not any(entry and entry.shader.name == "copy" for entry in noted[-3:])
    expected = np.zeros((2, 3, 50, 4), np.float32)
    expected[0, :, 5:7] = expected[1, :, 7:9] = 1
    np.testing.assert_array_equal(cache.keys[0].numpy(), expected)
    np.testing.assert_array_equal(cache.values[0].numpy(), 2 * expected)


def test_rows_of_the_base_itself_are_read_before_any_is_written():
    base = np.arange(12, dtype=np.float32).reshape(1, 1, 6, 2)
    x, start = ta.tensor(base, device=GPU), ta.tensor(np.array([1], np.int32), device=GPU)
    apply_into(registry["append"], x, (x, x[:, :, :4], start), {})
    expected = base.copy()
    expected[:, :, 1:5] = base[:, :, :4]
    np.testing.assert_array_equal(x.numpy(), expected)


def test_a_cache_that_is_full():
    cache = KeyValueCache(1, 1, 1, 2, 1, GPU)
    cache.advance(1)
    cache.append(0, *(ta.ones(1, 1, 2, 1, device=GPU) for _ in range(2)))
    with pytest.raises(IndexError, match="append: index 1 is out of range for 1 entries"):
        cache.keys[0].numpy()
    assert not cache.keys[0].numpy().any()


def test_a_position_outside_the_table():
    table, at = F.rotary_table(4, 2, device=GPU), ta.tensor(np.array([[4]], np.int32), device=GPU)
    with pytest.raises(IndexError, match="rotary: index 4 is out of range for 4 entries"):
        F.rotary_embedding(ta.zeros(1, 1, 1, 2, device=GPU), table, at).numpy()


def drawn_case(name):
    """Rows at an offset, a table and positions, all in larger memory."""
    rng = np.random.default_rng(0)
    floats = [rng.normal(size=300).astype(np.float32) for _ in range(2)]
    x = View((2, 3, 4, 7), (140, 44, 9, 1), 5)
    if name == "rotary":
        table = oracle.Given(floats[1], View((5, 6), (8, 1), 3))
        at = oracle.Given(rng.integers(0, 5, 40).astype(np.int32), View((2, 4), (12, 3), 2))
        return oracle.Case(
            registry[name],
            (oracle.Given(floats[0], x), table, at),
            {"interleaved": True, "inverse": False},
        )
    new = View((2, 3, 2, 7), (70, 21, 8, 1), 11)
    start = oracle.Given(np.array([9, 1, 2], np.int32), View((2,), (1,), 1))
    return oracle.Case(registry[name], (oracle.Given(floats[0], x), oracle.Given(floats[1], new), start), {})


@pytest.mark.parametrize(
    "name, right, wrong",
    [
        ("rotary", "second != INVERSE", "second == INVERSE"),
        ("rotary", "d < 2 * push.pairs", "true"),
        ("rotary", "INTERLEAVED ? d / 2 : d % push.pairs", "d % push.pairs"),
        ("append", "+ first * push.step", ""),
        ("append", "int(i / push.sample_size)", "0"),
    ],
)
def test_broken_rotations_and_caches_are_caught(name, right, wrong, tmp_path):
    check(drawn_case(name))
    with broken(GPU, tmp_path, f"{name}.comp", right, wrong), pytest.raises(AssertionError):
        check(drawn_case(name))


# --- decoding ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tiled", BODIES.values(), ids=BODIES)
def test_decoding_is_numpys_and_a_submit_a_token(tiled):
    ta.manual_seed(0)
    model = gpt2.GPT2(gpt2.Config(2, 2, 16, 23, 32))
    expected = list(generate(model, [1, 5, 7], 12, temperature=0))
    model, found, submits = model.to(GPU), [], []
    with body(GPU, tiled):
        for token in generate(model, [1, 5, 7], 12, temperature=0):
            found.append(token)
            submits.append(GPU.queue.submits)
    assert found == expected
    assert set(np.diff(submits)[3:].tolist()) == {1}  # once it is recorded


def test_tokens_drawn_ahead_share_a_submit():
    model = gpt2.GPT2(gpt2.Config(1, 2, 8, 23, 64)).to(GPU)
    expected = list(generate(model, [1, 5, 7], 40, generator=ta.random.Generator(0, GPU)))
    before = GPU.queue.submits
    assert list(generate(model, [1, 5, 7], 40, generator=ta.random.Generator(0, GPU), ahead=8)) == expected
    assert GPU.queue.submits - before < 16


# --- products of few rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("n, k, m", [(1, 200, 136), (3, 8, 700), (4, 1028, 50)])
@pytest.mark.parametrize("turned", [False, True])
def test_products_of_few_rows(n, k, m, turned):
    rng = np.random.default_rng(0)
    x, w, bias, more = (rng.normal(size=size).astype(np.float32) for size in ((n, k), (m, k), (m,), (m, n)))
    weight = ta.tensor(w.T.copy(), device=GPU).T if turned else ta.tensor(w, device=GPU)
    seen = []
    GPU.queue.observers.append(lambda entries: seen.extend(entry.shader.name for entry in entries if entry))
    with body(GPU, True):
        given = ta.tensor(x, device=GPU), weight, ta.tensor(bias, device=GPU)
        residual = ta.tensor(more, device=GPU).T
        y, z = (F.linear(*given, residual=residual, activation=name).numpy() for name in (None, "relu"))
    GPU.queue.observers.pop()
    assert seen.count("matvec") == (0 if turned and m % 4 else 2)
    exact = x.astype(np.float64) @ w.T + bias + more.T
    terms = np.abs(x).astype(np.float64) @ np.abs(w.T) + np.abs(bias) + np.abs(more.T)
    bound = (k + 3) * oracle.EPS * terms
    assert not oracle.mismatch(y, exact, bound).any()
    assert not oracle.mismatch(z, np.maximum(exact, 0), bound).any()


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("sums[r] += meeting", "sums[r] = meeting"),
        ("min(column + j, push.m - 1) * push.b_step", "(column + j) * 4"),
        ("push.bias < 0 ? 0.0", "true ? 0.0"),
        ("min(r, push.n - 1) * push.a_row", "0"),
    ],
)
def test_a_broken_product_of_few_rows_is_caught(right, wrong, tmp_path):
    with broken(GPU, tmp_path, "matvec.comp", right, wrong), pytest.raises(AssertionError):
        test_products_of_few_rows(3, 200, 136, False)
