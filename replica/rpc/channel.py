"""Options that both ends of every connection share."""

from __future__ import annotations

from nyala.replica.base import limits

_SIZES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
)

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SIZES,
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # One connection per channel: a new channel to an address never inherits another's back-off.
    ("grpc.use_local_subchannel_pool", 1),
)

COPY_CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    *(option for option in CHANNEL_OPTIONS if option[0] != "grpc.min_reconnect_backoff_ms"),
    # gRPC also gives a connection so long to come about. A copy has only one and asks for it once: a busy source may
    # take a while, a dead one refuses at once.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    # A copy moves megabytes one way. With gRPC's own sizes (frames of 16 KiB, reads of 8 KiB that grow slowly) a byte
    # costs more than half as much CPU again. The window, per file that is fetched, bounds what waits in memory here.
    ("grpc.http2.max_frame_size", 1 << 20),
    ("grpc.http2.lookahead_bytes", limits.COPY_WINDOW_BYTES),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.experimental.tcp_read_chunk_size", 1 << 20),
    ("grpc.experimental.tcp_min_read_chunk_size", 256 << 10),
    ("grpc.experimental.tcp_max_read_chunk_size", limits.COPY_WINDOW_BYTES),
)
"""For the one connection on which a copy is fetched."""

SERVER_OPTIONS: tuple[tuple[str, int], ...] = (
    *_SIZES,
    # Two servers on one port would share its connections; the second must fail to bind.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
)
