"""Every call of masters and tablet servers, misused: meant for another server, tablet, table, cluster or time; said
twice, late or out of order. Each gets the refusal that says so, and nothing has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.types import Code, DataState, new_uuid
from tests.harness.cluster import STEADY, LocalCluster, ServerProcess, local_cluster, wait_until
from tests.harness.links import HandMadeLink
from tests.harness.rows import batch, table_info, write_request

pytestmark = pytest.mark.process

NOBODY, NOWHERE = "f" * 32, "e" * 32
SERVICES = ("TabletService", "CopyService", "MasterService", "PeerService")
DISCOVERY = {(s, "GetIdentity") for s in SERVICES} | {("MasterService", "ListServers"), ("MasterService", "Status")}
"""Calls that name no recipient and change nothing: by them a caller learns whom to name."""
METHODS = [(s, m.name) for s in SERVICES for m in pb.DESCRIPTOR.services_by_name[s].methods]


class Misuse(NamedTuple):
    """One call: `fields` may be a function of the world. `codes`: the refusals that are right; 0 is an answer without
    effect."""

    service: str
    method: str
    codes: tuple[int, ...]
    fields: Callable[[World], dict[str, Any]]
    to_follower: bool = False


class World:
    """Three servers and a master that decides nothing; one table of one tablet with three replicas and 40 rows."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.master = cluster.add_master("--execute-decisions=none")
        for _ in range(3):
            server = cluster.add_server(start=False)
            server.module = STEADY  # an election here would look like an effect of a call
        for server in cluster.servers:
            server.start(wait=False)
        for server in cluster.servers:
            server.wait_ready()
        self.stubs: dict[str, Any] = {"MasterService": pb_grpc.MasterServiceStub(self.master.channel)}
        ask = self.stubs["MasterService"]
        wait_until(
            lambda: sum(s.alive for s in ask.ListServers(pb.ListServersRequest(), timeout=30).servers) == 3,
            "three are alive",
        )
        info = table_info()
        info.table_id = ""
        self.request = pb.CreateTableRequest(table=info, request_id="once")
        made = ask.CreateTable(self.request, timeout=30)
        assert not made.error.code, made.error
        self.table_id, self.tablet = made.table.table_id, made.tablets[0].tablet_id
        wait_until(lambda: all(t.running for t in self.table().tablets), "it has a leader")
        rows = batch(list(range(40)), ["v"] * 40)
        probe = pb.ReplicaRequest(tablet_id=self.tablet, server_uuid=NOBODY)
        formed = lambda: ask.AddReplica(probe, timeout=30).error.code == Code.NOT_FOUND  # noqa: E731
        wait_until(formed, "the master has noted that the tablet was formed")
        self.write = write_request(self.leader.uuid, self.tablet, rows, table_id=self.table_id)
        assert not self.leader.tablets.Write(self.write, timeout=30).error.code
        for kind in ("add", "remove"):
            self.change(kind)
        self.confirm()
        open_ = pb.OpenSourcesRequest(table="things", owner_run="run-1", lease_us=600_000_000)
        self.source = pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=0)
        open_.opens.add(source=self.source, topic="writes.things")
        reply = ask.OpenSources(open_, timeout=30)
        assert not reply.error.code, reply.error

    @property
    def leader(self) -> ServerProcess:
        return self.cluster.leader(self.tablet)

    @property
    def follower(self) -> ServerProcess:
        leader = self.leader
        return next(s for s in self.cluster.servers if s is not leader)

    def change(self, kind: str) -> None:
        """Add or remove a member that does not exist, so that the first config is an old one."""
        edit = pb.ConfigEdit(kind=kind, member=pb.Member(uuid=NOBODY, holds_data=True))
        request = pb.ChangeConfigRequest(dest_uuid=self.leader.uuid, tablet_id=self.tablet, edits=[edit])
        reply = self.leader.tablets.ChangeConfig(request, timeout=30)
        assert not reply.error.code, reply.error

    def confirm(self) -> None:
        """Store the tablet's last config in the masters' catalog, where the masters would store it themselves a moment
        later."""
        known = self.cluster.status(self.leader, self.tablet)
        assert known is not None
        told = pb.ConfirmConfigRequest(tablet_id=self.tablet, config=known.committed_config)
        assert self.stubs["MasterService"].ConfirmConfig(told, timeout=30).error.code in (0, Code.CAS_FAILED)

    def table(self) -> Any:
        request = pb.TableRequest(name="things", with_tablets=True)
        return self.stubs["MasterService"].GetTable(request, timeout=30)

    def committed(self) -> Any:
        status = self.cluster.status(self.leader, self.tablet)
        assert status is not None
        return status.committed_config.opid

    def call(self, misuse: Misuse, **more: Any) -> Any:
        """Return the first reply."""
        descriptor = pb.DESCRIPTOR.services_by_name[misuse.service].methods_by_name[misuse.method]
        request_class = getattr(pb, descriptor.input_type.name)
        fields = {**misuse.fields(self), **more}
        if misuse.service == "MasterService":
            stub = self.stubs["MasterService"]
        else:
            server = self.follower if misuse.to_follower else self.leader
            stub_class = getattr(pb_grpc, f"{misuse.service}Stub")
            stub = stub_class(server.channel)
            if "dest_uuid" in descriptor.input_type.fields_by_name:
                fields.setdefault("dest_uuid", server.uuid)
        answer = getattr(stub, misuse.method)(request_class(**fields), timeout=30)
        return next(iter(answer)) if descriptor.server_streaming else answer

    def state(self) -> Any:
        """Return everything that a misused call must leave alone: of each replica what is promised and stored, of the
        masters the catalog's position, the tables, the desired state and the sources."""
        replicas = []
        for server in self.cluster.servers:
            assert server.alive
            reply = server.tablets.ListTablets(pb.ListTabletsRequest(dest_uuid=server.uuid), timeout=30)
            replicas += [
                (server.uuid, r.tablet_id, r.data_state, r.term, r.role, (r.last_logged.term, r.last_logged.index),
                 (r.committed_config.opid.term, r.committed_config.opid.index), r.rows)
                for r in reply.replicas
            ]  # fmt: skip
        master = self.stubs["MasterService"].Status(pb.Empty(), timeout=30)
        sources = self.stubs["MasterService"].ListSources(pb.ListSourcesRequest(), timeout=30).positions
        return (sorted(replicas), master.replica.commit_index, master.moves_active, self.table().table, list(sources))

    def settled(self) -> Any:
        """Return the state once the followers have everything."""

        def quiet() -> bool:
            statuses = [self.cluster.status(s, self.tablet) for s in self.cluster.servers]
            return len({(s.last_logged.index, s.commit_index, s.applied_index) for s in statuses if s}) == 1

        wait_until(quiet, "the followers have everything")
        self.confirm()
        return self.state()


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with local_cluster() as cluster:
        yield World(cluster)


def opid(term: int, index: int) -> Any:
    return pb.OpId(term=term, index=index)


def no_fields(_: World) -> dict[str, Any]:
    return {}


def tablet_of(tablet_id: str, **more: Any) -> Callable[[World], dict[str, Any]]:
    """Return fields for a tablet id; the rest as given."""
    return lambda world: {"tablet_id": tablet_id, **more}


def own(**more: Any) -> Callable[[World], dict[str, Any]]:
    """Return fields for the tablet that exists."""
    return lambda world: {"tablet_id": world.tablet, **more}


FROM = {"from_uuid": NOBODY, "from_addresses": [pb.Address(host="127.0.0.1", port=1)]}
T, C, M = "TabletService", "CopyService", "MasterService"
MISSING = (Code.TABLET_NOT_FOUND,)
WRONG_TABLET = [
    Misuse(T, "Write", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "Scan", MISSING, tablet_of(NOWHERE, all_columns=True)),
    Misuse(T, "Get", MISSING, tablet_of(NOWHERE, all_columns=True)),
    Misuse(T, "ListTablets", (0,), lambda w: {"tablet_ids": [NOWHERE]}),
    Misuse(T, "CreateTablet", (Code.INVALID_ARGUMENT,), tablet_of(NOWHERE)),
    Misuse(T, "DeleteTablet", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "ChangeConfig", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "TransferLeadership", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "Checksum", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "Ledger", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "ServerTime", MISSING, lambda w: {"tablet_ids": [NOWHERE]}),
    Misuse(T, "Flush", MISSING, tablet_of(NOWHERE)),
    Misuse(T, "ListQuarantine", (0,), tablet_of(NOWHERE)),
    Misuse(T, "PurgeQuarantine", MISSING, tablet_of(NOWHERE)),
    Misuse(
        C,
        "StartTabletCopy",
        (Code.ILLEGAL_STATE,),
        tablet_of(NOWHERE, **FROM, current_state=int(DataState.READY), term=9),
    ),
    Misuse(C, "BeginCopy", MISSING, tablet_of(NOWHERE, requestor_uuid=NOBODY)),
    Misuse(C, "OpenFetch", (Code.EXPIRED,), lambda w: {"session_id": NOWHERE}),
    Misuse(C, "EndCopy", (0, Code.EXPIRED, Code.NOT_FOUND), lambda w: {"session_id": NOWHERE}),
    Misuse(C, "CancelCopy", (Code.NOT_FOUND,), tablet_of(NOWHERE)),
    Misuse(M, "MoveReplica", MISSING, tablet_of(NOWHERE, from_uuid=NOBODY, to_uuid=NOWHERE)),
    Misuse(M, "AddReplica", MISSING, tablet_of(NOWHERE, server_uuid=NOBODY)),
    Misuse(M, "RemoveReplica", MISSING, tablet_of(NOWHERE, server_uuid=NOBODY)),
    Misuse(M, "ChangeRole", MISSING, tablet_of(NOWHERE, server_uuid=NOBODY, role="VOTER")),
    Misuse(M, "CancelChange", (Code.NOT_FOUND,), tablet_of(NOWHERE)),
    Misuse(M, "SetReplication", MISSING, tablet_of(NOWHERE, replicas=1)),
    Misuse(M, "ConfirmConfig", MISSING, tablet_of(NOWHERE)),
    Misuse(M, "ChangeMasters", (Code.INVALID_ARGUMENT,), lambda w: {}),
    Misuse(M, "ChangeMasters", (Code.ILLEGAL_STATE,), lambda w: {"remove": w.master.uuid}),
    Misuse(M, "ChangeMasters", (Code.NOT_FOUND,), lambda w: {"add": w.leader.member().addresses[0]}),
    Misuse(M, "ReplaceTablets", MISSING, lambda w: {"tablet_ids": [NOWHERE]}),
    Misuse(M, "RetireServer", (Code.NOT_FOUND,), lambda w: {"server_uuid": NOBODY}),
    Misuse(M, "MaintainServer", (Code.NOT_FOUND,), lambda w: {"server_uuid": NOBODY, "seconds": 60}),
    Misuse(M, "AgreeReadTime", (Code.EXPIRED,), lambda w: {"load_id": NOWHERE, "application": NOWHERE, "query": 7}),
    Misuse(M, "ForgetServer", (Code.ILLEGAL_STATE,), lambda w: {"server_uuid": w.leader.uuid}),
    Misuse(M, "DropTable", (Code.NOT_FOUND,), lambda w: {"name": "nowhere"}),
    Misuse(M, "DropTable", (Code.WRONG_TABLE,), lambda w: {"name": "things", "table_id": NOWHERE}),
    Misuse(M, "GetTable", (Code.NOT_FOUND,), lambda w: {"table_id": NOWHERE}),
    Misuse(M, "AddWriterSchema", (Code.NOT_FOUND,), lambda w: {"table": "nowhere"}),
    Misuse(M, "OpenSources", (Code.NOT_FOUND,), lambda w: {"table": "nowhere", "owner_run": "r", "lease_us": 1}),
    Misuse(
        M,
        "AdvanceSources",
        (Code.NOT_FOUND,),
        lambda w: {"table_id": NOWHERE, "owner_run": "run-1", "advances": [pb.SourceAdvance(source=w.source)]},
    ),
    Misuse(M, "ListSources", (Code.NOT_FOUND,), lambda w: {"table": "nowhere"}),
    Misuse(M, "ResetSource", (Code.NOT_FOUND,), lambda w: {"table": "nowhere", "source": w.source}),
]
"""Calls about a tablet, table, server or session that does not exist."""

ADD = pb.ConfigEdit(kind="add", member=pb.Member(uuid=NOBODY, promote=True, holds_data=True))
LATE = [
    Misuse(T, "ChangeConfig", (Code.CAS_FAILED,), own(edits=[ADD], has_cas=True, committed_config_id=opid(0, 0))),
    Misuse(T, "ChangeConfig", (Code.DEADLINE_PASSED,), own(edits=[ADD], deadline_us=1)),
    Misuse(T, "ChangeConfig", (Code.NOT_FOUND,), own(abort=True)),
    Misuse(T, "ChangeConfig", (Code.INVALID_ARGUMENT,), own(abort=True, edits=[ADD])),
    Misuse(T, "TransferLeadership", (Code.CAS_FAILED,), own(has_cas=True, committed_config_id=opid(0, 0))),
    Misuse(T, "TransferLeadership", (Code.DEADLINE_PASSED,), own(deadline_us=1)),
    Misuse(T, "TransferLeadership", (Code.NOT_FOUND,), own(target_uuid=NOBODY)),
    Misuse(T, "DeleteTablet", (Code.CAS_FAILED,), own(has_cas=True, committed_config_id=opid(0, 0)), True),
    Misuse(T, "Write", (Code.WRONG_TABLE,), lambda w: {**write_fields(w), "table_id": NOWHERE}),
    Misuse(T, "Scan", (Code.WRONG_TABLE,), own(table_id=NOWHERE, all_columns=True)),
    Misuse(T, "Get", (Code.WRONG_TABLE,), own(table_id=NOWHERE, all_columns=True)),
    Misuse(T, "Get", (Code.INVALID_BATCH,), own(keys=b"none", count=1, all_columns=True)),
    Misuse(C, "StartTabletCopy", (Code.BAD_TERM,), own(**FROM, term=0, current_state=int(DataState.READY))),
    Misuse(C, "StartTabletCopy", (Code.ILLEGAL_STATE,), own(**FROM, term=900, current_state=int(DataState.DELETED))),
    Misuse(
        C, "StartTabletCopy", (Code.ILLEGAL_STATE,), own(**FROM, term=900, current_state=3, last_opid=opid(1, 1)), True
    ),
    Misuse(C, "BeginCopy", (Code.NOT_LEADER,), own(requestor_uuid=NOBODY), True),
    Misuse(C, "CancelCopy", (Code.NOT_FOUND,), own(started_us=7)),
    Misuse(
        M,
        "MoveReplica",
        (Code.DEADLINE_PASSED,),
        lambda w: {"tablet_id": w.tablet, "from_uuid": w.leader.uuid, "to_uuid": NOBODY, "deadline_us": 1},
    ),
    Misuse(M, "CancelChange", (Code.NOT_FOUND,), own()),
    Misuse(
        M,
        "AdvanceSources",
        (Code.SOURCE_OWNED,),
        lambda w: {
            "table_id": w.table_id,
            "owner_run": "run-0",
            "lease_us": 1,
            "advances": [pb.SourceAdvance(source=w.source, generation=1, done=5)],
        },
    ),
    Misuse(
        M,
        "AdvanceSources",
        (Code.STALE_GENERATION,),
        lambda w: {
            "table_id": w.table_id,
            "owner_run": "run-1",
            "lease_us": 1,
            "advances": [pb.SourceAdvance(source=w.source, generation=0, done=5)],
        },
    ),
    Misuse(M, "ResetSource", (Code.SOURCE_OWNED,), lambda w: {"table": "things", "source": w.source, "to_offset": 3}),
    Misuse(
        M,
        "OpenSources",
        (Code.SOURCE_OWNED,),
        lambda w: {
            "table": "things",
            "owner_run": "run-2",
            "lease_us": 1,
            "opens": [pb.SourceOpen(source=w.source, topic="writes.things")],
        },
    ),
    Misuse(
        M,
        "Heartbeat",
        (Code.WRONG_CLUSTER,),
        lambda w: {"server_uuid": NOBODY, "cluster_id": NOWHERE, "full_report": True},
    ),
    Misuse(M, "Heartbeat", (Code.INVALID_ARGUMENT,), no_fields),
]
"""Calls from another time, another generation, another owner, another cluster, or out of order."""

AT_A_FOLLOWER = [
    Misuse(T, "Write", (Code.NOT_LEADER,), lambda w: write_fields(w), True),
    Misuse(
        T,
        "Scan",
        (Code.NOT_LEADER,),
        lambda w: {"tablet_id": w.tablet, "table_id": w.table_id, "all_columns": True},
        True,
    ),
    Misuse(T, "Get", (Code.NOT_LEADER,), own(all_columns=True), True),
    Misuse(T, "ChangeConfig", (Code.NOT_LEADER,), own(edits=[ADD]), True),
    Misuse(T, "ChangeConfig", (Code.NOT_LEADER,), own(abort=True), True),
    Misuse(T, "TransferLeadership", (Code.NOT_LEADER,), own(), True),
    Misuse(T, "Ledger", (Code.NOT_LEADER,), own(), True),
]


def write_fields(world: World) -> dict[str, Any]:
    """Return the good write, without its recipient."""
    fields = {f.name: v for f, v in world.write.ListFields()}
    del fields["dest_uuid"]
    return fields


def refused(world: World, misuse: Misuse, **more: Any) -> Any:
    """Make the call, and check code, text and outcome of the answer."""
    reply = world.call(misuse, **more)
    where = (misuse.service, misuse.method, misuse.codes, reply)
    assert reply.error.code in misuse.codes, where
    assert bool(reply.error.message) == bool(reply.error.code) and not reply.error.outcome_unknown, where
    return reply


def test_every_call_that_names_nobody_or_somebody_else_is_refused(world: World) -> None:
    """Goal: TC-73 over every call of every service, also those that are not written yet. Method: each method with a
    foreign uuid, and at tablet servers an empty one; a method without `dest_uuid` must be one of discovery."""
    before = world.settled()
    for service, method in METHODS:
        descriptor = pb.DESCRIPTOR.services_by_name[service].methods_by_name[method]
        if "dest_uuid" not in descriptor.input_type.fields_by_name:
            assert (service, method) in DISCOVERY, f"{service}.{method} does not say whom it is meant for"
            continue
        for uuid in (new_uuid(), *([""] if service != M else [])):
            refused(world, Misuse(service, method, (Code.INVALID_NAME,), no_fields), dest_uuid=uuid)
    assert world.settled() == before


def test_every_call_about_something_that_is_not_there_is_refused(world: World) -> None:
    """Goal: no call makes or breaks anything by a wrong name. Method: a table of calls that name an unknown tablet,
    table, server, session or source; every method that has such a field is in it."""
    named = {"tablet_id", "tablet_ids", "session_id", "table", "table_id", "server_uuid", "source"}
    listed = {(m.service, m.method) for m in (*WRONG_TABLET, *LATE)}
    for service, method in METHODS:
        fields = set(pb.DESCRIPTOR.services_by_name[service].methods_by_name[method].input_type.fields_by_name)
        wanted = fields & named and (service, method) not in {(M, "CreateTable"), (M, "ListTables")}
        assert not wanted or (service, method) in listed, f"{service}.{method} has no row in the table"
    before = world.settled()
    for misuse in WRONG_TABLET:
        refused(world, misuse)
        assert world.state() == before, misuse
    assert world.settled() == before


def test_every_late_or_foreign_call_is_refused(world: World) -> None:
    """Goal: stale terms, configs, deadlines, owners, generations and clusters change nothing. Method: a table of calls
    that were right in another time or place, the state compared after each; leaders' calls at a follower too."""
    before = world.settled()
    for misuse in (*LATE, *AT_A_FOLLOWER):
        reply = refused(world, misuse)
        if misuse.codes == (Code.NOT_LEADER,) and misuse.service == T:
            assert reply.error.detail.startswith(world.leader.uuid), (misuse.method, reply.error)
        assert world.state() == before, misuse
    assert world.settled() == before


def test_repeated_and_reordered_calls_have_their_effect_once(world: World) -> None:
    """Goal: what is said twice, or late, is done once. Method: the same table, tablet, write, wish, schema and source
    again; a decision twice, then an older one: each answers as the first time or says what it met."""
    master = world.stubs[M]
    world.settled()
    again = master.CreateTable(world.request, timeout=30)
    assert (again.error.code, again.table.table_id) == (0, world.table_id)
    other = pb.CreateTableRequest(table=world.request.table, request_id="another")
    assert master.CreateTable(other, timeout=30).error.code == Code.ALREADY_EXISTS
    before = world.settled()
    leader = world.leader
    config = pb.RaftConfig(members=[s.member() for s in world.cluster.servers])
    create = pb.CreateTabletRequest(
        dest_uuid=leader.uuid, tablet_id=world.tablet, table=world.table().table, config=config
    )
    assert leader.tablets.CreateTablet(create, timeout=30).error.code in (0, Code.ALREADY_EXISTS)
    assert world.settled() == before, "neither made a second one"

    write = pb.WriteRequest()
    write.CopyFrom(world.write)
    write.client_id, write.sequence, write.dest_uuid = "client", 1, leader.uuid
    first = leader.tablets.Write(write, timeout=30)
    second = leader.tablets.Write(write, timeout=30)
    assert (first.error.code, second.error.code) == (0, 0), (first, second)
    assert (second.rows_applied, second.hybrid_time >= first.hybrid_time) == (first.rows_applied, True)
    rows = {row[-1] for row in world.settled()[0]}
    assert rows == {40}

    term = master.Status(pb.Empty(), timeout=30).catalog_term

    def decided(version: int, name: str) -> int:
        member = pb.Member(uuid=name * 32, holds_data=True, addresses=[pb.Address(host="127.0.0.1", port=1)])
        request = pb.ChangeConfigRequest(
            dest_uuid=leader.uuid, tablet_id=world.tablet, has_cas=True, committed_config_id=world.committed(),
            edits=[pb.ConfigEdit(kind="add", member=member)], decision_term=term, decision_version=version,
        )  # fmt: skip
        return int(leader.tablets.ChangeConfig(request, timeout=30).error.code)

    assert [decided(7, "1"), decided(7, "1"), decided(6, "2"), decided(7, "3")] == [
        0, Code.STALE_DECISION, Code.STALE_DECISION, Code.STALE_DECISION,
    ]  # fmt: skip
    gone = pb.ConfigEdit(kind="remove", member=pb.Member(uuid="1" * 32))
    request = pb.ChangeConfigRequest(dest_uuid=leader.uuid, tablet_id=world.tablet, edits=[gone])
    assert [leader.tablets.ChangeConfig(request, timeout=30).error.code for _ in range(2)] == [0, Code.NOT_FOUND]

    target = world.follower.uuid
    wait_until(lambda: len(world.table().tablets[0].config.members) == 3, "the master has heard")
    lead = pb.MoveReplicaRequest(tablet_id=world.tablet, to_uuid=target)
    assert [master.MoveReplica(lead, timeout=30).error.code for _ in range(2)] == [0, 0]
    conflicting = pb.ReplicaRequest(tablet_id=world.tablet, server_uuid=target, role="NON_VOTER")
    assert master.ChangeRole(conflicting, timeout=30).error.code in (Code.CHANGE_PENDING, Code.INVALID_ARGUMENT)
    assert master.Status(pb.Empty(), timeout=30).moves_active == 1
    cancel = pb.ReplicaRequest(tablet_id=world.tablet)
    assert master.CancelChange(cancel, timeout=30).error.code == 0
    wait_until(lambda: master.Status(pb.Empty(), timeout=30).moves_active == 0, "it is given up")
    assert master.CancelChange(cancel, timeout=30).error.code == Code.NOT_FOUND


def open_writes(server: ServerProcess) -> HandMadeLink:
    """Return a write link that the server has accepted."""
    granted = server.tablets.OpenWrites(pb.OpenWritesRequest(dest_uuid=server.uuid), timeout=30)
    assert not granted.error.code, granted.error
    link = HandMadeLink(granted.port, granted.ticket)
    assert link.receive() == b""
    return link


def test_writes_of_a_link_are_checked_one_by_one(world: World) -> None:
    """Goal: a write link is no way around the checks. Method: one bundle with writes for another server, an unknown
    tablet and another table: each has its own answer, and the log has not moved. The good write after them is
    applied."""
    leader = world.leader
    before = world.settled()
    bundle = pb.WriteBundle()
    for number, changes in enumerate(({"dest_uuid": NOBODY}, {"tablet_id": NOWHERE}, {"table_id": NOWHERE}), 1):
        request = pb.WriteRequest()
        request.CopyFrom(world.write)
        request.dest_uuid = leader.uuid
        for name, value in changes.items():
            setattr(request, name, value)
        bundle.writes.add(number=number, request=request)
    link = open_writes(leader)
    link.send(bundle.SerializeToString())
    codes: dict[int, int] = {}
    while len(codes) < 3:
        codes |= {r.number: r.reply.error.code for r in pb.ReplyBundle.FromString(link.receive()).replies}
    assert codes == {1: Code.INVALID_NAME, 2: Code.TABLET_NOT_FOUND, 3: Code.WRONG_TABLE}
    assert world.settled() == before
    world.write.dest_uuid = leader.uuid
    again = pb.WriteBundle()
    again.writes.add(number=9, request=world.write)
    link.send(again.SerializeToString())
    [reply] = pb.ReplyBundle.FromString(link.receive()).replies
    assert reply.number == 9 and not reply.reply.error.code
    link.finish()


def test_write_link_with_a_used_ticket_or_with_garbage_is_ended(world: World) -> None:
    """Goal: hostile bytes end their connection and nothing else. Method: a ticket shown twice, a frame that is no
    bundle, one longer than any message; a good link beside them still works."""
    leader = world.leader
    good = open_writes(leader)
    granted = leader.tablets.OpenWrites(pb.OpenWritesRequest(dest_uuid=leader.uuid), timeout=30)
    first = HandMadeLink(granted.port, granted.ticket)
    assert first.receive() == b""
    first.close()
    HandMadeLink(granted.port, granted.ticket).wait_ended()
    garbage, endless = open_writes(leader), open_writes(leader)
    garbage.send(b"\xff" * 100)
    garbage.wait_ended()
    endless.send_bytes(b"\xff" * 8)
    endless.wait_ended()
    world.write.dest_uuid = leader.uuid
    bundle = pb.WriteBundle()
    bundle.writes.add(number=1, request=world.write)
    good.send(bundle.SerializeToString())
    [reply] = pb.ReplyBundle.FromString(good.receive()).replies
    assert not reply.reply.error.code
    good.finish()
