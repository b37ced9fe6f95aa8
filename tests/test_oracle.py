"""Every op on every device against its definition in float64; every gradient against differences."""

import pytest
import rows
from conftest import DEVICES
from hypothesis import given
from hypothesis import strategies as st

from tinyadept import oracle
from tinyadept.backends.vulkan.debug import body

DRAWN = oracle.drawn()
DIFFERENTIABLE = [op for op in DRAWN if any(op.vjps)]
# Families of which a kernel has two bodies, one for CPU drivers and one for GPUs.
TWO_BODIES = ("matmul", "reduce", "scan", "norm", "sort", "put", "put_add", "put_along_add", "conv", "conv_back")


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


@of_two_bodies(DRAWN)
@given(data=st.data())
def test_the_other_body_is_the_definition_on_vulkan(other_body, op, data):
    oracle.check_forward(data.draw(oracle.cases(op)), other_body)


@of_two_bodies(DIFFERENTIABLE)
@given(data=st.data())
def test_backward_on_the_other_body_of_vulkan(other_body, op, data):
    oracle.check_backward(data.draw(oracle.cases(op, extremes=False)), other_body)


def test_what_has_two_bodies_is_run_on_both(other_body):
    """Dispatches of families that are not listed do not depend on the body."""
    seen = []
    other_body.queue.observers.append(seen.append)

    def shaders(case):
        other_body.queue.flush()
        seen.clear()
        case.run(other_body)
        other_body.queue.flush()
        return [(str(entry.shader), entry.groups) for entries in seen for entry in entries if entry]

    two = set()
    for op in DRAWN:
        for case in rows.calls(op, examples=3):
            here = shaders(case)
            with body(other_body, not other_body.tiled):
                if shaders(case) != here:
                    two.add(op.family.name)
    other_body.queue.observers.remove(seen.append)
    assert two <= set(TWO_BODIES)
    assert two >= {"matmul", "reduce", "norm", "sort", "conv"}
