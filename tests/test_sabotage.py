"""An oracle that was never seen failing proves nothing: broken kernels and broken rules must be caught."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from tinyadept import oracle
from tinyadept.backends.reference import Reference
from tinyadept.ops import elementwise, registry
from tinyadept.view import View, row_major

SEARCH = settings(
    max_examples=400, database=None, derandomize=True, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


class IgnoresOffsets(Reference):
    def download(self, x):
        view = x.layout
        shifted = View(view.shape, view.strides, max(0, view.offset - view.span[0]) if view.size else 0)
        return read(x.buffer.data, shifted)


class IgnoresStrides(Reference):
    def download(self, x):
        low, high = x.layout.span
        if high - low < x.layout.size:  # repeated cells: nothing to misread without leaving the memory
            return super().download(x)
        return read(x.buffer.data, View(x.layout.shape, row_major(x.layout.shape), low))


class DropsTheTail(Reference):
    """Forgets the last elements, as a grid does that was rounded down."""

    def run(self, op, inputs, shape, dtype, params, into=None):
        buffer = super().run(op, inputs, shape, dtype, params, into)
        flat = buffer.data.reshape(-1)
        flat[len(flat) // 4 * 4 :] = 77
        return buffer


class IsSlightlyOff(Reference):
    """Wrong by 1e-4 in one element of each result."""

    def run(self, op, inputs, shape, dtype, params, into=None):
        buffer = super().run(op, inputs, shape, dtype, params, into)
        flat = buffer.data.reshape(-1)
        flat[:1] = flat[:1] * (1 + 1e-4) if dtype.kind == "f" else ~flat[:1]
        return buffer


class LosesNaN(Reference):
    def run(self, op, inputs, shape, dtype, params, into=None):
        buffer = super().run(op, inputs, shape, dtype, params, into)
        if dtype.kind == "f":
            np.nan_to_num(buffer.data, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
        return buffer


def read(memory, view):
    size = memory.itemsize
    return np.ndarray(
        view.shape, memory.dtype, memory, view.offset * size, [s * size for s in view.strides]
    ).copy()


def is_caught(op, backend, search=SEARCH):
    """Whether some drawn case shows that the backend is broken."""

    def wrong(case):
        truth = case.truth()
        try:
            got = Reference().download(case.run(backend)[0].detach())
        except (AssertionError, IndexError):  # a misread index or shape is a failure too
            return True
        return bool(oracle.mismatch(got, truth, case.bound(truth)).any())

    try:
        find(oracle.cases(op), wrong, settings=search)
    except NoSuchExample:
        return False
    return True


ONE_PER_FAMILY = [
    registry[name]
    for name in (
        "mul cast sum cumsum cat place take put_add put take_along put_along_add put_along in_range "
        "nonzero argsort matmul softmax conv conv_input avg_pool pool_take pool_put attention append rotary"
    ).split()
]


@pytest.mark.parametrize("op", ONE_PER_FAMILY, ids=lambda op: op.name)
@pytest.mark.parametrize("broken", [IgnoresOffsets, IgnoresStrides, DropsTheTail, IsSlightlyOff])
def test_every_family_catches_a_broken_kernel(op, broken):
    assert is_caught(op, broken())


@pytest.mark.parametrize("name", ["add", "exp", "relu", "maximum", "tanh"])
def test_lost_nan_is_caught(name):
    assert is_caught(registry[name], LosesNaN())


@pytest.mark.slow
@pytest.mark.parametrize("op", ONE_PER_FAMILY, ids=lambda op: op.name)
def test_a_sound_kernel_is_not_accused(op):
    assert not is_caught(op, Reference(), settings(SEARCH, max_examples=100))  # test_oracle draws many more


def last_of_equals(a, axes):
    flipped = np.argmax(np.flip(a, axes[0]), axis=axes[0], keepdims=True) if axes else np.zeros((), np.int32)
    return (a.shape[axes[0]] - 1 - flipped if axes else flipped).astype(np.int32)


def test_ties_taken_from_the_wrong_end_are_caught():
    op = registry["argmax"]
    mutant = dataclasses.replace(op, forward=last_of_equals)

    def wrong(case):
        return bool((case.truth() != dataclasses.replace(case, op=mutant).run()[0].numpy()).any())

    assert find(oracle.cases(op), wrong, settings=SEARCH)


WRONG_RULES = {
    "mul": (lambda g, out, a, b: g * b, lambda g, out, a, b: g * b),
    "div": (lambda g, out, a, b: g / b, lambda g, out, a, b: g * out / b),
    "tanh": (lambda g, out, a: g * (1 - out),),
    "exp": (lambda g, out, a: g * out * (1 + 1e-4),),
    "gelu": (lambda g, out, a: g * elementwise.gelu_tanh_slope(a),),
    "mean": (lambda g, out, a, axes: g.expand(a.shape),),
    "cumsum": (lambda g, out, a, axis: elementwise.mul(g, 1.0),),
    "softmax": (lambda g, out, a, axis: out * g,),
    "normalize": (lambda g, out, a, w=None, b=None, *, needs, axes, eps: (g * out, g, g),),
    "matmul": (lambda g, out, a, b: g @ b.mT, lambda g, out, a, b: (g.mT @ a).mT * 1.001),
}


@pytest.mark.parametrize("name", WRONG_RULES)
def test_wrong_rules_are_caught(name):
    op = dataclasses.replace(registry[name], vjps=WRONG_RULES[name], plans={})

    def wrong(case):
        try:
            oracle.check_gradient(case)
        except oracle.Wrong:
            return True
        return False

    assert find(oracle.cases(op, extremes=False), wrong, settings=SEARCH)


def test_ulps_are_counted_where_they_matter():
    truth = np.array([1.0, 1e-30, 0.0])
    got = truth.astype(np.float32)
    assert not oracle.mismatch(got, truth, 4 * oracle.EPS * np.abs(truth)).any()
    got[1] *= 1 + 1e-4
    assert oracle.mismatch(got, truth, 4 * oracle.EPS * np.abs(truth)).tolist() == [False, True, False]


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_special_values_must_meet_their_like(special):
    truth = np.array([special])
    assert not oracle.mismatch(truth.astype(np.float32), truth, np.inf if np.isnan(special) else 0.0).any()
    assert oracle.mismatch(np.float32([1.0]), truth, 1e30).all()


def test_search_strategy_draws_every_kind_of_view():
    seen = set()

    def note(case):
        for x in case.inputs:
            v = x.view
            seen.update(
                kind
                for kind, is_there in {
                    "offset": v.offset > 0, "reversed": any(s < 0 for s in v.strides), "empty": v.size == 0,
                    "repeated": any(s == 0 and n > 1 for s, n in zip(v.strides, v.shape, strict=True)),
                    "0-d": v.shape == (), "dense": v.is_contiguous, "permuted": not v.is_contiguous,
                }.items()
                if is_there
            )  # fmt: skip
        return False

    with pytest.raises(NoSuchExample):
        find(oracle.cases(registry["add"]), note, settings=SEARCH)
    assert seen == {"offset", "reversed", "empty", "repeated", "0-d", "dense", "permuted"}
    assert isinstance(oracle.cases(registry["add"]), st.SearchStrategy)
