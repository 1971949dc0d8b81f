"""Makes the term, the vote and the entries of each Ready durable, and reports in order which Ready is durable."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import Ready
from nyala.replica.types import (
    Code,
    InvariantViolation,
    OpId,
    Post,
    RaftConfig,
    Refused,
    ReplicaError,
    ResourcesExhausted,
    is_transient,
)
from nyala.replica.wal import Log

from .state_machine import RunHeavy


class _PendingReady:
    """One Ready on its way to disk."""

    __slots__ = ("entries_left", "hard_state_left", "ready")

    def __init__(self, ready: Ready) -> None:
        self.ready = ready
        self.hard_state_left = ready.hard_state is not None
        self.entries_left = bool(ready.entries)


@dataclass(eq=False, kw_only=True)
class Persister:
    """Writes hard states to consensus metadata and entries to the log, and says when each Ready is durable.

    Invariants: `on_durable(ready)` is called once for each submitted Ready, in that order, and only when its own and
    all earlier hard states and entries are on disk. Entries of a term go to the log only after that term is in the
    metadata, so no log has a term that the metadata lack after a restart. If the disk is full or a resource is
    exhausted, entries and metadata wait, in order, until `retry` finds room; `full` reports that. A disk that hangs
    does not end the replica either; `hangs` reports it. If the log's queue is full (`has_room`), entries wait here,
    because the log would block the owner's thread, and every tablet with it. Metadata is written one piece at a time,
    so that a later term never overtakes one that has to wait.
    Concurrency: the owner's thread; the log's appender thread only posts.
    """

    cmeta: ConsensusMeta
    log: Log
    run_meta: RunHeavy
    post: Post
    on_entries: Callable[[OpId], None]
    """Called with the last OpId of entries that the log has durably, perhaps before their Ready is durable."""
    on_durable: Callable[[Ready], None]
    on_error: Callable[[BaseException], None]
    hang_ticks: int
    """The disk hangs if it has writes to do and completes none of them for this number of ticks."""
    _items: deque[_PendingReady] = field(default_factory=deque, init=False)
    _unsaved: deque[_PendingReady] = field(default_factory=deque, init=False)
    """`Ready` objects whose hard state is not durable yet, in order; only the first is being written."""
    _unsaved_config: RaftConfig | None = field(default=None, init=False)
    """The latest committed config that is not durable yet; earlier ones need not be saved."""
    _held: list[_PendingReady] = field(default_factory=list, init=False)
    """`Ready` objects whose entries were not given to the log yet, in order."""
    _stopped: bool = field(default=False, init=False)
    _saving: bool = field(default=False, init=False)
    _saving_config: bool = field(default=False, init=False)
    _log_full: bool = field(default=False, init=False)
    """Whether the disk, or another resource, had no room for entries; `retry` tries again."""
    _meta_full: bool = field(default=False, init=False)
    """The same for metadata."""
    refusal: Refused = field(default_factory=lambda: Refused(Code.NO_SPACE, "the disk is full"), init=False)
    """The refusal for callers while `full`."""
    _log_queue_full: bool = field(default=False, init=False)
    """Whether entries wait here because the log's queue is full; they go on when entries of the queue are durable."""
    _ticks_without_completion: int = field(default=0, init=False)

    @property
    def full(self) -> bool:
        """Whether a write waits because the disk has no room, or another resource is exhausted."""
        return self._log_full or self._meta_full

    def has_room(self, size_bytes: int) -> bool:
        """Whether the log's queue takes so many bytes now, and no entries wait for it."""
        return not self._log_queue_full and self.log.has_room(size_bytes)

    @property
    def hangs(self) -> bool:
        """Whether the disk has writes to do, and completed none of them for a long time."""
        return self._ticks_without_completion >= self.hang_ticks

    @property
    def waiting(self) -> int:
        """The number of `Ready` objects that are not durable yet, or that follow one that is not."""
        return len(self._items)

    def submit(self, ready: Ready) -> None:
        """Begin to make `ready` durable."""
        item = _PendingReady(ready)
        self._items.append(item)
        if item.hard_state_left:
            self._unsaved.append(item)
            self._save_next()
        if item.entries_left:
            self._held.append(item)
            self._append_held()
        self._complete()

    def save_config(self, config: RaftConfig) -> None:
        """Begin to make a committed config durable. No message waits for it. Log GC does: it keeps the config's entry
        until the metadata have the config."""
        self._unsaved_config = config
        self._save_next_config()

    def tick(self) -> None:
        """Advance by one tick of the owner's timer."""
        self._ticks_without_completion = self._ticks_without_completion + 1 if self._items else 0

    def retry(self) -> None:
        """Try the writes again that wait because the disk was full or a resource was exhausted."""
        if self.full and not self._stopped:
            self._log_full = self._meta_full = False
            self._save_next()
            self._save_next_config()
            self._append_held()

    def stop(self) -> None:
        """Ignore the completions of writes that are still under way."""
        self._stopped = True
        self._items.clear()
        self._held.clear()

    def _save_next(self) -> None:
        if self._saving or self._meta_full or not self._unsaved:
            return
        hard_state = self._unsaved[0].ready.hard_state
        if hard_state is None:
            return
        self._saving = True
        term, voted_for = hard_state.term, hard_state.voted_for
        self.run_meta(lambda: self.cmeta.save_hard_state(term, voted_for), self._hard_state_saved)

    def _hard_state_saved(self, result: BaseException | None) -> None:
        self._saving = False
        if self._save_succeeded(result):
            self._unsaved.popleft().hard_state_left = False
            self._save_next()
            self._append_held()
            self._complete()

    def _save_next_config(self) -> None:
        config = self._unsaved_config
        if self._saving_config or self._meta_full or config is None:
            return
        self._saving_config = True
        self.run_meta(lambda: self.cmeta.save_config(config), lambda result: self._config_saved(config, result))

    def _config_saved(self, config: RaftConfig, result: BaseException | None) -> None:
        self._saving_config = False
        if self._save_succeeded(result):
            if self._unsaved_config is config:
                self._unsaved_config = None
            self._save_next_config()

    def _save_succeeded(self, result: BaseException | None) -> bool:
        """Whether a save of metadata succeeded. If it failed because the disk was full or a resource was exhausted, it
        waits for `retry`; any other failure is reported."""
        self._ticks_without_completion = 0
        if self._stopped:
            return False
        if isinstance(result, Refused) and is_transient(result):
            self._meta_full, self.refusal = True, result
            return False
        if isinstance(result, BaseException):
            self.on_error(result)
            return False
        return True

    def _append_held(self) -> None:
        """Give waiting entries to the log, in order, up to the first that has no room or whose hard state is not
        durable."""
        self._log_queue_full = False
        while self._held and not self._log_full:
            first = self._held[0]
            if self._unsaved and _number(self._unsaved[0]) <= _number(first):
                return
            self._log_queue_full = not self.log.has_room(sum(entry.size_bytes for entry in first.ready.entries))
            if self._log_queue_full:
                return  # `_appended` calls this again when the entries in the queue are durable
            self._append(self._held.pop(0))

    def _hold(self, item: _PendingReady, refusal: Refused | None = None) -> None:
        """Let the entries of `item` wait, because the disk is full or a resource is exhausted."""
        self._log_full = True
        self.refusal = refusal or self.refusal
        insort(self._held, item, key=_number)

    def _append(self, item: _PendingReady) -> None:
        ready = item.ready
        if ready.truncate_from is not None:
            self.log.truncate_after(ready.truncate_from - 1)

        def durable(result: Any) -> None:  # on the appender thread
            self.post(lambda: self._appended(item, result))

        try:
            self.log.append(ready.entries, durable)
        except InvariantViolation:
            # The appender thread may just have failed entries before these, because the disk was full. Then the log
            # ends earlier than we know, and their completions are on the way.
            if self.log.last_reserved.index >= ready.entries[0].opid.index - 1:
                raise
            self._hold(item)
        except ResourcesExhausted as error:  # no thread for the log's appender: nothing was reserved
            self._hold(item, error)
        except (ReplicaError, MemoryError) as error:  # the log has stopped, and raises the reason
            self.on_error(error)

    def _appended(self, item: _PendingReady, result: OpId | BaseException) -> None:
        self._ticks_without_completion = 0
        if self._stopped:
            return
        if isinstance(result, Refused) and is_transient(result):
            self._hold(item, result)
            return
        if isinstance(result, BaseException):
            self.on_error(result)
            return
        item.entries_left = False
        self.on_entries(item.ready.entries[-1].opid)
        self._complete()
        self._append_held()

    def _complete(self) -> None:
        while self._items and not self._items[0].hard_state_left and not self._items[0].entries_left:
            self.on_durable(self._items.popleft().ready)


def _number(item: _PendingReady) -> int:
    return item.ready.number
