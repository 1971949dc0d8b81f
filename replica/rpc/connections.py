"""The one place where servers, masters and clients connect and listen: gRPC's channels, and connections of our own.

Whatever shall hold for all of them, such as encryption and proof of who is at the other end, belongs here.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio

from nyala.replica.types import Address, Code, Refused

from .connection_options import CHANNEL_OPTIONS, ONCE_CHANNEL_OPTIONS

Options = tuple[tuple[str, int], ...]
HEAD_BYTES = 4
"""Of a frame on connections of our own: its length, big-endian, and then as many bytes."""
_JOINED_BYTES_MAX = 256 << 10
"""A longer body is not copied only to be written at once with its head."""


def channel_to(address: Address | str, options: Options = CHANNEL_OPTIONS) -> grpc.Channel:
    """A channel for threads to the gRPC server at `host:port`."""
    return grpc.insecure_channel(str(address), options=options)


def async_channel_to(address: Address | str, options: Options = CHANNEL_OPTIONS) -> grpc.aio.Channel:
    """The same for an event loop."""
    return grpc.aio.insecure_channel(str(address), options=options)


@asynccontextmanager
async def channel_for_one_call(address: Address) -> AsyncIterator[grpc.aio.Channel]:
    """A channel for one call to whoever listens there; Refused UNAVAILABLE if the call fails."""
    # The scheme is named, or a host called `unix` or `xds` would choose another one.
    try:
        async with async_channel_to(f"dns:///{address}", ONCE_CHANNEL_OPTIONS) as channel:
            yield channel
    except grpc.aio.AioRpcError as error:
        what = "nobody answers there"
        raise Refused(Code.UNAVAILABLE, what, address=address, reason=error.code().name) from error


def listen_on(server: Any, address: str) -> int:
    """The port at which gRPC `server` will answer, of `address` as host:port; Refused ILLEGAL_STATE if it cannot."""
    try:
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise Refused(
            Code.ILLEGAL_STATE,
            "cannot listen; is the port taken? Stop the process that has it, or choose another port",
            address=address,
        ) from error


def connection_to(address: Address, port: int, timeout_s: float) -> socket.socket:
    """A connection for threads to the `port` that the server at `address` granted; OSError if none comes in time."""
    return socket.create_connection((address.host.strip("[]"), port), timeout_s)


async def async_connection_to(address: Address, port: int, protocol: asyncio.BaseProtocol) -> None:
    """The same for an event loop; OSError."""
    await asyncio.get_running_loop().create_connection(lambda: protocol, address.host.strip("[]"), port)


async def accept_on(host: str, port: int, protocol: Callable[[], asyncio.BaseProtocol]) -> asyncio.Server:
    """Listen for such connections at one address of `host`, for the wildcard `::` at IPv4's too.

    OSError if the port is taken.
    """
    loop = asyncio.get_running_loop()
    family, _, _, _, where = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server(where[:2], family=family, dualstack_ipv6=both)
    return await loop.create_server(protocol, sock=listening)


def frame(body: bytes) -> bytes:
    """One frame."""
    return _head(body) + body


def frame_parts(body: bytes) -> tuple[bytes, ...]:
    """What to write for one frame: joined if that is cheaper than a second write."""
    return (frame(body),) if len(body) < _JOINED_BYTES_MAX else (_head(body), body)


def body_length(head: bytes | bytearray) -> int:
    """How many bytes follow the `HEAD_BYTES` of a head."""
    return int.from_bytes(head)


def _head(body: bytes) -> bytes:
    return len(body).to_bytes(HEAD_BYTES)
