"""The log as the Raft core sees it, with a bound on the bytes that stay in memory."""

from __future__ import annotations

from nyala.replica.raft import MemoryLogView
from nyala.replica.types import OpId, check


class LogCache(MemoryLogView):
    """The terms of all retained entries, and the bytes of new ones and of those read recently.

    Invariants: only durable entries are evicted, oldest first. Entries that are not applied have a bound of their own;
    those beyond it are read back from the log before they are applied. Concurrency: the owner's thread.
    """

    def __init__(self, *, boundary: OpId, bytes_max: int) -> None:
        check(bytes_max >= 0, "a size is not negative", bytes_max=bytes_max)
        super().__init__(boundary=boundary, loaded_bytes_max=max(bytes_max // 2, 1))
        self._bytes_max = bytes_max

    def trim(self, through_index: int, bytes_max: int | None = None) -> None:
        """Evict the oldest entries up to `through_index` while the cache is over `bytes_max`, or over its own bound."""
        over = self.cached_bytes - (self._bytes_max if bytes_max is None else bytes_max)
        lo, hi = self.cached_from, min(through_index, self.last.index) + 1
        if over <= 0 or lo >= hi:
            return
        oldest = self.entries(lo, hi, over)
        self.evict_below(oldest[-1].opid.index + 1)

    def clear(self) -> None:
        """Drop all entries, durable or not, because the replica has ended."""
        self.evict_below(self.last.index + 1)
        self.drop_loaded()

    def collected(self, first_index: int) -> None:
        """Note that the log on disk now begins at `first_index`; the term right before it stays known."""
        if first_index > self.first_index:
            term = self.term_at(first_index - 1)
            check(term is not None, "the log ends above what was collected", first_index=first_index, last=self.last)
            self.compact(first_index - 1, term or 0)
