"""A vote request that meets a copy of the same tablet: never two votes in one term."""

from __future__ import annotations

import asyncio
import threading

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.raft import Message, VoteReply, VoteRequest
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.options import ServerOptions
from nyala.replica.tablet_copy import CopyRequest
from nyala.replica.types import Address, DataState, OpId
from tests.harness.copies import SOURCE_UUID, TABLET, TARGET_UUID, NoBytes, leading_source, new_disk, tombstone
from tests.harness.managers import new_manager
from tests.harness.server_pair import TIMEOUT_S

RACES = 200
FIRST, SECOND = "c" * 32, "d" * 32
KEPT = OpId(1, 1)


@pytest.mark.deep
def test_vote_request_that_meets_the_merge_of_a_copy_is_answered_once_per_term() -> None:
    """TC-57. Goal: whenever in a copy's merge a vote is asked for, it counts once. Method: a thousand copies over one
    tombstone, each of the next term; a candidate asks for its vote in that term from within one of the calls that the
    copy makes of the disk, another one after each copy: the first always gets it, the second never does, and that is
    what the disk says."""
    disk, source = new_disk(), leading_source()
    copy_source = NoBytes(source.sessions, source.capture)
    tombstone(disk, KEPT, term=1)
    points: set[str] = set()

    async def races() -> None:
        fatal: list[BaseException] = []
        manager = new_manager(disk, fatal.append, options=ServerOptions(root="unused", copy_streams=1))
        jobs = CopyJobs(manager, lambda uuid, addresses: copy_source)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        loop = asyncio.get_running_loop()

        answers: asyncio.Queue[Message] = asyncio.Queue()
        manager.reply = lambda tablet_id, message: answers.put_nowait(message)  # type: ignore[method-assign]

        def ask(candidate: str, term: int) -> None:
            # In the name of its leader: a server that has just started owes that one some silence.
            asked = VoteRequest(
                to_uuid=TARGET_UUID, from_uuid=candidate, term=term, last=OpId(term - 1, 9), transfer=True
            )
            manager.deliver(TABLET, asked)

        async def granted(candidate: str) -> bool:
            answer = await asyncio.wait_for(answers.get(), TIMEOUT_S)
            assert isinstance(answer, VoteReply) and answer.to_uuid == candidate
            return answer.granted

        async def race(number: int, calls: int) -> int:
            """Ask in the copy's call of that number; how many it made."""
            term, made, begun = number + 10, [0], threading.Event()
            source.replica.cmeta.save_hard_state(term, SOURCE_UUID)
            source.replica.term = term

            def hook(operation: str, path: str) -> None:
                if not threading.current_thread().name.startswith("copy-job"):
                    begun.set()
                    return
                made[0] += 1
                if made[0] == 1 + number % calls:
                    points.add(f"{operation} {path}")
                    loop.call_soon_threadsafe(ask, FIRST, term)
                    begun.wait(0.001)  # it may run now, if nothing keeps it from it

            disk.hook = hook
            wanted = CopyRequest(
                dest_uuid=TARGET_UUID,
                from_uuid=SOURCE_UUID,
                tablet_id=TABLET,
                term=term,
                current_state=DataState.DELETED,
            )
            jobs.start(wanted, [Address("h", 1)])
            (job,) = jobs.running()
            await asyncio.wait_for(job.ended.wait(), TIMEOUT_S)
            disk.hook = None
            first = await granted(FIRST)
            ask(SECOND, term)
            assert (first, await granted(SECOND)) == (True, False), (number, job.error)
            kept = ConsensusMeta.load(disk, TABLET)
            assert (kept.term, kept.voted_for) == (term, FIRST), number
            assert "no bytes" in job.error
            disk.remove_tree("quarantine")
            disk.mkdir("quarantine")
            return made[0]

        calls = 1
        try:
            for number in range(RACES):
                calls = await race(number, calls)
        finally:
            await jobs.stop()
            await manager.stop()
        assert fatal == []

    asyncio.run(races())
    assert f"replace {path_of(TABLET)}" in points, points
    source.replica.close()
