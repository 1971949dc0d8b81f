"""The rate of copies: it holds at the source and at the target, and is lowered for writes there."""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.rows import WriteMeta, crc32c, encode_batch
from nyala.replica.rpc import pb, pb_grpc
from nyala.replica.server.requests.writes import Writes
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.tablet_copy import CopyRequest
from nyala.replica.tablet_copy.wire.copy_rate import BURST_S, CopyRate
from nyala.replica.types import DataState, EntryKind, OpId, RaftConfig
from tests.harness.copies import TestClock, superblock
from tests.harness.rows import batch, write_request
from tests.harness.server_pair import Pair, run_pair, until

BUSY = 7_000_000


class Held(CopyRate):
    """A rate of one byte per second on a clock that stands still; counts who waited, also by drawn."""

    def __init__(self) -> None:
        self.clock = TestClock()
        self.asked = 0
        self.asked_by: Counter[int] = Counter()
        super().__init__(self.clock, 1, 0)

    def pause_s(self, drawn: int) -> float:
        self.asked += 1
        self.asked_by[drawn] += 1
        return super().pause_s(drawn)


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
        await until(lambda: pair.other.rows() == [1, 2], "the voter has applied both rows")

    run_pair(scenario)


class Stepped(CopyRate):
    """A rate on a clock that the test moves; `waits` counts who was told to wait. Nobody sleeps for long."""

    def __init__(self, rate_bytes_per_s: int) -> None:
        self.clock = TestClock()
        self.waits = 0
        super().__init__(self.clock, rate_bytes_per_s, 0)

    def pause_s(self, drawn: int) -> float:
        pause_s = super().pause_s(drawn)
        self.waits += pause_s > 0
        return min(pause_s, 0.001)


@pytest.mark.deep
def test_ten_copies_at_once_keep_to_number_and_rate_and_leave_leaders_alone() -> None:
    """TC-11, TC-10. Goal: ten copies cause no election and delay no answer. Method: a tablet votes on both servers; ten
    other tablets are copied at once at a rate whose clock moves only when somebody waits for it. All the while no more
    run than may, what came is what the rate allowed, the two voters commit writes, and the server answers about its
    copies. In the end it took, by that clock, the bytes over the rate within a tenth; and term and leader of the tablet
    are the same."""
    rate, step_us, copied = 400_000, 5_000, [f"copied-{n}" for n in range(10)]

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        source, target = pair.leader, pair.other
        for tablet_id in copied:
            alone = RaftConfig(OpId(0, 0), (source.member(),))
            hosted = await source.manager.create(superblock(tablet_id=tablet_id), alone, campaign=True)
            await until(lambda h=hosted: h.replica and h.replica.phase is Phase.RUNNING, "it serves")
            payload = encode_batch(batch(list(range(100)), ["x" * 200] * 100))
            done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            meta = WriteMeta((1, 2), 100).encode()
            hosted.replica.write(EntryKind.WRITE, 1, meta, payload, crc32c(payload), done.set_result)
            assert not isinstance(await asyncio.wait_for(done, 20), BaseException)
        leads = source.hosted.replica
        term, jobs_max = leads.term, target.manager.options.copy_jobs_max
        paced = target.manager.copy_rate = Stepped(rate)
        began_us, seen, key, most = paced.clock.now_us, 0, 1, 0
        for tablet_id in copied:
            request = CopyRequest(
                dest_uuid=target.uuid,
                from_uuid=source.uuid,
                tablet_id=tablet_id,
                term=source.manager.get(tablet_id).term,
                current_state=DataState.DOES_NOT_EXIST,
            )
            target.jobs.start(request, [source.address])
        jobs = target.jobs.running()
        stub = pb_grpc.CopyServiceStub(target.channels.get(str(target.address)))
        while target.jobs.running():
            moved = sum(job.progress.bytes_done for job in jobs)
            elapsed_s = (paced.clock.now_us - began_us) / 1e6
            assert moved <= rate * (elapsed_s + BURST_S), (moved, elapsed_s)
            most = max(most, sum(job.work is not None and job.work.running() for job in jobs))
            assert most <= jobs_max
            if paced.waits != seen:
                seen = paced.waits
                paced.clock.now_us += step_us
            if seen > 20 * key:
                key += 1
                await pair.put(key)
                answer = await stub.ListCopies(pb.ListCopiesRequest(dest_uuid=target.uuid), timeout=20)
                assert not answer.error.code and len(answer.jobs) >= 1
            await asyncio.sleep(0.001)
        assert [job.progress.phase for job in jobs] == ["DONE"] * 10 and most == jobs_max and key > 3
        bytes_total, elapsed_s = sum(job.progress.bytes_total for job in jobs), (paced.clock.now_us - began_us) / 1e6
        assert bytes_total > 10 * 20_000 and 0.9 < bytes_total / elapsed_s / rate < 1.1
        assert leads.is_leader and leads.term == term
        assert target.hosted.replica.term == term and target.hosted.replica.leader_uuid == source.uuid

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
        held.clock.now_us += 86_400 * 1_000_000  # for a copy that may have begun since
        pair.other.manager.copy_rate = CopyRate(TestClock(), 0, 0)
        await pair.voting()

    run_pair(scenario)


def test_writes_of_clients_slow_copies_at_the_leader_and_where_they_are_replicated() -> None:
    """TC-11. Goal: client writes slow copies at the leader and at the followers. Method: after a config change and a
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
        writes = Writes(guard, pool, lambda time: None, pair.leader.manager.copy_rate.written)
        hosted = pair.leader.hosted
        reply = await writes.write(hosted, write_request(pair.leader.uuid, hosted.tablet_id, batch([5], ["x"])))
        pool.shutdown()
        assert not reply.error.code
        assert sides[0].copy_rate.bytes_per_s == BUSY
        await until(lambda: sides[1].copy_rate.bytes_per_s == BUSY, "the follower has the entry")

    run_pair(scenario)
