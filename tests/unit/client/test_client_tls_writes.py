"""Small writes over a link with TLS, and who may use the ticket of one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from nyala.replica.client.write_links import SmallWrites
from nyala.replica.rpc import HEAD_BYTES, connection_to, frame, pb
from nyala.replica.server.requests.write_links import WriteLinks
from nyala.replica.transport import Listener, MicrotaskQueue, PeerOptions
from nyala.replica.types import Address
from tests.harness.certificates import credentials_for, speaking_as
from tests.harness.patience import patience_s

A = "a" * 32
LONG_S = patience_s(60)


def _raised(error: BaseException) -> None:
    raise error


class Served:
    """Server A: its listener and its links, and the stub by which clients get tickets in anna's name."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        microtasks = MicrotaskQueue(self.loop, _raised)
        options = PeerOptions(connect_timeout_ms=int(1000 * LONG_S))
        with speaking_as(credentials_for("server", A)):
            self.listener = Listener(lambda *batch: False, microtasks, options)
            self.links = WriteLinks(
                lambda handler, host: (self.listener.port, self.listener.ticket(handler, host)), self._begin, microtasks
            )
        self.granted = 0

    def _begin(self, request: Any, done: Callable[[Any], None]) -> None:
        self.loop.call_later(0.001, done, pb.WriteReply(hybrid_time=request.rows))

    def OpenWrites(self, request: Any, timeout: float) -> Any:
        async def grant() -> Any:
            self.granted += 1
            return self.links.grant("h", credentials_for("client", "anna").own)

        return asyncio.run_coroutine_threadsafe(grant(), self.loop).result(timeout)

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.listener.port)


def run(scenario: Callable[[Served], Awaitable[None]]) -> None:
    async def all_of_it() -> None:
        served = Served()
        await served.listener.start("127.0.0.1")
        try:
            await scenario(served)
        finally:
            served.links.close()
            await served.listener.close()

    asyncio.run(asyncio.wait_for(all_of_it(), LONG_S))


def test_threads_write_over_one_link_with_tls() -> None:
    """Goal: a link with TLS carries the writes of many threads at once, and each gets its own reply. Method: eight
    threads with a hundred writes each; one ticket was granted, and all went over the link."""

    async def scenario(served: Served) -> None:
        writes = SmallWrites(served, served.address, credentials_for("client", "anna"))

        def write(thread: int) -> list[int]:
            found = []
            for n in range(100):
                begun = writes.begin(pb.WriteRequest(dest_uuid=A, rows=1000 * thread + n), LONG_S)
                assert begun is not None
                found.append(begun.result().hybrid_time)
            return found

        with ThreadPoolExecutor(8) as pool:
            found = await asyncio.gather(*(served.loop.run_in_executor(pool, write, n) for n in range(8)))
        assert found == [[1000 * thread + n for n in range(100)] for thread in range(8)]
        assert writes.linked == 800 and served.granted == 1
        writes.close()

    run(scenario)


@pytest.mark.parametrize("user", ["anna", "bob"])
def test_link_is_for_the_certificate_to_which_its_ticket_was_granted(user: str) -> None:
    """Goal: who sees a ticket on the network cannot use it, not even with a certificate of the cluster. Method: a
    ticket of anna's, with her certificate and with bob's."""

    async def scenario(served: Served) -> None:
        granted = await asyncio.to_thread(served.OpenWrites, None, LONG_S)

        def first_frame() -> bytes:
            with connection_to(
                served.address, granted.port, granted.ticket, A, LONG_S, credentials_for("client", user)
            ) as sock:
                try:
                    return sock.recv(HEAD_BYTES)
                except ConnectionError:
                    return b""

        assert await asyncio.to_thread(first_frame) == (frame(b"") if user == "anna" else b"")

    run(scenario)


def test_handshakes_of_links_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: handshakes that do not end are few at a time, and end. Method: of three silent connections with a ticket
    the third is closed at once, at a bound of two, and the others when their time is over."""
    monkeypatch.setattr("nyala.replica.server.requests.write_links._HANDSHAKES_MAX", 2)
    monkeypatch.setattr("nyala.replica.server.requests.write_links.HANDSHAKE_S_MAX", 0.5)

    async def scenario(served: Served) -> None:
        readers = []
        for _ in range(3):
            granted = await asyncio.to_thread(served.OpenWrites, None, LONG_S)
            reader, writer = await asyncio.open_connection("127.0.0.1", granted.port)
            writer.write(frame(granted.ticket))
            readers.append((reader, writer))
            if len(readers) < 3:
                assert await reader.readexactly(HEAD_BYTES) == frame(b"")
        assert await readers[2][0].read() == b""
        for reader, writer in readers:
            assert await reader.read() == b""
            writer.close()

    run(scenario)
