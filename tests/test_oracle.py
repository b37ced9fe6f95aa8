"""Every op on every device against its definition in float64; every gradient against differences."""

import numpy as np
import pytest
from conftest import DEVICES
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept import oracle
from tinyadept.ops import registry
from tinyadept.ops.table import apply

DRAWN = [op for op in registry.values() if op.family.name not in oracle.UNDRAWN]
DIFFERENTIABLE = [op for op in DRAWN if any(op.vjps)]
MEANING = {  # the moves, said by NumPy
    "permute": lambda a, order: a.transpose(order),
    "expand": lambda a, shape: np.broadcast_to(a, shape),
    "reshape": lambda a, shape: a.reshape(shape),
    "index": lambda a, key: a[key],
    "diagonal": lambda a, offset, axis1, axis2: np.diagonal(a, offset, axis1, axis2),
    "windows": lambda a, axis, size, step: np.moveaxis(
        np.moveaxis(np.lib.stride_tricks.sliding_window_view(a, size, axis), axis, 0)[::step], 0, axis
    ),
}


def by_name(op):
    return op.name


def complaint(case, got, truth, wrong):
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if got.ndim else ()
    views = [x.view for x in case.inputs]
    return (
        f"{case.op.name} at {at}: got {got[at]!r}, truth {truth[at]!r}; params {case.params}, views {views}"
    )


@pytest.mark.parametrize("op", DRAWN, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
@given(data=st.data())
def test_forward_is_the_definition(device, op, data):
    case = data.draw(oracle.cases(op))
    got, inputs = case.run(device)
    got = got.numpy()
    if op.family.name == "move":
        truth = MEANING[op.name](case.inputs[0].values, **case.params).astype(np.float64)
    else:
        truth = case.truth()
        if device == "numpy":
            assert not any(np.shares_memory(got, x.buffer.data) for x in inputs), (
                "the result aliases an input"
            )
    assert got.shape == truth.shape
    wrong = oracle.mismatch(got, truth, case.bound(truth))
    assert not wrong.any(), complaint(case, got, truth, wrong)
    for x, before in zip(inputs, case.inputs, strict=True):
        np.testing.assert_array_equal(x.numpy(), before.values, err_msg="an input was changed")


def float_inputs(case):
    return [position for position, x in enumerate(case.inputs) if x.memory.dtype == np.float32]


def smooth(case):
    """Whether differences can be taken at all."""
    return bool(float_inputs(case))


def checked_function(case):
    """The op as a function of its float inputs, in float64."""
    where = float_inputs(case)
    fixed = [x.on("numpy") for x in case.inputs]
    wide = [
        ta.tensor(case.inputs[position].values, dtype=ta.float64, requires_grad=True) for position in where
    ]

    def function(*floats):
        inputs = list(fixed)
        for position, x in zip(where, floats, strict=True):
            inputs[position] = x
        return apply(case.op, tuple(inputs), dict(case.params))

    return function, wide


def has_differences(out):
    """Whether the result is a finite real number; a cast may make integers."""
    return out.is_floating_point and np.isfinite(out.detach().numpy()).all()


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@given(data=st.data())
def test_gradient_agrees_with_differences(op, data):
    case = data.draw(oracle.cases(op, extremes=False))
    if not smooth(case):
        return
    function, wide = checked_function(case)
    if has_differences(function(*wide)):
        ta.gradcheck(function, wide, directions=1, seed=data.draw(st.integers(0, 999)))


@pytest.mark.slow
@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@given(data=st.data())
def test_second_gradient_agrees_with_differences(op, data):
    case = data.draw(oracle.cases(op, extremes=False))
    if not smooth(case):
        return
    function, wide = checked_function(case)
    if has_differences(function(*wide)):
        ta.gradcheck(
            function, wide, order=2, directions=1, tolerance=1e-4, seed=data.draw(st.integers(0, 999))
        )


@pytest.mark.parametrize("op", DIFFERENTIABLE, ids=by_name)
@pytest.mark.parametrize("device", DEVICES)
@given(data=st.data())
def test_backward_in_float32_agrees_with_float64(device, op, data):
    case = data.draw(oracle.cases(op, extremes=False))
    if case.params.get("dtype") == ta.float64:
        return  # a cast that only the reference has
    grads = []
    for where, dtype in ((device, np.float32), ("numpy", np.float64)):
        out, inputs = case.run(where, dtype=dtype, requires_grad=True)
        if not out.requires_grad:
            return
        incoming = np.linspace(-1, 1, out.numel()).reshape(out.shape)
        if not smooth(case) or not np.isfinite(out.detach().numpy()).all():
            return
        before = incoming.copy()
        g = ta.tensor(incoming, dtype=dtype, device=where)
        out.backward(g)
        np.testing.assert_array_equal(
            g.numpy(), before.astype(dtype), err_msg="a rule changed the gradient it got"
        )
        grads.append([x.grad.numpy() for x in inputs if x.grad is not None])
    for narrow, wide in zip(*grads, strict=True):
        scale = np.abs(wide).max(initial=1.0)
        np.testing.assert_allclose(narrow, wide, rtol=1e-4, atol=2e-5 * scale)
