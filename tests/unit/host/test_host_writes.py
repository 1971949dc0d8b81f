"""A write's way through a replica: admission, one group for many, and the truth about its fate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google_crc32c import value as crc

from nyala.replica.base import Applied, Code, EntryKind, OpId, Refused
from nyala.replica.raft import AppendEntries
from tests.harness.sim_cluster import HOST, WAL, WAL_FOLDER, SimCluster
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started


def test_write_without_a_quorum_is_not_acknowledged_and_told_the_truth_later() -> None:
    """CN-26: an isolated leader's write never acks. Method: cut the leader, write, let others elect, heal."""
    cluster = SimCluster(1)
    old = started(cluster)
    before = put_and_wait(cluster, old, b"before")
    cluster.network.isolate(old.uuid, cluster.names)
    lost = put(cluster, old, b"lost")
    cluster.run_until(lambda: not old.is_leader, "the old leader steps down")
    answer = lost.one
    assert (answer.code, answer.applied) == (Code.NOT_LEADER, Applied.UNKNOWN)
    cluster.run_until(lambda: cluster.leader() not in (None, old), "a new leader")
    cluster.network.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    payloads = [entry.payload for entry in cluster.verify.history.values()]
    assert payloads.count(b"before") == 1 and b"lost" not in payloads
    assert before.opid in [entry.opid for entry in cluster.verify.history.values()]


def test_write_overwritten_by_another_leader_is_told_not_applied() -> None:
    """Goal: NOT_APPLIED where it is certain. Method: one-way cut, so the deposing append also truncates the write."""
    cluster = SimCluster(2)
    old = started(cluster)
    put_and_wait(cluster, old, b"before")
    cluster.network.isolate(old.uuid, cluster.names)
    for node in cluster.nodes.values():
        if node.uuid != old.uuid and node.replica is not None:
            replica = node.replica
            on(cluster, replica, lambda replica=replica: [replica.tick() for _ in range(40)] and None)
    lost = put(cluster, old, b"lost")
    cluster.run_until(lambda: any(r.is_leader and r is not old for r in cluster.replicas), "a rival", 150_000)
    assert not lost.all and old.is_leader
    cluster.network.heal()
    cluster.run_until(lambda: bool(lost.all), "an answer")
    assert lost.one.code is Code.NOT_LEADER
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert b"lost" not in [entry.payload for entry in cluster.verify.history.values()]


def test_write_to_a_follower_is_refused_with_the_leaders_address() -> None:
    """CN-25: a write at a non-leader is rejected with a hint. Method: write at a follower."""
    cluster = SimCluster(3)
    leader = started(cluster)
    cluster.run_for(200_000)
    follower = next(r for r in cluster.replicas if r is not leader)
    refused = put_and_wait(cluster, follower, b"x")
    assert (refused.code, refused.applied) == (Code.NOT_LEADER, Applied.NOT_APPLIED)
    assert refused.detail == f"{leader.uuid}@{leader.uuid}:7050"


def test_write_before_the_terms_first_entry_is_committed_is_refused() -> None:
    """CN-39: no writes before the group's leader has replicated its first entry. Method: lead, but cut off appends."""
    cluster = SimCluster(4)
    cluster.start(hinted="a")
    node = cluster.nodes["a"]
    assert node.replica is not None
    cluster.run_until(lambda: node.replica.is_leader, "a leader")  # type: ignore[union-attr]
    refused = put_and_wait(cluster, node.replica, b"early")
    assert (refused.code, refused.applied) == (Code.NOT_READY, Applied.NOT_APPLIED)


def test_writes_that_arrive_together_share_one_sync_and_one_message_per_peer() -> None:
    """Goal: cost per batch, not per write. Method: 50 writes in one turn; count syncs of the log and appends sent."""
    cluster = SimCluster(5)
    leader = started(cluster)
    cluster.run_for(300_000)
    appends: list[tuple[str, int]] = []

    def tap(sender: str, receiver: str, message: Any) -> None:
        if isinstance(message, AppendEntries) and message.entries:
            appends.append((receiver, len(message.entries)))

    cluster.network.tap = tap
    disk = node_of(cluster, leader).disk
    syncs = disk.count("datasync", f"{WAL_FOLDER}/*")
    answers = Answers()

    def burst() -> None:
        for n in range(50):
            payload = b"w%d" % n
            leader.write(EntryKind.WRITE, 1, b"", payload, crc(payload), answers)
        assert not answers.all

    on(cluster, leader, burst)
    cluster.run_until(lambda: len(answers.all) == 50, "50 answers")
    assert not any(isinstance(answer, Refused) for answer in answers.all)
    assert [answer.opid.index for answer in answers.all] == list(
        range(answers.all[0].opid.index, answers.all[0].opid.index + 50)
    )
    assert disk.count("datasync", f"{WAL_FOLDER}/*") - syncs == 1
    assert sorted(appends) == [("b", 50), ("c", 50)]


def test_write_over_the_pending_bound_gets_no_index() -> None:
    """Goal: bounded memory, and OVERLOADED means nothing was reserved. Method: bound of 3, no quorum, 5 writes."""
    cluster = SimCluster(6, host_options=replace(HOST, writes_pending_max=3))
    leader = started(cluster)
    cluster.network.isolate(leader.uuid, cluster.names)
    before = leader.last_logged
    answers = [put(cluster, leader, b"w%d" % n) for n in range(5)]
    cluster.run_for(5_000)
    assert leader.last_logged == OpId(before.term, before.index + 3)
    assert [a.one.code for a in answers[3:]] == [Code.OVERLOADED] * 2
    assert all(a.one.applied is Applied.NOT_APPLIED for a in answers[3:])
    assert leader.status().writes_pending == 3


def test_write_while_the_logs_disk_is_full_is_refused_and_works_again_with_room() -> None:
    """Goal: no space is no end. Method: ENOSPC on the leader's log for a while; the group goes on, nothing is lost."""
    cluster = SimCluster(7)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    disk = node_of(cluster, leader).disk
    disk.fail_on("pwrite", f"{WAL_FOLDER}/*", "ENOSPC", times=None)
    stuck = put(cluster, leader, b"stuck")
    cluster.run_for(10_000)
    refused = put_and_wait(cluster, leader, b"refused")
    assert (refused.code, refused.applied) == (Code.NO_SPACE, Applied.NOT_APPLIED)
    cluster.run_until(lambda: cluster.leader() not in (None, leader), "another leader")
    disk.heal()
    cluster.run_until(lambda: bool(stuck.all) and level(cluster), "an answer, everyone level")
    there = [entry.payload for entry in cluster.verify.history.values()]
    assert b"refused" not in there and there.count(b"before") == 1
    assert leader.status().error == ""


def test_entry_larger_than_the_logs_queue_is_taken_when_the_queue_is_empty() -> None:
    """Goal: no append is dropped, and no write refused, for ever. Method: a queue of 1 KB, a write of 4 KB: it commits,
    and every replica applies it."""
    cluster = SimCluster(20, wal_options=replace(WAL, queue_bytes_max=1 << 10))
    leader = started(cluster)
    big = put_and_wait(cluster, leader, b"x" * 4096)
    assert not isinstance(big, Refused), big
    cluster.run_until(lambda: level(cluster) and leader.applied_index >= big.opid.index, "everyone has it")
