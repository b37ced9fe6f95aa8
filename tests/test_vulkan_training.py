"""Training on Vulkan follows training on NumPy: the losses of train.py's digits, step by step."""

from itertools import islice

import numpy as np
import pytest
from conftest import VULKAN, absent

import tinyadept as ta
from tinyadept import optim
from tinyadept.training.digits import Digits

pytestmark = [absent, pytest.mark.slow]


def started(device, monkeypatch, make):
    """Digits on a device, from the same initial values and the same random numbers."""
    monkeypatch.setenv("TINYADEPT_DEVICE", "numpy")
    ta.manual_seed(0)
    task = Digits(Digits.defaults, Digits.free)
    task.model.to(device)
    task.optimizer = make(task.model.parameters())
    ta.manual_seed(3)
    task.step.device = device
    monkeypatch.setenv("TINYADEPT_DEVICE", device)
    task.model.train()
    return task


def batches(count):
    """The same ones for every device."""
    ta.manual_seed(5)
    task = Digits(Digits.defaults, Digits.free)
    endless = (batch for _ in range(count) for batch in task.batches(32) if len(batch[1]) == 32)
    return list(islice(endless, count))


@pytest.mark.parametrize("capture", [False, True], ids=["eager", "captured"])
def test_losses_under_sgd_agree_over_a_hundred_steps(monkeypatch, capture):
    data = batches(100)
    losses = {}
    for device in ("numpy", VULKAN):
        task = started(device, monkeypatch, lambda params: optim.SGD(params, lr=0.02))
        step = task.step if capture else lambda x, y, t=task: t.follow(ta.tensor(x), ta.tensor(y))
        losses[device] = [step(*batch).item() for batch in data]
    assert losses["numpy"][-1] < losses["numpy"][0] - 0.5
    np.testing.assert_allclose(losses[VULKAN], losses["numpy"], rtol=1e-4)


def test_every_step_of_adamw_agrees_from_the_same_state(monkeypatch):
    def make(params):
        return optim.AdamW(params, lr=0.005, weight_decay=0.5)

    here = started("numpy", monkeypatch, make)
    there = started(VULKAN, monkeypatch, make)
    for images, labels in batches(20):
        tensors = there.model.state_dict()
        for name, x in here.model.state_dict().items():
            tensors[name].copy_(x.numpy())
        state, groups = (o.optimizer.state_dict() for o in (here, there))
        there.optimizer.load_state_dict({"state": state["state"], "param_groups": groups["param_groups"]})
        ta.random.default_generator(VULKAN).state.copy_(ta.random.default_generator("numpy").state.numpy())
        monkeypatch.setenv("TINYADEPT_DEVICE", "numpy")
        expected = here.follow(ta.tensor(images), ta.tensor(labels)).item()
        monkeypatch.setenv("TINYADEPT_DEVICE", VULKAN)
        got = there.follow(ta.tensor(images), ta.tensor(labels)).item()
        assert got == pytest.approx(expected, rel=1e-5)
        after = zip(there.model.named_parameters(), here.model.parameters(), strict=True)
        for (name, q), p in after:
            np.testing.assert_allclose(
                q.detach().numpy(), p.detach().numpy(), rtol=1e-5, atol=1e-5, err_msg=name
            )
