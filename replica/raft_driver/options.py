"""The options of one replica. Sizes are in bytes or entries, as the name's end says."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import check, hybrid_from_us, limits


@dataclass(frozen=True, kw_only=True)
class DriverOptions:
    """Bounds of one replica; validated at construction. All experimental."""

    writes_pending_max: int = limits.TABLET_WRITES_PENDING_MAX
    write_bytes_pending_max: int = limits.TABLET_WRITE_BYTES_PENDING_MAX
    """The bound on writes that have an index and are not applied yet. Beyond it, a write is refused OVERLOADED before
    it gets an index."""
    log_cache_bytes_max: int = 8 << 20
    """The bound on durable and applied entries in memory, and at the start on those of the log above the flush. Durable
    entries that are not applied may take `write_bytes_pending_max` more; beyond that they are read back from the
    log."""
    log_retain_entries: int = 1000
    """The number of entries below the flush index that are kept, so that a follower which was away briefly needs no
    copy."""
    log_retain_bytes_max: int = 64 << 20
    """The most log that is kept for followers that lag; a follower that needs more is copied anew."""
    apply_bytes_max: int = 8 << 20
    """The most bytes of entries for one call of `apply`."""
    load_bytes_max: int = limits.APPEND_BATCH_BYTES_MAX
    """The most bytes of evicted entries that are read back from the log at once, for one peer."""
    apply_inline_bytes_max: int = 0
    """Committed entries up to this size in sum are applied on the owner's thread when nothing else is being applied;
    0: always off-thread."""
    held_readies_max: int = 256
    """The number of `Ready` objects that may wait for a disk that is full or hangs; beyond it the replica sends
    nothing."""
    wait_ticks_max: int = 600
    """The time that a caller waits for an index, a time or a read barrier; then it gets TIMED_OUT."""
    future_time_max: int = hybrid_from_us(limits.CLOCK_AHEAD_OF_CALLERS_US_MAX)
    """How far a snapshot time may be above this server's clock, in hybrid time."""
    waiters_max: int = 4096
    """The most callers that wait for an index, a time or a read barrier."""

    def __post_init__(self) -> None:
        for name in (
            "writes_pending_max",
            "write_bytes_pending_max",
            "apply_bytes_max",
            "load_bytes_max",
            "waiters_max",
            "held_readies_max",
        ):
            check(getattr(self, name) > 0, "a bound leaves room for one", option=name)
        for name in ("log_cache_bytes_max", "log_retain_entries", "log_retain_bytes_max", "apply_inline_bytes_max"):
            check(getattr(self, name) >= 0, "a size is not negative", option=name)
