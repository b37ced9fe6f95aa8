"""What dispatches say of the bytes that they touch is true: fences and the reuse of memory rest on it.

A device whose memory the host sees runs every dispatch twice, the second time with all that it does not name
overwritten. It must write the same then, and nothing else.
"""

import numpy as np
import pytest
import rows
from conftest import vulkan
from fences import prove
from mapped import MappedDriver, mapped

import tinyadept as ta
from tinyadept.backends.vulkan import arena
from tinyadept.backends.vulkan.debug import POISON, body
from tinyadept.backends.vulkan.transfer import Transfer

GPU = vulkan()


class Untrue(AssertionError):
    """A dispatch touches bytes that it does not name."""


class Lists(MappedDriver):
    """A recording is the list of its commands."""

    def record(self, commands):
        return list(commands)

    def replay(self, recording):
        super().replay(super().record(recording))


class Audit:
    """Runs the dispatches of a backend one by one, and looks what they touch."""

    def __init__(self, gpu):
        self.gpu, self.audited = gpu, set()
        gpu.queue.observers += [prove, self.note]
        gpu.driver.replay, self.run = self.replay, gpu.driver.replay
        self.entries = []
        gpu.queue.recording = self.recording

    def note(self, entries):
        self.audited |= {entry.shader.name for entry in entries if entry is not None}

    def recording(self, entries):
        return entries

    def replay(self, entries):
        memories = {
            id(command): key[2:]
            for key, pipeline in self.gpu.queue.pipelines.items()
            for command in pipeline.commands.values()
        }
        for entry in filter(None, entries):
            self.look(entry, [m for m in memories[id(entry.command)] if m is not self.gpu.queue.status])
        self.run([self.gpu.queue.tick])

    def look(self, entry, memories):
        before = [m.words.copy() for m in memories]
        self.run([entry.command])
        after = [m.words.copy() for m in memories]
        written = [named(m, entry.writes) for m in memories]
        known = [named(m, entry.writes + entry.reads) for m in memories]
        for m, words, mask in zip(memories, before, known):
            m.words[:] = np.where(mask, words, np.uint32(POISON))
        self.run([entry.command])
        try:
            self.compare(entry, memories, before, after, written, known)
        finally:
            for m, new in zip(memories, after):
                m.words[:] = new

    def compare(self, entry, memories, before, after, written, known):
        for m, old, new, may_write, mask in zip(memories, before, after, written, known):
            expected = np.where(may_write, new, np.where(mask, old, np.uint32(POISON)))
            for got, wanted in ((new, np.where(may_write, new, old)), (m.words, expected)):
                if (wrong := np.flatnonzero(got != wanted)).size:
                    at, kind = int(wrong[0]), "reads" if may_write[wrong[0]] else "writes"
                    raise Untrue(
                        f"{entry.shader} {kind} what it does not name: word {at} of {m} became {got[at]:#x}, "
                        f"expected {wanted[at]:#x}; it names {entry.reads} and {entry.writes}"
                    )


def named(memory, ranges):
    """Which words of a memory lie in some ranges."""
    mask = np.zeros(memory.words.size, bool)
    for first, last in ranges:
        mask[max(0, first - memory.base) // 4 : max(0, last - memory.base) // 4] = True
    return mask


@pytest.fixture(scope="module")
def audit():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arena, "FIRST_ARENA", 1 << 18)
        gpu = mapped(Lists)
        gpu.transfer = Transfer(gpu.queue, gpu.shaders, gpu.local, gpu.grid, 1 << 14)
        yield Audit(gpu)


@pytest.mark.slow
@pytest.mark.parametrize("tiled", [False, True])
def test_every_kernel_touches_what_it_names_and_nothing_else(audit, tiled):
    audit.audited.clear()
    with body(audit.gpu, tiled):
        for results in rows.everything(audit.gpu, examples=2):
            assert all(x.numpy().shape == x.shape for x in results)
    templates = {path.stem for path in audit.gpu.shaders.folder.glob("*.comp")}
    assert templates - audit.audited == {"tick", "selftest"}


@pytest.mark.parametrize("kept", ["reads", "writes"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_range_that_is_too_small_is_noticed(audit, kept, side, monkeypatch):
    x = ta.tensor(np.arange(20.0), device=audit.gpu)
    audit.gpu.queue.flush()
    look = audit.look

    def shrunk(entry, memories):
        (first, last), *rest = getattr(entry, kept)
        smaller = [(first + 4 * (1 - side), last - 4 * side), *rest]
        look(entry._replace(**{kept: smaller}), memories)

    monkeypatch.setattr(audit, "look", shrunk)
    x + 1
    with pytest.raises(Untrue, match=kept):
        audit.gpu.queue.flush()
    monkeypatch.undo()
    audit.gpu.queue.batch.entries.clear()
