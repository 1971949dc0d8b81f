"""Replicas of a server that wants for memory, files or threads: they wait, as on a full disk, and none fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.types import Applied, Code, Refused, ResourcesExhausted
from tests.harness.sim_cluster import DRIVER, WAL_FOLDER, SimCluster
from tests.harness.sim_start import level, node_of, put, put_and_wait, started

WANTS = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")


def none_failed(cluster: SimCluster) -> bool:
    phases = {replica.phase for replica in cluster.replicas}
    return not phases & {Phase.FAILED, Phase.STOPPED}


@pytest.mark.parametrize("kind", WANTS)
@pytest.mark.parametrize("operation", ["pwrite", "open"])
def test_write_that_the_leaders_log_has_no_means_for_is_refused_as_that(operation: str, kind: str) -> None:
    """IN-30. Goal: if the leader's log runs out of a resource such as file descriptors, writes are refused OVERLOADED,
    may be retried, and no replica fails. Method: that errno at each write of the leader's log for a while: writes are
    refused with the remedy, and another server leads; then all replicas have the same log."""
    cluster = SimCluster(31)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    disk = node_of(cluster, leader).disk
    if operation == "open":
        leader._files.log.roll()  # the next write opens a segment
    disk.fail_on(operation, f"{WAL_FOLDER}/*", kind, times=None)
    stuck = put(cluster, leader, b"stuck")
    cluster.run_for(10_000)
    refused = put_and_wait(cluster, leader, b"refused")
    assert isinstance(refused, ResourcesExhausted)
    assert (refused.code, refused.applied) == (Code.OVERLOADED, Applied.NOT_APPLIED)
    cluster.run_until(lambda: cluster.leader() not in (None, leader), "another leader")
    assert none_failed(cluster)
    disk.heal()
    cluster.run_until(lambda: bool(stuck.all) and level(cluster), "an answer, everyone level")
    there = [entry.payload for entry in cluster.verify.history.values()]
    assert b"refused" not in there and there.count(b"before") == 1
    assert none_failed(cluster) and leader.status().error == ""


@pytest.mark.parametrize("kind", [*WANTS, "ENOSPC"])
def test_leader_whose_log_could_not_be_rolled_once_goes_on(kind: str) -> None:
    """IN-30. Goal: a resource that was exhausted once does not block later writes. Method: that errno once while the
    leader's log is rolled for a copy; the next write is answered by the same leader."""
    cluster = SimCluster(34)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    node_of(cluster, leader).disk.fail_on("truncate", f"{WAL_FOLDER}/*", kind)
    with pytest.raises(Refused):
        leader._files.log.roll()
    assert not isinstance(put_and_wait(cluster, leader, b"after"), BaseException)
    assert not leader._executor.persister.full and cluster.leader() is leader and none_failed(cluster)
    cluster.run_until(lambda: level(cluster), "everyone level")


@pytest.mark.parametrize("kind", WANTS)
def test_vote_that_the_metadata_has_no_means_for_waits(kind: str) -> None:
    """IN-30. Goal: a vote that cannot be saved for want of a resource is sent later, and no replica fails. Method: two
    of three cannot write metadata while the leader dies: none leads; when they can write again, one does."""
    cluster = SimCluster(32)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    cluster.run_until(lambda: level(cluster), "everyone level")
    others = [node for node in cluster.nodes.values() if node.replica is not leader]
    for node in others:
        node.disk.fail_on("replace", "consensus-meta/*", kind, times=None)
    node_of(cluster, leader).crash(power=False)
    cluster.run_for(3_000_000)
    assert cluster.leader() is None and none_failed(cluster)
    for node in others:
        node.disk.heal()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader of the two that are left")


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_entries_that_cannot_be_read_back_just_now_are_read_later(operation: str) -> None:
    """IN-30. Goal: if entries cannot be read from the log for want of a resource, the replica reads them later. Method:
    a follower misses many entries; when it comes back, no log can be read for a while; then all replicas have the same
    log."""
    cluster = SimCluster(33, driver_options=replace(DRIVER, log_retain_entries=1000, log_retain_bytes_max=1 << 20))
    leader = started(cluster)
    away = next(node for node in cluster.nodes.values() if node.replica is not leader)
    away.crash(power=False)
    for number in range(40):
        put_and_wait(cluster, leader, b"%d" % number * 200)
    for node in cluster.nodes.values():
        if node is not away:
            node.disk.fail_on(operation, f"{WAL_FOLDER}/wal-*", "ENOMEM", times=None)
    away.start()
    cluster.run_for(3_000_000)
    assert none_failed(cluster) and not level(cluster)
    assert any(node.disk.fired for node in cluster.nodes.values())
    for node in cluster.nodes.values():
        node.disk.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert none_failed(cluster)
