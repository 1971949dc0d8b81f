"""The log as the core sees it: in memory, never blocking, up to the last received entry.

The core appends to its LogView and truncates it directly; the driver then makes the changes in a `Ready` durable. The
term of each retained entry stays in memory when its bytes do not: one run for each term.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

from nyala.replica.types import ZERO_OPID, Entry, OpId, check


class EntriesUnavailable(Exception):
    """The entry at `index` is retained but its bytes are on disk only: load them and try again."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class LogView(Protocol):
    """The calls of a core to its log. Each returns at once."""

    @property
    def first_index(self) -> int:
        """The first index that is still retained; a peer that needs entries below it needs a tablet copy."""
        ...

    @property
    def last(self) -> OpId:
        """The OpId of the last received entry; if there is none, the boundary (or 0.0)."""
        ...

    def term_at(self, index: int) -> int | None:
        """The term of a retained index, or of the boundary just below the first (0 at index 0); None if unknown."""
        ...

    def entries(self, lo: int, hi: int, max_bytes: int) -> tuple[Entry, ...]:
        """The entries lo <= index < hi, as many as fit in max_bytes, at least one; raises EntriesUnavailable(lo)."""
        ...

    def append(self, entries: Sequence[Entry]) -> None:
        """Append entries that follow `last`."""
        ...

    def truncate_after(self, index: int) -> None:
        """Forget every entry above index."""
        ...


class MemoryLogView:
    """A LogView over a list. A driver can evict bytes from it, drop a prefix, and load entries back.

    Three regions: below `first_index` only the boundary's term is known; from there to `cached_from` only terms (and
    the entries that `load` brought back); from `cached_from` to `last` the entries are in memory.

    Invariants: entries are contiguous in index and their terms never fall; `term_at` answers for every retained index.
    Concurrency: one owner thread.
    """

    def __init__(
        self, entries: Iterable[Entry] = (), *, boundary: OpId = ZERO_OPID, loaded_bytes_max: int = 16 << 20
    ) -> None:
        self._runs: list[tuple[int, int]] = [(boundary.index, boundary.term)]
        """(first index, term) of each run of one term; the first run begins at the boundary."""
        self._first = boundary.index + 1
        self._cached_from = boundary.index + 1
        self._cache: list[Entry] = []
        self._cache_bytes = 0
        self._loaded: dict[int, Entry] = {}
        """Entries that `load` brought back, the oldest first."""
        self._loaded_bytes = 0
        self._loaded_bytes_max = loaded_bytes_max
        self._last = boundary
        self.append(tuple(entries))

    @property
    def first_index(self) -> int:
        return self._first

    @property
    def last(self) -> OpId:
        return self._last

    @property
    def cached_from(self) -> int:
        """The first index whose entry is in the cache proper; `last.index + 1` if there is none."""
        return self._cached_from

    @property
    def cached_bytes(self) -> int:
        """Bytes of all entries in memory, including loaded ones."""
        return self._cache_bytes + self._loaded_bytes

    def term_at(self, index: int) -> int | None:
        if not self._first - 1 <= index <= self._last.index:
            return None
        return self._runs[bisect_right(self._runs, index, key=_run_start) - 1][1]

    def entries(self, lo: int, hi: int, max_bytes: int) -> tuple[Entry, ...]:
        check(self._first <= lo <= hi <= self._last.index + 1, "range outside the log", lo=lo, hi=hi, last=self._last)
        if lo == hi:
            return ()
        taken: list[Entry] = []
        room = max_bytes
        for index in range(lo, hi):
            entry = self._held(index)
            if entry is None or (taken and entry.size_bytes > room):
                break
            taken.append(entry)
            room -= entry.size_bytes
        if not taken:
            raise EntriesUnavailable(lo)
        return tuple(taken)

    def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            check(entry.opid.index == self._last.index + 1, "a log has no gaps", last=self._last, entry=entry.opid)
            check(entry.opid.term >= self._last.term, "terms never fall in a log", last=self._last, entry=entry.opid)
            if entry.opid.term != self._runs[-1][1]:
                self._runs.append((entry.opid.index, entry.opid.term))
            self._cache.append(entry)
            self._cache_bytes += entry.size_bytes
            self._last = entry.opid

    def truncate_after(self, index: int) -> None:
        check(self._first - 1 <= index <= self._last.index, "no entry there", index=index, first_index=self._first)
        for held in [i for i in self._loaded if i > index]:
            self._unload(held)
        keep = max(0, index + 1 - self._cached_from)
        self._cache_bytes -= sum(entry.size_bytes for entry in self._cache[keep:])
        del self._cache[keep:]
        self._cached_from = min(self._cached_from, index + 1)
        while self._runs[-1][0] > index:
            self._runs.pop()
        self._last = OpId(self._runs[-1][1], index)

    def evict_below(self, index: int) -> int:
        """Drop the bytes of cached entries below index (terms stay); returns the bytes freed. They must be durable."""
        count = min(max(0, index - self._cached_from), len(self._cache))
        freed = sum(entry.size_bytes for entry in self._cache[:count])
        del self._cache[:count]
        self._cache_bytes -= freed
        self._cached_from += count
        return freed

    def load(self, entries: Sequence[Entry]) -> None:
        """Take back entries read from disk, for `entries` to serve.

        Entries that are not part of the log any more (another term, below the first index) are ignored. Beyond
        `loaded_bytes_max`, older loaded entries are dropped; one load is always kept whole.
        """
        fresh = [e for e in entries if self._first <= e.opid.index < self._cached_from]
        fresh = [e for e in fresh if self.term_at(e.opid.index) == e.opid.term]
        for entry in fresh:
            self._unload(entry.opid.index)
            self._loaded_bytes += entry.size_bytes
            self._loaded[entry.opid.index] = entry
        while self._loaded_bytes > self._loaded_bytes_max and len(self._loaded) > len(fresh):
            self._unload(next(iter(self._loaded)))

    def drop_loaded(self) -> int:
        """Forget every loaded entry; returns the bytes freed."""
        freed, self._loaded_bytes = self._loaded_bytes, 0
        self._loaded.clear()
        return freed

    def compact(self, index: int, term: int) -> None:
        """The log now begins after `index`, because log GC removed what was before; the term of `index` stays known."""
        if index < self._first:
            return
        check(index <= self._last.index, "cannot drop what was not received", index=index, last=self._last)
        check(self.term_at(index) == term, "boundary of another term", index=index, term=term)
        self.evict_below(index + 1)
        for held in [i for i in self._loaded if i <= index]:
            self._unload(held)
        pos = bisect_right(self._runs, index, key=_run_start) - 1
        self._runs[: pos + 1] = [(index, term)]
        self._first = index + 1

    def _unload(self, index: int) -> None:
        entry = self._loaded.pop(index, None)
        if entry is not None:
            self._loaded_bytes -= entry.size_bytes

    def _held(self, index: int) -> Entry | None:
        if index >= self._cached_from:
            return self._cache[index - self._cached_from]
        return self._loaded.get(index)


def _run_start(run: tuple[int, int]) -> int:
    return run[0]
