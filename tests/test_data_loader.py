"""The loader: what it hands over, and how it ends when something goes wrong."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import namedtuple
from multiprocessing import resource_tracker
from pathlib import Path

import numpy as np
import pytest

from tinyadept.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    RandomSampler,
    SequentialSampler,
    Subset,
    TensorDataset,
    WorkerDied,
    default_collate,
)
from tinyadept.data.segments import ALIGNMENT, FILES, arrays_in, layout

Pair = namedtuple("Pair", "x y")
KILLING_SECONDS = float(os.environ.get("KILLING_SECONDS", 4))


class Numbers(Dataset):
    """Samples that say their number, in arrays that grow with it, beside numbers drawn by chance."""

    def __init__(self, count, behave=None):
        self.count, self.behave = count, behave

    def __len__(self):
        return self.count

    def draw(self, index, rng):
        if self.behave:
            self.behave(index)
        named = {"mean": float(index), "name": f"sample {index}"}
        return Pair(np.full((64, 3), index, np.float32), index), rng.uniform(size=2), np.random.rand(), named


def fail(index):
    if index == 5:
        raise KeyError("five is right out")


def fail_strangely(index):
    class Strange(Exception):
        pass

    if index == 5:
        raise Strange("cannot be pickled")


def die(index):
    if index == 5:
        os.kill(os.getpid(), signal.SIGKILL)


def leave(index):
    if index == 5:
        os._exit(3)


def sleep(index):
    time.sleep(60)


def nap(index):
    time.sleep(0.12 * (index > 3))


def start_vulkan(index):
    import kp

    return kp


marked = False  # set in this process alone, after the module was imported


def look_for_marks(index):
    if marked:
        raise AssertionError("this worker is a copy of the process that started it")


def same(a, b):
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def left(process=None):
    """Segments of this process, or of another one."""
    start = f"tinyadept-{process or os.getpid()}-"
    return [name for name in os.listdir(FILES) if name.startswith(start)]


@pytest.fixture
def loaders():
    """Makes loaders, and closes them; nothing may be left afterwards."""
    made = []

    def make(*arguments, **options):
        made.append(DataLoader(*arguments, **options))
        return made[-1]

    yield make
    for loader in made:
        loader.close()
    assert not left()


# --- what it hands over ---


def test_samplers():
    data = range(7)
    assert list(SequentialSampler(data)) == list(data)
    sampler = RandomSampler(data, seed=3)
    first, again = list(sampler), list(sampler)
    assert first == again and sorted(first) == list(data)
    sampler.set_epoch(1)
    assert list(sampler) != first and sorted(sampler) == list(data)
    assert list(BatchSampler(data, 3)) == [[0, 1, 2], [3, 4, 5], [6]]
    for size in (1, 3, 7, 8):
        for drop in (False, True):
            batches = BatchSampler(data, size, drop)
            assert len(batches) == len(list(batches))
    for size in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            BatchSampler(data, size)


def test_data_sets():
    data = TensorDataset(np.arange(10), np.arange(20).reshape(10, 2))
    assert len(data) == 10 and data[3][1].tolist() == [6, 7]
    part = Subset(data, [4, 2])
    assert [part[i][0] for i in range(len(part))] == [4, 2]
    for arrays in ([], [np.zeros(3), np.zeros(4)], [np.float32(1)]):
        with pytest.raises(ValueError, match="one length"):
            TensorDataset(*arrays)


def test_samples_become_a_batch():
    batch = default_collate([(1, 2.5, "a", {"x": np.ones(2)}, Pair(True, None))] * 3)
    assert [x.dtype for x in batch[:2]] == [np.int32, np.float32]
    assert batch[2] == ["a"] * 3 and batch[3]["x"].shape == (3, 2)
    assert batch[4].x.tolist() == [True] * 3 and batch[4].y == [None] * 3
    for samples in ([np.ones(2), np.ones(3)], [(1,), (1, 2)], [{"a": 1}, {"b": 1}]):
        with pytest.raises(ValueError, match="different"):
            default_collate(samples)


def test_a_layout_holds_its_arrays_apart():
    outlines = [((3,), "|u1"), ((0, 4), "<f8"), ((2, 5), "<i4"), ((), "<f4"), ((65,), "|b1")]
    places, size = layout(outlines)
    memory = np.zeros(size, np.uint8)
    for number, (array, (shape, dtype)) in enumerate(zip(arrays_in(memory, places), outlines, strict=True)):
        assert array.shape == shape and array.dtype == dtype
        assert (array == 0).all(), "two arrays overlap"
        array[...] = number + 1
    assert all(place.offset % ALIGNMENT == 0 for place in places)
    assert layout([])[1] > 0


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_make_the_same_batches(workers, loaders):
    here, there = (
        loaders(Numbers(23), 4, shuffle=True, num_workers=n, seed=9, drop_last=n == 9) for n in (0, workers)
    )
    assert len(here) == len(there) == 6
    for epoch in range(2):
        kept = list(there)
        assert same(list(here), kept), f"epoch {epoch}"
    assert len(kept) == 6 and [len(batch[0].y) for batch in kept] == [4] * 5 + [3]
    assert not left()  # segments have no name once they are open


@pytest.mark.parametrize("workers", [0, 1])
def test_the_length_is_that_of_an_epoch(workers, loaders):
    for options in (
        {"batch_size": 3},
        {"batch_size": 3, "drop_last": True},
        {"batch_size": 9, "drop_last": True},
        {"batch_size": 2, "sampler": [4, 0, 1]},
        {"batch_sampler": [[0], [1, 2], [3]]},
    ):
        loader = loaders(range(8), num_workers=workers, **options)
        assert len(loader) == len(list(loader)), options


def test_seed_and_epoch_decide(loaders):
    first, same_seed, other = (loaders(Numbers(8), 4, shuffle=True, seed=seed) for seed in (1, 1, 2))
    epoch = list(first)
    assert same(epoch, list(same_seed))
    assert not same(epoch, list(other)) and not same(epoch, list(first))


def test_global_generators_are_left_alone(loaders):
    np.random.seed(0)
    expected = np.random.rand()
    np.random.seed(0)
    list(loaders(Numbers(4)))
    assert np.random.rand() == expected


def test_memory_is_used_again_once_nobody_reads_it(loaders):
    loader = loaders(Numbers(64), 4, num_workers=1, prefetch_factor=2)
    for _ in range(3):
        for batch in loader:
            del batch
    few = len(loader.pool.workers[0].slots)
    assert few <= 3
    kept = list(loader)
    assert len({x.__array_interface__["data"][0] for (x, _), *_ in kept}) == len(kept)
    assert all((pair.x[:, 0, 0] == pair.y).all() for pair, *_ in kept)
    loader.close()
    assert all((pair.x[:, 0, 0] == pair.y).all() for pair, *_ in kept)  # also when the loader is gone


def grown(samples):
    return np.arange(sum(samples) * 100)


def test_segments_grow_with_the_batches(loaders):
    loader = loaders(range(40), 2, num_workers=2, collate_fn=grown)
    assert [len(x) for x in loader] == [(4 * i + 1) * 100 for i in range(20)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_goes_on_in_the_middle_of_an_epoch(workers, loaders):
    straight = loaders(Numbers(20), 3, shuffle=True, seed=4)
    wanted = list(straight) + list(straight)
    begun = loaders(Numbers(20), 3, shuffle=True, seed=4, num_workers=workers)
    got = list(begun)
    iterator = iter(begun)
    got += [next(iterator), next(iterator)]
    state = begun.state_dict()
    assert state == {"epoch": 1, "position": 2, "seed": 4}
    other = loaders(Numbers(20), 3, shuffle=True, seed=4, num_workers=workers)
    other.load_state_dict(state)
    assert same(got + list(other), wanted)
    begun.load_state_dict(state)
    assert same(got + list(begun), wanted)
    assert begun.state_dict() == {"epoch": 2, "position": 0, "seed": 4}


def test_states_that_do_not_fit(loaders):
    loader = loaders(range(4), seed=1)
    for state in ({}, {"epoch": 0, "position": -1, "seed": 1}, {"epoch": 0, "position": 0.5, "seed": 1}):
        with pytest.raises(ValueError, match="numbers from 0"):
            loader.load_state_dict(state)
    with pytest.raises(ValueError, match="seed 2, this one has 1"):
        loader.load_state_dict({"epoch": 0, "position": 0, "seed": 2})


@pytest.mark.parametrize("workers", [0, 1])
def test_a_second_iteration_ends_the_first(workers, loaders):
    loader = loaders(range(20), 2, num_workers=workers)
    first = iter(loader)
    next(first)
    assert len(list(loader)) == 10
    with pytest.raises(RuntimeError, match="another iteration"):
        next(first)


@pytest.mark.parametrize(
    "options",
    [
        {"shuffle": True, "sampler": [0]},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 0},
        {"batch_size": 0},
    ],
)
def test_arguments_out_of_range(options):
    with pytest.raises(ValueError):
        DataLoader(range(4), **options)


# --- when something goes wrong ---


@pytest.mark.parametrize("workers", [0, 2])
def test_an_exception_is_raised_where_it_belongs(workers, loaders):
    loader, seen = loaders(Numbers(12, fail), 2, num_workers=workers), []
    with pytest.raises(KeyError, match="five is right out") as caught:
        for pair, *_ in loader:
            seen += pair.y.tolist()
    assert seen == [0, 1, 2, 3]
    if workers:
        assert "in fail" in str(caught.value.__cause__) and "Traceback" in str(caught.value.__cause__)


def test_an_exception_that_cannot_travel_is_told(loaders):
    with pytest.raises(RuntimeError, match=r"(?s)in fail_strangely.*cannot be pickled"):
        list(loaders(Numbers(12, fail_strangely), 2, num_workers=1))


def test_what_cannot_be_sent_is_refused(loaders):
    with pytest.raises(TypeError, match="can be pickled"):
        list(loaders(range(4), collate_fn=lambda x: x, num_workers=1))
    with pytest.raises(TypeError, match="numbers only"):
        list(loaders(range(4), collate_fn=objects, num_workers=1))


def objects(samples):
    return np.array([object()])


def test_no_device_starts_in_a_worker(loaders):
    with pytest.raises(ImportError, match="kp"):
        list(loaders(Numbers(4, start_vulkan), num_workers=1))


def test_workers_begin_afresh(loaders, monkeypatch):
    """They are spawned: a fork would inherit a device that has started, and locks that threads hold."""
    monkeypatch.setattr(sys.modules[__name__], "marked", True)
    assert len(list(loaders(Numbers(4, look_for_marks), num_workers=2))) == 4
    with pytest.raises(AssertionError, match="a copy"):
        list(loaders(Numbers(4, look_for_marks)))


@pytest.mark.parametrize(("behave", "how"), [(die, "killed by SIGKILL"), (leave, "exit code 3")])
def test_a_dead_worker_is_an_error(behave, how, loaders):
    start = time.monotonic()
    with pytest.raises(WorkerDied, match=how):
        list(loaders(Numbers(12, behave), 2, num_workers=2))
    assert time.monotonic() - start < 20


def test_a_slow_worker_is_an_error_if_wanted(loaders):
    loader = loaders(Numbers(4, sleep), num_workers=1, timeout=2)
    with pytest.raises(TimeoutError, match="2 seconds"):
        list(loader)
    start = time.monotonic()
    loader.close()
    assert time.monotonic() - start < 5


def enormous(samples):
    return np.broadcast_to(np.uint8(0), 1 << 44)  # takes no memory here


def test_full_shared_memory_is_an_error(loaders):
    with pytest.raises(OSError, match=r"no room for a batch of 17592186044416 bytes.*fewer workers"):
        list(loaders(range(4), collate_fn=enormous, num_workers=2))


PROGRAM = """
import os, sys, time
import numpy as np
from tinyadept.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        time.sleep(0.005)
        return np.full(1 << 16, index, np.float32)

if __name__ == "__main__":
    loader = DataLoader(Slow(), 2, num_workers=3)
    kept = []
    print("begun", flush=True)
    for batch in loader:
        kept = [*kept[-3:], batch]
        print(*(worker.process.pid for worker in loader.pool.workers), flush=True)
"""


def running(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    )


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(process, children):
    """What the program said; its children end too, and it leaves no memory."""
    _, errors = process.communicate(timeout=20)
    deadline = time.monotonic() + 10
    while (any(map(alive, children)) or left(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in children if alive(pid)]
    assert not left(process.pid)
    return errors


def test_ctrl_c_ends_everything(tmp_path):
    process = running(tmp_path)
    process.stdout.readline()
    children = [int(pid) for pid in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    errors = ended(process, children)
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1 and "leaked" not in errors


def test_a_worker_that_is_busy_when_its_loader_ends_is_silent(loaders, capfd):
    loader = loaders(Numbers(5, nap), num_workers=1)
    iterator = iter(loader)
    for _ in range(4):  # the worker makes the fifth batch, for which there is a segment
        next(iterator)
    loader.close()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("where", [(os, "ftruncate"), (resource_tracker, "register")], ids=["early", "late"])
def test_ctrl_c_while_memory_is_made_leaves_none(loaders, monkeypatch, where):
    module, name = where
    before = getattr(module, name)

    def interrupted(*arguments):
        monkeypatch.setattr(module, name, before)
        raise KeyboardInterrupt

    loader = loaders(Numbers(4), num_workers=1)
    loader.start()
    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(loader)
    assert getattr(module, name) is before and not left()


def test_workers_end_with_their_loader(tmp_path):
    process = running(tmp_path)
    process.stdout.readline()
    children = [int(pid) for pid in process.stdout.readline().split()]
    process.kill()
    assert "Traceback" not in ended(process, children)


@pytest.mark.slow
def test_processes_killed_at_random(tmp_path):
    """For 4 seconds; KILLING_SECONDS=60 in the environment makes it a minute."""
    rng, end, seen = random.Random(time.time_ns()), time.monotonic() + KILLING_SECONDS, []
    while time.monotonic() < end or len(seen) < 2:
        process = running(tmp_path)
        process.stdout.readline()
        children = []
        if whole := rng.random() < 0.7:  # else while the workers start
            children = [int(pid) for pid in process.stdout.readline().split()]
        time.sleep(rng.uniform(0, 0.3))
        if whole and rng.random() < 0.6:
            os.kill(rng.choice(children), signal.SIGKILL)
            errors = ended(process, children)
            assert "WorkerDied" in errors and "killed by SIGKILL" in errors and "leaked" not in errors
            assert process.returncode == 1
        else:
            process.kill()
            ended(process, children)
        seen.append(whole)
