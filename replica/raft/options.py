"""Options of one core. Times are in ticks of the driver; every relation between them is checked once, here."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import check, limits

CLOCK_DRIFT_PERCENT = 10
"""The highest assumed difference in speed of two servers' monotonic clocks. Real ones differ by less than 0.1 %."""

TICK_SLACK = 2
"""A tick may come up to one period late, and the next one right after it. So n ticks last more than n - 2 periods."""


@dataclass(frozen=True, kw_only=True)
class RaftOptions:
    """Times and bounds of one core. All are stable. They need not be equal on all replicas, with one exception:
    `election_ticks_min`, times the driver's tick, must be no shorter on a voter than on the leader, or leases break."""

    heartbeat_ticks: int = 2
    """A leader sends to every peer at least once in so many ticks."""
    election_ticks_min: int = 12
    """The minimum election timeout: no vote is given against a leader heard more recently than this."""
    election_ticks_max: int = 20
    """A follower draws its timeout from [min, max]; a leader that hears no quorum for this long steps down."""
    append_batch_bytes_max: int = limits.APPEND_BATCH_BYTES_MAX
    """The highest sum of the entries of one AppendEntries, unless it has only one."""
    append_entries_max: int = limits.APPEND_ENTRIES_MAX
    append_meta_bytes_max: int = limits.APPEND_META_BYTES_MAX
    """The highest sum of the metas in one AppendEntries, its first entry excepted: a follower decodes them on its
    loop."""
    append_batch_bytes_min: int = 64 << 10
    """A smaller sum of entries waits while the peer has yet to answer, and is sent when it does. So with many small
    writes, each message carries the entries that arrived during the one before it. 0: nothing waits."""
    probe_bytes_max: int = 64 << 10
    """The highest sum of the entries of one AppendEntries to a peer whose log is not known to match."""
    inflight_messages_max: int = limits.APPEND_INFLIGHT_MESSAGES_MAX
    inflight_bytes_max: int = limits.APPEND_INFLIGHT_BYTES_MAX
    promote_round_ticks_max: int = 12
    """A `promote` non-voter is caught up once one round of replication took no longer than this [thesis §4.2.1]."""
    config_abort_ticks: int = 200
    """If the new voters have not committed a config change after these ticks (10 s), and the old ones could, the leader
    takes it back."""
    copy_retry_ticks_min: int = 12
    """Back-off before the same peer is named in `copies_needed` again; doubles up to the maximum."""
    copy_retry_ticks_max: int = 120
    quiet_after_ticks: int = 0
    """A group that was idle for so many ticks goes quiet: no ticks, no heartbeats, no lease; see quiet.py. 0: never.
    With another value, the driver must call `server_silent`, `server_heard` and `probe_quiet_group`."""
    reads_pending_max: int = 4096
    """Strong reads waiting for their heartbeat round; one more is refused OVERLOADED."""

    @property
    def lease_ticks(self) -> int:
        """The time for which an echoed round proves that no other replica leads. 0: never, so every strong read takes a
        round."""
        return (self.election_ticks_min - TICK_SLACK) * 100 // (100 + CLOCK_DRIFT_PERCENT)

    def __post_init__(self) -> None:
        check(self.heartbeat_ticks >= 1, "heartbeat_ticks must be at least 1", value=self.heartbeat_ticks)
        check(
            2 * self.heartbeat_ticks <= self.election_ticks_min,
            "an election timeout must survive one lost heartbeat",
            heartbeat_ticks=self.heartbeat_ticks,
            election_ticks_min=self.election_ticks_min,
        )
        check(
            self.election_ticks_min < self.election_ticks_max,
            "timeouts need room to differ",
            election_ticks_min=self.election_ticks_min,
            election_ticks_max=self.election_ticks_max,
        )
        for name in (
            "append_batch_bytes_max",
            "append_entries_max",
            "append_meta_bytes_max",
            "probe_bytes_max",
            "inflight_messages_max",
            "inflight_bytes_max",
        ):
            check(getattr(self, name) >= 1, "windows hold at least one", option=name, value=getattr(self, name))
        check(
            self.config_abort_ticks >= self.election_ticks_max,
            "a change may take as long as an election",
            config_abort_ticks=self.config_abort_ticks,
            election_ticks_max=self.election_ticks_max,
        )
        check(self.promote_round_ticks_max >= 1, "a round lasts a tick", value=self.promote_round_ticks_max)
        check(
            1 <= self.copy_retry_ticks_min <= self.copy_retry_ticks_max,
            "the copy back-off grows",
            copy_retry_ticks_min=self.copy_retry_ticks_min,
            copy_retry_ticks_max=self.copy_retry_ticks_max,
        )
        check(self.quiet_after_ticks >= 0, "idle time is not negative", quiet_after_ticks=self.quiet_after_ticks)
        check(self.reads_pending_max >= 1, "at least one read may wait", value=self.reads_pending_max)
