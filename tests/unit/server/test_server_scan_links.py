"""Connections on which the rows of scans leave: which rows, in which order, and when either end gives up."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.client.link_ports import LinkPort
from nyala.replica.client.scan_links import batches_on
from nyala.replica.rpc import HEAD_BYTES, frame, pb
from nyala.replica.server.requests import scan_links
from nyala.replica.server.requests.scan_links import ScanLink, ScanLinks
from nyala.replica.server.requests.scans import Scans
from nyala.replica.types import Code, Refused, limits
from tests.harness.certificates import credentials_for, speaking_as
from tests.harness.copies import TABLET
from tests.harness.patience import patience_s
from tests.harness.rows import SCHEMA
from tests.harness.server_pair import Pair, run_pair, until

LONG_S = patience_s(60)
ROWS = 1000
REQUEST = pb.ScanRequest(tablet_id=TABLET, all_columns=True)


async def _nobody_leads(replica: Any, time: int) -> None:
    return


def _never(*told: Any) -> None:
    raise AssertionError(told)


def _nothing() -> None:
    """Go on."""


class Reader:
    """Scans of a pair's leader by a client with a certificate, or without one."""

    def __init__(self, pair: Pair, tls: bool = False, patience: float = LONG_S, come_s: float = LONG_S) -> None:
        self.pair = pair
        self.client = credentials_for("client", "anna") if tls else None
        with speaking_as(credentials_for("server", pair.leader.uuid) if tls else None):
            self.links = ScanLinks(pair.leader.grant_ticket, come_s)
        self.scans = Scans(pair.leader.manager.hybrid_clock, 1, _nobody_leads, _never, patience_s=patience)
        self.port = LinkPort(pair.leader.address, self.client)

    def offer(self) -> ScanLink:
        return self.links.offer("h", None if self.client is None else self.client.own)

    async def read(self, connect: Callable[[Any, Any], Any]) -> tuple[list[int], list[int], Any]:
        """Return the keys that came on the call, and on the connection, and the last chunk. `connect(chunk, schema)`:
        called on a thread with an offer."""
        called: list[int] = []
        linked: asyncio.Future[list[int]] | None = None
        schema, chunk = None, pb.ScanChunk()
        async for chunk in self.scans.scan(self.pair.leader.hosted, REQUEST, None, self.offer):
            schema = pa.ipc.read_schema(pa.py_buffer(chunk.arrow_schema)) if chunk.arrow_schema else schema
            if chunk.arrow_batch:
                called += pa.ipc.read_record_batch(pa.py_buffer(chunk.arrow_batch), schema)["k"].to_pylist()
            if chunk.port:
                linked = asyncio.get_running_loop().run_in_executor(None, connect, chunk, schema)
        return called, await linked if linked is not None else [], chunk

    def connected(self, chunk: Any) -> socket.socket:
        return self.port.connected(chunk.port, chunk.ticket, self.pair.leader.uuid, LONG_S)

    def keys(self, chunk: Any, schema: Any) -> list[int]:
        with self.connected(chunk) as sock:
            return [k for batch in batches_on(sock, schema, _nothing) for k in batch["k"].to_pylist()]

    def close(self) -> None:
        self.scans.close()
        self.links.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_rows_after_the_first_batch_leave_on_the_connection(tls: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a scan of several batches is whole: the first on its call, the others on the connection that it offers, and
    the last chunk has their number. Method: a real listener and client, with certificates and without; pieces of 10
    rows, and turns of 16 batches."""
    monkeypatch.setattr(limits, "SCAN_PIECE_ROWS_MAX", 10)

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(ROWS))
        reader = Reader(pair, tls)
        try:
            called, linked, last = await reader.read(reader.keys)
        finally:
            reader.close()
        assert (len(called), len(linked)) == (10, ROWS - 10) and sorted(called + linked) == list(range(ROWS))
        assert last.last and last.link_rows == ROWS - 10 and pair.leader.hosted.rows_read >= ROWS

    run_pair(scenario)


@pytest.mark.parametrize("how", ["never comes", "another certificate"])
def test_rows_leave_on_the_call_if_the_client_opens_no_connection(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a client that cannot reach the port gets every row on its call, and so does one whose ticket another holder
    shows, who gets none. Method: an offer that nobody takes, and one that another client's certificate takes."""
    monkeypatch.setattr(limits, "SCAN_PIECE_ROWS_MAX", 10)

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(100))
        reader = Reader(pair, tls=how != "never comes", come_s=patience_s(0.5))

        def connect(chunk: Any, schema: Any) -> list[int]:
            if how == "never comes":
                return []
            other = LinkPort(pair.leader.address, credentials_for("client", "bob"))
            with pytest.raises(OSError):
                other.connected(chunk.port, chunk.ticket, pair.leader.uuid, LONG_S).close()
            assert not other.reachable
            return []

        try:
            called, _, last = await asyncio.wait_for(reader.read(connect), LONG_S)
        finally:
            reader.close()
        assert sorted(called) == list(range(100)) and last.last and last.link_rows == 0

    run_pair(scenario)


class _Large:
    """A tablet whose batches are larger than the buffers of a connection."""

    def scan(self, *_: Any, **__: Any) -> Any:
        rows = pa.RecordBatch.from_pydict({"k": range(100_000), "v": ["v" * 100] * 100_000}, schema=SCHEMA.arrow)

        class Found:
            schema, snapshot_time = SCHEMA.arrow, 5
            left = iter([rows] * 5)

            def __iter__(self) -> Any:
                return self

            def __next__(self) -> Any:
                return next(self.left)

        return Found()


@pytest.mark.a_third
@pytest.mark.parametrize("how", ["stops", "leaves", "reads on"])
def test_reader_of_a_connection_that_takes_nothing_makes_room(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a scan ends if its client reads no further on the connection, or closes it, because the number of scans is
    bounded; a client that reads slowly gets everything, and its thread serves others meanwhile. Method: 50 MB for a
    client that takes the connection and reads none, closes it, or reads when another scan has ended on the only
    thread."""

    async def scenario(pair: Pair) -> None:
        reader = Reader(pair, patience=0.2 if how == "stops" else LONG_S)
        hosted, large, go_on = pair.leader.hosted, _Large(), threading.Event()
        replica, _ = hosted.serving()
        await pair.put(*range(100))
        with ExitStack() as kept:

            def connect(chunk: Any, schema: Any) -> list[int]:
                sock = kept.enter_context(reader.connected(chunk))
                if how == "leaves":
                    sock.close()
                if how != "reads on":
                    return []
                assert go_on.wait(LONG_S)
                count = 0
                while head := sock.recv(HEAD_BYTES, socket.MSG_WAITALL):
                    left = int.from_bytes(head)
                    while left:
                        left -= len(sock.recv(min(left, 1 << 20), socket.MSG_WAITALL))
                    count += 1
                return [count]

            with monkeypatch.context() as patch:
                patch.setattr(hosted, "serving", lambda table_id="": (replica, large))
                reading = asyncio.create_task(reader.read(connect))
                if how != "reads on":
                    await asyncio.wait([reading], timeout=LONG_S)
                else:
                    await until(lambda: any(link.rows for link in made), "rows are sent")
            if how == "reads on":
                brief = [c async for c in reader.scans.scan(hosted, pb.ScanRequest(tablet_id=TABLET, count_only=True))]
                assert brief[-1].last
                go_on.set()
                called, linked, last = await reading
                assert (len(called), linked, last.link_rows) == (100_000, [4], 400_000)
            elif how == "stops":
                assert reading.cancelled()
            else:
                with pytest.raises(Refused) as caught:
                    await reading
                assert caught.value.code is Code.UNAVAILABLE
        await until(lambda: reader.scans.open.calls == 0, "there is room")
        reader.close()

    made: list[ScanLink] = []
    offer = ScanLinks.offer

    def noted(links: ScanLinks, host: str, caller: Any) -> ScanLink:
        made.append(offer(links, host, caller))
        return made[-1]

    monkeypatch.setattr(scan_links.ScanLinks, "offer", noted)
    run_pair(scenario)


def _sent(data: bytes, stop: Callable[[], None] = _nothing) -> list[int]:
    """Return the keys that a client reads from these bytes, after which the server closes the connection."""
    here, there = socket.socketpair()
    with here:
        with there:
            there.sendall(data)
        return [k for batch in batches_on(here, SCHEMA.arrow, stop) for k in batch["k"].to_pylist()]


def test_what_is_no_batch_is_refused_by_the_client() -> None:
    """Goal: a client takes whole frames of batches only, and says what was wrong with others. Method: two batches;
    then one cut in its head and in its body, one of a false length, and one whose bytes are no message; and a scan that
    is given up."""
    batch = frame(pa.RecordBatch.from_pylist([{"k": 1, "v": "a"}], SCHEMA.arrow).serialize().to_pybytes())
    assert _sent(batch + batch) == [1, 1] and _sent(b"") == []
    for cut in (1, HEAD_BYTES, len(batch) - 1):
        with pytest.raises(Refused, match="scan again") as caught:
            _sent(batch + batch[:cut])
        assert caught.value.code is Code.UNAVAILABLE
    for wrong in (frame(b""), (limits.SCAN_CHUNK_BYTES_MAX + 1).to_bytes(HEAD_BYTES), frame(b"no message" * 10)):
        with pytest.raises(Refused, match="scan again") as caught:
            _sent(batch + wrong)
        assert caught.value.code is Code.CORRUPTION

    def stop() -> None:
        raise Refused(Code.TIMED_OUT, "given up")

    with pytest.raises(Refused, match="given up"):
        _sent(batch, stop)
