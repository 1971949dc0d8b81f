"""The receiving end of links: tickets, and the connections that show one.

A ticket says what its connection is for: a link of some server, or something that another part of this server takes
over, such as the bytes of a tablet copy. So there is one port beside gRPC's, and one way in.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import Callable

from nyala.replica.base import limits
from nyala.replica.rpc import tend

from .frame_reader import FrameReader
from .options import PeerOptions
from .turn import Turn

_log = logging.getLogger("nyala.peers")
TICKET_BYTES = 16
_TICKETS_MAX = 1024
Taker = Callable[[socket.socket], None]
"""Gets a blocking socket that it owns from then on; called on the loop's thread, must not block or raise."""
_UNPROVEN_MAX = 256


class Listener:
    """Accepts links, and connections for others, on a port of its own.

    Invariants: a connection is nobody until its first frame is a ticket that was given out, lately and once; then it
    speaks for the server that asked for the ticket, or goes to whom the ticket names. A server's new link ends its old
    one. Bounded: tickets, connections without a ticket, and how long either lasts. Concurrency: the loop's thread.
    """

    def __init__(self, on_batch: Callable[[str, bytes], bool], turn: Turn, options: PeerOptions | None = None) -> None:
        """`on_batch(sender uuid, frame)`: False ends the link. Must not raise."""
        self._on_batch = on_batch
        self.turn = turn
        self._options = options or PeerOptions()
        self._server: asyncio.Server | None = None
        self._tickets: dict[bytes, str | Taker] = {}
        self._unproven: dict[_Incoming, None] = {}
        """In the order of their coming."""
        self._links: dict[str, _Incoming] = {}
        self.port = 0
        """0 before `start`."""

    async def start(self, host: str, port: int = 0) -> None:
        """Listen at one address of `host`, for the wildcard `::` at IPv4's too; OSError if the port is taken."""
        loop = asyncio.get_running_loop()
        family, _, _, _, where = (await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM))[0]
        both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
        listening = socket.create_server(where[:2], family=family, dualstack_ipv6=both)
        self._server = await loop.create_server(lambda: _Incoming(self), sock=listening)
        self.port = listening.getsockname()[1]

    def ticket(self, use: str | Taker) -> bytes:
        """A ticket for one link of the server `use`, or for one connection that is handed to `use`.

        What was sent behind a ticket of the latter kind is lost: its holder waits for a word first. The oldest ticket
        is void when there are too many.
        """
        made = secrets.token_bytes(TICKET_BYTES)
        self._tickets[made] = use
        if len(self._tickets) > _TICKETS_MAX:
            del self._tickets[next(iter(self._tickets))]
        loop = asyncio.get_running_loop()
        loop.call_later(self._options.connect_timeout_ms / 1000, self._tickets.pop, made, None)
        return made

    async def close(self) -> None:
        """End every link and listen no more."""
        if self._server is not None:
            self._server.close()
        for incoming in (*self._unproven, *self._links.values()):
            incoming.abort()
        if self._server is not None:
            await self._server.wait_closed()

    # ------------------------------------------------------------------------------------ called by the connections

    def accepted(self, incoming: _Incoming) -> None:
        """A connection without a ticket yet."""
        if len(self._unproven) >= _UNPROVEN_MAX:
            # The oldest has had time to show its ticket; the newest may be a server of ours.
            next(iter(self._unproven)).abort()
        self._unproven[incoming] = None
        loop = asyncio.get_running_loop()
        loop.call_later(self._options.connect_timeout_ms / 1000, self._expire, incoming)

    def prove(self, incoming: _Incoming, ticket: bytes) -> str | Taker | None:
        """Whose link this is, or who takes the connection; None for a ticket that nobody was given."""
        use = self._tickets.pop(ticket, None)
        if use is None:
            return None
        self._unproven.pop(incoming, None)
        if isinstance(use, str):
            before, self._links[use] = self._links.get(use), incoming
            if before is not None:
                before.abort()
        return use

    def take(self, sender: str, body: bytes) -> bool:
        """One batch; whether the link goes on."""
        return self._on_batch(sender, body)

    def gone(self, incoming: _Incoming) -> None:
        """A connection has ended."""
        self._unproven.pop(incoming, None)
        if incoming.sender is not None and self._links.get(incoming.sender) is incoming:
            del self._links[incoming.sender]

    def silence_ms(self) -> int:
        """After how much silence of its other end a connection is given up."""
        return self._options.silence_ms

    def _expire(self, incoming: _Incoming) -> None:
        if incoming in self._unproven:
            incoming.abort()


class _Incoming(FrameReader):
    """One connection."""

    def __init__(self, listener: Listener) -> None:
        super().__init__(self._frame, TICKET_BYTES, listener.turn)
        self._listener = listener
        self.sender: str | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] Somebody connected."""
        super().connection_made(transport)
        tend(transport.get_extra_info("socket"), self._listener.silence_ms())
        self._listener.accepted(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] The other end or we ended it."""
        if self.error is not None:
            _log.warning("a link of %s was ended: %s", self.sender or "nobody", self.error)
        self._listener.gone(self)

    def abort(self) -> None:
        """End the connection now."""
        if self.transport is not None:
            self.transport.abort()

    def _frame(self, body: bytes) -> None:
        if self.sender is not None:
            if not self._listener.take(self.sender, body):
                self.abort()
            return
        use = self._listener.prove(self, body)
        if use is None:
            self.fail(ValueError("its first frame is no ticket that was given out"))
        elif isinstance(use, str):
            self.sender, self.frame_bytes_max = use, limits.GRPC_MESSAGE_BYTES_MAX
        elif self.transport is not None:
            sock = self.transport.get_extra_info("socket").dup()
            self.abort()  # the loop is done with it; the connection lives on in the copy
            sock.setblocking(True)
            use(sock)
