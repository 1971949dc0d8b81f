"""Every field of every message between replicas, forged: refused with a reason, and nothing changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.consensus_metadata import encode_config
from nyala.replica.raft import AppendEntries, Message, TimeoutNow
from nyala.replica.rows import crc32c
from nyala.replica.rpc import message_to_pb, pb
from nyala.replica.types import (
    Code,
    DataState,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    hybrid_from_us,
    limits,
    next_generation,
)
from nyala.schemas import config_to_avro, encode
from tests.harness.copies import TABLET
from tests.harness.played_replica import (
    CAMPAIGNS,
    CONFIG,
    FOLLOWS,
    LEADER,
    LEADS,
    ME,
    THIRD,
    World,
    append,
    candidate,
    hand_over,
    matched,
    noop,
    vote,
    with_replica,
)

Forge = Callable[[Any], None]
DESIGN = Path(__file__).resolve().parents[3] / "replica" / "transport" / "DESIGN.md"
GOES_ON: dict[int, tuple[Message, ...]] = {
    len(FOLLOWS): (append(3, (3, 2), noop(3, 3), commit=2),),
    len(CAMPAIGNS): (vote(4),),
    len(LEADS): (matched(4, (4, 3)),),
}
"""By how far the group has come: an honest message that must still have its effect."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One field, and what no honest peer puts there. `why`: what the reason says."""

    field: str
    before: tuple[Message, ...]
    honest: Message
    forge: Forge
    why: str


def follows(field: str, why: str, forge: Forge, honest: Message | None = None) -> Row:
    """At a follower in term 3, whose log ends at 3.2, with 3.1 committed."""
    honest = honest or append(3, (3, 2), noop(3, 3), noop(3, 4), commit=2)
    return Row(field=field, before=FOLLOWS, honest=honest, forge=forge, why=why)


def leads(field: str, why: str, forge: Forge, honest: Message | None = None) -> Row:
    """At the leader of term 4, whose log ends at 4.3."""
    return Row(field=field, before=LEADS, honest=honest or matched(4, (4, 3)), forge=forge, why=why)


def campaigns(field: str, why: str, forge: Forge, honest: Message | None = None) -> Row:
    """At a candidate of term 4."""
    return Row(field=field, before=CAMPAIGNS, honest=honest or vote(4), forge=forge, why=why)


def put(path: str, value: Any) -> Forge:
    """Set one field, by its path."""

    def forge(wire: Any) -> None:
        *parents, name = path.split(".")
        for parent in parents:
            wire = wire[int(parent)] if parent.isdigit() else getattr(wire, parent)
        setattr(wire, name, value)

    return forge


def both(*forges: Forge) -> Forge:
    def forge(wire: Any) -> None:
        for one in forges:
            one(wire)

    return forge


def brings(kind: EntryKind, meta: bytes, payload: bytes = b"") -> AppendEntries:
    """A good append, but for what its entry holds."""
    time = noop(3, 3).hybrid_time
    return append(3, (3, 2), Entry(OpId(3, 3), kind, time, 0, meta, payload, crc32c(payload)))


def config_of(*members: Member, decision: tuple[int, int] = (0, 0)) -> bytes:
    return encode_config(RaftConfig(OpId(3, 3), members, decision))


def repeated_member() -> bytes:
    """As no RaftConfig can be."""
    avro = config_to_avro(CONFIG)
    avro["members"].append(avro["members"][0])
    return encode("config_change", {"config": avro, "reserved": b""})


def nothing(_wire: Any) -> None:
    """The message is wrong as it was made."""


def made(field: str, why: str, forged: Message) -> Row:
    return follows(field, why, nothing, forged)


AE, AR, VR = "append_entries", "append_reply", "vote_reply"
FAR = limits.RAFT_TERMS_HONEST_MAX + 1
ROWS = [
    follows("tablet_id", "an id has", put("tablet_id", "../../etc")),
    follows("tablet_id", "an id has", put("tablet_id", "")),
    follows("from_uuid", "goes from", put("from_uuid", THIRD)),
    follows("from_uuid", "goes from", put("from_uuid", "")),
    follows("to_uuid", "goes from", put("to_uuid", THIRD)),
    follows("body", "unknown kind", lambda wire: wire.ClearField(AE)),
    follows("term", "no term", put("term", 0)),
    follows("term", "no term", put("term", -1)),
    follows("term", "above term 3", put("term", FAR)),
    follows("term", "above term 3", put("term", 2**32 - 1)),
    follows("term", "no term", put("term", 0), candidate(THIRD, 4)),
    follows("term", "above term 3", put("term", FAR), candidate(THIRD, 4)),
    follows("term", "no term", put("term", -1), vote(4)),
    follows("term", "no term", put("term", -1), matched(4, (3, 2))),
    follows("append_entries.prev", "no position", put(f"{AE}.prev.index", -1)),
    follows("append_entries.prev", "no position", put(f"{AE}.prev.index", 2**63 - 1)),
    follows("append_entries.prev", "no position", put(f"{AE}.prev.index", 0)),
    follows("append_entries.prev", "no position", put(f"{AE}.prev.term", 0)),
    follows("append_entries.prev", "cannot have", put(f"{AE}.prev.term", 4), append(3, (3, 2))),
    follows("append_entries.prev", "is committed here", nothing, append(3, (2, 1))),
    follows("append_entries.entries.index", "cannot follow", put(f"{AE}.entries.1.index", 5)),
    follows("append_entries.entries.index", "cannot follow", put(f"{AE}.entries.1.index", 3)),
    follows("append_entries.entries.index", "cannot follow", put(f"{AE}.entries.0.index", -3)),
    follows("append_entries.entries.term", "cannot follow", put(f"{AE}.entries.1.term", 2)),
    follows("append_entries.entries.term", "cannot follow", put(f"{AE}.entries.0.term", 0)),
    follows("append_entries.entries.term", "cannot have", put(f"{AE}.entries.1.term", 4)),
    made("append_entries.entries.term", "is committed here", append(3, (0, 0), noop(2, 1), noop(3, 2))),
    follows(
        "append_entries.entries.kind",
        "the kind of an entry is one that this",
        put(f"{AE}.entries.0.kind", 77),
    ),
    follows(
        "append_entries.entries.kind",
        "the kind of an entry is one that this",
        put(f"{AE}.entries.0.kind", -1),
    ),
    follows("append_entries.entries.hybrid_time", "hybrid time", put(f"{AE}.entries.0.hybrid_time", -1)),
    follows(
        "append_entries.entries.hybrid_time",
        "ahead of the clock",
        put(f"{AE}.entries.0.hybrid_time", noop(3, 3).hybrid_time + hybrid_from_us(3_600_000_000)),
    ),
    follows("append_entries.entries.schema_id", "schema id", put(f"{AE}.entries.0.schema_id", -1)),
    follows("append_entries.entries.payload", "does not have its CRC", put(f"{AE}.entries.0.payload", b"x")),
    follows("append_entries.entries.payload_crc", "does not have its CRC", put(f"{AE}.entries.0.payload_crc", 7)),
    made("append_entries.entries.payload", "has content", brings(EntryKind.NOOP, b"", b"x")),
    made("append_entries.entries.payload", "a payload", brings(EntryKind.CONFIG, encode_config(CONFIG), b"x")),
    made("append_entries.entries.payload", "a payload", brings(EntryKind.LEDGER, b"", b"x")),
    made("append_entries.entries.meta", "has content", brings(EntryKind.NOOP, b"x")),
    made("append_entries.entries.meta", "does not decode", brings(EntryKind.CONFIG, b"")),
    made("append_entries.entries.meta", "does not decode", brings(EntryKind.CONFIG, b"\xff" * 40)),
    made("append_entries.entries.meta", "contradicts itself", brings(EntryKind.CONFIG, repeated_member())),
    made("append_entries.entries.meta", "nobody of it", brings(EntryKind.CONFIG, config_of())),
    made("append_entries.entries.meta", "nobody of it", brings(EntryKind.CONFIG, config_of(Member(ME, votes=False)))),
    made(
        "append_entries.entries.meta", "nobody of it", brings(EntryKind.CONFIG, config_of(Member(ME, holds_data=False)))
    ),
    made(
        "append_entries.entries.meta",
        "members, more than",
        brings(EntryKind.CONFIG, config_of(*(Member(f"{n:032x}") for n in range(65)))),
    ),
    made(
        "append_entries.entries.meta", "its decision", brings(EntryKind.CONFIG, config_of(Member(ME), decision=(-1, 0)))
    ),
    made("append_entries.entries.meta", "cannot be decoded", brings(EntryKind.WRITE, b"\xff" * 9, b"rows")),
    made("append_entries.entries.meta", "cannot be decoded", brings(EntryKind.SCHEMA, b"\xff" * 9)),
    made("append_entries.entries.meta", "cannot be decoded", brings(EntryKind.LEDGER, b"\xff" * 9)),
    made("append_entries.entries.meta", "no catalog", brings(EntryKind.CATALOG, b"")),
    follows("append_entries.commit_index", "commit_index is", put(f"{AE}.commit_index", -1)),
    follows("append_entries.commit_index", "commit_index is", put(f"{AE}.commit_index", 2**63 - 1)),
    follows("append_entries.round", "round is", put(f"{AE}.round", -1)),
    follows("append_entries.safe_time", "safe_time is", put(f"{AE}.safe_time", -1)),
    follows("append_entries.safe_time", "ahead of the clock", put(f"{AE}.safe_time", 2**63 - 1)),
    follows("append_entries.quiet", "asks for quiet", put(f"{AE}.quiet", True)),
    made("append_entries", f"{LEADER} leads term 3", append(3, (3, 2), noop(3, 3), sender=THIRD)),
    leads("append_entries", "this replica leads", nothing, append(4, (3, 2), noop(4, 3), sender=THIRD)),
    leads("append_reply.code", "newer build", put(f"{AR}.code", 99)),
    leads("append_reply.code", "no answer", put(f"{AR}.code", int(Code.GAP))),
    leads("append_reply.last", "log ends at 4.3", put(f"{AR}.last.index", 4)),
    leads("append_reply.last", "log ends at 4.3", put(f"{AR}.last.index", 2**62)),
    leads("append_reply.last", "no position", put(f"{AR}.last.index", -1)),
    leads("append_reply.last", "no position", put(f"{AR}.last.term", 0)),
    leads("append_reply.last", "which is 4.3 here", put(f"{AR}.last.term", 3)),
    leads("append_reply.last", "cannot hold", put(f"{AR}.last.term", 5)),
    leads("append_reply.conflict_index", "a conflict", put(f"{AR}.conflict_index", 2)),
    leads("append_reply.conflict_index", "a conflict", put(f"{AR}.mismatch", True)),
    leads(
        "append_reply.conflict_index", "a conflict", both(put(f"{AR}.mismatch", True), put(f"{AR}.conflict_index", 5))
    ),
    leads("append_reply.conflict_index", "conflict_index is", put(f"{AR}.conflict_index", -1)),
    leads("append_reply.commit_index", "log ends at 4.3", put(f"{AR}.commit_index", 4)),
    leads("append_reply.commit_index", "commit_index is", put(f"{AR}.commit_index", -1)),
    leads("append_reply.applied_index", "knows only", put(f"{AR}.applied_index", 1)),
    leads("append_reply.applied_index", "applied_index is", put(f"{AR}.applied_index", -1)),
    leads("append_reply.round", "the latest is", put(f"{AR}.round", 1000)),
    leads("append_reply.round", "round is", put(f"{AR}.round", -1)),
    leads("append_reply.data_state", "newer build", put(f"{AR}.data_state", 9)),
    leads("append_reply.data_state", "data state is", put(f"{AR}.data_state", int(DataState.DELETED))),
    leads("append_reply.quiet", "a conflict", both(put(f"{AR}.mismatch", True), put(f"{AR}.quiet", True))),
    leads(
        "append_reply.mismatch",
        "at once",
        both(put(f"{AR}.code", int(Code.TABLET_DELETED)), put(f"{AR}.mismatch", True)),
    ),
    leads("append_reply", "none was sent", put("term", 5)),
    follows("vote_request.last", "its own term", nothing, candidate(THIRD, 4, (4, 3))),
    follows("vote_request.last", "no position", put("vote_request.last.index", -1), candidate(THIRD, 4)),
    follows("vote_request.transfer", "at once", put("vote_request.pre_vote", True), candidate(THIRD, 4)),
    campaigns("vote_reply.code", "newer build", put(f"{VR}.code", 99)),
    campaigns("vote_reply.granted", "granted in term", put(f"{VR}.code", int(Code.ILLEGAL_STATE))),
    campaigns("vote_reply.granted", "none was asked", put("term", 5)),
    campaigns("vote_reply.granted", "none was asked", both(put("term", 6), put(f"{VR}.pre_vote", True))),
    campaigns("vote_reply.reason", "characters", put(f"{VR}.reason", "x" * 2000)),
    follows("timeout_now.last", "does not end", put("timeout_now.last.term", 2), hand_over(3)),
    follows("timeout_now.last", "no position", put("timeout_now.last.index", 0), hand_over(3)),
    follows("timeout_now", f"{LEADER} leads", nothing, replace(hand_over(3), from_uuid=THIRD)),
    follows(
        "timeout_now", "hands over term 4", nothing, TimeoutNow(to_uuid=ME, from_uuid=THIRD, term=4, last=OpId(4, 3))
    ),
    leads(
        "timeout_now", "this replica leads", nothing, TimeoutNow(to_uuid=ME, from_uuid=THIRD, term=4, last=OpId(4, 3))
    ),
]

BOTH_VALUES_ARE_HONEST = {
    "append_reply.no_data": "a witness's disk or not: each replica says what it has",
    "vote_request.pre_vote": "both are asked",
    "vote_reply.pre_vote": "both are answered; a late one is not counted",
}


def fields_of(message: Any, prefix: str = "") -> set[str]:
    """Paths of all fields, into entries; positions count as one."""
    found = set()
    for field in message.DESCRIPTOR.fields:
        path = f"{prefix}{field.name}"
        inner = field.message_type
        if inner is None or inner.name == "OpId":
            found.add(path)
        else:
            found |= fields_of(inner._concrete_class, f"{path}.")
    return found


def test_every_field_has_a_row_and_stands_in_the_design() -> None:
    """IN-50. Goal: each field of a message has a documented rule for its values. Method: the descriptors of what a
    batch carries, against the rows here and against the table of the folder's design page."""
    rows = {row.field for row in ROWS} | BOTH_VALUES_ARE_HONEST.keys()
    fields = fields_of(pb.RaftMessage)
    assert fields - rows == set()
    assert rows - fields - {"body", *(f.name for f in pb.RaftMessage.DESCRIPTOR.oneofs[0].fields)} == set()
    page = DESIGN.read_text()
    assert [f for f in sorted(fields) if f"`{f}`" not in page] == []


@pytest.mark.a_third
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.field}: {row.why}")
def test_forged_field_is_refused_with_a_reason_and_nothing_changes(row: Row, caplog: pytest.LogCaptureFixture) -> None:
    """IN-50. Goal: an impossible message ends nothing and changes nothing. Method: an honest message of a member, with
    one field forged, as bytes of a batch: what the replica has on disk and in every field of its memory stays, nothing
    is sent, the refusal is counted and told with its reason, the link goes on, nothing fatal happens; then an honest
    message of the same moment has its effect."""
    wire = message_to_pb(TABLET, row.honest)
    row.forge(wire)

    async def scenario(world: World) -> None:
        await world.settled()
        before, memory = world.state(), world.memory()
        goes_on, said = await world.receive(row.honest.from_uuid, wire)
        assert (world.state(), world.memory()) == (before, memory)
        assert (said, goes_on, world.peers.refusals.count, world.fatal) == ([], True, 1, [])
        assert row.why in caplog.text and "nothing was changed" in caplog.text
        good = GOES_ON[len(row.before)][0]
        await world.receive(good.from_uuid, message_to_pb(TABLET, good))
        assert world.state() != before and world.peers.refusals.count == 1

    with_replica(row.before, scenario)


@pytest.mark.deep
def test_batch_that_no_sender_makes_ends_its_link_and_delivers_nothing() -> None:
    """IN-50. Goal: names are checked before messages, and one batch costs bounded time. Method: batches in which
    another server is named as sender or receiver, and one of more messages than fit an honest one: the link ends; bytes
    that are no batch likewise; nothing reaches the replica, and the next batch does."""
    good = message_to_pb(TABLET, GOES_ON[len(FOLLOWS)][0])
    many = [pb.RaftMessage()] * (limits.PEER_BATCH_MESSAGES_MAX + 1)

    async def scenario(world: World) -> None:
        await world.settled()
        before = world.state(), world.memory()
        for forged in ({"from_uuid": THIRD}, {"dest_uuid": THIRD}, {"dest_uuid": ""}):
            assert await world.receive(LEADER, good, **forged) == (False, [])
        assert await world.receive(LEADER, good, *many) == (False, [])
        assert not world.peers._take(LEADER, b"\xff" * 40, True)
        assert not world.peers._take(LEADER, b"\x22\x00" * (1 << 20), True)  # a million messages of two bytes, unparsed
        entries = pb.RaftMessage(append_entries=pb.AppendEntries(entries=[pb.Entry()] * (1 << 20)))
        assert await world.receive(LEADER, entries) == (False, [])
        assert not world.peers._take(LEADER, b"\x22" * (2 << 20), True)
        assert (world.state(), world.memory()) == before
        assert world.peers.refusals.count == 8
        goes_on, said = await world.receive(LEADER, good)
        assert goes_on and said and world.peers.refusals.count == 8

    with_replica(FOLLOWS, scenario)


@pytest.mark.parametrize("granted", [True, False])
def test_answer_of_a_server_without_a_say_is_not_counted(granted: bool) -> None:
    """IN-50. Goal: votes and terms of servers outside the config elect and depose no leader. Method: a candidate gets a
    vote, or a denial of a higher term, and a leader an answer of a higher term, from a server that is in no config. A
    removed member's late answer looks the same, so it is no refusal. Nothing changes; then the member's vote elects."""
    stranger = "f" * 32

    async def candidates(world: World) -> None:
        await world.settled()
        before = world.state()
        forged = replace(vote(4, granted=granted), from_uuid=stranger)
        await world.receive(stranger, message_to_pb(TABLET, forged if granted else replace(forged, term=9)))
        assert world.state() == before and world.fatal == []
        assert world.manager.get(TABLET).replica._executor.core._s.election.votes == {ME: True}  # type: ignore[union-attr]
        await world.take(vote(4))
        assert world.state()["term and role"] == (4, "LEADER")
        before = world.state()
        higher = replace(matched(9, (4, 3), code=Code.INVALID_TERM), from_uuid=stranger)
        await world.receive(stranger, message_to_pb(TABLET, higher))
        assert world.state() == before and world.fatal == []

    with_replica(CAMPAIGNS, candidates)


def test_peer_that_goes_on_forging_fills_no_log(caplog: pytest.LogCaptureFixture) -> None:
    """IN-50. Goal: refusals are counted, and logged at a bounded rate. Method: a thousand of them in one batch: one
    line, with its reason; the count has all."""
    wire = message_to_pb(TABLET, GOES_ON[len(FOLLOWS)][0])
    wire.term = 0

    async def scenario(world: World) -> None:
        await world.receive(LEADER, *[wire] * 1000)
        assert world.peers.refusals.count == 1000

    with_replica(FOLLOWS, scenario)
    assert caplog.text.count("nothing was changed") == 1


@pytest.mark.a_third
@pytest.mark.parametrize("field", ["from_uuid", "dest_uuid"])
def test_names_of_a_batch_forge_no_line_of_the_log_and_fill_no_log(
    field: str, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-50, IN-82. Goal: a process that only reaches the port writes nothing of its own into the log, and little in
    all. Method: batches that name another server by a million characters with new lines, a hundred times: one line,
    which is short and printable."""
    name = "x\nP forged \x1b[2J" * 70_000

    async def scenario(world: World) -> None:
        for _ in range(100):
            assert await world.receive(LEADER, **{field: name}) == (False, [])
        assert world.peers.refusals.count == 100

    with_replica(FOLLOWS, scenario)
    (line,) = [record.getMessage() for record in caplog.records if record.name == "nyala.transport"]
    assert line.isprintable() and len(line) < 600 and "a batch" in line


def test_term_of_a_later_generation_is_refused_at_a_tombstone_too() -> None:
    """IN-50. Goal: a tombstone refuses an impossible term too, because it would keep it for good. Method: a request for
    a vote in a term as no group has reached it, at a server that holds only a tombstone of the tablet: refused, and its
    metadata stay as they are."""

    async def scenario(world: World) -> None:
        hosted = world.manager.get(TABLET)
        await world.manager.delete(TABLET, None, "")
        before = hosted.term
        world.sent.clear()
        for term in (FAR, next_generation(3) + FAR, 2**62):
            request = message_to_pb(TABLET, candidate(THIRD, term, (3, 2)))
            batch = pb.PeerBatch(from_uuid=THIRD, dest_uuid=ME, messages=[request])
            assert world.peers._take(THIRD, batch.SerializeToString(), True)
        assert world.peers.refusals.count == 3 and hosted.term == before and world.sent == []

    with_replica(FOLLOWS, scenario)
