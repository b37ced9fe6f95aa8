"""Processes that make batches, NumPy alone in them, and the loader's side of talking to them.

A pair of sockets joins the loader to each worker. To the worker go ("batch", task, slot, name, size) and
("segment", name, size); back come ("need", task, size) where the slot's segment is too small, ("done", task,
structure, outlines), and ("error", task, exception, text). A worker whose socket closes ends.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import queue
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import connection
from multiprocessing.shared_memory import SharedMemory
from typing import Any, NamedTuple

import numpy as np

from .collate import Rows, default_collate, put_together, taken_apart
from .datasets import drawn
from .segments import Slot, arrays_in, bytes_of, layout

PATIENCE = 1.0  # seconds that a worker has to end


class WorkerDied(RuntimeError):
    """A worker ended without being told to."""


class WorkerTraceback(Exception):
    """Where in the worker an exception came from."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Task(NamedTuple):
    """A batch to be made; `run` tells iterations apart, `number` counts in the epoch."""

    run: int
    epoch: int
    number: int
    indices: Sequence[int]


def made(dataset: Any, collate: Callable, seed: int, task: Task) -> Any:
    """The batch: what chance decides in it follows from the seed, the epoch and the indices alone."""
    samples = []
    for index in task.indices:
        samples.append(drawn(dataset, index, np.random.default_rng((seed, task.epoch, int(index)))))
    return collate(samples)


@contextlib.contextmanager
def seeded(seed: int, task: Task) -> Iterator[None]:
    """Seed the global generators of Python and NumPy for a batch, and afterwards put them back."""
    before = random.getstate(), np.random.get_state()
    words = np.random.SeedSequence((seed, task.epoch, task.number)).generate_state(4)
    random.seed(words.tobytes())
    np.random.seed(words)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


# --- in the worker ---


def serve(pipe: Any, work: bytes, seed: int) -> None:
    """What a worker does, until its socket closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the loader's to answer
    sys.modules["kp"] = None  # type: ignore[assignment]  # no device starts here
    os.environ["TINYADEPT_DEVICE"] = "numpy"
    tasks: queue.SimpleQueue = queue.SimpleQueue()
    segments: queue.SimpleQueue = queue.SimpleQueue()
    threading.Thread(target=listen, args=(pipe, tasks, segments), daemon=True).start()
    held: dict[int, SharedMemory] = {}
    dataset = collate = broken = None
    try:
        dataset, collate = pickle.loads(work)
        if collate is default_collate:
            collate = partial(default_collate, stack=Rows)
    except BaseException as error:
        broken = told(error)
    while (message := tasks.get()) is not None:
        task, *where = message
        try:
            if broken is None:
                with seeded(seed, task):
                    batch = made(dataset, collate, seed, task)  # type: ignore[arg-type]
                answer = hand_over(batch, held, task, where, pipe, segments)
            else:
                answer = ("error", task, *broken)
        except (BrokenPipeError, ConnectionResetError):
            return
        except BaseException as error:
            answer = ("error", task, *told(error))
        if answer is None:
            return
        try:
            pipe.send(answer)
        except (BrokenPipeError, ConnectionResetError):  # the loader ended meanwhile
            return


def listen(pipe: Any, tasks: queue.SimpleQueue, segments: queue.SimpleQueue) -> None:
    """Sort what comes; once nothing can come any more, end the process, whatever it is busy with."""
    try:
        while True:
            kind, *message = pipe.recv()
            (tasks if kind == "batch" else segments).put(message)
    except (EOFError, OSError):
        tasks.put(None)
        segments.put(None)
        time.sleep(PATIENCE)
        os._exit(1)


def hand_over(
    batch: Any, held: dict[int, SharedMemory], task: Task, where: list, pipe: Any, segments: queue.SimpleQueue
) -> tuple | None:
    """Copy a batch to its slot's segment, or to a larger one; the answer, or None if the loader is gone."""
    arrays: list[Any] = []
    tree = taken_apart(batch, arrays)
    outlines = [(x.shape, x.dtype.str) for x in arrays]
    places, needed = layout(outlines)
    slot, name, size = where
    if needed > size:
        pipe.send(("need", task, needed))
        message = segments.get()
        if message is None:
            return None
        name, size = message
    if slot not in held or held[slot].name != name:
        old = held.pop(slot, None)
        held[slot] = SharedMemory(name)
        if old is not None:
            old.close()
    memory = np.frombuffer(bytes_of(held[slot]), np.uint8)
    for target, array in zip(arrays_in(memory, places), arrays, strict=True):
        if isinstance(array, Rows):
            array.copy_to(target)
        else:
            np.copyto(target, array)
    return "done", task, tree, outlines


def told(error: BaseException) -> tuple[BaseException | None, str]:
    """An exception, if it can travel, and its traceback as text."""
    text = "".join(traceback.format_exception(error))
    try:
        travelled = pickle.loads(pickle.dumps(error))
    except Exception:
        return None, text
    return (error if type(travelled) is type(error) and isinstance(error, Exception) else None), text


# --- in the loader's process ---


class Worker:
    """A process, the socket to it, and its segments."""

    def __init__(self, number: int, work: bytes, seed: int):
        self.number = number
        self.slots: list[Slot] = []
        self.free: list[Slot] = []
        self.waiting: dict[tuple[int, int], Slot] = {}  # (run, number) of tasks and where they go
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(
            target=serve, args=(theirs, work, seed), name=f"tinyadept-data-{number}", daemon=True
        )
        try:
            with interrupts_blocked():  # which the worker inherits until it ignores them
                self.process.start()
        finally:
            theirs.close()

    def ask(self, task: Task, size: int) -> None:
        """Have a batch made in a slot that nobody reads, of so many bytes if it is a new one."""
        if self.free:
            slot = self.free.pop()
        else:
            slot = Slot(len(self.slots), self.free.append)
            self.slots.append(slot)
            if size:
                slot.grow(size)
        self.waiting[task.run, task.number] = slot
        self.pipe.send(("batch", task, slot.number, slot.name if slot.size else None, slot.size))

    def died(self) -> WorkerDied:
        self.process.join(PATIENCE)
        code = self.process.exitcode
        if code is not None and code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            why = " (the system does so when memory is short)" if code == -signal.SIGKILL else ""
        else:
            how = f"ended with exit code {code}"
            why = ": does the program start under `if __name__ == '__main__'`?" if code == 1 else ""
        return WorkerDied(f"worker {self.number} (process {self.process.pid}) {how}{why}")


class Pool:
    """The workers of a loader.

    Parameters
    ----------
    count : int
    work : tuple
        Data set and collate function.
    seed : int

    Raises
    ------
    TypeError
        If the data set or the collate function cannot be sent to another process.
    """

    def __init__(self, count: int, work: tuple, seed: int):
        try:
            sent = pickle.dumps(work, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            raise TypeError(
                f"workers need a data set and a collate_fn that can be pickled: {error}; "
                "define them in a module, or use num_workers=0"
            ) from error
        self.workers: list[Worker] = []
        self.size = 0  # bytes of the largest batch so far
        self.owner = os.getpid()
        try:
            for number in range(count):
                self.workers.append(Worker(number, sent, seed))
        except BaseException:
            self.close()
            raise

    def ask(self, task: Task) -> None:
        """Have the least busy worker make a batch.

        Raises
        ------
        WorkerDied
            If it does not live any more.
        OSError
            If there is no shared memory left.
        """
        worker = min(self.workers, key=lambda worker: len(worker.waiting))
        try:
            worker.ask(task, self.size)
        except (BrokenPipeError, ConnectionResetError):
            raise worker.died() from None

    def answers(self, timeout: float | None) -> Iterator[tuple[Task, Callable[[], Any]]]:
        """Wait until workers have something to say; tasks, and functions that return their batches or raise.

        Raises
        ------
        TimeoutError
            If none does in so many seconds.
        WorkerDied
            If one ended.
        """
        pipes: dict[Any, Worker] = {worker.pipe: worker for worker in self.workers}
        ready = connection.wait(list(pipes), timeout)
        if not ready:
            raise TimeoutError(f"no worker had a batch ready in {timeout:g} seconds")
        for pipe in ready:
            worker = pipes[pipe]
            try:
                kind, task, *rest = worker.pipe.recv()
                if kind == "need":
                    self.grow(worker, task, rest[0])
                    continue
            except (EOFError, BrokenPipeError, ConnectionResetError):
                raise worker.died() from None
            slot = worker.waiting.pop((task.run, task.number))
            if kind == "done":
                yield task, finished(slot, *rest)
            else:
                worker.free.append(slot)
                yield task, failed(*rest)

    def grow(self, worker: Worker, task: Task, size: int) -> None:
        self.size = max(self.size, size)
        slot = worker.waiting[task.run, task.number]
        slot.grow(self.size)
        worker.pipe.send(("segment", slot.name, slot.size))

    def close(self) -> None:
        """End all workers and give the memory back that nobody reads."""
        if os.getpid() != self.owner:  # a fork has inherited what is not its own
            return
        workers, self.workers = self.workers, []
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            if worker.process.pid is not None:
                end(worker.process)
            for slot in worker.slots:
                slot.retire()


def finished(slot: Slot, tree: Any, outlines: list) -> Callable[[], Any]:
    slot.opened()
    arrays = arrays_in(slot.lease(), layout(outlines)[0])
    return lambda: put_together(tree, iter(arrays))


def failed(error: BaseException | None, text: str) -> Callable[[], Any]:
    def fail() -> Any:
        if error is None:
            raise RuntimeError(f"a worker failed:\n\n{text}")
        raise error from WorkerTraceback(text)

    return fail


def end(process: Any) -> None:
    """Wait a moment, then insist."""
    process.join(PATIENCE / 4)
    for insist in (process.terminate, process.kill):
        if process.is_alive():
            insist()
            process.join(PATIENCE)
    if not process.is_alive():
        process.close()


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Keep Ctrl-C back, where the system can."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
