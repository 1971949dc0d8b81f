"""Every call of a tablet server: misaddressed, stale, repeated, overtaken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import CHECKSUM_DEFINITION, encode_batch
from nyala.replica.rpc import address_to_pb, pb
from nyala.replica.types import Code, DataState, hybrid_from_us
from tests.harness.copies import TABLET
from tests.harness.request_table import Late, Row, Stale, case_id, check_table, late_cases, play, play_late
from tests.harness.rows import batch, write_request
from tests.harness.server_calls import NOBODY, ServerWorld, learner, run_server
from tests.harness.server_pair import until

SERVICES = ("TabletService", "CopyService", "PeerService")
T, C = "TabletService", "CopyService"
SECOND = "tablet-2"
LOGGED = ("the log's end", "what is committed")
"""A client's write that comes again is logged again, and finds its result in the ledger."""
SOON, FAR = (hybrid_from_us(1_000_000 + ahead_us) for ahead_us in (5_000_000, 20_000_000))
"""Times ahead of the clock of these tests, within the bound and beyond it."""
MOVED = learner("1", port=2)
"""A member elsewhere than the config says."""
SOURCE = pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=0)
KEYS = encode_batch(pa.record_batch([pa.array([1, 2], pa.int64())], names=["k"]))
NO_TIME = "it names nothing that could be another meanwhile"


def opid(term: int, index: int) -> Any:
    return pb.OpId(term=term, index=index)


def ask(kind: Callable[..., Any], **fields: Any) -> Callable[[ServerWorld], Any]:
    """A request of that kind to the row's server."""
    return lambda world: kind(dest_uuid=world.uuid, **fields)


# ------------------------------------------------------------------------------------------------------------- writes


def put(value: str, **fields: Any) -> Callable[[ServerWorld], Any]:
    """Upsert key 1; by default as a client's write 1."""
    fields = fields or {"client_id": "c", "sequence": 1}
    return lambda world: write_request(world.uuid, TABLET, batch([1], [value]), **fields)


def read(*offsets: int, **fields: Any) -> Callable[[ServerWorld], Any]:
    """Rows of a source, whose keys and values are their offsets, in its generation 2."""
    rows = batch([o % 2 for o in offsets], [str(o) for o in offsets], first_offset=offsets[0])
    fields = {"source": SOURCE, "generation": 2} | fields
    return lambda world: write_request(world.uuid, TABLET, rows, **fields)


def writes(*requests: Callable[[ServerWorld], Any]) -> Callable[[ServerWorld], Awaitable[None]]:
    async def write(world: ServerWorld) -> None:
        for request in requests:
            await world.done(T, "Write", request(world))

    return write


# ------------------------------------------------------------------------------------------------ creation and config


async def with_second(world: ServerWorld) -> None:
    await world.done(T, "CreateTablet", world.creation(SECOND))
    await until(lambda: world.leads(SECOND), "it leads the new tablet")


async def second_deleted(world: ServerWorld) -> None:
    await with_second(world)
    await world.done(T, "DeleteTablet", ask(pb.DeleteTabletRequest, tablet_id=SECOND)(world))


async def other_tables(world: ServerWorld) -> None:
    await world.done(T, "CreateTablet", world.creation(SECOND, "t2"))


async def with_learner(world: ServerWorld) -> None:
    await world.change("add", "1")


def edit(kind: str, member: Any, **fields: Any) -> Callable[[ServerWorld], Any]:
    """A decision about the config in force."""

    def request(world: ServerWorld) -> Any:
        wanted = {"has_cas": True, "committed_config_id": world.opid(), "decision_term": 5, "decision_version": 7}
        edits = [pb.ConfigEdit(kind=kind, member=member)]
        return pb.ChangeConfigRequest(dest_uuid=world.uuid, tablet_id=TABLET, edits=edits, **wanted | fields)

    return request


def foreign_creation(world: ServerWorld) -> Any:
    request = world.creation(SECOND)
    request.config.members[0].uuid = NOBODY
    return request


def misplaced(**fields: int) -> Callable[[ServerWorld], Any]:
    def request(world: ServerWorld) -> Any:
        request = world.creation(SECOND)
        for name, value in fields.items():
            setattr(request, name, value)
        return request

    return request


async def second_changed(world: ServerWorld) -> None:
    await with_second(world)
    request = pb.ChangeConfigRequest(dest_uuid=world.uuid, tablet_id=SECOND)
    request.edits.add(kind="add", member=learner("1"))
    await world.done(T, "ChangeConfig", request)


def abort(world: ServerWorld) -> Any:
    return pb.ChangeConfigRequest(dest_uuid=world.uuid, tablet_id=TABLET, abort=True)


async def changed(world: ServerWorld) -> None:
    await world.change("add", "2")


async def deleted(world: ServerWorld) -> None:
    await world.done(T, "DeleteTablet", deletion()(world))


async def flushed(world: ServerWorld) -> None:
    await world.done(T, "Flush", ask(pb.FlushRequest, tablet_id=TABLET)(world))


async def decided(world: ServerWorld) -> None:
    await world.done(T, "ChangeConfig", edit("add", learner("2"), decision_version=8)(world))


def deletion(**fields: Any) -> Callable[[ServerWorld], Any]:
    def request(world: ServerWorld) -> Any:
        wanted = {"has_cas": True, "committed_config_id": world.opid()}
        return pb.DeleteTabletRequest(dest_uuid=world.uuid, tablet_id=TABLET, **wanted | fields)

    return request


async def status_read(world: ServerWorld) -> None:
    """The row's later requests know the number of changes so far."""
    world.told["changes"] = (await world.done(T, "Quiesce", ask(pb.QuiesceRequest)(world))).changes


def quiesce(wanted: bool, ahead: int = 0) -> Callable[[ServerWorld], Any]:
    """By whom has read the status, and knows of so many changes since."""
    return lambda world: ask(pb.QuiesceRequest, quiesce=wanted, seen=world.told["changes"] + ahead)(world)


async def quiesced_and_not(world: ServerWorld) -> None:
    await world.done(T, "Quiesce", quiesce(True)(world))
    await world.done(T, "Quiesce", quiesce(False, 1)(world))


async def two_voters(world: ServerWorld) -> None:
    world.pair.cut = False
    await world.pair.add_other()
    await world.pair.voting()
    await until(lambda: world.opid("other") == world.opid(), "the other has the config")


def transfer(**fields: Any) -> Callable[[ServerWorld], Any]:
    def request(world: ServerWorld) -> Any:
        wanted = {"has_cas": True, "committed_config_id": world.opid(), "target_uuid": world.pair.other.uuid}
        return pb.TransferRequest(dest_uuid=world.uuid, tablet_id=TABLET, **wanted | fields)

    return request


# -------------------------------------------------------------------------------------------------------------- copies


async def tombstone(world: ServerWorld) -> None:
    """The row's server had the tablet; its leader has more by now."""
    await world.done(T, "CreateTablet", world.creation(TABLET))
    await until(lambda: world.takes_writes("other"), "its first entry is committed")
    await world.done(T, "DeleteTablet", ask(pb.DeleteTabletRequest, tablet_id=TABLET)(world))
    world.told["kept"] = world.pair.other.hosted.last_opid
    for value in "abc":
        await world.write([1, 2], value)


def start_copy(**fields: Any) -> Callable[[ServerWorld], Any]:
    def request(world: ServerWorld) -> Any:
        leader, kept = world.pair.leader, world.told.get("kept")
        wanted: dict[str, Any] = {"term": leader.hosted.term, "current_state": int(DataState.DOES_NOT_EXIST)}
        if kept is not None:
            wanted |= {"current_state": int(DataState.DELETED), "last_opid": opid(*kept)}
        return pb.StartTabletCopyRequest(
            dest_uuid=world.uuid,
            from_uuid=leader.uuid,
            from_addresses=[address_to_pb(leader.address)],
            **wanted | {"tablet_id": TABLET} | fields,
        )

    return request


async def copied(world: ServerWorld) -> None:
    """A copy into the row's server, to its end."""
    await world.done(C, "StartTabletCopy", start_copy()(world))
    await until(lambda: world.pair.other.hosted.running, "the copy runs")


async def copying(world: ServerWorld, **fields: Any) -> None:
    """A copy into the row's server, which stands still."""
    world.hold_copies()
    await world.done(C, "StartTabletCopy", start_copy(**fields)(world))
    await until(world.held.is_set, "the copy asks for bytes")
    world.told["job"] = world.pair.other.jobs.running()[0].started_us


async def copying_again(world: ServerWorld) -> None:
    """The copy was cancelled, and another one is under way."""
    await world.done(C, "CancelCopy", ask(pb.CancelCopyRequest, tablet_id=TABLET)(world))
    world.clock.now_us += 1_000_000
    world.held.clear()
    await copying(world, current_state=int(DataState.DELETED))


def cancel(started_us: int = 0) -> Callable[[ServerWorld], Any]:
    return lambda w: pb.CancelCopyRequest(dest_uuid=w.uuid, tablet_id=TABLET, started_us=started_us or w.told["job"])


def begin(requestor: str = NOBODY, attempt: int = 1) -> Callable[[ServerWorld], Any]:
    fields = {"tablet_id": TABLET, "requestor_uuid": requestor, "requestor_run": "run", "attempt": attempt}
    return ask(pb.BeginCopyRequest, **fields)


async def session(world: ServerWorld) -> None:
    world.told["session"] = (await world.done(C, "BeginCopy", begin()(world))).session_id


async def another_session(world: ServerWorld) -> None:
    await world.done(C, "BeginCopy", begin()(world))


async def another_attempt(world: ServerWorld) -> None:
    await world.done(C, "BeginCopy", begin(attempt=2)(world))


def in_session(kind: Callable[..., Any], **fields: Any) -> Callable[[ServerWorld], Any]:
    return lambda world: kind(dest_uuid=world.uuid, session_id=world.told["session"], **fields)


def reading(call: str, good: Callable[[ServerWorld], Any], *stale: Stale, **more: Any) -> Row:
    return Row(call=call, good=good, reads=True, stale=stale or NO_TIME, **more)


def unnamable(request: Callable[..., Callable[[ServerWorld], Any]]) -> list[Stale]:
    """Ids that name no files of a tablet's own."""
    ids = ("", ".", "../x", "a/b")
    return [Stale(f"with the id {i!r}", request(tablet_id=i), Code.INVALID_ARGUMENT) for i in ids]


def elsewhere(kind: Callable[..., Any], code: int = Code.TABLET_NOT_FOUND, **fields: Any) -> Stale:
    return Stale("about a tablet that is not here", ask(kind, tablet_id=NOBODY, **fields), code)


ROWS = [
    reading("TabletService.GetIdentity", lambda w: pb.Empty()),
    Row(
        call="TabletService.Write",
        prepare=writes(read(0, 1, 2)),
        good=put("a"),
        stale=[
            Stale(
                "about a tablet that is not here", lambda w: pb.WriteRequest(dest_uuid=w.uuid), Code.TABLET_NOT_FOUND
            ),
            Stale("for a table that was dropped", put("x", table_id="t0"), Code.WRONG_TABLE),
        ],
        again_leaves=LOGGED,
        late=[
            Late("behind a later write of its client", writes(put("a"), put("b", client_id="c", sequence=2)), 0),
            Late(
                "when its client waits for it no more",
                writes(put("b", client_id="c", sequence=2, first_incomplete=2)),
                Code.EXPIRED,
            ),
        ],
    ),
    reading("TabletService.OpenWrites", ask(pb.OpenWritesRequest)),
    reading(
        "TabletService.Scan",
        ask(pb.ScanRequest, tablet_id=TABLET, all_columns=True),
        elsewhere(pb.ScanRequest),
        Stale("of a dropped table", ask(pb.ScanRequest, tablet_id=TABLET, table_id="t0"), Code.WRONG_TABLE),
    ),
    reading(
        "TabletService.Get",
        ask(pb.GetRequest, tablet_id=TABLET, all_columns=True, keys=KEYS, count=2),
        elsewhere(pb.GetRequest),
        Stale("of a dropped table", ask(pb.GetRequest, tablet_id=TABLET, table_id="t0"), Code.WRONG_TABLE),
    ),
    reading("TabletService.ListTablets", ask(pb.ListTabletsRequest)),
    Row(
        call="TabletService.CreateTablet",
        good=lambda w: w.creation(SECOND),
        stale=[
            Stale(
                "with an id that another table's tablet has", lambda w: w.creation(TABLET, "t2"), Code.ALREADY_EXISTS
            ),
            Stale("with a config that is not this server's", foreign_creation, Code.INVALID_ARGUMENT),
            Stale("of a bucket that the table has not", misplaced(bucket=9), Code.INVALID_ARGUMENT),
            Stale("of a range that the table has not", misplaced(range_pos=1), Code.INVALID_ARGUMENT),
            *unnamable(lambda tablet_id: lambda w: w.creation(tablet_id)),
        ],
        late=[
            Late("behind the deletion", second_deleted, Code.TABLET_DELETED),
            Late("when another table has the id", other_tables, Code.ALREADY_EXISTS),
            Late("when the replica has another config", second_changed, 0),
        ],
    ),
    Row(
        call="TabletService.DeleteTablet",
        prepare=with_learner,
        good=deletion(),
        stale=[
            elsewhere(pb.DeleteTabletRequest),
            Stale("as of an older config", deletion(committed_config_id=opid(0, 0)), Code.CAS_FAILED),
        ],
        late=[
            Late("behind another config", decided, Code.CAS_FAILED),
            Late("behind another deletion", deleted, 0),
        ],
    ),
    Row(
        call="TabletService.ChangeConfig",
        prepare=with_learner,
        good=edit("remove", learner("1")),
        stale=[
            elsewhere(pb.ChangeConfigRequest),
            Stale("past its deadline", edit("add", learner("2"), deadline_us=1), Code.DEADLINE_PASSED),
            Stale("as of an older config", edit("change", MOVED, committed_config_id=opid(0, 0)), Code.CAS_FAILED),
            Stale("about who is no member", edit("remove", learner("2")), Code.NOT_FOUND),
            Stale("adding a member again", edit("add", MOVED), Code.ALREADY_EXISTS),
            Stale("taking back what is not under way", abort, Code.NOT_FOUND),
        ],
        again=Code.STALE_DECISION,
        late=[
            Late("behind a later decision", decided, Code.STALE_DECISION),
            Late("behind a change that nobody decided", changed, Code.CAS_FAILED),
        ],
    ),
    Row(
        call="TabletService.TransferLeadership",
        prepare=two_voters,
        good=transfer(),
        stale=[
            elsewhere(pb.TransferRequest),
            Stale("past its deadline", transfer(deadline_us=1), Code.DEADLINE_PASSED),
            Stale("as of an older config", transfer(committed_config_id=opid(0, 0)), Code.CAS_FAILED),
            Stale("to who is no member", transfer(target_uuid=NOBODY), Code.NOT_FOUND),
        ],
        again=Code.NOT_LEADER,
        late=[Late("behind another config", changed, Code.CAS_FAILED)],
    ),
    reading(
        "TabletService.Checksum",
        ask(pb.ChecksumRequest, tablet_id=TABLET, definition=CHECKSUM_DEFINITION),
        elsewhere(pb.ChecksumRequest, definition=CHECKSUM_DEFINITION),
        Stale("of a definition of the past", ask(pb.ChecksumRequest, tablet_id=TABLET), Code.INVALID_ARGUMENT),
        Stale("of a later one", ask(pb.ChecksumRequest, tablet_id=TABLET, definition=3), Code.INVALID_ARGUMENT),
    ),
    Row(
        call="TabletService.ServerTime",
        good=ask(pb.ServerTimeRequest, propagated_time=SOON),
        stale=[
            Stale("from too far ahead", ask(pb.ServerTimeRequest, propagated_time=FAR), Code.INVALID_ARGUMENT),
            Stale("of a tablet that is not here", ask(pb.ServerTimeRequest, tablet_ids=["no"]), Code.TABLET_NOT_FOUND),
        ],
        late="an earlier time pushes no clock",
    ),
    reading("TabletService.Lateness", ask(pb.LatenessRequest, last_s=1)),
    reading("TabletService.IsProcess", ask(pb.ProcessRequest, process=1)),
    Row(
        call="TabletService.Quiesce",
        prepare=status_read,
        good=quiesce(True),
        stale=[Stale("of another process, or another state", quiesce(True, -1), Code.CAS_FAILED)],
        late=[Late("behind its end", quiesced_and_not, Code.CAS_FAILED)],
    ),
    reading("TabletService.Ledger", ask(pb.LedgerRequest, tablet_id=TABLET), elsewhere(pb.LedgerRequest)),
    Row(
        call="TabletService.Flush",
        prepare=writes(put("a")),
        good=ask(pb.FlushRequest, tablet_id=TABLET),
        stale=[elsewhere(pb.FlushRequest)],
        late=[Late("behind another flush", flushed, 0)],
    ),
    reading("TabletService.ListQuarantine", ask(pb.QuarantineRequest)),
    Row(
        call="TabletService.PurgeQuarantine",
        prepare=second_deleted,
        good=ask(pb.QuarantineRequest, tablet_id=SECOND),
        stale=[elsewhere(pb.QuarantineRequest)],
        late="what is put aside is nobody's, whenever it was",
    ),
    Row(
        call="CopyService.StartTabletCopy",
        at="other",
        prepare=tombstone,
        good=start_copy(),
        stale=[
            Stale("in an earlier term", start_copy(term=0), Code.BAD_TERM),
            Stale("of a live replica", start_copy(current_state=int(DataState.READY)), Code.ILLEGAL_STATE),
            Stale("over nothing", start_copy(current_state=int(DataState.DOES_NOT_EXIST)), Code.ILLEGAL_STATE),
            Stale("over another log", start_copy(last_opid=opid(1, 1_000)), Code.ILLEGAL_STATE),
            *unnamable(start_copy),
        ],
        again=Code.ILLEGAL_STATE,
        late=[
            Late("behind a copy that has ended", copied, Code.ILLEGAL_STATE),
            Late("behind one that is under way", copying, Code.ALREADY_INPROGRESS),
        ],
    ),
    Row(
        call="CopyService.BeginCopy",
        good=begin(),
        stale=[elsewhere(pb.BeginCopyRequest, requestor_uuid=NOBODY)],
        late=[Late("behind the target's next attempt", another_attempt, Code.CAS_FAILED)],
    ),
    reading(
        "CopyService.OpenFetch",
        in_session(pb.OpenFetchRequest),
        Stale("of a session that has ended", ask(pb.OpenFetchRequest, session_id=NOBODY), Code.EXPIRED),
        prepare=session,
    ),
    Row(
        call="CopyService.EndCopy",
        prepare=session,
        good=in_session(pb.EndCopyRequest),
        stale=[
            Stale("of a session that has ended", ask(pb.EndCopyRequest, session_id=NOBODY), 0),
            Stale("with a doubt about it", ask(pb.EndCopyRequest, session_id=NOBODY, doubted="b"), Code.EXPIRED),
        ],
        late=[Late("behind the target's next session", another_session, 0)],
    ),
    reading("CopyService.ListCopies", ask(pb.ListCopiesRequest)),
    Row(
        call="CopyService.CancelCopy",
        at="other",
        prepare=copying,
        good=cancel(),
        stale=[
            Stale("of an earlier copy", cancel(7), Code.NOT_FOUND),
            Stale("of a tablet that is not copied", ask(pb.CancelCopyRequest, tablet_id=NOBODY), Code.NOT_FOUND),
        ],
        again=Code.NOT_FOUND,
        late=[Late("behind the next copy", copying_again, Code.NOT_FOUND)],
    ),
    Row(
        call="PeerService.OpenLink",
        good=lambda w: pb.OpenLinkRequest(
            dest_uuid=w.uuid, from_uuid=NOBODY, from_address=pb.Address(host="127.0.0.1", port=9)
        ),
        stale=[Stale("from nobody", ask(pb.OpenLinkRequest), Code.INVALID_ARGUMENT)],
        late="where a sender listens is what it said last, and it says so with every link",
    ),
    reading("PeerService.IsProcess", ask(pb.ProcessRequest, process=1, from_uuid=NOBODY)),
]


def run(row: Row, scenario: Callable[[ServerWorld], Awaitable[None]]) -> None:
    run_server(scenario, row.at)


def test_every_call_of_a_tablet_server_has_a_row() -> None:
    """Goal: each call of a tablet server has a documented rule of who may send it, when, and how often. Method: the
    descriptors; every service there is must be in this table or in the masters'."""
    check_table(ROWS, SERVICES)
    assert set(pb.DESCRIPTOR.services_by_name) == {*SERVICES, "MasterService"}


@pytest.mark.a_third
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_misaddressed_stale_and_repeated_calls_leave_everything_as_it_was(row: Row) -> None:
    """TC-73, TC-69. Goal: a call has its effect once, at the server that it names, in the state that it knows. Method:
    for other servers and for nobody, from another time, then as it should be, then the same again; after each, all
    that the servers have on disk and in memory."""

    async def scenario(world: ServerWorld) -> None:
        await play(row, world, world.strangers)

    run(row, scenario)


@pytest.mark.a_third
@pytest.mark.parametrize(("row", "late"), late_cases(ROWS), ids=case_id)
def test_overtaken_calls_leave_everything_as_it_is(row: Row, late: Late) -> None:
    """CC-29, TC-09. Goal: requests may arrive in any order. Method: the good request is made, something else comes
    first, then it arrives; after it, all that the servers have on disk and in memory."""

    async def scenario(world: ServerWorld) -> None:
        await play_late(row, late, world)

    run(row, scenario)
