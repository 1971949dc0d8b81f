"""Scans of several tablets at a time, over streams that a test makes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from nyala.replica.base import Code, Refused
from nyala.replica.client import ClientOptions, ScanSpec, TableHandle, TabletHandle
from nyala.replica.client.scans import Scans
from nyala.replica.rows import PartitionSpec
from nyala.replica.rpc import error_to_pb, pb
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
    """`TabletCalls` as far as scans use it: every tablet's leader is the stub."""

    def __init__(self, first: Any) -> None:
        self.options = ClientOptions()
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
    """Goal: who has seen enough, or an error, does not wait for tablets that are read ahead. Method: the first tablet's
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
        assert ended.wait(60), "it waits for the others"
        assert all(stream.cancelled.is_set() for stream in calls.streams)
    finally:
        for stream in calls.streams:
            stream.cancel()
        thread.join(60)
