"""The table and the Vulkan backend mirror each other: every row has a kernel, and every kernel a row."""

import numpy as np
import pytest
import rows
from conftest import absent, started

import tinyadept as ta
from tinyadept.backends.vulkan import drivers, probe
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.ops import registry
from tinyadept.ops.kernels import Kernel

pytestmark = absent
VIEWS = {"move", "transfer"}  # families that run no kernel: views, and copies between devices


@pytest.fixture
def gpu():
    return started()


@pytest.fixture(scope="module")
def idle():
    """A backend of its own, for tests that look at what is dispatched and do not run it."""
    backend = Vulkan("vulkan", probe.choose())
    yield backend
    backend.close()


def test_every_family_has_a_driver_and_every_driver_a_family():
    families = {op.family.name for op in registry.values()} | {Kernel.name}  # of which users make the rows
    assert families - VIEWS == set(drivers.FAMILIES)


@pytest.mark.parametrize("op", rows.DRAWN, ids=lambda op: op.name)
def test_every_row_has_a_kernel(idle, op, monkeypatch):
    noted = []
    monkeypatch.setattr(idle.queue, "dispatch", lambda shader, *rest, **more: noted.append(shader.name))
    rows.calls(op, examples=1)[0].run(idle)
    uploads = {"copy"}
    assert bool(set(noted) - uploads) == (op.family.name not in VIEWS)


def test_every_template_is_some_rows_kernel(idle, monkeypatch):
    noted = {"tick", "selftest"}  # the queue's own, and the self-test's
    monkeypatch.setattr(idle.queue, "dispatch", lambda shader, *rest, **more: noted.add(shader.name))
    for _ in rows.everything(idle, examples=2):
        pass
    assert noted == {path.stem for path in idle.shaders.folder.glob("*.comp")}


def test_no_row_reads_anything_back(gpu, monkeypatch):
    """Forward and backward, and the optimisers' steps."""

    def refuse(*arguments):
        raise AssertionError("a value went to the host")

    with monkeypatch.context() as patch:
        patch.setattr(gpu, "download", refuse)
        patch.setattr(gpu.transfer, "read", refuse)
        results = [x for made in rows.everything(gpu, examples=1) for x in made]
    gpu.queue.flush()
    assert len(results) > 200 and results[0].numpy() is not None


def test_a_sum_of_views_is_one_dispatch_and_allocates_its_result_alone(gpu):
    x = ta.tensor(np.arange(12.0).reshape(3, 4), device=gpu)
    y = ta.tensor(np.arange(24.0).reshape(8, 3), device=gpu)
    gpu.queue.flush()
    before, seen = gpu.allocator.statistics(), []
    gpu.queue.observers.append(seen.append)
    z = x.mT + y[::2]
    after = gpu.allocator.statistics()
    gpu.queue.flush()
    gpu.queue.observers.remove(seen.append)
    assert after.allocations - before.allocations == after.live - before.live == 1
    assert after.requested - before.requested == z.numel() * 4
    assert [[entry.shader.name for entry in entries if entry] for entries in seen] == [["elementwise"]]
    np.testing.assert_array_equal(z.numpy(), x.numpy().T + y.numpy()[::2])
