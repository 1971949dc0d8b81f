"""A write's way through a replica: admission, one group for many, and the truth about its fate."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from google_crc32c import value as crc

from nyala.replica.raft import AppendEntries
from nyala.replica.types import Applied, Code, EntryKind, OpId, Refused
from tests.harness.sim_cluster import DRIVER, WAL, WAL_FOLDER, SimCluster
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
    """Goal: a writer gets NOT_APPLIED where that is certain. Method: one-way cut, so the deposing append also truncates
    the write."""
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
    """Goal: writes that arrive together cost one sync and one append for each peer. Method: 50 writes in one turn;
    count syncs of the log and appends sent."""
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


def appends_of(cluster: SimCluster) -> list[tuple[str, list[bytes]]]:
    """(receiver, payloads) of each append with entries that is sent from now on."""
    appends: list[tuple[str, list[bytes]]] = []

    def tap(sender: str, receiver: str, message: Any) -> None:
        if isinstance(message, AppendEntries) and message.entries:
            appends.append((receiver, [entry.payload for entry in message.entries]))

    cluster.network.tap = tap
    return appends


def test_small_writes_wait_for_the_batch_that_is_under_way_and_leave_together() -> None:
    """CN-14. Goal: many writers share a batch, one writer never waits. Method: a write leaves at once; five that come
    one by one before it is applied leave in one append and one sync."""
    cluster = SimCluster(5)
    leader = started(cluster)
    cluster.run_for(300_000)
    before, appends = leader.last_logged.index, appends_of(cluster)
    disk = node_of(cluster, leader).disk
    answers = [put(cluster, leader, b"first")]
    cluster.run_until(lambda: len(appends) == 2, "it leaves")
    assert [payloads for _, payloads in appends] == [[b"first"]] * 2 and not answers[0].all
    for n in range(5):
        answers.append(put(cluster, leader, b"w%d" % n))
    assert leader.last_logged.index == before + 1 and leader.status().writes_pending == 6
    syncs = disk.count("datasync", f"{WAL_FOLDER}/*")
    cluster.run_until(lambda: all(a.all for a in answers) and level(cluster), "answers, and everyone level")
    together = [b"w%d" % n for n in range(5)]
    assert [payloads for _, payloads in appends[2:]] == [together] * 2
    assert disk.count("datasync", f"{WAL_FOLDER}/*") - syncs <= 2  # the first one's may have been under way
    assert [a.one.opid.index for a in answers] == list(range(answers[0].one.opid.index, answers[0].one.opid.index + 6))


def test_large_write_does_not_wait_and_does_not_overtake() -> None:
    """CN-14. Goal: order of arrival, and no wait where nothing is won. Method: small ones under way and gathered, then
    a large one: all hold an index at once, in order."""
    cluster = SimCluster(5)
    leader = started(cluster)
    cluster.run_for(300_000)
    before, appends = leader.last_logged.index, appends_of(cluster)
    small = [put(cluster, leader, b"w0")]
    cluster.run_until(lambda: bool(appends), "it leaves")
    small += [put(cluster, leader, b"w%d" % n) for n in (1, 2)]
    assert leader.last_logged.index == before + 1
    large = put(cluster, leader, bytes(8 << 10))
    assert leader.last_logged.index == before + 4
    cluster.run_until(lambda: all(a.all for a in (*small, large)), "answers")
    assert [a.one.opid.index for a in (*small, large)] == [before + 1 + n for n in range(4)]


def test_batch_takes_no_more_writes_than_are_applied_in_one_step() -> None:
    """CN-14. Goal: what waits for a batch is bounded. Method: without a quorum, so that no batch ends, 66 small writes:
    once a batch is full the next write takes it along."""
    cluster = SimCluster(5)
    leader = started(cluster)
    cluster.run_for(300_000)
    before, appends = leader.last_logged.index, appends_of(cluster)
    cluster.network.isolate(leader.uuid, cluster.names)
    put(cluster, leader, b"first")
    cluster.run_until(lambda: bool(appends), "it leaves")
    for n in range(64):
        put(cluster, leader, b"w%d" % n)
    assert leader.last_logged.index == before + 1
    put(cluster, leader, b"one more")
    assert leader.last_logged.index == before + 66


def test_gathered_writes_that_got_no_index_are_told_so() -> None:
    """CN-26. Goal: NOT_APPLIED where it is certain. Method: a leader without a quorum has one write in its log and
    gathers three; it steps down; later a leader that gathered is stopped. The first is unknown, the others are not."""
    cluster = SimCluster(5)
    leader = started(cluster)
    cluster.run_for(300_000)
    appends = appends_of(cluster)
    cluster.network.isolate(leader.uuid, cluster.names)
    first = put(cluster, leader, b"first")
    cluster.run_until(lambda: bool(appends), "it leaves")
    gathered = [put(cluster, leader, b"w%d" % n) for n in range(3)]
    cluster.run_until(lambda: not leader.is_leader, "the old leader steps down")
    assert (first.one.code, first.one.applied) == (Code.NOT_LEADER, Applied.UNKNOWN)
    assert [(a.one.code, a.one.applied) for a in gathered] == [(Code.NOT_LEADER, Applied.NOT_APPLIED)] * 3
    cluster.network.heal()
    cluster.run_until(lambda: cluster.leader() is not None and level(cluster), "everyone level")
    leader = cluster.leader()
    assert leader is not None
    appends.clear()
    cluster.network.isolate(leader.uuid, cluster.names)
    first = put(cluster, leader, b"first")
    cluster.run_until(lambda: bool(appends), "it leaves")
    gathered = [put(cluster, leader, b"w%d" % n) for n in range(3)]
    on(cluster, leader, leader.stop)
    assert (first.one.code, first.one.applied) == (Code.NOT_READY, Applied.UNKNOWN)
    assert [(a.one.code, a.one.applied) for a in gathered] == [(Code.NOT_READY, Applied.NOT_APPLIED)] * 3


def test_write_over_the_pending_bound_gets_no_index() -> None:
    """Goal: bounded memory, and OVERLOADED means nothing was reserved. Method: bound of 3, no quorum, 5 writes."""
    cluster = SimCluster(6, driver_options=replace(DRIVER, writes_pending_max=3))
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
