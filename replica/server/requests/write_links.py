"""The server's side of write links: many small writes of a client process on one connection, and their replies."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from nyala.replica.rpc import (
    CLIENT_SILENCE_MS,
    HANDSHAKE_S_MAX,
    Named,
    count_fields,
    credentials_of_process,
    frame,
    frame_parts,
    pb,
    set_keep_alive,
)
from nyala.replica.transport import (
    CLIENTS,
    Arrivals,
    ConnectionQuota,
    FrameReader,
    GrantTicket,
    MicrotaskQueue,
    address_of,
)
from nyala.replica.types import Refused, limits

_log = logging.getLogger("nyala.server")
_HANDSHAKES_MAX = 256
"""The most TLS handshakes of links at once; one more connection is closed, and its client sends by gRPC."""
_LOOK_S = 1.0
"""The seconds between two searches for overdue frames, while there are links."""


def _nothing() -> None:
    """Give up nothing, for a write that already has an index."""


class WriteLinks:
    """All write links of a server. Concurrency: the loop's thread."""

    def __init__(
        self,
        grant_ticket: GrantTicket,
        begin: Callable[[Any, Callable[[Any], None]], Callable[[], None] | None],
        microtasks: MicrotaskQueue,
    ) -> None:
        """`grant_ticket`: the listener's. `begin(WriteRequest, done)`: calls `done` once, with a WriteReply or an
        exception, perhaps before it returns; returns a function that gives the write up, if it can be given up.
        `microtasks`: with them, replies that are ready after one event are sent in one message."""
        self._grant_ticket = grant_ticket
        self.begin = begin
        self.microtasks = microtasks
        self._connecting: set[asyncio.Task[Any]] = set()
        self.arrivals = Arrivals()
        self.quota = ConnectionQuota(CLIENTS, asyncio.get_running_loop().time)
        self.open: set[WriteLink] = set()
        self._looking: asyncio.TimerHandle | None = None
        self.closed = False
        self.credentials = credentials_of_process()

    def grant(self, host: str, caller: Named | None = None) -> pb.OpenWritesReply:
        """The OpenWritesReply: a ticket for one link, requested by `host`; with TLS, only for this `caller`."""
        port, ticket = self._grant_ticket(partial(self._take, caller=caller), host)
        return pb.OpenWritesReply(port=port, ticket=ticket)

    def close(self) -> None:
        """End all links, now and later; writes with an index go on."""
        self.closed = True
        if self._looking is not None:
            self._looking.cancel()
        for link in tuple(self.open):
            link.abort()

    def opened(self, link: WriteLink, address: str) -> None:
        """Count one more link. If there are too many, end the link that has been idle longest."""
        self.open.add(link)
        self.quota.add(link, address)
        if self._looking is None:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _look(self) -> None:
        self._looking = None
        self.quota.end_overdue()
        if self.open:
            self._looking = asyncio.get_running_loop().call_later(_LOOK_S, self._look)

    def _take(self, sock: socket.socket, caller: Named | None = None) -> None:
        sock.setblocking(False)
        loop, tls = asyncio.get_running_loop(), self.credentials
        secure: dict[str, Any] = {}
        if tls is not None:
            if len(self._connecting) >= _HANDSHAKES_MAX:
                sock.close()
                return
            secure = {"ssl": tls.accepting, "ssl_handshake_timeout": HANDSHAKE_S_MAX}
            sock.send(frame(b""))  # the first bytes on a connection always fit into its buffer
        task = loop.create_task(loop.connect_accepted_socket(lambda: WriteLink(self, caller), sock, **secure))
        self._connecting.add(task)
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[Any]) -> None:
        self._connecting.discard(task)
        if not task.cancelled():
            task.exception()  # the client left meanwhile, and no other code needs the error


class WriteLink(FrameReader):
    """One link, from its first bundle until it breaks.

    Writes begin in the order in which they arrive. When a link breaks, the writes that wait for their index are given
    up. Those with an index go on, because they cannot be taken back; the ledger answers a client that repeats one.
    Memory: at most that of `WRITES_PER_LINK_MAX` writes and replies.
    """

    def __init__(self, links: WriteLinks, caller: Named | None = None) -> None:
        """`caller`: with TLS, the holder of the certificate to which the ticket was granted."""
        super().__init__(limits.GRPC_MESSAGE_BYTES_MAX, links.microtasks, links.arrivals)
        self._links = links
        self._caller = caller
        self._under_way = 0
        self._waiting: dict[int, Callable[[], None]] = {}
        """For each write under way, by its number, the function that gives it up."""
        self._ended: list[tuple[int, Any]] = []
        """(number, WriteReply or exception) of the writes whose reply has not been sent."""
        self._reading = True
        self._writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] Send the empty first frame, for which the client waits."""
        super().connection_made(transport)
        tls = self._links.credentials
        if self._links.closed:
            self.abort()
            return
        if tls is not None and tls.holds(transport.get_extra_info("ssl_object")) != self._caller:
            self.fail(ConnectionError("it came with another certificate than its ticket was granted to"))
            return
        set_keep_alive(transport.get_extra_info("socket"), CLIENT_SILENCE_MS)
        self.quota = self._links.quota
        self._links.opened(self, address_of(transport.get_extra_info("peername")))
        self._write(pb.ReplyBundle())

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] The client, the network or this server ended the connection."""
        if self.error is not None:
            _log.warning("a link for writes was ended: %s", self.error)
        self._links.open.discard(self)
        waiting, self._waiting = self._waiting, {}
        for give_up in waiting.values():
            give_up()
        super().connection_lost(exc)

    @property
    def idle(self) -> bool:
        """Whether no write of this link is under way."""
        return not self._under_way

    def pause_writing(self) -> None:
        """[asyncio] Stop sending replies, because the client does not read them."""
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        """[asyncio] Send replies again, because the client reads them."""
        self._writable = True
        self._regulate()

    def abort(self) -> None:
        """End the connection now."""
        if self.transport is not None:
            self.transport.abort()

    def on_frame(self, body: bytes) -> None:
        """Handle a bundle of writes."""
        try:
            # Counted before it is parsed: a write of two bytes becomes an object of a hundred.
            if len(body) > limits.REQUEST_SMALL_BYTES:
                count_fields("WriteBundle", body, pb.WriteBundle.DESCRIPTOR)
            bundle = pb.WriteBundle.FromString(body)
        except (DecodeError, Refused) as error:
            self.fail(error)
            return
        if len(bundle.writes) > limits.WRITES_PER_LINK_MAX:
            self.fail(ValueError(f"a bundle of {len(bundle.writes)} writes, more than {limits.WRITES_PER_LINK_MAX}"))
            return
        for write in bundle.writes:
            self._start(write.number, write.request)
        self._regulate()

    def _start(self, number: int, request: pb.WriteRequest) -> None:
        self._under_way += 1
        try:
            self._waiting[number] = _nothing
            give_up = self._links.begin(request, partial(self._settled, number))
            if number in self._waiting:  # it has no outcome yet
                self._waiting[number] = give_up or _nothing
        except Exception as error:  # noqa: BLE001 - a defect of this server, which `_reply` logs as one
            self._settled(number, error)

    def _settled(self, number: int, outcome: Any) -> None:
        self._under_way -= 1
        self._waiting.pop(number, None)
        if not self._ended:
            self._links.microtasks.soon(self._reply)
        self._ended.append((number, outcome))
        self._regulate()

    def _reply(self) -> None:
        """Send all replies that are ready, in one message."""
        ended, self._ended = self._ended, []
        bundle, whole = pb.ReplyBundle(), True
        for number, outcome in ended:
            if isinstance(outcome, BaseException):
                _log.error("a write ended with an error that is a defect of this server", exc_info=outcome)
                whole = False
            else:
                bundle.replies.add(number=number, reply=outcome)
        self._write(bundle)
        if not whole and self.transport is not None:
            self.transport.close()  # so that no caller waits for a reply that does not come: the outcome is unknown

    def _write(self, bundle: pb.ReplyBundle) -> None:
        if self.transport is not None and not self.transport.is_closing():
            for part in frame_parts(bundle.SerializeToString()):
                self.transport.write(part)
            if (waiting := self.transport.get_write_buffer_size()) > limits.LINK_REPLIES_BYTES_MAX:
                self.fail(ConnectionError(f"{waiting} bytes of replies wait for a client that does not read them"))

    def _regulate(self) -> None:
        """Read only while there is room for further writes and for their replies."""
        read = self._writable and self._under_way < limits.WRITES_PER_LINK_MAX
        if self.transport is None or self.transport.is_closing() or read == self._reading:
            return
        self._reading = read
        if read:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
