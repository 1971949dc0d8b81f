"""Strong reads, snapshots, transfers and log GC through whole replicas."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.types import Applied, Code, ConfigEdit, EditKind, OpId, Refused, hybrid_from_us, us_of_hybrid
from tests.harness.sim_cluster import DRIVER, RAFT, TICK_US, SimCluster, member
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started
from tests.harness.sim_world import Faults


def test_read_barrier_at_a_deposed_leader_is_never_served() -> None:
    """CN-24: an isolated leader that does not know it was deposed serves no strong read. Method: cut it off for the
    length of a lease, then read: it leads yet, as far as it knows."""
    cluster = SimCluster(1)
    old = started(cluster)
    put_and_wait(cluster, old, b"before")
    cluster.network.isolate(old.uuid, cluster.names)
    cluster.run_for(RAFT.lease_ticks * TICK_US)
    assert old.is_leader
    read = Answers()
    on(cluster, old, lambda: old.read_barrier(read))
    cluster.run_until(lambda: bool(read.all), "an answer")
    assert isinstance(read.one, Refused) and read.one.applied is Applied.NOT_APPLIED


def test_read_barrier_waits_until_what_was_committed_is_applied() -> None:
    """CN-24: a read sees every write that was acknowledged before it. Method: write, read, compare indexes."""
    cluster = SimCluster(2)
    leader = started(cluster)
    index = put_and_wait(cluster, leader, b"x").opid.index
    read = Answers()
    on(cluster, leader, lambda: leader.read_barrier(read))
    cluster.run_until(lambda: bool(read.all), "an answer")
    assert read.one >= index and leader.applied_index >= read.one


def test_read_barrier_under_a_lease_takes_no_round_trip() -> None:
    """CN-24: a leader that a majority just heard answers at once. Method: less time than one message needs."""
    cluster = SimCluster(3)
    leader = started(cluster)
    index = put_and_wait(cluster, leader, b"x").opid.index
    cluster.run_for(100_000)
    read = Answers()
    on(cluster, leader, lambda: leader.read_barrier(read))
    cluster.run_for(Faults().delay_us_min)
    assert read.one >= index


def test_read_barrier_at_a_leader_that_was_stopped_is_not_served_by_its_lease() -> None:
    """CN-24. Goal: scenario 31: a leader that was stopped by SIGSTOP does not serve a strong read by an expired lease.
    Method: stop the leader, let another write, read before anything else happens."""
    cluster = SimCluster(4)
    old = started(cluster)
    put_and_wait(cluster, old, b"before")
    cluster.run_for(100_000)
    wakes_us = cluster.world.now_us + 2_000_000
    node_of(cluster, old).paused_until_us = wakes_us
    read = Answers()
    cluster.world.at(wakes_us, lambda: on(cluster, old, lambda: old.read_barrier(read)))
    cluster.run_until(lambda: cluster.leader() not in (None, old), "another leader")
    successor = cluster.leader()
    assert successor is not None
    newest = put_and_wait(cluster, successor, b"after").opid.index
    assert cluster.world.now_us < wakes_us and old.is_leader
    cluster.run_for(2_500_000)
    assert isinstance(read.one, Refused) or read.one >= newest


def test_snapshot_served_by_a_leader_is_the_same_after_failover_to_a_slow_clock() -> None:
    """CN-24. Goal: guarantee 5. Method: the leader's clock is 0.4 s ahead; after its snapshot another leads and
    writes."""
    cluster = SimCluster(3, skew_us_max=0)
    cluster.nodes["a"].clock.skew_us = 400_000
    leader = started(cluster)
    assert leader.uuid == "a"
    put_and_wait(cluster, leader, b"x")
    cluster.run_for(50_000)
    time = node_of(cluster, leader).hybrid_clock.now()
    safe = Answers()
    on(cluster, leader, lambda: leader.wait_safe(time, safe))
    cluster.run_until(lambda: bool(safe.all), "the snapshot")
    assert safe.one == time
    cluster.verify.snapshot_served(leader, time)
    node_of(cluster, leader).crash(power=True)
    cluster.run_until(lambda: cluster.leader() is not None, "another leader")
    successor = cluster.leader()
    assert successor is not None
    result = put_and_wait(cluster, successor, b"later")
    assert cluster.verify.history[result.opid.index].hybrid_time > time
    cluster.verify.snapshots_stand()


def test_snapshot_far_in_the_future_is_refused() -> None:
    """Goal: no caller pushes the clocks of a cluster ahead. Method: ask for a time an hour away."""
    cluster = SimCluster(4)
    leader = started(cluster)
    safe = Answers()
    time = node_of(cluster, leader).hybrid_clock.now() + hybrid_from_us(3_600_000_000)
    on(cluster, leader, lambda: leader.wait_safe(time, safe))
    assert safe.one.code is Code.INVALID_ARGUMENT


def test_waiting_for_an_index_ends_by_time() -> None:
    """Goal: a wait for an index times out. Method: a follower waits for an index that never comes."""
    cluster = SimCluster(5)
    leader = started(cluster)
    follower = next(r for r in cluster.replicas if r is not leader)
    waited = Answers()
    follower.wait_applied(10**6, waited)
    cluster.run_until(lambda: bool(waited.all), "an answer")
    assert waited.one.code is Code.TIMED_OUT


def test_transfer_answers_with_the_new_leader() -> None:
    """Goal: the caller of a transfer gets the new leader. Method: transfer to a named follower."""
    cluster = SimCluster(6)
    leader = started(cluster)
    cluster.run_for(300_000)
    target = next(r for r in cluster.replicas if r is not leader)
    moved = Answers()
    on(cluster, leader, lambda: leader.transfer(target.uuid, moved, cas=leader.committed_config.opid))
    cluster.run_until(lambda: bool(moved.all), "an answer", within_us=300_000)
    assert moved.one == target.uuid and target.is_leader


def test_transfer_to_a_dead_voter_times_out_and_the_leader_leads_on() -> None:
    """Goal: a transfer that fails leaves the leader in place. Method: the target is down."""
    cluster = SimCluster(7)
    leader = started(cluster)
    target = next(n for n in cluster.nodes.values() if n.replica is not leader)
    target.crash(power=False)
    moved = Answers()
    on(cluster, leader, lambda: leader.transfer(target.uuid, moved))
    cluster.run_until(lambda: bool(moved.all), "an answer")
    assert moved.one.code is Code.TIMED_OUT
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    assert put_and_wait(cluster, leader, b"x").opid.index == leader.last_logged.index


def test_transfer_with_another_config_or_a_stale_decision_is_refused() -> None:
    """Goal: the leader refuses a transfer that names another config than the committed one. Method: a wrong
    compare-and-swap token."""
    cluster = SimCluster(8)
    leader = started(cluster)
    moved = Answers()
    on(cluster, leader, lambda: leader.transfer(None, moved, cas=OpId(9, 9)))
    cluster.run_for(1_000)
    assert moved.one.code is Code.CAS_FAILED


def test_config_change_answers_when_committed_and_survives_restart() -> None:
    """CN-34: the last committed config is what a restart finds. Method: add a learner, lose power everywhere."""
    cluster = SimCluster(9, spares=1)
    leader = started(cluster)
    edits = [ConfigEdit(EditKind.ADD, member("d", votes=False))]
    changed, stale = Answers(), Answers()
    on(cluster, leader, lambda: leader.change_config(edits, leader.committed_config.opid, (1, 1), changed))
    cluster.run_until(lambda: bool(changed.all), "the change")
    config = changed.one
    assert config.member("d") is not None and config.decision == (1, 1)
    on(cluster, leader, lambda: leader.change_config(edits, None, (1, 0), stale))
    cluster.run_for(200_000)
    assert stale.one.code in (Code.STALE_DECISION, Code.ALREADY_EXISTS)
    for node in list(cluster.nodes.values())[:3]:
        node.crash(power=True)
        node.start()
        assert node.replica is not None and node.replica.active_config.member("d") is not None


def test_log_gc_keeps_what_is_not_flushed_and_what_an_anchor_holds() -> None:
    """Goal: scenarios 42 and 49: log GC keeps segments with entries that are not flushed or that an anchor protects,
    and no removed entry is needed again. Method: fill the log, collect unflushed, anchored, and free; write; everybody
    loses power: the flush and what follows it is all there."""
    cluster = SimCluster(10, driver_options=DRIVER)
    leader = started(cluster)
    for n in range(300):
        put(cluster, leader, b"value-%d" % n)
        cluster.run_for(500)
    cluster.run_until(lambda: level(cluster), "everyone level")
    node = node_of(cluster, leader)
    assert node.machine is not None
    freed = Answers()
    on(cluster, leader, lambda: leader.gc(freed))
    cluster.run_until(lambda: bool(freed.all), "an answer")
    assert freed.one == 0 and leader.status().first_index == 1
    node.machine.flush()
    anchor = leader.anchor(5)
    on(cluster, leader, lambda: leader.gc(freed))
    cluster.run_until(lambda: len(freed.all) == 2, "an answer")
    assert leader.status().first_index <= 5
    anchor.release()
    on(cluster, leader, lambda: leader.gc(freed))
    cluster.run_until(lambda: len(freed.all) == 3, "an answer")
    assert freed.all[2] > 0 and 5 < leader.status().first_index <= node.machine.flush_opid.index + 1
    after = put_and_wait(cluster, leader, b"after").opid.index
    for node in cluster.nodes.values():
        node.crash(power=True)
    for node in cluster.nodes.values():
        node.start()
    cluster.run_until(lambda: level(cluster) and cluster.replicas[0].applied_index > after, "everyone level")
    cluster.verify.writes_stand()


def test_lagging_follower_is_served_from_the_log_on_disk() -> None:
    """Goal: the leader reads entries that are no longer in memory from its log for a lagging follower. Method: a 2 kB
    cache, a follower that misses 200 writes."""
    cluster = SimCluster(11)
    leader = started(cluster)
    late = next(n for n in cluster.nodes.values() if n.replica is not leader)
    late.crash(power=False)
    for n in range(200):
        put(cluster, leader, b"value-%d" % n)
        cluster.run_for(500)
    cluster.run_until(lambda: not leader.status().writes_pending, "all are applied")
    assert leader.cache_bytes < 8 << 10
    late.start()
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert cluster.copies == 0


def test_leader_whose_clock_runs_far_ahead_pushes_no_other_clock(caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a leader with a wrong clock does not move the clocks of others. Method: the leader's clock jumps an hour
    ahead; its appends are dropped, with one clear line, and another server leads at the right time."""
    cluster = SimCluster(7, skew_us_max=0)
    old = started(cluster)
    put_and_wait(cluster, old, b"before")
    cluster.run_until(lambda: level(cluster), "all are level")
    node_of(cluster, old).clock.skew_us = 3_600_000_000
    late = put(cluster, old, b"from the future")
    cluster.run_until(lambda: cluster.leader() not in (None, old), "another leader")
    successor = cluster.leader()
    assert successor is not None and successor is not old
    put_and_wait(cluster, successor, b"after")
    assert all(r.code is Code.NOT_LEADER for r in late.all)
    for node in cluster.nodes.values():
        if node.uuid != old.uuid:
            assert us_of_hybrid(node.hybrid_clock.now()) - node.clock.wall_us() < 1_000_000
    told = [r.getMessage() for r in caplog.records if "compare the clocks" in r.getMessage()]
    assert told and all(f"append of {old.uuid}" in t for t in told) and len(told) <= 4


def test_read_barrier_that_nothing_confirms_times_out_and_makes_room() -> None:
    """Goal: a strong read at a leader that cannot commit in its term times out, and frees its place. Method: a leader
    that reaches nobody until its first commit, a bound of two reads and of ten ticks: two time out, then two more are
    taken."""
    raft = replace(RAFT, reads_pending_max=2, election_ticks_max=400, config_abort_ticks=400)
    cluster = SimCluster(12, raft_options=raft, driver_options=replace(DRIVER, wait_ticks_max=10))
    leader = started(cluster)
    cluster.network.isolate(leader.uuid, cluster.names)
    cluster.run_for(raft.lease_ticks * TICK_US + TICK_US)
    for _ in range(2):
        reads = [Answers() for _ in range(3)]
        for read in reads:
            on(cluster, leader, lambda read=read: leader.read_barrier(read))  # type: ignore[misc]
        cluster.run_for(2 * TICK_US)
        assert [len(read.all) for read in reads] == [0, 0, 1] and reads[2].one.code is Code.OVERLOADED
        cluster.run_for(12 * TICK_US)
        assert [read.one.code for read in reads[:2]] == [Code.TIMED_OUT] * 2
    assert leader.is_leader
