"""A steady ingest without Spark: one source, read from the catalog's position, in micro-batches, over any fault."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from nyala.replica.client import Client, ScanSpec, TableHandle, wire_batches
from nyala.replica.rows import RowOp, SourceKey
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.types import Refused
from tests.harness.cluster import PATIENCE_S, wait_until

ROWS = 50
"""The rows of each micro-batch."""
PAUSE_S = 0.05
LEASE_US = 20_000_000


class SourceLoad:
    """A thread that inserts record after record of an endless source: offset n is key n.

    It does what a query without a checkpoint does. It takes the source, begins at `done`, and moves `done` when a
    micro-batch is acknowledged; after any refusal it begins again from the catalog.
    """

    def __init__(self, masters: str, handle: TableHandle) -> None:
        self.source = SourceKey("cluster", "fed", 0)
        self.done = 0
        """The offset below which every record was acknowledged by its tablet and by the catalog, at some time."""
        self.begun: list[int] = []
        """The offset from which each run read."""
        self.surprises: list[str] = []
        self._masters = masters
        self._handle = handle
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ingest", daemon=True)

    def _run(self) -> None:
        with Client([self._masters]) as client:
            while not self._stop.is_set():
                try:
                    self._read(client)
                except Refused:
                    self._stop.wait(PAUSE_S)
                except Exception as error:  # noqa: BLE001 - told by `finish`
                    self.surprises.append(repr(error))
                    return

    def _read(self, client: Client) -> None:
        """Read from the catalog's position on, until it is refused or stopped.

        The table is read first, the positions after it: whatever tablets it knows, they are not newer than the
        positions.
        """
        self._handle = client.get_table(self._handle.name)
        opened = pb.SourceOpen(source=source_to_pb(self.source), topic=self.source.topic_id)
        reply = client.open_sources(self._handle.name, [opened], owner_run="steady", lease_us=LEASE_US)
        (position,) = reply.positions
        writer = client.source_writer(self._handle, self.source, generation=position.generation, done=position.done)
        at = position.done
        self.begun.append(at)
        try:
            while not self._stop.wait(PAUSE_S):
                keys = np.arange(at, at + ROWS)
                columns = pa.table({"k": keys, "must": np.ones(ROWS, np.int32)})
                for batch in wire_batches(self._handle, columns, RowOp.INSERT, keys):
                    writer.send(batch)
                writer.flush()
                if writer.row_errors:
                    self.surprises.append(f"a record came twice: {writer.row_errors[:3]}")
                    self._stop.set()
                at += ROWS
                advance = pb.SourceAdvance(source=opened.source, generation=position.generation, done=at)
                client.advance_sources(self._handle.table_id, [advance], owner_run="steady", lease_us=LEASE_US)
                self.done = at
        finally:
            writer.abandon()

    def progress(self, batches: int = 5, timeout_s: float = PATIENCE_S) -> None:
        """Wait until `done` was moved so many times more, wherever it is."""
        goal = self.done + batches * ROWS

        def advanced() -> bool:
            assert not self.surprises, self.surprises
            return self.done >= goal

        wait_until(advanced, f"{batches} more micro-batches are acknowledged", timeout_s)

    def finish(self, client: Client) -> int:
        """Check V4: every record below `done` is there once, and at most the last micro-batch beyond; returns how many
        there are."""
        self._stop.set()
        self._thread.join(240)
        assert not self._thread.is_alive(), "the ingest hangs"
        assert self.surprises == []
        parts = [b["k"] for p in client.scan(self._handle, ScanSpec(columns=("k",))) for b in p.batches]
        keys = np.sort(pa.chunked_array(parts).to_numpy())
        assert len(np.unique(keys)) == len(keys), "records came twice"
        missing = np.setdiff1d(np.arange(self.done), keys)
        assert not len(missing), f"{len(missing)} acknowledged records lost, the first {missing[:5]}"
        assert len(keys) == 0 or keys[-1] < self.done + ROWS
        return len(keys)

    def __enter__(self) -> SourceLoad:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(240)
