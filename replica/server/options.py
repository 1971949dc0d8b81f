"""The options of a tablet server. Sizes in bytes, times in the unit at the end of their name."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nyala.replica.types import Address, check, limits

_LOCATION = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of one tablet server; validated at construction.

    Stable: root, listen, tls, insecure, masters, location, metrics_port. Experimental: everything else.
    Unsafe: wal_sync.
    """

    root: str
    listen: str = "127.0.0.1:0"
    """host:port; port 0: the kernel chooses a free one."""
    advertise: str = ""
    """host:port at which masters, servers and clients reach this server; empty: the listening address."""
    tls: str = ""
    """The directory of this process's TLS credentials; empty: no TLS."""
    insecure: bool = False
    """Whether it may listen beyond loopback without TLS."""
    peer_port: int = 0
    """The port for links, on the host of `listen`; 0: the kernel chooses a free one. Others learn it from
    `OpenLink`."""
    masters: tuple[Address, ...] = ()
    location: str = ""
    """The place in the data center, as /zone/rack; replicas of one tablet go to different ones. Empty: not known."""
    ready_file: str = ""
    parent_fd: int = -1
    metrics_port: int = -1
    wal_sync: bool = True
    """Unsafe when off: a power loss then forgets acknowledged writes."""
    wal_segment_size_bytes_max: int = limits.WAL_SEGMENT_SIZE_BYTES_MAX
    """The highest preallocated length of a log segment. Log GC frees whole segments; each busy tablet has two."""
    tick_ms: int = 50
    heartbeat_ms: int = 500
    quiet_after_ms: int = 1000
    """A tablet that was idle for this time stops its heartbeats and timers until it is needed. 0: never."""
    tablets_max: int = limits.TABLETS_PER_SERVER_MAX
    """The most replicas of this server, without tombstones; one more is refused OVERLOADED."""
    heavy_threads: int = 6
    scan_threads: int = 4
    open_threads: int = 4
    copy_jobs_max: int = 2
    copy_streams: int = 4
    """The files that one copy job downloads at once; each takes a window and a few chunks of memory."""
    copy_rate_bytes_per_s: int = 0
    """The bound on all copies into and out of this server together; 0: none; otherwise at least 128 KiB/s."""
    copy_busy_rate_bytes_per_s: int = limits.COPY_BUSY_RATE_BYTES_PER_S
    """The same bound while clients write to this server's replicas, and for a second after; 0: no other bound then."""
    scrub_mb_per_s: int = 8
    """The bound on the scrub's reads, in 10^6 bytes per second; 0: no scrub."""
    scrub_interval_s: float = 86400.0
    """A block or closed segment is checked at most once in this time; later if the bound above does not allow it."""
    maintenance_ms: int = 250
    memory_soft_bytes: int = limits.SERVER_MEMORY_SOFT_BYTES
    log_cache_bytes: int = 8 << 20
    apply_inline_bytes: int = 16 << 10
    """Committed entries up to this size are applied on the loop: a thread's round trip would cost more than they do."""
    log_retain_bytes: int = 64 << 20
    """The log that is kept for followers that lag, per tablet; a follower that needs more is copied anew."""
    log_retain_entries: int = 1000
    flush_wal_bytes: int = 64 << 20
    """A tablet is flushed when its log has grown by this much, so that restarts stay short."""

    def __post_init__(self) -> None:
        fits = len(self.location) <= limits.NAME_LENGTH_MAX and _LOCATION.fullmatch(self.location)
        check(
            not self.location or bool(fits),
            "a location is /zone, /zone/rack or longer: letters, digits, '.', '_' and '-' behind each slash, at most "
            f"{limits.NAME_LENGTH_MAX} characters; give another one, or none",
            location=self.location,
        )
        check(self.tick_ms > 0, "a tick takes time", tick_ms=self.tick_ms)
        check(self.tablets_max > 0, "a server holds a tablet", tablets_max=self.tablets_max)
        check(self.quiet_after_ms >= 0, "idle time is not negative", quiet_after_ms=self.quiet_after_ms)
        first, longest = limits.WAL_SEGMENT_SIZE_BYTES_FIRST, self.wal_segment_size_bytes_max
        check(
            longest >= first, "a log's first segment is its shortest", first=first, wal_segment_size_bytes_max=longest
        )
        check(self.heartbeat_ms >= self.tick_ms, "heartbeats are sent on ticks", heartbeat_ms=self.heartbeat_ms)
        for name in ("heavy_threads", "scan_threads", "open_threads", "copy_jobs_max", "copy_streams"):
            check(getattr(self, name) > 0, "a pool needs a thread", option=name)
        check(
            self.copy_streams <= limits.COPY_STREAMS_MAX, "a copy's memory is bounded", copy_streams=self.copy_streams
        )
        for name in ("copy_rate_bytes_per_s", "copy_busy_rate_bytes_per_s"):
            rate = getattr(self, name)
            check(
                rate == 0 or rate >= limits.COPY_RATE_MIN_BYTES_PER_S,
                "a slower copy never ends",
                option=name,
                rate=rate,
            )
        check(self.scrub_mb_per_s >= 0, "a rate is 0 or more", scrub_mb_per_s=self.scrub_mb_per_s)
        check(self.scrub_interval_s > 0, "a check of all blocks takes time", scrub_interval_s=self.scrub_interval_s)
        check(self.memory_soft_bytes > 0, "memory must be bounded", memory_soft_bytes=self.memory_soft_bytes)
