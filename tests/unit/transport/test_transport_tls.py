"""TLS on links: their batches arrive, and only from the process whose uuid the link names."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

import grpc.aio
import pytest

from nyala.replica.raft import Message, VoteRequest
from nyala.replica.rpc import (
    Credentials,
    connection_to,
    connections,
    frame,
    listen_on,
    message_to_pb,
    new_server,
    pb,
    pb_grpc,
)
from nyala.replica.transport import PeerOptions, PeerServicer
from nyala.replica.transport.link import Link, open_link
from nyala.replica.types import Address, OpId
from tests.harness.certificates import credentials_for, speaking_as
from tests.harness.copies import TABLET
from tests.harness.links import trusting
from tests.harness.patience import patience_s
from tests.harness.server_pair import until

A, B, C = "a" * 32, "b" * 32, "c" * 32
OPTIONS = PeerOptions(connect_timeout_ms=int(1000 * patience_s(20)))


class Receiver(NamedTuple):
    """Server B, and what was delivered there."""

    address: Address
    peers: PeerServicer
    delivered: list[Message]

    def ticket(self) -> bytes:
        """A ticket for a link of server A."""
        return self.peers.listener.ticket(A, "h")

    async def connected(self, credentials: Credentials, to: str = B) -> socket.socket:
        """A connection with A's ticket and these credentials."""
        port, ticket = self.peers.listener.port, self.ticket()
        return await asyncio.to_thread(connection_to, self.address, port, ticket, to, patience_s(20), credentials)


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    delivered: list[Message] = []
    with speaking_as(credentials_for("server", B)):
        peers = PeerServicer(B, lambda _, message: delivered.append(message), trusting(), options=OPTIONS)
        server = new_server()
        pb_grpc.add_PeerServiceServicer_to_server(peers, server)  # type: ignore[no-untyped-call]
        port = listen_on(server, "127.0.0.1:0")
        await peers.listen("127.0.0.1")
        await server.start()
    try:
        yield Receiver(Address("127.0.0.1", port), peers, delivered)
    finally:
        await peers.close()
        await server.stop(0)


def vote(term: int) -> Message:
    return VoteRequest(to_uuid=B, from_uuid=A, term=term, last=OpId(1, 1))


def batch(*messages: Message) -> bytes:
    return pb.PeerBatch(
        from_uuid=A, dest_uuid=B, messages=[message_to_pb(TABLET, m) for m in messages]
    ).SerializeToString()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), patience_s(60)))  # type: ignore[arg-type]


def test_batches_of_a_link_with_tls_arrive_in_order() -> None:
    """Goal: a link with TLS brings what one without brings, also what is sent right after the handshake. Method: server
    A opens a link to B; a thousand messages in batches of many sizes, the first ones at once."""

    async def scenario() -> None:
        async with receiver() as b:
            with speaking_as(credentials_for("server", A)):
                link = Link(OPTIONS, lambda: None)
                await open_link(b.address, A, Address("127.0.0.1", 1), B, OPTIONS, link)
            sent = [vote(term) for term in range(1, 1001)]
            at = 0
            for size in (1, 1, 2, 300, 5, 691):
                link.send(batch(*sent[at : at + size]))
                at += size
            await until(lambda: len(b.delivered) == 1000, "all have come")
            assert b.delivered == sent
            link.close()

    run(scenario)


def test_link_with_another_servers_certificate_is_ended_before_a_message_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Goal: who has got a ticket of server A, but not its certificate, brings no message in its name. Method: links
    with the certificates of another server, and of a client, an operator and a master named as A; their batch is not
    delivered, and the log says why; with A's own certificate it is."""

    async def scenario() -> None:
        async with receiver() as b:
            named_so = [credentials_for(role, A) for role in ("client", "operator", "master")]
            for holder in (credentials_for("server", C), *named_so):
                sock = await b.connected(holder)
                with sock:
                    sock.sendall(frame(batch(vote(7))))
                    await until(lambda: not b.peers.listener.connections, "it was ended")
            assert b.delivered == []
            with await b.connected(credentials_for("server", A)) as sock:
                sock.sendall(frame(batch(vote(8))))
                await until(lambda: b.delivered == [vote(8)], "it has come")

    with caplog.at_level("DEBUG", "nyala.transport"):
        run(scenario)
    assert f"a link of {A} came with the certificate of server {C}" in caplog.text


def test_link_goes_only_to_the_server_whose_uuid_its_sender_means() -> None:
    """Goal: a server's certificate does not let it take the messages for another one. Method: a link to server C where
    B listens, over gRPC, and on B's port for links."""

    async def scenario() -> None:
        async with receiver() as b:
            with speaking_as(credentials_for("server", A)), pytest.raises((grpc.aio.AioRpcError, TimeoutError)):
                await open_link(
                    b.address, A, b.address, C, PeerOptions(connect_timeout_ms=1000), Link(OPTIONS, lambda: None)
                )
            with pytest.raises(OSError, match="Hostname mismatch"):
                await b.connected(credentials_for("server", A), to=C)

    run(scenario)


def test_link_that_does_not_go_on_with_tls_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a handshake that does not end, and a batch in the clear, take nothing for long. Method: connections with
    A's ticket that are silent, or send a batch without TLS: all end, and nothing is delivered."""
    monkeypatch.setattr(connections, "HANDSHAKE_S_MAX", 0.2)

    async def scenario() -> None:
        async with receiver() as b:
            open_ones = []
            for says in (b"", b"", frame(batch(vote(7)))):
                reader, writer = await asyncio.open_connection("127.0.0.1", b.peers.listener.port)
                writer.write(frame(b.ticket()))
                assert await reader.readexactly(4) == frame(b"")
                writer.write(says)
                open_ones.append((reader, writer))
            for reader, writer in open_ones:
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
            await until(lambda: not b.peers.listener.connections, "all have ended")
            assert b.delivered == []

    run(scenario)
