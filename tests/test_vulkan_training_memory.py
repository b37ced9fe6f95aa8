"""A training loop on Vulkan takes its memory in the first steps, and hardly more than its tensors need."""

import numpy as np
import pytest
from conftest import vulkan

import tinyadept as ta
import tinyadept.functional as F
from tinyadept import nn, optim
from tinyadept.backends.vulkan import probe
from tinyadept.backends.vulkan.backend import Vulkan

GPU = vulkan()
OPTIMIZERS = {
    "SGD": lambda params: optim.SGD(params, lr=0.01, momentum=0.9),
    "Adam": lambda params: optim.Adam(params, lr=1e-3),
}


def training(gpu, make):
    """Endless steps of a small network; the losses are read back after every tenth."""
    ta.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10),
    ).to(gpu)  # fmt: skip
    optimizer = make(network.parameters())
    rng = np.random.default_rng(0)
    while True:
        losses = []
        for _ in range(10):
            images = ta.tensor(rng.standard_normal((32, 1, 8, 8)), device=gpu)
            loss = F.cross_entropy(network(images), ta.tensor(rng.integers(0, 10, 32), device=gpu))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        yield [loss.item() for loss in losses]


class Watch:
    """What an allocator has handed out above what it had when this was made, at the worst moment so far."""

    def __init__(self, allocator):
        self.allocator, self.before, self.in_use, self.requested = allocator, allocator.statistics(), 0, 0
        allocator.on_allocate = self.note

    def note(self, block):
        in_use = self.allocator.in_use - self.before.in_use
        if in_use > self.in_use:
            self.in_use, self.requested = in_use, self.allocator.requested - self.before.requested


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_thousand_steps_take_no_more_memory_than_ten(name, backend):
    watch, steps = Watch(backend.allocator), training(backend, OPTIMIZERS[name])
    assert np.isfinite(next(steps)).all()
    tenth = backend.allocator.statistics()
    for _ in range(99):
        next(steps)
    last = backend.allocator.statistics()
    assert (last.arenas, last.reserved) == (tenth.arenas, tenth.reserved), "an arena after the tenth step"
    assert (last.live, last.requested) == (tenth.live, tenth.requested), "tensors are kept that nobody holds"
    assert last.allocations - tenth.allocations > 99 * 10 * 20, "it is others' memory that is used again"
    assert watch.in_use == last.peak - watch.before.in_use
    assert watch.in_use <= 1.3 * watch.requested


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_fits_into_little_more_than_its_tensors(name, backend, monkeypatch):
    """What arenas reserve and what lies idle between blocks counts here too: a third more, in this one."""
    watch = Watch(backend.allocator)
    expected = next(training(backend, OPTIMIZERS[name]))
    monkeypatch.setenv("TINYADEPT_MEMORY", str(int(1.4 * watch.requested)))
    tight = Vulkan("vulkan", probe.choose())
    steps = training(tight, OPTIMIZERS[name])
    np.testing.assert_array_equal(next(steps), expected)
    next(steps)
    assert tight.allocator.statistics().reserved <= 1.4 * watch.requested
    tight.close()
