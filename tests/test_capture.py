"""Replays do what the function would have done, and what cannot be replayed is refused with the reason."""

import gc

import numpy as np
import pytest
from conftest import VULKAN, absent

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn, optim
from tinyadept.backends.vulkan import Vulkan
from tinyadept.models.digits import DigitsNet
from tinyadept.models.lenet import LeNet

pytestmark = absent
BATCHES = 5
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(BATCHES, 16, 1, 28, 28)).astype(np.float32)
LABELS = RNG.integers(0, 10, (BATCHES, 16)).astype(np.int32)
OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.05),
    "momentum": lambda params: optim.SGD(params, lr=0.02, momentum=0.9, dampening=0.1, weight_decay=1e-3),
    "AdamW": lambda params: optim.AdamW(params, lr=1e-3),
    "RMSprop": lambda params: optim.RMSprop(params, lr=1e-4, centered=True, momentum=0.5),
}


def queue():
    return ta.device.resolve(VULKAN).queue


def training(device, make, model=LeNet):
    ta.manual_seed(0)
    network = model().to(device)
    ta.manual_seed(1)  # the initial values were drawn by the host
    optimizer = make(network.parameters())

    def step(images, labels):
        loss = F.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return network, optimizer, ta.capture(step, device)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_captured_step_trains_as_numpy_does_in_one_submit_each(name):
    losses = {}
    for device in ("numpy", VULKAN):
        _, optimizer, step = training(device, OPTIMIZERS[name])
        losses[device] = []
        for number in range(10):
            optimizer.param_groups[0]["lr"] *= 0.9  # as a schedule does
            before = queue().submits
            losses[device].append(step(IMAGES[number % BATCHES], LABELS[number % BATCHES]).item())
            if device == VULKAN and number >= 3:
                assert step.captured and queue().submits == before + 1
    np.testing.assert_allclose(losses[VULKAN], losses["numpy"], rtol=1e-4)
    assert len(set(losses[VULKAN])) == 10


def test_adams_count_of_steps_goes_on():
    _, optimizer, step = training(VULKAN, OPTIMIZERS["AdamW"])
    for number in range(7):
        step(IMAGES[0], LABELS[0])
        assert {state["step"] for state in optimizer.state.values()} == {number + 1}


def test_random_numbers_and_running_means_go_on():
    """Dropout draws anew in each replay, as on NumPy, and batch norm keeps its running means."""
    found = {}
    images = np.random.default_rng(1).normal(size=(6, 8, 1, 8, 8)).astype(np.float32)
    for device in ("numpy", VULKAN):
        network, _, step = training(device, OPTIMIZERS["SGD"], DigitsNet)
        losses = [step(x, LABELS[0, :8]).item() for x in images]
        found[device] = losses, {key: x.numpy() for key, x in network.state_dict().items()}
    np.testing.assert_allclose(found[VULKAN][0], found["numpy"][0], rtol=1e-5)
    for key, value in found["numpy"][1].items():
        np.testing.assert_allclose(found[VULKAN][1][key], value, rtol=1e-3, atol=1e-4, err_msg=key)


def test_arguments_and_results_may_be_nested_and_may_live_on_the_device():
    weights = ta.tensor(np.ones(3, np.float32), device=VULKAN)

    @ta.capture
    def function(batch, factor, note):
        assert note == "a note"
        return {"sum": (batch["x"] * weights * factor).sum(), "pair": [batch["x"] + 1, None]}

    function.device = VULKAN
    for number in range(6):
        x = np.arange(3, dtype=np.float32) + number
        factor = ta.tensor(float(number), device=VULKAN)
        got = function({"x": x}, factor, "a note")
        assert got["sum"].item() == x.sum() * number
        assert np.array_equal(got["pair"][0].numpy(), x + 1) and got["pair"][1] is None


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("shape", [(), (0,), (5,), (70_000,)])
def test_every_dtype_and_size_goes_in_and_comes_out(dtype, shape):
    identity = ta.capture(lambda x: x.flip(0) if x.ndim else x.clone(), VULKAN)
    for number in range(5):
        x = (np.random.default_rng(number).random(shape) * 5).astype(dtype)
        expected = x[::-1] if x.ndim else x
        got = identity(x)
        assert got.numpy().dtype == dtype and np.array_equal(got.numpy(), expected)
        assert np.array_equal(got.tolist(), expected.tolist())


def counting():
    """A captured function that adds its argument to a total, and returns the total and twice the argument."""
    total = ta.tensor(np.zeros(4, np.float32), device=VULKAN)

    def function(x):
        total.add_(x)
        return total, x * 2

    function = ta.capture(function, VULKAN)
    for _ in range(3):
        function(np.ones(4, np.float32))
    total.numpy()
    return total, function


def test_calls_that_nobody_reads_are_submitted_together_and_see_their_own_arguments():
    total, function = counting()
    before, x, found = queue().submits, np.empty(4, np.float32), []
    for number in range(1, 22):
        x[:] = number  # the same array, changed as soon as the call is back
        found.append(function(x))
        if number % 7 == 0:  # the last seven, the oldest first
            for at in range(number - 6, number + 1):
                sums, double = found[at - 1]
                assert double.tolist() == [2 * at] * 4 and sums.tolist() == [3 + at * (at + 1) / 2] * 4
    assert queue().submits == before + 3
    assert total.tolist() == [3 + 231] * 4
    before = queue().submits
    for _ in range(20):
        function(x)
    assert queue().submits == before + 2  # and four wait
    assert total.tolist() == [3 + 231 + 20 * 21] * 4 and queue().submits == before + 4


def test_a_result_is_right_or_refused():
    _, function = counting()
    kept = [function(np.full(4, number, np.float32))[1] for number in range(20)]
    for number, result in enumerate(kept):
        if number < 12:
            for read in (
                result.numpy,
                result.sum,
                lambda: result + 1,  # noqa: B023
                result[1:].tolist,
                lambda: str(result),  # noqa: B023
            ):
                with pytest.raises(RuntimeError, match="overwritten 8 calls later"):
                    read()
        else:
            assert result.tolist() == [2 * number] * 4 and result.sum().item() == 8 * number


def test_what_is_noted_between_calls_keeps_its_place():
    """Ops, writes and uploads see the calls before them and none behind them."""
    total, function = counting()
    for number in range(1, 12):
        start = total.clone()
        function(np.full(4, number, np.float32))
        total.mul_(2)
        other = ta.tensor(np.full(4, number), device=VULKAN) + total
        function(np.zeros(4, np.float32))
        expected = (start.numpy() + number) * 2
        assert np.array_equal(total.numpy(), expected) and np.array_equal(other.numpy(), expected + number)
        total.copy_(ta.tensor(np.ones(4), device=VULKAN))


def test_large_arguments_take_two_turns():
    double = ta.capture(lambda x: (x * 2, x.sum()), VULKAN)
    x = np.ones((1 << 20) + 1, np.float32)
    results = []
    for number in range(6):
        x[:] = number
        results.append(double(x))
    assert len(double.replay.turns) == 2
    for number in (4, 5):
        assert results[number][1].item() == number * x.size and results[number][0][-1].item() == 2 * number
    with pytest.raises(RuntimeError, match="overwritten 2 calls later"):
        results[3][0].numpy()


@pytest.mark.parametrize("ran", [False, True])
def test_interrupted_calls_run_once(monkeypatch, ran):
    """Ctrl-C in the submit of eight calls: before the device got them, or after."""
    total, function = counting()
    submit = queue().driver.replay

    def interrupted(recording):
        if ran:
            submit(recording)
        raise KeyboardInterrupt

    for _ in range(7):
        function(np.ones(4, np.float32))
    with monkeypatch.context() as patch:
        patch.setattr(queue().driver, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            function(np.ones(4, np.float32))
    for _ in range(3):
        function(np.ones(4, np.float32))
    assert total.tolist() == [3 + 8 + 3] * 4


def test_bad_indices_in_a_call_that_waits_raise_when_it_is_submitted():
    rows = ta.tensor(np.arange(12, dtype=np.float32).reshape(4, 3), device=VULKAN)
    pick = ta.capture(lambda index: rows[index], VULKAN)
    good = np.array([1, 2], np.int32)
    for _ in range(4):
        pick(good).numpy()
    pick(np.array([1, 9], np.int32))
    later = pick(good)
    with pytest.raises(IndexError, match="index 9 is out of range for 4"):
        later.numpy()
    assert np.array_equal(later.numpy(), rows.numpy()[good])


def test_a_result_can_be_computed_with():
    double = ta.capture(lambda x: x * 2, VULKAN)
    for _ in range(5):
        y = double(np.arange(4, dtype=np.float32))
    assert np.array_equal((y + 1).numpy(), [1, 3, 5, 7])
    assert np.array_equal(y[1:3].numpy(), [2, 4])


def test_numpy_runs_every_call():
    calls = []
    function = ta.capture(lambda x: calls.append(1) or x + 1, "numpy")
    for _ in range(5):
        assert function(np.zeros(2)).tolist() == [1, 1]
    assert len(calls) == 5 and not function.captured


def test_arenas_that_are_added_while_recording_are_not_checked_in_replays():
    """Fresh memory is written to once, to see whether it holds; a replay that did so again would spoil it."""
    fresh = Vulkan("vulkan", ta.device.resolve(VULKAN).device)
    double = ta.capture(lambda x: x * 2, fresh)  # the recording begins with memory for its argument
    for number in range(5):
        x = np.random.default_rng(number).random(1000).astype(np.float32)
        assert np.array_equal(double(x).numpy(), x * 2)
    fresh.close()


# What is refused


def refused(function, *args, calls=3):
    captured = ta.capture(function, VULKAN)
    with pytest.raises(RuntimeError, match="cannot be captured") as caught:
        for _ in range(calls):
            captured(*args)
    with pytest.raises(RuntimeError, match="cannot be captured"):
        captured(*args)
    return str(caught.value)


X = np.ones(4, np.float32)


@pytest.mark.parametrize(
    "read",
    [lambda x: x.sum().item(), lambda x: x.numpy(), lambda x: bool(x.sum() > 2), lambda x: x.nonzero(), repr],
    ids=["item", "numpy", "bool", "nonzero", "repr"],
)
def test_a_value_read_back_inside(read):
    def function(x):
        read(x)
        return x + 1

    assert "read back" in refused(function, X, calls=2)


def test_a_branch_that_changes():
    calls = []

    def function(x):
        calls.append(1)
        return x.exp() if len(calls) % 2 else x.sin()

    assert "step 0 was sin((4,))" in (message := refused(function, X)) and "exp((4,))" in message


def test_a_shape_that_changes():
    calls = []

    def function(x):
        calls.append(1)
        return x[: len(calls)].sum()

    assert "sum((2,)" in refused(function, X)


def test_a_number_that_changes():
    calls = []

    def function(x):
        calls.append(1)
        return x * len(calls)

    assert "mul((4,), 2.0)" in refused(function, X)


def test_a_parameter_that_changes():
    calls = []

    def function(x):
        calls.append(1)
        return F.leaky_relu(x, 0.1 * len(calls))

    assert "leaky_relu" in refused(function, X)


def test_host_data_that_change():
    rng = np.random.default_rng(0)
    assert "an upload" in refused(lambda x: x + ta.tensor(rng.random(4), device=VULKAN), X)


def test_a_single_host_number_that_changes():
    rng = np.random.default_rng(0)
    assert "add(" in refused(lambda x: x + ta.tensor(rng.random(), device=VULKAN), X)


def test_a_run_that_goes_on_longer():
    calls = []

    def function(x):
        calls.append(1)
        return x + 1 if len(calls) < 3 else (x + 1).exp()

    assert "in the next run exp" in refused(function, X)


@pytest.mark.parametrize("made", [3.5, "text", np.ones(3)])
def test_a_result_that_no_replay_renews(made):
    captured = ta.capture(lambda x: made, VULKAN)
    captured(X), captured(X)
    with pytest.raises(TypeError, match=f"returned {type(made).__name__}"):
        captured(X)
    assert np.array_equal((ta.tensor(X, device=VULKAN) + 1).numpy(), X + 1)


@pytest.mark.parametrize(
    "args", [(X[:2], 1), (X.astype(np.int32), 1), (X, 2), (X,), ({"x": X}, 1), (None, 1)], ids=str
)
def test_arguments_that_do_not_fit_the_recording(args):
    captured = ta.capture(lambda x, n=1: x * n, VULKAN)
    for _ in range(4):
        captured(X, 1)
    with pytest.raises(ValueError, match=r"captured for arguments .*\(4,\), 'float32'.* got "):
        captured(*args)
    assert captured(X * 3, 1).tolist() == [3, 3, 3, 3]


def test_an_exception_inside_ends_the_recording_cleanly():
    fail = []

    def function(x):
        y = x + 1
        if fail:
            raise KeyError("mine")
        return y * 2

    captured = ta.capture(function, VULKAN)
    captured(X), captured(X)
    fail.append(1)
    with pytest.raises(KeyError, match="mine"):
        captured(X)
    fail.clear()
    for _ in range(3):
        assert captured(X).tolist() == [4, 4, 4, 4]
    assert captured.captured


def test_captures_do_not_nest():
    inner = ta.capture(lambda x: x + 1, VULKAN)
    outer = ta.capture(lambda x: inner(x) * 2, VULKAN)
    outer(X), outer(X)
    with pytest.raises(RuntimeError, match="nested"):
        outer(X)
    assert inner.function(ta.tensor(X, device=VULKAN)).tolist() == [2, 2, 2, 2]


# Memory


def test_the_tape_notices_what_a_replay_wrote():
    w = nn.Parameter(ta.tensor(X, device=VULKAN))
    optimizer = optim.SGD([w], lr=0.1)

    def step(x):
        optimizer.zero_grad()
        (w * x).sum().backward()
        optimizer.step()

    step = ta.capture(step, VULKAN)
    for _ in range(3):
        step(X)
    y = (w * w).sum()
    step(X)
    assert step.captured
    with pytest.raises(RuntimeError, match="overwritten in place"):
        y.backward()


def test_memory_is_kept_for_replays_and_given_back():
    fresh = Vulkan("vulkan", ta.device.resolve(VULKAN).device)
    zeros = np.zeros(1000, np.float32)
    step = ta.capture(lambda x: (x.exp() + x).exp().sum(), fresh)
    for _ in range(4):
        loss = step(zeros)
    others = [ta.tensor(np.full(1000, 7.0), device=fresh) for _ in range(50)]
    assert step(zeros).item() == loss.item() == pytest.approx(1000 * np.e, rel=1e-6)
    assert all(np.all(x.numpy() == 7) for x in others)
    del step, loss, others
    gc.collect()
    assert fresh.allocator.statistics().live == 0 == fresh.host.statistics().live
    assert not fresh.allocator.pinned and not fresh.allocator.held
    fresh.close()


@pytest.mark.slow
def test_a_long_replay_takes_no_more_memory():
    _, _, step = training(VULKAN, OPTIMIZERS["AdamW"])
    backend = ta.device.resolve(VULKAN)
    for number in range(60):
        step(IMAGES[number % BATCHES], LABELS[number % BATCHES])
        if number == 10:
            device, host = backend.allocator.statistics(), backend.host.statistics()
    assert backend.allocator.statistics() == device and backend.host.statistics() == host
