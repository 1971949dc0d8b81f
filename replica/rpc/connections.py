"""All connecting and listening of servers, masters and clients: gRPC channels, and connections of our own.

Rules for all of them, for example encryption and authentication, belong here.
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

from .connection_options import CHANNEL_OPTIONS, ONCE_CHANNEL_OPTIONS, Options
from .errors import TooLong, too_long

HEAD_BYTES = 4
"""The bytes at the beginning of a frame on our own connections: its body's length, big-endian."""
_JOINED_BYTES_MAX = 256 << 10
"""A longer body is written separately from its head, because a copy would cost more than a second write."""


def channel_to(address: Address | str, options: Options = CHANNEL_OPTIONS) -> grpc.Channel:
    """A channel for threads to the gRPC server at `host:port`."""
    return grpc.insecure_channel(str(address), options=options)


def async_channel_to(address: Address | str, options: Options = CHANNEL_OPTIONS) -> grpc.aio.Channel:
    """The same for an event loop."""
    return grpc.aio.insecure_channel(str(address), options=options)


@asynccontextmanager
async def channel_for_one_call(
    address: Address, options: Options = ONCE_CHANNEL_OPTIONS
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel for one call to the process at this address. Refused UNAVAILABLE if the call fails, CORRUPTION
    after an answer that is longer than `options` allow, and TOO_LARGE if the request is too long for the process."""
    # With the scheme, because gRPC would take a host called `unix` or `xds` for one.
    try:
        async with async_channel_to(f"dns:///{address}", options) as channel:
            yield channel
    except grpc.aio.AioRpcError as error:
        raise failed_call(error, address, options) from error


def failed_call(error: grpc.aio.AioRpcError, address: Address, options: Options) -> Refused:
    """The refusal that tells of a failed call to the process at this address, over a channel with these options."""
    kind = too_long(error)
    if kind is TooLong.REQUEST:
        return Refused(Code.TOO_LARGE, "the process there takes no request of so many bytes", address=address)
    if kind is TooLong.ANSWER:
        most = dict(options)["grpc.max_receive_message_length"]
        what = (
            f"the process there sends an answer of more than {most} bytes, none of it was used: it is no Nyala process "
            "of this version, or broken; look what listens there"
        )
        return Refused(Code.CORRUPTION, what, address=address)
    return Refused(Code.UNAVAILABLE, "nobody answers there", address=address, reason=error.code().name)


def listen_on(server: Any, address: str) -> int:
    """Let gRPC `server` listen at `address` (host:port) and return the port; Refused ILLEGAL_STATE if it cannot."""
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
    """Listen for such connections at one address of `host`; for the wildcard `::`, at that of IPv4 too.

    OSError if the port is taken.
    """
    loop = asyncio.get_running_loop()
    family, _, _, _, where = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
    both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
    listening = socket.create_server(where[:2], family=family, dualstack_ipv6=both)
    return await loop.create_server(protocol, sock=listening)


def frame(body: bytes) -> bytes:
    """The bytes of one frame."""
    return _head(body) + body


def frame_parts(body: bytes) -> tuple[bytes, ...]:
    """The buffers to write for one frame: one if joining is cheaper than a second write, else two."""
    return (frame(body),) if len(body) < _JOINED_BYTES_MAX else (_head(body), body)


def body_length(head: bytes | bytearray) -> int:
    """The number of bytes that follow a head of `HEAD_BYTES`."""
    return int.from_bytes(head)


def _head(body: bytes) -> bytes:
    return len(body).to_bytes(HEAD_BYTES)
