"""The server's end of write links: what ends a link, and the state that it leaves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nyala.replica.rpc import HEAD_BYTES, body_length, frame, pb
from nyala.replica.server.requests.write_links import WriteLinks
from nyala.replica.transport import ConnectionHandler, MicrotaskQueue
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

LONG_S = patience_s(60.0)


def _raised(error: BaseException) -> None:
    raise error


class Client:
    """The other end, over a pair of sockets."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        """A write that `answer` gives None for waits until it is given up, and is then in `given_up`."""
        self._handlers: list[ConnectionHandler] = []
        self._answer = answer
        self.given_up: list[int] = []
        self.links = WriteLinks(self._grant_ticket, self._begin, MicrotaskQueue(asyncio.get_running_loop(), _raised))

    def _begin(self, request: Any, done: Callable[[Any], None]) -> Callable[[], None] | None:
        reply = self._answer(request)
        if reply is not None:
            done(reply)
        return lambda: self.given_up.append(request.rows)

    def _grant_ticket(self, handler: ConnectionHandler, host: str) -> tuple[int, bytes]:
        self._handlers.append(handler)
        return 1, b"t"

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A link, before its first word."""
        here, there = socket.socketpair()
        self.links.grant("h")
        self._handlers.pop()(there)
        return await asyncio.open_connection(sock=here)

    @staticmethod
    def bundle(*rows: int) -> bytes:
        """A message with one write for each."""
        bundle = pb.WriteBundle()
        for number, count in enumerate(rows):
            bundle.writes.add(number=number, request=pb.WriteRequest(rows=count))
        return frame(bundle.SerializeToString())

    @staticmethod
    async def replies(reader: asyncio.StreamReader) -> list[Any]:
        """Of the next message."""
        length = body_length(await reader.readexactly(HEAD_BYTES))
        return list(pb.ReplyBundle.FromString(await reader.readexactly(length)).replies)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    """To its end, in bounded time."""
    asyncio.run(asyncio.wait_for(scenario, LONG_S))


def test_write_that_raises_ends_the_link_and_takes_no_reply_with_it(caplog: pytest.LogCaptureFixture) -> None:
    """CN-25. Goal: a write that raises an error ends its link after the replies of the others were sent. Method: of
    three writes that end in one turn one raises: the others' replies come, then the end of the link; the error is in
    the log; the next link works."""

    def answer(request: Any) -> Any:
        if request.rows == 2:
            raise ZeroDivisionError("a bug")
        return pb.WriteReply(rows_applied=request.rows)

    async def scenario() -> None:
        client = Client(answer)
        reader, writer = await client.connect()
        assert await client.replies(reader) == []
        writer.write(client.bundle(1, 2, 3))
        assert [r.reply.rows_applied for r in await client.replies(reader)] == [1, 3]
        assert await reader.read() == b""
        writer.close()
        reader, writer = await client.connect()
        assert await client.replies(reader) == []
        writer.write(client.bundle(5))
        assert [r.reply.rows_applied for r in await client.replies(reader)] == [5]
        writer.close()
        client.links.close()

    run(scenario())
    assert "a defect of this server" in caplog.text


def test_bundle_of_too_many_writes_begins_none() -> None:
    """CN-25. Goal: one message takes bounded memory. Method: a write more than may be under way: the link ends, and no
    write has begun."""
    begun = []

    def answer(request: Any) -> Any:
        begun.append(request)
        return pb.WriteReply()

    async def scenario() -> None:
        client = Client(answer)
        reader, writer = await client.connect()
        assert await client.replies(reader) == []
        writer.write(client.bundle(*range(1025)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.replies(reader)
        writer.close()

    run(scenario())
    assert begun == []


def test_link_that_was_granted_before_the_end_is_ended_after_it() -> None:
    """CN-25. Goal: a server that stops leaves no link behind. Method: a connection is taken when all were closed."""

    def answer(request: Any) -> Any:
        return pb.WriteReply()

    async def scenario() -> None:
        client = Client(answer)
        client.links.close()
        reader, writer = await client.connect()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.replies(reader)
        assert not client.links.open
        writer.close()

    run(scenario())


def test_link_that_breaks_gives_up_the_writes_that_wait_and_no_others() -> None:
    """IN-62. Goal: a client that went away gets no rows written that had no index yet. Method: of three writes one is
    answered and two wait; the client hangs up."""

    def answer(request: Any) -> Any:
        return pb.WriteReply(rows_applied=2) if request.rows == 2 else None

    async def scenario() -> None:
        client = Client(answer)
        reader, writer = await client.connect()
        assert await client.replies(reader) == []
        writer.write(client.bundle(1, 2, 3))
        assert [r.reply.rows_applied for r in await client.replies(reader)] == [2]
        assert client.given_up == []
        writer.close()
        await until(lambda: not client.links.open, "the link has ended")
        assert client.given_up == [1, 3]

    run(scenario())


def test_bundle_of_empty_writes_is_counted_before_it_is_parsed() -> None:
    """IN-60. Goal: two bytes on the wire are no object of a hundred, a million times over. Method: as many empty writes
    as a frame of a megabyte has: the link ends, and none was begun."""
    begun = []

    def answer(request: Any) -> Any:
        begun.append(request)
        return pb.WriteReply()

    async def scenario() -> None:
        client = Client(answer)
        reader, writer = await client.connect()
        assert await client.replies(reader) == []
        writer.write(frame(b"\x0a\x00" * (1 << 19)))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await client.replies(reader)
        writer.close()

    run(scenario())
    assert begun == []
