"""A value converted to the wire comes back as it was; an impossible one is refused, never an invariant violation."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.raft import AppendEntries, AppendReply, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.rows import Column, ColumnType, PartitionSpec, Predicate, RowError, SourceKey, TableSchema
from nyala.replica.rpc import (
    column_from_pb,
    config_from_pb,
    config_to_pb,
    decision_to_pb,
    edit_from_pb,
    error_from_pb,
    error_to_pb,
    member_from_pb,
    message_from_pb,
    message_to_pb,
    opid_from_pb,
    partition_from_pb,
    partition_to_pb,
    pb,
    predicate_from_pb,
    predicate_to_pb,
    raise_if_error,
    row_errors_from_pb,
    row_errors_to_pb,
    schema_from_pb,
    schema_to_pb,
    source_from_pb,
    source_to_pb,
)
from nyala.replica.types import (
    Action,
    Address,
    Applied,
    Code,
    ConfigEdit,
    DataState,
    Decision,
    EditKind,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    Refused,
    RowCode,
    printable,
)

ENTRY = Entry(OpId(3, 9), EntryKind.WRITE, 77, 2, b"meta", b"payload", 0xF4E36970)
ENVELOPE: dict[str, Any] = {"to_uuid": "a", "from_uuid": "b", "term": 5}


def over_the_wire(message: Any) -> Any:
    """The same message, after serialising and parsing."""
    return type(message).FromString(message.SerializeToString())


@pytest.mark.parametrize(
    "message",
    [
        AppendEntries(prev=OpId(1, 2), entries=(ENTRY,), commit_index=8, round=4, safe_time=99, **ENVELOPE),
        AppendEntries(prev=OpId(0, 0), **ENVELOPE),
        AppendReply(
            code=Code.NOT_READY, mismatch=True, last=OpId(2, 7), conflict_index=3, commit_index=1, round=9,
            applied_index=1, data_state=DataState.COPYING, no_data=True, **ENVELOPE,
        ),
        VoteRequest(last=OpId(4, 4), pre_vote=True, transfer=True, **ENVELOPE),
        VoteReply(granted=True, pre_vote=True, code=Code.OK, reason="why", **ENVELOPE),
        TimeoutNow(last=OpId(1, 1), **ENVELOPE),
    ],
    ids=lambda m: type(m).__name__,
)  # fmt: skip
def test_consensus_message_round_trip(message: Any) -> None:
    """Goal: the core's words survive the wire. Method: every class, every field set."""
    wire = over_the_wire(message_to_pb("t1", message))
    assert (wire.tablet_id, message_from_pb(wire)) == ("t1", message)


def test_append_whose_payload_was_changed_on_the_way_is_refused_whole() -> None:
    """Goal: bytes that changed between two servers never reach a log. Method: flip one bit of the second entry."""
    second = Entry(OpId(3, 10), EntryKind.WRITE, 78, 2, b"", b"payloae", 0xF4E36970)
    message = AppendEntries(prev=OpId(3, 8), entries=(ENTRY, second), commit_index=8, round=4, **ENVELOPE)
    with pytest.raises(Refused, match="does not have its CRC") as caught:
        message_from_pb(over_the_wire(message_to_pb("t1", message)))
    assert caught.value.code is Code.INVALID_BATCH and caught.value.values["opid"] == OpId(3, 10)


def test_consensus_message_that_cannot_be_is_refused() -> None:
    """Goal: a newer or hostile peer is refused. Method: no body, unknown code, state and entry kind."""
    for wire in (
        pb.RaftMessage(),
        pb.RaftMessage(append_reply=pb.AppendReply(code=999)),
        pb.RaftMessage(append_reply=pb.AppendReply(data_state=77)),
        pb.RaftMessage(append_entries=pb.AppendEntries(entries=[pb.Entry(kind=99)])),
    ):
        with pytest.raises(Refused) as caught:
            message_from_pb(wire)
        assert caught.value.code is Code.INVALID_ARGUMENT


def test_config_round_trip() -> None:
    """Goal: configs keep all marks. Method: members with each mark."""
    members = (
        Member("a", (Address("h", 1), Address("i", 65535))),
        Member("b", votes=False, promote=True),
        Member("c", holds_data=False),
        Member("d", replace=True),
        Member("e", promote=True, holds_data=False),
    )
    config = RaftConfig(OpId(2, 3), members, decision=(4, 5), unsafe=True)
    assert config_from_pb(over_the_wire(config_to_pb(config))) == config


@pytest.mark.parametrize(
    "make",
    [
        lambda: member_from_pb(pb.Member(uuid="")),
        lambda: member_from_pb(pb.Member(uuid="a", votes=True, promote=True, holds_data=True)),
        lambda: config_from_pb(pb.RaftConfig(members=[pb.Member(uuid="a"), pb.Member(uuid="a")])),
        lambda: column_from_pb(pb.Column(id=1, name="c", type="complex")),
        lambda: column_from_pb(pb.Column(id=1, name="c", type="int8", default_json=b"{")),
        lambda: predicate_from_pb(pb.Predicate(column="c", op="=", values=b"\xff" * 40)),
    ],
)
def test_value_that_cannot_be_is_refused(make: Any) -> None:
    """Goal: what a peer sends never violates an invariant of ours. Method: one impossible value each."""
    with pytest.raises(Refused) as caught:
        make()
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_error_round_trip_keeps_code_detail_and_what_was_applied() -> None:
    """Goal: the caller gets the code, the detail and whether anything was applied. Method: both kinds of outcome, and a
    code of a newer build."""
    error = Refused(Code.NOT_LEADER, "ask another", applied=Applied.UNKNOWN, detail="u@h:1", tablet="t")
    back = error_from_pb(over_the_wire(error_to_pb(error)))
    assert back is not None
    assert (back.code, back.applied, back.detail) == (error.code, error.applied, error.detail)
    assert str(back) == str(error)
    assert error_from_pb(error_to_pb(None)) is None
    raise_if_error(pb.Error())
    with pytest.raises(Refused) as caught:
        raise_if_error(pb.Error(code=4711, message="new", outcome_unknown=True))
    assert (caught.value.code, caught.value.applied) == (Code.ILLEGAL_STATE, Applied.UNKNOWN)


def test_table_round_trip_keeps_types_defaults_and_splits() -> None:
    """Goal: a table is the same for everybody. Method: decimal and timestamp with defaults and splits."""
    schema = TableSchema(
        4,
        (
            Column(id=1, name="t", type=ColumnType.TIMESTAMP, nullable=False),
            Column(id=7, name="m", type=ColumnType.DECIMAL, precision=7, scale=2, default=decimal.Decimal("0.50")),
        ),
        ("t",),
    )
    spec = PartitionSpec(("t",), 3, range_column="t", range_splits=(dt.datetime(2013, 6, 1, tzinfo=dt.UTC),))
    assert schema_from_pb(over_the_wire(schema_to_pb(schema))) == schema
    assert partition_from_pb(over_the_wire(partition_to_pb(spec, schema)), schema) == spec


@pytest.mark.parametrize(
    "predicate, data_type",
    [
        (Predicate("n", "=", (3,)), pa.int8()),
        (Predicate("n", ">", (1.5,)), pa.int32()),
        (Predicate("n", "<", (1000,)), pa.int8()),
        (Predicate("s", "in", ("a", "b")), pa.string()),
        (Predicate("s", "in", ()), pa.string()),
        (Predicate("s", "is_null", ()), pa.string()),
        (Predicate("t", ">=", (dt.datetime(2013, 1, 1, tzinfo=dt.UTC),)), pa.timestamp("us", tz="UTC")),
        (Predicate("m", "!=", (decimal.Decimal("1.50"),)), pa.decimal128(7, 2)),
    ],
)
def test_predicate_round_trip_keeps_the_condition(predicate: Predicate, data_type: pa.DataType) -> None:
    """Goal: a condition means the same at the tablet. Method: values inside and outside of the column's type."""
    assert predicate_from_pb(over_the_wire(predicate_to_pb(predicate, data_type))) == predicate


def test_source_and_row_errors_round_trip() -> None:
    """Goal: dead letters name the row. Method: both through the wire types."""
    source = SourceKey("cluster", "topic", 3)
    assert source_from_pb(over_the_wire(source_to_pb(source))) == source
    errors = [RowError(5, RowCode.NOT_FOUND, ""), RowError(9, RowCode.NULL_IN_REQUIRED_COLUMN, "c")]
    assert row_errors_from_pb(row_errors_to_pb(errors)) == errors


def test_append_entries_on_the_wire_names_both_ends_the_term_the_previous_position_and_the_entries() -> None:
    """Goal: TC-21. Method: read the bytes that leave with the generated classes alone, field by field."""
    entries = tuple(Entry(OpId(3, i), EntryKind.NOOP, i << 12, 0, b"", b"", 0) for i in (8, 9))
    sent = AppendEntries(to_uuid="b", from_uuid="a", term=3, prev=OpId(2, 7), entries=entries, commit_index=6, round=4)
    wire = pb.RaftMessage.FromString(message_to_pb("t", sent).SerializeToString())
    assert (wire.tablet_id, wire.from_uuid, wire.to_uuid, wire.term) == ("t", "a", "b", 3)
    body = wire.append_entries
    assert (body.prev.term, body.prev.index, body.commit_index, body.round) == (2, 7, 6, 4)
    assert [(e.term, e.index) for e in body.entries] == [(3, 8), (3, 9)]


@pytest.mark.parametrize("action", list(Action))
def test_decision_is_sent_with_all_that_the_leader_compares(action: Action) -> None:
    """CC-28. Goal: a decision carries all that the leader compares, so that it is carried out once. Method: the request
    of each kind has its config position, version and deadline; edits come back as they were."""
    edits = (ConfigEdit(EditKind.ADD, Member("b", votes=False, promote=True)), ConfigEdit(EditKind.REMOVE, Member("c")))
    decision = Decision(
        tablet_id="t", table_id="T", catalog_term=3, version=7, action=action, edits=edits, target_uuid="b",
        config_opid=OpId(2, 9), deadline_us=11,
    )  # fmt: skip
    sent = decision_to_pb(decision, "a")
    assert (sent.dest_uuid, sent.tablet_id, opid_from_pb(sent.committed_config_id)) == ("a", "t", OpId(2, 9))
    assert (sent.has_cas, sent.decision_term, sent.decision_version, sent.deadline_us) == (True, 3, 7, 11)
    if action is Action.TRANSFER_LEADERSHIP:
        assert isinstance(sent, pb.TransferRequest) and sent.target_uuid == "b"
    else:
        assert isinstance(sent, pb.ChangeConfigRequest) and tuple(map(edit_from_pb, sent.edits)) == edits
    with pytest.raises(Refused, match=r"the kind of an edit .*known=add,remove,change"):
        edit_from_pb(pb.ConfigEdit(kind="replace", member=pb.Member(uuid="b")))


HOSTILE = ("a\nb", "\x1b[2Jx", "a\0b", "\u202ereversed", "x" * 10**6, "\n" * 10**6, "")


@pytest.mark.a_third
@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
@pytest.mark.parametrize("code", [Code.ILLEGAL_STATE, 4711])
def test_error_of_a_peer_is_one_bounded_line(text: str, code: int) -> None:
    """IN-82, IN-71. Goal: a peer's error changes no line of a log or of a terminal, and fills neither. Method: texts
    with control characters and without end, as message and as detail, with a known code and with a later build's; one
    passed on by a second peer stays as it is."""
    error = error_from_pb(pb.Error(code=int(code), message=text, detail=text))
    assert error is not None
    for told in (error.what, error.detail):
        assert told.isprintable() and len(told) <= 2000 and (len(text) <= 2000 or told.endswith("…"))
        assert told[:3] == printable(text)[:3]
    assert str(error).isprintable() and len(str(error)) < 2100
    passed_on = error_from_pb(over_the_wire(error_to_pb(error)))
    assert passed_on is not None and passed_on.detail == error.detail and passed_on.what.startswith(error.what[:1900])
