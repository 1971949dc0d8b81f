"""Server side of write links: many small writes of a client process on one connection, and their replies."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from functools import partial
from typing import Any

from google.protobuf.message import DecodeError

from nyala.replica.base import limits
from nyala.replica.peers import FrameReader, Taker, Turn
from nyala.replica.rpc import frame_parts, pb, tend

_log = logging.getLogger("nyala.server")
_WRITES_MAX = 1024
"""Writes of one link under way; beyond it the link is not read, and flow control makes the client wait."""
_SILENCE_MS = 15_000
"""A client that is gone without a word is missed after so long."""


class WriteLinks:
    """All write links of a server. Concurrency: the loop's thread."""

    def __init__(
        self,
        admit: Callable[[Taker], tuple[int, bytes]],
        begin: Callable[[Any, Callable[[Any], None]], None],
        turn: Turn,
    ) -> None:
        """`admit(taker) -> (port, ticket)` of the listener. `begin(WriteRequest, done)`: `done` once, with a WriteReply
        or an exception, perhaps before it returns. `turn`: replies that are there at its end leave in one message."""
        self._admit = admit
        self.begin = begin
        self.turn = turn
        self._connecting: set[asyncio.Task[Any]] = set()
        self.open: set[WriteLink] = set()
        self.closed = False

    def grant(self) -> Any:
        """The OpenWritesReply: a ticket for one link."""
        port, ticket = self._admit(self._take)
        return pb.OpenWritesReply(port=port, ticket=ticket)

    def close(self) -> None:
        """End all links, now and later; writes that hold an index go on."""
        self.closed = True
        for link in tuple(self.open):
            link.abort()

    def _take(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        loop = asyncio.get_running_loop()
        task = loop.create_task(loop.connect_accepted_socket(lambda: WriteLink(self), sock))
        self._connecting.add(task)
        task.add_done_callback(self._taken)

    def _taken(self, task: asyncio.Task[Any]) -> None:
        self._connecting.discard(task)
        if not task.cancelled():
            task.exception()  # the client went away meanwhile; nobody else need know


class WriteLink(FrameReader):
    """One link, from its first bundle until it breaks.

    Writes begin in the order in which they arrive. A link that breaks leaves them running: what holds an index cannot
    be called back, and the ledger answers whoever repeats it. Memory: what `_WRITES_MAX` writes hold, and one buffer.
    """

    def __init__(self, links: WriteLinks) -> None:
        super().__init__(self._bundle, limits.GRPC_MESSAGE_BYTES_MAX, links.turn)
        self._links = links
        self._under_way = 0
        self._ended: list[tuple[int, Any]] = []
        """(number, its WriteReply or what it raised instead), until they leave."""
        self._reading = True
        self._writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """[asyncio] The first word is ours."""
        super().connection_made(transport)
        if self._links.closed:
            self.abort()
            return
        tend(transport.get_extra_info("socket"), _SILENCE_MS)
        self._links.open.add(self)
        self._write(pb.ReplyBundle())

    def connection_lost(self, exc: Exception | None) -> None:
        """[asyncio] The client, the network or we ended it."""
        if self.error is not None:
            _log.warning("a link for writes was ended: %s", self.error)
        self._links.open.discard(self)
        self.transport = None

    def pause_writing(self) -> None:
        """[asyncio] The client does not read its replies: it gets no more."""
        self._writable = False
        self._regulate()

    def resume_writing(self) -> None:
        """[asyncio] It reads again."""
        self._writable = True
        self._regulate()

    def abort(self) -> None:
        """End the connection now."""
        if self.transport is not None:
            self.transport.abort()

    def _bundle(self, body: bytes) -> None:
        try:
            bundle = pb.WriteBundle.FromString(body)
        except DecodeError as error:
            self.fail(error)
            return
        if len(bundle.writes) > _WRITES_MAX:
            self.fail(ValueError(f"a bundle of {len(bundle.writes)} writes, more than {_WRITES_MAX}"))
            return
        for write in bundle.writes:
            self._start(write.number, write.request)
        self._regulate()

    def _start(self, number: int, request: Any) -> None:
        self._under_way += 1
        try:
            self._links.begin(request, partial(self._settled, number))
        except Exception as error:  # noqa: BLE001 - a bug, told as one
            self._settled(number, error)

    def _settled(self, number: int, outcome: Any) -> None:
        self._under_way -= 1
        if not self._ended:
            self._links.turn.soon(self._reply)
        self._ended.append((number, outcome))
        self._regulate()

    def _reply(self) -> None:
        """All replies that are there leave in one message."""
        ended, self._ended = self._ended, []
        bundle, whole = pb.ReplyBundle(), True
        for number, outcome in ended:
            if isinstance(outcome, BaseException):
                _log.error("a write ended with an error that is ours", exc_info=outcome)
                whole = False
            else:
                bundle.replies.add(number=number, reply=outcome)
        self._write(bundle)
        if not whole and self.transport is not None:
            self.transport.close()  # nobody shall wait for a reply that does not come: the outcome is unknown

    def _write(self, bundle: Any) -> None:
        if self.transport is not None and not self.transport.is_closing():
            for part in frame_parts(bundle.SerializeToString()):
                self.transport.write(part)

    def _regulate(self) -> None:
        """Read only while there is room for what comes, and for its replies."""
        read = self._writable and self._under_way < _WRITES_MAX
        if self.transport is None or self.transport.is_closing() or read == self._reading:
            return
        self._reading = read
        if read:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()
