"""A defect in applying an entry fails every replica of a tablet, and costs no row: another build restores them."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rpc import pb
from nyala.replica.tools import Severity, check_directory
from nyala.replica.types import DataState
from tests.harness.cluster import SERVER, LocalCluster, local_cluster, wait_until
from tests.harness.defective_server import POISON
from tests.harness.one_tablet import TABLET, scan_leader, wait_equal
from tests.harness.rows import batch, table_info, write_request

pytestmark = pytest.mark.process

DEFECTIVE = "tests.harness.defective_server"


def failed(cluster: LocalCluster) -> list[str]:
    """Return the reasons of the replicas that FAILED."""
    found = [cluster.status(server, TABLET) for server in cluster.servers if server.alive]
    return [status.error for status in found if status is not None and status.phase == "FAILED"]


def test_tablet_whose_replicas_failed_at_a_defect_is_back_with_a_build_without_it() -> None:
    """IN-03. Goal: an entry that no server can apply takes its tablet away only as long as the defect is there, though
    no replica is left to copy from, and restarts of the same build do not heal it.

    Method: three servers of a build that cannot apply one row. It is committed, and takes one leader after the other,
    until there is no majority. A restart of all brings the same. `fs check` of a stopped one says what happened, at
    which entry, and to start another build. Then all three run a build without the defect: the tablet has a leader, all
    rows that were acknowledged, and the one that was committed; the notes of the failure are gone.
    """
    with local_cluster(3, module=DEFECTIVE) as cluster:
        config = pb.RaftConfig(members=[s.member() for s in cluster.servers])
        for server in cluster.servers:
            request = pb.CreateTabletRequest(
                dest_uuid=server.uuid,
                tablet_id=TABLET,
                table=table_info(),
                config=config,
                leader_hint=cluster.servers[0].uuid,
            )
            assert not server.tablets.CreateTablet(request, timeout=30).error.code
        leader = cluster.leader(TABLET)
        for key in range(5):
            reply = leader.tablets.Write(write_request(leader.uuid, TABLET, batch([key], ["v"])), timeout=30)
            assert not reply.error.code, reply.error
        poison = write_request(leader.uuid, TABLET, batch([POISON], ["v"]))
        assert leader.tablets.Write(poison, timeout=30).error.code, "nobody could apply it"
        wait_until(lambda: len(failed(cluster)) >= 2, "two of three have failed, and nobody can lead")
        for server in cluster.servers:
            assert server.stop() == 0
        for server in cluster.servers:
            server.start()
        (why, *_) = wait_until(lambda: found if len(found := failed(cluster)) >= 2 else None, "they failed again")
        assert "could not be applied: ValueError" in why and "Start a build without the defect" in why
        for server in cluster.servers:
            status = cluster.status(server, TABLET)
            assert status is not None and not status.damaged and status.data_state == DataState.READY
            assert server.stop() == 0
        told = [what for server in cluster.servers for what in checked(server.root)]
        assert len(told) >= 2 and all("the replica failed when it applied entry" in what for what in told), told

        for server in cluster.servers:
            server.module = SERVER
            server.start()
        assert scan_leader(cluster) == dict.fromkeys([*range(5), POISON], "v")
        leader = cluster.leader(TABLET)
        reply = leader.tablets.Write(write_request(leader.uuid, TABLET, batch([7], ["after"])), timeout=30)
        assert not reply.error.code and wait_equal(cluster.servers, reply.hybrid_time).rows == 7
        wait_until(lambda: not any((s.root / "replay" / TABLET).exists() for s in cluster.servers), "no note is left")


def checked(root: Path) -> list[str]:
    """Return what `fs check` finds wrong with the directory of a stopped server."""
    return [f.what for f in check_directory(RealDisk(root)).all_findings if f.severity is Severity.ERROR]
