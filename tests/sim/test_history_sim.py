"""What clients of simulated clusters saw, judged from outside; and planted bugs that only such a history shows."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from nyala.replica.host import Replica
from nyala.replica.host.pending import Done
from nyala.replica.raft import lease, reads
from nyala.replica.raft.ready import Role
from nyala.replica.raft.state import State
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


def history(seed: int, swarm: Swarm | None = None) -> Counter[str]:
    """One bad day of two virtual seconds; what its clients saw is linearizable, or NotLinearizable."""
    cluster = SimCluster(seed, voters=5 if seed % 7 == 0 else 3, spares=seed % 3)
    workload = Workload(cluster, swarm or Swarm.draw(cluster), write_period_us=60_000)
    clients = RegisterClients(cluster)
    cluster.start(hinted="a" if seed % 2 else None)
    workload.begin()
    clients.begin()
    cluster.run_for(2_000_000)
    clients.stopped = True
    converge(cluster, workload)
    judged = clients.history.verify()
    reads_seen = sum(not o.write for o in clients.history.operations)
    return Counter(judged=judged, reads=reads_seen, lost=clients.history.lost, refused=clients.history.refused)


@pytest.mark.parametrize("block", range(BLOCKS))
def test_clients_of_a_group_under_random_faults_see_a_linearizable_history(block: int) -> None:
    """CN-24: clients see linearizable data. Method: a fifth of the seeds; crashes, power loss, cuts of one way and of
    both, pauses, transfers and member changes while four clients write and read two registers; each history must be
    explained by one order. Unknown outcomes and refusals must be among them."""
    seen: Counter[str] = Counter()
    for seed in range(FIRST + block, FIRST + SEEDS, BLOCKS):
        try:
            seen += history(seed)
        except BaseException as error:
            raise AssertionError(f"seed {seed}; replay: NYALA_SIM_FIRST={seed} NYALA_SIM_SEEDS=1") from error
    print(f"block {block}: " + ", ".join(f"{count} {what}" for what, count in sorted(seen.items())))
    if SEEDS >= 100:
        assert seen["judged"] > 700 and seen["reads"] > 300 and min(seen["lost"], seen["refused"]) > 20, seen


@pytest.fixture
def from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verifier that looks into replicas says nothing about reads: it would mostly be faster than the history."""
    monkeypatch.setattr(Verifiers, "read_served", lambda *_: None)


def told(seeds: int, swarm: Swarm | None = None) -> str:
    """What the checker says of the first of these seeds whose history no order explains; other verifiers may
    speak first on some of them."""
    for seed in range(seeds):
        try:
            history(seed, swarm)
        except NotLinearizable as error:
            return str(error)
        except AssertionError:
            continue
    return ""


def test_history_tells_of_a_lease_that_is_kept_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, from_outside: None
) -> None:
    """Goal: the recorder and the checker watch leases. Method: a core takes its own ticks for the time, so a process
    that was stopped wakes up with its lease; days on which processes are stopped, and nothing else happens."""

    def ticks(s: State, now: int | None) -> None:
        s.clock = s.ticks if now is not None else None

    monkeypatch.setattr(lease, "observe_clock", ticks)
    said = told(60, Swarm(faults=Faults(), pause_period_us=500_000))
    assert "no order explains" in said and "read" in said


def test_history_tells_of_reads_that_nothing_confirmed(monkeypatch: pytest.MonkeyPatch, from_outside: None) -> None:
    """Goal: it watches reads of leaders that lost their quorum. Method: whoever leads, as far as it knows, answers."""

    def at_once(s: State, token: int, *, judged: bool) -> None:
        s.read_states.append((token, s.commit_index))

    monkeypatch.setattr(reads, "read_index", at_once)
    assert "no order explains" in told(60)


def test_history_tells_of_a_leader_that_reads_before_its_first_commit(
    monkeypatch: pytest.MonkeyPatch, from_outside: None
) -> None:
    """Goal: it watches new leaders (scenario 32). Method: a term that has committed nothing yet counts as open, for
    leases and for rounds."""

    def opened(s: State, token: int, *, judged: bool) -> None:
        if s.role is Role.LEADER and s.commit_index < s.term_start:
            s.read_states.append((token, s.commit_index))
        else:
            right(s, token, judged=judged)

    right = reads.read_index
    monkeypatch.setattr(reads, "read_index", opened)
    assert "no order explains" in told(100)


def test_history_tells_of_reads_at_followers(monkeypatch: pytest.MonkeyPatch, from_outside: None) -> None:
    """Goal: it watches where strong reads are served. Method: any replica answers from what it has applied."""

    def barrier(replica: Replica, done: Done) -> None:
        done(replica.applied_index)

    monkeypatch.setattr(Replica, "read_barrier", barrier)
    assert "no order explains" in told(20)
