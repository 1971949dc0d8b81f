"""Every message between replicas, at a server: misaddressed, stale, said twice, overtaken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from nyala.replica.base import Address, Entry, EntryKind, Member, OpId, RaftConfig, hybrid_from_us
from nyala.replica.cmeta import path_of
from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.rpc import pb
from nyala.replica.server.lanes import drained
from nyala.replica.server.manager import TabletManager
from nyala.replica.tablet import superblock_path
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock
from tests.harness.managers import new_manager

ME, LEADER, THIRD = TARGET_UUID, "a" * 32, "c" * 32
CONFIG = RaftConfig(OpId(0, 0), tuple(Member(uuid, (Address("h", 1),)) for uuid in (LEADER, ME, THIRD)))
ROUNDS = 6
"""Each message's way through log, metadata and apply is shorter than this."""


def noop(term: int, index: int) -> Entry:
    return Entry(OpId(term, index), EntryKind.NOOP, hybrid_from_us(1_000_000) + index, 0, b"", b"", 0)


def append(term: int, prev: tuple[int, int], *entries: Entry, commit: int = 0, sender: str = LEADER) -> AppendEntries:
    return AppendEntries(
        to_uuid=ME, from_uuid=sender, term=term, prev=OpId(*prev), entries=entries, commit_index=commit
    )


def matched(term: int, last: tuple[int, int], **fields: Any) -> AppendReply:
    return AppendReply(to_uuid=ME, from_uuid=LEADER, term=term, last=OpId(*last), **fields)


def candidate(uuid: str, term: int, last: tuple[int, int] = (3, 9)) -> VoteRequest:
    """Of a transfer, for which no live leader counts."""
    return VoteRequest(to_uuid=ME, from_uuid=uuid, term=term, last=OpId(*last), transfer=True)


def vote(term: int, **fields: Any) -> VoteReply:
    return VoteReply(to_uuid=ME, from_uuid=THIRD, term=term, **{"granted": True} | fields)


def hand_over(term: int) -> TimeoutNow:
    return TimeoutNow(to_uuid=ME, from_uuid=LEADER, term=term, last=OpId(3, 2))


FOLLOWS: tuple[Message, ...] = (append(3, (0, 0), noop(3, 1), noop(3, 2), commit=1),)
CAMPAIGNS = (*FOLLOWS, hand_over(3))
LEADS = (*CAMPAIGNS, vote(4))
"""Its term begins with entry 4.3."""
DEPOSED = append(5, (3, 2), noop(5, 3), sender=THIRD)


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


def with_replica(before: tuple[Message, ...], scenario: Callable[[World], Awaitable[None]]) -> None:
    fatal: list[BaseException] = []

    async def life() -> None:
        sent: list[tuple[str, Message]] = []
        manager = new_manager(new_disk(), fatal.append, sent=sent)
        await manager.start()
        await manager.create(superblock(), CONFIG, campaign=False)
        world = World(manager, sent)
        try:
            for message in before:
                await world.take(message)
            await scenario(world)
        finally:
            await manager.stop()

    asyncio.run(life())
    assert fatal == []


class World:
    """A replica of three, whose clock stands still: nothing happens but by messages."""

    def __init__(self, manager: TabletManager, sent: list[tuple[str, Message]]) -> None:
        self.manager = manager
        self.sent = sent

    async def take(self, message: Message) -> list[Message]:
        """Deliver it, and wait until everything that it brings about has; what was sent meanwhile."""
        self.sent.clear()
        self.manager.deliver(TABLET, message)
        hosted = self.manager.get(TABLET)
        assert hosted.log is not None
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
            await asyncio.to_thread(hosted.log.drain)
            await drained(hosted.meta_lane)
            await drained(hosted.lane)
        return [message for _, message in self.sent]

    def state(self) -> dict[str, Any]:
        """All that a message could change."""
        hosted, disk = self.manager.get(TABLET), self.manager.disk
        replica = hosted.replica
        assert replica is not None and hosted.running
        return {
            "term and role": (replica.term, str(replica.role)),
            "the log's end": replica.last_logged,
            "what is committed": (replica.commit_index, replica.applied_index),
            "members": (replica.committed_config, replica.active_config),
            "consensus metadata": disk.read(path_of(TABLET)),
            "the superblock": disk.read(superblock_path(TABLET)),
            "files": [name for folder in ("", "wals/" + TABLET, "data") for name in disk.listdir(folder)],
        }


def promises(message: Message) -> bool:
    """Whether it tells its receiver that entries are durable here, or that a vote is."""
    if isinstance(message, VoteReply):
        return message.granted
    return isinstance(message, AppendReply) and not message.code and not message.mismatch


def test_every_kind_of_message_has_a_row() -> None:
    """Goal: a new message cannot come without a word on its order. Method: the descriptor."""
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
