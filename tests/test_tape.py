"""The tape: accumulation, order, freeing, in-place writes, hooks, modes, and memory."""

import gc
import threading
import tracemalloc
import weakref

import numpy as np
import pytest

import tinyadept as ta
from tinyadept.backends.reference import Reference
from tinyadept.ops import elementwise
from tinyadept.tape import Outline, Step, mode


def leaf(values, dtype=None):
    return ta.tensor(values, dtype=dtype, requires_grad=True)


def test_a_chain_of_20000_steps_needs_no_recursion():
    x = leaf([1.0])
    y = x
    for _ in range(20_000):
        y = y + 1.0
    y.backward()
    assert x.grad.item() == 1
    del y  # neither does freeing it


def test_forty_doublings_are_forty_steps():
    x = leaf(1.0)
    y = x
    for _ in range(40):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**40


def test_backward_twice_accumulates_and_retains():
    a, b = leaf(3.0), leaf(2.0)
    e = (a + b) * 1
    e.backward(retain_graph=True)
    e.backward()
    assert a.grad.item() == 2
    x = leaf([1.0, 2.0])
    s = (x * x).sum()
    s.backward(retain_graph=True)
    s.backward()
    assert x.grad.tolist() == [4, 8]


def test_second_backward_says_what_to_do():
    x = leaf([1.0, 2.0])
    y = (x * x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        y.backward()


def test_shared_nodes():
    a, b = leaf(2.0), leaf(3.0)
    c, d = a + b, a * b
    ((c + d) + (c * d)).backward()
    assert (a.grad.item(), b.grad.item()) == (25, 19)


def test_gradients_of_leaves_share_no_memory():
    a, b = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    incoming = ta.tensor([1.0, 1.0])
    (a + b).backward(incoming)
    a.grad.mul_(5)
    assert b.grad.tolist() == [1, 1] and incoming.tolist() == [1, 1]
    c = leaf([[1.0, 2.0]])
    c.sum().backward()
    c.grad.mul_(2)  # not an expanded view
    assert c.grad.tolist() == [[2, 2]]


def test_overwriting_a_saved_value_is_an_error_that_shows_the_line():
    x = leaf([1.0, 2.0, 3.0])
    y = x * x
    with ta.no_grad():
        x[:] = 7
    with pytest.raises(RuntimeError, match=r"input 0 of mul.*\(3,\).*y = x \* x"):
        y.sum().backward()


@pytest.mark.parametrize("write", ["iadd", "copy_", "setitem", "through a view", "through detach"])
@pytest.mark.parametrize("saved", ["input", "result"])
def test_every_kind_of_write_is_noticed(write, saved):
    x = leaf([1.0, 2.0, 3.0])
    a = x + 0
    y = a * a if saved == "input" else a.exp()
    target = a if saved == "input" else y
    with ta.no_grad():
        if write == "iadd":
            target += 1
        elif write == "copy_":
            target.copy_(5)
        elif write == "setitem":
            target[0] = 5
        elif write == "through a view":
            target[1:].zero_()
        else:
            target.detach().fill_(3)
    with pytest.raises(RuntimeError, match="overwritten in place"):
        y.sum().backward()


def test_writes_to_values_that_no_rule_needs_are_fine():
    x = leaf([1.0, 2.0])
    a = x + 1
    b = a + 2  # the rule of add reads neither input
    with ta.no_grad():
        a.zero_()
    b.sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_in_place_on_a_leaf_is_refused():
    x = leaf([1.0])
    with pytest.raises(RuntimeError, match="leaf that needs a gradient"):
        x += 1
    with pytest.raises(RuntimeError, match="leaf"):
        x[0] = 1
    with ta.no_grad():
        x += 1
    assert x.tolist() == [2]


def test_in_place_continues_the_history():
    x = leaf([1.0, 2.0, 3.0])
    y = x * 2
    y += x
    y.mul_(3.0)
    y[0] = 0
    y.sum().backward()
    assert x.grad.tolist() == [0, 9, 9]


def test_assignment_of_a_recorded_value():
    v, board = leaf([1.0, 2.0]), ta.zeros(3, 2)
    board[0] = v * 2
    board[1] += v
    assert board.requires_grad
    (board * board).sum().backward()
    assert v.grad.tolist() == [10, 20]


def test_in_place_with_a_saved_input_of_itself():
    x = leaf([1.0, 2.0])
    y = x * 1
    y *= y  # would need the old value
    with pytest.raises(RuntimeError, match="overwritten"):
        y.sum().backward()


def test_a_view_taken_before_a_recorded_write_is_refused():
    x, y = ta.zeros(4), leaf([1.0, 2.0])
    early = x[:2]
    x[:2] = y
    with pytest.raises(RuntimeError, match="take the view again"):
        early * 2
    assert (x[:2] * 2).requires_grad


def test_backward_refuses_an_output_whose_memory_was_written_through_a_view():
    x = leaf([1.0, 2.0])
    y = x * 2
    y[:1].mul_(3)
    with pytest.raises(RuntimeError, match="take the view again"):
        y.backward(ta.ones(2))
    with pytest.raises(RuntimeError, match="take the view again"):
        ta.grad(y, x, ta.ones(2))


def test_a_write_off_the_tape_does_not_mend_a_lost_history():
    x = leaf([1.0, 2.0])
    y = x * 1
    early = y[:2]
    y.mul_(3)
    with ta.no_grad():
        early[0] = 5
    with pytest.raises(RuntimeError, match="take the view again"):
        early * 2
    assert (y * 2).tolist() == [10, 12]


def test_writing_to_repeated_cells_is_refused():
    with pytest.raises(RuntimeError, match="repeats cells"):
        ta.zeros(1, 3).expand(2, 3).add_(1)


def test_in_place_shape_and_dtype_must_fit():
    with pytest.raises(ValueError, match=r"\(2, 3\).*\(3,\)"):
        ta.zeros(3).add_(ta.zeros(2, 3))
    with pytest.raises(TypeError, match="float32 result does not fit a int32"):
        ta.tensor([1, 2]).mul_(1.5)


def test_no_grad_enable_grad_and_detach():
    x = leaf([1.0])
    with ta.no_grad():
        assert not (x * 2).requires_grad
        with ta.enable_grad():
            assert (x * 2).requires_grad
    assert (x * 2).requires_grad
    assert not x.detach().requires_grad and x.detach().buffer is x.buffer

    @ta.no_grad()
    def quiet(x):
        return x * 2

    assert not quiet(x).requires_grad and ta.is_grad_enabled()


def test_modes_are_restored_after_errors():
    with pytest.raises(ZeroDivisionError), ta.no_grad():
        raise ZeroDivisionError
    assert ta.is_grad_enabled()


def test_backward_needs_a_scalar_or_a_gradient():
    x = leaf([1.0, 2.0])
    with pytest.raises(ValueError, match=r"shape \(2,\) needs a gradient"):
        (x * 2).backward()
    with pytest.raises(ValueError, match=r"\(3,\).*\(2,\)"):
        (x * 2).backward(ta.ones(3))
    with pytest.raises(RuntimeError, match="nothing to differentiate"):
        ta.tensor([1.0]).backward()


def test_hooks_see_the_whole_gradient_once_and_may_replace_it():
    x = leaf([1.0, 2.0])
    seen = []
    a = x * 2
    remove = a.register_hook(lambda g: seen.append(g.tolist()))
    x.register_hook(lambda g: g * 10)
    (a + a).sum().backward()
    assert seen == [[2, 2]] and x.grad.tolist() == [40, 40]
    remove()
    x.grad = None
    (a.detach() + x).sum().backward()
    assert x.grad.tolist() == [10, 10] and len(seen) == 1
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ValueError, match="hook must return"):
        (x * 1).sum().backward()


def test_retain_grad_keeps_an_inner_gradient():
    x = leaf([1.0, 2.0])
    a = x * 3
    a.retain_grad()
    (a * a).sum().backward()
    assert a.grad.tolist() == [6, 12]


def test_grad_touches_no_leaf_and_runs_only_what_it_needs():
    x, y = leaf([2.0]), leaf([5.0])
    ran = []
    side = y * 1
    side.register_hook(lambda g: ran.append("y"))
    out = (x * x * side).sum()
    (g,) = ta.grad(out, x)
    assert g.tolist() == [20] and x.grad is None and y.grad is None


def test_grad_of_inner_tensors_and_unused_inputs():
    x, unused = leaf([2.0]), leaf([1.0])
    a = x * 3
    out = (a * a).sum()
    assert ta.grad(out, [a, x], retain_graph=True)[0].tolist() == [12]
    with pytest.raises(RuntimeError, match="allow_unused"):
        ta.grad(out, [unused], retain_graph=True)
    assert ta.grad(out, [x, unused], allow_unused=True)[1] is None
    with pytest.raises(RuntimeError, match="requires_grad=False"):
        ta.grad((x * 2).sum(), ta.tensor([1.0]))


def test_grad_of_an_inner_tensor_keeps_the_step_that_made_it():
    x = leaf([1.0, 2.0])
    a = x * x
    (g,) = ta.grad((a * a).sum(), a)
    a.backward(g)
    assert g.tolist() == [2, 8] and x.grad.tolist() == [4, 32]


def test_grad_through_a_freed_step_is_refused():
    x = leaf([1.0, 2.0])
    s = (x * x).sum()
    s.backward()
    for allow_unused in (False, True):
        with pytest.raises(RuntimeError, match="retain_graph=True"):
            ta.grad(s * x.sum(), x, allow_unused=allow_unused)
    a = x * x
    a.sum().backward()
    assert ta.grad((a * a).sum(), a)[0].tolist() == [2, 8]  # older than what is wanted, so it does not matter


@pytest.mark.parametrize("normalise", ["layer_norm", "rms_norm"])
def test_second_derivative_of_a_norm_of_an_inner_tensor(normalise):
    x = leaf([[0.0, 2.0, 5.0], [2.0, 4.0, 3.0]], ta.float64)
    seen = []

    def penalty(x):
        inner = (x * x).requires_grad_()
        inner.register_hook(seen.append)
        y = getattr(ta.functional, normalise)(inner, (3,))
        (g,) = ta.grad((y**3).sum(), inner, create_graph=True)
        return (g * g).sum()

    loss = penalty(x)
    seen.clear()
    loss.backward()
    assert len(seen) == 1  # the hook sees the whole gradient once
    assert ta.gradcheck(penalty, x)


def test_third_derivative():
    x = leaf(2.0, ta.float64)
    y = x**4
    for expected in (32, 48, 48):
        (y,) = ta.grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(expected)


def test_gradient_penalty():
    w = leaf([[1.0, 2.0], [3.0, 4.0]], ta.float64)

    def penalty(w):
        x = ta.tensor([[0.5, -1.0]], dtype=ta.float64, requires_grad=True)
        (g,) = ta.grad((x @ w).tanh().sum(), x, create_graph=True)
        return (g * g).sum()

    assert ta.gradcheck(penalty, w)


def test_gradcheck_notices_a_wrong_gradient_and_wrong_dtypes():
    x = leaf([1.0, 2.0], ta.float64)
    with pytest.raises(AssertionError, match="differences say"):
        ta.gradcheck(lambda x: x * x.detach(), x)
    with pytest.raises(TypeError, match="float32"):
        ta.gradcheck(lambda x: x, leaf([1.0]))
    # right at first order, wrong at second
    with pytest.raises(AssertionError):
        ta.gradcheck(
            lambda x: x.detach() ** 2 * 0 + x**3 - (x**3).detach() + (x.detach() * 0) + cut(x), x, order=2
        )


def test_gradcheck_does_not_pass_without_checking():
    x = leaf([0.0], ta.float64)
    with pytest.raises(ValueError, match="none of 1 inputs requires a gradient"):
        ta.gradcheck(lambda x: x, x.detach())
    with pytest.raises(ValueError, match="no floating-point tensor"):
        ta.gradcheck(lambda x: x > 0, x)
    with pytest.raises(AssertionError, match="inf"):
        ta.gradcheck(lambda x: ta.where(x > 0, float("inf"), 0.0) + x, x)


def cut(x):
    """x·|x|, whose slope is written with a detached factor: its second derivative is lost."""
    return elementwise.mul(x, x.detach()) * 2 - x.detach() ** 2


def test_nan_finder_names_op_and_line():
    x = leaf([0.0, 1.0])
    with (
        ta.detect_anomaly(),
        pytest.raises(FloatingPointError, match=r"result of div at .*x / x has 1 NaN.*\(0,\)"),
    ):
        x / x
    with ta.detect_anomaly():
        y = (x * 0).sqrt().sum()
        with pytest.raises(
            FloatingPointError, match=r"gradient of input 0 of sqrt, recorded at .*y = \(x \* 0\)"
        ):
            (y * 0).backward()


def test_values_are_saved_only_where_a_rule_reads_them():
    a, b = leaf([1.0]), leaf([2.0])
    assert (a + b).step.inputs is None
    assert (a * b).step.inputs == [a, b] or all(
        x is y for x, y in zip((a * b).step.inputs, (a, b), strict=True)
    )
    half = (a * b.detach()).step.inputs
    assert half[0] is None and half[1] is not None
    total = a.expand(3).sum().step
    assert isinstance(total, Step) and a.exp().step.inputs is None and a.exp().step.out is not None
    assert isinstance(ta.functional.sum(a, keepdim=True).step.inputs[0], Outline)


def test_everything_is_released_after_backward():
    x = leaf(np.ones(1000))
    middle = x * 2
    spy = weakref.ref(middle.buffer)
    out = (middle * middle).sum()
    del middle
    assert spy() is not None
    out.backward()
    assert spy() is None, "backward frees what it saved while the result still lives"
    step = weakref.ref(out.step)
    del out
    assert step() is None, "a graph nobody refers to is freed without the garbage collector"


def test_in_place_steps_make_no_cycles():
    gc.collect()
    gc.disable()
    try:
        x = leaf([1.0, 2.0])
        y = x * 1
        y *= 3
        y[0] = 5
        spy = weakref.ref(y)
        del y
        assert spy() is None
    finally:
        gc.enable()


def test_training_holds_no_growing_memory():
    w = leaf(np.ones((50, 50)))

    def step():
        x = ta.ones(20, 50)
        loss = ((x @ w).tanh() ** 2).mean()
        loss.backward()
        with ta.no_grad():
            w.sub_(w.grad * 0.01)
        w.grad = None

    for _ in range(5):
        step()
    gc.collect()
    tracemalloc.start()
    step()
    gc.collect()  # empties the interpreter's free lists too
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(50):
        step()
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000, f"{grown} bytes more after 50 steps"


def test_conv_backward_after_its_module_is_gone():
    x = leaf(np.ones((1, 1, 4, 4)))
    y = ta.nn.Conv2d(1, 1, 3)(x)
    gc.collect()
    y.sum().backward()
    assert x.grad.shape == x.shape


def test_the_tape_is_per_thread_and_time_only_grows():
    x = leaf([1.0])
    first, second = x * 1, x * 2
    assert second.step.tick > first.step.tick
    assert "test_tape.py" in second.step.line() and "x * 2" in second.step.line()
    assert repr(second.step).startswith("<step")


def test_a_hook_may_remove_itself():
    x, seen = leaf([1.0]), []

    def once(g):
        seen.append("first")
        remove()

    remove = x.register_hook(once)
    x.register_hook(lambda g: seen.append("second"))
    (x * 1).backward()
    (x * 1).backward()
    assert seen == ["first", "second", "second"]


def test_modes_that_decorate_functions_are_restored_in_each_thread(monkeypatch):
    monkeypatch.setattr(mode, "grad", True)
    inside, leave = threading.Event(), threading.Event()
    quiet = ta.no_grad()

    @quiet
    def stay():
        inside.set()
        leave.wait(5)

    def elsewhere():
        with ta.no_grad():
            stay()

    worker = threading.Thread(target=elsewhere)

    @quiet
    def start():  # is left after the other thread entered, and before that leaves
        worker.start()
        inside.wait(5)

    start()
    leave.set()
    worker.join()
    assert mode.grad


def test_the_nan_finder_nests(monkeypatch):
    monkeypatch.setattr(mode, "watch", None)
    finder = ta.detect_anomaly()
    with finder, finder:
        pass
    assert mode.watch is None


def test_inputs_of_every_family_must_share_a_device():
    other = Reference()
    x, there = ta.ones(2, 2), ta.ones(2, 2, device=other)
    index = ta.zeros(2, 2, dtype=ta.int32, device=other)
    for act in (
        lambda: x + there,
        lambda: x @ there,
        lambda: ta.cat([x, there]),
        lambda: x.gather(0, index),
        lambda: x[index],
        lambda: ta.functional.conv1d(x[None], there[None]),
    ):
        with pytest.raises(ValueError, match="inputs are on"):
            act()


def test_a_gradient_is_a_tensor():
    with pytest.raises(TypeError, match="a gradient is a Tensor, got ndarray"):
        (leaf([1.0]) * 2).backward(np.ones(1))
