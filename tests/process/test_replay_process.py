"""The logs of real servers: replay cut off again and again, of another build, of undecided entries; and bad writes."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import grpc
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.rpc import pb
from nyala.replica.types import CRASH_EXIT_CODE, Code, OpId
from nyala.replica.types.crash_points import CRASH_VARIABLE
from nyala.replica.wal import Log
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import create, lead, scan_leader, wait_equal, write
from tests.harness.rows import SCHEMA, batch, read_rows, write_request
from tests.harness.tablet_twin import schema_entry, write_entry
from tests.harness.wal_entries import by_another_schema

pytestmark = [pytest.mark.process, pytest.mark.deep]

ALTERED = TableSchema(
    2, (*SCHEMA.columns, Column(id=3, name="extra", type=ColumnType.STRING, nullable=False, default="none")), ("k",)
)
NEVER = TableSchema(3, (*SCHEMA.columns, Column(id=4, name="never", type=ColumnType.STRING)), ("k",))
"""The schema of a change that is in no log."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3, module=STEADY) as made:
        yield made


@pytest.fixture(autouse=True)
def all_alive(cluster: LocalCluster) -> None:
    """Start all servers, also after a test that was red."""
    for server in cluster.servers:
        if not server.alive:
            server.start()


def send(server: ServerProcess, tablet_id: str, rows: Any, **fields: Any) -> Any:
    """Return the server's reply to a write of these rows."""
    return server.tablets.Write(write_request(server.uuid, tablet_id, rows, **fields), timeout=30)


def scan(server: ServerProcess, tablet_id: str, column: str = "v", **fields: Any) -> dict[int, str | None]:
    """Return one column by key, of the latest rows unless `fields` names a time, by a strong read at the leader."""
    request = pb.ScanRequest(dest_uuid=server.uuid, tablet_id=tablet_id, table_id="t1", all_columns=True, **fields)
    return read_rows(server.tablets.Scan(request, timeout=30), column)[0]


def segments(server: ServerProcess, tablet_id: str) -> list[Any]:
    """Return the paths of the log's segments there, oldest first."""
    return sorted((server.root / "wals" / tablet_id).glob("wal-*"))


def load(server: ServerProcess, tablet_id: str, writes: int) -> tuple[dict[int, str | None], list[int]]:
    """Make writes that upsert, insert what may be there already, and delete; returns (rows, hybrid times)."""
    rows: dict[int, str | None] = {}
    times = []
    for number in range(writes):
        key, value = number * 7 % 40, f"{tablet_id} {number}"
        op = (RowOp.UPSERT, RowOp.UPSERT, RowOp.INSERT, RowOp.DELETE_IGNORE)[number % 4]
        reply = send(server, tablet_id, batch([key], [value], op))
        assert not reply.error.code, reply.error
        assert len(reply.row_errors) == (op is RowOp.INSERT and key in rows)
        if op is RowOp.DELETE_IGNORE:
            rows.pop(key, None)
        elif not reply.row_errors:
            rows[key] = value
        times.append(reply.hybrid_time)
    return rows, times


def refusals(server: ServerProcess, tablet_id: str) -> list[int]:
    """Return the codes of writes of a schema, and of a column, that the table has never had."""
    request = write_request(server.uuid, tablet_id, batch([1], ["never"]))
    of_schema, of_column = pb.WriteRequest(), pb.WriteRequest()
    for changed in (of_schema, of_column):
        changed.CopyFrom(request)
    of_schema.schema_id = NEVER.schema_id
    of_column.column_ids[:] = [1, NEVER.columns[-1].id]
    return [server.tablets.Write(changed, timeout=30).error.code for changed in (of_schema, of_column)]


def alter(server: ServerProcess, tablet_id: str) -> None:
    """Do what no command does yet: append to the log of a stopped server a change of the table's schema, a write of the
    new one, and a write of one that was never logged."""
    log, replay = Log.open(RealDisk(server.root), f"wals/{tablet_id}", tablet_id)
    time, (term, index) = max(e.hybrid_time for e in replay.entries), replay.last
    row = {"op": RowOp.UPSERT, "offset": 0, "k": 2000, "v": "altered"}
    changes = [
        schema_entry(index + 1, ALTERED),
        write_entry(index + 2, ALTERED, ["k", "v", "extra"], [row | {"extra": "given"}], source=None),
        write_entry(index + 3, NEVER, ["k", "v", "never"], [row | {"never": "lost", "v": "lost"}], source=None),
    ]
    log.append(
        [e._replace(opid=OpId(term, e.opid.index), hybrid_time=time + n) for n, e in enumerate(changes, start=1)],
        lambda _: None,
    )
    log.drain()
    assert log.last.index == index + 3
    log.close()


def test_replay_that_is_cut_off_again_and_again_loses_and_doubles_nothing(cluster: LocalCluster) -> None:
    """CN-22, scenarios 46, 52. Goal: a replay that dies, anywhere and any number of times, begins anew from a log that
    is as it was; and schemas are on the log. Method: a tablet of one voter with 100 writes, rows that fail among them;
    starts that die at an entry far in, at an early one, and at the last: the old segment keeps every byte, and the
    next start has the rows, now and at earlier times. Then the oldest segment is as a build with another schema of
    entries would have written it, and the log ends with a change of the table's schema, a write of the new one, and
    one that names a column of a change that was never logged: the last start reads all of them, fails the last write
    alone, serves old and new rows by the new schema, takes old and new batches, and leaves no marker."""
    tablet, server = "again", cluster.servers[0]
    create(cluster, [server], tablet_id=tablet)
    rows, times = load(server, tablet, 100)
    history = lambda: [scan(server, tablet, snapshot_time=time) for time in times[::20]]  # noqa: E731
    before = history()
    assert all(one != another for one, another in pairwise(before))
    server.kill()
    (oldest,) = segments(server, tablet)
    content = oldest.read_bytes().rstrip(b"\0")
    for lives, index in enumerate((90, 20, 101), start=1):
        server.start(wait=False, env={CRASH_VARIABLE: f"replay.{tablet}.{index}"})
        assert server.wait_exit() == CRASH_EXIT_CODE, index
        assert oldest.read_bytes() == content and len(segments(server, tablet)) == 1 + lives

    for value in ("after", "altered"):
        server.start()
        assert cluster.leader(tablet) is server
        assert scan(server, tablet) == rows and history() == before
        assert refusals(server, tablet) == [Code.SCHEMA_MISMATCH] * 2
        assert not send(server, tablet, batch([1000], [value])).error.code
        rows[1000] = value
        wait_until(lambda: not list((server.root / "replay").iterdir()), "no marker is left")
        if value == "after":
            server.kill()
            assert oldest.read_bytes() == content
            oldest.write_bytes(by_another_schema(content))
            alter(server, tablet)
            rows[2000] = "altered"
    assert cluster.status(server, tablet).schema_id == ALTERED.schema_id
    assert scan(server, tablet, "extra") == dict.fromkeys(rows, "none") | {2000: "given"}


def test_entry_that_is_in_one_log_alone_is_pending_after_a_restart_and_the_group_decides(cluster: LocalCluster) -> None:
    """CN-02, scenario 41. Goal: what a restart finds above the flush is received, not committed; every acknowledged row
    is there. Method: two tablets that one server leads, of three voters and of two; both others are killed, a write of
    each reaches the leader's disk, and it is killed too. Started alone it has both entries and applies neither. Then
    the others start without it: of the tablet of three they elect one and write, and the entry is gone for good; the
    tablet of two needs the old leader, and so has its entry, on both."""
    leader, *others = cluster.servers
    group = {"replaced": cluster.servers, "kept": [leader, others[0]]}
    last, pending = {}, {}
    for tablet, members in group.items():
        create(cluster, members, tablet_id=tablet)
        lead(cluster, leader, tablet)
        wait_equal(members, write(cluster, 0, 10, tablet_id=tablet), tablet_id=tablet)
    for tablet in group:
        lead(cluster, leader, tablet)
        last[tablet] = cluster.status(leader, tablet).last_logged.index
    for other in others:
        other.signal(signal.SIGKILL)  # both at once: a leader that hears nobody for five seconds takes no write
    for other in others:
        other.kill()
    for tablet in group:
        rows = batch([100], [f"{tablet} and pending"])
        pending[tablet] = leader.tablets.Write.future(write_request(leader.uuid, tablet, rows), timeout=60)
    for tablet in group:
        wait_until(
            lambda t=tablet: any(f"{t} and pending".encode() in s.read_bytes() for s in segments(leader, t)),  # type: ignore[misc]
            "the leader has it in its log",
        )
        assert not pending[tablet].done() or pending[tablet].exception() or pending[tablet].result().error.code
    leader.kill()

    leader.start()
    for tablet, index in last.items():
        alone = wait_until(
            lambda t=tablet: (s := cluster.status(leader, t)).phase != "BOOTSTRAPPING" and s,  # type: ignore[misc]
            "it is open",
        )
        assert alone.last_logged.index > index, "received"
        assert alone.applied_index <= index and alone.role != "LEADER", "and not applied"
    leader.kill()

    for other in others:
        other.start(wait=False)
    for other in others:
        other.wait_ready()
    write(cluster, 200, 1, tablet_id="replaced")
    leader.start()
    expected = dict.fromkeys(range(10), "x" * 100)
    for tablet, members in group.items():
        wait_equal(members, write(cluster, 300, 1, tablet_id=tablet), tablet_id=tablet)
    assert scan_leader(cluster, tablet_id="replaced") == expected | {200: "x" * 100, 300: "x" * 100}
    assert scan_leader(cluster, tablet_id="kept") == expected | {100: "kept and pending", 300: "x" * 100}


def test_server_whose_log_cannot_be_written_ends_at_once_and_comes_back_whole(cluster: LocalCluster) -> None:
    """CN-08, scenario 48. Goal: an error of the log's disk ends the process and is never an answer. Method: the kernel
    lets the leader write no file beyond 128 KB (EFBIG, which is no full disk), and a larger write is sent. There is no
    answer, and the process ends by itself; the others hold every acknowledged row and accept more. Without the limit it
    starts, and all three hold the same rows, those of the write without an answer all of them or none."""
    tablet, leader = "unwritable", cluster.servers[2]
    create(cluster, tablet_id=tablet)
    write(cluster, 0, 10, tablet_id=tablet)
    lead(cluster, leader, tablet)
    assert leader.process is not None
    resource.prlimit(leader.process.pid, resource.RLIMIT_FSIZE, (128 << 10, 128 << 10))
    keys = list(range(100, 140))
    rows = batch(keys, ["y" * 10_000] * len(keys))
    with pytest.raises(grpc.RpcError):
        while (code := send(leader, tablet, rows).error.code) in (Code.NOT_LEADER, Code.NOT_READY):
            lead(cluster, leader, tablet)
        assert not code, f"a refusal: {code}"
    assert leader.wait_exit() != 0 and "File too large" in leader.log_tail()
    write(cluster, 200, 1, tablet_id=tablet)
    leader.start()
    wait_equal(cluster.servers, write(cluster, 300, 1, tablet_id=tablet), tablet_id=tablet)
    found = scan_leader(cluster, tablet_id=tablet)
    assert set(found) - set(keys) == {*range(10), 200, 300}
    assert set(found) & set(keys) in (set(), set(keys))
