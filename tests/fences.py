"""An independent look at the fences of a submit: quadratic, and so simple that it can be trusted."""

from collections.abc import Iterable

from tinyadept.backends.vulkan.queue import Dispatch, Entries


def overlap(some: Iterable[tuple[int, int]], others: Iterable[tuple[int, int]]) -> bool:
    """Whether a range of the ones and a range of the others have a byte in common."""
    return any(a[0] < b[1] and b[0] < a[1] for a in some for b in others)


def conflict(early: Dispatch, late: Dispatch) -> bool:
    """Whether one of two dispatches writes what the other touches."""
    return overlap(early.writes, late.reads + late.writes) or overlap(early.reads, late.writes)


def unfenced(entries: Entries) -> list[tuple[Dispatch, Dispatch]]:
    """Every pair of dispatches that are in conflict, with no fence between them."""
    found = []
    for i, early in enumerate(entries):
        for late in entries[i + 1 :] if early is not None else ():
            if late is None:
                break
            if conflict(early, late):
                found.append((early, late))
    return found


def prove(entries: Entries) -> None:
    """An observer of a queue.

    Raises
    ------
    AssertionError
        If a fence is missing.
    """
    for early, late in unfenced(entries)[:1]:
        raise AssertionError(f"no fence between {early} and {late}, which conflict")


def idle_fences(entries: Entries) -> list[int]:
    """Where a fence stands whose removal `unfenced` would not notice."""
    fences = [-1, *(at for at, entry in enumerate(entries) if entry is None), len(entries)]
    return [
        at
        for before, at, after in zip(fences, fences[1:], fences[2:])
        if not unfenced(entries[before + 1 : at] + entries[at + 1 : after])
    ]
