"""A server that lacks memory, maps, files or threads for a moment gives up none of its replicas."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Sequence
from typing import Any

import pytest

from nyala.replica.fs import MapReserve, map_reserve
from nyala.replica.raft_driver import Phase
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets import manager as manager_module
from nyala.replica.server.tablets.copy_failures import is_our_own
from nyala.replica.server.tablets.manager import TabletManager, reopen_after_s
from nyala.replica.server.tablets.status import replica_status
from nyala.replica.tablet import Tablet
from nyala.replica.tablet import tablet as tablet_module
from nyala.replica.types import Code, Corruption, Entry, Refused, ResourcesExhausted, ResourceUse
from tests.harness.copies import TABLET, TARGET_UUID, new_disk
from tests.harness.server_pair import until
from tests.unit.server.test_server_open import OTHER, served, two_tablets

WANTS = ("EMFILE", "ENFILE", "ENOMEM", "EAGAIN")


def phase_of(manager: TabletManager) -> str:
    return str(replica_status(manager.get(TABLET), TARGET_UUID, 100).phase)


@pytest.mark.deep
@pytest.mark.parametrize("kind", WANTS)
@pytest.mark.parametrize(
    ("operation", "pattern"),
    [
        ("read", f"tablet-meta/{TABLET}"),
        ("read", f"consensus-meta/{TABLET}"),
        ("open", f"wals/{TABLET}/*"),
        ("pread", f"wals/{TABLET}/*"),
        ("listdir", f"wals/{TABLET}"),
    ],
)
def test_replica_that_cannot_be_opened_for_a_want_waits_and_is_never_failed(
    operation: str, pattern: str, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-30. Goal: if a resource is exhausted while a replica is opened, the server tries again, and reports it as
    starting meanwhile. Method: that errno at each file of a start, until it was seen: the replica is not FAILED, not
    damaged, answers NOT_READY between two tries, and runs once the errno is gone."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    disk.fail_on(operation, pattern, kind, times=None)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        await until(lambda: hosted.attempts >= 2 and not hosted.opening, "the server waits between two tries")
        assert (phase_of(manager), hosted.damaged) == ("BOOTSTRAPPING", False)
        with pytest.raises(Refused) as refused:
            hosted.serving()
        assert refused.value.code is Code.NOT_READY
        disk.heal()
        await asyncio.wait_for(manager._later.ended(), 20)
        assert hosted.running and hosted.error == "" and manager.get(OTHER).running
        assert hosted.attempts == 0

    served(disk, look, fatal)
    assert fatal == [] and sum(disk.fired.values()) >= 2
    assert not [r for r in caplog.records if "stays offline" in r.getMessage()]


def test_restart_opens_every_tablet_that_was_open_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-30. Goal: a server that restarts between the two limits of memory maps serves all that it served, and a copy
    leaves the maps above the first limit to flushes, at its first try and later. Method: the kernel counts 96 %; a
    server with two tablets starts; a tablet that a copy brought waits until the count is lower."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    used = [9_600]
    reserve = MapReserve(lambda: ResourceUse(used[0], 10_000))
    monkeypatch.setattr(map_reserve, "COUNT_EVERY_S", 0.0)
    monkeypatch.setattr(tablet_module, "RESERVE", reserve)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def look(manager: TabletManager) -> None:
        assert manager.get(TABLET).running and manager.get(OTHER).running
        hosted = manager.get(TABLET)
        async with hosted.transition:
            await manager.shutdowns.halt(hosted)
            await manager.open(hosted, checked=True)  # as after a copy
        await until(lambda: hosted.attempts >= 2 and not hosted.opening, "the server waits between two tries")
        assert not hosted.running and "vm.max_map_count" in hosted.error
        used[0] = 9_400
        await asyncio.wait_for(manager._later.ended(), 20)
        assert hosted.running
        used[0] = 9_600
        async with hosted.transition:
            await manager.shutdowns.halt(hosted)
            await manager.open(hosted)
        assert hosted.running, "it ran here before"

    served(disk, look, fatal)
    assert fatal == []


def test_tries_to_open_become_rarer_up_to_a_bound() -> None:
    """IN-30. Goal: while a resource is exhausted, the attempts to open replicas become rarer, up to a bound. Method:
    the waits of many attempts."""
    waits = [reopen_after_s(attempts) for attempts in range(50)]
    assert waits[:4] == [5.0, 10.0, 20.0, 40.0] and set(waits[4:]) == {60.0}


def test_replica_that_runs_out_of_memory_as_it_applies_starts_again_and_has_lost_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """IN-30. Goal: a replica whose apply stopped half-way answers no requests until it was opened again. Method: no
    memory at one apply: the replica stops, is told as one that starts, is opened from its files and applies the same
    entry."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    apply, left, states = Tablet.apply, [1, 1], []

    def starved(tablet: Tablet, entries: Sequence[Entry]) -> Any:
        if left and tablet.tablet_id == TABLET and any(entry.opid.term > 1 for entry in entries):
            left.pop()
            raise MemoryError
        return apply(tablet, entries)

    monkeypatch.setattr(Tablet, "apply", starved)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        assert hosted.replica is not None
        first = hosted.replica
        for _ in range(2000):
            manager.ticker.tick()
            await asyncio.sleep(0.001)
            states.append((phase_of(manager), hosted.damaged))
            replica = hosted.replica
            if replica is not None and replica is not first and replica.phase is Phase.RUNNING and not left:
                break
        assert hosted.running and hosted.replica is not first and not left

    served(disk, look, fatal)
    assert fatal == [] and not [s for s in states if s[0] == "FAILED" or s[1]]


def test_entry_that_meets_a_want_at_each_start_is_tried_ever_more_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-30. Goal: if replay fails for want of a resource each time, the pause between the attempts grows until the
    replay succeeds. Method: no memory at five applies of what the log holds; the attempts that are counted at each; at
    none when the replica has applied it all."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    apply, counted = Tablet.apply, []

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)

        def starved(tablet: Tablet, entries: Sequence[Entry]) -> Any:
            if len(counted) < 5 and tablet.tablet_id == TABLET and any(entry.opid.term > 1 for entry in entries):
                counted.append(hosted.attempts)
                raise MemoryError
            return apply(tablet, entries)

        monkeypatch.setattr(Tablet, "apply", starved)
        for _ in range(2000):
            manager.ticker.tick()
            await asyncio.sleep(0.001)
            replica = hosted.replica
            past = (
                replica is not None and replica.phase is Phase.RUNNING and replica.applied_index == replica.commit_index
            )
            if past and len(counted) == 5 and hosted.attempts == 0:
                break
        assert (counted, hosted.running, hosted.attempts) == ([0, 1, 2, 3, 4], True, 0)

    served(disk, look, fatal)
    assert fatal == []


@pytest.mark.parametrize("work", ["flush", "compact"])
def test_maintenance_that_finds_no_memory_waits(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-30. Goal: if a resource is exhausted, neither server nor replica ends, and the maintenance is done later.
    Method: no memory, no map and no file at a flush and at a compaction."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    errors: list[Exception] = [
        MemoryError(), OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), ResourcesExhausted("no map is left")
    ]  # fmt: skip

    async def look(manager: TabletManager) -> None:
        maintenance = Maintenance(manager, MemoryGuard(1 << 40, lambda: 0))
        hosted = manager.get(TABLET)
        for error in errors:

            def refuses(tablet: Tablet, error: Exception = error) -> None:
                raise error

            with monkeypatch.context() as patch:
                patch.setattr(Tablet, work, refuses)
                assert not await getattr(maintenance, work)(hosted)
            assert hosted.running
        maintenance.close()

    served(disk, look, fatal)
    assert fatal == []


@pytest.mark.parametrize("work", ["flush", "compact"])
def test_replica_that_stopped_while_maintenance_waited_for_its_turn_is_left_alone(
    work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-30. Goal: a replica that stopped in the middle of an entry is not flushed. Method: it fails while its flush
    waits for that of another tablet."""
    disk, fatal, done = new_disk(), [], []  # type: ignore[var-annotated]
    two_tablets(disk)
    monkeypatch.setattr(Tablet, work, lambda tablet: done.append(tablet))

    async def look(manager: TabletManager) -> None:
        maintenance = Maintenance(manager, MemoryGuard(1 << 40, lambda: 0))
        hosted = manager.get(TABLET)
        async with maintenance._one_at_a_time:
            waits = asyncio.ensure_future(getattr(maintenance, work)(hosted))
            await asyncio.sleep(0)
            assert hosted.replica is not None
            hosted.replica.fail(Corruption("a block was damaged"))
        assert not await waits and not hosted.running
        maintenance.close()

    served(disk, look, fatal)
    assert fatal == [] and done == []


def test_copy_that_ended_for_a_want_of_this_server_is_a_reason_of_its_own() -> None:
    """IN-30. Goal: if a copy fails because the target's resources are exhausted, the masters choose another server and
    do not blame the source. Method: the errors of a copy."""
    assert is_our_own(ResourcesExhausted("no map is left"))
    assert not is_our_own(Refused(Code.OVERLOADED, "the source is busy"))
