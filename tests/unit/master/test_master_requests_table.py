"""Every call of a master: misaddressed, stale, repeated, overtaken, and made to one that does not lead."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from nyala.replica.rpc import pb
from nyala.replica.types import Code
from nyala.schemas import build_level, fingerprint64, parse_json
from tests.harness.catalogs import table_info
from tests.harness.master_calls import MASTER, PROCESS, SECOND_MASTER, MasterWorld, S, where
from tests.harness.request_table import (
    Late,
    Row,
    Stale,
    case_id,
    check_table,
    late_cases,
    names_its_server,
    play,
    play_late,
)

SERVICES = ("MasterService", "PeerService")
NOWHERE = "e" * 31 + "0"
SOURCE = pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=0)
LOGGED = ("the log's end", "what is committed")
"""The same facts are written once more."""
LEADS = "clients and tools do not choose a master: whichever leads answers, and the others change nothing"

Ask = Callable[[MasterWorld], Any]
Do = Callable[[MasterWorld], Awaitable[None]]


def ask(kind: Callable[..., Any], **fields: Any) -> Ask:
    return lambda world: kind(**fields)


def of_tablet(kind: Callable[..., Any], **fields: Any) -> Ask:
    """A request about the tablet that is there."""
    return lambda world: kind(**{"tablet_id": world.tablet} | fields)


def after(*calls: tuple[str, Ask]) -> Do:
    """These calls, all carried out."""

    async def make(world: MasterWorld) -> None:
        for method, request in calls:
            await world.done(method, request(world))

    return make


def changed(*members: str) -> Do:
    """The tablet has these members now."""
    return lambda world: world.carried_out(*members)


def in_turn(*doings: Do) -> Do:
    """One after the other."""

    async def make(world: MasterWorld) -> None:
        for do in doings:
            await do(world)

    return make


def row(call: str, good: Ask, **more: Any) -> Row:
    return Row(call=f"MasterService.{call}", good=good, **{"unnamed": LEADS} | more)


def nowhere(kind: Callable[..., Any], code: int = Code.TABLET_NOT_FOUND, **fields: Any) -> Stale:
    return Stale("about a tablet that is not there", ask(kind, **{"tablet_id": NOWHERE} | fields), code)


# ------------------------------------------------------------------------------------------------------------ requests


def beat(**fields: Any) -> Ask:
    """A heartbeat of a server that has lost its replica, with the next number."""
    return lambda world: world.beat(S[1], rows=False, **fields)


async def beaten(world: MasterWorld) -> None:
    await world.done("Heartbeat", world.beat(S[1]))


async def restarted(world: MasterWorld) -> None:
    await world.done("Heartbeat", world.beat(S[1], process=PROCESS + 1, sequence=1))


def creation(request_id: str = "r", **fields: Any) -> Ask:
    return ask(pb.CreateTableRequest, table=table_info("new", buckets=1), request_id=request_id, **fields)


def named(name: str) -> Ask:
    return ask(pb.TableRequest, name=name)


def drop(world: MasterWorld) -> Any:
    return pb.TableRequest(name="flights", table_id=world.table_id)


SAME_NAME = ("CreateTable", ask(pb.CreateTableRequest, table=table_info(buckets=1), request_id="again"))


def fingerprint(avro_json: str) -> str:
    return fingerprint64(parse_json(avro_json)).hex()


def schema(avro_json: str = '"string"', registry_id: int = 0) -> Ask:
    writer = pb.WriterSchema(fingerprint=fingerprint(avro_json), avro_json=avro_json, registry_id=registry_id)
    return ask(pb.AddWriterSchemaRequest, table="flights", schema=writer)


def opening(run: str = "run-1", **fields: Any) -> Ask:
    opens = [pb.SourceOpen(**{"source": SOURCE, "topic": "writes.flights"} | fields)]
    return ask(pb.OpenSourcesRequest, table="flights", owner_run=run, lease_us=1_000_000, opens=opens)


def advance(
    done: int = 10, run: str = "run-1", generation: int = 1, release: bool = False, source: Any = SOURCE
) -> Ask:
    advances = [pb.SourceAdvance(source=source, generation=generation, done=done)]
    return lambda world: pb.AdvanceSourcesRequest(
        table_id=world.table_id, owner_run=run, lease_us=1_000_000, release=release, advances=advances
    )


def reset(to: int = 3, generation: int = 1, **fields: Any) -> Ask:
    wanted = {"table": "flights", "source": SOURCE, "to_offset": to, "generation": generation} | fields
    return ask(pb.ResetSourceRequest, **wanted)


ELSEWHERE = pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=7)
OPENED = after(("OpenSources", opening()))
RELEASED = after(("OpenSources", opening()), ("AdvanceSources", advance(5, release=True)))


def looked(kind: Callable[..., Any], **fields: Any) -> Ask:
    """A request about the tablet that is there, by who has just looked at it."""
    return lambda world: of_tablet(kind, **{"seen": world.seen()} | fields)(world)


def replica(uuid: str, role: str = "", **fields: Any) -> Ask:
    return looked(pb.ReplicaRequest, server_uuid=uuid, role=role, **fields)


def move(**fields: Any) -> Ask:
    """The third member's replica goes to the fourth server."""
    return looked(pb.MoveReplicaRequest, **{"from_uuid": S[2], "to_uuid": S[3], "deadline_us": 1 << 38} | fields)


def at(term: int, index: int, wishes: int = 0) -> Any:
    """What somebody saw at another time; now it is 1.1, and nothing was wanted."""
    return pb.TabletSeen(committed_config_id=pb.OpId(term=term, index=index), wishes=wishes)


OTHER_WISH = after(("MoveReplica", move(from_uuid="", to_uuid=S[1])))


def voters(replicas: int, seen: int = 0) -> Ask:
    """So many are wanted by who saw so many changes of desired state."""
    return ask(pb.SetReplicationRequest, table="flights", replicas=replicas, seen_changes=seen)


def emptied(**fields: Any) -> Ask:
    return ask(pb.RetireServerRequest, **{"server_uuid": S[4], "seen_changes": 0} | fields)


def worked_on(**fields: Any) -> Ask:
    return ask(
        pb.MaintainServerRequest, **{"server_uuid": S[4], "seconds": 60, "owner": "ann", "seen_changes": 0} | fields
    )


WORK_ENDED = worked_on(seconds=0, seen_changes=1)


def gone(**fields: Any) -> Ask:
    return ask(pb.ForgetServerRequest, **{"server_uuid": S[4], "seen_changes": 1} | fields)


async def fell_silent(world: MasterWorld) -> None:
    """The last server is being retired, has sent no heartbeat for long, and nothing listens at its address."""
    await world.done("RetireServer", emptied()(world))
    del world.servers.listening[where(S[4])]
    world.clock.now_us += world.master.options.server_dead_ms * 1000 + 1
    for uuid in S[:4]:
        await world.done("Heartbeat", world.beat(uuid))


async def came_back(world: MasterWorld) -> None:
    world.servers.listen(S[4], where(S[4]))
    await world.done("Heartbeat", world.beat(S[4]))


UNDONE = emptied(undo=True, seen_changes=1)


def taken_over(**fields: Any) -> Ask:
    return ask(pb.TakeOverRequest, **{"uuid": SECOND_MASTER, "seen": 0} | fields)


def masters_change(**fields: Any) -> Ask:
    """A change of the masters by who saw their first config."""
    return ask(pb.ChangeMastersRequest, **{"seen": pb.OpId()} | fields)


def read_at(**fields: Any) -> Ask:
    """A task's proposal for its query of Spark."""
    load = {"application": S[0], "load_id": S[1], "made": pb.OpId(term=1, index=1), "query": 7, "snapshot_time": 5}
    return ask(pb.AgreeReadTimeRequest, **load | fields)


NEW_MASTER = pb.Address(host="h", port=77)


def taken_back(method: str, request: Ask) -> Do:
    return after((method, request), ("CancelChange", of_tablet(pb.ReplicaRequest)))


def forgotten(method: str, request: Ask) -> Do:
    """Carried out, cancelled before the config changed, and over."""
    return in_turn(taken_back(method, request), MasterWorld.settled)


def undone(*members: str) -> Do:
    """The tablet had these members, and has the first ones again."""
    return in_turn(changed(*members), changed(*S[:3]))


async def all_lost(world: MasterWorld) -> None:
    """No server has a replica of the tablet, and all have said so for as long as makes one dead."""
    world.clock.now_us += 2 * world.master.options.server_dead_ms * 1000
    await world.report(rows=False)


async def come_back(world: MasterWorld) -> None:
    await world.report()


def lost(tablet_id: str = "") -> Ask:
    return lambda world: pb.ReplaceTabletsRequest(tablet_ids=[tablet_id or world.tablet])


WISHED = Late("behind another change that is wanted", OTHER_WISH, Code.CHANGE_PENDING)


def confirmed(index: int, tablet: str = "", voters: Sequence[str] = S[:1]) -> Ask:
    """An operator's word on a config of the tablet, committed at `index`."""
    members = [pb.Member(uuid=u, votes=True, holds_data=True) for u in voters]
    config = pb.RaftConfig(opid=pb.OpId(term=1, index=index), members=members)
    return lambda world: pb.ConfirmConfigRequest(tablet_id=tablet or world.tablet, config=config)


ROWS = [
    row("GetIdentity", ask(pb.Empty), reads=True, stale="it names nothing"),
    row(
        "Heartbeat",
        beat(),
        unnamed="a server learns the master's uuid from the reply to its first one",
        stale=[
            Stale("older than the last one", beat(sequence=1), Code.CAS_FAILED),
            Stale("of another cluster", beat(cluster_id=NOWHERE), Code.WRONG_CLUSTER),
            Stale("of nobody", ask(pb.HeartbeatRequest, full_report=True), Code.INVALID_ARGUMENT),
        ],
        again=Code.CAS_FAILED,
        late=[Late("behind the next one", beaten, Code.CAS_FAILED)],
    ),
    row(
        "CreateTable",
        creation(),
        stale=[
            Stale(
                "for a name that another request has taken",
                ask(pb.CreateTableRequest, table=table_info(buckets=1), request_id="r"),
                Code.ALREADY_EXISTS,
            )
        ],
        again_leaves=LOGGED,
        late=[
            Late("behind the drop", after(("CreateTable", creation()), ("DropTable", named("new"))), Code.NOT_FOUND),
            Late("behind another's table", after(("CreateTable", creation("other"))), Code.ALREADY_EXISTS),
            Late("behind itself", after(("CreateTable", creation())), 0),
        ],
    ),
    row(
        "DropTable",
        drop,
        stale=[
            Stale("of a table that is not there", named("nowhere"), Code.NOT_FOUND),
            Stale("of another life", ask(pb.TableRequest, name="flights", table_id=NOWHERE), Code.WRONG_TABLE),
        ],
        again=Code.NOT_FOUND,
        late=[Late("behind a new table of the name", after(("DropTable", drop), SAME_NAME), Code.WRONG_TABLE)],
    ),
    row(
        "GetTable",
        ask(pb.TableRequest, name="flights", with_tablets=True),
        reads=True,
        stale=[Stale("of another life", ask(pb.TableRequest, name="flights", table_id=NOWHERE), Code.WRONG_TABLE)],
    ),
    row("ListTables", ask(pb.TableRequest), reads=True, stale="it names nothing"),
    row("ListServers", ask(pb.ListServersRequest), reads=True, stale="it names nothing"),
    row(
        "AddWriterSchema",
        schema(),
        stale=[Stale("of no table", ask(pb.AddWriterSchemaRequest, table="nowhere"), Code.NOT_FOUND)],
        late=[
            Late("when a registry has numbered it", after(("AddWriterSchema", schema(registry_id=7))), 0),
            Late(
                "behind another of its fingerprint",
                after(("AddWriterSchema", schema('{"type": "string"}'))),
                Code.ALREADY_EXISTS,
            ),
        ],
    ),
    row(
        "OpenSources",
        opening(),
        prepare=RELEASED,
        stale=[
            Stale("with a checkpoint ahead", opening(has_checkpoint=True, checkpoint_offset=6), Code.SOURCE_POSITION),
            Stale(
                "of a topic's earlier life",
                opening(source=pb.SourceKey(cluster_id="k", topic_id="old", kafka_partition=0)),
                Code.SOURCE_POSITION,
            ),
            Stale(
                "with a dropped table's checkpoint",
                ask(pb.OpenSourcesRequest, table="flights", owner_run="run-1", checkpoint_table_id=NOWHERE),
                Code.WRONG_TABLE,
            ),
        ],
        again_leaves=LOGGED,
        late=[Late("behind another run", after(("OpenSources", opening("run-2"))), Code.SOURCE_OWNED)],
    ),
    row(
        "AdvanceSources",
        advance(),
        prepare=OPENED,
        stale=[
            Stale("of an earlier generation", advance(generation=0), Code.STALE_GENERATION),
            Stale("of another run", advance(run="run-0"), Code.SOURCE_OWNED),
            Stale("of a source that is not there", advance(source=ELSEWHERE), Code.NOT_FOUND),
        ],
        again_leaves=LOGGED,
        late=[
            Late("behind a later one", after(("AdvanceSources", advance(20))), 0),
            Late("behind the release", after(("AdvanceSources", advance(10, release=True))), Code.SOURCE_OWNED),
            Late("behind a reset", after(("ResetSource", reset(force=True))), Code.SOURCE_OWNED),
        ],
    ),
    row("ListSources", ask(pb.ListSourcesRequest), reads=True, stale="it names nothing"),
    row(
        "ResetSource",
        reset(),
        prepare=RELEASED,
        stale=[
            Stale("of an earlier generation", reset(generation=7), Code.STALE_GENERATION),
            Stale("of one, only to lower it", reset(generation=7, keep_generation=True), Code.STALE_GENERATION),
            Stale("of a source that is not there", reset(source=ELSEWHERE), Code.NOT_FOUND),
        ],
        again=Code.STALE_GENERATION,
        late=[
            Late("behind another reset", after(("ResetSource", reset(4))), Code.STALE_GENERATION),
            Late("behind a run that reads it", OPENED, Code.SOURCE_OWNED),
        ],
    ),
    row(
        "MoveReplica",
        move(),
        stale=[
            nowhere(pb.MoveReplicaRequest),
            Stale("past its deadline", move(deadline_us=1), Code.DEADLINE_PASSED),
            Stale("from who is no member", move(from_uuid=S[4]), Code.INVALID_ARGUMENT),
            Stale("to who is one", move(to_uuid=S[1]), Code.INVALID_ARGUMENT),
            Stale("by another config", move(seen=at(1, 7)), Code.CAS_FAILED),
            Stale(
                "of the leadership by another config", move(from_uuid="", to_uuid=S[1], seen=at(0, 1)), Code.CAS_FAILED
            ),
        ],
        late=[
            WISHED,
            Late("behind its cancel", taken_back("MoveReplica", move()), Code.CHANGE_PENDING),
            Late("when it is done", changed(S[0], S[1], S[3]), Code.INVALID_ARGUMENT),
            Late("behind the way back", undone(S[0], S[1], S[3]), Code.CAS_FAILED),
            Late("when it was cancelled and is over", forgotten("MoveReplica", move()), Code.CAS_FAILED),
        ],
    ),
    row(
        "AddReplica",
        replica(S[3]),
        stale=[
            nowhere(pb.ReplicaRequest),
            Stale("of a member", replica(S[1]), Code.ALREADY_EXISTS),
            Stale("on a server that is not there", replica(NOWHERE), Code.NOT_FOUND),
            Stale("by another config", replica(S[3], seen=at(1, 7)), Code.CAS_FAILED),
        ],
        late=[
            WISHED,
            Late("behind its cancel", taken_back("AddReplica", replica(S[3])), Code.CHANGE_PENDING),
            Late("when it is done", changed(*S[:4]), Code.ALREADY_EXISTS),
            Late("behind the removal", undone(*S[:4]), Code.CAS_FAILED),
            Late("when it was cancelled and is over", forgotten("AddReplica", replica(S[3])), Code.CAS_FAILED),
        ],
    ),
    row(
        "RemoveReplica",
        replica(S[2]),
        stale=[
            nowhere(pb.ReplicaRequest),
            Stale("of no member", replica(S[3]), Code.NOT_FOUND),
            Stale("by another config", replica(S[2], seen=at(1, 7)), Code.CAS_FAILED),
        ],
        late=[
            WISHED,
            Late("behind its cancel", taken_back("RemoveReplica", replica(S[2])), Code.CHANGE_PENDING),
            Late("when it is done", changed(*S[:2]), Code.NOT_FOUND),
            Late("behind its return", undone(*S[:2]), Code.CAS_FAILED),
            Late("when it was cancelled and is over", forgotten("RemoveReplica", replica(S[2])), Code.CAS_FAILED),
        ],
    ),
    row(
        "ChangeRole",
        replica(S[2], "NON_VOTER"),
        stale=[
            nowhere(pb.ReplicaRequest, role="VOTER"),
            Stale("to the role that it has", replica(S[2], "VOTER"), Code.INVALID_ARGUMENT),
            Stale("of no member", replica(S[3], "VOTER"), Code.NOT_FOUND),
            Stale("by another config", replica(S[2], "NON_VOTER", seen=at(1, 7)), Code.CAS_FAILED),
        ],
        late=[
            WISHED,
            Late("when it has left", changed(*S[:2]), Code.NOT_FOUND),
            Late("behind the promotion", undone(*S[:3]), Code.CAS_FAILED),
            Late(
                "when it was cancelled and is over",
                forgotten("ChangeRole", replica(S[2], "NON_VOTER")),
                Code.CAS_FAILED,
            ),
        ],
    ),
    row(
        "CancelChange",
        looked(pb.ReplicaRequest),
        prepare=OTHER_WISH,
        stale=[
            nowhere(pb.ReplicaRequest, Code.NOT_FOUND),
            Stale("of an earlier desired", looked(pb.ReplicaRequest, seen=at(1, 1)), Code.CAS_FAILED),
        ],
        again_leaves=LOGGED,
        late=[
            Late("when it is done", changed(*S[:3]), Code.NOT_FOUND),
            Late("behind another desired change", in_turn(MasterWorld.settled, OTHER_WISH), Code.CAS_FAILED),
        ],
    ),
    row(
        "SetReplication",
        voters(5),
        stale=[
            nowhere(pb.SetReplicationRequest, replicas=1),
            Stale("of another table's", of_tablet(pb.SetReplicationRequest, table="x", replicas=1), Code.WRONG_TABLE),
            Stale("of another state", voters(5, 7), Code.CAS_FAILED),
        ],
        late=[Late("behind another number", after(("SetReplication", voters(1))), Code.CAS_FAILED)],
    ),
    row(
        "RetireServer",
        emptied(),
        stale=[
            Stale("of nobody", emptied(server_uuid=NOWHERE), Code.NOT_FOUND),
            Stale("of another state", emptied(seen_changes=7), Code.CAS_FAILED),
        ],
        late=[
            Late("behind its end", after(("RetireServer", emptied()), ("RetireServer", UNDONE)), Code.CAS_FAILED),
            Late("behind another server", after(("RetireServer", emptied(server_uuid=S[3]))), Code.CAS_FAILED),
        ],
    ),
    row(
        "MaintainServer",
        worked_on(),
        stale=[
            Stale("of nobody", worked_on(server_uuid=NOWHERE), Code.NOT_FOUND),
            Stale("of another state", worked_on(seen_changes=7), Code.CAS_FAILED),
        ],
        late=[
            Late(
                "behind its end",
                after(("MaintainServer", worked_on()), ("MaintainServer", WORK_ENDED)),
                Code.CAS_FAILED,
            ),
            Late("behind another server", after(("MaintainServer", worked_on(server_uuid=S[3]))), Code.CAS_FAILED),
        ],
    ),
    row(
        "ForgetServer",
        gone(),
        prepare=fell_silent,
        stale=[
            Stale("of one that beats", gone(server_uuid=S[3]), Code.ILLEGAL_STATE),
            Stale("of another state", gone(seen_changes=7), Code.CAS_FAILED),
            Stale("of nobody", gone(server_uuid=NOWHERE), 0),
        ],
        late=[
            Late("behind its return", came_back, Code.ILLEGAL_STATE),
            Late(
                "behind another server",
                after(("RetireServer", emptied(server_uuid=S[3], seen_changes=1))),
                Code.CAS_FAILED,
            ),
        ],
    ),
    row(
        "TakeOver",
        taken_over(),
        prepare=MasterWorld.second_is_silent,
        stale=[
            Stale("of a stranger", taken_over(uuid=NOWHERE), Code.INVALID_NAME),
            Stale("of the one that leads", taken_over(uuid=MASTER), Code.ILLEGAL_STATE),
            Stale("of another state", taken_over(seen=7), Code.CAS_FAILED),
        ],
        again=Code.CAS_FAILED,
        late=[Late("behind another one", after(("TakeOver", taken_over())), Code.CAS_FAILED)],
    ),
    row(
        "ReplaceTablets",
        lost(),
        prepare=all_lost,
        stale=[Stale("of one that is not there", lost(NOWHERE), Code.TABLET_NOT_FOUND)],
        late=[
            Late("behind a replica that came back", come_back, Code.ILLEGAL_STATE),
            Late("behind the drop", after(("DropTable", drop)), Code.TABLET_NOT_FOUND),
        ],
    ),
    row(
        "ConfirmConfig",
        confirmed(9),
        stale=[
            Stale("of one that is not there", confirmed(9, NOWHERE), Code.TABLET_NOT_FOUND),
            Stale("of a config without voters", confirmed(9, voters=()), Code.INVALID_ARGUMENT),
        ],
        late=[
            Late("behind the next one", after(("ConfirmConfig", confirmed(10))), Code.CAS_FAILED),
            Late("behind the drop", after(("DropTable", drop)), Code.TABLET_NOT_FOUND),
        ],
    ),
    row(
        "FinalizeUpgrade",
        ask(pb.FinalizeUpgradeRequest),
        reads=True,  # a new cluster is at the level of this build
        stale=[
            Stale("of a level to come", ask(pb.FinalizeUpgradeRequest, level=build_level() + 1), Code.INVALID_ARGUMENT),
            Stale("of no level", ask(pb.FinalizeUpgradeRequest, level=-1), Code.INVALID_ARGUMENT),
        ],
    ),
    row(
        "ChangeMasters",
        masters_change(remove=SECOND_MASTER),
        stale=[
            Stale(
                "by another config",
                masters_change(remove=SECOND_MASTER, seen=pb.OpId(term=1, index=9)),
                Code.CAS_FAILED,
            ),
            Stale("of the only one that votes", masters_change(remove=MASTER), Code.ILLEGAL_STATE),
            Stale("at an address where none is", masters_change(add=NEW_MASTER), Code.NOT_FOUND),
            Stale("of nothing", masters_change(), Code.INVALID_ARGUMENT),
            Stale("of two at once", masters_change(remove=SECOND_MASTER, add=NEW_MASTER), Code.INVALID_ARGUMENT),
        ],
        late="it is refused for any config but the one that its caller saw, and a config has one position in the log",
    ),
    row(
        "AgreeReadTime",
        read_at(),
        stale=[
            Stale("of a load() without a position", read_at(made=pb.OpId()), Code.EXPIRED),
            Stale("of a load() to come", read_at(made=pb.OpId(term=1, index=1 << 40)), Code.EXPIRED),
            Stale("of no load()", read_at(load_id="x"), Code.INVALID_ARGUMENT),
        ],
        late=[
            Late("behind another task's", after(("AgreeReadTime", read_at(snapshot_time=9))), 0),
            Late(
                "behind a query of the load() at another position",
                after(("AgreeReadTime", read_at(query=8, made=pb.OpId(term=1, index=2)))),
                Code.INVALID_ARGUMENT,
            ),
        ],
    ),
    row("Status", ask(pb.Empty), reads=True, stale="it names nothing"),
    Row(
        call="PeerService.OpenLink",
        good=lambda w: pb.OpenLinkRequest(
            dest_uuid=w.uuid, from_uuid=SECOND_MASTER, from_address=pb.Address(host="127.0.0.1", port=9)
        ),
        stale=[Stale("from nobody", lambda w: pb.OpenLinkRequest(dest_uuid=w.uuid), Code.INVALID_ARGUMENT)],
        late="where a sender listens is what it said last, and it says so with every link",
    ),
    Row(
        call="PeerService.IsProcess",
        good=lambda w: pb.ProcessRequest(dest_uuid=w.uuid, from_uuid=SECOND_MASTER, process=1),
        reads=True,
        stale="a number is of one process",
    ),
]
"""A text in the place of requests says why there can be none."""
EVERY_MASTER_ANSWERS = {
    "MasterService.GetIdentity",
    "MasterService.Status",
    "PeerService.OpenLink",
    "PeerService.IsProcess",
}


def run(scenario: Callable[[MasterWorld], Awaitable[None]], *, alone: bool = True) -> None:
    async def all_of_it() -> None:
        world = MasterWorld(alone=alone)
        await world.begin()
        try:
            await scenario(world)
        finally:
            await world.end()

    asyncio.run(all_of_it())


def test_every_call_of_a_master_has_a_row() -> None:
    """Goal: each call of a master has a documented rule of who may send it, when, and how often. Method: the
    descriptors."""
    check_table(ROWS, SERVICES)


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_misaddressed_stale_and_repeated_calls_leave_the_master_as_it_was(row: Row) -> None:
    """TC-73, TC-02. Goal: a call has its effect once, at the master that it names if it names one. Method: for other
    masters, from another time, then as it should be, then the same again; after each, the catalog, its log and all that
    heartbeats told. The good request of a client names nobody."""
    run(lambda world: play(row, world, [SECOND_MASTER]))


@pytest.mark.a_third
@pytest.mark.parametrize(("row", "late"), late_cases(ROWS), ids=case_id)
def test_overtaken_calls_leave_the_master_as_it_is(row: Row, late: Late) -> None:
    """TC-02, TC-69. Goal: requests may arrive in any order. Method: the good request is made, then something else comes
    first; after it, the catalog, its log and all that heartbeats told."""
    run(lambda world: play_late(row, late, world))


@pytest.mark.parametrize("row", [r for r in ROWS if r.call not in EVERY_MASTER_ANSWERS], ids=str)
def test_calls_at_a_master_that_does_not_lead_change_nothing(row: Row) -> None:
    """TC-73. Goal: only the leading master carries out a request that names no master. Method: a master that waits for
    another one is asked without a uuid and with its own, and refuses with the same code; with another's uuid it says
    that."""

    async def scenario(world: MasterWorld) -> None:
        before = await world.state()
        for uuid, code in (("", Code.NOT_LEADER), (world.uuid, Code.NOT_LEADER), (SECOND_MASTER, Code.INVALID_NAME)):
            request = row.good(world)
            if names_its_server(row):
                request.dest_uuid = uuid
            reply = await world.call(*row.names, request)
            assert reply.error.code == (code if names_its_server(row) else Code.NOT_LEADER), reply.error
            assert await world.state() == before

    run(scenario, alone=False)


def test_writer_schema_is_forgotten_and_another_takes_its_place() -> None:
    """IN-81. Goal: a table that lives for years is not closed to new producers. Method: by the call: one is registered,
    forgotten alone, registered again, and forgotten together with the registration of another one."""

    async def scenario(world: MasterWorld) -> None:
        f, g = fingerprint('"string"'), fingerprint('"int"')
        other = pb.WriterSchema(fingerprint=g, avro_json='"int"')
        steps: list[tuple[Any, list[str]]] = [
            (schema()(world), [f]),
            (pb.AddWriterSchemaRequest(table="flights", forget=f), []),
            (schema()(world), [f]),
            (pb.AddWriterSchemaRequest(table="flights", forget=f, schema=other), [g]),
        ]
        for request, known in steps:
            table = (await world.done("AddWriterSchema", request)).table
            assert [w.fingerprint for w in table.writer_schemas] == known

    run(scenario)


def test_heartbeat_of_another_process_counts_anew() -> None:
    """Goal: a restarted server counts from its first heartbeat on, and a late heartbeat of its former process changes
    nothing for long. Method: a first heartbeat after many; a late one of the process before, after which the living one
    is asked for a full report."""

    async def scenario(world: MasterWorld) -> None:
        late = world.beat(S[1], rows=False)
        assert not (await world.done("Heartbeat", world.beat(S[1], process=9, sequence=1))).need_full_report
        assert world.tablet in world.master.soft.servers[S[1]].replicas
        await world.done("Heartbeat", late)
        delta = world.beat(S[1], rows=False, process=9, sequence=2, full_report=False)
        assert (await world.done("Heartbeat", delta)).need_full_report
        await world.done("Heartbeat", world.beat(S[1], process=9, sequence=3))
        assert world.tablet in world.master.soft.servers[S[1]].replicas

    run(scenario)
