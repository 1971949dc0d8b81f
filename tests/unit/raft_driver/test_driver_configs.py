"""When a config becomes durable: not on receipt, at commit, and then for good."""

from __future__ import annotations

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.types import ConfigEdit, EditKind, RaftConfig
from tests.harness.sim_cluster import TABLET, SimCluster, member
from tests.harness.sim_start import Answers, on, put_and_wait, started

ADD_D = [ConfigEdit(EditKind.ADD, member("d", votes=False))]


def stored(cluster: SimCluster, name: str) -> bytes:
    return cluster.nodes[name].disk.read(f"consensus-meta/{TABLET}")


def test_config_is_written_at_commit_and_not_on_receipt() -> None:
    """CC-20, CC-21. Goal: the metadata has committed configs only. Method: the leader's entry reaches one of four
    followers, which is no majority; compare the files' bytes; heal, and look again."""
    cluster = SimCluster(21, voters=5, spares=1)
    leader = started(cluster)
    cluster.run_for(300_000)
    follower, *others = [name for name in cluster.names if name not in (leader.uuid, "f")]
    for other in others:
        cluster.network.cuts.add((leader.uuid, other))
    before = {name: stored(cluster, name) for name in (leader.uuid, follower)}
    changed = Answers()
    edit = [ConfigEdit(EditKind.ADD, member("f", votes=False))]
    on(cluster, leader, lambda: leader.change_config(edit, None, (0, 0), changed))
    cluster.run_for(20_000)
    here = cluster.nodes[follower].replica
    assert here is not None and here.active_config.member("f") is not None, "in force there"
    assert not changed.all and {name: stored(cluster, name) for name in before} == before
    cluster.network.heal()
    cluster.run_until(lambda: bool(changed.all), "the commit")
    assert isinstance(changed.one, RaftConfig)
    cluster.run_for(200_000)
    for name in (leader.uuid, follower):
        cluster.nodes[name].crash(power=True)
        assert ConsensusMeta.load(cluster.nodes[name].disk, TABLET).committed_config == changed.one


def test_committed_config_survives_the_death_of_everybody_at_once() -> None:
    """CC-19, CC-24. Goal: an acknowledged config change survives a power loss of all servers, whichever of them had
    saved it. Method: all lose power in the instant of the answer; after the start every server has the member again,
    pending or committed, and the group commits it again."""
    for seed in range(30, 36):
        cluster = SimCluster(seed, spares=1)
        leader = started(cluster)
        changed = Answers()
        on(cluster, leader, lambda leader=leader, changed=changed: leader.change_config(ADD_D, None, (0, 0), changed))  # type: ignore[misc]
        cluster.run_until(lambda changed=changed: bool(changed.all), "the commit")  # type: ignore[misc]
        assert isinstance(changed.one, RaftConfig)
        for node in cluster.nodes.values():
            if node.up:
                node.crash(power=True)
        for name in "abc":
            cluster.nodes[name].start()
        cluster.run_until(lambda cluster=cluster: cluster.leader() is not None, "a leader")  # type: ignore[misc]
        again = cluster.leader()
        assert again is not None and again.active_config.member("d") is not None
        put_and_wait(cluster, again, b"x")
        assert again.committed_config == changed.one
