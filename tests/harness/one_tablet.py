"""One tablet on servers of a LocalCluster, without a master: made, written, flushed, moved, compared."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from nyala.replica.client.admin import row_sum_from_pb
from nyala.replica.rows import CHECKSUM_DEFINITION, RowSum
from nyala.replica.rpc import opid_to_pb, pb, raise_if_error
from nyala.replica.types import Code, DataState, OpId, Refused
from nyala.replica.types.crash_points import CRASH_VARIABLE
from tests.harness.cluster import LocalCluster, ServerProcess, wait_until
from tests.harness.rows import batch, read_rows, table_info, write_request

TABLET = "tablet-1"
_MADE_ALREADY = {"add": Code.ALREADY_EXISTS, "remove": Code.NOT_FOUND, "change": Code.INVALID_ARGUMENT}


def create(cluster: LocalCluster, servers: Sequence[ServerProcess] = (), *, tablet_id: str = TABLET) -> ServerProcess:
    """Create the tablet on `servers`, by default on all; returns its leader."""
    chosen = servers or cluster.servers
    config = pb.RaftConfig(members=[s.member() for s in chosen])
    for server in (*chosen[1:], chosen[0]):  # the future leader asks for votes as soon as it is there
        request = pb.CreateTabletRequest(
            dest_uuid=server.uuid, tablet_id=tablet_id, table=table_info(), config=config, leader_hint=chosen[0].uuid
        )
        reply = server.tablets.CreateTablet(request, timeout=30)
        assert not reply.error.code, reply.error
    return cluster.leader(tablet_id)


def create_under_doomed(cluster: LocalCluster, servers: int, point: str) -> None:
    """Start so many new servers with the tablet. The first one leads it, and dies at the crash point `NAME:COUNT`."""
    for _ in range(servers):
        cluster.add_server(start=False)
    doomed = cluster.servers[0]
    doomed.env[CRASH_VARIABLE] = point
    for server in cluster.servers:
        server.start(wait=False)
    for server in cluster.servers:
        server.wait_ready()
    create(cluster)
    lead(cluster, doomed)


def lead(cluster: LocalCluster, server: ServerProcess, tablet_id: str = TABLET) -> None:
    """Return once the server, a voter, leads the tablet."""

    def leads() -> bool:
        leader = cluster.leader(tablet_id)
        if leader is not server:
            over = pb.TransferRequest(dest_uuid=leader.uuid, tablet_id=tablet_id, target_uuid=server.uuid)
            leader.tablets.TransferLeadership(over, timeout=30)
        return leader is server

    wait_until(leads, f"{server.name} leads {tablet_id}")


def leaders_by_term(cluster: LocalCluster, tablet_id: str = TABLET) -> dict[int, set[str]]:
    """Return by term the servers that logged that they lead."""
    found: dict[int, set[str]] = defaultdict(set)
    for server in cluster.servers:
        for term in re.findall(rf"T {tablet_id} P \w+ \[term (\d+) LEADER\]", server.log_path.read_text()):
            found[int(term)].add(server.uuid)
    return found


def at_leader(cluster: LocalCluster, ask: Callable[[ServerProcess], Any], *, tablet_id: str = TABLET) -> Any:
    """Return the leader's reply to `ask`, which is called again as long as leadership changes."""

    def once() -> Any:
        reply = ask(cluster.leader(tablet_id))
        return None if reply.error.code in (Code.NOT_LEADER, Code.NOT_READY) else reply

    return wait_until(once, "a leader answers")


def change(cluster: LocalCluster, kind: str, member: Any, *, tablet_id: str = TABLET, cas: Any = None) -> Any:
    """Commit one config change at the leader; returns the config. `cas`: the OpId that the committed one must have.

    A change that a deposed leader left open is requested again, and may then be found made.
    """
    edit, left_open = pb.ConfigEdit(kind=kind, member=member), 0

    def once() -> Any:
        nonlocal left_open
        leader = cluster.leader(tablet_id)
        tries, left_open = left_open, left_open + 1
        compared = {"committed_config_id": cas, "has_cas": True} if cas is not None else {}
        request = pb.ChangeConfigRequest(dest_uuid=leader.uuid, tablet_id=tablet_id, edits=[edit], **compared)
        reply = leader.tablets.ChangeConfig(request, timeout=60)
        error = reply.error
        if error.code in (Code.NOT_LEADER, Code.NOT_READY, Code.STEPPING_DOWN, Code.CHANGE_PENDING):
            left_open = tries + error.outcome_unknown
            return None
        if tries and error.code in (_MADE_ALREADY[kind], Code.CAS_FAILED):
            return cluster.status(leader, tablet_id).committed_config
        assert not error.code, error
        return reply.config

    return wait_until(once, f"the change is made: {kind}")


def start_copy(
    source: ServerProcess,
    target: ServerProcess,
    term: int,
    believed: DataState,
    *,
    last: OpId | None = None,
    tablet_id: str = TABLET,
    dest_uuid: str = "",
    config: Any = None,
) -> Any:
    """Return `target`'s reply to a leader in `term` at `source` that assumes this data state of it and, if given, this
    end of its log."""
    host, _, port = source.address.rpartition(":")
    request = pb.StartTabletCopyRequest(
        dest_uuid=dest_uuid or target.uuid,
        from_uuid=source.uuid,
        from_addresses=[pb.Address(host=host, port=int(port))],
        tablet_id=tablet_id,
        term=term,
        current_state=int(believed),
        config=config,
        last_opid=opid_to_pb(last) if last is not None else None,
    )
    return target.copies.StartTabletCopy(request, timeout=30)


def copies(server: ServerProcess) -> list[Any]:
    """Return the copies into the server, and the sessions that it serves."""
    return list(server.copies.ListCopies(pb.ListCopiesRequest(dest_uuid=server.uuid), timeout=30).jobs)


def write(cluster: LocalCluster, first: int, rows: int, *, size: int = 100, tablet_id: str = TABLET) -> int:
    """Upsert keys [first, first + rows) at the leader, until acknowledged; returns the write's hybrid time."""

    def once() -> Any:
        leader = cluster.leader(tablet_id)
        request = write_request(leader.uuid, tablet_id, batch(list(range(first, first + rows)), ["x" * size] * rows))
        reply = leader.tablets.Write(request, timeout=30)
        return reply.hybrid_time if not reply.error.code else None

    return int(wait_until(once, "a write is acknowledged"))


def by_leader(cluster: LocalCluster, server: ServerProcess, ask: Callable[[], Any], *, tablet_id: str = TABLET) -> Any:
    """Return the reply to `ask` of the server, a voter, as the leader; it is made the leader again as often as it is
    deposed."""

    def once() -> Any:
        reply = ask()
        if reply.error.code not in (Code.NOT_LEADER, Code.NOT_READY):
            return reply
        lead(cluster, server, tablet_id)
        return None

    return wait_until(once, f"{server.name} answers as the leader of {tablet_id}")


def scan_leader(
    cluster: LocalCluster, *, tablet_id: str = TABLET, leading: ServerProcess | None = None, **fields: Any
) -> dict[int, str | None]:
    """Return the rows of the leader, or of `leading`, which is made the leader; asked again as long as leadership
    changes. `fields`: of the request."""

    def once() -> list[Any] | None:
        if leading is not None:
            lead(cluster, leading, tablet_id)
        leader = leading or cluster.leader(tablet_id)
        request = pb.ScanRequest(dest_uuid=leader.uuid, tablet_id=tablet_id, table_id="t1", all_columns=True, **fields)
        chunks = list(leader.tablets.Scan(request, timeout=30))
        return None if chunks[-1].error.code in (Code.NOT_LEADER, Code.NOT_READY) else chunks

    return read_rows(wait_until(once, "a leader answers"))[0]


def flush(server: ServerProcess, *, tablet_id: str = TABLET) -> None:
    """Flush the replica there."""
    reply = server.tablets.Flush(pb.FlushRequest(dest_uuid=server.uuid, tablet_id=tablet_id), timeout=30)
    assert not reply.error.code, reply.error


def collect(server: ServerProcess, *, tablet_id: str = TABLET) -> None:
    """Flush the replica there until the first segment of its log is gone.

    One flush may be too early: a follower has entries before it knows that they are committed.
    """
    first = server.root / "wals" / tablet_id / "wal-000000001"

    def collected() -> bool:
        flush(server, tablet_id=tablet_id)
        return not first.exists()

    wait_until(collected, f"{server.name} has collected the log of {tablet_id}")


def row_sum(server: ServerProcess, snapshot_time: int, *, tablet_id: str = TABLET) -> RowSum:
    """Return (checksum, rows) of the replica there; Refused with the server's reason if it cannot compute them."""
    request = pb.ChecksumRequest(
        dest_uuid=server.uuid,
        tablet_id=tablet_id,
        snapshot_time=snapshot_time,
        timeout_us=15_000_000,
        definition=CHECKSUM_DEFINITION,
    )
    reply = server.tablets.Checksum(request, timeout=30)
    raise_if_error(reply.error)
    return row_sum_from_pb(reply, CHECKSUM_DEFINITION)


def rows_of(server: ServerProcess, snapshot_time: int, *, tablet_id: str = TABLET) -> RowSum | None:
    """Return (checksum, rows) of the replica there; None if it cannot compute them."""
    try:
        return row_sum(server, snapshot_time, tablet_id=tablet_id)
    except Refused:
        return None


def wait_equal(servers: Sequence[ServerProcess], snapshot_time: int, *, tablet_id: str = TABLET) -> RowSum:
    """Return (checksum, rows) of the replicas on `servers`, once each of them can compute them: they must be the
    same."""
    tell = lambda server: row_sum(server, snapshot_time, tablet_id=tablet_id)  # noqa: E731
    found = [wait_until(partial(tell, server), f"{server.name} tells its sum") for server in servers]
    assert len(set(found)) == 1, found
    return found[0]
