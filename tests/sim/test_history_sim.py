"""What clients of simulated clusters saw, judged from outside; and planted bugs that only such a history shows."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import replace

import pytest

from nyala.replica.raft import lease, reads
from nyala.replica.raft.ready import Role
from nyala.replica.raft.state import State
from nyala.replica.raft_driver import Replica
from nyala.replica.raft_driver.pending import Done
from nyala.replica.types import limits
from tests.harness import sim_registers
from tests.harness.history import NotLinearizable
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_registers import RegisterClients
from tests.harness.sim_verify import Verifiers
from tests.harness.sim_workload import Swarm, Workload, converge
from tests.harness.sim_world import Faults

pytestmark = pytest.mark.deep

SEEDS = int(os.environ.get("NYALA_SIM_SEEDS", "100"))
FIRST = int(os.environ.get("NYALA_SIM_FIRST", "0"))
BLOCKS = 5


def history(seed: int, swarm: Swarm | None = None, *, stale_share: float = 0.0) -> Counter[str]:
    """Run two virtual seconds of faults; what the clients saw is linearizable, or NotLinearizable is raised.

    With stale reads, wall clocks differ as far as is allowed and do not jump, because otherwise stale reads promise
    nothing.
    """
    skew_us = limits.CLOCK_DIFFERENCE_US_MAX // 2 if stale_share else 50_000
    cluster = SimCluster(seed, voters=5 if seed % 7 == 0 else 3, spares=seed % 3, skew_us_max=skew_us)
    swarm = swarm or Swarm.draw(cluster)
    workload = Workload(cluster, replace(swarm, jump_period_us=0) if stale_share else swarm, write_period_us=60_000)
    clients = RegisterClients(cluster, stale_share=stale_share)
    cluster.start(hinted="a" if seed % 2 else None)
    workload.begin()
    clients.begin()
    cluster.run_for(2_000_000)
    clients.stopped = True
    converge(cluster, workload)
    judged = clients.history.verify()
    reads_seen = sum(not o.write for o in clients.history.operations)
    stale = sum(bool(o.staleness) for o in clients.history.operations)
    return Counter(
        judged=judged, reads=reads_seen, stale=stale, lost=clients.history.lost, refused=clients.history.refused
    )


@pytest.mark.parametrize("block", range(BLOCKS))
def test_clients_of_a_group_under_random_faults_see_a_linearizable_history(block: int) -> None:
    """CN-24: clients see linearizable data. Method: a fifth of the seeds; crashes, power loss, cuts of one way and of
    both, pauses, transfers and member changes while four clients write and read two registers; each history must be
    explained by one order. Unknown outcomes and refusals must occur."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST + block, FIRST + SEEDS, BLOCKS):
        try:
            seen += history(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}; replay: NYALA_SIM_FIRST={seed} NYALA_SIM_SEEDS=1") from error
    print(f"block {block}: " + ", ".join(f"{count} {what}" for what, count in sorted(seen.items())))
    if SEEDS >= 100:
        assert seen["judged"] > 700 and seen["reads"] > 300 and min(seen["lost"], seen["refused"]) > 20, seen


def test_clients_that_also_read_stale_data_never_go_back() -> None:
    """IN-10. Goal: stale reads at any replica are as fresh as they state, and no client's reads go back, its own writes
    among them. Method: two fifths of the seeds of the test above, with half of the reads stale, at servers whose wall
    clocks differ by half a second."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + SEEDS * 2 // BLOCKS or 1):
        try:
            seen += history(seed, stale_share=0.5)
        except BaseException as error:
            raise AssertionError(f"seed {seed}; replay: NYALA_SIM_FIRST={seed} NYALA_SIM_SEEDS=1") from error
    print(", ".join(f"{count} {what}" for what, count in sorted(seen.items())))
    if SEEDS >= 100:
        assert seen["judged"] > 250 and seen["stale"] > 50, seen


@pytest.fixture
def from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence the verifier that looks into replicas: it would mostly complain earlier than the history."""
    monkeypatch.setattr(Verifiers, "read_served", lambda *_: None)


def told(seeds: int, swarm: Swarm | None = None, *, stale_share: float = 0.0) -> str:
    """Return the checker's report on the first of these seeds whose history no order explains; other verifiers may
    complain first on some of them."""
    for seed in range(seeds):
        try:
            history(seed, swarm, stale_share=stale_share)
        except NotLinearizable as error:
            return str(error)
        except AssertionError:
            continue
    return ""


def test_history_tells_of_a_lease_that_is_kept_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, from_outside: None
) -> None:
    """Goal: the recorder and the checker compare leases. Method: a core counts its own ticks as the time, so a process
    that was stopped wakes up with its lease; in these runs processes are stopped, and nothing else happens."""

    def ticks(s: State, now: int | None) -> None:
        s.clock = s.ticks if now is not None else None

    monkeypatch.setattr(lease, "observe_clock", ticks)
    said = told(60, Swarm(faults=Faults(), pause_period_us=500_000))
    assert "no order explains" in said and "read" in said


def test_history_tells_of_reads_that_nothing_confirmed(monkeypatch: pytest.MonkeyPatch, from_outside: None) -> None:
    """Goal: the history shows reads of leaders that lost their quorum. Method: every replica that believes it leads
    answers."""

    def at_once(s: State, token: int, *, judged: bool) -> None:
        s.out.read_states.append((token, s.commit_index))

    monkeypatch.setattr(reads, "read_index", at_once)
    assert "no order explains" in told(60)


def test_history_tells_of_a_leader_that_reads_before_its_first_commit(
    monkeypatch: pytest.MonkeyPatch, from_outside: None
) -> None:
    """Goal: the history shows reads of new leaders (scenario 32). Method: a term that has committed nothing yet counts
    as open, for leases and for rounds."""

    def opened(s: State, token: int, *, judged: bool) -> None:
        if s.role is Role.LEADER and s.commit_index < s.lead.term_start:
            s.out.read_states.append((token, s.commit_index))
        else:
            right(s, token, judged=judged)

    right = reads.read_index
    monkeypatch.setattr(reads, "read_index", opened)
    assert "no order explains" in told(100)


def test_history_tells_of_reads_at_followers(monkeypatch: pytest.MonkeyPatch, from_outside: None) -> None:
    """Goal: the history shows where strong reads are served. Method: any replica answers from what it has applied."""

    def barrier(replica: Replica, done: Done) -> None:
        done(replica.applied_index)

    monkeypatch.setattr(Replica, "read_barrier", barrier)
    assert "no order explains" in told(20)


def test_history_tells_of_stale_reads_that_forget_what_their_client_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-10. Goal: the history shows reads of one client that go back. Method: a replica checks the staleness alone."""
    right = sim_registers.time_needed
    monkeypatch.setattr(sim_registers, "time_needed", lambda now, staleness_us, seen: right(now, staleness_us, 0))
    assert "may be" in told(40, stale_share=0.5)


def test_history_tells_of_stale_reads_that_are_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-10. Goal: the history shows stale reads that are too old. Method: a replica checks only what the client has
    seen."""
    monkeypatch.setattr(sim_registers, "time_needed", lambda now, staleness_us, seen: max(1, seen))
    assert "may be" in told(60, stale_share=0.5)
