"""Messages that no honest peer sends: both sides of each bound of each field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nyala.replica.raft import (
    AppendEntries,
    AppendReply,
    Message,
    TimeoutNow,
    VoteReply,
    VoteRequest,
    invalid_config_reason,
    invalid_reason,
    is_position,
    unheld_reason,
)
from nyala.replica.types import (
    MAX_HYBRID_TIME,
    Address,
    Code,
    Corruption,
    DataState,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    limits,
)
from tests.harness.raft_net import config_of, encode_config
from tests.harness.raft_solo import Solo, entry

TERM, INDEX = limits.RAFT_TERM_MAX, limits.RAFT_INDEX_MAX
BETWEEN: dict[str, str] = {"to_uuid": "a", "from_uuid": "b"}
APPEND = AppendEntries(**BETWEEN, term=3, prev=OpId(2, 5), entries=(entry(2, 6), entry(3, 7)), commit_index=5, round=1)
BEAT = replace(APPEND, entries=())
REPLY = AppendReply(**BETWEEN, term=3, last=OpId(2, 5), commit_index=4, round=1, applied_index=3)
MISMATCH = replace(REPLY, mismatch=True, conflict_index=5)
NO_LOG = replace(REPLY, code=Code.TABLET_NOT_FOUND)
ASKS = VoteRequest(**BETWEEN, term=3, last=OpId(2, 5))
GRANTS = VoteReply(**BETWEEN, term=3, granted=True)
DENIES = replace(GRANTS, granted=False, code=Code.ILLEGAL_STATE)
HANDS_OVER = TimeoutNow(**BETWEEN, term=3, last=OpId(3, 5))


def holding(**fields: Any) -> AppendEntries:
    """An append with one entry, with such fields."""
    return replace(APPEND, entries=(entry(3, 6)._replace(**fields),))


POSSIBLE: list[Message] = [
    APPEND, BEAT, REPLY, MISMATCH, NO_LOG, ASKS, GRANTS, DENIES, HANDS_OVER,
    replace(BEAT, term=TERM),
    replace(ASKS, term=1, last=OpId(0, 0)),
    replace(HANDS_OVER, term=1, last=OpId(1, 1)),
    replace(DENIES, term=0),
    replace(NO_LOG, term=0, last=OpId(0, 0)),
    replace(BEAT, prev=OpId(0, 0)),
    replace(BEAT, prev=OpId(3, INDEX)),
    replace(BEAT, commit_index=0, round=0, safe_time=0),
    replace(BEAT, commit_index=INDEX, round=INDEX, safe_time=MAX_HYBRID_TIME),
    replace(BEAT, quiet=True),
    holding(hybrid_time=0, schema_id=0),
    holding(hybrid_time=MAX_HYBRID_TIME, schema_id=(1 << 31) - 1),
    holding(kind=EntryKind.NOOP, payload=b""),
    holding(kind=EntryKind.CONFIG, meta=b"x", payload=b""),
    replace(REPLY, last=OpId(0, 0), commit_index=0, round=0, applied_index=0),
    replace(REPLY, last=OpId(3, INDEX), commit_index=INDEX, round=INDEX, applied_index=INDEX),
    replace(REPLY, quiet=True),
    replace(REPLY, no_data=True),
    replace(MISMATCH, conflict_index=6),
    replace(NO_LOG, data_state=DataState.DOES_NOT_EXIST),
    replace(NO_LOG, last=OpId(9, 5), applied_index=9),
    replace(ASKS, pre_vote=True),
    replace(ASKS, transfer=True),
    replace(DENIES, reason="x" * limits.VOTE_REASON_CHARS_MAX),
]  # fmt: skip
IMPOSSIBLE: list[Message] = [
    *(replace(message, from_uuid=uuid) for message in (APPEND, REPLY, ASKS, DENIES, HANDS_OVER) for uuid in ("", "a")),
    *(replace(message, term=TERM + 1) for message in (BEAT, REPLY, ASKS, DENIES)),
    replace(HANDS_OVER, term=TERM + 1, last=OpId(TERM + 1, 5)),
    *(replace(message, term=0, prev=OpId(0, 0)) for message in (BEAT,)),
    replace(ASKS, term=0, last=OpId(0, 0)),
    replace(HANDS_OVER, term=0, last=OpId(0, 0)),
    *(replace(message, term=-1) for message in (REPLY, DENIES)),
    *(replace(message, last=OpId(2, 0)) for message in (REPLY, NO_LOG, ASKS)),
    replace(HANDS_OVER, last=OpId(2, 5)),
    replace(ASKS, last=OpId(3, 5)),
    replace(ASKS, pre_vote=True, transfer=True),
    replace(BEAT, prev=OpId(2, 0)),
    replace(BEAT, prev=OpId(4, 5)),
    replace(APPEND, prev=OpId(2, 0), entries=(entry(2, 1),)),
    replace(APPEND, entries=(entry(2, 7),)),
    replace(APPEND, entries=(entry(2, 6), entry(2, 6))),
    replace(APPEND, entries=(entry(1, 6),)),
    replace(APPEND, entries=(entry(3, 6), entry(2, 7))),
    replace(APPEND, entries=(entry(4, 6),)),
    replace(APPEND, prev=OpId(2, INDEX), entries=(entry(3, INDEX + 1),)),
    replace(BEAT, commit_index=-1),
    replace(BEAT, commit_index=INDEX + 1),
    replace(BEAT, round=-1),
    replace(BEAT, round=INDEX + 1),
    replace(BEAT, safe_time=-1),
    replace(BEAT, safe_time=MAX_HYBRID_TIME + 1),
    replace(APPEND, quiet=True),
    holding(hybrid_time=-1),
    holding(hybrid_time=MAX_HYBRID_TIME + 1),
    holding(schema_id=-1),
    holding(schema_id=1 << 31),
    holding(kind=EntryKind.NOOP, payload=b"x"),
    holding(kind=EntryKind.NOOP, meta=b"x", payload=b""),
    holding(kind=EntryKind.CONFIG, meta=b"x", payload=b"x"),
    replace(REPLY, code=Code.GAP),
    replace(REPLY, commit_index=-1),
    replace(REPLY, commit_index=INDEX + 1),
    replace(REPLY, round=-1),
    replace(REPLY, round=INDEX + 1),
    replace(REPLY, applied_index=-1),
    replace(NO_LOG, applied_index=INDEX + 1),
    replace(MISMATCH, conflict_index=-1),
    replace(MISMATCH, last=OpId(2, INDEX), conflict_index=INDEX + 1),
    replace(REPLY, data_state=DataState.COPYING),
    replace(REPLY, last=OpId(4, 5)),
    replace(REPLY, applied_index=5),
    replace(REPLY, conflict_index=1),
    replace(MISMATCH, conflict_index=4),
    replace(MISMATCH, conflict_index=7),
    replace(MISMATCH, quiet=True),
    replace(NO_LOG, mismatch=True),
    replace(NO_LOG, quiet=True),
    replace(NO_LOG, conflict_index=1),
    replace(GRANTS, code=Code.ILLEGAL_STATE),
    replace(GRANTS, term=0),
    replace(DENIES, reason="x" * (limits.VOTE_REASON_CHARS_MAX + 1)),
]  # fmt: skip


def test_messages_on_the_honest_side_of_each_bound_are_taken_and_those_beyond_it_are_not() -> None:
    """IN-50. Goal: every message that a replica can send is accepted, and an impossible one is refused. Method:
    messages of every kind; each field at its bounds, and one step beyond them."""
    assert [message for message in POSSIBLE if invalid_reason(message)] == []
    assert [message for message in IMPOSSIBLE if not invalid_reason(message)] == []


def test_position_has_both_numbers_or_none() -> None:
    """Goal: IN-50. Method: both sides of each bound."""
    good = [OpId(0, 0), OpId(1, 1), OpId(TERM, 1), OpId(1, INDEX)]
    bad = [OpId(0, 1), OpId(1, 0), OpId(-1, -1), OpId(1, -1), OpId(-1, 1), OpId(TERM + 1, 1), OpId(1, INDEX + 1)]
    assert [is_position(opid) for opid in good] == [True] * len(good)
    assert [is_position(opid) for opid in bad] == [False] * len(bad)


def placed(host: str, port: int) -> RaftConfig:
    return RaftConfig(OpId(1, 1), (Member("a", (Address("h", 1), Address(host, port))),))


def test_config_that_a_leader_can_have_appended_is_taken_and_no_other() -> None:
    """Goal: IN-50, I4. Method: both sides of each bound."""
    most = [f"{n:02d}" for n in range(limits.CONFIG_MEMBERS_MAX - 1)]
    good = [
        config_of("a"),
        config_of("a", most),
        placed("h" * limits.HOST_CHARS_MAX, 0),
        placed("", 65535),
        RaftConfig(OpId(1, 1), (Member("a"),), (0, 0)),
    ]
    bad = [
        config_of(""),
        config_of("", "a"),
        RaftConfig(OpId(1, 1), (Member("a", holds_data=False), Member("b", votes=False))),
        config_of("a", [*most, "x"]),
        placed("h" * (limits.HOST_CHARS_MAX + 1), 1),
        placed("h", -1),
        placed("h", 65536),
        RaftConfig(OpId(1, 1), (Member("a"),), (-1, 0)),
        RaftConfig(OpId(1, 1), (Member("a"),), (0, -1)),
    ]
    assert [config for config in good if invalid_config_reason(config)] == []
    assert [config for config in bad if not invalid_config_reason(config)] == []


def held_config(**changes: Any) -> RaftConfig:
    return replace(RaftConfig(OpId(1, 1), (Member("a", (Address("h", 1),)),)), **changes)


def at_places(*addresses: Address) -> RaftConfig:
    return held_config(members=(Member("a", addresses),))


def test_config_that_a_replica_can_hold_as_committed_is_taken_and_no_other() -> None:
    """Goal: IN-50. Method: both sides of each bound, and the reason."""
    most = limits.REPEATED["Member.addresses"]
    places = [Address("h", n + 1) for n in range(most + 1)]
    highest = limits.NUMBER_MAX
    good = [
        held_config(),
        held_config(opid=OpId(0, 0)),
        held_config(opid=OpId(TERM, INDEX), decision=(highest, highest), unsafe=True),
        at_places(),
        at_places(*places[:most]),
    ]
    bad = {
        "nobody of it could lead": held_config(members=()),
        f"{TERM + 1}.1 is no position of a log": held_config(opid=OpId(TERM + 1, 1)),
        f"1.{INDEX + 1} is no position of a log": held_config(opid=OpId(1, INDEX + 1)),
        "-1.1 is no position of a log": held_config(opid=OpId(-1, 1)),
        "1.-1 is no position of a log": held_config(opid=OpId(1, -1)),
        f"its decision is ({highest + 1}, 0)": held_config(decision=(highest + 1, 0)),
        f"its decision is (0, {highest + 1})": held_config(decision=(0, highest + 1)),
        f"a has {most + 1} addresses": at_places(*places),
        ":1 of a lacks a host or a port": at_places(Address("", 1)),
        "h:0 of a lacks a host or a port": at_places(Address("h", 1), Address("h", 0)),
    }
    assert [config for config in good if unheld_reason(config)] == []
    assert [unheld_reason(config) for config in bad.values()] == list(bad)


def leader() -> Solo:
    """Return a leader of term 2, with the entries 1.1 to 1.3 and 2.4, of which all are committed; `b` was sent one
    heartbeat round."""
    solo = Solo(term=1, entries=[entry(1, index) for index in range(1, 4)])
    solo.lead()
    solo.ack("b", 4)
    solo.core.propose(EntryKind.WRITE, 1, 1, b"", b"v", 0)
    solo.persist()
    solo.core.tick()
    solo.persist()
    return solo


def follower() -> Solo:
    """Return a follower of `b` in term 2, with the entries 1.1, 1.2, 2.3, of which two are committed."""
    solo = Solo(term=1, entries=[entry(1, 1), entry(1, 2)])
    solo.step(solo.append(2, OpId(1, 2), entry(2, 3), commit=2))
    return solo


def candidate() -> Solo:
    """Of term 2."""
    solo = Solo(term=1)
    solo.core.campaign()
    solo.persist()
    solo.step(VoteReply(**BETWEEN, term=2, granted=True, pre_vote=True))
    return solo


def changing(**fields: Any) -> AppendEntries:
    """An append of the follower's leader, which brings a config."""
    config = entry(2, 4, b"", EntryKind.CONFIG)._replace(**fields)
    return AppendEntries(**BETWEEN, term=2, prev=OpId(2, 3), entries=(config,))


def test_message_that_contradicts_what_is_certain_here_is_refused_and_what_is_late_is_not() -> None:
    """IN-50. Goal: a message that contradicts the replica's own state is refused; a true answer that is late is not.
    Method: a leader, a follower and a candidate; messages that can be, and ones beside them that cannot."""
    ack = AppendReply(**BETWEEN, term=2, last=OpId(2, 4), commit_index=4, round=leader().core._s.lead.round)
    beat = AppendEntries(**BETWEEN, term=2, prev=OpId(2, 3), commit_index=2)
    good_config = encode_config(config_of("abc"))
    cases: list[tuple[Solo, list[Message], list[Message]]] = [
        (
            leader(),
            [
                ack,
                replace(ack, last=OpId(2, 5), commit_index=5),
                replace(ack, round=0, last=OpId(0, 0), commit_index=0),
                replace(ack, mismatch=True, conflict_index=9, last=OpId(1, 9)),
                replace(ack, term=1, last=OpId(1, 99)),
                replace(ack, term=3, code=Code.INVALID_TERM),
                replace(ack, term=3, code=Code.TABLET_NOT_FOUND, round=99, last=OpId(3, 99)),
                replace(ack, code=Code.TABLET_NOT_FOUND, round=99, commit_index=99),
                replace(beat, term=1, prev=OpId(1, 3)),
                replace(beat, term=3, prev=OpId(2, 4)),
                TimeoutNow(**BETWEEN, term=1, last=OpId(1, 3)),
                VoteRequest(**BETWEEN, term=2, last=OpId(1, 3)),
                VoteRequest(to_uuid="z", from_uuid="b", term=TERM, last=OpId(1, 3)),
                replace(beat, to_uuid="z"),
                VoteRequest(**BETWEEN, term=(limits.RAFT_GENERATION_JUMP_MAX + 5) << 32, last=OpId(1, 3)),
            ],
            [
                replace(ack, term=3),
                replace(ack, round=ack.round + 1),
                replace(ack, commit_index=6),
                replace(ack, mismatch=True, conflict_index=7, last=OpId(1, 9), commit_index=6),
                replace(ack, last=OpId(2, 6)),
                replace(ack, last=OpId(1, 4)),
                replace(ack, last=OpId(2, 3)),
                beat,
                TimeoutNow(**BETWEEN, term=2, last=OpId(2, 4)),
            ],
        ),
        (
            follower(),
            [
                beat,
                replace(beat, prev=OpId(1, 2), entries=(entry(2, 3),)),
                replace(beat, prev=OpId(1, 1), entries=(entry(1, 2), entry(2, 3))),
                replace(beat, term=3, from_uuid="c", prev=OpId(1, 2), entries=(entry(3, 3),)),
                replace(beat, term=3, from_uuid="c", prev=OpId(3, 3)),
                changing(meta=good_config),
                TimeoutNow(**BETWEEN, term=2, last=OpId(2, 3)),
                AppendReply(to_uuid="a", from_uuid="c", term=2, last=OpId(2, 99), commit_index=99, round=99),
            ],
            [
                replace(beat, from_uuid="c"),
                replace(beat, prev=OpId(2, 2)),
                replace(beat, prev=OpId(1, 1), entries=(entry(2, 2), entry(2, 3))),
                replace(beat, term=3, from_uuid="c", prev=OpId(3, 1)),
                changing(meta=encode_config(config_of(""))),
                TimeoutNow(to_uuid="a", from_uuid="c", term=2, last=OpId(2, 3)),
                TimeoutNow(to_uuid="a", from_uuid="c", term=3, last=OpId(3, 3)),
                replace(beat, term=limits.RAFT_TERMS_HONEST_MAX + 1),
            ],
        ),
        (
            candidate(),
            [
                VoteReply(**BETWEEN, term=2, granted=True),
                VoteReply(**BETWEEN, term=3, granted=True, pre_vote=True),
                VoteReply(**BETWEEN, term=9, granted=False),
                VoteReply(**BETWEEN, term=1, granted=True),
            ],
            [
                VoteReply(**BETWEEN, term=3, granted=True),
                VoteReply(**BETWEEN, term=4, granted=True, pre_vote=True),
            ],
        ),
    ]
    for solo, possible, contradicting in cases:
        assert [message for message in possible if solo.core.refusal(message)] == []
        assert [message for message in contradicting if not solo.core.refusal(message)] == []


def test_config_that_does_not_decode_is_refused_with_the_reason() -> None:
    """Goal: IN-50: an entry that would stop every restart is not appended. Method: a decoder that refuses all bytes."""

    def decode(meta: bytes) -> RaftConfig:
        raise Corruption("no config")

    solo = follower()
    solo.core._s.decode_config = decode
    assert "no config" in solo.core.refusal(changing(meta=b"x"))
    assert solo.core.refusal(changing(kind=EntryKind.WRITE, meta=b"x")) == ""
