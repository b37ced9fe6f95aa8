"""Every op on every device against its definition in float64; every gradient against differences."""

import pytest
import rows
from conftest import DEVICES, absent
from hypothesis import given, settings
from hypothesis import strategies as st

from tinyadept import oracle
from tinyadept.backends.vulkan.debug import body

DRAWN = oracle.drawn()
DIFFERENTIABLE = [op for op in DRAWN if any(op.vjps)]
# Families of which a kernel has two bodies, one for CPU drivers and one for GPUs.
TWO_BODIES = set(
    "matmul linear reduce scan norm statistics sort put_add put_along_add conv conv_back pool_back "
    "attention".split()
)


def by_name(op):
    return op.name


@pytest.mark.parametrize("op", DRAWN, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
@given(data=st.data())
def test_forward_is_the_definition(device, op, data):
    oracle.check_forward(data.draw(oracle.cases(op)), device)


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@given(data=st.data())
def test_gradient_agrees_with_differences(op, data):
    case = data.draw(oracle.cases(op, extremes=False))
    oracle.check_gradient(case, seed=data.draw(st.integers(0, 999)))


@pytest.mark.slow
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@given(data=st.data())
def test_second_gradient_agrees_with_differences(op, data):
    case = data.draw(oracle.cases(op, extremes=False))
    oracle.check_second_gradient(case, seed=data.draw(st.integers(0, 999)))


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
@given(data=st.data())
def test_backward_in_float32_agrees_with_float64(device, op, data):
    oracle.check_backward(data.draw(oracle.cases(op, extremes=False)), device)


def of_two_bodies(ops):
    return pytest.mark.parametrize("op", [op for op in ops if op.family.name in TWO_BODIES], ids=by_name)


fewer = settings(
    max_examples=max(1, settings().max_examples // 3)
)  # each kernel is compiled for the processor


@pytest.mark.slow
@of_two_bodies(DRAWN)
@fewer
@given(data=st.data())
def test_the_other_body_is_the_definition_on_vulkan(other_body, op, data):
    oracle.check_forward(data.draw(oracle.cases(op)), other_body)


@pytest.mark.slow
@of_two_bodies(DIFFERENTIABLE)
@fewer
@given(data=st.data())
def test_backward_on_the_other_body_of_vulkan(other_body, op, data):
    oracle.check_backward(data.draw(oracle.cases(op, extremes=False)), other_body)


@absent
def test_the_families_of_two_bodies_are_listed(backend, monkeypatch):
    """What others dispatch does not depend on the body."""
    noted, two = [], set()

    def dispatch(shader, groups, *rest, **more):
        noted.append((str(shader), groups))

    monkeypatch.setattr(backend.queue, "dispatch", dispatch)

    def dispatches(case):
        noted.clear()
        case.run(backend)
        return list(noted)

    for op in DRAWN:
        for case in rows.calls(op, examples=3):
            there = dispatches(case)
            with body(backend, not backend.tiled):
                if dispatches(case) != there:
                    two.add(op.family.name)
    assert two == TWO_BODIES
