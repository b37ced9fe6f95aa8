"""Softmax and the normalisations on Vulkan: against the definitions, on both bodies, with odd group sizes."""

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison, body
from tinyadept.backends.vulkan.drivers.norm import sources_of
from tinyadept.ops import registry
from tinyadept.ops.table import apply, apply_into
from tinyadept.view import View

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

GPU = vulkan()

ROWS = [op for op in registry.values() if op.family.name == "norm"]
SCALED = ("normalize", "normalize_input")  # which take weights, and statistics of their rows


def dense(values):
    return oracle.Given(values.ravel(), View.dense(values.shape))


def reversed_axes(values):
    memory = np.ascontiguousarray(values.T)
    return oracle.Given(memory.ravel(), View.dense(memory.shape).permute(range(values.ndim)[::-1]))


LAYOUTS = {
    "dense": (dense, dense),
    "reversed axes": (reversed_axes, reversed_axes),
    "mixed": (dense, reversed_axes),
}


def make_case(op, axes, inputs):
    if "softmax" in op.name:
        return oracle.Case(op, inputs, {"axis": axes[0] if axes else 0})
    if op.name == "moments":
        return oracle.Case(op, inputs, {"axes": axes})
    return oracle.Case(op, inputs, {"axes": axes, "eps": 1e-2})


def check(case, device=GPU):
    truth = case.truth()
    got = case.run(device)[0].numpy()
    assert got.shape == truth.shape
    with np.errstate(all="ignore"):
        wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), (
        f"{case.op.name} {case.params}, {[x.view for x in case.inputs]}: "
        f"{wrong.sum()} of {wrong.size} wrong, first {got[wrong][0]}, truth {truth[wrong][0]}"
    )


@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
@given(data=st.data())
def test_random_cases(op, data):
    case = data.draw(oracle.cases(op))
    with Poison(GPU.allocator, GPU.transfer) as poison:
        check(case)
        poison.check()


# Rows that one lane holds, that a workgroup holds, and that none does; whole fours or not; columns; batches.
SHAPES = [
    ((7, 128), (1,)),
    ((7, 1024), (1,)),
    ((5, 257), (1,)),
    ((1024, 7), (0,)),
    ((300, 36), (0,)),
    ((2, 9000), (1,)),
    ((2, 9001), (1,)),
    ((9000, 8), (0,)),
    ((4, 8, 16, 32), (0, 2, 3)),
    ((4, 8, 11, 13), (0, 2, 3)),
    ((3, 5, 40, 4), (1,)),
    ((33, 101), (0, 1)),
    ((70000, 3), (1,)),
    ((3, 1), (1,)),
    ((), ()),
]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", ROWS, ids=lambda op: op.name)
def test_large_shapes(op, layout, gpu):
    rng = np.random.default_rng(1)
    for shape, axes in SHAPES:
        if len(axes) > 1 and "softmax" in op.name:
            continue
        values = [np.asarray(rng.uniform(-3, 3, shape)).astype(np.float32) for _ in range(sources_of(op))]
        check(make_case(op, axes, tuple(place(v) for place, v in zip(LAYOUTS[layout], values))), gpu)


def with_weights(op, shape, axes, line, known):
    """A case with a weight for each place of `line`, a bias, and the statistics of its rows."""
    rng = np.random.default_rng(2)
    first, second = (rng.uniform(-3, 3, shape).astype(np.float32) + 5 for _ in range(2))
    weight, bias = (rng.uniform(-3, 3, line).astype(np.float32) for _ in range(2))
    m = registry["moments"].forward(first, axes)
    if op.name == "normalize":
        return make_case(op, axes, tuple(map(dense, (first, weight, bias, *[m] * known))))
    sums = registry["normalize_sums"].forward(second, first, m, axes, 1e-2)
    return make_case(op, axes, tuple(map(dense, (second, first, weight, *[sums] * known))))


REVERSED = (slice(None), slice(None, None, -1), slice(None), slice(None))
# Channels, elements of a row and of a group, and one weight for all.
LINES = [
    ((4, 8, 16, 32), (0, 2, 3), (1, 8, 1, 1)),
    ((4, 8, 11, 13), (0, 2, 3), (1, 8, 1, 1)),
    ((2, 4, 90, 100), (0, 2, 3), (1, 4, 1, 1)),
    ((4, 8, 16, 32), (2, 3), (1, 8, 1, 1)),
    ((9, 128), (1,), (1, 128)),
    ((3, 9001), (1,), (1, 9001)),
    ((300, 36), (0,), (1, 36)),
    ((4, 2, 6, 20), (2, 3), (1, 2, 6, 1)),
    ((5, 12), (0,), (1, 1)),
]


@pytest.mark.parametrize("op", [registry[name] for name in SCALED], ids=lambda op: op.name)
@pytest.mark.parametrize("known", [False, True])
def test_weights_and_known_statistics(op, known, gpu):
    for shape, axes, line in LINES:
        check(with_weights(op, shape, axes, line, known), gpu)
    case = with_weights(op, (4, 8, 16, 32), (0, 2, 3), (1, 8, 1, 1), known)
    backwards = [
        x if x.view.size != 8 else oracle.Given(x.memory, x.view.index(REVERSED)) for x in case.inputs
    ]
    check(oracle.Case(op, tuple(backwards), case.params), gpu)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics(layout, gpu):
    rng = np.random.default_rng(3)
    for shape, axes in [*SHAPES, ((2, 30000), (1,))]:
        g, a = (np.asarray(rng.uniform(-3, 3, shape) + mean).astype(np.float32) for mean in (0, 30000))
        m = registry["moments"].forward(a, axes)
        place = LAYOUTS[layout][0]
        check(make_case(registry["moments"], axes, (place(a),)), gpu)
        check(make_case(registry["normalize_sums"], axes, (place(g), place(a), dense(m))), gpu)


@pytest.mark.parametrize("length", [5, 600, 9001])
def test_special_values(length, gpu):
    rng = np.random.default_rng(0)
    for special in (np.nan, np.inf, -np.inf):
        for at in (0, length // 2, length - 1):
            values = rng.standard_normal((3, length)).astype(np.float32)
            values[1, at] = special
            for op in ROWS:
                inputs = (*(dense(np.ones_like(values)) for _ in range(sources_of(op) - 1)), dense(values))
                check(make_case(op, (1,), inputs), gpu)


@pytest.mark.parametrize("length", [3, 1000, 9001])
def test_wide_ranges(length, gpu):
    rng = np.random.default_rng(0)
    values = np.sort((rng.standard_normal((2, length)) * 40).astype(np.float32))
    for rows in (values, values[:, ::-1] + 1000, np.full((2, length), -np.inf, np.float32)):
        check(make_case(registry["softmax"], (1,), (dense(np.ascontiguousarray(rows)),)), gpu)
        check(make_case(registry["log_softmax"], (1,), (dense(np.ascontiguousarray(rows)),)), gpu)


@pytest.mark.parametrize("length", [3, 1000, 9001])
def test_a_constant_normalises_to_zero(length, gpu):
    for value in (100, -1e6, 0.1):
        x = ta.tensor(np.full((2, length), value, np.float32), device=gpu)
        assert not apply(registry["normalize"], (x,), {"axes": (1,), "eps": 1e-5}).numpy().any()


@pytest.mark.parametrize("length", [4, 1000, 9001])
def test_a_large_mean_costs_no_digits(length, gpu):
    values = (np.arange(2 * length).reshape(2, length) % 7 + 30000).astype(np.float32)
    check(make_case(registry["normalize"], (1,), (dense(values),)), gpu)
    values[:, 0] = 1e6  # the element that others are compared with
    check(make_case(registry["normalize"], (1,), (dense(values),)), gpu)


@pytest.mark.filterwarnings("ignore:Mean of empty slice")  # the oracle's
@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0)])
def test_nothing_to_scale(shape, gpu):
    for op in ROWS:
        for axis in range(len(shape)):
            ones = tuple(dense(np.ones(shape, np.float32)) for _ in range(sources_of(op)))
            check(make_case(op, (axis,), ones), gpu)


def test_in_place_and_into_a_view(gpu):
    values = np.random.default_rng(0).standard_normal((6, 8)).astype(np.float32)
    x, expected = ta.tensor(values, device=gpu), ta.tensor(values)
    for tensor in (x, expected):
        apply_into(registry["softmax"], tensor, (tensor,), {"axis": 1})
        apply_into(registry["normalize"], tensor[::-2, 1:4], (tensor[:3, :3],), {"axes": (0,), "eps": 1e-2})
    np.testing.assert_allclose(x.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def count_dispatches(monkeypatch, op, shape, **params):
    x = tuple(ta.tensor(np.ones(shape, np.float32), device=GPU) for _ in range(sources_of(op)))
    GPU.queue.flush()
    seen = []
    monkeypatch.setattr(GPU.queue, "observers", [lambda entries: seen.extend(filter(None, entries))])
    apply(op, x, params)
    GPU.queue.flush()
    return [entry.shader.name for entry in seen]


def test_a_row_that_fits_is_read_once(monkeypatch):
    with body(GPU, tiled=True, local=64):
        for op in ROWS:
            params = {"axis": 1} if "softmax" in op.name else {"axes": (1,), "eps": 1e-5}
            assert count_dispatches(monkeypatch, op, (4, 1024), **params) == ["norm"]
            folds = ["reduce"] * (2 if op.name == "normalize_input" else 1)
            assert count_dispatches(monkeypatch, op, (64, 9000), **params) == [*folds, "norm"]
        batch = {"axes": (0, 2, 3), "eps": 1e-5}
        assert count_dispatches(monkeypatch, registry["normalize"], (8, 4, 20, 20), **batch) == ["norm"]


OFFSETS = "ivec3(push.to_offset, push.x_offset, push.y_offset) +"
INDEX = "(i - rest * push.shape[axis]) * strides"
MUTANTS = {
    "offset": ("norm.comp", OFFSETS, "ivec3(push.to_offset, 0, 0) +"),
    "stride": ("norm.comp", INDEX, "ivec3(i - rest * push.shape[axis])"),
    "beyond the row": ("norm.comp", "return place(h) < push.folded;", "return true;"),
    "the wrong row": ("norm.comp", "rows[push.rows_offset + kept]", "rows[push.rows_offset]"),
    "a lane is forgotten": ("team.glsl", "int other = lane + next;", "int other = lane + 2 * next;"),
    "top": ("norm.comp", "s.top = max(s.top, inside(i / ALONG) ? x[i] : -INFINITY);", "s.top = 0.0;"),
    "NaN": ("norm.comp", "if (bits > 0x7F800000u) s.top = NAN;", ""),
    "a rounded difference": ("norm.glsl", "- n * LN2_LOW) + d.y;", "- n * LN2_LOW);"),
    "mean": ("norm.comp", "(x[i] - mean.x) - mean.y", "x[i] - mean.x * 1.0001"),
    "slope": ("norm.glsl", "* row.slope", "* row.scale"),
    "weight": ("norm.comp", "at += k * STEP;", ""),
    "bias": ("norm.comp", "bias[at - push.y_offset + push.more_offset]", "bias[push.more_offset]"),
    "the weight of a row": ("norm.comp", "(ACROSS == 4 ? at * 4 + k : at) * STEP", "at * STEP"),
    "unknown moments": ("norm.glsl", "if (a.variance == UNKNOWN) return", "if (false) return"),
    "another first element": ("norm.glsl", "a.taken > 0.0 ? a.first : b.first", "a.first"),
}


def all_checks(gpu):
    for op in ROWS:
        test_large_shapes(op, "dense", gpu)
        test_large_shapes(op, "mixed", gpu)
    for op in (registry[name] for name in SCALED):
        for known in (False, True):
            test_weights_and_known_statistics(op, known, gpu)
    test_statistics("dense", gpu)
    for x in (np.array([0, 1, 2, 3, np.nan], np.float32), np.float32([[500, -500, 0], [0, -500.1, -520.7]])):
        check(make_case(registry["softmax"], (x.ndim - 1,), (dense(x),)), gpu)
    test_wide_ranges(1000, gpu)
    base = ta.tensor(np.arange(48, dtype=np.float32).reshape(6, 8), device=gpu)[2:, 4:]
    soft = apply(registry["softmax"], (base,), {"axis": 0}).numpy()
    np.testing.assert_allclose(soft, registry["softmax"].forward(base.numpy(), 0), rtol=1e-5)


@pytest.mark.parametrize("mutant", MUTANTS)
@pytest.mark.parametrize("tiled", [False, True])
def test_a_broken_kernel_is_caught(mutant, tiled, tmp_path, backend):  # whose pipelines go with it
    with body(backend, tiled, 8), broken(backend, tmp_path, *MUTANTS[mutant]), pytest.raises(AssertionError):
        all_checks(backend)
