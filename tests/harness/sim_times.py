"""Hybrid times, and reads of bounded staleness at any replica, in a simulated cluster: what must hold of both."""

from __future__ import annotations

import itertools

from nyala.replica.types.freshness import time_needed
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_registers import RegisterClients


class StaleReaders:
    """Reads at replicas drawn at random, leader or not, up or just up again, judged by the product's rule.

    The promise: every write that was acknowledged to a client longer ago than the staleness, in true time, is in the
    read, as long as clocks differ by less than the stated bound.
    """

    def __init__(self, cluster: SimCluster, clients: RegisterClients, *, staleness_us: int) -> None:
        self._cluster, self._clients = cluster, clients
        self._staleness_us = staleness_us
        self.stopped = False
        self.served = self.refused = 0

    def begin(self) -> None:
        world = self._cluster.world
        world.after(world.rng.randint(1, 10_000), self._read)

    def _read(self) -> None:
        if self.stopped:
            return
        self.begin()
        cluster = self._cluster
        node = cluster.world.rng.choice(list(cluster.nodes.values()))
        if not node.up or node.paused or node.replica is None:
            return
        needed = time_needed(node.hybrid_clock.now(), self._staleness_us, 0)
        if node.replica.applied_time < needed:
            self.refused += 1
            return
        self.served += 1
        before_us = cluster.world.now_us - self._staleness_us
        due = max((index for told_us, index in self._clients.acknowledged if told_us <= before_us), default=0)
        applied = node.replica.applied_index
        assert applied >= due, f"a stale read at {node.uuid} saw {applied}; {due} was acknowledged at {before_us} us"


def times_ascend(cluster: SimCluster) -> None:
    """Check over leaders, restarts and jumps that every entry that was applied anywhere is later than the one before
    it."""
    history = cluster.verify.history
    for one, other in itertools.pairwise(sorted(history)):
        before, after = history[one], history[other]
        assert before.hybrid_time < after.hybrid_time, (
            f"{after.opid} at {after.hybrid_time} is not later than {before.opid} at {before.hybrid_time}"
        )
