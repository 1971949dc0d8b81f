"""The receiving end of links: tickets, and the connections that send them.

A ticket is for a link of some server, or for another use, such as the bytes of a tablet copy: then another part of this
server takes the connection over. So one port beside gRPC's serves all of them.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable
from typing import NamedTuple

from nyala.replica.rpc import (
    Credentials,
    accept_on,
    counted_host,
    credentials_of_process,
    may_speak,
    secure_accepted,
    set_keep_alive,
)
from nyala.replica.types import Refused, limits
from nyala.replica.types.log_records import about

from .connection_quota import SERVERS, STRANGERS, WITHOUT_TICKET, ConnectionQuota
from .frame_reader import Arrivals, FrameReader
from .microtasks import MicrotaskQueue
from .options import PeerOptions

_log = logging.getLogger("nyala.transport")
TICKET_BYTES = 16
_TICKETS_MAX = 1024
LOOK_S = 1.0
"""The seconds between two searches for connections whose time may be over."""
ConnectionHandler = Callable[[socket.socket], None]
"""Called with a blocking socket that it owns from then on, on the loop's thread; must not block or raise."""
GrantTicket = Callable[[ConnectionHandler, str], tuple[int, bytes]]
"""`grant_ticket(handler, host) -> (port, ticket)`: for one connection that is passed to `handler`; requested by
`host`."""


class _Ticket(NamedTuple):
    """The use of a ticket, the time until which it is valid, and the host that requested it."""

    use: str | ConnectionHandler
    until_s: float
    host: str
    proven: bool


class Listener:
    """Accepts links, and connections for other uses, on a port of its own.

    Invariants: the first frame of a connection must be a recent, unused ticket. Then the connection is a link of the
    server that requested the ticket, or goes to the handler of the ticket. A member's new link ends its old one; a link
    whose sender is not proven ends no other link, and ends itself within a second if its sender is known by then.
    Bounded: tickets and connections without a ticket, in number and in time; links, in number and in bytes, with a
    quota of their own for proven senders. Concurrency: the loop's thread.
    """

    def __init__(
        self,
        on_batch: Callable[[str, bytes, bool], bool],
        microtasks: MicrotaskQueue,
        options: PeerOptions | None = None,
        knows: Callable[[str], bool] = lambda uuid: True,
    ) -> None:
        """`on_batch(sender uuid, frame, proven)`: False ends the link. Must not raise. `proven`: whether the sender is
        the member that it names. `knows(uuid)`: whether some config here, or the masters, name that server."""
        self._on_batch = on_batch
        self.microtasks = microtasks
        self.arrivals = Arrivals()
        self._options = options or PeerOptions()
        self._knows = knows
        self.credentials = credentials_of_process()
        self._server: asyncio.Server | None = None
        now_s = asyncio.get_running_loop().time
        self._now_s = now_s
        self._tickets: dict[bytes, _Ticket] = {}
        """The valid tickets, in the order in which they were made."""
        self._of_hosts: dict[str, dict[bytes, None]] = {}
        """The valid tickets by host."""
        self.without_ticket = ConnectionQuota(WITHOUT_TICKET, now_s)
        self._ticket_deadlines: dict[_Incoming, float] = {}
        """The connections without a ticket, in the order of their arrival, with their deadlines."""
        self.servers = ConnectionQuota(SERVERS, now_s)
        self.strangers = ConnectionQuota(STRANGERS, now_s)
        self._links: dict[str, _Incoming] = {}
        """The links of members."""
        self._unknown: dict[_Incoming, str] = {}
        """The links of other senders, with the uuid that each names."""
        self._looking: asyncio.TimerHandle | None = None
        self.port = 0
        """The port; 0 before `start`."""

    async def start(self, host: str, port: int = 0) -> None:
        """Listen at one address of `host`; for the wildcard `::` also on IPv4. OSError if the port is taken."""
        self._server = await accept_on(host, port, lambda: _Incoming(self))
        self.port = self._server.sockets[0].getsockname()[1]
        self._look_later()

    def ticket(self, use: str | ConnectionHandler, host: str, *, proven: bool = True) -> bytes:
        """A ticket for one link of the server `use`, or for one connection that is passed to `use`; requested by
        `host`. `proven`: whether that server requested it.

        Bytes sent right after a ticket of the latter kind are lost, so its holder waits for a first frame. If there are
        too many tickets, the oldest one of the host that has most of them becomes invalid.
        """
        made, now_s = secrets.token_bytes(TICKET_BYTES), self._now_s()
        self._tickets[made] = _Ticket(use, now_s + self._options.connect_timeout_ms / 1000, host, proven)
        self._of_hosts.setdefault(host, {})[made] = None
        while next(iter(self._tickets.values())).until_s <= now_s:
            self._take_back(next(iter(self._tickets)))
        if len(self._tickets) > _TICKETS_MAX:
            most = max(self._of_hosts.values(), key=len)
            self._take_back(next(iter(most)))
        return made

    def _take_back(self, ticket: bytes) -> _Ticket | None:
        """Use the ticket up and return it; None if it was not valid."""
        found = self._tickets.pop(ticket, None)
        if found is not None:
            of_host = self._of_hosts[found.host]
            del of_host[ticket]
            if not of_host:
                del self._of_hosts[found.host]
        return found

    async def close(self) -> None:
        """End every link and stop listening."""
        if self._looking is not None:
            self._looking.cancel()
        if self._server is not None:
            self._server.close()
        for incoming in (*self._ticket_deadlines, *self._links.values(), *self._unknown):
            incoming.abort()
        if self._server is not None:
            await self._server.wait_closed()

    @property
    def connections(self) -> int:
        """The number of open connections of the port that were not passed on."""
        return len(self.without_ticket) + len(self.servers) + len(self.strangers)

    @property
    def begun_bytes(self) -> int:
        """The memory of frames that are begun."""
        return self.without_ticket.bytes + self.servers.bytes + self.strangers.bytes

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        now_s = self._now_s()
        for incoming in [i for i, until_s in self._ticket_deadlines.items() if until_s <= now_s]:
            incoming.fail(ConnectionError("it showed no ticket in time"))
        for quota in (self.servers, self.strangers):
            quota.end_overdue()
        for uuid in {uuid for uuid in self._unknown.values() if self._knows(uuid)}:
            self.end_unproven(uuid)  # its sender connects again, and is asked for
        self._look_later()

    def end_unproven(self, uuid: str) -> None:
        """End the links that name that server and are not proven to be its links."""
        for incoming in [i for i, named in self._unknown.items() if named == uuid]:
            incoming.abort()

    @property
    def unproven_senders(self) -> set[str]:
        """The uuids that the open links name whose senders are not proven."""
        return set(self._unknown.values())

    # ------------------------------------------------------------------------------------ called by the connections

    def accepted(self, incoming: _Incoming, address: str) -> None:
        """Note a connection without a ticket."""
        incoming.address, incoming.quota = address, self.without_ticket
        self._ticket_deadlines[incoming] = self._now_s() + self._options.connect_timeout_ms / 1000
        self.without_ticket.add(incoming, address)

    def use_ticket(self, incoming: _Incoming, ticket: bytes) -> str | ConnectionHandler | None:
        """The server that asked for the ticket of a link, or the handler of the connection; None if the ticket is not
        valid. A ticket does not prove its server's identity."""
        found = self._take_back(ticket)
        if found is None or found.until_s <= self._now_s():
            return None
        use = found.use
        self._ticket_deadlines.pop(incoming, None)
        self.without_ticket.remove(incoming)
        incoming.quota = None
        if isinstance(use, str):
            incoming.proven, incoming.quota = found.proven, self.servers if found.proven else self.strangers
            if found.proven:
                before, self._links[use] = self._links.get(use), incoming
                if before is not None:
                    before.abort()
            else:
                self._unknown[incoming] = use
            incoming.quota.add(incoming, incoming.address)
        return use

    def take(self, sender: str, body: bytes, proven: bool) -> bool:
        """Handle one batch; returns whether the link goes on."""
        return self._on_batch(sender, body, proven)

    def gone(self, incoming: _Incoming) -> None:
        """Note that a connection has ended."""
        self._ticket_deadlines.pop(incoming, None)
        self._unknown.pop(incoming, None)
        if incoming.sender is not None and self._links.get(incoming.sender) is incoming:
            del self._links[incoming.sender]

    def silence_ms(self) -> int:
        """The time after which a connection ends whose other end acknowledges neither TCP probes nor data."""
        return self._options.silence_ms


class _Incoming(FrameReader):
    """One connection."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(TICKET_BYTES, listener.microtasks, listener.arrivals)
        self._listener = listener
        self.sender: str | None = None
        self.proven = False
        self.address = ""
        self._securing: asyncio.Task[None] | None = None
        self._early: list[bytes] = []
        """The frames that came right after the handshake, before the certificate was checked: at most what one
        iteration of the loop reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] A new connection."""
        super().connection_made(transport)
        set_keep_alive(transport.get_extra_info("socket"), self._listener.silence_ms())
        self._listener.accepted(self, address_of(transport.get_extra_info("peername")))

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] The other end or this server ended the connection."""
        if self.transport is None:
            return
        if self.error is not None:
            level = logging.WARNING if self.sender is not None else logging.DEBUG  # any process may connect, and often
            about(_log, peer=self.sender or "").log(
                level, "a link of %s was ended: %s", self.sender or "nobody", self.error
            )
        self._listener.gone(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """End the connection now."""
        if self.transport is not None:
            self.transport.abort()

    def on_frame(self, body: bytes) -> None:
        """Handle the ticket, and then batches."""
        if self.sender is not None:
            if not self._listener.take(self.sender, body, self.proven):
                self.abort()
            return
        if self._securing is not None:
            self._early.append(body)
            return
        use = self._listener.use_ticket(self, body)
        if use is None:
            self.fail(ValueError("its first frame is no ticket that was given out"))
        elif isinstance(use, str):
            self.frame_bytes_max = limits.GRPC_MESSAGE_BYTES_MAX
            if self._listener.credentials is None:
                self.sender = use
            elif self.transport is not None:
                self._securing = asyncio.create_task(self._secure(use, self.transport, self._listener.credentials))
        elif self.transport is not None:
            sock = self.transport.get_extra_info("socket").dup()
            self.abort()  # the loop no longer uses it; the connection goes on in the copy
            sock.setblocking(True)
            use(sock)

    async def _secure(self, uuid: str, transport: asyncio.Transport, credentials: Credentials) -> None:
        """Go on with TLS; the link ends if the certificate is not that of its sender."""
        try:
            secure, holder = await secure_accepted(transport, self, credentials)
            if not may_speak(holder, uuid, (credentials.own.role,)):
                raise ConnectionError(f"a link of {uuid} came with the certificate of {holder}")
        except (OSError, Refused) as error:
            self.fail(error)
            self.connection_lost(error)  # asyncio tells of no end within a handshake
            return
        if self.transport is None:
            secure.abort()
            return
        self.transport, self.sender = secure, uuid
        early, self._early = self._early, []
        for body in early:
            self.on_frame(body)


def address_of(peername: object) -> str:
    """The host of a socket's other end, as the bounds count it; empty if it has none."""
    return counted_host(str(peername[0])) if isinstance(peername, tuple) and peername else ""
