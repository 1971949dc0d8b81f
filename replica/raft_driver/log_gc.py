"""Decides how much log to keep, by a pure function, and deletes the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from nyala.replica.raft import RaftCore
from nyala.replica.types import is_transient
from nyala.replica.wal import SegmentInfo

from .environment import Files
from .lifecycle import Lifecycle
from .log_cache import LogCache
from .options import DriverOptions
from .pending import Done
from .state_machine import RunHeavy


def keep_from(
    *,
    flush_index: int,
    config_saved_index: int,
    config_committed_index: int,
    peers_match: Sequence[int],
    segments: Sequence[SegmentInfo],
    retain_entries: int,
    retain_bytes_max: int,
) -> int:
    """The first index that must stay. The log itself keeps the segments that copy sessions hold.

    Unflushed entries stay in any case, and so does a config that is not in the consensus metadata yet. Below them, the
    entries that the slowest peer still needs, and the last `retain_entries`, stay as long as all segments together take
    at most `retain_bytes_max`.
    """
    must = flush_index + 1
    if config_saved_index < config_committed_index:
        must = min(must, config_committed_index)
    wanted = min([must - retain_entries, *(match + 1 for match in peers_match)])
    total = 0
    affordable = 1
    for segment in reversed(segments):
        total += segment.length_bytes
        if total > retain_bytes_max:
            affordable = segment.last_index + 1
            break
    return max(min(must, max(wanted, affordable)), 1)


@dataclass(eq=False, kw_only=True)
class LogGc:
    """Log GC of one running replica. Invariant: one call is under way at most. Concurrency: owner's thread."""

    files: Files
    core: RaftCore
    cache: LogCache
    life: Lifecycle
    run_heavy: RunHeavy
    options: DriverOptions
    running: bool = field(default=False, init=False)

    def collect(self, done: Done) -> None:
        """Delete log that is no longer needed, off-thread; calls `done(bytes freed | Refused)`."""
        if self.running:
            done(0)
            return
        log = self.files.log
        index = keep_from(
            flush_index=self.files.state_machine.flush_opid.index,
            config_saved_index=self.files.cmeta.committed_config.opid.index,
            config_committed_index=self.core.committed_config.opid.index,
            peers_match=[peer.match_index for peer in self.core.peer_status() if not peer.needs_copy],
            segments=log.segments(),
            retain_entries=self.options.log_retain_entries,
            retain_bytes_max=self.options.log_retain_bytes_max,
        )
        self.running = True

        def collected(result: int | BaseException) -> None:
            self.running = False
            if is_transient(result):
                result = 0  # the next call goes on
            if isinstance(result, BaseException):
                self.life.fail(result)
                return
            if self.life.serving and log.first_index:
                self.cache.collected(log.first_index)
            done(result)

        self.run_heavy(lambda: log.gc(index), collected)
