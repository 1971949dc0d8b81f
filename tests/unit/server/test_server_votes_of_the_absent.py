"""Votes of servers without a running replica: none where nothing was ever promised, the kept promise elsewhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import AppendEntries, Message, VoteReply, VoteRequest
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.tablets.hosted import CopyJob
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.server.tablets.tombstone import answer_without_replica
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import CopyRequest, LocalCopySource
from nyala.replica.types import Code, DataState, OpId, RaftConfig, Refused, next_generation
from tests.harness.copies import (
    SOURCE_UUID,
    TABLET,
    TARGET_UUID,
    NoBytes,
    RestingReplica,
    attempt,
    copy_over,
    data_files,
    leading_source,
    new_disk,
    tombstone,
)
from tests.harness.managers import new_manager
from tests.harness.patience import patience_s
from tests.harness.server_pair import TIMEOUT_S, Pair, Part, run_pair, until
from tests.harness.sim_disk import SimCrash, SimDisk

KEPT = OpId(5, 90)
Ask = Callable[..., Coroutine[None, None, VoteReply]]


def with_server(disk: SimDisk, use: Callable[[TabletManager, Ask], Coroutine[None, None, None]]) -> None:
    """One life of a server on `disk`; `ask(term, last)` is a vote request of the source, and what it answers. With
    `transfer` no lease is waited for."""

    async def life() -> None:
        sent: list[tuple[str, Message]] = []
        fatal: list[BaseException] = []

        async def ask(term: int, last: OpId, transfer: bool = False) -> VoteReply:
            sent.clear()
            request = VoteRequest(to_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, term=term, last=last, transfer=transfer)
            manager.deliver(TABLET, request)
            await until(lambda: sent, "it answers")
            reply = sent[0][1]
            assert isinstance(reply, VoteReply)
            return reply

        manager = new_manager(disk, fatal.append, sent=sent)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        try:
            await use(manager, ask)
        finally:
            await manager.stop()
        assert fatal == []

    asyncio.run(life())


def test_blank_server_gives_no_vote_and_writes_nothing() -> None:
    """Goal: TC-77, X-10: a server that never held the tablet has promised nothing, so it does not vote. Method: ask in
    several terms, with any log: refused, TABLET_NOT_FOUND, and no file of that tablet comes to be."""
    disk = new_disk()

    async def use(manager: TabletManager, ask: Ask) -> None:
        for term in (2, 7, 900):
            reply = await ask(term, OpId(term - 1, 10**6))
            assert (reply.granted, reply.code) == (False, Code.TABLET_NOT_FOUND)
        assert TABLET not in manager.tablets
        assert not disk.exists(f"consensus-meta/{TABLET}") and not Superblock.exists(disk, TABLET)

    with_server(disk, use)


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_voter_that_died_in_its_copy_still_votes_by_what_it_kept(step: int) -> None:
    """Goal: TC-78: a voter falls behind, dies while it is copied, deletes itself at the start, and its vote is needed:
    it votes by the last OpId that it kept, never by the half-copied log. Method: over a tombstone of 5.90, die after
    each step; restart: a candidate at 5.89 is refused, one at 5.90 in a new term elected; the vote is on disk."""
    disk = new_disk()
    local = tombstone(disk, KEPT, term=5, voted_for="c" * 32)
    source = leading_source()
    disk.arm(f"copy.{step}")
    with pytest.raises(SimCrash):
        copy_over(local, attempt(disk, source.copy_source)).run()
    disk.restart()

    async def use(manager: TabletManager, ask: Ask) -> None:
        assert manager.get(TABLET).data_state is DataState.DELETED
        assert not (await ask(9, OpId(5, 89))).granted
        for _ in range(400):
            reply = await ask(9, KEPT)
            if reply.granted or "lease" not in reply.reason:
                break
            await asyncio.sleep(0.01)  # a server that has just started owes its last leader some silence
        assert reply.granted, reply.reason

    with_server(disk, use)
    kept = ConsensusMeta.load(disk, TABLET)
    assert (kept.term, kept.voted_for) == (9, SOURCE_UUID)
    source.replica.close()


def test_replica_that_is_being_copied_votes_by_what_it_kept_and_remembers_it() -> None:
    """X-10. Goal: a replica that is being copied votes by the last OpId of its tombstone, not by the half-copied log.
    Method: a part of a copy over a tombstone of 1.1 is held, after the metadata were merged; requests of a later term:
    below 1.1 refused, at 1.1 granted, to somebody else refused; the copy ends, and its term and vote are those given
    meanwhile."""

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(10))
        held, free = threading.Event(), threading.Event()

        def on_part(request: Any, part: Part) -> Part | None:
            held.set()
            free.wait(patience_s(60))
            return part

        pair.on_part = on_part
        tombstone(pair.other.disk, OpId(1, 1), term=1)
        await pair.restart_other()
        replies: list[VoteReply] = []
        carry = pair.carry

        def noting(messages: list[tuple[str, Message]]) -> None:
            replies.extend(m for _, m in messages if isinstance(m, VoteReply))
            carry([(tablet_id, m) for tablet_id, m in messages if not isinstance(m, VoteReply)])

        pair.carry = noting  # type: ignore[method-assign]

        async def ask(candidate: str, last: OpId) -> VoteReply:
            replies.clear()
            # In the name of its leader: a server that has just started owes that one some silence.
            asked = VoteRequest(to_uuid=TARGET_UUID, from_uuid=candidate, term=91, last=last, transfer=True)
            pair.other.manager.deliver(TABLET, asked)
            await until(lambda: replies, "it answers")
            return replies[0]

        try:
            await pair.add_other()
            await until(held.is_set, "a part is held")
            assert Superblock.load(pair.other.disk, TABLET).data_state is DataState.COPYING
            for candidate, last, granted in (
                ("c" * 32, OpId(0, 0), False),
                ("c" * 32, OpId(1, 1), True),
                ("d" * 32, OpId(1, 99), False),
            ):
                assert (await ask(candidate, last)).granted is granted, (candidate, last)
            pair.cut = True
        finally:
            free.set()
        await until(lambda: Superblock.load(pair.other.disk, TABLET).data_state is DataState.READY, "the copy ends")
        kept = ConsensusMeta.load(pair.other.disk, TABLET)
        assert (kept.term, kept.voted_for) == (91, "c" * 32)

    run_pair(scenario)


def test_tombstone_of_a_recovered_group_tells_a_lost_member_nothing() -> None:
    """CC-46. Goal: a tombstone of a recovered group does not tell a lost member the new term. Method: a tombstone that
    took part in the second generation; an append and a vote request of the first one, then one of the second, whose
    answer comes first."""
    disk = new_disk()
    term = next_generation(5)
    tombstone(disk, OpId(term, 90), term=term)

    async def use(manager: TabletManager, ask: Ask) -> None:
        answers: list[Message] = []
        manager.reply = lambda _tablet_id, message: answers.append(message)  # type: ignore[method-assign]
        lost = {"to_uuid": TARGET_UUID, "from_uuid": SOURCE_UUID, "term": 900}
        for message in (AppendEntries(prev=OpId(5, 90), **lost), VoteRequest(last=OpId(5, 95), **lost)):  # type: ignore[arg-type]
            answer_without_replica(manager, manager.tablets[TABLET], TABLET, message)
        append = AppendEntries(to_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, term=term + 1, prev=OpId(term, 91))
        answer_without_replica(manager, manager.tablets[TABLET], TABLET, append)
        assert [a.term for a in answers] == [term + 1]

    with_server(disk, use)


def test_server_that_lost_a_superblock_gives_no_vote_until_a_copy_is_complete() -> None:
    """IN-21. Goal: a server that lost a superblock gives no vote for that tablet until a copy is complete. Method: the
    superblock of a replica that logged 4.2 in term 5 is removed between two lives. The server tells its term to a
    leader of an earlier one and takes no copy from it. A copy fails in COPY.3: no vote, also in the next life, for the
    longest log; the blocks stay. The next copy ends: it serves, and a later life has no old block."""
    disk, source = new_disk(), leading_source()
    lost = RestingReplica(disk, TARGET_UUID)
    lost.write([1], "a")
    lost.tablet.flush()
    lost.write([2], "b", term=4)
    lost.cmeta.save_hard_state(5, SOURCE_UUID)
    lost.close()
    disk.remove(superblock_path(TABLET))
    old = set(data_files(disk))
    copy_source: LocalCopySource = NoBytes(source.sessions, source.capture)

    async def copied(manager: TabletManager, state: DataState) -> CopyJob:
        jobs = CopyJobs(manager, lambda uuid, addresses: copy_source)
        asked = CopyRequest(dest_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, tablet_id=TABLET, term=6, current_state=state)
        with pytest.raises(Refused) as refused:
            jobs.start(replace(asked, term=4), [])
        assert refused.value.code is Code.BAD_TERM
        jobs.start(asked, [])
        (job,) = jobs.running()
        await asyncio.wait_for(job.ended.wait(), TIMEOUT_S)
        await jobs.stop()
        return job

    async def first(manager: TabletManager, ask: Ask) -> None:
        assert TABLET not in manager.tablets
        denied = await ask(4, OpId(3, 9))
        assert (denied.granted, denied.term) == (False, 5)
        assert "no bytes" in (await copied(manager, DataState.DOES_NOT_EXIST)).error
        assert "acknowledged more" in (await ask(9, OpId(8, 99), transfer=True)).reason

    async def second(manager: TabletManager, ask: Ask) -> None:
        nonlocal copy_source
        hosted = manager.get(TABLET)
        assert "acknowledged more" in (await ask(10, OpId(8, 99), transfer=True)).reason
        assert old <= set(data_files(disk))
        copy_source = source.copy_source
        await copied(manager, hosted.data_state)
        assert hosted.running and hosted.cmeta is not None and hosted.cmeta.vote_floor_term == 5

    with_server(disk, first)
    disk.restart()
    with_server(disk, second)
    disk.restart()

    async def third(manager: TabletManager, ask: Ask) -> None:
        assert manager.get(TABLET).running and not old & set(data_files(disk))

    with_server(disk, third)
    source.replica.close()


def test_server_with_a_tombstone_alone_knows_the_members_that_may_ask_for_its_vote() -> None:
    """IN-50, TC-77. Goal: a candidate takes a vote only on a link that is proven, and a server proves links only to
    servers that it knows; so a tombstone's config is known after a restart. Method: a tombstone; the configs that the
    server learns when it starts."""
    disk, learned = new_disk(), list[RaftConfig]()
    tombstone(disk, KEPT, term=5)
    kept = ConsensusMeta.load(disk, TABLET).committed_config

    async def life() -> None:
        fatal: list[BaseException] = []
        manager = new_manager(disk, fatal.append, learn_config=learned.append)
        await manager.start()
        await manager.stop()
        assert fatal == []

    asyncio.run(life())
    assert learned == [kept] and kept.members
