"""A log that hangs: nothing fails and nothing ends, while the other replicas go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.types import Applied, Code, ConfigEdit, EditKind, Refused
from tests.harness.sim_cluster import DRIVER, RAFT, TICK_US, WAL, SimCluster, SimNode, member
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started

TIMEOUT_US = RAFT.election_ticks_max * TICK_US


def hang(node: SimNode, timeouts: int) -> int:
    """The node's log ends nothing for so many election timeouts; until when."""
    node.log_stuck_until_us = node.cluster.world.now_us + timeouts * TIMEOUT_US
    return node.log_stuck_until_us


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leader_whose_log_hangs_lets_another_lead_and_tells_its_writers(seed: int) -> None:
    """CN-26. Goal: if the leader's disk hangs, another server leads. Method: no write of the leader's log ends, and the
    two followers commit a write: one of them leads soon, the writer is answered that the outcome is unknown, and its
    row is there once. When the disk goes on, all three have the same log."""
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
    """Goal: a leader whose disk pauses for an election timeout goes on to lead. Method: an election timeout without an
    end of a sync."""
    cluster = SimCluster(4)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    term = leader.term
    hang(node_of(cluster, leader), 1)
    assert not isinstance(put_and_wait(cluster, leader, b"slow"), Refused)
    cluster.run_for(4 * TIMEOUT_US)
    assert cluster.leader() is leader and leader.term == term


def test_all_logs_that_hang_move_no_leader() -> None:
    """CN-26. Goal: if all disks are slow, the leader stays, because another one would be no faster and an election
    refuses writers. Method: all three hang for ten timeouts, a write comes in each: all are answered, in order, by the
    leader that took them."""
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


@pytest.mark.deep
def test_what_a_disk_that_hangs_holds_up_is_bounded() -> None:
    """Goal: a disk that hangs for hours costs a bounded memory. Method: a bound of 20 `Ready`; a follower hangs for 30
    virtual seconds of writes and heartbeats; then it is level again."""
    cluster = SimCluster(6, driver_options=replace(DRIVER, held_readies_max=20))
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    hung = next(n for n in cluster.nodes.values() if n.replica is not leader)
    until_us, most = hang(hung, 150), 0
    while cluster.world.now_us < until_us:
        answers = put(cluster, leader, b"x")
        cluster.run_for(500_000)
        assert hung.replica is not None and answers.all
        most = max(most, hung.replica._executor.persister.waiting)
    assert 20 <= most < 60 and cluster.leader() is leader
    cluster.run_until(lambda: level(cluster), "everyone level")


def test_appends_that_come_at_once_to_a_full_queue_wait_and_block_nobody() -> None:
    """CN-10. Goal: if more appends arrive in one iteration than the log's queue takes, the rest wait, without blocking
    the thread of all tablets, and nothing fails. Method: a queue of 1 KB; the way to a follower is clogged for ten
    writes of 400 bytes, which arrive at once while its log hangs: it has more than the queue held back, refuses what
    comes later, and is level when its disk goes on."""
    wal, raft = replace(WAL, queue_bytes_max=1 << 10), replace(RAFT, append_batch_bytes_min=0)
    cluster = SimCluster(7, wal_options=wal, raft_options=raft)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster), "everyone level")
    hung = next(n for n in cluster.nodes.values() if n.replica is not leader)
    replica, way = hung.replica, (leader.uuid, hung.uuid)
    assert replica is not None and hung.log is not None
    until_us = hang(hung, 4)
    put_and_wait(cluster, leader, b"queued")
    cluster.run_until(lambda: hung.log is not None and hung.log.queued_bytes > 0, "an entry in the queue")
    cluster.network.held[way] = []
    for _ in range(10):
        put_and_wait(cluster, leader, bytes(400))
    cluster.network.release(way)
    cluster.run_until(lambda: replica._executor.persister._log_queue_full, "more than the queue takes", TIMEOUT_US)
    assert hung.log.queued_bytes <= 1 << 10 and replica.phase is Phase.RUNNING
    waits = put(cluster, leader, b"refused for now")
    cluster.run_until(lambda: bool(waits.all), "an answer", TIMEOUT_US)
    cluster.run_for(50_000)
    assert replica.last_logged < leader.last_logged and cluster.world.now_us < until_us
    cluster.run_until(lambda: level(cluster) and bool(waits.all), "everyone level")
    assert hung.replica is replica and replica.phase is Phase.RUNNING and not isinstance(waits.one, Refused)


def test_change_at_a_leader_whose_queue_is_full_waits_and_blocks_nobody() -> None:
    """CN-10, CN-26. Goal: the leader's own entries do not block the thread if the log's queue is full. Method: a queue
    of 1 KB, a log that hangs, writes until one is refused OVERLOADED, and then a change of the members: it goes on
    answering, hands over, and the change is committed or its caller told that the outcome is unknown."""
    cluster = SimCluster(8, spares=1, wal_options=replace(WAL, queue_bytes_max=1 << 10))
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    node, config, answers = node_of(cluster, leader), leader.committed_config, Answers()
    hang(node, 20)
    refused = None
    while not isinstance(refused, Refused):
        waits = put(cluster, leader, bytes(400))
        cluster.run_for(2_000)
        refused = waits.all[0] if waits.all else None
    assert (refused.code, refused.applied) == (Code.OVERLOADED, Applied.NOT_APPLIED)
    edit = ConfigEdit(EditKind.ADD, member("d", votes=False))
    on(cluster, leader, lambda: leader.change_config([edit], config.opid, (0, 0), answers))
    cluster.run_until(lambda: leader._executor.persister._log_queue_full, "a change that waits for room", TIMEOUT_US)
    cluster.run_until(lambda: cluster.leader() not in (None, leader), "another leader", 8 * TIMEOUT_US)
    assert leader.phase is not Phase.FAILED
    cluster.run_until(lambda: bool(answers.all), "an answer", 40 * TIMEOUT_US)
    assert not isinstance(answers.one, Refused) or answers.one.applied is Applied.UNKNOWN


@pytest.mark.parametrize("seed", [9, 10])
def test_metadata_that_hang_hold_up_no_write_and_give_no_vote(seed: int) -> None:
    """Goal: if consensus metadata cannot be written while the log can, writes go on, and no vote leaves before it is
    saved. Method: the metadata of one follower and of the leader hang: the same leader answers writes in the same term.
    The leader is stopped: no server leads until the follower's metadata go on; then one of the two does."""
    cluster = SimCluster(seed)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster), "everyone level")
    hung, other = (node for node in cluster.nodes.values() if node.replica is not leader)
    term, until_us = leader.term, cluster.world.now_us + 30 * TIMEOUT_US
    for node in (hung, node_of(cluster, leader)):
        node.hang_meta(until_us)
    for _ in range(8):
        assert not isinstance(put_and_wait(cluster, leader, b"beside it"), Refused)
        cluster.run_for(TIMEOUT_US)
    assert cluster.leader() is leader and leader.term == term
    node_of(cluster, leader).paused_until_us = until_us + 20 * TIMEOUT_US
    cluster.run_until(lambda: hung.meta_waits, "a vote that waits for the disk", until_us - cluster.world.now_us)
    while cluster.world.now_us < until_us - TIMEOUT_US:
        cluster.run_for(TIMEOUT_US)
        assert not any(node.replica.is_leader for node in (hung, other) if node.replica is not None)
        assert hung.cmeta is not None and hung.cmeta.term == term
    cluster.run_until(lambda: cluster.leader() not in (None, leader), "another leader", 20 * TIMEOUT_US)
    new = cluster.leader()
    assert new is not None and not isinstance(put_and_wait(cluster, new, b"after"), Refused)
    assert new.term > term and cluster.world.now_us < node_of(cluster, leader).paused_until_us
