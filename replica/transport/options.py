"""Options of the links between servers."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import check, limits


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Bounds and times of one server's links; validated at construction. All experimental."""

    queue_bytes_max: int = limits.PEER_QUEUE_BYTES_MAX
    """The bound of one peer's queue. Above it, entries are dropped (Raft sends them again); votes, heartbeats and
    replies are kept."""
    queue_messages_max: int = 100_000
    """Above it, every message is dropped."""
    batch_bytes_max: int = limits.APPEND_BATCH_BYTES_MAX
    backoff_first_ms: int = 20
    backoff_max_ms: int = 1000
    connect_timeout_ms: int = 3000
    """The time from the first call to an open link; a ticket is valid for as long."""
    link_buffer_bytes: int = 1 << 20
    """The unsent bytes that one link may have, beside one batch; the rest waits in the queue."""
    silence_ms: int = 6000
    """If the other end acknowledges neither TCP probes nor data for this time, the kernel ends the link."""

    def __post_init__(self) -> None:
        check(0 < self.backoff_first_ms <= self.backoff_max_ms, "back-off grows", first=self.backoff_first_ms)
        check(
            0 < self.batch_bytes_max < limits.GRPC_MESSAGE_BYTES_MAX,
            "a batch fits into a frame",
            batch_bytes_max=self.batch_bytes_max,
        )
        check(self.queue_bytes_max >= self.batch_bytes_max, "a queue holds a batch", queue=self.queue_bytes_max)
