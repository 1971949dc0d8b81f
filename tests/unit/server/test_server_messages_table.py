"""Every message between replicas, at a server: misaddressed, stale, repeated, overtaken."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from nyala.replica.raft import AppendReply, Message, VoteReply
from nyala.replica.rpc import pb
from tests.harness.played_replica import (
    CAMPAIGNS,
    DEPOSED,
    FOLLOWS,
    LEADER,
    LEADS,
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


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of message, at a replica that was sent `before`. `late`: what overtakes the good one."""

    kind: str
    before: tuple[Message, ...]
    good: Message
    stale: tuple[Message, ...]
    late: tuple[tuple[Message, ...], ...]


ROWS = [
    Row(
        kind="append_entries",
        before=FOLLOWS,
        good=append(3, (3, 2), noop(3, 3), commit=2),
        stale=(append(2, (2, 2), noop(2, 3), commit=3), append(3, (0, 0), noop(3, 1), commit=1), append(3, (0, 0))),
        late=((append(3, (3, 2), noop(3, 3), noop(3, 4), commit=3),), (DEPOSED,)),
    ),
    Row(
        kind="append_reply",
        before=LEADS,
        good=matched(4, (4, 3)),
        stale=(matched(3, (4, 3)), matched(4, (3, 2)), matched(4, (3, 1), mismatch=True, conflict_index=1)),
        late=((matched(4, (4, 3), commit_index=3),), (DEPOSED,)),
    ),
    Row(
        kind="vote_request",
        before=FOLLOWS,
        good=candidate(THIRD, 4),
        stale=(candidate(THIRD, 2), candidate(THIRD, 3)),
        late=((candidate(LEADER, 4),), (candidate(LEADER, 5),), (DEPOSED,)),
    ),
    Row(
        kind="vote_reply",
        before=CAMPAIGNS,
        good=vote(4),
        stale=(vote(3), vote(3, pre_vote=True), vote(4, pre_vote=True)),
        late=((vote(4),), (DEPOSED,)),
    ),
    Row(
        kind="timeout_now",
        before=FOLLOWS,
        good=hand_over(3),
        stale=(hand_over(2),),
        late=((hand_over(3),), (DEPOSED,), (candidate(THIRD, 4),)),
    ),
]


def promises(message: Message) -> bool:
    """Whether it tells its receiver that entries are durable here, or that a vote is."""
    if isinstance(message, VoteReply):
        return message.granted
    return isinstance(message, AppendReply) and not message.code and not message.mismatch


def test_every_kind_of_message_has_a_row() -> None:
    """Goal: each kind of message has a documented order. Method: the descriptor."""
    body = pb.RaftMessage.DESCRIPTOR.oneofs_by_name["body"]
    assert [row.kind for row in ROWS] == [field.name for field in body.fields]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.kind)
def test_misaddressed_stale_and_repeated_messages_leave_the_replica_as_it_was(row: Row) -> None:
    """TC-22, TC-73. Goal: a replica heeds what is meant for it, in its term or a later one, once. Method: the good
    message for another server, older ones, the good one, and that again; after each, what the replica has on disk and
    in memory, and that nothing was promised to whoever meant another."""

    async def scenario(world: World) -> None:
        before = world.state()
        said = await world.take(replace(row.good, to_uuid="d" * 32))
        assert world.state() == before and not any(map(promises, said)), said
        for stale in row.stale:
            await world.take(stale)
            assert world.state() == before, stale
        await world.take(row.good)
        after = world.state()
        assert after != before
        await world.take(row.good)
        assert world.state() == after

    with_replica(row.before, scenario)


CASES = [(row, overtaking) for row in ROWS for overtaking in row.late]


@pytest.mark.a_third
@pytest.mark.parametrize(("row", "overtaking"), CASES, ids=lambda half: getattr(half, "kind", None))
def test_overtaken_messages_leave_the_replica_as_it_is(row: Row, overtaking: tuple[Message, ...]) -> None:
    """TC-22. Goal: messages may arrive in any order: no log is cut, no commit index, term or vote goes back. Method:
    later ones are taken first, then the good one; what the replica has on disk and in memory is as before it."""

    async def scenario(world: World) -> None:
        for message in overtaking:
            await world.take(message)
        before = world.state()
        await world.take(row.good)
        assert world.state() == before

    with_replica(row.before, scenario)
