"""Options of the streams between servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nyala.replica.base import check, limits


@dataclass(frozen=True, kw_only=True)
class PeerOptions:
    """Bounds and times of one server's outgoing streams; validated at construction. All experimental."""

    queue_bytes_max: int = limits.PEER_QUEUE_BYTES_MAX
    """Per peer. Over it, entries are dropped (Raft sends them again); votes, heartbeats and replies are kept."""
    queue_messages_max: int = 100_000
    batch_bytes_max: int = limits.APPEND_BATCH_BYTES_MAX
    backoff_first_ms: int = 20
    backoff_max_ms: int = 1000
    connect_timeout_ms: int = 3000

    def __post_init__(self) -> None:
        check(0 < self.backoff_first_ms <= self.backoff_max_ms, "back-off grows", first=self.backoff_first_ms)
        check(
            0 < self.batch_bytes_max < limits.GRPC_MESSAGE_BYTES_MAX,
            "a batch fits a gRPC message",
            batch_bytes_max=self.batch_bytes_max,
        )
        check(self.queue_bytes_max >= self.batch_bytes_max, "a queue holds a batch", queue=self.queue_bytes_max)


_SIZES: list[tuple[str, Any]] = [
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
]

CHANNEL_OPTIONS: list[tuple[str, Any]] = [
    *_SIZES,
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # a new channel is a new connection and a new name lookup
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
]
"""For every channel between processes of a cluster."""

SERVER_OPTIONS: list[tuple[str, Any]] = [
    *_SIZES,
    ("grpc.so_reuseport", 0),  # a second server on one port must fail, not share it
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
]
"""For every server process of a cluster."""
