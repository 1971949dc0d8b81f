"""Phases of a replica, restarts, and the effect of its failure on others."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft import AppendEntries, AppendReply, Message, Role, VoteReply
from nyala.replica.raft_driver import Phase
from nyala.replica.types import Code, DiskFailure, OpId, Refused
from nyala.replica.wal.recovery import WITHHELD_NAME
from tests.harness.sim_cluster import DRIVER, TABLET, WAL_FOLDER, SimCluster, SimNode
from tests.harness.sim_disk import SimCrash
from tests.harness.sim_start import Answers, level, node_of, on, put, put_and_wait, started

Votes = defaultdict[int, set[str]]
"""Uuids by term."""


def append_to(uuid: str, sender: str, term: int) -> AppendEntries:
    return AppendEntries(to_uuid=uuid, from_uuid=sender, term=term, prev=OpId(0, 0), round=77)


def test_phases_of_a_group_come_in_order_on_every_member() -> None:
    """CN-37, CN-42, CN-41: BOOTSTRAPPING, CONFIGURING until a commit, RUNNING. Method: watch all events."""
    cluster = SimCluster(1)
    seen: dict[str, list[Phase]] = {name: [Phase.BOOTSTRAPPING] for name in cluster.names}

    def look() -> bool:
        for replica in cluster.replicas:
            assert replica.phase is not Phase.RUNNING or replica.commit_index >= 1, "running is known by a commit"
            if seen[replica.uuid][-1] is not replica.phase:
                seen[replica.uuid].append(replica.phase)
        return all(phases[-1] is Phase.RUNNING for phases in seen.values())

    cluster.start(hinted="a")
    assert all(replica.phase is Phase.CONFIGURING for replica in cluster.replicas)
    cluster.run_until(look, "all running")
    assert set(map(tuple, seen.values())) == {(Phase.BOOTSTRAPPING, Phase.CONFIGURING, Phase.RUNNING)}
    assert cluster.leader() is cluster.nodes["a"].replica  # CN-37: the hinted one, with nobody against it


def test_group_with_one_of_three_up_waits_and_runs_with_the_second() -> None:
    """CN-36. Goal: nothing starts until an elected leader replicates by consensus. Method: start one of three, wait,
    start another."""
    cluster = SimCluster(2)
    cluster.nodes["a"].start(campaign=True)
    cluster.run_for(3_000_000)
    first = cluster.nodes["a"].replica
    assert first is not None and first.phase is Phase.CONFIGURING and not first.is_leader
    cluster.nodes["b"].start()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader of two")
    cluster.run_until(lambda: all(r.phase is Phase.RUNNING for r in cluster.replicas), "both running")


def test_majority_that_is_still_replaying_is_no_majority() -> None:
    """CN-40, CN-33. Goal: a replica that is still bootstrapping takes part in no election. Method: the replay hangs on
    two of three; the third one asks them in vain, and leads as soon as one of them is done."""
    cluster = SimCluster(14)
    started(cluster)
    cluster.run_until(lambda: all(r.phase is Phase.RUNNING for r in cluster.replicas), "everyone running")
    for node in cluster.nodes.values():
        node.crash(power=False)
    slow = {name: cluster.nodes[name].open() for name in "bc"}
    cluster.nodes["a"].start(campaign=True)
    cluster.run_for(3_000_000)
    assert cluster.leader() is None
    assert len({r.term for r in cluster.replicas}) == 1, "nobody was elected meanwhile"
    assert [r.phase for r in cluster.replicas] == [Phase.CONFIGURING, Phase.BOOTSTRAPPING, Phase.BOOTSTRAPPING]
    term = slow["b"].term
    cluster.nodes["b"].join()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader of two")
    assert slow["c"].phase is Phase.BOOTSTRAPPING and slow["c"].term == term


def test_append_during_replay_is_answered_not_ready_and_by_term_first() -> None:
    """CN-33, TC-22. Goal: a bootstrapping replica answers an append NOT_READY, after the checks of the name and the
    term. Method: step before start."""
    cluster = SimCluster(3)
    node = cluster.nodes["a"]
    ConsensusMeta.load(node.disk, TABLET).save_hard_state(5, None)
    answers: list[AppendReply] = []
    cluster.network.tap = lambda sender, receiver, message: answers.append(message)
    replica = node.open()
    node.do(lambda: replica.step(append_to("zz", "b", 9)))
    node.do(lambda: replica.step(append_to("a", "b", 4)))
    node.do(lambda: replica.step(append_to("a", "b", 5)))
    assert [(a.code, a.term, a.round) for a in answers] == [
        (Code.INVALID_NAME, 9, 77),
        (Code.INVALID_TERM, 5, 77),
        (Code.NOT_READY, 5, 77),
    ]
    assert replica.phase is Phase.BOOTSTRAPPING and replica.role is Role.NON_PARTICIPANT


def test_entry_that_cannot_be_applied_fails_that_replica_and_no_other() -> None:
    """Goal: guarantee 6. Method: poison one follower's state machine at the next index; the group goes on."""
    cluster = SimCluster(4)
    for node in cluster.nodes.values():
        ConsensusMeta.load(node.disk, TABLET).save_hard_state(5, None)  # so that there is an earlier leader
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    victim = next(n for n in cluster.nodes.values() if n.replica is not leader)
    assert victim.machine is not None and victim.replica is not None
    victim.machine.poison = leader.last_logged.index + 1
    put_and_wait(cluster, leader, b"poisoned for one")
    replica = victim.replica
    cluster.run_until(lambda: replica.phase is Phase.FAILED, "the victim fails")
    assert "poisoned entry" in replica.error
    assert put_and_wait(cluster, leader, b"after").opid.index == leader.last_logged.index
    refused = put_and_wait(cluster, replica, b"x")
    assert refused.code is Code.TABLET_FAILED
    waited = Answers()
    replica.wait_applied(10**6, waited)
    assert waited.one.code is Code.TABLET_FAILED
    answers: list[AppendReply | VoteReply] = []
    cluster.network.tap = lambda sender, receiver, message: answers.append(message)
    victim.do(lambda: replica.step(append_to(victim.uuid, leader.uuid, leader.term)))
    victim.do(lambda: replica.step(append_to(victim.uuid, leader.uuid, leader.term - 1)))
    assert [a.code for a in answers] == [Code.TABLET_FAILED, Code.INVALID_TERM]


def test_failed_sync_of_the_log_ends_the_process() -> None:
    """Goal: fsync is never retried. Method: EIO on the leader's next sync; the driver must report it as fatal."""
    cluster = SimCluster(5)
    leader = started(cluster)
    node = node_of(cluster, leader)
    fatal: list[BaseException] = []
    node.fatal = fatal.append
    node.disk.fail_on("datasync", f"{WAL_FOLDER}/*", "EIO")
    answer = put_and_wait(cluster, leader, b"x")
    assert isinstance(fatal[0], DiskFailure)
    assert isinstance(answer, Refused) and answer.applied.name == "UNKNOWN"
    assert leader.phase is Phase.STOPPED


def test_restart_applies_nothing_before_the_commit_index_is_learned_again() -> None:
    """CN-02, scenario 41: the log has no commit records. Method: restart one alone: it applies nothing; then all."""
    cluster = SimCluster(6)
    leader = started(cluster)
    acked = [put_and_wait(cluster, leader, b"w%d" % n).opid.index for n in range(5)]
    cluster.run_until(lambda: level(cluster), "everyone level")
    for node in cluster.nodes.values():
        node.crash(power=True)
    alone = cluster.nodes["b"]
    alone.start()
    cluster.run_for(500_000)
    assert alone.replica is not None
    assert alone.replica.last_logged.index >= acked[-1] and alone.replica.applied_index == 0
    cluster.nodes["a"].start()
    cluster.nodes["c"].start()
    cluster.run_until(lambda: level(cluster) and cluster.replicas[0].applied_index > acked[-1], "everyone level")
    cluster.verify.writes_stand()


def test_group_of_one_commits_its_replayed_log_at_once() -> None:
    """Goal: a single voter commits its log without waiting for another server. Method: write, power loss, restart:
    everything is applied within a second."""
    cluster = SimCluster(7, voters=1)
    leader = started(cluster)
    acked = put_and_wait(cluster, leader, b"one").opid.index
    cluster.nodes["a"].crash(power=True)
    cluster.nodes["a"].start()
    cluster.run_until(lambda: cluster.replicas[0].applied_index >= acked, "applied again", within_us=1_000_000)


def test_vote_floor_makes_a_replica_abstain_up_to_its_term() -> None:
    """Goal: a possibly lost vote is never given twice. Method: raise the floor above the term, ask for that term."""
    cluster = SimCluster(8)
    node = cluster.nodes["c"]
    ConsensusMeta.load(node.disk, TABLET).raise_vote_floor(4)
    node.start()
    replica = node.replica
    assert replica is not None and replica.term == 4
    granted: list[VoteReply] = []

    def tap(sender: str, receiver: str, message: object) -> None:
        if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
            granted.append(message)

    cluster.network.tap = tap
    cluster.nodes["a"].start(campaign=True)
    cluster.run_until(lambda: cluster.leader() is not None, "a leader above the floor")
    assert [g.term for g in granted if g.from_uuid == "c" and g.term <= 4] == []


def test_stop_answers_everyone_once_and_goes_silent() -> None:
    """Goal: a replica that is stopped answers each waiting caller once, and sends nothing more. Method: stop a leader
    with a write, a read and a waiter pending."""
    cluster = SimCluster(9)
    leader = started(cluster)
    cluster.network.isolate(leader.uuid, cluster.names)
    write = put(cluster, leader, b"x")
    read, waiter, moved = Answers(), Answers(), Answers()
    on(cluster, leader, lambda: leader.read_barrier(read))
    on(cluster, leader, lambda: leader.wait_applied(10**6, waiter))
    on(cluster, leader, lambda: leader.transfer(None, moved))
    cluster.run_for(3_000)
    leader.stop()
    leader.stop()
    cluster.run_for(100_000)
    assert [answers.one.applied.name for answers in (write, read, waiter, moved)] == [
        "UNKNOWN",
        "NOT_APPLIED",
        "NOT_APPLIED",
        "UNKNOWN",
    ]
    sent = cluster.network.sent
    leader.tick()
    leader.step(append_to(leader.uuid, "b", leader.term + 1))
    assert cluster.network.sent == sent
    assert put_and_wait(cluster, leader, b"late").code is Code.NOT_READY


@pytest.mark.parametrize("power", [False, True])
def test_hinted_leader_that_is_dead_loses_to_another(power: bool) -> None:
    """CN-37, CN-35. Goal: a hinted leader has no privilege: if it is dead, another one is elected. Method: the hinted
    server dies at once; another one wins."""
    cluster = SimCluster(10)
    cluster.start(hinted="a")
    cluster.nodes["a"].crash(power=power)
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")


def test_whoever_is_told_to_lead_leads_by_the_votes_of_others_only() -> None:
    """CN-43, CN-37, CN-36. Goal: a replica that is asked to start an election leads only with the votes of others.
    Method: three histories in which all three are asked to lead at once, with a hint of a replica that lacks a write
    which two others have. Each term has one leader, with the vote of another replica; all agree on it; the hinted
    replica does not lead."""
    for seed in (61, 62, 63):
        cluster = SimCluster(seed)
        votes, leaders = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)

        def heard(
            sender: str, receiver: str, message: Message, cluster: SimCluster = cluster, votes: Votes = votes
        ) -> None:
            if isinstance(message, VoteReply) and message.granted and not message.pre_vote:
                votes[message.term].add(receiver)
            cluster.verify.sent(sender, receiver, message)

        def looked(cluster: SimCluster = cluster, votes: Votes = votes, leaders: Votes = leaders) -> bool:
            for replica in cluster.replicas:
                if replica.is_leader:
                    leaders[replica.term].add(replica.uuid)
                    assert replica.uuid in votes[replica.term], "it leads by its own wish"
            return cluster.leader() is not None and level(cluster)

        cluster.network.tap = heard
        for node in cluster.nodes.values():
            node.start(campaign=True)
        cluster.run_until(looked, "one leads, and all follow")
        leader = cluster.leader()
        assert leader is not None and all(len(found) == 1 for found in leaders.values())
        assert {replica.leader_uuid for replica in cluster.replicas} == {leader.uuid}

        behind = next(node for node in cluster.nodes.values() if node.replica is not leader)
        behind.crash(power=False)
        assert not isinstance(put_and_wait(cluster, leader, b"of two"), Refused)
        for node in cluster.nodes.values():
            if node is not behind:
                node.crash(power=False)
        for node in cluster.nodes.values():
            node.start(campaign=node is behind)
        cluster.run_until(looked, "one leads again, and all follow")
        later = cluster.leader()
        assert later is not None and later.term > leader.term and later.uuid != behind.uuid
        assert behind.uuid not in leaders[later.term] and {r.leader_uuid for r in cluster.replicas} == {later.uuid}


def test_vote_leaves_only_after_it_is_durable() -> None:
    """TC-14. Goal: a vote is sent only after it is on disk. Method: the voter dies right before the vote is written."""
    cluster = SimCluster(11)
    voter = cluster.nodes["b"]
    voter.start()
    voter.disk.arm("cmeta.before_flush")
    cluster.nodes["a"].start(campaign=True)
    cluster.run_until(lambda: not voter.up, "the crash point fires")
    assert [uuid for uuid, _ in cluster.verify.votes if uuid == "b"] == []
    voter.start()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")


def test_append_is_acknowledged_only_after_it_is_durable() -> None:
    """CN-26. Goal: an append is acknowledged only after it is on disk. Method: both followers die right before the
    sync; no acknowledgement was sent."""
    cluster = SimCluster(12)
    leader = started(cluster)
    cluster.run_for(300_000)
    followers = [n for n in cluster.nodes.values() if n.replica is not leader]
    for node in followers:
        node.disk.hook = lambda operation, path, node=node: _die(operation, path, node)
    write = put(cluster, leader, b"x")
    cluster.run_until(lambda: not any(n.up for n in followers), "both followers die at their sync")
    cluster.run_for(100_000)
    assert [a for a in write.all if not isinstance(a, Refused)] == []


def _die(operation: str, path: str, node: SimNode) -> None:
    if operation == "datasync" and path.startswith(WAL_FOLDER):
        node.disk.hook = None
        raise SimCrash("before the sync")


def test_restart_with_a_long_unflushed_log_applies_all_of_it_within_its_bound_of_memory() -> None:
    """Goal: memory at a start does not grow with the log. Method: 60 writes of 1 KB, nothing flushed, a cache of 2 KB;
    power loss of everyone: no replica holds more than the bound while it applies all of them again, from the log."""
    cluster = SimCluster(13, driver_options=replace(DRIVER, write_bytes_pending_max=4 << 10))
    leader = started(cluster)
    for n in range(60):
        put_and_wait(cluster, leader, b"%d" % n * 1000)
    cluster.run_until(lambda: level(cluster), "everyone level")
    top = leader.applied_index
    for node in cluster.nodes.values():
        node.crash(power=True)
        node.start()
    assert all(r.cache_bytes <= DRIVER.log_cache_bytes_max * 5 // 4 + 2000 for r in cluster.replicas)
    cluster.run_until(lambda: level(cluster) and cluster.replicas[0].applied_index > top, "everyone level again")
    cluster.verify.writes_stand()
    again = cluster.leader()
    assert again is not None
    again.shrink_cache()
    assert again.cache_bytes == 0
    assert put_and_wait(cluster, again, b"after").opid.index > top


def test_mark_of_a_lost_end_goes_when_the_loss_is_made_up_for() -> None:
    """CN-22. Goal: a replica whose log lost its end may vote again after the leader has sent the lost entries. Method:
    the last entry of a stopped follower's log is damaged. Started alone, it has the mark and abstains; with the others
    up, the entry comes back, and the mark leaves its disk without another start."""
    cluster = SimCluster(31)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"first")
    put_and_wait(cluster, leader, b"last")
    cluster.run_until(lambda: level(cluster), "everyone has it")
    node = next(n for n in cluster.nodes.values() if n.replica is not leader)
    for one in cluster.nodes.values():
        one.crash(power=False)
    newest = f"{WAL_FOLDER}/{node.disk.listdir(WAL_FOLDER)[-1]}"
    node.disk.corrupt(newest, node.disk.read(newest).rindex(b"last"))
    node.hurt = True
    mark = f"{WAL_FOLDER}/{WITHHELD_NAME}"
    node.start()
    cluster.run_for(3_000_000)
    assert node.replica is not None and node.replica.withheld is not None and node.disk.exists(mark)
    for one in cluster.nodes.values():
        if one is not node:
            one.start()
    cluster.run_until(lambda: level(cluster) and not node.disk.exists(mark), "the loss is made up for")
    assert node.replica.withheld is None
