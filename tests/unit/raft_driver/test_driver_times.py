"""Hybrid time over restarts, clock jumps and leaders; waits for a time that cannot come."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.raft import AppendEntries
from nyala.replica.raft_driver.times import Times
from nyala.replica.types import (
    Applied,
    Code,
    Entry,
    EntryKind,
    HybridClock,
    OpId,
    Refused,
    SystemClock,
    hybrid_from_us,
    limits,
    us_of_hybrid,
)
from tests.harness.sim_cluster import DRIVER, SimCluster
from tests.harness.sim_start import Answers, level, node_of, on, put_and_wait, started

HOUR_US = 3_600_000_000
NEVER_US = 10**15


def time_at(cluster: SimCluster, index: int) -> int:
    return cluster.verify.history[index].hybrid_time


def test_times_go_on_after_a_restart_with_clocks_an_hour_back() -> None:
    """CN-24: hybrid times never go back over restarts and clock jumps (scenario 88). Method: write, lose all power,
    boot everyone with the wall an hour earlier; what comes next is above all that the logs hold."""
    cluster = SimCluster(21, skew_us_max=0)
    leader = started(cluster)
    before = put_and_wait(cluster, leader, b"before").opid.index
    cluster.run_until(lambda: level(cluster), "everyone level")
    for node in cluster.nodes.values():
        node.crash(power=True)
        node.clock.skew_us = -HOUR_US
    for node in cluster.nodes.values():
        node.start()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    again = cluster.leader()
    assert again is not None
    after = put_and_wait(cluster, again, b"after").opid.index
    assert time_at(cluster, before) < time_at(cluster, after - 1) < time_at(cluster, after)


def test_log_far_ahead_of_the_wall_is_told_when_it_is_opened(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: scenario 88: a server that opens a log with times far ahead of its clock logs that, and works. Method: all
    lose power and start with the clock 20 s earlier: nothing is logged, because a leader's times may be that far ahead.
    Then an hour earlier: each logs one line with tablet, time and distance; the group goes on."""
    cluster = SimCluster(25, skew_us_max=0)
    leader = started(cluster)
    last = put_and_wait(cluster, leader, b"before").opid.index
    tablet_id = leader.tablet_id

    def told(skew_us: int) -> list[str]:
        cluster.run_until(lambda: level(cluster), "everyone level")
        for node in cluster.nodes.values():
            node.crash(power=True)
            node.clock.skew_us = skew_us
        caplog.clear()
        for node in cluster.nodes.values():
            node.start()
        cluster.run_until(lambda: cluster.leader() is not None, "a leader")
        return [r.getMessage() for r in caplog.records if "ahead of the wall here" in r.getMessage()]

    assert told(-20_000_000) == []
    again = cluster.leader()
    assert again is not None
    last = put_and_wait(cluster, again, b"again").opid.index
    time = datetime.fromtimestamp(us_of_hybrid(time_at(cluster, last)) / 1e6, UTC).isoformat(timespec="seconds")
    lines = told(-HOUR_US)
    assert len(lines) == len(cluster.nodes)
    for node, line in zip(cluster.nodes.values(), lines, strict=True):
        assert line.startswith(f"T {tablet_id} P {node.uuid} ") and time in line, line
        (ahead_s,) = re.findall(r"([\d.]+) s ahead", line)
        assert HOUR_US / 1e6 - 60 < float(ahead_s) < HOUR_US / 1e6, line
    final = cluster.leader()
    assert final is not None
    assert time_at(cluster, last) < time_at(cluster, put_and_wait(cluster, final, b"after").opid.index)


def test_times_go_on_at_a_successor_whose_clock_is_behind() -> None:
    """CN-24: a later leader writes above everything it has taken over (scenario 82). Method: the leader's clock is 20 s
    ahead; it dies after one write; the clocks of the others are right."""
    cluster = SimCluster(22, skew_us_max=0)
    cluster.nodes["a"].clock.skew_us = 20_000_000
    old = started(cluster)
    assert old.uuid == "a"
    index = put_and_wait(cluster, old, b"ahead").opid.index
    node_of(cluster, old).crash(power=True)
    cluster.run_until(lambda: cluster.leader() is not None, "another leader")
    successor = cluster.leader()
    assert successor is not None and successor is not old
    later = put_and_wait(cluster, successor, b"later").opid.index
    assert time_at(cluster, index) < time_at(cluster, index + 1) < time_at(cluster, later)


def test_time_does_not_go_back_within_a_process_whose_clock_jumps_back() -> None:
    """CN-24. Goal: the times of one server ascend even if its wall clock is set back. Method: a clock that jumps back
    by an hour, and on."""

    class Wall:
        us = NEVER_US

        def wall_us(self) -> int:
            return self.us

        def monotonic_us(self) -> int:
            return 0

    wall = Wall()
    clock = HybridClock(wall)
    times = [clock.now()]
    for jump_us in (-HOUR_US, 5, HOUR_US, -2 * HOUR_US):
        wall.us += jump_us
        times += [clock.now(), clock.now()]
    assert all(earlier < later for earlier, later in itertools.pairwise(times))


def test_snapshot_without_a_quorum_times_out_and_leaves_nothing_behind() -> None:
    """CN-24. Goal: scenario 83: a snapshot read without a majority times out, and no waiting caller is left. Method: a
    leader without followers is asked for its present; so is a follower without a leader."""
    cluster = SimCluster(23, driver_options=replace(DRIVER, wait_ticks_max=30, waiters_max=4))
    leader = started(cluster)
    put_and_wait(cluster, leader, b"x")
    cluster.run_until(lambda: level(cluster), "everyone level")
    follower = next(r for r in cluster.replicas if r is not leader)
    for name in cluster.names:
        cluster.network.isolate(name, cluster.names)
    for _ in range(3):  # of four places each: a wait that stayed would take one away
        answers = [Answers() for _ in range(4)]
        for pos, replica in enumerate((leader, leader, follower, follower)):
            time = node_of(cluster, replica).hybrid_clock.now()
            on(cluster, replica, lambda r=replica, t=time, a=answers[pos]: r.wait_safe(t, a))  # type: ignore[misc]
        cluster.run_until(lambda a=answers: all(each.all for each in a), "an answer for everyone")  # type: ignore[misc]
        for answer in answers:
            assert isinstance(answer.one, Refused) and answer.one.applied is Applied.NOT_APPLIED
            assert answer.one.code in (Code.TIMED_OUT, Code.NOT_LEADER, Code.NOT_READY), answer.one
    cluster.network.heal()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")


def test_restarted_replica_reads_nothing_before_it_knows_what_is_committed() -> None:
    """CN-24: scenario 84: no empty reads before replay ends. Method: nothing is flushed, all stop, one comes back
    alone: no strong read, no snapshot, no data that a stale read could be of; with the others, all of it is back."""
    cluster = SimCluster(24, driver_options=replace(DRIVER, wait_ticks_max=40))
    leader = started(cluster)
    index = put_and_wait(cluster, leader, b"x").opid.index
    cluster.run_until(lambda: level(cluster), "everyone level")
    time = time_at(cluster, index)
    for node in cluster.nodes.values():
        node.crash(power=True)
    alone = cluster.nodes["b"]
    alone.start()
    replica = alone.replica
    assert replica is not None and replica.last_logged.index >= index
    barrier, snapshot = Answers(), Answers()
    on(cluster, replica, lambda: replica.read_barrier(barrier))
    on(cluster, replica, lambda: replica.wait_safe(time, snapshot))
    cluster.run_until(lambda: bool(barrier.all and snapshot.all), "both answers")
    assert isinstance(barrier.one, Refused) and isinstance(snapshot.one, Refused)
    assert replica.applied_time == 0
    for name in "ac":
        cluster.nodes[name].start()
    safe = Answers()
    on(cluster, replica, lambda: replica.wait_safe(time, safe))
    cluster.run_until(lambda: bool(safe.all), "the snapshot")
    assert safe.one == time and replica.applied_index >= index


@pytest.mark.parametrize("skew_us", [5_000_000, -5_000_000])
def test_chain_over_two_groups_with_skewed_clocks_keeps_its_order(skew_us: int) -> None:
    """CN-24: scenario 85: what a caller has read in one tablet is below what it then writes in another. Method: two
    groups, the one's clocks off by five seconds; the time read there is shown to the other, as servers show it."""
    first, second = SimCluster(25, skew_us_max=0), SimCluster(26, skew_us_max=0)
    for node in first.nodes.values():
        node.clock.skew_us = skew_us
    leader, other = started(first), started(second)
    read = time_at(first, put_and_wait(first, leader, b"cause").opid.index)
    node_of(second, other).hybrid_clock.observe(read)
    written = time_at(second, put_and_wait(second, other, b"effect").opid.index)
    assert written > read
    snapshot = Answers()
    node_of(first, leader).hybrid_clock.observe(written)
    on(first, leader, lambda: leader.wait_safe(written, snapshot))
    first.run_until(lambda: bool(snapshot.all), "the snapshot")
    assert snapshot.one == written and hybrid_from_us(0) < read < written


@pytest.mark.deep
@settings(max_examples=200)
@given(
    own_ahead_s=st.integers(-10_000, 10_000),
    late_log_ahead_s=st.integers(0, 100_000),
    steps=st.lists(
        st.tuples(st.sampled_from(["time", "wall", "wait", "now"]), st.integers(-40, 40) | st.integers(-7200, 7200)),
        max_size=60,
    ),
)
def test_no_sequence_of_times_pushes_a_clock_further_than_one_of_them_may(
    own_ahead_s: int, late_log_ahead_s: int, steps: list[tuple[str, int]]
) -> None:
    """IN-50, IN-60. Goal: many small steps push a clock no further than one. Method: a clock that starts with a log
    that is ahead of its wall or behind it. At random, others' times, relative to the clock's own latest one, are
    observed if they may be; the wall is set; time passes; times are issued; and a copy's log is opened. The clock is
    never further ahead than the bound, of its walls and its own log, as the monotonic clock counts on from them."""

    class Wall:
        us, mono_us = NEVER_US, 0

        def wall_us(self) -> int:
            return self.us

        def monotonic_us(self) -> int:
            return self.mono_us

    wall = Wall()
    clock = HybridClock(wall)
    clock.observe_own(hybrid_from_us(NEVER_US + own_ahead_s * 1_000_000))
    own_us = least_us = max(NEVER_US, NEVER_US + own_ahead_s * 1_000_000)
    clock.logs_are_open()
    for what, seconds in steps:
        if what == "wall":
            wall.us += seconds * 1_000_000
        elif what == "wait":
            for each in ("us", "mono_us"):
                setattr(wall, each, getattr(wall, each) + abs(seconds) * 1_000_000)
            own_us += abs(seconds) * 1_000_000
            least_us += abs(seconds) * 1_000_000
        own_us = max(own_us, wall.us)
        time = clock.now() + hybrid_from_us(seconds * 1_000_000)
        if what == "time" and clock.ahead_us(time) <= limits.CLOCK_AHEAD_OF_PEERS_US_MAX:
            clock.observe(time)
        assert us_of_hybrid(clock.now()) <= own_us + limits.CLOCK_AHEAD_OF_PEERS_US_MAX + 1
        # What is at most the bound ahead of the clock's own times is taken.
        assert clock.ahead_us(hybrid_from_us(least_us)) <= 0
    clock.observe_own(hybrid_from_us(own_us + late_log_ahead_s * 1_000_000))  # a copy, whose times were checked
    further_us = own_us + max(late_log_ahead_s, 31) * 1_000_000 + 1
    assert clock.ahead_us(hybrid_from_us(further_us)) > limits.CLOCK_AHEAD_OF_PEERS_US_MAX


@pytest.mark.parametrize(
    "how", ["of this term", "of another generation", "of an older term", "to another", "behind a gap"]
)
def test_many_appends_in_small_steps_push_the_clock_no_further_than_one(how: str) -> None:
    """IN-50, IN-60. Goal: a peer's appends cannot move a clock by days, and those that are ignored move it by nothing.
    Method: a follower steps a hundred appends, each with an entry 25 s later than the one before: of a leader of this
    term, or such as Raft ignores."""
    cluster = SimCluster(24, skew_us_max=0)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster), "everyone level")
    follower = next(r for r in cluster.replicas if r is not leader)
    node, term = node_of(cluster, follower), follower.term
    sent = {"of another generation": (1 << 40) + term, "of an older term": term - 1}.get(how, term)
    refusals = []
    last = follower.last_logged if how != "behind a gap" else OpId(term, follower.last_logged.index + 5)
    for step in range(1, 101):
        opid = OpId(min(term, sent) if how != "of another generation" else sent, last.index + 1)
        time = hybrid_from_us(node.clock.wall_us() + 25_000_000 * step)
        append = AppendEntries(
            to_uuid="other" if how == "to another" else follower.uuid,
            from_uuid=leader.uuid,
            term=sent,
            prev=last,
            entries=(Entry(opid, EntryKind.NOOP, time, 0, b"", b"", 0),),
        )
        refusals.append(follower.step(append))
        if how == "of this term" and not refusals[-1]:
            last = opid
    ahead_us = us_of_hybrid(node.hybrid_clock.now()) - node.clock.wall_us()
    assert ahead_us <= (limits.CLOCK_AHEAD_OF_PEERS_US_MAX if how == "of this term" else 1000), refusals
    if how == "of this term":
        assert refusals[0] == "" and all("ahead of the clock here" in r for r in refusals[1:])


def test_follower_is_as_new_as_the_last_promise_that_it_has_applied() -> None:
    """Goal: a follower does not take its data for newer than it is. Method: promises of a leader, each with the index
    that must be applied first and the one that is; what is not applied yet counts for nothing, an earlier promise
    stays, and none goes back."""
    times = Times("t", "u", HybridClock(SystemClock()))
    assert times.heard(10) == 0
    for index, time, applied, found in ((5, 100, 4, 0), (5, 120, 5, 120), (7, 140, 6, 120), (7, 130, 7, 140)):
        times.note_safe_time(index, time, applied)
        assert times.heard(applied) == found
