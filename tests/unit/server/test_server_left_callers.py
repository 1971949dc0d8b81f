"""Creations, deletions, flushes and compactions of tablets whose callers leave before they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nyala.replica.raft_driver import Phase
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.runtime.tasks import Tasks
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import Superblock
from nyala.replica.tablet.merge_rule import FAN_IN_MIN
from nyala.replica.types import Code, Corruption, DataState, DiskFailure, InvariantViolation, Refused
from tests.harness.copies import TABLET, new_disk, superblock, write_entry
from tests.harness.patience import patience_s
from tests.harness.server_pair import until
from tests.unit.server.test_server_open import ALONE, served

Work = Callable[[TabletManager], Coroutine[Any, Any, object]]


def create(manager: TabletManager) -> Coroutine[Any, Any, object]:
    return manager.create(superblock(), ALONE, campaign=False)


def delete(manager: TabletManager) -> Coroutine[Any, Any, object]:
    return manager.delete(TABLET, None, "for a test")


class Held:
    """A disk that stands still at its operation of that number, counted from the construction on, until `free`."""

    def __init__(self, manager: TabletManager, number: int) -> None:
        self.calls, self._number, self._disk = 0, number, manager.disk
        self.reached, self.free = threading.Event(), threading.Event()
        self._disk.hook = self._hook  # type: ignore[attr-defined]

    def _hook(self, operation: str, path: str) -> None:
        self.calls += 1
        if self.calls == self._number:
            self.reached.set()
            self.free.wait(20)

    def end(self) -> None:
        self.free.set()
        self._disk.hook = None  # type: ignore[attr-defined]


def operations(work: Work, before: Work | None) -> int:
    """Return the number of the disk's operations of the work."""
    found = 0

    async def use(manager: TabletManager) -> None:
        nonlocal found
        if before is not None:
            await before(manager)
        held = Held(manager, -1)
        await work(manager)
        found = held.calls
        held.end()

    fatal: list[BaseException] = []
    served(new_disk(), use, fatal)
    assert fatal == []
    return found


@pytest.mark.a_third
@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize(("work", "before", "least"), [(create, None, 10), (delete, create, 5)])
def test_work_on_a_tablet_goes_on_when_its_caller_leaves_and_a_repetition_waits(
    work: Work, before: Work | None, least: int, repeated: bool
) -> None:
    """IN-62. Goal: a caller that leaves in the middle of a creation or deletion, whether or not it repeats the
    call, ends no server and leaves no half of a tablet. Method: the disk stands still at each operation in turn; there
    the caller is cancelled, and a second one may begin; the disk goes on. Then the tablet is here and runs, or is a
    tombstone, in memory and on the disk, nothing was fatal, and one more call changes nothing."""
    count = operations(work, before)
    assert count >= least
    for number in range(1, count + 1):
        disk, fatal = new_disk(), []  # type: ignore[var-annotated]

        async def use(manager: TabletManager, number: int = number) -> None:
            if before is not None:
                await before(manager)
            held = Held(manager, number)
            first = asyncio.create_task(work(manager))  # type: ignore[arg-type]
            await until(held.reached.is_set, f"operation {number} of {count} is reached")
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            second = asyncio.create_task(work(manager)) if repeated else None  # type: ignore[arg-type]
            await asyncio.sleep(0)
            held.end()
            hosted, made = manager.get(TABLET), work is create
            state = DataState.READY if made else DataState.DELETED
            await until(
                lambda: hosted.running is made and hosted.superblock.data_state is state, f"it ends, held at {number}"
            )
            if second is not None:
                await asyncio.wait_for(second, 20)
            await asyncio.wait_for(work(manager), 20)
            assert hosted.running is made and hosted.copy is None and manager.get(TABLET) is hosted
            assert hosted.superblock.data_state is state is Superblock.load(manager.disk, TABLET).data_state

        served(disk, use, fatal)
        assert fatal == [], f"at operation {number}"


def test_deletion_whose_caller_leaves_at_any_step_ends_by_itself() -> None:
    """IN-62. Goal: no replica stays stopped and not deleted because the caller of its deletion left. Method: the
    caller is cancelled after one step of the loop, two, and so on to twelve; nobody calls again."""
    left = 0
    for steps in range(1, 13):
        fatal: list[BaseException] = []

        async def use(manager: TabletManager, steps: int = steps) -> None:
            nonlocal left
            await create(manager)
            caller = asyncio.create_task(delete(manager))
            for _ in range(steps):
                await asyncio.sleep(0)
            left += caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
            hosted = manager.get(TABLET)
            await until(lambda: hosted.superblock.data_state is DataState.DELETED, f"it ends, left after {steps} steps")
            assert not hosted.running and Superblock.load(manager.disk, TABLET).data_state is DataState.DELETED

        served(new_disk(), use, fatal)
        assert fatal == []
    assert left > 3


@pytest.mark.parametrize(
    ("error", "told"),
    [(Refused(Code.NO_SPACE, "full"), False), (InvariantViolation("ours"), True), (Corruption("damaged"), False)],
)
def test_error_of_work_whose_caller_left_is_told_unless_it_is_an_answer(error: Exception, told: bool) -> None:
    """IN-62. Goal: an unexpected error of work that nobody waits for is not lost, and what would have been its caller's
    answer ends no server. Method: work that fails after its caller has left; the same work with its caller, who gets
    the error alone."""
    found: list[BaseException] = []

    async def use() -> None:
        tasks, go_on = Tasks(found.append), asyncio.Event()

        async def fail() -> None:
            await go_on.wait()
            raise error

        left, stays = (asyncio.create_task(tasks.finish(fail())) for _ in range(2))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        go_on.set()
        with pytest.raises(type(error)):
            await stays
        await tasks.ended()

    asyncio.run(use())
    assert found == ([error] if told else [])


async def filled(manager: TabletManager, work: str) -> tuple[Maintenance, HostedTablet]:
    """A tablet with rows to flush, or with blocks to merge, and the server's maintenance."""
    maintenance, hosted = Maintenance(manager, MemoryGuard(1 << 40, lambda: 0)), manager.get(TABLET)
    tablet = hosted.tablet
    assert tablet is not None
    for index in range(1, 2 if work == "flush" else FAN_IN_MIN + 1):
        tablet.apply([write_entry(index, [index], "x", 1)])
        if work == "compact":
            assert await maintenance.flush(hosted)
    return maintenance, hosted


def done_of(maintenance: Maintenance, work: str) -> int:
    return maintenance.flushes if work == "flush" else maintenance.compactions


@pytest.mark.a_third
@pytest.mark.parametrize("behind", ["nothing", "delete", "again"])
@pytest.mark.parametrize("work", ["flush", pytest.param("compact", marks=pytest.mark.deep)])
def test_maintenance_goes_on_when_its_caller_leaves_and_others_wait(work: str, behind: str) -> None:
    """IN-62. Goal: a flush or compaction whose caller leaves is done as if it had stayed: the new list of blocks is in
    force, it is counted, and nothing else uses the files meanwhile. Method: the disk stands still at each operation in
    turn; there the caller is cancelled, and a deletion or the same work may begin, and waits; the disk goes on."""
    number, count = 0, 1
    while number < count:
        number += 1
        fatal: list[BaseException] = []

        async def use(manager: TabletManager, number: int = number) -> None:
            nonlocal count
            await create(manager)
            maintenance, hosted = await filled(manager, work)
            tablet, begun = hosted.tablet, done_of(maintenance, work)
            assert tablet is not None
            held = Held(manager, number)
            caller = asyncio.create_task(getattr(maintenance, work)(hosted))
            await until(lambda: held.reached.is_set() or caller.done(), f"operation {number} is reached")
            if caller.done():
                count = number
                held.end()
                return
            count += 1
            caller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller
            others: dict[str, Work] = {"delete": delete, "again": lambda _: getattr(maintenance, work)(hosted)}
            other = asyncio.create_task(others[behind](manager)) if behind in others else None  # type: ignore[arg-type]
            for _ in range(20):
                await asyncio.sleep(0)
            assert not hosted.unattended.is_set() and not (other is not None and other.done())
            held.end()
            if other is not None:
                await asyncio.wait_for(other, 20)
            await until(hosted.unattended.is_set, "the work has ended")
            assert done_of(maintenance, work) == begun + 1
            assert len(tablet.superblock.blocks) == 1 and tablet.superblock.flush_opid == tablet.applied_opid
            assert hosted.running is (behind != "delete")
            if hosted.running:
                assert Superblock.load(manager.disk, TABLET) == tablet.superblock
                assert hosted.flush_history is not None or work == "compact"
            maintenance.close()

        served(new_disk(), use, fatal)
        assert fatal == [], f"at operation {number}"
    assert count > 5


@pytest.mark.parametrize("stays", [True, False])
@pytest.mark.parametrize(
    "error", [Refused(Code.NO_SPACE, "full"), Corruption("damaged"), DiskFailure("EIO"), ZeroDivisionError()]
)
def test_error_of_maintenance_whose_caller_left_is_acted_on(error: Exception, stays: bool) -> None:
    """IN-62, IN-21. Goal: damage that a flush finds fails the replica, and a failing disk ends the process, whether or
    not the caller still waits. Method: a flush that raises, with its caller and after it has left."""
    found: list[BaseException] = []

    async def use(manager: TabletManager) -> None:
        await create(manager)
        maintenance, hosted = await filled(manager, "flush")
        begun, go_on, replica = threading.Event(), threading.Event(), hosted.replica

        def flush() -> None:
            begun.set()
            go_on.wait(20)
            raise error

        hosted.tablet.flush = flush  # type: ignore[union-attr, method-assign, assignment]
        caller = asyncio.create_task(maintenance.flush(hosted))
        await until(begun.is_set, "the flush has begun")
        if not stays:
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        go_on.set()
        outcome = (await asyncio.gather(caller, return_exceptions=True))[0]
        await until(hosted.unattended.is_set, "the work has ended")
        for _ in range(3):
            await asyncio.sleep(0)
        unexpected = isinstance(error, ZeroDivisionError)
        if stays:
            assert outcome is (error if unexpected else False)
        assert replica is not None and (replica.phase is Phase.FAILED) is isinstance(error, Corruption)
        told = isinstance(error, DiskFailure) or (unexpected and not stays)
        assert found == ([error] if told else []) and maintenance.flushes == 0
        assert not maintenance._one_at_a_time.locked()
        maintenance.close()

    served(new_disk(), use, found)


def test_maintenance_whose_caller_leaves_before_its_turn_does_not_begin() -> None:
    """IN-62. Goal: work that has not begun for a caller that left is not begun. Method: a caller waits for the turn of
    another tablet's work, and leaves; then the other work ends."""
    fatal: list[BaseException] = []

    async def use(manager: TabletManager) -> None:
        await create(manager)
        maintenance, hosted = await filled(manager, "flush")
        async with maintenance._one_at_a_time:
            caller = asyncio.create_task(maintenance.flush(hosted))
            await asyncio.sleep(0)
            caller.cancel()
            await asyncio.gather(caller, return_exceptions=True)
        await asyncio.sleep(0)
        assert hosted.unattended.is_set() and maintenance.flushes == 0 and hosted.flush_history is None
        assert await asyncio.wait_for(maintenance.flush(hosted), patience_s(20)) and maintenance.flushes == 1
        maintenance.close()

    served(new_disk(), use, fatal)
    assert fatal == []
