"""All connecting and listening of servers, masters and clients: gRPC channels, and connections of our own.

A process with TLS credentials makes and accepts all of them with TLS 1.3, and both ends show a certificate of the
cluster. On a connection of our own, the ticket comes first, in the clear: it has been granted over gRPC to a caller
with a certificate, and it is good for one connection. So a process without a certificate cannot begin a handshake
there. The end that accepts answers the ticket with an empty frame, and the handshake follows.
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
from .credentials import ANY_MEMBER, HANDSHAKE_S_MAX, Credentials, Named, credentials_of_process
from .errors import TooLong, too_long
from .threaded_tls import handshaken
from .tls_problems import handshake_problem

HEAD_BYTES = 4
"""The bytes at the beginning of a frame on our own connections: its body's length, big-endian."""
_JOINED_BYTES_MAX = 256 << 10
"""A longer body is written separately from its head, because a copy would cost more than a second write."""


def channel_to(
    address: Address | str,
    options: Options = CHANNEL_OPTIONS,
    *,
    to: str = ANY_MEMBER,
    credentials: Credentials | None = None,
) -> grpc.Channel:
    """A channel for threads to the gRPC server at `host:port`.

    With TLS, its certificate must be that of `to`: of a role, of a uuid, or of any server or master. `credentials`:
    default those of this process.
    """
    found = credentials or credentials_of_process()
    if found is None:
        return grpc.insecure_channel(str(address), options=options)
    return grpc.secure_channel(str(address), found.grpc_channel, options=_naming(options, found, to))


def async_channel_to(
    address: Address | str, options: Options = CHANNEL_OPTIONS, *, to: str = ANY_MEMBER
) -> grpc.aio.Channel:
    """The same for an event loop, with the credentials of this process."""
    found = credentials_of_process()
    if found is None:
        return grpc.aio.insecure_channel(str(address), options=options)
    return grpc.aio.secure_channel(str(address), found.grpc_channel, options=_naming(options, found, to))


def _naming(options: Options, credentials: Credentials, to: str) -> tuple[tuple[str, int | str], ...]:
    return (*options, ("grpc.ssl_target_name_override", credentials.expected(to)))


@asynccontextmanager
async def channel_for_one_call(
    address: Address, options: Options = ONCE_CHANNEL_OPTIONS, *, to: str = ANY_MEMBER
) -> AsyncIterator[grpc.aio.Channel]:
    """A channel for one call to the process at this address. Refused UNAVAILABLE if the call fails, CORRUPTION
    after an answer that is longer than `options` allow, and TOO_LARGE if the request is too long for the process."""
    # With the scheme, because gRPC would take a host called `unix` or `xds` for one.
    try:
        async with async_channel_to(f"dns:///{address}", options, to=to) as channel:
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


def tls_problem(address: Address, credentials: Credentials | None = None, timeout_s: float = 1.0) -> str:
    """The reason why a process that listens at this address does not let the caller in, as text for a user, found by
    one more connection; empty if it has nothing to do with TLS. Blocks. `credentials`: default those of this process.
    """
    found = credentials or credentials_of_process()
    try:
        with socket.create_connection((address.host.strip("[]"), address.port), timeout_s) as sock:
            return handshake_problem(sock, found)
    except OSError:
        return ""


def listen_on(server: Any, address: str) -> int:
    """Let gRPC `server` listen at `address` (host:port) and return the port; Refused ILLEGAL_STATE if it cannot.

    If this process has credentials, callers without a certificate of the same CA get no connection.
    """
    found = credentials_of_process()
    try:
        if found is not None:
            return int(server.add_secure_port(address, found.for_grpc_port()))
        return int(server.add_insecure_port(address))
    except RuntimeError as error:
        raise Refused(
            Code.ILLEGAL_STATE,
            "cannot listen; is the port taken? Stop the process that has it, or choose another port",
            address=address,
        ) from error


def connection_to(
    address: Address, port: int, ticket: bytes, to: str, timeout_s: float, credentials: Credentials | None = None
) -> socket.socket:
    """A connection for threads to the `port` that the server `to` at `address` granted, which has got the ticket.

    OSError if none comes in time. `credentials`: default those of this process.
    """
    found = credentials or credentials_of_process()
    sock = socket.create_connection((address.host.strip("[]"), port), timeout_s)
    try:
        sock.sendall(frame(ticket))
        if found is None:
            return sock
        if sock.recv(HEAD_BYTES, socket.MSG_WAITALL) != frame(b""):
            raise ConnectionError("the server did not take the ticket, or speaks no TLS")
        return handshaken(sock, found.calling, found.expected(to))
    except BaseException:
        sock.close()
        raise


def secured(sock: socket.socket, credentials: Credentials) -> tuple[socket.socket, Named]:
    """An accepted connection whose ticket was right, after its handshake, and the holder of its caller's certificate.

    It blocks for at most `HANDSHAKE_S_MAX` seconds. OSError, or Refused WRONG_CLUSTER; then it is closed.
    """
    try:
        sock.settimeout(HANDSHAKE_S_MAX)
        sock.sendall(frame(b""))
        made = handshaken(sock, credentials.accepting, None)
    except BaseException:
        sock.close()
        raise
    try:
        return made, credentials.holder_of(made)
    except BaseException:
        made.close()
        raise


async def async_connection_to(
    address: Address, port: int, ticket: bytes, to: str, protocol: asyncio.BaseProtocol
) -> None:
    """As `connection_to`, for an event loop: `protocol` gets the connection; OSError."""
    loop, found, host = asyncio.get_running_loop(), credentials_of_process(), address.host.strip("[]")
    if found is None:
        transport, _ = await loop.create_connection(lambda: protocol, host, port)
        transport.write(frame(ticket))
        return
    transport, go_ahead = await loop.create_connection(_GoAhead, host, port)
    try:
        transport.write(frame(ticket))
        await go_ahead.come
        secure = await loop.start_tls(
            transport,
            protocol,
            found.calling,
            server_hostname=found.expected(to),
            ssl_handshake_timeout=HANDSHAKE_S_MAX,
        )
        if secure is None:
            raise ConnectionError("the connection ended in the handshake")
    except BaseException:
        transport.abort()
        raise
    protocol.connection_made(secure)


class _GoAhead(asyncio.Protocol):
    """Waits for the empty frame that answers a ticket, and reads nothing after it."""

    def __init__(self) -> None:
        self.come: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: Any = None
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        if len(self._data) >= HEAD_BYTES and not self.come.done():
            self._transport.pause_reading()
            if self._data == frame(b""):
                self.come.set_result(None)
            else:
                self.come.set_exception(ConnectionError("the server did not answer the ticket, or speaks no TLS"))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.come.done():
            self.come.set_exception(ConnectionError("the server did not take the ticket, or speaks no TLS"))
            self.come.exception()


async def secure_accepted(
    transport: asyncio.Transport, protocol: asyncio.BaseProtocol, credentials: Credentials
) -> tuple[asyncio.Transport, Named]:
    """As `secured`, for an event loop: the transport from now on, and the holder of the caller's certificate.

    `protocol` may get bytes before this returns, and is not told of an end before the handshake is complete.
    """
    transport.write(frame(b""))
    secure = await asyncio.get_running_loop().start_tls(
        transport, protocol, credentials.accepting, server_side=True, ssl_handshake_timeout=HANDSHAKE_S_MAX
    )
    if secure is None:
        raise ConnectionError("the connection ended in the handshake")
    return secure, credentials.holder_of(secure.get_extra_info("ssl_object"))


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
