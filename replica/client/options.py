"""Options of a client. The end of a name says whether it is seconds, a count, or bytes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nyala.replica.types import check, check_number, limits


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Stable options of a client. Relations are checked at construction."""

    timeout_s: float = 30.0
    """Deadline of one call with all its retries."""
    write_timeout_s: float = 60.0
    """Deadline of one write with all its retries: longer than a failover takes, or a server whose memory is full. It is
    at most half the time for which tablets remember a silent client; otherwise they could take a repetition for a new
    write."""
    scan_timeout_s: float = 600.0
    """Deadline of one tablet's scan with all its restarts."""
    connect_timeout_s: float = 4.0
    """Bounds the first contact with the masters."""
    attempt_timeout_s: float = 4.0
    """Time limit of the first attempt; each attempt that times out doubles the next one's, up to the call's
    deadline."""
    backoff_first_s: float = 0.02
    backoff_max_s: float = 1.0
    writes_inflight_per_tablet_max: int = 4
    writes_inflight_max: int = 256
    """Bounds the writes of one writer that are under way, to all tablets together."""
    write_bytes_inflight_max: int = limits.TABLET_WRITE_BYTES_PENDING_MAX
    scan_parallel_max: int = 4
    """Bounds the tablets read at the same time; each part is held in memory until it is complete."""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name.endswith("_s"):
                check_number(getattr(self, field.name), field.name, 0, limits.SECONDS_MAX)
        check(0 < self.backoff_first_s <= self.backoff_max_s, "back-off grows", first_s=self.backoff_first_s)
        check(0 < self.attempt_timeout_s <= self.write_timeout_s, "an attempt fits", attempt_s=self.attempt_timeout_s)
        remembered_s = limits.LEDGER_CLIENT_TTL_US / 1e6
        check(self.write_timeout_s <= remembered_s / 2, "tablets remember a write", write_s=self.write_timeout_s)
        check(self.timeout_s > 0 and self.scan_timeout_s > 0 and self.connect_timeout_s > 0, "deadlines are positive")
        check(1 <= self.writes_inflight_per_tablet_max <= 64, "window", window=self.writes_inflight_per_tablet_max)
        check(self.writes_inflight_max >= 1, "window", window=self.writes_inflight_max)
        check(self.write_bytes_inflight_max >= limits.BATCH_SIZE_BYTES_MAX, "one batch fits into the window")
        check(1 <= self.scan_parallel_max <= 64, "scan_parallel_max", scan_parallel_max=self.scan_parallel_max)
