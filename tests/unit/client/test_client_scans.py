"""Scans of several tablets at a time, and of one whose stream ends early, over streams that a test makes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import grpc
import pyarrow as pa
import pytest

from nyala.replica.client import ClientOptions, ScanSpec, TableHandle, TabletHandle
from nyala.replica.client.calls import TabletCalls
from nyala.replica.client.channels import Channels
from nyala.replica.client.locator import Locator
from nyala.replica.client.scans import Scans
from nyala.replica.client.tables import Location
from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import error_to_pb, pb, pb_grpc
from nyala.replica.types import Code, Refused
from tests.harness.patience import patience_s
from tests.harness.played_grpc import listening
from tests.harness.rows import SCHEMA

HANDLES = tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(4))
TABLE = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), 4), 3, 0, 0, tablets=HANDLES)
FIRST = "t0"


class Stream:
    """A scan's chunks; that of a tablet other than the first has no end."""

    def __init__(self, tablet_id: str, first: Any) -> None:
        self.chunks = iter([first]) if tablet_id == FIRST else self._for_ever()
        self.cancelled = threading.Event()

    def _for_ever(self) -> Iterator[Any]:
        while not self.cancelled.wait(0.01):
            yield pb.ScanChunk(snapshot_time=5)

    def __iter__(self) -> Iterator[Any]:
        return self.chunks

    def cancel(self) -> None:
        self.cancelled.set()


class Calls:
    """`TabletCalls` as far as scans use it: every tablet's leader is the stub, at no known address."""

    def __init__(self, first: Any) -> None:
        self.options = ClientOptions()
        self.locator = Locator(lambda name: [])
        self.time_seen = 0
        self.streams: list[Stream] = []
        self._first = first

    def observe(self, hybrid_time: int) -> None: ...

    def Scan(self, request: Any, timeout: float) -> Stream:
        self.streams.append(Stream(request.tablet_id, self._first))
        return self.streams[-1]

    def at_leader(self, table: str, tablet_id: str, ask: Callable[[Any, str, float], Any], deadline: Any) -> Any:
        return ask(self, "uuid", 1.0)


@pytest.mark.parametrize("how", ["taken no further", "refused"])
def test_scan_that_nobody_takes_further_ends_soon(how: str) -> None:
    """Goal: a scan whose caller stops reading does not wait for tablets that are read ahead. Method: the first tablet's
    part is complete, or refused; the others' streams would go on for ever."""
    gone = error_to_pb(Refused(Code.HISTORY_GONE, "older than the history"))
    last = pb.ScanChunk(snapshot_time=5, last=True) if how != "refused" else pb.ScanChunk(error=gone)
    calls = Calls(last)
    parts = Scans(calls).table(TABLE, ScanSpec(snapshot_time=5))  # type: ignore[arg-type]
    ended = threading.Event()

    def take() -> None:
        try:
            assert next(parts).tablet_id == FIRST and how != "refused"
        except Refused as error:
            assert error.code is Code.HISTORY_GONE
        parts.close()  # type: ignore[attr-defined]
        ended.set()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        assert ended.wait(patience_s(60)), "it waits for the others"
        assert all(stream.cancelled.is_set() for stream in calls.streams)
    finally:
        for stream in calls.streams:
            stream.cancel()
        thread.join(60)


def test_slices_of_a_tablet_are_each_asked_for_once() -> None:
    """Goal: the parts of a sliced scan are its slices, each once; a count is of the whole tablet, and asks for no
    column. Method: the requests that a scan and a count of one tablet make, answered with no rows."""
    calls, asked = Calls(pb.ScanChunk(snapshot_time=5, last=True)), list[pb.ScanRequest]()
    table = replace(TABLE, tablets=HANDLES[:1])
    stream = calls.Scan

    def scan(request: pb.ScanRequest, timeout: float) -> Stream:
        asked.append(request)
        return stream(request, timeout)

    calls.Scan = scan  # type: ignore[method-assign]
    scans, spec = Scans(calls), ScanSpec(snapshot_time=5, slice_count=3)  # type: ignore[arg-type]
    assert len(list(scans.table(table, spec))) == 3 and scans.count_table(table, spec) == 0
    parts = sorted((r.slice_pos, r.slice_count, r.all_columns, r.count_only) for r in asked)
    assert parts == [(0, 1, False, True), (0, 3, True, False), (1, 3, True, False), (2, 3, True, False)]


KEYS = list(range(100))


class Replicas(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Two replicas of one tablet, played by the test behind one address: rows in two batches, each replica's in an
    order of its own. The first scan ends after its first batch."""

    def __init__(self, how: str) -> None:
        self.asked: list[str] = []
        self._how = how

    def Scan(self, request: Any, context: Any) -> Iterator[Any]:
        """[gRPC] The whole tablet, or how the first answer ends instead."""
        self.asked.append(request.dest_uuid)
        first = len(self.asked) == 1
        keys = KEYS if first else KEYS[::-1]
        yield pb.ScanChunk(arrow_schema=SCHEMA.arrow.serialize().to_pybytes(), snapshot_time=5)
        for part in (keys[:60], keys[60:]):
            rows = pa.RecordBatch.from_pylist([{"k": k, "v": "v"} for k in part], SCHEMA.arrow)
            yield pb.ScanChunk(arrow_batch=rows.serialize().to_pybytes(), rows=len(part), snapshot_time=5)
            if first and self._how == "breaks":
                context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
            if first and self._how == "meets damage":
                yield pb.ScanChunk(error=error_to_pb(Refused(Code.CORRUPTION, "a block is damaged")))
            if first and self._how == "names rows that never came":
                yield pb.ScanChunk(snapshot_time=5, last=True, link_rows=40)
            if first:
                return
        yield pb.ScanChunk(snapshot_time=5, last=True)


@pytest.mark.parametrize("staleness_us", [0, 5_000_000], ids=["leader", "any replica"])
@pytest.mark.parametrize("how", ["breaks", "meets damage", "ends without its last chunk", "names rows that never came"])
def test_scan_whose_stream_ends_early_is_read_again_and_has_every_row_once(how: str, staleness_us: int) -> None:
    """Goal: a server that is lost in the middle of its answer leaves no row doubled and none out. Method: a real server
    whose first stream ends after one of two batches; the other replica is asked, and its answer alone is the part."""
    replicas = Replicas(how)
    table = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), 1), 2, 0, 0, tablets=HANDLES[:1])
    with listening(replicas) as address:
        locator = Locator(lambda name: [Location(FIRST, name, {"a": address, "b": address}, "a")])
        locator.refresh("t", 0)
        calls = TabletCalls(Channels(), locator, ClientOptions(backoff_first_s=0.001, backoff_max_s=0.002))
        try:
            (part,) = Scans(calls).table(table, ScanSpec(staleness_us=staleness_us))
        finally:
            calls.channels.close()
    assert [k for batch in part.batches for k in batch["k"].to_pylist()] == KEYS[::-1]
    assert part.rows == len(KEYS) and sorted(replicas.asked) == ["a", "b"]


class Closed(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """A server behind a firewall: it offers a connection for rows, at a port where nothing listens."""

    def __init__(self, port: int) -> None:
        self.asked: list[bool] = []
        self._port = port

    def Scan(self, request: Any, context: Any) -> Iterator[Any]:
        """[gRPC] All rows on the call, after an offer to a caller that would take them elsewhere."""
        self.asked.append(request.by_link)
        rows = pa.RecordBatch.from_pylist([{"k": k, "v": "v"} for k in KEYS], SCHEMA.arrow)
        yield pb.ScanChunk(arrow_schema=SCHEMA.arrow.serialize().to_pybytes(), snapshot_time=5)
        if request.by_link:
            yield pb.ScanChunk(port=self._port, ticket=b"t" * 16, snapshot_time=5)
        yield pb.ScanChunk(arrow_batch=rows.serialize().to_pybytes(), rows=len(KEYS), snapshot_time=5)
        yield pb.ScanChunk(snapshot_time=5, last=True)


def test_rows_come_on_the_call_from_a_server_whose_port_is_closed() -> None:
    """Goal: a firewall that lets only the server's gRPC port through stops no scan, and costs one attempt. Method: two
    scans of a played server that offers a port where nothing listens; only the first one asks for an offer."""
    table = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), 1), 1, 0, 0, tablets=HANDLES[:1])
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        server = Closed(unheard.getsockname()[1])
        with listening(server) as address:
            locator = Locator(lambda name: [Location(FIRST, name, {"a": address}, "a")])
            locator.refresh("t", 0)
            calls = TabletCalls(Channels(), locator, ClientOptions())
            try:
                parts = [part for _ in range(2) for part in Scans(calls).table(table, ScanSpec())]
            finally:
                calls.channels.close()
    assert [part.rows for part in parts] == [len(KEYS)] * 2 and server.asked == [True, False]


class Clocks(pb_grpc.TabletServiceServicer):  # type: ignore[misc]
    """Two servers, played by the test behind one address: `a` leads t0 and t2, and `b`, whose clock is ahead, leads t1
    and t3."""

    LED: Mapping[str, set[str]] = {"a": {"t0", "t2"}, "b": {"t1", "t3"}}
    NOW: Mapping[str, int] = {"a": 1_000, "b": 9_000}

    def __init__(self, old: bool) -> None:
        self.asked: list[tuple[str, ...]] = []
        self._old = old

    def _refusal(self, uuid: str, tablet_id: str) -> Any:
        other = "b" if uuid == "a" else "a"
        led = tablet_id in self.LED[uuid]
        return error_to_pb(None if led else Refused(Code.NOT_LEADER, "a follower", detail=f"{other}@{self.address}"))

    def ServerTime(self, request: Any, context: Any) -> Any:
        """[gRPC] The server's clock; a build of version 0.2 does not read the tablets."""
        self.asked.append((request.dest_uuid, *request.tablet_ids))
        now, led = self.NOW[request.dest_uuid], [t for t in request.tablet_ids if t in self.LED[request.dest_uuid]]
        if self._old:
            return pb.ServerTimeReply(hybrid_time=now)
        return pb.ServerTimeReply(
            error=self._refusal(request.dest_uuid, request.tablet_ids[0]), hybrid_time=now, led=led
        )

    def Ledger(self, request: Any, context: Any) -> Any:
        """[gRPC] Refused by a server that does not lead the tablet, in every version."""
        return pb.LedgerReply(error=self._refusal(request.dest_uuid, request.tablet_id))


@pytest.mark.parametrize("old", [False, True], ids=["this", "version-0.2"])
def test_time_of_a_strong_read_is_that_of_the_servers_that_lead_now(old: bool) -> None:
    """IN-12. Goal: a strong read of several tablets has what was acknowledged before it, although the client
    believes that another server, whose clock is behind, leads some of them. Method: two played servers over gRPC; the
    client believes that one of them leads all tablets. The time is the other one's, and each server of this build is
    asked a few times only, for all its tablets at once."""
    clocks = Clocks(old)
    with listening(clocks) as address:
        clocks.address = address
        members = {"a": address, "b": address}
        locator = Locator(lambda name: [Location(t.tablet_id, name, members, "a") for t in HANDLES])
        locator.refresh("t", 0)
        calls = TabletCalls(Channels(), locator, ClientOptions(backoff_first_s=0.001, backoff_max_s=0.002))
        try:
            assert Scans(calls).time_now(TABLE) == Clocks.NOW["b"]
        finally:
            calls.channels.close()
    if not old:
        assert clocks.asked[0] == ("a", "t0", "t1", "t2", "t3")
        assert clocks.asked[1:] == [("a", "t1", "t3"), ("b", "t1"), ("a", "t3"), ("b", "t3")]
