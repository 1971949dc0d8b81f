"""A leader whose followers do not answer: when it gives up what waits, counted in ticks, and with which error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.raft_driver import Replica
from nyala.replica.types import Applied, Code, Refused
from tests.harness.sim_cluster import RAFT, TICK_US, SimCluster
from tests.harness.sim_start import Answers, level, on, put, put_and_wait, started

GIVEN_UP_TICKS = RAFT.election_ticks_max + RAFT.heartbeat_ticks
"""The bound that the design page of this folder states: counted after the last answer that the leader received."""
TRANSFER_TICKS = RAFT.election_ticks_min


def frozen(*, quiet: bool = False, seed: int = 3) -> tuple[SimCluster, Replica]:
    """A group of three whose followers have just stopped: what they had to say was said before."""
    options = replace(RAFT, quiet_after_ticks=6 if quiet else 0)
    cluster = SimCluster(seed, raft_options=options)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster) and (leader.may_rest or not quiet), "all is settled")
    for node in cluster.nodes.values():
        if node.uuid != leader.uuid:
            node.paused_until_us = cluster.world.now_us + 10 * GIVEN_UP_TICKS * TICK_US
    return cluster, leader


def ticks_until(cluster: SimCluster, leader: Replica, *waiting: Answers, each_tick: Any = lambda: None) -> int:
    """The leader's ticks until all of these are answered."""
    first = leader._executor.callers.tick
    while not all(answers.all for answers in waiting):
        assert leader._executor.callers.tick - first < 10 * GIVEN_UP_TICKS, "nobody is answered"
        each_tick()
        cluster.run_for(TICK_US)
    return leader._executor.callers.tick - first


@pytest.mark.a_third
@pytest.mark.parametrize("quiet", [False, True], ids=["awake", "at rest"])
@pytest.mark.parametrize("after", range(2 * RAFT.heartbeat_ticks + 1))
def test_writes_at_a_leader_whose_followers_are_frozen_are_given_up_within_the_bound(after: int, quiet: bool) -> None:
    """IN-35. Goal: no caller waits longer than an election timeout and a heartbeat for a majority that does not answer,
    and each learns whether its write was applied. Method: both followers stop; writes at once and up to two heartbeats
    later, with reads beside them. Writes with an index are answered that the outcome is unknown, later ones that
    nothing was applied; all within the bound, in ticks of the leader. When the followers go on, a new term begins and
    the group writes."""
    cluster, leader = frozen(quiet=quiet)
    cluster.run_for(after * TICK_US)
    writes, read = [put(cluster, leader, b"%d" % n) for n in range(3)], Answers()
    on(cluster, leader, lambda: leader.read_barrier(read))
    assert ticks_until(cluster, leader, *writes) <= GIVEN_UP_TICKS + 1
    assert ticks_until(cluster, leader, read) == 0, "reads are told in the same turn at the latest"
    assert not leader.is_leader
    for answers in writes:
        assert (answers.one.code, answers.one.applied) == (Code.NOT_LEADER, Applied.UNKNOWN)
    late = put(cluster, leader, b"late")
    cluster.run_for(TICK_US)
    assert (late.one.code, late.one.applied) == (Code.NOT_LEADER, Applied.NOT_APPLIED)
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    successor = cluster.leader()
    assert successor is not None
    put_and_wait(cluster, successor, b"after")


def test_reads_that_keep_coming_do_not_keep_a_leader_that_nobody_answers() -> None:
    """IN-35. Goal: heartbeat rounds for reads do not delay the leader's check of its majority. Method: both followers
    stop; a write, and from then on a strong read in every tick: the write is given up by the same bound."""
    cluster, leader = frozen()
    write, reads = put(cluster, leader, b"x"), Answers()
    ticks = ticks_until(
        cluster, leader, write, each_tick=lambda: on(cluster, leader, lambda: leader.read_barrier(reads))
    )
    assert ticks <= GIVEN_UP_TICKS + 1 and write.one.applied is Applied.UNKNOWN
    told = [read.code for read in reads.all if isinstance(read, Refused)]  # the first ones had the lease
    assert told and set(told) == {Code.NOT_LEADER}


@pytest.mark.parametrize("after", range(RAFT.election_ticks_max))
def test_step_down_whose_target_is_frozen_is_answered_within_the_bound(after: int) -> None:
    """IN-35. Goal: a step-down, and writes beside it, are answered in time even if the successor is frozen. Method:
    both followers stop; some ticks later a write and a step-down. If the leader goes on to lead, the step-down is given
    up after the shortest election timeout and nothing has changed. If it loses its majority first, both are answered
    then, with an unknown outcome."""
    cluster, leader = frozen()
    cluster.run_for(after * TICK_US)
    write, moved = put(cluster, leader, b"x"), Answers()
    on(cluster, leader, lambda: leader.transfer(None, moved))
    left = max(TRANSFER_TICKS, GIVEN_UP_TICKS - after)
    during = put(cluster, leader, b"y")
    cluster.run_for(TICK_US)
    if leader.is_leader:
        assert (during.one.code, during.one.applied) == (Code.STEPPING_DOWN, Applied.NOT_APPLIED)
    assert ticks_until(cluster, leader, moved) <= TRANSFER_TICKS + 1
    applied = Applied.NOT_APPLIED if leader.is_leader else Applied.UNKNOWN
    if moved.one.code not in (Code.NOT_READY, Code.NOT_LEADER):  # nobody was in touch any more, or it led no more
        assert (moved.one.code, moved.one.applied) == (Code.TIMED_OUT, applied)
    assert ticks_until(cluster, leader, write) <= left + 1
    assert write.one.applied is Applied.UNKNOWN
