"""Hands committed entries to the state machine: in order, one call at a time, large ones off the owner's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nyala.replica.raft import EntriesUnavailable
from nyala.replica.types import Corruption, Entry, ResourcesExhausted, check
from nyala.replica.wal import Log

from .log_cache import LogCache
from .state_machine import RunHeavy, StateMachine

_log = logging.getLogger("nyala.raft_driver")

_Applied = tuple[Sequence[Entry], list[Any]]
_INLINE_ENTRIES_MAX = 32
_BATCHED_ENTRIES_MAX = 16
"""With so many entries, a wait for more would gain nothing."""


@dataclass(eq=False, kw_only=True)
class Applier:
    """Feeds the state machine.

    Invariants: entries are applied in index order, each once, none above the commit index, and none that is not durable
    in this replica's own log, so that a flush never runs ahead of the log that a restart finds.
    Concurrency: the owner's thread. `apply` runs there for small entries that are in memory, otherwise in the heavy
    lane.
    """

    state_machine: StateMachine
    cache: LogCache
    log: Log
    run_heavy: RunHeavy
    bytes_max: int
    inline_bytes_max: int
    on_applied: Callable[[Sequence[Entry], list[Any]], None]
    on_error: Callable[[BaseException], None]
    _busy: bool = field(default=False, init=False)
    _stopped: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.applied_index = self.state_machine.applied_opid.index

    def stop(self) -> None:
        """Apply nothing more; the result of a call that is under way is ignored."""
        self._stopped = True

    def advance(self, through_index: int) -> None:
        """Apply entries up to `through_index`, which are committed and durable here."""
        while not self._busy and not self._stopped and self.applied_index < through_index:
            lo, hi = self.applied_index + 1, through_index + 1
            try:
                entries: Sequence[Entry] | None = self.cache.entries(lo, hi, self.bytes_max)
            except EntriesUnavailable:
                entries = None
            self._busy = True
            if entries is not None and self._is_small(entries):
                self._applied(self._attempt(entries))
            else:
                self.run_heavy(lambda entries=entries, lo=lo, hi=hi: self._work(entries, lo, hi), self._applied)  # type: ignore[misc]

    def may_wait(self, through_index: int) -> bool:
        """Whether the unapplied entries up to `through_index` are so few and small that they may wait for more."""
        lo, hi = self.applied_index + 1, through_index + 1
        if hi - lo >= _BATCHED_ENTRIES_MAX or lo < self.cache.cached_from:
            return False
        return lo >= hi or self._is_small(self.cache.entries(lo, hi, self.bytes_max))

    def _is_small(self, entries: Sequence[Entry]) -> bool:
        return (
            len(entries) <= _INLINE_ENTRIES_MAX and sum(entry.size_bytes for entry in entries) <= self.inline_bytes_max
        )

    def _work(self, entries: Sequence[Entry] | None, lo: int, hi: int) -> _Applied | None:
        """Read the entries if they are not in the cache, and apply them.

        None if a resource ran out during the read: nothing was applied, and the next `advance` tries again.
        """
        if entries is None:
            try:
                entries = self.log.read(lo, hi, self.bytes_max)
            except (ResourcesExhausted, MemoryError) as error:
                _log.warning("entries %d to %d wait to be applied: %s", lo, hi - 1, error)
                return None
            if not entries or entries[0].opid.index != lo:
                raise Corruption("the log does not hold an entry that was committed", index=lo)
        return self._apply(entries)

    def _attempt(self, entries: Sequence[Entry]) -> _Applied | BaseException:
        try:
            return self._apply(entries)
        except Exception as error:  # noqa: BLE001 - the owner decides, as for errors of the lane
            return error

    def _apply(self, entries: Sequence[Entry]) -> _Applied:
        results = self.state_machine.apply(entries)
        check(len(results) == len(entries), "one result for each entry", entries=len(entries), results=len(results))
        return entries, results

    def _applied(self, outcome: _Applied | BaseException | None) -> None:
        self._busy = False
        if self._stopped or outcome is None:
            return
        if isinstance(outcome, BaseException):
            self.on_error(outcome)
            return
        entries, results = outcome
        check(entries[0].opid.index == self.applied_index + 1, "entries are applied in order", first=entries[0].opid)
        self.applied_index = entries[-1].opid.index
        self.on_applied(entries, results)
