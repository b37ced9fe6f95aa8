"""Captures of dispatches: replayed in one submit, in memory of their own."""

import numpy as np
import pytest
from chain import floats, link, values
from conftest import vulkan
from fences import conflict, unfenced

import tinyadept as ta
from tinyadept.backends.vulkan import arena
from tinyadept.backends.vulkan.queue import Dispatch, levelled

GPU = vulkan()


def test_a_capture_starts_from_what_is_there_and_calls_wait_for_each_other(backend):
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    backend.start_capture()
    for _ in range(3):
        link(backend, b, a, 8)
        link(backend, a, b, 8)
    backend.queue.flush()
    link(backend, b, a, 8)
    replay = backend.end_capture()
    assert np.array_equal(values(backend, b), np.full(8, 7))
    assert not unfenced(replay.entries)
    submits = backend.queue.submits
    for _ in range(10):
        backend.queue.replay(replay)
    assert backend.queue.submits == submits + 1 and replay.most == 8  # and two wait
    backend.queue.flush()
    assert backend.queue.submits == submits + 2
    assert np.array_equal(values(backend, a), np.full(8, 66))


def drawn(rng, name):
    """A dispatch that touches a few of twelve ranges."""
    ranges = lambda: [(8 * at, 8 * at + 8) for at in rng.choice(12, rng.integers(0, 3), replace=False)]  # noqa: E731
    return Dispatch(name, None, (1, 1, 1), b"", ranges(), ranges())


@pytest.mark.parametrize("seed", range(30))
def test_levels_keep_the_order_of_what_conflicts_and_save_fences(seed):
    rng = np.random.default_rng(seed)
    noted = [drawn(rng, name) for name in range(40)]
    entries = levelled(noted)
    assert not unfenced(entries)
    order = [entry.command for entry in entries if entry is not None]
    assert sorted(order) == list(range(40))
    for early in range(40):
        for late in range(early + 1, 40):
            if conflict(noted[early], noted[late]):
                assert order.index(early) < order.index(late)
    longest = [1] * 40  # chains of dispatches that wait for each other: no order does with fewer levels
    for late in range(40):
        waits = [longest[early] + 1 for early in range(late) if conflict(noted[early], noted[late])]
        longest[late] = max([1, *waits])
    assert entries.count(None) == max(longest) - 1


def test_memory_of_a_capture_is_its_own(backend):
    """What a replay writes must not be given to others, and what it reads must not be overwritten by them."""
    start_ = floats(backend, np.arange(64))
    out = backend.allocator.allocate(64)
    backend.start_capture()
    outside = start_
    for _ in range(4):  # temporaries die at once
        temporary = backend.allocator.allocate(64)
        link(backend, temporary, outside, 64)
        outside = temporary
    late = backend.allocator.allocate(64)
    link(backend, late, outside, 64)
    link(backend, out, late, 64)
    del temporary, outside, start_
    replay = backend.end_capture()
    del late
    others = [floats(backend, np.full(64, 1e6)) for _ in range(30)]
    backend.queue.replay(replay)
    assert np.array_equal(values(backend, out), np.arange(64) + 6)
    assert all(np.all(values(backend, other) == 1e6) for other in others)
    del replay
    backend.queue.flush()
    in_use = backend.allocator.statistics().in_use
    others += [floats(backend, [0]) for _ in range(8)]
    assert backend.allocator.statistics().in_use == in_use + 8 * 256
    others.clear()
    assert backend.allocator.statistics().live == 1
    del out
    assert backend.allocator.statistics().largest_free == backend.allocator.statistics().reserved
    assert not backend.allocator.pinned and not backend.allocator.held


def test_temporaries_of_a_capture_are_reused_inside_it(backend, monkeypatch):
    """Once enough lies idle; before, those that need nothing of each other can run side by side."""
    monkeypatch.setattr(arena, "IDLE", 10 * arena.rounded(4000))
    backend.allocator.drain()
    before = backend.allocator.statistics().in_use
    backend.allocator.peak = 0
    source = floats(backend, np.zeros(1000))
    idle = []
    backend.start_capture()
    for _ in range(100):
        idle.append(backend.allocator.private.total)
        target = backend.allocator.allocate(1000)
        link(backend, target, source, 1000)
        source = target
    backend.end_capture()
    assert backend.allocator.peak - before <= 4 * arena.rounded(4000)
    assert 10 <= max(idle) / arena.rounded(4000) <= 12


def test_constants_uploaded_in_a_capture_stay(backend):
    out = floats(backend, np.zeros(4))
    backend.start_capture()
    scratch = floats(backend, np.zeros(4))
    del scratch
    constant = backend.upload(np.arange(4, dtype=np.float32)).data
    link(backend, out, constant, 4)
    del constant
    replay = backend.end_capture()
    for number in range(20):
        floats(backend, np.full(4, number))
    backend.queue.flush()
    backend.transfer.write(out, np.zeros(4, np.float32))
    backend.queue.replay(replay)
    assert np.array_equal(values(backend, out), [4, 3, 2, 1])


def test_a_capture_refuses_what_it_could_not_replay(backend):
    x = ta.tensor(np.ones(3, np.float32), device=backend)
    backend.start_capture()
    with pytest.raises(RuntimeError, match="read back"):
        x.numpy()
    constant = backend.upload(np.zeros(3, np.float32)).data
    link(backend, constant, x.buffer.data, 3)
    with pytest.raises(RuntimeError, match="made from host data"):
        backend.end_capture()
    assert np.array_equal(x.numpy(), [1, 1, 1])
