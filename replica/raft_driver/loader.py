"""Reads entries that are no longer in memory back from the log, for a peer that lags."""

from __future__ import annotations

from collections.abc import Callable

from nyala.replica.fs import exhausted
from nyala.replica.types import Code, Entry, Refused
from nyala.replica.wal import Log

from .lifecycle import Lifecycle
from .log_cache import LogCache
from .state_machine import RunHeavy


class Loader:
    """Reads entries off-thread. Invariant: no two reads from one index are under way. Concurrency: owner's thread."""

    def __init__(
        self,
        *,
        log: Log,
        cache: LogCache,
        life: Lifecycle,
        run_heavy: RunHeavy,
        bytes_max: int,
        on_loaded: Callable[[], None],
    ) -> None:
        self._log = log
        self._cache = cache
        self._life = life
        self._run_heavy = run_heavy
        self._bytes_max = bytes_max
        self._on_loaded = on_loaded
        self.reading: set[int] = set()
        self.missed = False
        """Whether entries for a peer could not be read, because a resource was exhausted."""

    def load(self, lo: int) -> None:
        """Read the entries from `lo` on that are not in memory."""
        if lo in self.reading:
            return
        self.reading.add(lo)
        hi = self._cache.cached_from

        def loaded(result: list[Entry] | BaseException) -> None:
            self.reading.discard(lo)
            if not self._life.serving:
                return
            if isinstance(result, Refused) and result.code is Code.NOT_FOUND:
                result = []  # Log GC removed them meanwhile: the core notices that and asks for a copy.
            if isinstance(result, BaseException) and exhausted(result) is not None:
                self.missed = True  # the executor makes the core request them again
                return
            if isinstance(result, BaseException):
                self._life.fail(result)
                return
            self._cache.load(result)
            self._on_loaded()

        self._run_heavy(lambda: self._log.read(lo, hi, self._bytes_max), loaded)
