"""The sending end of a link: requested by gRPC, then a TCP connection that carries only frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nyala.replica.rpc import (
    address_to_pb,
    async_channel_to,
    async_connection_to,
    check_reply,
    error_from_pb,
    frame_parts,
    pb,
    pb_grpc,
    set_keep_alive,
)
from nyala.replica.types import Address, Code, Refused

from .options import PeerOptions


class Link(asyncio.Protocol):
    """An open link.

    Invariants: frames arrive in the order of `send`, each at most once. Memory: `writable` is False while more than
    `link_buffer_bytes` wait for the network; the caller then waits for `on_writable`. Concurrency: the loop's thread.
    """

    def __init__(self, options: PeerOptions, on_writable: Callable[[], None]) -> None:
        self._options = options
        self._on_writable = on_writable
        self._transport: asyncio.Transport | None = None
        self.writable = False
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the connection is gone; its ConnectionError has the reason."""
        self.ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())

    def send(self, body: bytes) -> None:
        """Write one frame. Bytes that the network does not accept at once wait in memory."""
        if self._transport is not None:
            for part in frame_parts(body):
                self._transport.write(part)

    def close(self) -> None:
        """End the connection; waiting bytes are lost."""
        self.writable = False
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] Ready to write."""
        self._transport = transport  # type: ignore[assignment]
        transport.set_write_buffer_limits(high=self._options.link_buffer_bytes)  # type: ignore[attr-defined]
        set_keep_alive(transport.get_extra_info("socket"), self._options.silence_ms)
        self.writable = True

    def data_received(self, data: bytes) -> None:
        """[asyncio] End the link: a server of ours sends nothing back on it."""
        self.close()

    def pause_writing(self) -> None:
        """[asyncio] Stop writing: the network is slower than this server."""
        self.writable = False

    def resume_writing(self) -> None:
        """[asyncio] Write again: there is room."""
        self.writable = True
        self._on_writable()

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] The other end or the network closed the connection."""
        self.writable = False
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(str(exc or "the server closed the link")))


async def open_link(
    target: Address,
    own_uuid: str,
    own_address: Address,
    dest_uuid: str,
    options: PeerOptions,
    link: Link,
    takeover: int = 0,
    link_number: int = 0,
) -> None:
    """Connect `link` to the server `dest_uuid` at `target`. `link_number`: the one for that receiver.

    grpc.aio.AioRpcError, OSError or TimeoutError if no server answers; Refused INVALID_NAME if another server answers,
    and CORRUPTION if the answer is none that a server sends.
    """
    async with asyncio.timeout(options.connect_timeout_ms / 1000):
        async with async_channel_to(target, to=dest_uuid) as channel:
            await channel.channel_ready()
            stub = pb_grpc.PeerServiceStub(channel)
            reply = await stub.OpenLink(
                pb.OpenLinkRequest(
                    from_uuid=own_uuid,
                    dest_uuid=dest_uuid,
                    from_address=address_to_pb(own_address),
                    takeover=takeover,
                    process=link_number,
                )
            )
        refusal: Refused | None = error_from_pb(check_reply(reply, "the server at the link's address").error)
        if refusal is not None:
            raise refusal
        if not 0 < reply.port < 65536:
            raise Refused(Code.INVALID_ARGUMENT, "the server names no port for links", port=reply.port)
        await async_connection_to(target, reply.port, reply.ticket, dest_uuid, link)
