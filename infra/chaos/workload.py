"""Writers that remember every acknowledgement, and a reader that compares its scans with what they remember."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from nyala.replica.client import Client, ScanSpec, SessionWriter, TableHandle, wire_batches
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.types import Code, Refused

from .expected_rows import FRESH, KEYS_MAX, TOGGLES, ExpectedRows, Rows, Versions, compare, dangling, link_of, text_of

TABLE = "chaos"
SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="link", type=ColumnType.INT64, nullable=False),
        Column(id=3, name="version", type=ColumnType.INT32, nullable=False),
        Column(id=4, name="v", type=ColumnType.STRING),
    ),
    ("k",),
)
PARTITION = PartitionSpec(("k",), 4)
CHANGED = 6
"""The number of older rows that each batch updates."""
TOGGLED = 2
PAUSE_S = 0.03
READ_EVERY_S = 2.0
HISTORY_US = 24 * 3600 * 1_000_000
"""The history retention, longer than any run, because its first snapshots are read again at its end."""
SNAPSHOTS_MAX = 40
"""The most remembered snapshots, which are read again at the end. Beyond that, every other one is forgotten."""
FAULTS_SHOWN = 10
SETTLE_TRIES_MAX = 20
"""The attempts for a batch of unknown outcome; each waits as long as the client's write timeout."""
NEVER = frozenset(
    {
        Code.CORRUPTION,
        Code.WRONG_TABLE,
        Code.SCHEMA_MISMATCH,
        Code.INVALID_BATCH,
        Code.INVALID_ARGUMENT,
        Code.TOO_LARGE,
        Code.GAP,
        Code.STALE_GENERATION,
        Code.HISTORY_GONE,
        Code.ALREADY_EXISTS,
    }
)
"""Codes that no fault of servers explains: a client that gets one has found a defect."""


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that was read during the load."""

    at: int
    digest: str
    rows: int


class Writer:
    """One thread: each batch inserts rows, changes some, and inserts or deletes some again. It checks every answer."""

    def __init__(self, client: Client, handle: TableHandle, number: int, seed: int, stop: threading.Event) -> None:
        self.expected = ExpectedRows(number)
        self.batches = 0
        self.rows = 0
        self.unknown = 0
        """The number of batches of unknown outcome; each was followed by newer versions of its rows."""
        self.gap_s = 0.0
        """The longest time between two acknowledgements."""
        self.fault = ""
        self._client = client
        self._handle = handle
        self._rng = random.Random(seed * 1000 + number)
        self._stop = stop
        self._shaky: set[int] = set()
        """Rows that a late write of unknown outcome may still change: from then on they are not checked."""
        self.thread = threading.Thread(target=self._run, name=f"chaos-writer-{number}", daemon=True)

    def _run(self) -> None:
        last = time.monotonic()
        session = self._client.session_writer(self._handle, on_error="return")
        try:
            while not self._stop.wait(PAUSE_S):
                ordinals = self._choose()
                for _ in range(SETTLE_TRIES_MAX):
                    versions = self.expected.begin(ordinals)
                    if self._write(session, ordinals, versions) or self.fault:
                        break
                    session.close()
                    session = self._client.session_writer(self._handle, on_error="return")
                else:
                    self.fault = f"writer {self.expected.writer}: no acknowledgement in {SETTLE_TRIES_MAX} attempts"
                if self.fault:
                    return
                now = time.monotonic()
                self.gap_s, last = max(self.gap_s, now - last), now
        except Exception as error:  # noqa: BLE001 - a verdict, told at the end
            self.fault = f"writer {self.expected.writer}: {error!r}"
        finally:
            session.close()

    def _choose(self) -> list[int]:
        """The ordinals of the next batch, each once: new rows, existing rows, rows that come and go."""
        used = self.expected.keys
        fresh = list(range(used, min(used + FRESH, KEYS_MAX)))
        old = self._rng.sample(range(TOGGLES, used), min(CHANGED, used - TOGGLES))
        return [*self._rng.sample(range(TOGGLES), TOGGLED), *old, *fresh]

    def _op(self, ordinal: int, version: int) -> RowOp:
        shaky = ordinal in self._shaky
        if ordinal < TOGGLES and version % 2 == 0:
            return RowOp.DELETE_IGNORE if shaky else RowOp.DELETE
        if shaky:
            return RowOp.UPSERT
        return RowOp.INSERT if ordinal < TOGGLES or version == 1 else RowOp.UPDATE

    def _write(self, session: SessionWriter, ordinals: list[int], versions: list[int]) -> bool:
        """Write one batch; returns whether it was acknowledged. Row errors are defects, because each operation must
        succeed."""
        key = self.expected.writer << 32
        columns = pa.table(
            {
                "k": pa.array([key + o for o in ordinals], pa.int64()),
                "link": pa.array([link_of(self.expected.writer, o) for o in ordinals], pa.int64()),
                "version": pa.array(versions, pa.int32()),
                "v": [text_of(key + o, n) for o, n in zip(ordinals, versions, strict=True)],
            }
        )
        ops = np.array([int(self._op(o, n)) for o, n in zip(ordinals, versions, strict=True)], np.uint8)
        try:
            for batch in wire_batches(self._handle, columns, ops):
                session.send(batch)
            session.flush()
        except Refused as error:
            if error.code in NEVER:
                self.fault = f"writer {self.expected.writer}: {error}"
            self.unknown += 1
            self._shaky.update(ordinals)
            self.expected.doubtful(ordinals, versions)
            return False
        if session.row_errors:
            bad = [f"row {ordinals[e.offset]} {ops[e.offset]}: {e.code.name}" for e in session.row_errors[:3]]
            self.fault = f"writer {self.expected.writer}: {', '.join(bad)}"
        self.expected.acknowledged(ordinals, versions)
        self.batches += 1
        self.rows += len(ordinals)
        return True


class Reader:
    """One thread: complete scans, strong ones and snapshots in turn, each compared with the rows expected then."""

    def __init__(
        self, client: Client, handle: TableHandle, by_writer: list[ExpectedRows], stop: threading.Event
    ) -> None:
        self.reads = 0
        self.refused = 0
        """The number of scans that were given up and returned nothing."""
        self.faults: list[str] = []
        self.snapshots: list[Snapshot] = []
        self._client = client
        self._handle = handle
        self._by_writer = by_writer
        self._stop = stop
        self.thread = threading.Thread(target=self._run, name="chaos-reader", daemon=True)

    def _run(self) -> None:
        strong = False
        while not self._stop.wait(READ_EVERY_S):
            strong = not strong
            try:
                self.look_or_give_up(0 if strong else None)
            except Exception as error:  # noqa: BLE001 - a verdict, told at the end
                self._fault(f"reader: {error!r}")
                return

    def look_or_give_up(self, at: int | None) -> None:
        """Call `look`. A refusal that a fault explains is counted; any other is a defect."""
        try:
            self.look(at)
        except Refused as error:
            self.refused += 1
            if error.code in NEVER:
                self._fault(f"reader: {error}")

    def look(self, at: int | None) -> Rows:
        """Make and compare one complete scan: strong if `at` is 0, a snapshot of now, which is remembered, if it is
        None."""
        before = [expected.acked.copy() for expected in self._by_writer]
        when = self._client.snapshot_time(self._handle) if at is None else at
        rows = self.scan(when)
        after = [expected.tried.copy() for expected in self._by_writer]
        for wrong in judge(self._by_writer, before, after, rows):
            self._fault(f"{'snapshot' if when else 'strong read'} {self.reads}: {wrong}")
        if at is None:
            if self.snapshots and when < self.snapshots[-1].at:
                self._fault(f"the time of a snapshot went back from {self.snapshots[-1].at} to {when}")
            if len(self.snapshots) == SNAPSHOTS_MAX:
                self.snapshots = self.snapshots[::2]
            self.snapshots.append(Snapshot(when, rows.digest(), len(rows.k)))
        self.reads += 1
        return rows

    def scan(self, at: int) -> Rows:
        """All rows at a time; 0: the latest, linearizable for each tablet."""
        parts = self._client.scan(self._handle, ScanSpec(snapshot_time=at))
        return Rows.of(batch for part in parts for batch in part.batches)

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_SHOWN:
            self.faults.append(text)


def judge(by_writer: list[ExpectedRows], before: list[Versions], after: list[Versions], rows: Rows) -> list[str]:
    """All errors in one scan. A strong scan reads its tablets one after the other, each at a later time."""
    wrong = [w for expected, b, a in zip(by_writer, before, after, strict=True) for w in compare(expected, b, a, rows)]
    if len(foreign := rows.k[rows.k >= len(by_writer) << 32]):
        wrong.append(f"keys that nobody wrote: {foreign[:3].tolist()}")
    return wrong


class Workload:
    """Writers and the reader over one table."""

    def __init__(
        self,
        client: Client,
        seed: int,
        *,
        replication_factor: int = 3,
        writers: int = 2,
        partition: PartitionSpec = PARTITION,
    ) -> None:
        self.handle = client.create_table(
            TABLE, SCHEMA, partition, replication_factor=replication_factor, history_retention_us=HISTORY_US
        )
        self._stop_writing, self._stop_reading = threading.Event(), threading.Event()
        self.writers = [Writer(client, self.handle, n, seed, self._stop_writing) for n in range(writers)]
        self.reader = Reader(client, self.handle, [w.expected for w in self.writers], self._stop_reading)

    def start(self) -> None:
        """Begin to write and read."""
        for thread in self._threads:
            thread.start()

    def wait_acknowledged(
        self, batches: int, done: Callable[[], bool] = lambda: False, timeout_s: float = 600.0
    ) -> bool:
        """Wait until each writer has that many more acknowledged batches; False if not in time, or after a defect."""
        goals = [(w, w.batches + batches) for w in self.writers]
        deadline = time.monotonic() + timeout_s
        tick = threading.Event()
        while any(w.batches < goal for w, goal in goals):
            if time.monotonic() > deadline or self.faults or done():
                return False
            tick.wait(0.05)
        return True

    def stop(self, wait_s: float = 180.0) -> list[str]:
        """End all threads; returns the names of those that hang."""
        self._stop_writing.set()
        self._stop_reading.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(wait_s)
        return [t.name for t in self._threads if t.is_alive()]

    @property
    def _threads(self) -> list[threading.Thread]:
        return [*(w.thread for w in self.writers), self.reader.thread]

    @property
    def rows(self) -> int:
        """The number of acknowledged row writes so far."""
        return sum(w.rows for w in self.writers)

    @property
    def faults(self) -> list[str]:
        """The defects found so far."""
        return [*(w.fault for w in self.writers if w.fault), *self.reader.faults]

    def final_faults(self) -> list[str]:
        """After `stop`: the errors in the table at its latest time."""
        by_writer = [w.expected for w in self.writers]
        rows = self.reader.scan(0)
        return judge(by_writer, [b.acked for b in by_writer], [b.tried for b in by_writer], rows) + dangling(rows)

    def history_faults(self) -> list[str]:
        """The snapshots of the load that have changed, or have an effect without its cause."""
        wrong = []
        for snapshot in self.reader.snapshots:
            rows = self.reader.scan(snapshot.at)
            if rows.digest() != snapshot.digest:
                wrong.append(f"the snapshot at {snapshot.at} had {snapshot.rows} rows, now other {len(rows.k)}")
            wrong += [f"snapshot at {snapshot.at}: {w}" for w in dangling(rows)]
        return wrong[:FAULTS_SHOWN]
