"""Reads of bounded staleness: when a replica is fresh enough, and what it does if it is not."""

from __future__ import annotations

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import encode_batch
from nyala.replica.rpc import pb
from nyala.replica.server.requests.scans import Scans
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.types import (
    Applied,
    Code,
    Corruption,
    HybridClock,
    Refused,
    hybrid_from_us,
    limits,
    staleness_problem,
    us_of_hybrid,
)
from nyala.replica.types.freshness import lag_us, time_needed, too_old
from tests.harness.copies import TABLET
from tests.harness.patience import patience_s
from tests.harness.server_pair import Pair, PairedServer, run_pair, until

NOW = hybrid_from_us(1_700_000_000_000_000)
S = 1_000_000


def _never(hosted: HostedTablet, error: Corruption) -> None:
    raise error


def test_time_needed_counts_the_clocks_against_the_replica() -> None:
    """CN-24. Goal: data is too old if it may be too old by any server's clock. Method: at the bound the lag is the
    staleness."""
    needed = time_needed(NOW, 5 * S, 0)
    assert us_of_hybrid(NOW) - us_of_hybrid(needed) == 5 * S - limits.CLOCK_DIFFERENCE_US_MAX
    assert lag_us(NOW, needed) == 5 * S


def test_time_needed_is_never_below_what_the_caller_has_seen() -> None:
    """CN-24: read-your-writes at followers. Method: a caller that has seen the present."""
    assert time_needed(NOW, 3600 * S, NOW - 7) == NOW - 7


def test_time_needed_of_a_very_old_read_is_not_the_beginning() -> None:
    """CN-24. Goal: a replica that has applied nothing answers nothing (scenario 84). Method: a staleness beyond the
    clock."""
    assert time_needed(hybrid_from_us(1000), 3600 * S, 0) == 1
    assert "no data yet" in str(too_old(NOW, 0, 3 * S))


@pytest.mark.parametrize("staleness_us", [0, -1, limits.CLOCK_DIFFERENCE_US_MAX, limits.STALENESS_US_MAX + 1])
def test_staleness_that_clocks_cannot_judge_is_an_invalid_argument(staleness_us: int) -> None:
    """Goal: a staleness of at most the difference that clocks may have, or above the longest one, is an invalid
    argument. Method: the bounds and beyond them."""
    assert staleness_problem(staleness_us)
    with pytest.raises(Refused, match="staleness") as caught:
        time_needed(NOW, staleness_us, 0)
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_refusal_says_how_old_the_data_is_and_is_safe_to_repeat() -> None:
    """Goal: a refusal for old data gives its age, and the read may be repeated. Method: data of ten seconds ago, three
    asked for."""
    error = too_old(NOW, NOW - hybrid_from_us(10 * S), 3 * S)
    assert (error.code, error.applied) == (Code.LAGGING, Applied.NOT_APPLIED)
    assert error.values == {"lag_s": 10.5, "asked_s": 3.0}


class Reader:
    """Scans of one of the two servers, by the product's code; followers ask their leader through the other's scans."""

    def __init__(self, pair: Pair, server: PairedServer) -> None:
        self._server = server
        self._pair = pair
        clock = server.manager.hybrid_clock
        # One is patient and one is not: what a loaded machine takes for an answer is no refusal.
        self._patient, self._brief = (
            Scans(clock, 2, self._ask, _never, catch_up_s=60),
            Scans(clock, 2, self._ask, _never, catch_up_s=0.1),
        )
        self.asked = 0

    async def _ask(self, replica: Any, hybrid_time: int) -> None:
        self.asked += 1
        leader = self._pair.leader.hosted.replica
        if not self._pair.cut and leader is not None:
            leader.wait_safe(hybrid_time, lambda _: None)

    def close(self) -> None:
        self._patient.close()
        self._brief.close()

    async def keys(self, staleness_us: int, *, seen: int = 0, at: int = 0, patient: bool = True) -> list[int]:
        """Keys that a read of that staleness returns."""
        scans = self._patient if patient else self._brief
        request = pb.ScanRequest(
            tablet_id=TABLET, all_columns=True, staleness_us=staleness_us, propagated_time=seen, snapshot_time=at
        )
        found: list[int] = []
        schema: Any = None
        async for chunk in scans.scan(self._server.hosted, request):
            schema = pa.ipc.read_schema(pa.py_buffer(chunk.arrow_schema)) if chunk.arrow_schema else schema
            if chunk.arrow_batch:
                batch = pa.ipc.read_record_batch(pa.py_buffer(chunk.arrow_batch), schema)
                found += batch.column("k").to_pylist()
        return sorted(found)

    async def by_key(self, *keys: int, staleness_us: int = 0, at: int = 0) -> tuple[list[int], int]:
        """(those of the keys that have a row, the time of the read)."""
        payload = encode_batch(pa.record_batch([pa.array(keys, pa.int64())], names=["k"]))
        request = pb.GetRequest(
            tablet_id=TABLET,
            columns=["k"],
            keys=payload,
            count=len(keys),
            staleness_us=staleness_us,
            snapshot_time=at,
        )
        reply = await self._brief.get(self._server.hosted, request)
        schema = pa.ipc.read_schema(pa.py_buffer(reply.arrow_schema))
        batch = pa.ipc.read_record_batch(pa.py_buffer(reply.arrow_batch), schema)
        return batch.column("k").to_pylist(), reply.snapshot_time


def test_reader_that_takes_nothing_makes_room_for_others() -> None:
    """Goal: a scan ends if its client is connected but reads no further, because the number of scans is bounded.
    Method: a reader that stops at its first chunk, for ever; one that reads on, with as little patience, gets all
    rows."""

    async def scenario(pair: Pair) -> None:
        await pair.put(*range(100))
        scans = Scans(pair.leader.manager.hybrid_clock, 1, lambda replica, time: None, _never, patience_s=0.05)  # type: ignore[arg-type, return-value]
        request = pb.ScanRequest(tablet_id=TABLET, all_columns=True)

        async def read(pause: asyncio.Event) -> int:
            rows = 0
            async for chunk in scans.scan(pair.leader.hosted, request):
                rows += chunk.rows
                await pause.wait()
            return rows

        reads_on, stays = asyncio.Event(), asyncio.Event()
        reads_on.set()
        try:
            assert await read(reads_on) == 100
            stopped = asyncio.create_task(read(stays))
            await until(lambda: scans.open.calls == 1, "it reads")
            await asyncio.wait([stopped], timeout=patience_s(60))
            assert stopped.cancelled()
            await until(lambda: scans.open.calls == 0, "there is room")
        finally:
            scans.close()

    run_pair(scenario)


def applied_time(server: PairedServer) -> int:
    replica = server.hosted.replica
    assert replica is not None
    return replica.applied_time


def test_follower_answers_while_its_data_is_new_enough_and_says_its_lag_when_it_is_not() -> None:
    """CN-24: a follower serves by the age of its data, and of nothing else (scenario 89); an own write is in what
    its caller reads. Method: a leader and a follower; reads at the follower in touch, idle, cut off, in touch again."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        reader = Reader(pair, pair.other)
        # In touch: the read waits for the own write, and an idle follower gets a newer time from its leader.
        await pair.put(2)
        seen = applied_time(pair.leader)
        assert await reader.keys(3600 * S, seen=seen) == [1, 2]
        before = applied_time(pair.other)
        now = pair.other.manager.hybrid_clock.now()
        # As much too old as the clock has moved since: nobody waits here for time to pass.
        tight = max(limits.CLOCK_DIFFERENCE_US_MAX + 1, lag_us(now, before) - 1)
        assert await reader.keys(tight) == [1, 2]
        assert applied_time(pair.other) > before and reader.asked
        # Cut off: new writes are made elsewhere; an old read is served, a fresh one, or one's own write, is not.
        pair.cut = True
        settled = applied_time(pair.other)
        assert await reader.keys(3600 * S) == [1, 2]
        for staleness_us, wanted in ((limits.CLOCK_DIFFERENCE_US_MAX + 1, 0), (3600 * S, settled + 1)):
            with pytest.raises(Refused, match="older than asked for") as caught:
                await reader.keys(staleness_us, seen=wanted, patient=False)
            assert caught.value.code is Code.LAGGING and float(str(caught.value.values["lag_s"])) > 0.5
        with pytest.raises(Refused, match="older than asked for"):
            await reader.keys(3600 * S, at=settled + 1, patient=False)
        assert await reader.keys(3600 * S, at=settled) == [1, 2]
        pair.cut = False
        assert await reader.keys(3600 * S, at=settled + 1) == [1, 2]
        reader.close()

    run_pair(scenario)


def test_later_calls_of_a_read_by_key_are_of_the_time_of_the_first() -> None:
    """RD-02. Goal: one read by key that needs several calls is of one time, at the leader and at a follower. Method:
    the first call, writes, and further calls at its time; a strong one at the follower, and a time that is to come."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1, 2)
        await pair.add_other()
        await pair.voting()
        leader, follower = Reader(pair, pair.leader), Reader(pair, pair.other)
        found, at = await leader.by_key(1, 2, 3)
        assert found == [1, 2] and at == applied_time(pair.leader)
        await pair.put(3)
        await until(lambda: applied_time(pair.other) >= applied_time(pair.leader), "both are level")
        assert (await leader.by_key(1, 2, 3))[0] == [1, 2, 3]
        assert await leader.by_key(1, 2, 3, at=at) == ([1, 2], at)
        assert (await follower.by_key(1, 2, 3, staleness_us=3600 * S))[0] == [1, 2, 3]
        assert await follower.by_key(1, 2, 3, staleness_us=3600 * S, at=at) == ([1, 2], at)
        with pytest.raises(Refused) as caught:
            await follower.by_key(1, 2, 3, at=at)
        assert caught.value.code is Code.NOT_LEADER
        with pytest.raises(Refused, match="future"):
            await leader.by_key(1, at=at + hybrid_from_us(3600 * S))
        leader.close()
        follower.close()

    run_pair(scenario)


def test_leader_that_lost_its_quorum_is_as_old_as_its_data() -> None:
    """CN-24. Goal: a leader without a majority serves reads by the age of its data, like a follower. Method: the leader
    is cut off from its only follower and asked for data newer than its last entry: it cannot commit any."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        reader = Reader(pair, pair.leader)
        await until(lambda: applied_time(pair.other) == applied_time(pair.leader), "both are level")
        pair.cut = True
        assert await reader.keys(3600 * S) == [1]
        with pytest.raises(Refused) as caught:
            await reader.keys(3600 * S, seen=applied_time(pair.leader) + 1, patient=False)
        assert caught.value.code is Code.LAGGING
        reader.close()

    run_pair(scenario)


def test_times_that_stand_still_ahead_of_the_wall_tell_no_age() -> None:
    """CN-24. Goal: a follower whose hybrid time is far ahead of its clock refuses reads by age, because its times tell
    no age; the leader answers by a barrier. Method: both clocks ten minutes ahead; nothing is cut off, and every entry
    looks brand-new for as long."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        await pair.add_other()
        await pair.voting()
        await until(lambda: applied_time(pair.other) == applied_time(pair.leader), "both are level")
        for server in (pair.leader, pair.other):
            clock = server.manager.hybrid_clock
            clock.observe(clock.now() + hybrid_from_us(600 * S))
        follower, leader = Reader(pair, pair.other), Reader(pair, pair.leader)
        with pytest.raises(Refused, match="ahead of this server's wall") as caught:
            await follower.keys(3600 * S)
        assert caught.value.code is Code.LAGGING
        assert await leader.keys(3600 * S) == [1]
        for reader in (follower, leader):
            reader.close()

    run_pair(scenario)


def test_callers_push_a_clock_no_further_by_asking_again() -> None:
    """Goal: callers can push a hybrid clock only to a bound above the wall clock, also by repeated requests. Method:
    the largest legal push, again and again."""

    class Wall:
        def wall_us(self) -> int:
            return 1_700_000_000_000_000

        def monotonic_us(self) -> int:
            return 0

    clock = HybridClock(Wall())
    scans = Scans(clock, 1, lambda replica, time: None, _never)  # type: ignore[arg-type, return-value]
    step = hybrid_from_us(limits.CLOCK_AHEAD_OF_CALLERS_US_MAX - 1)
    scans.observe(clock.now() + step)
    with pytest.raises(Refused, match="in the future"):
        scans.observe(clock.now() + step)
    scans.observe(clock.now())  # what the clock has reached anyway pushes nothing
    assert clock.ahead_of_wall_us() <= limits.CLOCK_AHEAD_OF_CALLERS_US_MAX
    scans.close()
