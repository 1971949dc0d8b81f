"""Where the rate of copies takes hold: at the source, at the target, and for whose writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.replica.server.copy_rate import CopyRate
from nyala.replica.server.memory import MemoryGuard
from nyala.replica.server.writes import Writes
from tests.harness.copies import TestClock
from tests.harness.rows import batch, write_request
from tests.harness.server_pair import Pair, run_pair, until

BUSY = 7_000_000


class Held(CopyRate):
    """A rate of one byte per second on a clock that stands still; `asked` counts who waited."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.asked = 0
        super().__init__(self.clock, 1, 0)

    def pause_s(self, ticket: int) -> float:
        self.asked += 1
        return super().pause_s(ticket)


@pytest.mark.parametrize("at_the_source", [True, False])
def test_copy_waits_for_the_rate_of_either_side(at_the_source: bool) -> None:
    """Goal: TC-11: each server holds copies to what it can bear. Method: time stands still for the rate of one side:
    that side asks and asks, and not a byte counts as copied; a day later the copy ends and the member votes."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        held = Held()
        (pair.leader if at_the_source else pair.other).manager.copy_rate = held
        await pair.add_other()
        await until(lambda: held.asked > 3, "the copy waits for its turn")
        (job,) = pair.other.jobs.running()
        assert job.progress.bytes_done == 0 < job.progress.bytes_total
        held.clock.now_us += 86_400 * 1_000_000
        await pair.voting()
        assert pair.other.rows() == [1, 2]

    run_pair(scenario)


def test_cancel_ends_a_copy_that_waits_for_the_rate() -> None:
    """Goal: TC-12 under a low rate. Method: the copy waits at the target for a rate whose clock stands still; a cancel
    ends it nevertheless."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        held = pair.other.manager.copy_rate = Held()
        await pair.add_other()
        await until(lambda: held.asked > 3, "the copy waits for its turn")
        job = await pair.other.jobs.cancel(pair.other.jobs.running()[0].tablet_id)
        assert job.progress.phase == "CANCELLED"
        pair.other.manager.copy_rate = CopyRate(TestClock(), 0, 0)
        await pair.voting()

    run_pair(scenario)


def test_writes_of_clients_slow_copies_at_the_leader_and_where_they_are_replicated() -> None:
    """Goal: TC-11: copies yield wherever a client's write costs something. Method: after a config change and a
    promotion no side is busy; one row through the write service: the leader is, and so is the follower."""

    async def scenario(pair: Pair) -> None:
        await pair.add_other()
        await pair.voting()
        sides = [pair.leader.manager, pair.other.manager]
        for manager in sides:
            manager.copy_rate = CopyRate(TestClock(), 0, BUSY)
        assert [m.copy_rate.bytes_per_s for m in sides] == [0, 0]
        pool = ThreadPoolExecutor(1)
        guard = MemoryGuard(1 << 30, lambda: 0)
        writes = Writes(pair.leader.uuid, guard, pool, lambda time: None, pair.leader.manager.copy_rate.written)
        hosted = pair.leader.hosted
        reply = await writes.write(hosted, write_request(pair.leader.uuid, hosted.tablet_id, batch([5], ["x"])))
        pool.shutdown()
        assert not reply.error.code
        assert sides[0].copy_rate.bytes_per_s == BUSY
        await until(lambda: sides[1].copy_rate.bytes_per_s == BUSY, "the follower has the entry")

    run_pair(scenario)
