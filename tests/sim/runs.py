"""The simulators by name: what one seed of each runs, and its outcome."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from tests.harness.raft_sim import run_seed
from tests.harness.sim_cluster import DRIVER, WAL, SimCluster, SimNode
from tests.harness.sim_copy import SimCopies
from tests.harness.sim_jams import drawn as jams_drawn
from tests.harness.sim_stranded import stranded
from tests.harness.sim_tablet import TabletCopies, TabletNode
from tests.harness.sim_tablet_workload import TabletWorkload
from tests.harness.sim_workload import Swarm, Workload, converge

logging.getLogger("nyala").addHandler(logging.NullHandler())  # errors are what a history is for
Job = tuple[str, int]
"""A simulator and a seed."""


@dataclass(frozen=True)
class Outcome:
    """The marks of one seed. `failure`: empty, or the complaint of a verifier, a check or the liveness phase."""

    simulator: str
    seed: int
    delivered: int = 0
    """The number of messages that reached a living process."""
    marks: Counter[str] = field(default_factory=Counter)
    failure: str = ""
    trace: str = ""


def run_core(seed: int, **tuned: Any) -> tuple[int, Counter[str]]:
    """Run a group of consensus cores: 240 ticks of faults, then it must converge within 400."""
    net = run_seed(seed, **tuned)
    return net.delivered, net.marks


def _play(seed: int, cluster: SimCluster, workload: Workload, trouble_us: int) -> tuple[int, Counter[str]]:
    """Run faults for so long, then convergence and all verifiers. Returns how many messages were delivered, and the
    marks."""
    try:
        cluster.start(hinted="a" if seed % 2 else None)
        workload.begin()
        cluster.run_for(trouble_us)
        converge(cluster, workload)
    finally:
        cluster.close()
    return cluster.network.delivered, cluster.marks


def run_driver(seed: int, **tuned: Any) -> tuple[int, Counter[str]]:
    """Run whole replicas on simulated disks: 1.2 virtual seconds of faults, then convergence and all verifiers."""
    cluster = SimCluster(seed, voters=5 if seed % 7 == 0 else 3, spares=seed % 3)
    workload = Workload(cluster, replace(Swarm.draw(cluster), **tuned))
    return _play(seed, cluster, workload, 1_200_000)


def run_stranded(seed: int, **_: Any) -> tuple[int, Counter[str]]:
    """Run followers that fall behind leaders that are deposed while they are copied from: six virtual seconds."""
    cluster = stranded(seed)
    return cluster.network.delivered, cluster.marks


def run_tablet(seed: int, **tuned: Any) -> tuple[int, Counter[str]]:
    """Run whole data tablets under an ingest query, with tombstones and real tablet copies."""
    cluster = SimCluster(
        seed, voters=5 if seed % 9 == 0 else 3, spares=seed % 3, node_class=TabletNode, copies_class=TabletCopies
    )
    workload = TabletWorkload(cluster, replace(Swarm.draw(cluster), **tuned))
    return _play(seed, cluster, workload, 1_500_000)


NOTHING_ELSE: dict[str, Any] = {
    **dict.fromkeys(("crash_period_us", "cut_period_us", "pause_period_us", "outage_period_us", "stall_period_us"), 0),
    **dict.fromkeys(("full_period_us", "strand_period_us", "slow_network_period_us", "eio_period_us"), 0),
    **dict.fromkeys(("stray_period_us", "wipe_period_us"), 0),
    "crash_point": "",
    "flap": False,
}
"""Settings of a run in which no process dies, is cut off or stopped, and no disk fails."""


def run_jam(seed: int, **tuned: Any) -> tuple[int, Counter[str]]:
    """Run the seed as `driver`, every eighth as `tablet`, for 2.5 virtual seconds with jams: logs and metadata that
    hang, queues without room, ways that lose one type of message or hold all of them back."""
    whole, rng = seed % 8 == 7, Random(f"queue {seed}")
    cluster = SimCluster(
        seed,
        voters=5 if seed % 7 == 0 else 3,
        spares=seed % 3,
        wal_options=replace(WAL, queue_bytes_max=rng.choice([1 << 10, 8 << 10, WAL.queue_bytes_max])),
        driver_options=replace(DRIVER, held_readies_max=rng.choice([DRIVER.held_readies_max, 1 << 20, 1 << 20])),
        node_class=TabletNode if whole else SimNode,
        copies_class=TabletCopies if whole else SimCopies,
    )
    swarm = Swarm.draw(cluster)
    if rng.random() < 0.6:
        swarm = replace(swarm, **NOTHING_ELSE)  # a log that hangs is soon gone if every process dies
    swarm = replace(swarm, **{"majority": 0.5, **jams_drawn(seed), **tuned})
    workload = (TabletWorkload if whole else Workload)(cluster, swarm)
    return _play(seed, cluster, workload, 2_500_000)


SIMULATORS: dict[str, Callable[..., tuple[int, Counter[str]]]] = {
    "core": run_core,
    "driver": run_driver,
    "jam": run_jam,
    "stranded": run_stranded,
    "tablet": run_tablet,
}


def run(simulator: str, seed: int, **tuned: Any) -> Outcome:
    """Run one seed; its failure is part of the outcome. SimCrash outside of a process is a failure too."""
    try:
        delivered, marks = SIMULATORS[simulator](seed, **tuned)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever ends a history is its outcome
        said = f"{type(error).__name__}: {error}".strip()
        return Outcome(simulator, seed, failure=said, trace=traceback.format_exc())
    return Outcome(simulator, seed, delivered, marks)


def run_all(jobs: Sequence[Job]) -> list[Outcome]:
    """Run several seeds, one after the other."""
    return [run(*job) for job in jobs]


def command(simulator: str, seed: int) -> str:
    """Return the command that runs this seed again."""
    return f"python -m tests.sim {simulator}:{seed}"


@dataclass
class Tally:
    """The sum of many outcomes."""

    seeds: Counter[str] = field(default_factory=Counter)
    delivered: Counter[str] = field(default_factory=Counter)
    marks: dict[str, Counter[str]] = field(default_factory=dict)
    failures: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds[outcome.simulator] += 1
        self.delivered[outcome.simulator] += outcome.delivered
        self.marks.setdefault(outcome.simulator, Counter()).update(outcome.marks)
        if outcome.failure:
            self.failures.append(outcome)
