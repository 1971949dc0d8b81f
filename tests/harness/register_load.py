"""Threads that write and read a few rows of one table through the product's client, and keep the history of it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import grpc
import pyarrow as pa

from nyala.replica.client import Client, ClientOptions, ScanSpec, TableHandle, wire_batches
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.rpc import error_from_pb, pb
from nyala.replica.types import Applied, Refused
from tests.harness.cluster import ServerProcess, wait_until
from tests.harness.history import History

KEYS = 3
PAUSE_S = 0.01
SCHEMA = TableSchema(
    1,
    (Column(id=1, name="k", type=ColumnType.INT64, nullable=False), Column(id=2, name="v", type=ColumnType.INT64)),
    ("k",),
)
ONE_TABLET = PartitionSpec(("k",), 1)
IMPATIENT = ClientOptions(
    timeout_s=4, write_timeout_s=4, scan_timeout_s=4, attempt_timeout_s=0.5, connect_timeout_s=4, backoff_max_s=0.2
)
RAW_TIMEOUT_S = 0.7
STALENESS_S = (0.0, 0.6, 2.0, 10.0)
"""The stalenesses of the reads of a client that mixes them; 0 is a strong one."""


def values_of(batches: Any) -> dict[int, int]:
    """Return key -> value of some batches."""
    return {k: v for b in batches for k, v in zip(b["k"].to_pylist(), b["v"].to_pylist(), strict=True)}


class RegisterLoad:
    """Writers and readers that find the leader, one of them with stale reads among its strong ones, and readers that
    each call one server only, leader or not.

    A value is its number, so none is written twice. Concurrency: one thread each; `stop` ends all.
    """

    def __init__(self, masters: list[str], handle: TableHandle, servers: list[ServerProcess]) -> None:
        self.history = History(time.monotonic)
        self.done = {"write": 0, "read": 0, "stale read": 0, "read at one server": 0}
        self.surprises: list[str] = []
        self._masters, self._handle = masters, handle
        self._numbers = itertools.count(1)
        self._stop = threading.Event()
        bodies: list[Callable[[], None]] = [*(lambda n=n: self._write(n) for n in range(3))]  # type: ignore[misc]
        bodies += [lambda: self._read("reader-0"), lambda: self._read("reader-1", STALENESS_S)]
        bodies += [*(lambda s=s: self._read_at(s) for s in servers)]  # type: ignore[misc]
        self._threads = [threading.Thread(target=self._run, args=(body,), daemon=True) for body in bodies]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(180)
            assert not thread.is_alive(), "a client hangs"

    def progress(self, what: str, each: int) -> None:
        """Wait until so many more calls of each kind that finds its leader were carried out."""
        before = dict(self.done)

        def advanced() -> bool:
            assert not self.surprises, self.surprises
            return all(self.done[kind] >= before[kind] + each for kind in ("write", "read"))

        wait_until(advanced, f"{each} more writes and reads: {what}", 240)

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - told by `progress`
            self.surprises.append(repr(error))

    def _write(self, number: int) -> None:
        with Client(self._masters, IMPATIENT) as client:
            writer = client.session_writer(self._handle, on_error="return")
            while not self._stop.wait(PAUSE_S):
                value = next(self._numbers)
                key = value % KEYS
                rows = pa.table({"k": pa.array([key], pa.int64()), "v": pa.array([value], pa.int64())})
                call = self.history.write(f"writer-{number}", key, value)
                try:
                    for batch in wire_batches(self._handle, rows, RowOp.UPSERT):
                        writer.send(batch)
                    writer.flush()
                except Refused as error:
                    (call.unknown if error.applied is Applied.UNKNOWN else call.refused)()
                    writer.close()
                    writer = client.session_writer(self._handle, on_error="return")
                    continue
                assert not writer.row_errors, writer.row_errors
                call.returned()
                self.done["write"] += 1

    def _read(self, name: str, stalenesses_s: Sequence[float] = (0.0,)) -> None:
        with Client(self._masters, IMPATIENT) as client:
            for staleness_s in itertools.cycle(stalenesses_s):
                if self._stop.wait(PAUSE_S):
                    return
                calls = [self.history.read(name, key, staleness_s) for key in range(KEYS)]
                spec = ScanSpec(staleness_us=int(staleness_s * 1e6))
                try:
                    found = values_of(b for part in client.scan(self._handle, spec) for b in part.batches)
                except Refused:
                    for call in calls:
                        call.refused()
                    continue
                for key, call in enumerate(calls):
                    call.returned(found.get(key))
                self.done["stale read" if staleness_s else "read"] += 1

    def _read_at(self, server: ServerProcess) -> None:
        """Read at one server. One that is deposed and does not know it is called too: no client that looks for the
        leader does that."""
        while not self._stop.wait(PAUSE_S):
            calls = [self.history.read(f"reader-at-{server.name}", key) for key in range(KEYS)]
            try:
                found = strong_read(server, self._handle.tablets[0].tablet_id)
            except (Refused, grpc.RpcError):
                for call in calls:
                    call.refused()
                continue
            for key, call in enumerate(calls):
                call.returned(found.get(key))
            self.done["read at one server"] += 1


def strong_read(server: ServerProcess, tablet_id: str, **options: int) -> dict[int, int]:
    """Return key -> value of one tablet as one server answers; Refused or grpc.RpcError. `options`: of the
    ScanRequest."""
    request = pb.ScanRequest(
        dest_uuid=server.uuid, tablet_id=tablet_id, all_columns=True, timeout_us=int(RAW_TIMEOUT_S * 1e6), **options
    )
    schema, batches, last = None, [], False
    for chunk in server.tablets.Scan(request, timeout=5 * RAW_TIMEOUT_S):
        if (refusal := error_from_pb(chunk.error)) is not None:
            raise refusal
        if chunk.arrow_schema:
            schema = pa.ipc.read_schema(pa.py_buffer(chunk.arrow_schema))
        if chunk.arrow_batch:
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(chunk.arrow_batch), schema))
        last = last or chunk.last
    assert last, "a stream without an end"
    return values_of(batches)
