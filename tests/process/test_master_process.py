"""Real master and tablet server processes: tables, failover of the master, moves, healing, drop."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.client import Client, ClientOptions
from nyala.replica.decision_executor import execute
from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, PartitionSpec, TableSchema
from nyala.replica.rpc import opid_from_pb, pb, pb_grpc
from nyala.replica.tablet import Superblock
from nyala.replica.tools import Finding, Severity, gather, judge
from nyala.replica.types import (
    Action,
    Address,
    Code,
    ConfigEdit,
    DataState,
    Decision,
    EditKind,
    Member,
    OpId,
    Refused,
    Result,
)
from tests.harness.catalogs import table_info
from tests.harness.cluster import LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.one_tablet import change, copies, lead, start_copy

pytestmark = pytest.mark.process

POLICY = "--policy-ms=200"


class Stack:
    """One master, three servers, and short calls to the master."""

    def __init__(self, cluster: LocalCluster, *master_args: str, servers: int = 3) -> None:
        self.cluster = cluster
        self.master = cluster.add_master(POLICY, *master_args)
        for _ in range(servers):
            cluster.add_server(start=False)
        for server in cluster.servers:
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        self.wait_for_servers(servers)

    @property
    def stub(self) -> Any:
        return pb_grpc.MasterServiceStub(self.master.channel)

    def wait_for_servers(self, count: int) -> None:
        def alive() -> bool:
            reply = self.stub.ListServers(pb.ListServersRequest(), timeout=30)
            return sum(s.alive for s in reply.servers) == count

        wait_until(alive, f"{count} servers are alive")

    def create(self, *, buckets: int = 2, request_id: str = "r") -> pb.CreateTableReply:
        """Create a table at a master that may not lead yet; the same request makes one table, however often it
        comes."""
        request = pb.CreateTableRequest(table=table_info(buckets=buckets), request_id=request_id)

        def made() -> pb.CreateTableReply | None:
            reply = self.stub.CreateTable(request, timeout=30)
            assert reply.error.code in (0, Code.NOT_LEADER, Code.NOT_READY), reply.error
            return reply if not reply.error.code else None

        return wait_until(made, "the table is made")

    def table(self) -> pb.TableReply:
        return self.stub.GetTable(pb.TableRequest(name="flights", with_tablets=True), timeout=30)

    def wait_formed(self) -> list[pb.TabletInfo]:
        def formed() -> list[pb.TabletInfo] | None:
            reply = self.table()
            return list(reply.tablets) if reply.tablets and all(t.running for t in reply.tablets) else None

        return wait_until(formed, "every tablet has a leader")

    def tablet(self, tablet_id: str) -> pb.TabletInfo:
        return next(t for t in self.table().tablets if t.tablet_id == tablet_id)

    def voters(self, tablet_id: str) -> set[str]:
        return {m.uuid for m in self.tablet(tablet_id).config.members if m.votes}

    def data_state(self, server: ServerProcess, tablet_id: str) -> int:
        status = self.cluster.status(server, tablet_id)
        return status.data_state if status else 0

    def move(self, tablet_id: str, source: str, target: str) -> None:
        request = pb.MoveReplicaRequest(tablet_id=tablet_id, from_uuid=source, to_uuid=target)

        def taken() -> bool:
            reply = self.stub.MoveReplica(request, timeout=30)
            assert reply.error.code in (0, Code.NOT_READY), reply.error
            return bool(reply.error.code == 0)

        wait_until(taken, "the move is wanted")


def master_status(master: ServerProcess) -> pb.MasterStatusReply:
    """Return one master's own status."""
    return pb_grpc.MasterServiceStub(master.channel).Status(pb.Empty(), timeout=30)


def master_leader(cluster: LocalCluster) -> str:
    """Return the uuid that a live leading master reports."""

    def found() -> str:
        replies = [master_status(m) for m in cluster.masters if m.alive]
        return next((r.uuid for r in replies if r.replica.role == "LEADER"), "")

    return wait_until(found, "a master leads")


def wait_said(server: ServerProcess, words: str) -> None:
    """Wait until a live server has logged `words`, once it knows what its master knows already."""
    wait_until(lambda: server.alive and words in server.log_path.read_text(), f"{server.name} says: {words}")
    assert server.log_path.read_text().count(words) == 1


@pytest.fixture
def cluster() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        yield made


def test_master_killed_and_restarted_keeps_its_catalog_and_deletes_nothing(cluster: LocalCluster) -> None:
    """Goal: the catalog is durable, soft state is rebuilt, a repeated request makes no second table.

    Method: create, kill -9, restart, ask again with the same request id; all replicas stay READY.
    """
    stack = Stack(cluster)
    first = stack.create()
    tablets = stack.wait_formed()
    term = stack.stub.Status(pb.Empty(), timeout=30).catalog_term
    stack.master.kill()
    stack.master.start()
    again = stack.create()
    assert again.table.table_id == first.table.table_id
    assert {t.tablet_id for t in again.tablets} == {t.tablet_id for t in tablets}
    assert stack.stub.Status(pb.Empty()).catalog_term > term
    stack.wait_for_servers(3)
    stack.wait_formed()
    for server in cluster.servers:
        assert {stack.data_state(server, t.tablet_id) for t in tablets} == {DataState.READY}


def test_master_that_lost_everything_deletes_no_replica(cluster: LocalCluster) -> None:
    """Goal: scenario 76, nothing is deleted because it is unknown. Method: a fresh master where the old one was: it
    shows the servers as another cluster's, which say so in one line, ignore it, keep every replica and go on;
    when the old master is back they report to it again."""
    stack = Stack(cluster)
    created = stack.create(buckets=1)
    (tablet,) = stack.wait_formed()
    stack.master.kill()
    lost = stack.master.root.with_name("lost")
    stack.master.root.rename(lost)
    stack.master.start()

    def refused() -> bool:
        reply = stack.stub.ListServers(pb.ListServersRequest(), timeout=30)
        assert not reply.servers
        return {s.uuid for s in reply.foreign} == {s.uuid for s in cluster.servers}

    wait_until(refused, "the strange master shows every server as another cluster's")
    for server in cluster.servers:
        wait_said(server, "its orders are ignored")
        assert Superblock.load(RealDisk(server.root), tablet.tablet_id).data_state is DataState.READY
    assert cluster.leader(tablet.tablet_id), "the group goes on without masters: a read barrier passes"
    stack.master.kill()
    stack.master.root.rename(stack.master.root.with_name("strange"))
    lost.rename(stack.master.root)
    stack.master.start()
    stack.wait_for_servers(3)
    assert stack.wait_formed()[0].tablet_id == tablet.tablet_id
    assert stack.table().table.table_id == created.table.table_id
    for server in cluster.servers:
        wait_said(server, "belongs to our cluster again")


def test_master_second_process_on_one_directory_refuses_to_start(cluster: LocalCluster) -> None:
    """Goal: one server per directory. Method: start another on the same root; it ends and names the first."""
    master = cluster.add_master()
    command = [sys.executable, "-m", "nyala.replica.master", "--root", str(master.root)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 1
    assert "another server runs on this directory" in ended.stderr
    assert master.process is not None and str(master.process.pid) in ended.stderr


def test_master_requests_for_another_uuid_are_refused(cluster: LocalCluster) -> None:
    """Goal: TC-73 at the masters. Method: every request that names a server, with a wrong uuid."""
    master = cluster.add_master()
    stub = pb_grpc.MasterServiceStub(master.channel)
    wrong = "f" * 32
    for method in ("CreateTable", "DropTable", "GetTable", "OpenSources", "AdvanceSources", "ResetSource", "Heartbeat"):
        request_type = {
            "DropTable": pb.TableRequest,
            "GetTable": pb.TableRequest,
        }.get(method, getattr(pb, f"{method}Request", None))
        assert request_type is not None
        reply = getattr(stub, method)(request_type(dest_uuid=wrong), timeout=30)
        assert reply.error.code == Code.INVALID_NAME, method


def test_master_moves_the_leaders_replica_and_the_old_one_ends_as_tombstone(cluster: LocalCluster) -> None:
    """Goal: TC-04, TC-66, TC-81: a move never passes through fewer voters and erases nothing.

    Method: a fourth server, move the leader's replica there, watch the voters of every report on the way.
    """
    stack = Stack(cluster, "--execute-decisions=master")
    stack.create(buckets=1)
    (tablet,) = stack.wait_formed()
    fourth = cluster.add_server()
    stack.wait_for_servers(4)
    source = tablet.leader_uuid
    stack.move(tablet.tablet_id, source, fourth.uuid)
    seen: set[int] = set()

    def moved() -> bool:
        voters = stack.voters(tablet.tablet_id)
        seen.add(len(voters))
        return source not in voters and fourth.uuid in voters

    wait_until(moved, "the replica has moved")
    assert seen <= {3, 4}
    old = cluster.server(source)
    wait_until(lambda: stack.data_state(old, tablet.tablet_id) == DataState.DELETED, "the old replica is a tombstone")
    status = cluster.status(old, tablet.tablet_id)
    assert status is not None and status.term >= tablet.term and status.last_logged.index > 0
    wait_until(lambda: stack.stub.Status(pb.Empty()).moves_active == 0, "the desired change is settled")


def test_master_restarted_in_mid_move_lets_it_end(cluster: LocalCluster) -> None:
    """Goal: TC-65, no operation state: a move survives the master's death. Method: request a move, kill -9 at once."""
    stack = Stack(cluster, "--execute-decisions=master")
    stack.create(buckets=1)
    (tablet,) = stack.wait_formed()
    fourth = cluster.add_server()
    stack.wait_for_servers(4)
    source = tablet.leader_uuid
    stack.move(tablet.tablet_id, source, fourth.uuid)
    stack.master.kill()
    stack.master.start()

    def moved() -> bool:
        reply = stack.table()
        if reply.error.code or not reply.tablets:
            return False
        voters = {m.uuid for m in reply.tablets[0].config.members if m.votes}
        return fourth.uuid in voters and source not in voters and len(voters) == 3

    wait_until(moved, "the replica has moved")


def test_masters_three_of_them_go_on_without_their_leader(cluster: LocalCluster) -> None:
    """Goal: the catalog is one Raft group, and a check names a dead member.

    Method: create at the leader, kill -9 it, check, create again, bring it back.
    """
    addresses = [cluster.ports.free_address() for _ in range(3)]  # masters must know each other's before they start
    for address in addresses:
        master = cluster.add_master(POLICY, f"--peers={','.join(addresses)}", start=False)
        master.address = address
        master.start(wait=False)
    for master in cluster.masters:
        master.wait_ready()
    for _ in range(3):
        cluster.add_server()
    with Client(addresses, ClientOptions(connect_timeout_s=30)) as client:
        wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "all servers report")
        columns = (Column(id=1, name="id", type=ColumnType.INT64, nullable=False),)
        schema, spec = TableSchema(1, columns, ("id",)), PartitionSpec(("id",), 2)
        first = client.create_table("one", schema, spec)
        leader_uuid = master_leader(cluster)
        leader = next(m for m in cluster.masters if m.uuid == leader_uuid)
        leader.kill()
        assert client.get_table("one").table_id == first.table_id

        def judged() -> dict[str, Finding]:
            return {f.subject: f for f in judge(gather(client)) if f.subject.startswith("master")}

        wait_until(lambda: judged().keys() == {f"master {leader_uuid}"}, "of the masters the dead one is named alone")
        silent = judged()[f"master {leader_uuid}"]
        assert silent.severity is Severity.ERROR and "not answer" in silent.what

        def made() -> bool:
            try:
                return bool(client.create_table("two", schema, spec, request_id="two").table_id)
            except Refused as error:
                assert error.code in (Code.INVALID_ARGUMENT, Code.NOT_READY, Code.UNAVAILABLE), error
                return False

        wait_until(made, "the new leader has heard of the servers")
        leader.start()
        index = max(master_status(m).replica.commit_index for m in cluster.masters)
        wait_until(lambda: master_status(leader).replica.applied_index >= index, "the old leader has caught up")
        assert {t.name for t in client.list_tables()} == {"one", "two"}


def refuses_who_knows_it_otherwise(
    cluster: LocalCluster, gone: ServerProcess, asker: ServerProcess, tablet: str
) -> None:
    """Check that each request of a leader that does not know of the removal is refused by its name, and leaves a
    tombstone as it was."""

    def all_of_it() -> tuple[Any, ...]:
        files = [(gone.root / room / tablet).read_bytes() for room in ("tablet-meta", "consensus-meta")]
        return (cluster.status(gone, tablet), *files, copies(gone), sorted((gone.root / "data").iterdir()))

    before = all_of_it()
    term, later = before[0].term, OpId(before[0].last_logged.term, before[0].last_logged.index + 1)
    for asked, believed, last, meant, code, detail in (
        (term - 1, DataState.DELETED, None, gone, Code.BAD_TERM, str(term)),
        (term - 1, DataState.READY, later, gone, Code.BAD_TERM, str(term)),
        (term, DataState.READY, later, gone, Code.ILLEGAL_STATE, "STATE"),
        (term + 9, DataState.DOES_NOT_EXIST, None, gone, Code.ILLEGAL_STATE, "STATE"),
        (term, DataState.DELETED, later, gone, Code.ILLEGAL_STATE, "OPID"),
        (term - 1, DataState.READY, None, asker, Code.INVALID_NAME, ""),
    ):
        reply = start_copy(asker, gone, asked, believed, last=last, tablet_id=tablet, dest_uuid=meant.uuid)
        assert reply.error.code == code and detail in reply.error.detail, (asked, believed, reply)
        assert code == Code.INVALID_NAME or (reply.data_state, reply.current_term) == (DataState.DELETED, term)
        assert all_of_it() == before


def test_master_dropped_table_ends_as_tombstones_everywhere_whoever_has_not_heard(cluster: LocalCluster) -> None:
    """TC-31. Goal: scenario 79 as it is here (D-24): no deletion is undone by who does not know of it, and a drop
    reaches every replica before the catalog forgets the tablet. Method: a voter is removed, and ordered away; copies of
    a lower term, or that believe it in another state or its log to end elsewhere, are refused, before and after a
    restart, and leave every byte as it was. Then a leader that hears no master, when its table is dropped, copies to
    the tombstone of its other voter, whose state it knows: that one is ordered away again, and the drop is remembered
    until the leader hears of it, and ends as a tombstone as well."""
    stack = Stack(cluster, "--dropped-retention-ms=100", "--rereplicate-after-ms=900000")
    stack.create(buckets=1)
    (tablet,) = (t.tablet_id for t in stack.wait_formed())
    leader = cluster.leader(tablet)
    gone, other = (s for s in cluster.servers if s is not leader)
    change(cluster, "remove", pb.Member(uuid=gone.uuid), tablet_id=tablet)
    wait_until(lambda: stack.data_state(gone, tablet) == DataState.DELETED, "who left is ordered away")
    refuses_who_knows_it_otherwise(cluster, gone, leader, tablet)
    for server in (gone, leader):
        server.kill()
    usual, leader.extra = leader.extra, ()
    for server in (gone, leader):
        server.start(wait=False)
    for server in (gone, leader):
        server.wait_ready()
    refuses_who_knows_it_otherwise(cluster, gone, leader, tablet)

    lead(cluster, leader, tablet)
    ended = lambda: sum(j.phase in ("DONE", "CANCELLED") for j in copies(other))  # noqa: E731
    before = ended()
    assert stack.stub.DropTable(pb.TableRequest(name="flights"), timeout=30).error.code == 0
    wait_until(lambda: ended() > before, "a leader that has not heard copies to a tombstone")
    wait_until(lambda: stack.data_state(other, tablet) == DataState.DELETED, "it is ordered away again")
    assert stack.data_state(leader, tablet) == DataState.READY and "forgot" not in stack.master.log_path.read_text()
    leader.kill()
    leader.extra = usual
    leader.start()
    wait_until(lambda: "forgot" in stack.master.log_path.read_text(), "all are gone, as far as the master has heard")
    states = lambda: [stack.data_state(s, tablet) for s in cluster.servers]  # noqa: E731
    wait_until(lambda: states() == [DataState.DELETED] * 3, "all are gone")
    assert stack.table().error.code == Code.NOT_FOUND


def test_executor_carries_a_decision_out_once_however_often_it_is_sent(cluster: LocalCluster) -> None:
    """Goal: TC-67 and TC-69: resent decisions are done once, outdated ones are stale. Method: a real leader.

    An added learner, the same again, the same under a wrong leader's address, another decision on the old config.
    """
    stack = Stack(cluster)
    stack.create(buckets=1)
    (tablet,) = stack.wait_formed()
    fourth = cluster.add_server()
    stack.wait_for_servers(4)
    leader = cluster.leader(tablet.tablet_id)
    follower = next(s for s in cluster.servers if s.uuid not in (leader.uuid, fourth.uuid))
    member = Member(fourth.uuid, (Address.parse(fourth.address),), votes=False, promote=True)
    decision = Decision(
        tablet_id=tablet.tablet_id,
        table_id=tablet.table_id,
        catalog_term=1,
        version=1,
        action=Action.CHANGE_CONFIG,
        edits=(ConfigEdit(EditKind.ADD, member),),
        config_opid=opid_from_pb(tablet.config.opid),
        deadline_us=time.time_ns() // 1000 + 600_000_000,
        reason="test",
        leader_uuid=follower.uuid,
        leader_address=follower.address,
    )
    with Client([stack.master.address]) as client:

        def done(what: Decision) -> Any:
            """Return the outcome; the decision is sent again if the outcome reports that this may help, as during a
            transfer."""
            return wait_until(lambda: not (found := execute(what, client)).retryable and found, "it is carried out")

        first = done(decision)
        assert first.result is Result.DONE, first
        again = done(replace(decision, leader_uuid="", leader_address=""))
        assert again.result is Result.DONE and "already" in again.message, again
        other = done(replace(decision, version=2, edits=(ConfigEdit(EditKind.REMOVE, member),)))
        assert other.result is Result.REFUSED, other
        transfer = {"action": Action.TRANSFER_LEADERSHIP, "edits": (), "target_uuid": follower.uuid}
        lead = replace(decision, version=3, **transfer)

        def transferred() -> bool:
            """Return whether it leads: the leadership may have moved on before the test reads it."""
            if cluster.leader(tablet.tablet_id) is follower:
                return True
            committed = stack.tablet(tablet.tablet_id).config.opid
            execute(replace(lead, config_opid=opid_from_pb(committed)), client)
            return False

        wait_until(transferred, "the follower leads")
