"""Reads entries that are no longer in memory back from the log, for a peer that lags."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from nyala.replica.fs import exhausted
from nyala.replica.types import Code, Entry, Refused
from nyala.replica.wal import Log

from .lifecycle import Lifecycle
from .log_cache import LogCache
from .state_machine import RunHeavy


@dataclass(eq=False, kw_only=True)
class Loader:
    """Reads entries off-thread. Invariant: no two reads from one index are under way. Concurrency: owner's thread."""

    log: Log
    cache: LogCache
    life: Lifecycle
    run_heavy: RunHeavy
    bytes_max: int
    on_loaded: Callable[[], None]
    reading: set[int] = field(default_factory=set, init=False)
    missed: bool = field(default=False, init=False)
    """Whether entries for a peer could not be read, because a resource was exhausted."""

    def load(self, lo: int) -> None:
        """Read the entries from `lo` on that are not in memory."""
        if lo in self.reading:
            return
        self.reading.add(lo)
        hi = self.cache.cached_from

        def loaded(result: list[Entry] | BaseException) -> None:
            self.reading.discard(lo)
            if not self.life.serving:
                return
            if isinstance(result, Refused) and result.code is Code.NOT_FOUND:
                result = []  # Log GC removed them meanwhile: the core notices that and asks for a copy.
            if isinstance(result, BaseException) and exhausted(result) is not None:
                self.missed = True  # the executor makes the core request them again
                return
            if isinstance(result, BaseException):
                self.life.fail(result)
                return
            self.cache.load(result)
            self.on_loaded()

        self.run_heavy(lambda: self.log.read(lo, hi, self.bytes_max), loaded)
