"""Memory of a Vulkan device: arenas and blocks, what is reused, and what is said when there is no more."""

import gc
import itertools
from collections import deque

import numpy as np
import pytest
from chain import floats, link, values
from conftest import run_python, vulkan
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept.backends.vulkan import arena, driver, probe
from tinyadept.backends.vulkan.debug import POISON, Poison

GPU = vulkan()


class FakeDriver:
    """Memory without a device."""

    def __init__(self):
        self.device = probe.choose()
        self.next_base = 4096
        self.alive = []

    def allocate(self, size, host=False):
        memory = driver.Memory(self.next_base, size, None, driver.NOTHING)
        self.next_base += size + 4096
        self.alive.append(memory)
        return memory

    def free(self, memory):
        self.alive.remove(memory)


def allocator(budget=1 << 30, limit=1 << 27):
    fake = FakeDriver()
    nothing = lambda memory: None  # noqa: E731
    return arena.Allocator(fake, limit, budget, lambda: budget, nothing, nothing)


@given(st.lists(st.one_of(st.integers(0, 300_000), st.floats(0, 1)), max_size=80))
def test_live_blocks_never_overlap_and_all_memory_comes_back(steps):
    """An int allocates so many words; a float frees the block at that share of the list."""
    memory, live = allocator(), []
    for step in steps:
        if isinstance(step, int):
            block = memory.allocate(step)
            assert block.words == step and block.first % arena.ALIGNMENT == 0
            assert block.memory.base <= block.first and block.last <= block.memory.base + block.memory.size
            live.append(block)
        elif live:
            del live[int(step * (len(live) - 1))]
        block = None
        regions = sorted(b.region for b in live)
        assert all(start_ + size <= after for (start_, size), (after, _) in itertools.pairwise(regions))
        assert memory.statistics().requested == sum(b.words for b in live) * 4
    live.clear()
    found = memory.statistics()
    assert found.in_use == found.live == 0
    assert memory.free.sizes == {m.base: m.size for m in memory.arenas}


def test_freed_memory_is_reused():
    memory = allocator()
    live = deque(maxlen=20)
    sizes = np.random.default_rng(0).integers(1, 200_000, 30)
    for step in range(1000):
        for size in sizes:
            live.append(memory.allocate(int(size)))
        if step == 10:
            arenas, peak = memory.statistics().arenas, memory.statistics().peak
    assert memory.statistics().arenas == arenas and memory.statistics().peak == peak
    assert peak <= 1.3 * 4 * max(sum(np.resize(sizes, 60)[i : i + 20]) for i in range(30))


def test_size_classes_waste_little():
    for size in [*range(0, 5000, 13), *(2**k + d for k in range(13, 32) for d in (-1, 0, 1, 777))]:
        given_ = arena.rounded(size)
        assert given_ >= size and given_ % arena.ALIGNMENT == 0
        assert given_ <= max(size * 1.126, size + arena.ALIGNMENT)


def test_out_of_memory_says_what_is_there_and_leaves_the_rest_usable():
    memory = allocator(budget=64 << 20)
    keep = [memory.allocate(1 << 20) for _ in range(12)]  # 48 MiB
    with pytest.raises(ta.OutOfMemory, match=r"no room for 20971520 bytes: 50331648 in use.*largest free"):
        memory.allocate(5 << 20)
    assert memory.allocate(1 << 20).words == 1 << 20
    keep.clear()
    assert memory.allocate(5 << 20).words == 5 << 20


def test_empty_arenas_make_room_for_a_larger_one():
    memory = allocator(budget=100 << 20)
    keep = [memory.allocate(1 << 22) for _ in range(5)]  # 80 MiB in several arenas
    keep.clear()
    assert memory.allocate(22 << 20).words == 22 << 20
    assert len(memory.driver.alive) == len(memory.arenas) == 1


def test_cycles_are_collected_before_giving_up():
    memory = allocator(budget=32 << 20)

    def cycle():
        loop = [memory.allocate(7 << 20)]
        loop.append(loop)

    gc.disable()
    try:
        cycle()
        assert memory.allocate(7 << 20).words == 7 << 20
    finally:
        gc.enable()


def test_a_tensor_beyond_the_storage_range_names_the_limit():
    with pytest.raises(ta.OutOfMemory, match="maxStorageBufferRange"):
        allocator().allocate((1 << 25) + 1)
    assert allocator().allocate(1 << 25)


def test_the_budget_is_read_from_the_environment():
    code = """
import numpy as np, tinyadept as ta
x = ta.tensor(np.ones(1 << 20, np.float32), device="vulkan")
try:
    keep = [ta.tensor(np.ones(1 << 20, np.float32), device="vulkan") for _ in range(10)]
except ta.OutOfMemory as error:
    assert "20000000" in str(error), error
    assert x.numpy().sum() == 1 << 20
    print("said so")
"""
    assert run_python("-c", code, TINYADEPT_MEMORY="20000000").stdout == "said so\n"
    assert "a number of bytes" in run_python("-c", code, TINYADEPT_MEMORY="lots").stderr


def test_memory_that_does_not_hold_is_refused(backend, monkeypatch):
    monkeypatch.setattr(backend.transfer, "fill", lambda target, word: None)
    with pytest.raises(ta.OutOfMemory, match="did not give"):
        backend.allocator.add(1 << 16)
    monkeypatch.undo()
    assert np.array_equal(values(backend, floats(backend, [1, 2])), [1, 2])


def test_reuse_of_memory_that_queued_work_still_reads_is_ordered(backend):
    a = floats(backend, np.arange(8))
    kept = backend.allocator.allocate(8)
    link(backend, kept, a, 8)
    place = a.first
    del a
    backend.allocator.drain()
    blocks = [backend.allocator.allocate(8) for _ in range(8)]
    reused = next(block for block in blocks if block.first == place)
    backend.transfer.write(reused, np.full(8, 99, np.float32))
    assert np.array_equal(values(backend, kept), np.arange(8)[::-1] + 1)


def test_the_debug_allocator_gives_every_tensor_its_own_memory():
    code = """
import numpy as np, tinyadept as ta
backend = ta.device.resolve("vulkan")
x, y = (ta.tensor(np.arange(n), device="vulkan") for n in (5, 6))
assert x.buffer.data.memory is not y.buffer.data.memory and x.buffer.data.memory.size == 20
assert x.numpy().tolist() == [0, 1, 2, 3, 4] and y[::-1].numpy()[0] == 5
before = backend.allocator.statistics().arenas
del x
assert backend.allocator.statistics().arenas == before - 1
assert y.numpy().tolist() == [0, 1, 2, 3, 4, 5]
"""
    done = run_python("-c", code, TINYADEPT_DEBUG_ALLOCATOR="1")
    assert done.returncode == 0, done.stderr


def test_poison_and_sentinels(backend):
    with Poison(backend.allocator, backend.transfer) as poison:
        block = backend.allocator.allocate(10)
        other = floats(backend, np.arange(3))
        assert np.all(values(backend, block).view(np.uint32) == POISON)
        assert np.array_equal(values(backend, other), [0, 1, 2])
        poison.check()
        for beside in (-1, 10):
            backend.transfer.fill(block.part(beside, 1), 7)
            with pytest.raises(AssertionError, match=r"before|behind"):
                poison.check()
            backend.transfer.fill(block.part(beside, 1), 0x5E117137)
        poison.check()
