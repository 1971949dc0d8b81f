"""One copy of a tablet into a server: asked for until it runs, and no second one however many ask."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from nyala.replica.rpc import address_to_pb, pb
from nyala.replica.server.copies.copy_jobs import BACKOFF_FIRST_S
from nyala.replica.types import Code, DataState
from tests.harness import server_pair
from tests.harness.copies import TABLET, TestClock
from tests.harness.server_pair import TIMEOUT_S, Pair, run_pair, until

LOST = 5
STEP_US = 200_000
BEATS_MAX = 300
"""Of steps; about fifty are as long as all waits together."""


def test_leader_asks_for_a_copy_until_it_is_heard_and_one_copy_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: TC-25: a request that is lost is repeated, with back-off, as long as the peer has nothing. Method: the
    first five are lost, on a clock that the test moves with the leader's heartbeats: each wait is twice the one
    before, or longer; the sixth starts the one copy that ever runs, from one session, and the server votes."""
    monkeypatch.setattr(server_pair, "RAFT", replace(server_pair.RAFT, copy_retry_ticks_min=1, copy_retry_ticks_max=1))
    clock = TestClock()

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        pair.starts_lost = LOST
        await pair.add_other()

        beats: list[int] = [0]

        def started() -> bool:
            names = [what for _, what, _ in pair.trace]
            if names.count("AppendEntries") > beats[-1] and not pair.leader.requests._busy:
                beats.append(names.count("AppendEntries"))  # the leader has heard again that nothing is there
                clock.now_us += STEP_US
                assert len(beats) < BEATS_MAX, "it asks no more"
            return "StartTabletCopy" in names

        await until(started, "a request arrives")
        await pair.voting()
        await until(lambda: pair.other.rows() == [1, 2] and pair.other.serving, "the voter has applied both rows")
        lost = [time_us for _, what, time_us in pair.trace if what == "LostStartTabletCopy"]
        waits = [later - earlier for earlier, later in pairwise(lost)]
        assert len(lost) == LOST
        least = [BACKOFF_FIRST_S * 1_000_000 * 2**n for n in range(LOST - 1)]
        assert all(wait >= at_least for wait, at_least in zip(waits, least, strict=True)), waits
        received = [what for _, what, _ in pair.trace]
        assert (received.count("StartTabletCopy"), received.count("BeginCopy")) == (1, 1)
        assert [job.progress.phase for job in pair.other.jobs.ended] == ["DONE"] and not pair.other.jobs.running()

    run_pair(scenario, clock)


def copied_at(requests: int) -> list[list[str]]:
    """Return what the target has on its disk in the middle of its copy, and at its end, after so many requests at
    once."""
    seen: list[list[str]] = []

    async def scenario(pair: Pair) -> None:
        held, go = threading.Event(), threading.Event()

        def on_request(request: Any) -> None:
            held.set()
            assert go.wait(TIMEOUT_S)

        await pair.put(1, 2)
        leader, other = pair.leader, pair.other
        assert leader.hosted.tablet is not None
        leader.hosted.tablet.flush()
        await pair.put(3)
        request = pb.StartTabletCopyRequest(
            dest_uuid=other.uuid,
            from_uuid=leader.uuid,
            from_addresses=[address_to_pb(leader.address)],
            tablet_id=TABLET,
            term=leader.hosted.term,
            current_state=int(DataState.DOES_NOT_EXIST),
        )
        pair.on_request = on_request
        try:
            asked = [other.copies.StartTabletCopy(request, None) for _ in range(requests)]
            replies = await asyncio.gather(*asked)
            codes = [reply.error.code for reply in replies]
            assert (codes.count(0), codes.count(Code.ALREADY_INPROGRESS)) == (1, requests - 1)
            await until(held.is_set, "the copy asks for bytes")
            assert len(leader.manager.sessions.sessions()) == len(other.jobs.running()) == 1
            seen.append(list(other.disk.files))
        finally:
            go.set()
        await until(lambda: other.jobs.ended, "the copy ends")
        await until(lambda: not leader.manager.sessions.sessions(), "no session is left")
        assert [job.progress.phase for job in other.jobs.ended] == ["DONE"] and not other.jobs.running()
        assert [what for _, what, _ in pair.trace].count("BeginCopy") == 1
        seen.append(list(other.disk.files))

    run_pair(scenario)
    return seen


def test_fifty_requests_at_once_leave_what_one_leaves() -> None:
    """Goal: TC-27: while a copy runs, every other request is refused and leaves no trace. Method: 50 requests in one
    turn of the loop, the copy held at its first bytes: one is accepted, 49 are told of it; one job, one session; the
    files on the target's disk, then and at the end, are those after a single request."""
    assert copied_at(50) == copied_at(1)
