"""The values that a log returns: the result of opening, a list of its segments, and holds against log GC."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from nyala.replica.types import Entry, OpId


@dataclass(frozen=True)
class Replay:
    """The entries that the log had when it was opened.

    `entries` are in index order; a later entry at one index replaces the earlier one. Each iteration reads them from
    disk, and must end before the first append or truncation. `withheld` is the highest OpId that a damaged tail lost
    and that may have been acknowledged; it is not among the entries.
    """

    entries: Iterable[Entry]
    first_index: int
    """The index of the first entry; 0 if there is none."""
    last: OpId
    withheld: OpId | None


@dataclass(frozen=True)
class SegmentInfo:
    """One segment file. Only the first `length_bytes` are content; an open one has a preallocated rest."""

    number: int
    name: str
    first_index: int
    last_index: int
    """Highest index ever written to it; below first_index if it is empty."""
    length_bytes: int
    closed: bool


class Anchor:
    """Keeps the log from `index` on until released; releasing twice is harmless."""

    def __init__(self, index: int, release: Callable[[Anchor], None]) -> None:
        self.index = index
        self._release = release

    def release(self) -> None:
        self._release(self)


class Pin:
    """Keeps the files of `segments` until released, for a copy session."""

    def __init__(self, segments: tuple[SegmentInfo, ...], release: Callable[[Pin], None]) -> None:
        self.segments = segments
        self._release = release

    def release(self) -> None:
        self._release(self)
