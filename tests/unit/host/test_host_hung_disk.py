"""A log that hangs: nothing fails and nothing ends, while the other replicas go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.base import Applied, Code, Refused
from tests.harness.sim_cluster import HOST, RAFT, TICK_US, SimCluster, SimNode
from tests.harness.sim_start import level, node_of, put, put_and_wait, started

TIMEOUT_US = RAFT.election_ticks_max * TICK_US


def hang(node: SimNode, timeouts: int) -> int:
    """The node's log ends nothing for so many election timeouts; until when."""
    node.log_stuck_until_us = node.cluster.world.now_us + timeouts * TIMEOUT_US
    return node.log_stuck_until_us


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leader_whose_log_hangs_lets_another_lead_and_tells_its_writers(seed: int) -> None:
    """CN-26. Goal: a disk that hangs under the leader is no outage. Method: its log ends nothing any more, and a write
    comes that the two others commit: one of them leads soon, the writer is told that the outcome is unknown and what
    it wrote is there once; when the disk goes on, all three are level."""
    cluster = SimCluster(seed)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    term, until_us = leader.term, hang(node_of(cluster, leader), 20)
    waits = put(cluster, leader, b"hung")
    cluster.run_until(lambda: bool(waits.all), "an answer", 8 * TIMEOUT_US)
    assert isinstance(waits.one, Refused)
    assert (waits.one.code, waits.one.applied) == (Code.NOT_LEADER, Applied.UNKNOWN)
    cluster.run_until(lambda: cluster.leader() not in (None, leader), "another leader", 4 * TIMEOUT_US)
    other = cluster.leader()
    assert other is not None
    later = put_and_wait(cluster, other, b"after")
    assert later.opid.term > term and cluster.world.now_us < until_us
    assert [e.payload for e in cluster.verify.history.values()].count(b"hung") == 1
    cluster.run_until(lambda: level(cluster), "everyone level", 40 * TIMEOUT_US)
    assert cluster.world.now_us >= until_us and len(waits.all) == 1


def test_leader_whose_log_was_slow_for_a_timeout_leads_on() -> None:
    """Goal: a pause of the disk moves no leader. Method: an election timeout without an end of a sync."""
    cluster = SimCluster(4)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    term = leader.term
    hang(node_of(cluster, leader), 1)
    assert not isinstance(put_and_wait(cluster, leader, b"slow"), Refused)
    cluster.run_for(4 * TIMEOUT_US)
    assert cluster.leader() is leader and leader.term == term


def test_all_logs_that_hang_move_no_leader() -> None:
    """CN-26. Goal: where every disk is slow, another leader is no better, and to look for one refuses writers. Method:
    all three hang for ten timeouts, a write comes in each: all are answered, in order, by the leader that took them."""
    cluster = SimCluster(5)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    term = leader.term
    until_us = min(hang(node, 10) for node in cluster.nodes.values())
    waits = []
    for _ in range(9):
        waits.append(put(cluster, leader, b"hung"))
        cluster.run_for(TIMEOUT_US)
    assert not any(answers.all for answers in waits) and cluster.world.now_us < until_us
    cluster.run_until(lambda: all(answers.all for answers in waits), "all answers", 4 * TIMEOUT_US)
    opids = [answers.one.opid for answers in waits]
    assert opids == sorted(opids) and cluster.leader() is leader and leader.term == term


def test_what_a_disk_that_hangs_holds_up_is_bounded() -> None:
    """Goal: hours of hanging cost no memory. Method: a bound of 20 bundles; a follower hangs for 30 virtual seconds of
    writes and heartbeats; then it is level again."""
    cluster = SimCluster(6, host_options=replace(HOST, held_bundles_max=20))
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    hung = next(n for n in cluster.nodes.values() if n.replica is not leader)
    until_us, most = hang(hung, 150), 0
    while cluster.world.now_us < until_us:
        answers = put(cluster, leader, b"x")
        cluster.run_for(500_000)
        assert hung.replica is not None and answers.all
        most = max(most, hung.replica._persister.waiting)
    assert 20 <= most < 60 and cluster.leader() is leader
    cluster.run_until(lambda: level(cluster), "everyone level")
