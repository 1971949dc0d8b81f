"""Creations and deletions of tablets whose callers leave before they end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from nyala.replica.server.runtime.tasks import Tasks
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import Superblock
from nyala.replica.types import Code, Corruption, DataState, InvariantViolation, Refused
from tests.harness.copies import TABLET, new_disk, superblock
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


@pytest.mark.parametrize("repeated", [True, False])
@pytest.mark.parametrize(("work", "before", "least"), [(create, None, 10), (delete, create, 5)])
def test_work_on_a_tablet_goes_on_when_its_caller_leaves_and_a_repetition_waits(
    work: Work, before: Work | None, least: int, repeated: bool
) -> None:
    """IN-62, TC-63. Goal: a caller that leaves in the middle of a creation or deletion, whether or not it repeats the
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
    """IN-62, TC-63. Goal: no replica stays stopped and not deleted because the caller of its deletion left. Method: the
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
