"""What a group can lose, and what it does until it has a leader."""

from __future__ import annotations

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.types import Applied, Code, Refused
from tests.harness.sim_cluster import RAFT, TICK_US, SimCluster
from tests.harness.sim_start import Answers, level, on, put, put_and_wait, started

TIMEOUT_US = RAFT.election_ticks_max * TICK_US


@pytest.mark.parametrize("power", [False, True], ids=["killed", "power lost"])
@pytest.mark.parametrize("losses", [0, 1, 2])
def test_group_of_2f_plus_1_serves_without_f_and_promises_nothing_without_one_more(losses: int, power: bool) -> None:
    """CN-23. Goal: a group of 2f+1 voters serves without f of them; without one more it answers nothing, and loses
    nothing acknowledged. Method: groups of 1, 3 and 5 voters. f followers die: a write is answered. One more dies, or
    the leader where there is no follower: for twenty timeouts no write is acknowledged and no read confirmed. All come
    back: acknowledged writes are there, others are there once or never."""
    cluster = SimCluster(31 + losses, voters=2 * losses + 1)
    leader = started(cluster)
    followers = [node for node in cluster.nodes.values() if node.replica is not leader]
    for node in followers[:losses]:
        node.crash(power=power)
    assert not isinstance(put_and_wait(cluster, leader, b"without f"), Refused)
    waits, read = Answers(), Answers()
    if losses:
        followers[losses].crash(power=power)
        waits = put(cluster, leader, b"without f + 1")
        cluster.run_for(4 * TIMEOUT_US)  # its lease may answer reads until then
        on(cluster, leader, lambda: leader.read_barrier(read))
    else:
        cluster.nodes[leader.uuid].crash(power=power)
    cluster.run_for(16 * TIMEOUT_US)
    assert cluster.leader() is None
    assert all(isinstance(answer, Refused) for answer in (*waits.all, *read.all))
    assert all(answer.applied is Applied.UNKNOWN for answer in waits.all)
    for node in cluster.nodes.values():
        if not node.up:
            node.start()
    cluster.run_until(lambda: cluster.leader() is not None, "a leader")
    later = cluster.leader()
    assert later is not None
    put_and_wait(cluster, later, b"all are back")
    cluster.run_until(lambda: level(cluster), "everyone level")
    payloads = [entry.payload for entry in cluster.verify.history.values()]
    assert payloads.count(b"without f") == 1 and payloads.count(b"without f + 1") <= 1
    assert all(isinstance(answer, Refused) for answer in waits.all) or payloads.count(b"without f + 1") == 1
    cluster.verify.writes_stand()


def test_hinted_leader_that_nobody_hears_is_not_waited_for_and_nobody_serves_until_then() -> None:
    """CN-41. Goal: if the hinted leader cannot be reached, another one is elected after the election timeout; until
    then no replica serves. Method: the hinted one starts, cut off; until another is elected all three refuse every
    write, none of which is applied; then the elected one serves, and the hinted one follows once it is heard."""
    cluster = SimCluster(41)
    cluster.network.isolate("a", ["b", "c"])
    cluster.start(hinted="a")
    refused: list[Answers] = []
    while cluster.leader() is None:
        assert all(replica.phase is Phase.CONFIGURING for replica in cluster.replicas)
        asked = [put(cluster, replica, b"too early") for replica in cluster.replicas]
        cluster.run_for(TICK_US)
        refused += asked
        assert cluster.world.now_us < 20 * TIMEOUT_US, "the failure detector elects another"
    leader = cluster.leader()
    assert leader is not None and leader.uuid != "a"
    cluster.run_for(TIMEOUT_US)
    answers = [answers.one for answers in refused]
    assert len(answers) >= 3 and all(isinstance(answer, Refused) for answer in answers)
    assert {answer.code for answer in answers} <= {Code.NOT_LEADER, Code.NOT_READY}
    assert {answer.applied for answer in answers} == {Applied.NOT_APPLIED}
    assert not isinstance(put_and_wait(cluster, leader, b"in time"), Refused)
    cluster.network.heal()
    cluster.run_until(lambda: level(cluster), "everyone level")
    assert b"too early" not in {entry.payload for entry in cluster.verify.history.values()}
