"""A replica of three on a server of its own, whose other members are played by a test; its clock stands still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from nyala.replica.consensus_metadata import path_of
from nyala.replica.raft import AppendEntries, AppendReply, Message, TimeoutNow, VoteReply, VoteRequest
from nyala.replica.rpc import pb
from nyala.replica.server.runtime.lanes import drained
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import superblock_path
from nyala.replica.transport import PeerServicer
from nyala.replica.types import Address, Entry, EntryKind, Member, OpId, RaftConfig, hybrid_from_us
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock
from tests.harness.links import trusting
from tests.harness.managers import new_manager

ME, LEADER, THIRD = TARGET_UUID, "a" * 32, "c" * 32
CONFIG = RaftConfig(OpId(0, 0), tuple(Member(uuid, (Address("h", 1),)) for uuid in (LEADER, ME, THIRD)))
ROUNDS = 6
"""The number of rounds that exceeds each message's way through log, metadata and apply."""


def noop(term: int, index: int) -> Entry:
    return Entry(OpId(term, index), EntryKind.NOOP, hybrid_from_us(1_000_000) + index, 0, b"", b"", 0)


def append(term: int, prev: tuple[int, int], *entries: Entry, commit: int = 0, sender: str = LEADER) -> AppendEntries:
    return AppendEntries(
        to_uuid=ME, from_uuid=sender, term=term, prev=OpId(*prev), entries=entries, commit_index=commit
    )


def matched(term: int, last: tuple[int, int], **fields: Any) -> AppendReply:
    return AppendReply(to_uuid=ME, from_uuid=LEADER, term=term, last=OpId(*last), **fields)


def candidate(uuid: str, term: int, last: tuple[int, int] = (3, 9)) -> VoteRequest:
    """Return a vote request of a transfer, for which no live leader counts."""
    return VoteRequest(to_uuid=ME, from_uuid=uuid, term=term, last=OpId(*last), transfer=True)


def vote(term: int, **fields: Any) -> VoteReply:
    return VoteReply(to_uuid=ME, from_uuid=THIRD, term=term, **{"granted": True} | fields)


def hand_over(term: int) -> TimeoutNow:
    return TimeoutNow(to_uuid=ME, from_uuid=LEADER, term=term, last=OpId(3, 2))


FOLLOWS: tuple[Message, ...] = (append(3, (0, 0), noop(3, 1), noop(3, 2), commit=1),)
CAMPAIGNS = (*FOLLOWS, hand_over(3))
LEADS = (*CAMPAIGNS, vote(4))
"""Messages after which it leads: its term begins with entry 4.3."""
DEPOSED = append(5, (3, 2), noop(5, 3), sender=THIRD)


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
    """A replica of three, whose clock stands still: only messages have effects."""

    def __init__(self, manager: TabletManager, sent: list[tuple[str, Message]]) -> None:
        self.manager = manager
        self.sent = sent
        self.fatal: list[BaseException] = []
        self.peers = PeerServicer(ME, manager.deliver, trusting(), on_fatal=self.fatal.append)

    async def take(self, message: Message) -> list[Message]:
        """Deliver the message, and wait until all its effects have ended; returns what was sent meanwhile."""
        self.sent.clear()
        self.manager.deliver(TABLET, message)
        return await self._carried_out()

    async def receive(
        self, sender: str, *messages: Any, proven: bool = True, **batch: Any
    ) -> tuple[bool, list[Message]]:
        """Do the same for messages as the wire has them, in a batch of the link of `sender`; returns whether the link
        goes on too."""
        self.sent.clear()
        fields = {"from_uuid": sender, "dest_uuid": ME, "messages": messages} | batch
        goes_on = self.peers._take(sender, pb.PeerBatch(**fields).SerializeToString(), proven)
        return goes_on, await self._carried_out()

    async def _carried_out(self) -> list[Message]:
        hosted = self.manager.get(TABLET)
        assert hosted.log is not None
        for _ in range(ROUNDS):
            await asyncio.sleep(0)
            await asyncio.to_thread(hosted.log.drain)
            await drained(hosted.meta_lane)
            await drained(hosted.lane)
        return [message for _, message in self.sent]

    async def settled(self) -> None:
        """Return once nothing is on its way any more: the memory has stayed as it is for some rounds."""
        same, before = 0, self.memory()
        while same < ROUNDS:
            await self._carried_out()
            now = self.memory()
            same, before = (same + 1 if now == before else 0), now

    def memory(self) -> dict[str, str]:
        """Return every field of the replica's core, as text."""
        replica = self.manager.get(TABLET).replica
        assert replica is not None
        core = replica._executor.core._s
        peers = {u: [repr(getattr(p, slot)) for slot in p.__slots__] for u, p in core.lead.progress.items()}
        fields = {name: repr(value) for name, value in vars(core).items()}
        return {**fields, "progress": repr(peers), "clock": repr(self.manager.hybrid_clock._last)}

    def state(self) -> dict[str, Any]:
        """Return everything that a message could change."""
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
