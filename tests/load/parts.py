"""The parts of the load: what each does, and what must be right when it ends. `Tally` counts its units of work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import numpy as np
import pyarrow as pa

import nyala
from nyala.replica.client import ClientOptions, wire_batches
from nyala.replica.client.retry import Deadline
from nyala.replica.rows import RowOp
from nyala.replica.rpc import CHANNEL_OPTIONS, pb, pb_grpc, raise_if_error
from nyala.replica.types import limits
from tests.load.judge import Allowed, Measure
from tests.load.world import Tally, World, together

CLIENTS, CLIENTS_BRIEF = 256, 48
LONG_S = 60.0
"""From so many seconds on all clients take part; they are threads of one process, whose start alone takes seconds."""
CLIENT_KEYS = 20
PATIENT = ClientOptions(connect_timeout_s=60)
"""Of each client: all of them connect at once."""
SCAN_EVERY = 20
"""Of a client's calls, one in so many reads its rows."""
DROPPERS = 16
SCAN_TIMEOUT_S = 60
DROPPED_ROWS, DROPPED_ROW_BYTES = 24_000, 1000
"""24 MB in three tablets: a scan that is dropped behind its first message has most of its messages before it."""
OWN_CHANNEL_EVERY = 10
"""Of the dropped scans, one in so many ends because its whole connection does."""
TABLE_MAKERS = 4
LONG_ROW_BYTES = limits.ROW_SIZE_BYTES_MAX
LONG_WRITERS, LONG_KEYS = 2, 8
VERSIONS_PER_BATCH = 2000
VERSIONS_ALONE_SHARE = 0.01
STEADY_WRITERS, STEADY_KEYS, STEADY_ROWS, STEADY_ROW_BYTES = 3, 2000, 50, 100


@dataclass(frozen=True, kw_only=True)
class Part:
    """One part. `run(world, tally, size)` does `size` units of work, or works for `size` seconds."""

    name: str
    what: str
    unit: str
    run: Callable[[World, Tally, float], None]
    brief: float
    full: float
    seconds: bool = False
    """Whether the size is seconds."""
    growth_mb: float = 24.0
    """Of a server's memory over the second half: what stores, pools and caches swing by."""
    growth_kb_per_unit: float = 0.0
    """What a unit leaves behind in a server by design."""
    master_kb_per_unit: float = 0.0
    swing: float = 12.0
    """Of open files, threads and maps over the second half."""
    files_per_unit: float = 0.0

    def allowed(self, process: str) -> dict[Measure, Allowed]:
        """What a server or master may come to in this part."""
        master = process.startswith("m")
        leaves_kb = self.master_kb_per_unit if master else self.growth_kb_per_unit
        counts = Allowed(growth=self.swing, growth_per_unit=self.files_per_unit)
        return {
            Measure.PRIVATE_MB: Allowed(
                most=(MASTER_BYTES if master else SERVER_BYTES) / 2**20,
                growth=self.growth_mb,
                growth_per_unit=leaves_kb / 1024,
            ),
            Measure.FILES: counts,
            Measure.THREADS: counts,
            Measure.MAPS: Allowed(growth=200.0, growth_per_unit=self.files_per_unit),
        }


INTERPRETER_BYTES = 160 << 20
"""Of an idle process: interpreter, libraries, thread stacks (`ANONYMOUS_MARGIN_BYTES` of the server)."""
SERVER_BYTES = INTERPRETER_BYTES + limits.SERVER_MEMORY_SOFT_BYTES + limits.CALLS_MEMORY_PER_HOST_BYTES_MAX
"""The stated bound of a server that is used from one host: itself, stores up to the soft limit, and calls under way."""
MASTER_BYTES = INTERPRETER_BYTES + limits.CATALOG_BYTES_MAX + limits.CALLS_MEMORY_PER_HOST_BYTES_MAX


def clients(world: World, tally: Tally, seconds: float) -> None:
    """256 clients, each with connections of its own, write single rows and now and then read back all that they wrote.
    At the end a table of all rows is as the clients know it."""
    until, count = time.monotonic() + seconds, CLIENTS if seconds >= LONG_S else CLIENTS_BRIEF
    with world.table("clients") as table:
        written: list[dict[int, str]] = [{} for _ in range(count)]

        def one(number: int) -> None:
            mine, first = written[number], number * CLIENT_KEYS
            with nyala.connect(world.masters, options=PATIENT) as cluster:
                own = tally.timed("connect", lambda: cluster.table("clients"))
                turn = 0
                while time.monotonic() < until or not mine:
                    turn += 1
                    if turn % SCAN_EVERY:
                        key, value = first + turn % CLIENT_KEYS, f"{number}-{turn}"
                        tally.timed("write of a row", partial(own.upsert, {"k": key, "v": value}))
                        mine[key] = value
                    else:
                        where = (nyala.col("k") >= first) & (nyala.col("k") < first + CLIENT_KEYS)
                        found = tally.timed("scan", own.scan(where=where).to_arrow)
                        if rows_of(found) != mine:
                            tally.fail(f"client {number} reads other rows than it wrote")
                    tally.add()

        together(tally, count, one)
        check_rows(tally, table, {k: v for mine in written for k, v in mine.items()})


def dropped_scans(world: World, tally: Tally, count: float) -> None:
    """Scans that are dropped behind their first message, by their call or with their connection. Afterwards a server
    has room for as many readers as before, and a whole scan has every row."""
    with world.table("dropped") as table:
        rows = {n: f"{n:0{DROPPED_ROW_BYTES}d}" for n in range(DROPPED_ROWS)}
        for first in range(0, DROPPED_ROWS, 4000):
            keys = range(first, first + 4000)
            table.upsert(pa.table({"k": list(keys), "v": [rows[k] for k in keys]}))
        client = world.cluster.client
        turns = iter(range(int(count)))
        taking = threading.Lock()

        def drop(number: int) -> None:
            tablet = table.handle.tablets[number % len(table.handle.tablets)]
            begin = partial(first_message, tablet.tablet_id, number)
            client.calls.at_leader(table.name, tablet.tablet_id, begin, deadline=Deadline(SCAN_TIMEOUT_S))

        def first_message(tablet_id: str, number: int, stub: Any, uuid: str, timeout_s: float) -> None:
            """Begin a scan at the leader, take its first message, and leave."""
            request = pb.ScanRequest(
                dest_uuid=uuid, tablet_id=tablet_id, table_id=table.handle.table_id, all_columns=True
            )
            if number % OWN_CHANNEL_EVERY:
                call = stub.Scan(request, timeout=timeout_s)
                try:
                    raise_if_error(next(call).error)
                finally:
                    call.cancel()
                return
            _, address = client.locator.leader(tablet_id)
            with closing(grpc.insecure_channel(str(address), options=list(CHANNEL_OPTIONS))) as channel:
                raise_if_error(next(pb_grpc.TabletServiceStub(channel).Scan(request, timeout=timeout_s)).error)

        def some(_: int) -> None:
            while not tally.errors:
                with taking:
                    number = next(turns, None)
                if number is None:
                    return
                tally.timed("first message of a scan", partial(drop, number))
                tally.add()

        together(tally, DROPPERS, some)
        check_rows(tally, table, rows)


def tables(world: World, tally: Tally, count: float) -> None:
    """Tables that are made, written to, read and dropped. In the end the catalog lists none of them."""
    turns = iter(range(int(count)))
    taking = threading.Lock()

    def passing(number: int) -> None:
        name = f"passing-{number}"
        make = partial(world.cluster.create_table, name, {"k": "int64", "v": "string"}, key="k")
        tally.timed("create", make)
        table = tally.timed("open", partial(world.cluster.table, name))
        tally.timed("first write", partial(table.insert, {"k": number, "v": name}))
        if rows_of(table.scan().to_arrow()) != {number: name}:
            tally.fail(f"{name} does not hold its row")
        tally.timed("drop", partial(world.cluster.drop_table, name))
        tally.add()

    def some(_: int) -> None:
        while not tally.errors:
            with taking:
                number = next(turns, None)
            if number is None:
                return
            passing(number)

    together(tally, TABLE_MAKERS, some)


def long_rows(world: World, tally: Tally, count: float) -> None:
    """Rows of the greatest length, written one by one and read back whole, over few keys, so that they are replaced."""
    with world.table("long") as table:
        latest: dict[int, str] = {}

        def write(writer: int) -> None:
            for number in range(writer, int(count), LONG_WRITERS):
                key = number % LONG_KEYS  # a writer's own: their number is a multiple of the writers'
                value = f"{number:08d}" * (LONG_ROW_BYTES // 8)
                tally.timed("write of a row", partial(table.upsert, {"k": key, "v": value}))
                latest[key] = value
                tally.add()

        together(tally, LONG_WRITERS, write)
        found = tally.timed("scan", table.scan().to_arrow)
        if rows_of(found) != latest:
            tally.fail("the long rows are not as written")


def versions(world: World, tally: Tally, count: float) -> None:
    """Versions of one key: one in a hundred written alone, the others by the thousand in a batch. The row is read
    meanwhile at the latest time and at one before, and is right in the end."""
    with world.table("versions", buckets=1) as table:
        table.insert({"k": 1, "v": "0"})
        handle = table.handle
        done = 0
        with world.cluster.client.session_writer(handle) as writer:
            while done < count:
                numbers = np.arange(done + 1, done + 1 + VERSIONS_PER_BATCH)
                rows = pa.table({"k": np.ones(len(numbers), np.int64), "v": numbers.astype(str)})
                for batch in wire_batches(handle, rows, RowOp.UPDATE):
                    tally.timed("batch of versions", partial(writer.write, batch))
                done += VERSIONS_PER_BATCH
                for _ in range(int(VERSIONS_PER_BATCH * VERSIONS_ALONE_SHARE)):
                    done += 1
                    tally.timed("one version", partial(table.update, {"k": 1, "v": str(done)}))
                scan = table.scan()
                found = rows_of(tally.timed("scan", scan.to_arrow))
                if found != {1: str(done)} or rows_of(table.scan(at=scan.snapshot_time).to_arrow()) != found:
                    tally.fail(f"version {done} is read as {found}")
                tally.add(done - tally.done)
        check_rows(tally, table, {1: str(done)})


def steady(world: World, tally: Tally, seconds: float) -> None:
    """Writers of small batches over a fixed set of keys, and a reader of the whole table, without a pause."""
    until = time.monotonic() + seconds
    with world.table("steady") as table:
        latest: list[dict[int, str]] = [{} for _ in range(STEADY_WRITERS)]

        def write(number: int) -> None:
            turn, mine = 0, latest[number]
            own = [number * STEADY_KEYS + n for n in range(STEADY_KEYS)]
            while time.monotonic() < until:
                keys = [own[(turn * STEADY_ROWS + n) % STEADY_KEYS] for n in range(STEADY_ROWS)]
                value = f"{number}-{turn}-".ljust(STEADY_ROW_BYTES, "x")
                rows = pa.table({"k": keys, "v": [value] * STEADY_ROWS})
                tally.timed("write of 50 rows", partial(table.upsert, rows))
                mine |= dict.fromkeys(keys, value)
                turn += 1
                tally.add(STEADY_ROWS)

        def read(number: int) -> None:
            if number < STEADY_WRITERS:
                write(number)
                return
            while time.monotonic() < until:
                tally.timed("scan of the table", table.scan().to_arrow)

        together(tally, STEADY_WRITERS + 1, read)
        check_rows(tally, table, {k: v for mine in latest for k, v in mine.items()})


def rows_of(found: Any) -> dict[int, str]:
    """{k: v}; a key that comes twice is an error."""
    rows = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    if len(rows) != found.num_rows:
        raise AssertionError(f"{found.num_rows - len(rows)} keys come twice")
    return rows


def check_rows(tally: Tally, table: Any, expected: dict[int, str]) -> None:
    """An error of the tally unless the table holds just these rows."""
    found = rows_of(table.scan().to_arrow())
    if found != expected:
        lost, more = len(expected.keys() - found.keys()), len(found.keys() - expected.keys())
        tally.fail(f"{table.name}: {lost} rows lost, {more} that nobody wrote, others differ: {found != expected}")


PARTS = (
    Part(
        name="clients",
        what="256 clients that write single rows and scan",
        unit="calls",
        run=clients,
        brief=8,
        full=120,
        seconds=True,
    ),
    Part(name="scans", what="scans that are dropped half-way", unit="scans", run=dropped_scans, brief=1000, full=2000),
    Part(name="tables", what="tables made and dropped", unit="tables", run=tables, brief=150, full=5000),
    Part(name="long-rows", what="rows of 1 MB", unit="rows", run=long_rows, brief=64, full=512),
    Part(name="versions", what="versions of one key", unit="versions", run=versions, brief=100_000, full=10_000_000),
    Part(name="steady", what="steady load", unit="rows", run=steady, brief=20, full=600, seconds=True),
)
