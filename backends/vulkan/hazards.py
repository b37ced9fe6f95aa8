"""Which dispatches must wait for which: ranges of bytes since the last fence."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

Range = tuple[int, int]  # address of the first byte, and of one past the last


class Intervals:
    """A set of addresses, as sorted ranges that do not touch."""

    __slots__ = ("ends", "starts")

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.ends: list[int] = []

    def overlaps(self, first: int, last: int) -> bool:
        """Whether some address of [first, last) is in the set; the range is not empty."""
        at = bisect_right(self.ends, first)
        return at < len(self.starts) and self.starts[at] < last

    def add(self, first: int, last: int) -> None:
        """Add [first, last), which is not empty."""
        low = bisect_left(self.ends, first)
        high = bisect_right(self.starts, last, low)
        if low < high:
            first = min(first, self.starts[low])
            last = max(last, self.ends[high - 1])
        self.starts[low:high] = (first,)
        self.ends[low:high] = (last,)

    def clear(self) -> None:
        self.starts.clear()
        self.ends.clear()


class Hazards:
    """What has been read and written since the last fence."""

    __slots__ = ("read", "written")

    def __init__(self) -> None:
        self.read = Intervals()
        self.written = Intervals()

    def conflict(self, reads: Iterable[Range], writes: Iterable[Range]) -> bool:
        """Whether a dispatch with these ranges must wait: one of two that overlap is a write."""
        written, read = self.written, self.read
        for first, last in writes:
            if written.overlaps(first, last) or read.overlaps(first, last):
                return True
        return any(written.overlaps(first, last) for first, last in reads)

    def add(self, reads: Iterable[Range], writes: Iterable[Range]) -> None:
        for first, last in reads:
            self.read.add(first, last)
        for first, last in writes:
            self.written.add(first, last)

    def clear(self) -> None:
        """Forget everything: a fence stands here."""
        self.read.clear()
        self.written.clear()
