"""A replica of a quiet group: when its owner may stop ticking it, and which notice ends that."""

from __future__ import annotations

from dataclasses import replace

from nyala.replica.raft import PeerStatus
from nyala.replica.raft_driver.status import peer_status
from nyala.replica.types import Code, Corruption, DataState
from tests.harness.sim_cluster import RAFT, SimCluster
from tests.harness.sim_start import Answers, on, put_and_wait, started

QUIET = replace(RAFT, quiet_after_ticks=6)


def resting(seed: int) -> SimCluster:
    """A group of three that has applied a write and gone quiet."""
    cluster = SimCluster(seed, raft_options=QUIET)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"x")
    cluster.run_until(lambda: all(r.may_rest for r in cluster.replicas), "everybody rests")
    return cluster


def test_replica_that_somebody_waits_at_does_not_rest() -> None:
    """CN-24. Goal: a quiet replica with a waiting caller counts ticks, because waits end by time. Method: at a quiet
    follower, wait for an index that is never written: the wait times out, and the replica becomes quiet again."""
    cluster = resting(3)
    follower = next(r for r in cluster.replicas if not r.is_leader)
    assert follower.rest()
    answers = Answers()
    on(cluster, follower, lambda: follower.wait_applied(follower.applied_index + 1, answers))
    assert not follower.rest()
    cluster.run_until(lambda: bool(answers.all), "an answer", 60_000_000)
    assert answers.one.code is Code.TIMED_OUT
    assert follower.rest()


def test_leader_that_fails_at_rest_is_replaced_though_its_server_lives() -> None:
    """CN-28. Goal: if a quiet leader fails, another one is elected even though the failed one's server is alive.
    Method: corruption is found at a quiet leader while no link changes; another one leads, and writes go on."""
    cluster = resting(4)
    leader = cluster.leader()
    assert leader is not None
    on(cluster, leader, lambda: leader.fail(Corruption("a block cannot be read")))
    others = [r for r in cluster.replicas if r is not leader]
    cluster.run_until(lambda: any(r.is_leader for r in others), "another leader")
    put_and_wait(cluster, next(r for r in others if r.is_leader), b"y")


def test_member_that_was_away_when_its_leader_went_quiet_grows_ever_longer_out_of_touch() -> None:
    """CN-24. Goal: a quiet leader counts no ticks, but still reports to the masters how long a member has been out of
    touch. Method: its reports of two peers, one of them away, after 500 quiet ticks."""

    def peer(uuid: str, *, absent: bool) -> PeerStatus:
        return PeerStatus(
            uuid=uuid, state="REPLICATE", match_index=3, next_index=4, contact_ticks=12, needs_copy=False,
            data_state=DataState.READY, last_code=Code.OK, applied_index=3, commit_index=3, caught_up=True,
            absent=absent,
        )  # fmt: skip

    near, away = peer_status([peer("b", absent=False), peer("c", absent=True)], QUIET, 500)
    assert (near.health, near.last_contact_ticks) == ("OK", 12)
    assert (away.health, away.last_contact_ticks) == ("UNREACHABLE", 512)
