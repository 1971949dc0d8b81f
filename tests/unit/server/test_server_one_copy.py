"""One copy of a tablet into a server: asked for until it runs, and no second one however many ask."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from nyala.replica.server.copies import BACKOFF_FIRST_S
from tests.harness import server_pair
from tests.harness.copies import TestClock
from tests.harness.server_pair import Pair, run_pair, until

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
