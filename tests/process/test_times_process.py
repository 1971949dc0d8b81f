"""Times and snapshots of real servers: waits that end, reads that a replica cannot answer, and clocks that are set."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.rows import CHECKSUM_DEFINITION
from nyala.replica.rpc import pb
from nyala.replica.types import Code, hybrid_from_us, us_of_hybrid
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import create, lead, rows_of, scan_leader, write
from tests.harness.rows import batch, read_rows, table_info, write_request
from tests.harness.wall import Wall

pytestmark = [pytest.mark.process, pytest.mark.deep]

GROUP, NO_ROWS, ALONE = "group", "no-rows", "alone"
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S
SECOND_US = 1_000_000
WAITS_S = 240
"""The longest that a caller waits for a time: two servers start, and elect, in less."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with local_cluster(3) as made:
        yield made


def scan(server: ServerProcess, tablet_id: str, **fields: Any) -> Any:
    """Return ({k: v}, time), or the error."""
    request = pb.ScanRequest(dest_uuid=server.uuid, tablet_id=tablet_id, table_id="t1", all_columns=True, **fields)
    chunks = list(server.tablets.Scan(request, timeout=60))
    return chunks[-1].error if chunks[-1].error.code else read_rows(chunks)


def checksum(server: ServerProcess, tablet_id: str, at: int, timeout_us: int) -> Any:
    request = pb.ChecksumRequest(
        dest_uuid=server.uuid,
        tablet_id=tablet_id,
        snapshot_time=at,
        timeout_us=timeout_us,
        definition=CHECKSUM_DEFINITION,
    )
    return server.tablets.Checksum(request, timeout=2 * WAITS_S)


def now_of(server: ServerProcess) -> int:
    return int(server.tablets.ServerTime(pb.ServerTimeRequest(dest_uuid=server.uuid), timeout=30).hybrid_time)


def put(server: ServerProcess, tablet_id: str, key: int, seen: int = 0) -> int:
    """Return the time of a write of one row by a caller that has seen the time `seen`, or none."""
    request = write_request(server.uuid, tablet_id, batch([key], ["v"]), propagated_time=seen)
    reply = server.tablets.Write(request, timeout=30)
    assert not reply.error.code, reply.error
    return int(reply.hybrid_time)


def test_replica_without_a_quorum_reads_nothing_and_keeps_nobody_who_waits(cluster: LocalCluster) -> None:
    """CN-24; scenarios 83, 84, 89. Goal: a replica that does not know what is committed shows no rows, and no empty
    table either; who waits for a time keeps no thread. Method: all servers are killed, one comes back alone, with a
    group that has ten rows in its log, one whose log has no-ops only, and a tablet of its own: strong, snapshot and
    stale reads of the groups are refused; forty checksums wait for a time, one is told that it took too long, and the
    own tablet is read beside them. With the others back, the no-op of a new term makes the old times readable, and all
    forty have the rows. At last a follower that missed writes returns: what it answers is never older than
    was asked for."""
    alone, *others = cluster.servers
    for tablet_id in (GROUP, NO_ROWS):
        create(cluster, tablet_id=tablet_id)
    create(cluster, [alone], tablet_id=ALONE)
    write(cluster, 0, 3, tablet_id=ALONE)
    at = write(cluster, 0, 10, tablet_id=GROUP)
    wait_equal_at(cluster, at)
    empty_at = now_of(cluster.leader(NO_ROWS))
    for server in cluster.servers:
        server.kill()

    alone.start()
    assert cluster.leader(ALONE) is alone
    opened = lambda t: (s := cluster.status(alone, t)) and s.phase != "BOOTSTRAPPING"  # noqa: E731
    wait_until(lambda: opened(GROUP) and opened(NO_ROWS), "their logs are replayed")
    for tablet_id, then in ((GROUP, at), (NO_ROWS, empty_at)):
        for fields, codes in (
            ({}, (Code.NOT_LEADER, Code.NOT_READY)),
            ({"snapshot_time": then}, (Code.NOT_LEADER, Code.NOT_READY)),
            ({"staleness_us": HOUR_S * SECOND_US}, (Code.LAGGING,)),
        ):
            error = scan(alone, tablet_id, timeout_us=SECOND_US // 2, **fields)
            assert isinstance(error, pb.Error) and error.code in codes and error.message, (tablet_id, fields, error)
    with ThreadPoolExecutor(40) as pool:
        waits = [pool.submit(checksum, alone, GROUP, at, WAITS_S * SECOND_US) for _ in range(40)]
        assert checksum(alone, GROUP, at, SECOND_US // 5).error.code == Code.TIMED_OUT
        assert len(scan(alone, ALONE)[0]) == 3
        assert not any(wait.done() for wait in waits), "they wait beside it"
        for server in others:
            server.start(wait=False)
        for server in others:
            server.wait_ready()
        assert {(reply.error.code, reply.rows) for reply in (wait.result() for wait in waits)} == {(0, 10)}
    wait_equal_at(cluster, at)
    assert wait_equal_of(cluster, NO_ROWS, empty_at)[1] == 0
    assert scan_leader(cluster, tablet_id=NO_ROWS) == {}

    behind = next(s for s in cluster.servers if s is not cluster.leader(GROUP))
    behind.kill()
    write(cluster, 0, 200, tablet_id=GROUP)
    acknowledged = time.monotonic()
    behind.start()

    def answered() -> bool:
        began = time.monotonic()
        found = scan(behind, GROUP, staleness_us=SECOND_US, timeout_us=SECOND_US)
        if isinstance(found, pb.Error):
            assert found.code in (Code.LAGGING, Code.NOT_READY, Code.TIMED_OUT), found
            return False
        assert len(found[0]) == 200 or began - acknowledged < 1, f"{len(found[0])} rows, older than a second"
        return len(found[0]) == 200

    wait_until(answered, "it is fresh enough")


def wait_equal_of(cluster: LocalCluster, tablet_id: str, at: int) -> tuple[int, int]:
    """Return (checksum, rows) of all servers' replicas, which must be the same."""

    def told() -> list[tuple[int, int] | None]:
        sums = [rows_of(s, at, tablet_id=tablet_id) for s in cluster.servers]
        return [] if None in sums else sums

    found = wait_until(told, "all can tell")
    assert found[0] is not None and len(set(found)) == 1, found
    return found[0]


def wait_equal_at(cluster: LocalCluster, at: int) -> None:
    assert wait_equal_of(cluster, GROUP, at)[1] == 10


def test_snapshot_older_than_the_history_is_refused_by_name(cluster: LocalCluster) -> None:
    """CN-24; scenario 87. Goal: a read below the retention is refused, not answered in part. Method: a table that keeps
    a microsecond of history, and a row written twice. Its first time is HISTORY_GONE for a scan and a checksum, before
    and after flush and compaction, and the refusal names the horizon; at the second time all rows are there. Random
    changes, merges and times: `test_tablet_model.py`."""
    server, tablet_id = cluster.servers[0], "short-history"
    request = pb.CreateTabletRequest(
        dest_uuid=server.uuid,
        tablet_id=tablet_id,
        table=table_info(retention_us=1),
        config=pb.RaftConfig(members=[server.member()]),
        leader_hint=server.uuid,
    )
    assert not server.tablets.CreateTablet(request, timeout=30).error.code
    first, second = (write(cluster, 0, 1, size=size, tablet_id=tablet_id) for size in (1, 2))

    def seen() -> None:
        for error in (
            scan(server, tablet_id, snapshot_time=first),
            checksum(server, tablet_id, first, SECOND_US).error,
        ):
            assert isinstance(error, pb.Error) and error.code == Code.HISTORY_GONE, error
            assert first < int(error.detail) <= second, error
        assert scan(server, tablet_id, snapshot_time=second)[0] == {0: "xx"}

    seen()
    flush = pb.FlushRequest(dest_uuid=server.uuid, tablet_id=tablet_id, compact=True)
    assert not server.tablets.Flush(flush, timeout=30).error.code
    seen()


def test_what_was_read_under_a_fast_clock_is_below_what_is_written_under_a_slow_one(tmp_path: Path) -> None:
    """CN-24; scenario 85. Goal: causes are below effects, whatever the walls say. Method: two tablets on servers whose
    walls lie eight seconds apart, and which share no group, or its leader would tell its time. Without a word
    between them times are as wrong as the walls; a caller that read the one and tells the time writes above it to the
    other, and one snapshot at that time has both rows. That the parts of one scan carry one time:
    `test_scans_that_may_be_stale_hold_what_this_client_wrote_and_are_of_one_time`."""
    ahead, behind = (Wall(tmp_path / name) for name in ("ahead", "behind"))
    with local_cluster() as cluster:
        fast, slow = (cluster.add_server(env=wall.env) for wall in (ahead, behind))
        for server, tablet_id in ((fast, "cause"), (slow, "effect")):
            create(cluster, [server], tablet_id=tablet_id)
        ahead.set(4)
        behind.set(-4)
        cause = put(fast, "cause", 1)
        unaware = put(slow, "effect", 1)
        assert unaware < cause, "the walls are where they were put"
        rows, read = scan(fast, "cause")
        assert list(rows) == [1] and read >= cause
        effect = put(slow, "effect", 2, seen=read)
        assert effect > read
        assert list(scan(fast, "cause", snapshot_time=effect)[0]) == [1]
        assert sorted(scan(slow, "effect", snapshot_time=effect)[0]) == [1, 2]


@pytest.mark.parametrize("far_s", [HOUR_S, 10 * YEAR_S], ids=["an hour", "ten years"])
def test_clock_that_is_set_costs_its_server_the_lead_and_nobody_a_row(tmp_path: Path, far_s: int) -> None:
    """CN-24; scenario 88. Goal: times never go back, and none is handed out that vanishes. Method: the wall of a
    group's leader is set back by an hour, or by ten years: it goes on above what it wrote. Set ahead as far, nobody
    follows it, with a line that says to compare the clocks: another leads, and what that one acknowledges is of the
    right time. A tablet that it hosts alone has that much future in its log: with the wall right again and after a
    restart it says so, writes above that, and its snapshots are as they were; the group's replicas are equal."""
    wall = Wall(tmp_path / "wall")
    with local_cluster() as cluster:
        cluster.add_server(env=wall.env)
        for _ in range(2):
            cluster.add_server()
        leader = cluster.servers[0]
        group, alone = "set", "set-alone"
        for tablet_id, servers in ((group, cluster.servers), (alone, [leader])):
            create(cluster, servers, tablet_id=tablet_id)
            lead(cluster, leader, tablet_id)
        before = write(cluster, 0, 10, tablet_id=group)

        def set_back() -> int | None:
            """The time of a write under a wall set back, of the leader and in the term of before; None if it was
            deposed meanwhile, as it is by others if it stands still."""
            wall.set(0)
            lead(cluster, leader, group)
            term = cluster.status(leader, group).term
            wall.set(-far_s)
            rows = batch(range(10, 20), ["back"] * 10)
            reply = leader.tablets.Write(write_request(leader.uuid, group, rows), timeout=30)
            leads = cluster.leader(group) is leader and cluster.status(leader, group).term == term
            return reply.hybrid_time if leads and not reply.error.code else None

        back = wait_until(set_back, "it writes, and leads on")
        assert before < back
        wall.set(far_s)
        ahead = put(leader, alone, 1)
        assert us_of_hybrid(ahead) > us_of_hybrid(back) + (far_s - 60) * SECOND_US
        right = write(cluster, 20, 10, tablet_id=group)
        assert cluster.leader(group) is not leader
        assert back < right < back + hybrid_from_us(far_s * SECOND_US // 2)
        said = lambda: [s.log_path.read_text() for s in cluster.servers if s is not leader]  # noqa: E731
        wait_until(lambda: any("compare the clocks of both servers" in text for text in said()), "it is said")

        wall.set(0)
        leader.kill()
        leader.start()
        assert cluster.leader(alone) is leader
        told = rf" W T {alone} P {leader.uuid} the log's times reach .* ahead of the wall here"
        wait_until(lambda: re.search(told, leader.log_path.read_text()), "it says that its log is from the future")
        later = put(leader, alone, 2)
        assert later > ahead
        assert list(scan(leader, alone, snapshot_time=ahead)[0]) == [1]
        assert sorted(scan(leader, alone)[0]) == [1, 2]
        assert wait_equal_of(cluster, group, right)[1] == 30
