"""A disk without room for consensus metadata: promises wait, in order, and nothing fails for good."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft_driver import Phase
from nyala.replica.tablet_copy import wal_folder
from nyala.replica.types import Applied, Code, ConfigEdit, EditKind, Refused
from nyala.replica.wal import read_offline
from tests.harness.sim_cluster import DRIVER, TABLET, SimCluster, SimNode, member
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started

META = "consensus-meta/*"


def fill(node: SimNode) -> None:
    """No room for metadata until the disk is healed."""
    node.disk.fail_on("replace", META, "ENOSPC", times=None)


def saved(node: SimNode) -> ConsensusMeta:
    """Return what a restart would remember."""
    return ConsensusMeta.load(node.disk, TABLET)


def test_follower_without_room_for_a_new_term_promises_nothing_and_votes_once_there_is_room() -> None:
    """TC-14: a promise waits for the disk, and a full one is no end. Method: of three voters one is dead and one has no
    room for metadata: no leader; its vote leaves only after room is back, without a restart.
    """
    cluster = SimCluster(7)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster), "everyone level")
    full = next(n for n in cluster.nodes.values() if n.replica is not leader)
    fill(full)
    old_term = saved(full).term
    node_of(cluster, leader).crash(power=False)
    cluster.run_for(2_000_000)
    replica = full.replica
    assert replica is not None and replica.phase is not Phase.FAILED, replica and replica.error
    assert saved(full).term == old_term
    assert [term for uuid, term in cluster.verify.votes if uuid == full.uuid and term > old_term] == []
    assert cluster.leader() is None
    full.disk.heal()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader of the two that are left")
    assert saved(full).term > old_term
    later = cluster.leader()
    assert later is not None and put_and_wait(cluster, later, b"after").opid.term > old_term


def test_terms_that_found_no_room_are_saved_in_order() -> None:
    """TC-14. Goal: terms that wait for room on the disk are saved in order, each before the entries of that term.
    Method: a full follower sees three terms pass, and an entry of the last; then room."""
    cluster = SimCluster(8)
    started(cluster)
    full = cluster.nodes["c"]
    fill(full)
    for _ in range(3):
        leader = cluster.leader()
        assert leader is not None
        moved = Answers()
        target = "b" if leader.uuid == "a" else "a"
        on(cluster, leader, lambda leader=leader, target=target, moved=moved: leader.transfer(target, moved))  # type: ignore[misc]
        cluster.run_until(lambda moved=moved: bool(moved.all), "leadership moves between the two others")  # type: ignore[misc]
        cluster.run_until(lambda: cluster.leader() is not None, "its first commit")
        cluster.run_for(100_000)
    leader = cluster.leader()
    replica = full.replica
    assert leader is not None and replica is not None and replica.phase is not Phase.FAILED
    assert put_and_wait(cluster, leader, b"without c").opid.term == leader.term > saved(full).term
    last = read_offline(full.disk, wal_folder(TABLET), TABLET).last
    assert last.term <= saved(full).term, "a log never knows a term that a restart would forget"
    full.disk.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert saved(full).term == leader.term


def test_committed_config_that_found_no_room_is_saved_later_and_its_log_is_kept() -> None:
    """Goal: a leader whose disk is full survives a config change: it saves the config later, and keeps the log until
    then. Method: no metadata room at the leader, add a server."""
    cluster = SimCluster(9, spares=1)
    leader = started(cluster)
    node = node_of(cluster, leader)
    fill(node)
    changed = Answers()
    edit = ConfigEdit(EditKind.ADD, member("d", votes=False))
    on(cluster, leader, lambda: leader.change_config([edit], None, (0, 0), changed))
    cluster.run_until(lambda: bool(changed.all), "the change is committed")
    assert changed.one.member("d") is not None
    cluster.run_for(50_000)
    assert saved(node).committed_config.member("d") is None
    refused = put_and_wait(cluster, leader, b"refused")
    assert (refused.code, refused.applied) == (Code.NO_SPACE, Applied.NOT_APPLIED)
    node.disk.heal()
    cluster.run_until(lambda: saved(node).committed_config.opid == changed.one.opid, "the config is saved")
    assert leader.phase is Phase.RUNNING


def test_lone_voter_with_a_full_disk_leads_again_when_there_is_room() -> None:
    """Goal: a single master whose disk was full leads again without a restart. Method: restart it without metadata
    room."""
    cluster = SimCluster(10, voters=1)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"kept")
    node = cluster.nodes["a"]
    node.crash(power=False)
    fill(node)
    node.start()
    cluster.run_for(3_000_000)
    assert cluster.leader() is None and node.replica is not None and node.replica.phase is Phase.CONFIGURING
    node.disk.heal()
    cluster.run_until(lambda: cluster.leader() is not None, "it leads")
    again = cluster.leader()
    assert again is not None and put_and_wait(cluster, again, b"after").opid.index > 2


@pytest.mark.deep
def test_replica_without_room_says_so_at_once_and_seldom_again(caplog: pytest.LogCaptureFixture) -> None:
    """CN-08. Goal: the log of a server that refuses writes for want of room tells an operator why. Method: no room in a
    follower's log for 7,000 ticks: one line at once and one 6,000 ticks later name the disk, the path and what follows;
    it is without room until the disk is healed, and the leader never is."""
    cluster = SimCluster(13)
    leader = started(cluster)
    full = next(n for n in cluster.nodes.values() if n.replica is not leader)
    assert full.replica is not None and full.replica.without_room is None
    full.disk.fail_on("pwrite", f"wals/{TABLET}/*", "ENOSPC", times=None)
    put_and_wait(cluster, leader, b"row")
    with caplog.at_level(logging.WARNING, "nyala.raft_driver"):
        cluster.run_for(3_000_000)
        refusal = full.replica.without_room
        assert refusal is not None and refusal.code is Code.NO_SPACE and leader.without_room is None
        assert len(told_of_room(caplog, full)) == 1
        cluster.run_for(67_000_000)
        assert len(told_of_room(caplog, full)) == 2
    full.disk.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert full.replica.without_room is None


def told_of_room(caplog: pytest.LogCaptureFixture, full: SimNode) -> list[str]:
    """Lines of the log that name the tablet, the server, the path, and what follows."""
    lines = [record.getMessage() for record in caplog.records]
    begin = f"T {TABLET} P {full.uuid} cannot write its log or its metadata"
    return [text for text in lines if text.startswith(begin) and f"wals/{TABLET}" in text and "refuses writes" in text]


def test_what_a_full_disk_holds_up_is_bounded() -> None:
    """Goal: a disk that is full for hours costs a bounded memory. Method: a bound of 20 `Ready`, 30 virtual seconds of
    heartbeats."""
    cluster = SimCluster(11, driver_options=replace(DRIVER, held_readies_max=20))
    leader = started(cluster)
    for node in cluster.nodes.values():
        if node.replica is not leader:
            fill(node)
            node.disk.fail_on("pwrite", f"wals/{TABLET}/*", "ENOSPC", times=None)
    stuck = put(cluster, leader, b"stuck")
    worst = 0
    for _ in range(300):
        cluster.run_for(100_000)
        worst = max(worst, *(r._executor.persister.waiting for r in cluster.replicas))
    assert 20 <= worst <= 60, worst
    for node in cluster.nodes.values():
        node.disk.heal()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    cluster.run_until(lambda: bool(stuck.all), "an answer")
    last = cluster.leader()
    assert last is not None
    put_and_wait(cluster, last, b"after")
    cluster.run_until(lambda: level(cluster), "everyone level")
    cluster.verify.writes_stand()


def test_writer_at_a_leader_without_room_is_answered_though_the_others_committed_its_row() -> None:
    """CN-26. Goal: a leader that cannot log a write answers its caller when another one leads, not when there is room
    again. Method: the leader's log has no room for good; one write, which the two followers commit; its caller is
    answered that the outcome is unknown; with room again, all three have the row."""
    cluster = SimCluster(12)
    leader = started(cluster)
    node = node_of(cluster, leader)
    node.disk.fail_on("pwrite", f"wals/{TABLET}/*", "ENOSPC", times=None)
    answers = put(cluster, leader, b"committed by the others")
    cluster.run_until(lambda: bool(answers.all), "the writer is answered", within_us=2_000_000)
    assert isinstance(answers.one, Refused) and answers.one.applied is Applied.UNKNOWN
    assert b"committed by the others" in {e.payload for e in cluster.verify.history.values()}
    assert leader.phase is not Phase.FAILED and not leader.is_leader
    node.disk.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    cluster.verify.writes_stand()
