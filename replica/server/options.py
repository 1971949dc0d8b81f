"""The options of a tablet server. Sizes in bytes, times in the unit at the end of their name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from operator import not_
from typing import Annotated

from nyala.replica.types import Address, check, limits, place_to_listen
from nyala.replica.types.options import Option
from nyala.replica.types.process_options import ProcessOptions

DERIVED = 0
"""The value of an option that the server derives from the processors and the memory of its process."""
_LOCATION = re.compile(r"(?:/[A-Za-z0-9._-]+)+")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """Options of one tablet server; validated at construction.

    Stable: root, listen, masters, location, and what `process` says. Experimental: everything else.
    Unsafe: wal_sync.
    """

    root: Annotated[str, Option("directory of this server; formatted at the first start")]
    listen: Annotated[str, Option("host:port; port 0 takes a free one")] = "127.0.0.1:0"
    """host:port; port 0: the kernel chooses a free one."""
    advertise: Annotated[
        str,
        Option("host:port that others are told, if not the listening one; masters call it before this server counts"),
    ] = ""
    """host:port at which masters, servers and clients reach this server; empty: the listening address."""
    process: ProcessOptions = field(default_factory=ProcessOptions)
    peer_port: Annotated[int, Option("for links of other servers and clients, on the same host; 0: a free one")] = 0
    """The port for links, on the host of `listen`; 0: the kernel chooses a free one. Others learn it from
    `OpenLink`."""
    masters: Annotated[tuple[Address, ...], Option("addresses of all masters")] = ()
    location: Annotated[str, Option("where this server stands, as /zone/rack")] = ""
    """The place in the data center, as /zone/rack; replicas of one tablet go to different ones. Empty: not known."""
    ready_file: Annotated[str, Option("written as JSON once the server listens", in_file=False)] = ""
    parent_fd: Annotated[int, Option("pipe whose end means: stop", in_file=False)] = -1
    wal_sync: Annotated[
        bool,
        Option("unsafe: a power loss forgets acknowledged writes", name="unsafe_no_wal_sync", plain=False, made=not_),
    ] = True
    """Unsafe when off: a power loss then forgets acknowledged writes."""
    wal_segment_size_bytes_max: Annotated[
        int, Option("longest segment of a tablet's log, preallocated; they begin small and double")
    ] = limits.WAL_SEGMENT_SIZE_BYTES_MAX
    """The highest preallocated length of a log segment. Log GC frees whole segments; each busy tablet has two."""
    tick_ms: int = 50
    heartbeat_ms: int = 500
    quiet_after_ms: int = 1000
    """A tablet that was idle for this time stops its heartbeats and timers until it is needed. 0: never."""
    tablets_max: Annotated[int, Option("replicas that this server holds")] = limits.TABLETS_PER_SERVER_MAX
    """The most replicas of this server, without tombstones; one more is refused OVERLOADED."""
    heavy_threads: Annotated[
        int,
        Option("threads that flush, compact and apply; 0: three for each processor of this process, 2 to 6"),
    ] = DERIVED
    scan_threads: Annotated[
        int, Option("threads that read rows for scans; 0: two for each processor of this process, 1 to 4")
    ] = DERIVED
    open_threads: Annotated[
        int, Option("tablets that open at once; 0: two for each processor of this process, 1 to 4")
    ] = DERIVED
    copy_jobs_max: Annotated[int, Option("tablet copies into this server at once")] = 2
    copy_streams: int = 4
    """The files that one copy job downloads at once; each takes a window and a few chunks of memory."""
    copy_rate_bytes_per_s: Annotated[
        int, Option("limit of all tablet copies into and out of this server together; 0: none")
    ] = 0
    """The bound on all copies into and out of this server together; 0: none; otherwise at least 128 KiB/s."""
    copy_busy_rate_bytes_per_s: Annotated[
        int, Option("the same while clients write here, and for a second after; 0: no other limit")
    ] = limits.COPY_BUSY_RATE_BYTES_PER_S
    """The same bound while clients write to this server's replicas, and for a second after; 0: no other bound then."""
    scrub_mb_per_s: Annotated[
        int, Option("how fast blocks and closed log segments are read again to find damage, in 10^6 bytes; 0: never")
    ] = 8
    """The bound on the scrub's reads, in 10^6 bytes per second; 0: no scrub."""
    scrub_interval_s: Annotated[float, Option("each of them at most once in this time")] = 86400.0
    """A block or closed segment is checked at most once in this time; later if the bound above does not allow it."""
    maintenance_ms: int = 250
    memory_soft_bytes: Annotated[
        int,
        Option(
            "above this much memory, writes are refused; 0: half of what the memory limit of this process leaves above "
            "160 MiB, 32 to 340 MiB"
        ),
    ] = DERIVED
    """Memory beyond that of an idle process (`runtime/memory.py`). `runtime/sizing.py` derives it, and says why."""
    log_cache_bytes: int = 8 << 20
    apply_inline_bytes: int = 16 << 10
    """Committed entries up to this size are applied on the loop: a thread's round trip would cost more than they do."""
    log_retain_bytes: Annotated[int, Option("log that a tablet keeps for followers that lag")] = 64 << 20
    """The log that is kept for followers that lag, per tablet; a follower that needs more is copied anew."""
    log_retain_entries: Annotated[int, Option("entries that a tablet keeps for followers that lag")] = 1000
    flush_wal_bytes: int = 64 << 20
    """A tablet is flushed when its log has grown by this much, so that restarts stay short."""

    def __post_init__(self) -> None:
        check(bool(self.root), "a server needs a directory: give its root")
        place_to_listen(self.listen)
        if self.advertise:
            Address.given(self.advertise)
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
        check(self.copy_jobs_max > 0, "at least one copy may run", copy_jobs_max=self.copy_jobs_max)
        for name in ("heavy_threads", "scan_threads", "open_threads"):
            check(getattr(self, name) >= DERIVED, "a pool needs a thread; 0 derives how many", option=name)
        check(self.copy_streams > 0, "a pool needs a thread", option="copy_streams")
        check(
            self.copy_streams <= limits.COPY_STREAMS_MAX, "a copy's memory is bounded", copy_streams=self.copy_streams
        )
        for name in ("copy_rate_bytes_per_s", "copy_busy_rate_bytes_per_s"):
            rate = getattr(self, name)
            check(rate >= 0, "a rate is 0 or more", option=name, rate=rate)
            check(
                rate == 0 or rate >= limits.COPY_RATE_MIN_BYTES_PER_S,
                "a slower copy never ends",
                option=name,
                rate=rate,
            )
        check(self.scrub_mb_per_s >= 0, "a rate is 0 or more", scrub_mb_per_s=self.scrub_mb_per_s)
        check(self.scrub_interval_s > 0, "a check of all blocks takes time", scrub_interval_s=self.scrub_interval_s)
        soft_bytes = self.memory_soft_bytes
        check(soft_bytes >= DERIVED, "memory must be bounded; 0 derives the bound", memory_soft_bytes=soft_bytes)
