"""One planted bug for each kind of fault of disks: a driver simulation that misses it turns these red."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.raft_driver.persister import Persister
from nyala.replica.raft_driver.ready_executor import ReadyExecutor
from nyala.replica.types import Code, Refused
from tests.harness import sim_copy
from tests.harness.sim_cluster import SimCluster
from tests.harness.sim_stranded import stranded
from tests.harness.sim_workload import Swarm, Workload, converge

SEEDS = 120


def complaints(wanted: str, found_at: int = 0, **tuned: Any) -> bool:
    """Return whether a verifier complains with `wanted` on one of the first seeds; others may be faster on some.
    `tuned`: the settings of the runs that this bug needs. `found_at`: a seed where it was found once, which is tried
    first."""
    for seed in (*range(found_at, SEEDS), *range(found_at)):
        cluster = SimCluster(seed, voters=5 if seed % 7 == 0 else 3, spares=seed % 3)
        workload = Workload(cluster, replace(Swarm.draw(cluster), **tuned))
        cluster.start(hinted="a" if seed % 2 else None)
        workload.begin()
        try:
            cluster.run_for(1_200_000)
            converge(cluster, workload)
        except Exception as error:  # noqa: BLE001 - the planted bug may come out anywhere
            if wanted in str(error):
                return True
    return False


def test_entries_applied_ahead_of_the_own_log_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the slow-log fault has an effect. Method: a replica applies up to the commit index, durable here or not."""
    right = ReadyExecutor.apply_committed

    def ahead(executor: ReadyExecutor) -> None:
        executor._committed = max(executor._committed, executor.core.commit_index)
        right(executor)

    monkeypatch.setattr(ReadyExecutor, "apply_committed", ahead)
    assert complaints("its log is durable up to")


@pytest.mark.deep
def test_replica_that_a_full_disk_ends_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the fault of metadata without room has an effect. Method: a full disk fails the replica for good."""
    right = Persister._save_succeeded

    def for_good(persister: Persister, result: BaseException | None) -> bool:
        if isinstance(result, Refused) and result.code is Code.NO_SPACE:
            persister.on_error(result)
            return False
        return right(persister, result)

    monkeypatch.setattr(Persister, "_save_succeeded", for_good)
    assert complaints("FAILED", found_at=7)


def test_promise_made_without_room_for_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a promise forgotten because of a full disk is noticed. Method: a term that found no room counts as
    saved."""
    right = Persister._save_succeeded

    def saved_without_room(persister: Persister, result: BaseException | None) -> bool:
        return isinstance(result, Refused) or right(persister, result)

    monkeypatch.setattr(Persister, "_save_succeeded", saved_without_room)
    assert complaints("and remembers", found_at=10)


def test_metadata_that_is_loaded_unsynced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a kill followed by a power loss is among the faults. Method: loading syncs nothing."""
    right = ConsensusMeta.load

    def load(disk: Any, tablet_id: str) -> ConsensusMeta:
        sync_dir = disk.sync_dir
        disk.sync_dir = lambda path: None
        try:
            return right(disk, tablet_id)
        finally:
            disk.sync_dir = sync_dir

    monkeypatch.setattr(ConsensusMeta, "load", staticmethod(load))
    assert complaints("and remembers", 36, crash_period_us=60_000, crash_point="disk.before_rename_sync")


@pytest.mark.parametrize(
    ("checked_at_its_turn", "found_at"), [pytest.param(True, 8, marks=pytest.mark.deep), (False, 0)]
)
def test_copy_over_a_replica_that_acknowledged_more_is_seen(
    monkeypatch: pytest.MonkeyPatch, checked_at_its_turn: bool, found_at: int
) -> None:
    """Goal: deposed leaders that wake up copy over replicas. Method: a copy is not compared with what its target has
    promised at the end; and in the second case not when its turn comes either."""
    monkeypatch.setattr(sim_copy, "source_refusal", lambda **given: None)
    if not checked_at_its_turn:
        monkeypatch.setattr(sim_copy, "start_tablet_copy_checks", lambda request, local: None)
    with pytest.raises(AssertionError, match=r"a copy up to .* makes . forget"):
        for seed in (*range(found_at, 20), *range(found_at)):
            stranded(seed)
