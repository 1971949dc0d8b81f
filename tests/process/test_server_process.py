"""Real tablet servers over loopback: create, write, scan, kill, copy, delete."""

from __future__ import annotations

import os
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code, DataState
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import change, scan_leader, wait_equal
from tests.harness.rows import batch, read_rows, table_info, write_request

pytestmark = pytest.mark.process

TABLET = "tablet-1"


def create(cluster: LocalCluster, servers: list[ServerProcess]) -> None:
    """Create the tablet on all `servers`, all of them voters."""
    config = pb.RaftConfig(members=[s.member() for s in servers])
    for server in servers:
        reply = server.tablets.CreateTablet(
            pb.CreateTabletRequest(
                dest_uuid=server.uuid,
                tablet_id=TABLET,
                table=table_info(),
                config=config,
                leader_hint=servers[0].uuid,
            ),
            timeout=30,
        )
        assert not reply.error.code, reply.error


def write(cluster: LocalCluster, rows: Any, **fields: Any) -> Any:
    """Write at the leader of the moment, again until it is acknowledged. Only for rows that may be written twice."""

    def once() -> Any:
        leader = cluster.leader(TABLET)
        reply = leader.tablets.Write(write_request(leader.uuid, TABLET, rows, **fields), timeout=30)
        return reply if not reply.error.code else None

    return wait_until(once, "a write is acknowledged")


def scan(server: ServerProcess, **fields: Any) -> tuple[dict[int, str | None], int]:
    request = pb.ScanRequest(dest_uuid=server.uuid, tablet_id=TABLET, table_id="t1", all_columns=True, **fields)
    return read_rows(server.tablets.Scan(request, timeout=30))


def config_of(cluster: LocalCluster, server: ServerProcess) -> Any:
    status = cluster.status(server, TABLET)
    assert status is not None
    return status.committed_config


def test_single_replica_writes_and_scans_back() -> None:
    """Goal: the shortest path works. Method: one server, one voter, one batch, one scan, restart, scan again."""
    with local_cluster(1) as cluster:
        server = cluster.servers[0]
        create(cluster, [server])
        reply = write(cluster, batch([1, 2, 3], ["a", "b", None]))
        assert reply.rows_applied == 3
        assert scan(server)[0] == {1: "a", 2: "b", 3: None}
        server.kill()
        server.start()
        cluster.leader(TABLET)
        assert wait_until(lambda: scan(server)[0], "the scan answers") == {1: "a", 2: "b", 3: None}
        assert server.stop() == 0


def test_created_tablet_is_all_that_ls_shows() -> None:
    """TC-33. Goal: an operator finds what is documented, and nothing else. Method: `ls -R` of a real server's directory
    before its first tablet, and after that was created."""
    with local_cluster(1) as cluster:
        (server,) = cluster.servers
        ls = lambda: {str(path.relative_to(server.root)) for path in server.root.rglob("*")}  # noqa: E731
        blank = {"instance", ".lock", "tablet-meta", "consensus-meta", "wals", "data", "quarantine", "replay"}
        blank |= {".folder-of", *(f"{folder}/.folder-of" for folder in ("tablet-meta", "consensus-meta", "wals"))}
        assert ls() == blank
        create(cluster, [server])
        cluster.leader(TABLET)
        metadata = {
            f"consensus-meta/{TABLET}",
            f"consensus-meta/.{TABLET}.tmp",
        }  # room for a vote
        of_it = {f"tablet-meta/{TABLET}", *metadata, f"wals/{TABLET}"}
        whole = blank | of_it | {f"wals/{TABLET}/{name}" for name in ("wal-000000001", ".newest-segment")}
        wait_until(lambda: ls() == whole, "no more and no less is there")  # a file on its way has another name


def test_only_replica_outlives_a_superblock_that_is_emptied_before_each_flush_and_merge() -> None:
    """IN-21. Goal: a tablet with one replica is not lost when its superblock is damaged under the running server.
    Method: empty the superblock before and after each flush, until the first block was merged into another; after one
    more flush the server is killed. It starts with every row."""
    with local_cluster(1) as cluster:
        (server,) = cluster.servers
        create(cluster, [server])
        first, keys = server.root / "data" / f"{TABLET}-000000.arrow", iter(range(10**6))
        written: dict[int, str] = {}

        def flushed() -> None:
            key = next(keys)
            write(cluster, batch([key], ["x"]))
            written[key] = "x"
            reply = server.tablets.Flush(pb.FlushRequest(dest_uuid=server.uuid, tablet_id=TABLET), timeout=30)
            assert not reply.error.code, reply.error

        def merged() -> bool:
            os.truncate(server.root / "tablet-meta" / TABLET, 0)
            flushed()
            os.truncate(server.root / "tablet-meta" / TABLET, 0)
            return not first.exists()

        flushed()
        assert first.exists()
        wait_until(merged, "the first block is merged")
        flushed()
        server.kill()
        server.start()
        cluster.leader(TABLET)
        assert wait_until(lambda: scan(server)[0], "the scan answers") == written


def test_server_whose_only_tablet_lost_its_superblock_starts_and_gets_a_copy() -> None:
    """IN-21. Goal: the superblock of a server's only tablet is no more to that server than that of one of many. Method:
    remove it from a stopped follower of three: the server starts, its leader copies the tablet, and it is whole."""
    with local_cluster(3) as cluster:
        create(cluster, cluster.servers)
        reply = write(cluster, batch([1, 2, 3], ["a", "b", "c"]))
        leader = cluster.leader(TABLET)
        hurt = next(server for server in cluster.servers if server is not leader)
        assert hurt.stop() == 0
        (hurt.root / "tablet-meta" / TABLET).unlink()
        hurt.start()
        wait_until(lambda: (s := cluster.status(hurt, TABLET)) and s.phase == "RUNNING", "the tablet is copied here")
        assert "its superblock is missing" in hurt.log_path.read_text()
        wait_equal(cluster.servers, reply.hybrid_time)


def test_three_servers_survive_the_leaders_death_and_agree() -> None:
    """Goal: no acknowledged write is lost when the leader dies. Method: kill -9 the leader between writes, restart it,
    compare rows and the checksums of all replicas at one time."""
    with local_cluster(3) as cluster:
        create(cluster, cluster.servers)
        write(cluster, batch([1, 2, 3], ["a", "b", "c"]))
        assert scan_leader(cluster) == {1: "a", 2: "b", 3: "c"}
        leader = cluster.leader(TABLET)
        leader.kill()
        reply = write(cluster, batch([3, 4], ["C", "d"]))
        second = cluster.leader(TABLET)
        assert second is not leader
        leader.start()
        expected = {1: "a", 2: "b", 3: "C", 4: "d"}
        assert scan_leader(cluster, snapshot_time=reply.hybrid_time, timeout_us=10_000_000) == expected
        wait_equal(cluster.servers, reply.hybrid_time)

        def hinted() -> bool:
            """Return the hint of the leader as it was before and after the follower was called."""
            leader = cluster.leader(TABLET)
            follower = next(s for s in cluster.servers if s is not leader)
            refused = follower.tablets.Write(write_request(follower.uuid, TABLET, batch([9], ["z"])), timeout=30)
            if cluster.leader(TABLET) is not leader or not refused.error.detail:
                return False
            assert refused.error.code == Code.NOT_LEADER
            return bool(refused.error.detail == f"{leader.uuid}@{leader.address}")

        wait_until(hinted, "a follower names the leader")


def test_blank_server_is_copied_promoted_and_the_removed_one_is_a_tombstone() -> None:
    """Goal: rows TC-07, TC-17, CC-11, TC-13. Method: the leader is only told to add a blank promotable server; it must
    become a voter with equal rows by a tablet copy; then one old server is removed, deleted, and keeps its term."""
    with local_cluster(3, "--log-retain-entries", "0", "--log-retain-bytes", "0") as cluster:
        old = list(cluster.servers)
        create(cluster, old)
        write(cluster, batch(list(range(500)), [f"v{i}" for i in range(500)]))
        leader = cluster.leader(TABLET)
        flushed = leader.tablets.Flush(pb.FlushRequest(dest_uuid=leader.uuid, tablet_id=TABLET), timeout=30)
        assert not flushed.error.code and flushed.flush_opid.index > 0
        write(cluster, batch([500, 501], ["x", "y"]))
        new = cluster.add_server()
        committed = config_of(cluster, cluster.leader(TABLET))
        change(cluster, "add", new.member(votes=False, promote=True), cas=committed.opid)

        def voter() -> bool:
            config = config_of(cluster, cluster.leader(TABLET))
            return any(m.uuid == new.uuid and m.votes for m in config.members)

        wait_until(voter, "the new server is a voter")
        status = cluster.status(new, TABLET)
        assert status is not None and status.data_state == DataState.READY

        def phases() -> list[str]:
            jobs = new.copies.ListCopies(pb.ListCopiesRequest(dest_uuid=new.uuid), timeout=30).jobs
            return [j.phase for j in jobs if j.target_uuid == new.uuid]

        wait_until(lambda: phases() == ["DONE"], "one copy, which is done")

        doomed = next(s for s in old if s is not cluster.leader(TABLET))
        without = change(cluster, "remove", doomed.member())
        before = cluster.status(doomed, TABLET)
        deleted = doomed.tablets.DeleteTablet(
            pb.DeleteTabletRequest(
                dest_uuid=doomed.uuid, tablet_id=TABLET, committed_config_id=without.opid, has_cas=True
            ),
            timeout=30,
        )
        assert not deleted.error.code, deleted.error
        doomed.kill()
        doomed.start()
        after = cluster.status(doomed, TABLET)
        assert before is not None and after is not None
        assert after.data_state == DataState.DELETED
        assert after.term >= before.term and after.last_logged.index >= before.last_logged.index > 0

        last = write(cluster, batch([502], ["z"]))
        live = [s for s in cluster.servers if s is not doomed]
        assert wait_equal(live, last.hybrid_time)[1] == 503


def test_entry_that_kills_the_server_three_times_costs_one_replica() -> None:
    """Goal: a poisoned entry does not keep a server down for ever, and its neighbours serve. Method: two tablets on one
    server, one of whose entries kills the process whenever it is replayed: three starts die, the fourth one serves the
    other tablet, tells why the first is FAILED, stays so without the poison, and can make it a tombstone,
    whose quarantine is seen and purged."""
    with local_cluster(1) as cluster:
        server = cluster.servers[0]
        config = pb.RaftConfig(members=[server.member()])

        def settled() -> Any:
            status = cluster.status(server, TABLET)
            return status if status is not None and status.phase != "BOOTSTRAPPING" else None

        for tablet in (TABLET, "tablet-2"):
            request = pb.CreateTabletRequest(
                dest_uuid=server.uuid, tablet_id=tablet, table=table_info(), config=config, leader_hint=server.uuid
            )
            assert not server.tablets.CreateTablet(request, timeout=30).error.code
            cluster.leader(tablet)  # its term is open
            for key in range(5):
                reply = server.tablets.Write(write_request(server.uuid, tablet, batch([key], ["v"])), timeout=30)
                assert not reply.error.code, reply.error
        server.kill()
        server.env["NYALA_CRASH_POINT"] = f"replay.{TABLET}.4"
        for _ in range(3):
            server.start(wait=False)
            assert server.wait_exit() == 85
        for _ in range(2):
            server.start()
            failed = wait_until(settled, "it is opened or given up")
            assert failed.phase == "FAILED" and "crashed three times" in failed.error and "index=4" in failed.error
            assert cluster.leader("tablet-2") is server, "the neighbour serves"
            more = write_request(server.uuid, "tablet-2", batch([9], ["more"]))
            assert not server.tablets.Write(more, timeout=30).error.code
            assert server.stop() == 0
            server.env.clear()
        server.start()
        delete = pb.DeleteTabletRequest(dest_uuid=server.uuid, tablet_id=TABLET)
        assert not server.tablets.DeleteTablet(delete, timeout=30).error.code
        assert cluster.status(server, TABLET).data_state == DataState.DELETED
        wait_until(lambda: not list((server.root / "replay").iterdir()), "no marker is left")

        kept = pb.QuarantineRequest(dest_uuid=server.uuid, tablet_id=TABLET)
        (item,) = server.tablets.ListQuarantine(kept, timeout=30).items
        assert (item.tablet_id, item.table_name) == (TABLET, "things") and item.wal_bytes > 0
        nowhere = pb.QuarantineRequest(dest_uuid=server.uuid, tablet_id="nowhere")
        assert server.tablets.PurgeQuarantine(nowhere, timeout=30).error.code == Code.TABLET_NOT_FOUND
        purged = server.tablets.PurgeQuarantine(kept, timeout=30)
        assert list(purged.removed) == [item.path] and purged.bytes_freed == item.wal_bytes
        assert not server.tablets.ListQuarantine(pb.QuarantineRequest(dest_uuid=server.uuid), timeout=30).items
        assert cluster.status(server, TABLET).data_state == DataState.DELETED
