"""The lazy queue: what is noted runs once, in order, with fences where they are needed, whatever happens."""

import signal
from dataclasses import replace

import numpy as np
import pytest
from chain import floats, link, values
from conftest import vulkan
from fences import idle_fences, unfenced
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept.backends.vulkan import hazards, queue, walk
from tinyadept.backends.vulkan.backend import Vulkan

GPU = vulkan()


def test_nothing_runs_before_a_value_is_needed(backend):
    before = backend.queue.submits
    a, b = floats(backend, np.arange(50)), backend.allocator.allocate(50)
    for _ in range(5):
        link(backend, b, a, 50)
        link(backend, a, b, 50)
    assert backend.queue.submits == before
    assert np.array_equal(values(backend, a), np.arange(50) + 10)
    assert backend.queue.submits == before + 1


def test_a_full_queue_is_submitted(backend, monkeypatch):
    monkeypatch.setattr(queue, "FULL", 10)
    a, b = floats(backend, np.zeros(3)), backend.allocator.allocate(3)
    before = backend.queue.submits
    for _ in range(20):
        link(backend, b, a, 3)
        link(backend, a, b, 3)
    assert backend.queue.submits > before + 3
    assert np.array_equal(values(backend, a), [40, 40, 40])


@pytest.fixture
def submitted():
    seen = []
    GPU.queue.flush()
    GPU.queue.observers.append(seen.append)
    yield seen
    GPU.queue.observers.remove(seen.append)


@pytest.mark.parametrize("seed", range(20))
def test_conflicting_dispatches_have_a_fence_between_and_no_fence_is_idle(submitted, seed):
    rng = np.random.default_rng(seed)
    blocks = [floats(GPU, np.zeros(64)) for _ in range(6)]
    GPU.queue.flush()
    submitted.clear()
    expected = [np.zeros(64, np.float32) for _ in blocks]
    for _ in range(60):
        size = int(rng.integers(1, 33))
        (t, to), (s, at) = ((int(rng.integers(6)), int(rng.integers(0, 32))) for _ in range(2))
        if t == s:
            continue
        link(GPU, blocks[t].part(to, size), blocks[s].part(at, size), size)
        expected[t][to : to + size] = expected[s][at : at + size][::-1] + 1
    got = [values(GPU, block) for block in blocks]
    assert all(map(np.array_equal, got, expected))
    for entries in submitted:
        assert not unfenced(entries)
        assert not idle_fences(entries), "a fence that is not needed"
    assert sum(entry is None for entries in submitted for entry in entries) > 5


def test_more_ranges_can_be_named(submitted):
    a, b, c = (floats(GPU, np.zeros(4)) for _ in range(3))
    GPU.queue.flush()
    submitted.clear()
    fill = GPU.shaders.get("fill", None, (GPU.local, 1))
    push = walk.walk((4,), (1,)).push(a.offset, params=queue.pack(1.0))
    GPU.queue.dispatch(fill, (1, 1, 1), push, (a,))
    GPU.queue.dispatch(fill, (1, 1, 1), push, (b,), also_reads=(a.part(3, 1),))
    GPU.queue.dispatch(fill, (1, 1, 1), push, (c,), also_writes=(b.part(0, 2), b.part(2, 0)))
    GPU.queue.flush()
    assert [entry is None for entry in submitted[0]] == [False, True, False, True, False]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12))), st.integers(0, 60), st.integers(1, 12))
def test_intervals_are_a_set_of_addresses(ranges, first, size):
    intervals, members = hazards.Intervals(), set()
    for start_, length in ranges:
        intervals.add(start_, start_ + length)
        members |= set(range(start_, start_ + length))
    assert intervals.overlaps(first, first + size) == bool(members & set(range(first, first + size)))
    assert {i for a, b in zip(intervals.starts, intervals.ends) for i in range(a, b)} == members
    assert intervals.starts == sorted(intervals.starts) and intervals.ends == sorted(intervals.ends)


def test_the_same_batch_again_is_not_recorded_again(backend, monkeypatch):
    recorded = []
    record = backend.driver.record
    monkeypatch.setattr(backend.driver, "record", lambda commands: recorded.append(1) or record(commands))
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    for step in range(1, 6):
        link(backend, b, a, 8)
        link(backend, a, b, 8)
        backend.queue.flush()
        if step == 2:
            recorded.clear()  # the first batch held the upload as well
    assert not recorded
    assert np.array_equal(values(backend, a), np.full(8, 10))


def test_push_constants_have_a_limit_and_one_size(backend):
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    shader = backend.shaders.get("selftest", None, (backend.local,))
    bound = (a, b, backend.queue.reports)
    with pytest.raises(ValueError, match="128"):
        backend.queue.dispatch(shader, (2, 1, 1), np.zeros(33, np.uint32), bound)
    link(backend, a, b, 8)
    with pytest.raises(ValueError, match="20 bytes"):
        backend.queue.dispatch(shader, (1, 1, 1), [1, 2, 3], bound)


def test_a_missing_binding_is_an_error_and_no_crash(backend):
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    shader = backend.shaders.get("selftest", None, (backend.local,))
    with pytest.raises(ValueError, match=r"selftest.*3 memories, got 2"):
        backend.queue.dispatch(shader, (1, 1, 1), bytes(20), (a, b))


def test_push_constants_keep_their_bits():
    words = np.frombuffer(queue.pack(5, -1, 2.5, 0xFFFFFFFE, 2**31), np.uint32)
    assert words.tolist() == [5, 0xFFFFFFFF, 0x40200000, 0xFFFFFFFE, 0x80000000]


def test_grids_are_few_and_large_enough():
    grids = {GPU.grid(lanes)[0] for lanes in range(0, 1 << 22, 997)}
    assert len(grids) <= 11 and all(n & (n - 1) == 0 for n in grids)
    gpu = Vulkan.__new__(Vulkan)
    gpu.device, gpu.local = replace(GPU.device, type="discrete"), 256
    assert [gpu.grid(n)[0] for n in (0, 1, 256, 257, 1025, 1 << 30)] == [1, 1, 1, 4, 16, 1 << 14]


# Failures


def test_a_bad_index_is_an_index_error_and_nothing_breaks(backend):
    site = backend.queue.site("embedding")
    a, b = floats(backend, np.arange(8)), backend.allocator.allocate(8)
    link(backend, b, a, 8, shift=3, site=site)
    with pytest.raises(IndexError, match=r"embedding: index (8|9|10) is out of range for 8"):
        backend.queue.flush()
    link(backend, b, a, 8)
    assert np.array_equal(values(backend, b), np.arange(8)[::-1] + 1)
    assert backend.queue.site("embedding") == site


def test_a_lost_device_is_an_error_with_its_name(backend, monkeypatch):
    block = floats(backend, np.arange(8))
    monkeypatch.setattr(backend.driver, "replay", lambda recording: None)  # as kp does: no word of it
    for _ in range(2):
        with pytest.raises(ta.DeviceError, match=r"llvmpipe.*lost|lost"):
            values(backend, block)
    with pytest.raises(ta.DeviceError, match="lost"):
        link(backend, block, block, 8)
    assert backend.device.name in backend.queue.lost


def test_the_tick_comes_after_all_work(backend, monkeypatch):
    """Else a device that is lost on the way could have ticked before."""
    recorded = []
    record = backend.driver.record
    monkeypatch.setattr(
        backend.driver, "record", lambda commands: recorded.append(commands) or record(commands)
    )
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    backend.start_capture()
    link(backend, b, a, 8)
    replay = backend.end_capture()
    for _ in range(3):
        backend.queue.replay(replay)
    backend.queue.flush()
    assert len(recorded) == 3  # the upload, the link, and three calls of the capture of the link
    for commands in recorded:
        assert commands[-2] is backend.driver.fence and commands[-1] is backend.queue.tick
        assert commands.count(backend.queue.tick) == 1


@pytest.mark.parametrize("when", ["before", "after", "while recording"])
def test_an_interrupted_submit_runs_exactly_once(backend, monkeypatch, when):
    a, b = floats(backend, np.zeros(8)), backend.allocator.allocate(8)
    backend.queue.flush()
    link(backend, b, a, 8)
    link(backend, a, b, 8)
    replay, record = backend.driver.replay, backend.driver.record

    def interrupted(recording):
        if when == "after":
            replay(recording)
        raise KeyboardInterrupt

    def interrupted_record(commands):
        record(commands[:2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "while recording":
            patch.setattr(backend.driver, "record", interrupted_record)
        else:
            patch.setattr(backend.driver, "replay", interrupted)
        with pytest.raises(KeyboardInterrupt):
            backend.queue.flush()
    link(backend, b, a, 8)
    link(backend, a, b, 8)
    assert np.array_equal(values(backend, a), np.full(8, 4))


def test_control_c_during_a_submit_breaks_nothing(backend):
    """A real signal, while the device works: the work is done once, and the next submit is as any other."""
    a, b = floats(backend, np.zeros(1 << 16)), backend.allocator.allocate(1 << 16)
    for count in (20, 400, 1000):
        start = values(backend, a)
        for _ in range(count):
            link(backend, b, a, 1 << 16)
            link(backend, a, b, 1 << 16)
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.002)
            while True:  # it comes in the first round, or a little after
                backend.queue.flush()
        signal.signal(signal.SIGALRM, before)
        assert np.array_equal(values(backend, a), start + 2 * count)
