"""Histories of one kind of fault: copies from leaders that are deposed meanwhile."""

from __future__ import annotations

from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_workload import Swarm, Workload, converge
from tests.harness.sim_world import Faults


def stranded(seed: int) -> SimCluster:
    """Run six virtual seconds in which followers fall behind a leader that asks them to copy, is stopped, and is
    deposed."""
    cluster = SimCluster(seed)
    workload = Workload(cluster, Swarm(faults=Faults(), strand_period_us=900_000))
    cluster.start(hinted="a")
    workload.begin()
    cluster.run_for(6_000_000)
    converge(cluster, workload)
    return cluster
