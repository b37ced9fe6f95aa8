"""Reductions and running sums on Vulkan: against the definitions, on both bodies, with odd group sizes."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison, body
from tinyadept.backends.vulkan.drivers import reduce
from tinyadept.ops import registry
from tinyadept.ops.table import apply_into
from tinyadept.view import View

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()

ROWS = [op for op in registry.values() if op.family.name in ("reduce", "scan")]
WHOLE = {"sum", "prod", "amax", "amin", "argmax", "argmin", "any", "all", "cumsum"}  # take integers too


def laid_out(values, layout):
    """An array in memory: dense, with its axes in reverse, or backwards with gaps."""
    if layout == "reversed axes":
        memory = np.ascontiguousarray(values.T)
        return oracle.Given(memory.ravel(), View.dense(memory.shape).permute(range(values.ndim)[::-1]))
    if layout == "gaps":
        memory = np.zeros(tuple(2 * n + 1 for n in values.shape), values.dtype)
        key = tuple(slice(None, 0, -2) for _ in values.shape)
        memory[key] = values
        return oracle.Given(memory.ravel(), View.dense(memory.shape).index(key))
    return oracle.Given(values.ravel(), View.dense(values.shape))


def check(case, device=GPU):
    truth = case.truth()
    got = case.run(device)[0].numpy()
    assert got.shape == truth.shape
    with np.errstate(all="ignore"):
        wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), (
        f"{case.op.name} {case.params}, {case.inputs[0].view}: {wrong.sum()} of {wrong.size} wrong, first "
        f"{got[wrong][0]}, truth {truth[wrong][0]}"
    )


def params_of(op, axes):
    if op.family.name == "scan":
        return {"axis": axes[0]}
    return {"axes": axes, **({"correction": 1} if op.name == "var" else {})}


def values_for(op, shape, kind, rng):
    if kind == "float32":
        values = rng.standard_normal(shape)
        values = np.exp(values * 0.01) if op.name == "prod" else values + (op.name in ("sum", "mean"))
        return values.astype(np.float32)
    values = rng.integers(0, 2 if op.name == "prod" else 5, shape)
    if op.name in ("any", "all"):  # mostly alike, so that a single element decides
        values = np.full(shape, op.name == "all")
        values.ravel()[:: max(values.size // 3, 1)] = op.name == "any"
    return values.astype(kind)


# --- any view, any parameter --------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@given(data=st.data())
def test_random_cases(op, data):
    case = data.draw(oracle.cases(op))
    with Poison(GPU.allocator, GPU.transfer) as poison:
        check(case)
        poison.check()


# Shapes that meet every way of spreading a fold: rows, tails behind fours, columns, columns in fours, few
# results of many elements, several axes, none.
SHAPES = [
    ((5003,), (0,)),
    ((7, 1024), (1,)),
    ((513, 33), (1,)),
    ((513, 36), (0,)),
    ((2, 9001), (1,)),
    ((9001, 3), (0,)),
    ((70000, 2), (1,)),
    ((3, 8, 16, 20), (0, 2, 3)),
    ((3, 8, 5, 7), (0, 2, 3)),
    ((6, 5, 7, 4), (1, 2)),
    ((33, 101), (0, 1)),
    ((4, 1, 3), (1,)),
]


@pytest.mark.parametrize("layout", ["dense", "reversed axes", "gaps"])
@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_large_shapes(op, layout, gpu):
    rng = np.random.default_rng(1)
    for shape, axes in SHAPES:
        if len(axes) > 1 and (op.name.startswith("arg") or op.family.name == "scan"):
            continue
        for kind in ("float32", "int32", "bool") if op.name in WHOLE else ("float32",):
            values = values_for(op, shape, kind, rng)
            case = oracle.Case(op, (laid_out(values, layout),), params_of(op, axes))
            if (
                op.name == "cumsum" and kind == "float32"
            ):  # where sums nearly cancel, only their terms bound the error
                truth, got = case.truth(), case.run(gpu)[0].numpy()
                np.testing.assert_allclose(got, truth, rtol=4 * oracle.EPS, atol=1e-9)
            else:
                check(case, gpu)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "var", "norm", "logsumexp", "any", "all", "cumsum"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0), ()])
def test_nothing_to_fold(name, shape, gpu):
    op, ones = registry[name], np.ones(shape, np.float32)
    for axis in range(len(shape)):
        check(oracle.Case(op, (laid_out(ones, "dense"),), params_of(op, (axis,))), gpu)
    if not shape:
        params = {"axis": 0} if op.family.name == "scan" else params_of(op, ())
        truth = oracle.Case(op, (laid_out(ones, "dense"),), params)
        np.testing.assert_array_equal(truth.run(gpu)[0].numpy(), truth.run()[0].numpy())


# --- values that break plain kernels ------------------------------------------------------------------------


def on(gpu, values):
    return ta.tensor(np.asarray(values), device=gpu)


@pytest.mark.parametrize("at", [0, 1, 31, 64])
def test_small_terms_are_not_lost(at, gpu):
    values = np.ones(65, np.float32)
    values[at] = 2.0**24
    assert on(gpu, values).sum().item() == 16777280
    assert on(gpu, values).mean().item() == np.float32(16777280 / 65)
    assert on(gpu, values).cumsum(0).numpy()[-1] == 16777280


def test_a_long_sum_is_exact_to_the_last_bit(gpu):
    values = np.ones(1 << 18, np.float32)
    values[::2] = 1e-4
    truth = values.sum(dtype=np.float64)
    for x in (on(gpu, values), on(gpu, values.reshape(1, -1, 1))):
        assert x.sum().item() == np.float32(truth)


def test_integers_wrap_and_keep_every_bit(gpu):
    values = np.array([2**31 - 1, 1, 7, -(2**31), 2**24 + 1], np.int32)
    total = values.sum(dtype=np.int64).astype(np.int32)
    assert on(gpu, values).sum().item() == total
    assert on(gpu, np.full(300, 255, np.uint8)).sum().item() == 300 * 255
    assert on(gpu, np.full(31, 3, np.int32)).prod().item() == np.array(3**31 % 2**32, np.uint32).astype(
        np.int32
    )


@pytest.mark.parametrize("place", [0, 5, 1022])
def test_nan_and_infinity(place, gpu):
    rng = np.random.default_rng(0)
    for special in (np.nan, np.inf, -np.inf):
        values = rng.standard_normal((3, 1023)).astype(np.float32)
        values[1, place] = special
        for op in ROWS:
            if op.name in ("any", "all"):
                continue
            check(oracle.Case(op, (laid_out(values, "dense"),), params_of(op, (1,))), gpu)


def test_nan_wins_whatever_its_sign(gpu):
    bits = np.array([0x3F800000, 0xFFC00000, 0x7FC00000, 0x7F800000], np.uint32)
    x = on(gpu, bits.view(np.float32))
    assert np.isnan(x.amax(0).item()) and np.isnan(x.amin(0).item())
    assert x.argmax(0).item() == 1 and x.argmin(0).item() == 1


def test_the_first_of_equals(gpu):
    values = np.zeros((2, 3001), np.float32)
    values[:, [700, 1400, 3000]] = 1
    x = on(gpu, values)
    assert x.argmax(1).numpy().tolist() == [700, 700]
    assert (-x).argmin(1).numpy().tolist() == [700, 700]
    assert on(gpu, values.T).argmax(0).numpy().tolist() == [700, 700]
    assert on(gpu, np.array([-0.0, 0.0], np.float32)).argmax(0).item() == 0
    assert on(gpu, np.array([0.0, -0.0], np.float32)).argmin(0).item() == 0


def test_partial_products_and_squares_do_not_overflow(gpu):
    assert on(gpu, np.array([1e30, 1e30, 1e-30], np.float32)).prod().item() == np.float32(1e30)
    assert on(gpu, np.array([1e-30, 1e-30, 1e30], np.float32)).prod().item() == pytest.approx(1e-30)
    for scale in (1e30, 1e-30, 1.0):
        values = np.array([3, 4, 0, 12], np.float32) * np.float32(scale)
        check(oracle.Case(registry["norm"], (laid_out(values, "dense"),), {"axes": (0,)}), gpu)


def test_a_large_mean_costs_no_digits(gpu):
    for offset in (1e4, -1e6):
        values = np.array([0, 1, 2, 3], np.float32) + np.float32(offset)
        assert on(gpu, values).var(0, correction=0).item() == 1.25
    assert on(gpu, np.full(1000, 100.1, np.float32)).var(0).item() == 0
    outlier = np.ones((1, 5000), np.float32)
    outlier[0, 0] = 1e7  # the element that others are compared with
    check(oracle.Case(registry["var"], (laid_out(outlier, "dense"),), {"axes": (1,), "correction": 1}), gpu)


def test_logsumexp(gpu):
    cases = [[-np.inf, -np.inf], [1000, 1001], [-1000, -1001], [np.inf, 1], [-np.inf, 3], [-0.6931, -0.6932]]
    for values in cases:
        given_ = laid_out(np.array(values, np.float32), "dense")
        check(oracle.Case(registry["logsumexp"], (given_,), {"axes": (0,)}), gpu)


def test_more_results_than_groups(gpu):
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, (66000 * 4, 3)).astype(np.float32)
    np.testing.assert_array_equal(on(gpu, values).sum(1).numpy(), values.sum(1))


def test_the_same_bits_every_time(gpu):
    x = on(gpu, np.random.default_rng(0).standard_normal((3, 40000)).astype(np.float32))
    first = [x.sum(1).numpy(), x.logsumexp(1).numpy(), x.var(1).numpy(), x.cumsum(1).numpy()]
    for _ in range(3):
        again = [x.sum(1).numpy(), x.logsumexp(1).numpy(), x.var(1).numpy(), x.cumsum(1).numpy()]
        for a, b in zip(first, again):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_into_a_strided_view(dtype, gpu):
    values = np.arange(12, dtype=np.int32).reshape(3, 4)
    target = ta.tensor(np.zeros((4, 3), dtype), device=gpu)
    apply_into(registry["sum"], target.mT[::-1, 1:2], (on(gpu, values),), {"axes": (1,)})
    expected = np.zeros((4, 3), dtype)
    expected.T[::-1, 1:2] = values.sum(1, keepdims=True)
    np.testing.assert_array_equal(target.numpy(), expected)
    apply_into(registry["cumsum"], target, (target,), {"axis": 0})
    np.testing.assert_array_equal(target.numpy(), expected.cumsum(0))


def test_a_fold_of_a_few_results_is_two_dispatches(monkeypatch):
    x = on(GPU, np.ones((2, 1 << 16), np.float32))
    GPU.queue.flush()
    seen = []
    monkeypatch.setattr(GPU.queue, "observers", [lambda entries: seen.extend(filter(None, entries))])
    with body(GPU, tiled=True, local=64):
        x.sum(1), x.reshape(1 << 10, 1 << 7).sum(0)
    GPU.queue.flush()
    assert [entry.shader.name for entry in seen] == ["reduce"] * 4


# --- broken kernels are caught ------------------------------------------------------------------------------

MUTANTS = {
    "offset": ("reduce.comp", "int base = push.from_offset +", "int base ="),
    "stride": (
        "reduce.comp",
        "(i - rest * push.shape[axis]) * strides[axis]",
        "(i - rest * push.shape[axis])",
    ),
    "tail of fours": ("reduce.comp", "if (part == 0) fold_tail", "if (part < 0) fold_tail"),
    "end of a part": ("reduce.comp", "for (; i < last; i += step)", "for (; i < last - 1; i += step)"),
    "last part": ("reduce.comp", "if (i + b * step < last)", "if (i + b * step < last - 1)"),
    "read twice": ("reduce.comp", "if (i + b * step < last)", "if (true)"),
    "a lane is forgotten": ("team.glsl", "int other = lane + next;", "int other = lane + 2 * next;"),
    "what was lost": ("reduce.glsl", "sum = vec2(next.x, sum.y + next.y);", "sum = vec2(next.x, sum.y);"),
    "ties": ("reduce.glsl", "b.at < a.at", "b.at > a.at"),
    "NaN": ("reduce.glsl", "is_nan(uintBitsToFloat(x)) ? BEST : ordered(int(x))", "ordered(int(x))"),
    "negative numbers": ("reduce.glsl", "return bits ^ ((bits >> 31) & 0x7FFFFFFF);", "return bits;"),
    "carry": ("scan.comp", "carry = merged(carry, total);", "carry = total;"),
    "parts before": ("scan.comp", "for (int p = lane; p < part;", "for (int p = lane; p < part - 1;"),
}


def all_checks(gpu):
    for name in ("sum", "mean", "amax", "argmax", "cumsum"):
        test_large_shapes(registry[name], "dense", gpu)
        test_large_shapes(registry[name], "gaps", gpu)
    test_small_terms_are_not_lost(1, gpu)
    test_the_first_of_equals(gpu)
    test_nan_wins_whatever_its_sign(gpu)


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("tiled", [False, True])
def test_a_broken_kernel_is_caught(mutant, tiled, tmp_path, backend):  # whose pipelines go with it
    with body(backend, tiled, 8), broken(backend, tmp_path, *MUTANTS[mutant]), pytest.raises(AssertionError):
        all_checks(backend)


def test_plans_give_way_when_axes_cannot_be_merged():
    x = ta.tensor(np.ones((2,) * 8, np.float32), device=GPU)
    assert x.sum((0, 2, 4)).numpy().tolist() == np.full((2,) * 5, 8.0).tolist()
    with pytest.raises(ta.Unsupported, match=f"walk {reduce.MAX_AXES}"):
        ta.tensor(np.ones((2,) * 9, np.float32), device=GPU).sum((0, 2, 4, 6))
