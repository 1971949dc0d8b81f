"""Simulated clocks: stale reads keep their promise under skew, and times ascend under jumps; planted bugs break
both."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from nyala.replica.types import HybridClock, limits
from tests.harness import sim_times
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_registers import RegisterClients
from tests.harness.sim_times import StaleReaders, times_ascend
from tests.harness.sim_workload import Swarm, Workload, converge

pytestmark = pytest.mark.deep

SEEDS = int(os.environ.get("NYALA_SIM_SEEDS", "40"))
FIRST = int(os.environ.get("NYALA_SIM_FIRST", "0"))
STALENESS_US = limits.CLOCK_DIFFERENCE_US_MAX + 100_000


def history(seed: int, *, jumps: bool) -> Counter[str]:
    """Run two virtual seconds of faults, with wall clocks that differ by up to the stated bound, or jump."""
    cluster = SimCluster(seed, spares=seed % 2, skew_us_max=limits.CLOCK_DIFFERENCE_US_MAX // 2)
    swarm = replace(Swarm.draw(cluster), jump_period_us=150_000 if jumps else 0)
    workload = Workload(cluster, swarm, write_period_us=60_000)
    clients = RegisterClients(cluster)
    readers = StaleReaders(cluster, clients, staleness_us=STALENESS_US)
    cluster.start(hinted="a" if seed % 2 else None)
    workload.begin()
    clients.begin()
    if not jumps:  # beyond the stated bound stale reads promise nothing
        readers.begin()
    cluster.run_for(2_000_000)
    clients.stopped = readers.stopped = True
    converge(cluster, workload)
    clients.history.verify()
    times_ascend(cluster)
    return Counter(served=readers.served, refused=readers.refused, jumps=cluster.marks["clock jump"])


@pytest.mark.parametrize("jumps", [False, True])
def test_times_ascend_and_stale_reads_are_as_fresh_as_they_say(jumps: bool) -> None:
    """CN-24: hybrid times never go back over leaders, restarts and clock jumps; a read of bounded staleness at any
    replica has every write acknowledged longer ago (scenarios 82, 88, 89). Method: crashes, cuts, pauses and transfers
    while wall clocks differ as far as is allowed, or jump by seconds; entries and reads are checked in true time."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS):
        try:
            seen += history(seed, jumps=jumps)
        except BaseException as error:
            raise AssertionError(f"seed {seed}; replay: NYALA_SIM_FIRST={seed} NYALA_SIM_SEEDS=1") from error
    print(", ".join(f"{count} {what}" for what, count in sorted(seen.items())))
    if SEEDS >= 40:
        assert seen["jumps"] > 100 if jumps else min(seen["served"], seen["refused"]) > 100, seen


def complaint(wanted: str, *, jumps: bool, seeds: int) -> bool:
    """Return whether one of the first seeds ends with these words; other verifiers may complain first on some."""
    for seed in range(seeds):
        try:
            history(seed, jumps=jumps)
        except AssertionError as error:
            if wanted in str(error):
                return True
    return False


def test_stale_reads_judged_by_contact_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the verifier of stale reads compares. Method: a replica's data counts as new whatever its age."""
    monkeypatch.setattr(sim_times, "time_needed", lambda now, staleness_us, seen: 1)
    assert complaint("a stale read at", jumps=False, seeds=20)


def test_stale_reads_that_trust_the_clocks_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the half second for clocks is needed. Method: it is left out, with wall clocks that differ by as much."""
    right = sim_times.time_needed

    def trusting(now: int, staleness_us: int, seen: int) -> int:
        return right(now, staleness_us + limits.CLOCK_DIFFERENCE_US_MAX, seen)

    monkeypatch.setattr(sim_times, "time_needed", trusting)
    assert complaint("a stale read at", jumps=False, seeds=60)


def test_clock_that_follows_its_wall_back_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the verifier of times compares. Method: observing received times changes no clock. On most seeds the
    verifier of snapshots complains first."""
    monkeypatch.setattr(HybridClock, "observe", lambda clock, hybrid_time: None)
    assert complaint("is not later than", jumps=True, seeds=150)
