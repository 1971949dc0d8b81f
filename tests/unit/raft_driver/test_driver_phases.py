"""The life of one replica object: which phase may follow which, and that ended phases stay ended."""

from __future__ import annotations

import itertools

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.raft_driver.status import PHASE_CHANGES
from nyala.replica.types import Code, Corruption, InvariantViolation, Refused
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_start import on, put, put_and_wait, started

BEFORE_THE_END = (Phase.BOOTSTRAPPING, Phase.CONFIGURING, Phase.RUNNING)
DRAWN = {
    (Phase.BOOTSTRAPPING, Phase.CONFIGURING),
    (Phase.CONFIGURING, Phase.RUNNING),
    (Phase.RUNNING, Phase.CONFIGURING),
    *itertools.product(BEFORE_THE_END, (Phase.FAILED, Phase.STOPPED)),
    (Phase.FAILED, Phase.STOPPED),
}


def test_phase_moves_are_those_of_the_drawing_and_no_others() -> None:
    """Goal: only the documented changes of phase are allowed, so a replica that has failed or stopped never takes part
    again. Method: all pairs of phases, against a second copy of the table."""
    assert {(old, new) for old in Phase for new in PHASE_CHANGES[old]} == DRAWN
    cluster = SimCluster(1)
    replica = started(cluster)
    for old, new in itertools.product(Phase, Phase):
        replica.life.phase = old
        if old is new or (old, new) in DRAWN:
            replica.life.enter(new)
            assert replica.phase is new
        else:
            with pytest.raises(InvariantViolation):
                replica.life.enter(new)
            assert replica.phase is old


@pytest.mark.parametrize("end", [Phase.FAILED, Phase.STOPPED])
def test_replica_that_is_over_stays_over_whatever_comes(end: Phase) -> None:
    """Goal: a replica that has failed or stopped serves nothing, whatever the server does. Method: a running leader
    fails, or is stopped; then ticks, a write, a pump, another failure and, at last, a stop: only the stop changes its
    phase."""
    cluster = SimCluster(2)
    leader = started(cluster)
    put_and_wait(cluster, leader, b"before")
    assert leader.phase is Phase.RUNNING
    over = leader.stop if end is Phase.STOPPED else lambda: leader.fail(Corruption("a block is damaged"))
    on(cluster, leader, over)
    for meddle in (leader.tick, leader._executor.pump, lambda: leader.fail(Corruption("another block is damaged"))):
        on(cluster, leader, meddle)
        assert leader.phase is end
    refused = put(cluster, leader, b"late")
    cluster.run_until(lambda: bool(refused.all), "an answer")
    assert isinstance(refused.one, Refused)
    assert refused.one.code is (Code.TABLET_FAILED if end is Phase.FAILED else Code.NOT_READY)
    on(cluster, leader, leader.stop)
    assert leader.phase is Phase.STOPPED
