"""One tablet on servers of a LocalCluster, without a master: made, written, flushed, compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nyala.replica.base import Code
from nyala.replica.rpc import pb
from tests.harness.cluster import LocalCluster, ServerProcess, wait_until
from tests.harness.rows import batch, table_info, write_request

TABLET = "tablet-1"


def create(cluster: LocalCluster, servers: Sequence[ServerProcess] = ()) -> ServerProcess:
    """The tablet on `servers`, by default on all; returns its leader."""
    chosen = servers or cluster.servers
    config = pb.RaftConfig(members=[s.member() for s in chosen])
    for server in chosen:
        request = pb.CreateTabletRequest(
            dest_uuid=server.uuid, tablet_id=TABLET, table=table_info(), config=config, leader_hint=chosen[0].uuid
        )
        reply = server.tablets.CreateTablet(request, timeout=30)
        assert not reply.error.code, reply.error
    return cluster.leader(TABLET)


def at_leader(cluster: LocalCluster, ask: Callable[[ServerProcess], Any]) -> Any:
    """What whoever leads replies to `ask`, which is asked again as long as leadership is on its way."""

    def once() -> Any:
        reply = ask(cluster.leader(TABLET))
        return None if reply.error.code in (Code.NOT_LEADER, Code.NOT_READY) else reply

    return wait_until(once, "a leader answers")


def write(cluster: LocalCluster, first: int, rows: int, *, size: int = 100) -> int:
    """Upsert keys [first, first + rows) at whoever leads, until acknowledged; returns the write's hybrid time."""

    def once() -> Any:
        leader = cluster.leader(TABLET)
        request = write_request(leader.uuid, TABLET, batch(list(range(first, first + rows)), ["x" * size] * rows))
        reply = leader.tablets.Write(request, timeout=30)
        return reply.hybrid_time if not reply.error.code else None

    return int(wait_until(once, "a write is acknowledged"))


def flush(server: ServerProcess) -> None:
    """Flush the replica there."""
    reply = server.tablets.Flush(pb.FlushRequest(dest_uuid=server.uuid, tablet_id=TABLET), timeout=30)
    assert not reply.error.code, reply.error


def rows_of(server: ServerProcess, snapshot_time: int) -> tuple[int, int] | None:
    """(checksum, rows) of the replica there; None if it cannot tell."""
    request = pb.ChecksumRequest(
        dest_uuid=server.uuid, tablet_id=TABLET, snapshot_time=snapshot_time, timeout_us=15_000_000
    )
    reply = server.tablets.Checksum(request, timeout=30)
    return (reply.checksum, reply.rows) if not reply.error.code else None


def wait_equal(servers: Sequence[ServerProcess], snapshot_time: int) -> tuple[int, int]:
    """(checksum, rows) of the replicas on `servers`, once each of them can tell: they must be the same."""
    found = wait_until(
        lambda: (sums := [rows_of(s, snapshot_time) for s in servers]) and None not in sums and sums, "replicas tell"
    )
    assert len(set(found)) == 1, found
    return found[0]
