"""Options of both ends of every connection: those of gRPC, and those of our own connections."""

from __future__ import annotations

import socket
from typing import Any

from nyala.replica.types import limits

_SIZES: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
)

_UNCOMPRESSED: tuple[str, int] = ("grpc.compression_enabled_algorithms_bitset", 1)
"""Only messages as they are: gRPC would expand a compressed one, a thousandfold, before anything can measure it. A
server refuses one with UNIMPLEMENTED. A caller gets an error, or the compressed bytes as its reply."""

Options = tuple[tuple[str, int], ...]


def replaced(options: Options, name: str, value: int) -> Options:
    """These options with another value of the one that has this name."""
    return tuple({**dict(options), name: value}.items())


def receiving(options: Options, bytes_max: int) -> Options:
    """These options for messages of at most so many bytes that come in."""
    return replaced(options, "grpc.max_receive_message_length", bytes_max)


CHANNEL_OPTIONS: Options = (
    *_SIZES,
    _UNCOMPRESSED,
    ("grpc.initial_reconnect_backoff_ms", 50),
    # The time in which a connection must be made, despite the name: a busy host, or one that is far away, answers the
    # first bytes late. A dead process refuses at once.
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.enable_retries", 0),
    ("grpc.enable_http_proxy", 0),
    # One connection per channel: a new channel to an address never inherits another's back-off.
    ("grpc.use_local_subchannel_pool", 1),
)

ONCE_CHANNEL_OPTIONS = replaced(CHANNEL_OPTIONS, "grpc.min_reconnect_backoff_ms", 5_000)
"""For a channel of a few calls: its first failure means that no server answers there. A caller that tries once waits
longer than one that retries."""

ANSWER_CHANNEL_OPTIONS = receiving(ONCE_CHANNEL_OPTIONS, limits.ANSWER_BYTES_MAX)
"""For a master's calls to tablet servers, of which any process may be one."""

COPY_CHANNEL_OPTIONS = receiving(ONCE_CHANNEL_OPTIONS, limits.COPY_MANIFEST_BYTES_MAX)
"""For the calls of one copy to its source."""

SERVER_OPTIONS: Options = (
    ("grpc.max_receive_message_length", limits.GRPC_MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", limits.COPY_MANIFEST_BYTES_MAX),
    _UNCOMPRESSED,
    # Two servers on one port would share its connections; the second must fail to bind.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_ping_strikes", 0),
    # gRPC can bound the number of connections, but not per address (`connection_bound.py` does), and it cannot reserve
    # any for other servers. These have links of their own for their messages (`replica/transport`), and call only to
    # open one.
    ("grpc.max_allowed_incoming_connections", limits.GRPC_CONNECTIONS_MAX),
    ("grpc.max_concurrent_streams", limits.GRPC_STREAMS_PER_CONNECTION_MAX),
    ("grpc.server_handshake_timeout_ms", limits.GRPC_HANDSHAKE_MS_MAX),
    ("grpc.max_connection_idle_ms", limits.GRPC_IDLE_MS_MAX),
    # Without these, gRPC would estimate how much a connection can transmit, and store that much of every request that
    # nothing reads yet. It asks for the rest of a request as soon as the server begins to read it.
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", limits.REQUEST_WINDOW_BYTES),
    # If a client vanishes, its connection ends and its calls are freed.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
)


CLIENT_SILENCE_MS = 15_000
"""If the other end of a link between a client and a server acknowledges nothing for this time, TCP ends the link, as
gRPC's keep-alive would."""


def set_keep_alive(sock: Any, silence_ms: int) -> None:
    """Set the kernel's options for a connection of our own; does nothing if it is not TCP.

    With them, no small message waits for the acknowledgement of the one before it, which takes 40 ms if the other end
    sends nothing. asyncio sets this option itself, but not for sockets that `socket.create_server` accepts. If the
    other end is silent for `silence_ms`, the connection ends, whether or not something is sent. A live peer that reads
    no bytes counts as silent while bytes wait for it.
    """
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    seconds = max(1, silence_ms // 3000)
    for name, value in (
        ("TCP_KEEPIDLE", seconds),
        ("TCP_KEEPINTVL", seconds),
        ("TCP_KEEPCNT", 2),
        ("TCP_USER_TIMEOUT", silence_ms),
    ):
        if hasattr(socket, name):  # not every system has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
