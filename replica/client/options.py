"""Options of a client. The end of a name says whether it is seconds, a count, or bytes."""

from __future__ import annotations

from dataclasses import dataclass, fields

from nyala.replica.types import Code, Refused, check_measure, check_whole, limits, staleness_problem

_AT_ONCE = ("writes_inflight_per_tablet_max", "scan_parallel_max")
COUNT_MAX = 1 << 31
"""Bounds the numbers of writes and bytes that an option may allow."""


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """Stable options of a client. Relations are checked at construction."""

    timeout_s: float = 30.0
    """Deadline of one call with all its retries."""
    write_timeout_s: float = 60.0
    """Deadline of one write with all its retries. It begins when all earlier writes of the window to that tablet are
    acknowledged. It is longer than a failover takes, and than a server's memory stays full. It is at most half the time
    for which tablets remember a silent client; otherwise they could take a repetition for a new write."""
    scan_timeout_s: float = 600.0
    """Deadline of one tablet's scan with all its restarts."""
    connect_timeout_s: float = 4.0
    """Bounds the first contact with the masters."""
    look_up_staleness_s: float = 0.0
    """If it is not 0, the client asks any master whose catalog is at most so old for the locations of tablets, which
    takes load off the leading one. It finds a server that has moved since by retries, as with cached locations."""
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
            value = getattr(self, field.name)
            if field.name.endswith("_s"):
                value = check_measure(value, field.name, 0, limits.SECONDS_MAX)
            else:
                value = check_whole(value, field.name, 1, 64 if field.name in _AT_ONCE else COUNT_MAX)
            object.__setattr__(self, field.name, value)  # as Python's own number
        write_s_max = limits.LEDGER_CLIENT_TTL_US / 2e6
        batch = limits.BATCH_SIZE_BYTES_MAX
        for holds, name, what in (
            (
                self.look_up_staleness_s == 0 or not staleness_problem(self.look_up_staleness_s * 1e6),
                "look_up_staleness_s",
                f"is 0, or above {limits.CLOCK_DIFFERENCE_US_MAX / 1e6:g}",
            ),
            (self.timeout_s > 0, "timeout_s", "is above 0"),
            (self.scan_timeout_s > 0, "scan_timeout_s", "is above 0"),
            (self.connect_timeout_s > 0, "connect_timeout_s", "is above 0"),
            (0 < self.backoff_first_s <= self.backoff_max_s, "backoff_first_s", "is above 0, up to backoff_max_s"),
            (
                0 < self.attempt_timeout_s <= self.write_timeout_s,
                "attempt_timeout_s",
                "is above 0, up to write_timeout_s",
            ),
            (
                self.write_timeout_s <= write_s_max,
                "write_timeout_s",
                f"is at most {write_s_max:g}, half the time for which tablets remember a write",
            ),
            (self.write_bytes_inflight_max >= batch, "write_bytes_inflight_max", f"holds a batch of {batch} bytes"),
        ):
            if not holds:
                related = {f.name: getattr(self, f.name) for f in fields(self) if f.name == name or f.name in what}
                raise Refused(Code.INVALID_ARGUMENT, f"{name} {what}; give another number", related)
