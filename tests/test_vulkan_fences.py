"""Fences of real work: each pair of dispatches in conflict has one between, and none could be left out.

`prove` also watches every submit of the other tests that use the shared backend; see conftest.
"""

import numpy as np
import pytest
from conftest import VULKAN, vulkan
from fences import idle_fences, prove, unfenced

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import optim
from tinyadept.data import digits
from tinyadept.models.digits import DigitsNet

GPU = vulkan()


class Training:
    """Handwritten digits on Vulkan."""

    def __init__(self):
        ta.manual_seed(0)
        self.model = DigitsNet().to(VULKAN)
        self.optimizer = optim.AdamW(self.model.parameters(), lr=0.005)
        self.images, self.labels = digits.load("train")

    def batches(self, size):
        for start in range(0, len(self.labels) - size, size):
            yield self.images[start : start + size], self.labels[start : start + size]

    def step(self, images, labels):
        loss = F.cross_entropy(self.model(images), labels, label_smoothing=0.1)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def epoch(self, step):
        """The loss of each step, and how much of the test data is recognised then."""
        losses = [step(*batch).item() for batch in self.batches(64)]
        images, labels = digits.load("test")
        self.model.eval()
        with ta.no_grad():
            guesses = self.model(ta.tensor(images, device=VULKAN)).argmax(1).numpy()
        return losses, (guesses == labels).mean()

    def eager(self, images, labels):
        return self.step(ta.tensor(images, device=VULKAN), ta.tensor(labels, device=VULKAN))


@pytest.fixture
def submits():
    """What is submitted to the shared backend during a test."""
    seen = []
    GPU.queue.flush()
    GPU.queue.observers.append(seen.append)
    yield seen
    GPU.queue.observers.remove(seen.append)


def ran(entries):
    return {entry.shader.name for entry in entries if entry is not None}


@pytest.mark.slow
@pytest.mark.parametrize("captured", [False, True])
def test_every_submit_of_an_epoch_is_fenced(captured, submits):
    """Forward, backward, the optimiser's steps, and measuring on the test data."""
    training = Training()
    losses, accuracy = training.epoch(ta.capture(training.step, VULKAN) if captured else training.eager)
    assert losses[-1] < losses[0] - 0.5 and accuracy > 0.5
    assert len(submits) > 20 and sum(entry is None for entries in submits for entry in entries) > 500
    kernels = set().union(*map(ran, submits))
    assert {"conv", "elementwise", "matmul", "norm", "pool", "reduce", "update"} <= kernels
    assert prove in GPU.queue.observers  # and so in all other tests
    for entries in submits:
        prove(entries)


def test_no_fence_of_a_step_can_be_left_out(submits):
    training = Training()
    training.eager(*next(training.batches(64))).item()
    step = max(submits, key=len)
    assert {"conv", "update"} <= ran(step)
    fences = [at for at, entry in enumerate(step) if entry is None]
    assert len(fences) > 30 and not unfenced(step)
    for at in fences:
        with pytest.raises(AssertionError, match="no fence between"):
            prove(step[:at] + step[at + 1 :])
    assert not any(idle_fences(entries) for entries in submits)


def test_a_missing_fence_reaches_whoever_reads(monkeypatch):
    """A queue that forgets what was written is caught by the next value that is read."""
    monkeypatch.setattr(GPU.queue.batch.hazards.__class__, "conflict", lambda self, reads, writes: False)
    x = ta.tensor(np.ones(3, np.float32), device=GPU)
    with pytest.raises(AssertionError, match="no fence between"):
        (x + 1).numpy()
