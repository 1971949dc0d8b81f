"""The catalog's group on a real disk: commits, concurrency, flush, restart."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pytest

from nyala.replica.fs import MASTER, RAFT_FOLDERS, RealDisk, open_or_format
from nyala.replica.master.group import catalog_group as group_module
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.types import Address, Applied, Code, Corruption, Member, OpId, RaftConfig, Refused, SystemClock
from tests.harness.server_pair import until

T = TypeVar("T")


def with_group(
    root: Path,
    use: Callable[[CatalogGroup], Awaitable[T]],
    *,
    flush_entries: int = 1_000_000,
    expected: type[BaseException] | None = None,
) -> T:
    """Open the group under `root`, lead, run `use`, stop. `expected`: what must have been told as fatal meanwhile."""

    async def run() -> T:
        clock = SystemClock()
        disk = RealDisk(root)
        uuid = open_or_format(disk, clock, kind=MASTER).uuid
        failures: list[BaseException] = []
        alone = RaftConfig(OpId(0, 0), (Member(uuid, (Address("h", 1),)),))
        group = CatalogGroup(disk, clock, uuid, alone, send=lambda messages: None, on_fatal=failures.append)
        await group.start()

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.01)
                group.tick()
                group.maintain(flush_entries)

        ticker = asyncio.create_task(tick())
        try:
            await asyncio.wait_for(group.led.wait(), 20)
            return await use(group)
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
            await group.stop()
            assert [type(failure) for failure in failures] == ([expected] if expected else [])

    return asyncio.run(run())


def put(key: str, value: int) -> Any:
    """A change that puts one record."""
    return {key: {"v": value}}, [], "", value


def test_group_changes_survive_a_restart_in_a_higher_term(tmp_path: Path) -> None:
    """Goal: a change that was answered is durable. Method: commit, stop, open again, twice."""

    async def first(group: CatalogGroup) -> int:
        assert await group.change(lambda: put("k/1", 7)) == 7
        return group.term

    async def second(group: CatalogGroup) -> int:
        assert group.catalog.get("k/1") == {"v": 7}
        await group.change(lambda: put("k/2", 8))
        return await group.ensure_ready()

    term = with_group(tmp_path, first)
    assert with_group(tmp_path, second) > term
    assert with_group(tmp_path, second) > term + 1


def test_group_concurrent_read_modify_writes_lose_nothing(tmp_path: Path) -> None:
    """Goal: each change sees all before it, also when callers go away. Method: 60 increments, a third cancelled."""

    async def use(group: CatalogGroup) -> tuple[int, int]:
        ran = 0

        def increment() -> Any:
            nonlocal ran
            ran += 1
            now = group.catalog.get("k/n") or {"v": 0}
            return put("k/n", now["v"] + 1)

        tasks = [asyncio.create_task(group.change(increment)) for _ in range(60)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        for task in tasks:
            with suppress(asyncio.CancelledError):
                await task
        await group.change(lambda: ({}, [], "", None))
        record = group.catalog.get("k/n")
        assert record is not None
        return ran, record["v"]

    ran, value = with_group(tmp_path, use)
    assert value == ran >= 40


def test_group_ends_its_process_on_an_error_that_nobody_expected(tmp_path: Path) -> None:
    """Goal: an unexpected error in a completion ends the process, because a change may wait for that completion.
    Method: a posted function raises an error."""

    async def use(group: CatalogGroup) -> None:
        seen = asyncio.Event()

        def broken() -> None:
            seen.set()
            raise KeyError("a bug")

        group._post(broken)
        await asyncio.wait_for(seen.wait(), 20)

    with_group(tmp_path, use, expected=KeyError)


def test_group_ends_its_process_when_the_catalog_fails(tmp_path: Path) -> None:
    """Goal: a master whose catalog has failed ends its process. Method: commit an entry that the catalog cannot
    apply."""

    async def use(group: CatalogGroup) -> None:
        await group.ensure_ready()
        with pytest.raises(Refused) as refused:
            await group._commit(b"no change at all")
        assert refused.value.code is Code.TABLET_FAILED

    with_group(tmp_path, use, expected=Corruption)


def test_group_a_refused_change_commits_nothing(tmp_path: Path) -> None:
    """Goal: a failing call leaves state untouched and the next one runs. Method: refuse inside, compare positions."""

    async def use(group: CatalogGroup) -> None:
        await group.ensure_ready()
        before = group.replica.last_logged

        def refuse() -> Any:
            raise Refused(Code.NOT_FOUND, "no")

        with pytest.raises(Refused):
            await group.change(refuse)
        assert group.replica.last_logged == before
        await group.change(lambda: put("k/1", 1))
        assert group.replica.last_logged.index == before.index + 1

    with_group(tmp_path, use)


@pytest.mark.parametrize(("error", "told"), [(Refused(Code.NOT_FOUND, "no"), []), (OSError("a bug"), [OSError])])
def test_group_tells_no_refusal_to_a_caller_that_has_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, told: list[type[Exception]]
) -> None:
    """Goal: the refusal of a change whose caller has left is no fault in the log, and any other error is one. Method:
    a caller leaves a change that waits for another one, and then fails; the log is read after a collection."""

    async def use(group: CatalogGroup) -> None:
        def fail() -> Any:
            raise error

        first = asyncio.create_task(group.change(lambda: put("k/1", 1)))
        second = asyncio.create_task(group.change(fail))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert group._tasks, "the change itself goes on"
        await first
        await until(lambda: not group._tasks, "both changes have ended")

    with_group(tmp_path, use)
    gc.collect()
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == told


def test_group_flushes_as_it_goes_and_replays_the_rest(tmp_path: Path) -> None:
    """Goal: the log does not grow for ever, and state and log fit together. Method: flush every 20 of 100 changes."""

    async def use(group: CatalogGroup) -> None:
        for n in range(100):
            await group.change(lambda n=n: put(f"k/{n}", n))
        await until(lambda: group.catalog.flush_opid.index > 0, "the ticks have flushed")

        def flushed() -> bool:
            group.maintain(1)  # does nothing while a flush of the ticks is under way
            return group.catalog.flush_opid.index >= 100

        await until(flushed, "all of it is flushed")
        await group.change(lambda: put("l/1", 1))

    async def look(group: CatalogGroup) -> None:
        assert {k: r["v"] for k, r in group.catalog.items("k/")} == {str(n): n for n in range(100)}
        assert group.catalog.get("l/1") == {"v": 1}

    with_group(tmp_path, use, flush_entries=20)
    with_group(tmp_path, look)


def test_group_without_its_metadata_refuses_to_start(tmp_path: Path) -> None:
    """Goal: a master that may have forgotten its vote does not start. Method: remove the consensus metadata beside a
    superblock."""

    async def use(group: CatalogGroup) -> None:
        await group.change(lambda: put("k/1", 1))

    with_group(tmp_path, use)
    next((tmp_path / "consensus-meta").iterdir()).unlink()
    with pytest.raises(Corruption, match="metadata is missing"):
        with_group(tmp_path, use)


@pytest.mark.parametrize("full", [False, True])
def test_group_flushes_one_at_a_time_and_pauses_while_there_is_no_room(
    full: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-65. Goal: at most one flush of the catalog runs or waits, because each one writes the whole catalog. Method:
    flushes are requested again and again while one is delayed; after one that found no room, the next one comes after a
    pause."""
    monkeypatch.setattr(group_module, "FLUSH_PAUSE_S", 0.5)

    async def use(group: CatalogGroup) -> None:
        begun: SimpleQueue[float] = SimpleQueue()
        go, flush = threading.Event(), group.catalog.flush

        def slow() -> bool:
            begun.put(time.monotonic())
            assert go.wait(20)
            if full:
                raise Refused(Code.NO_SPACE, "the disk is full")
            return flush()

        for number in range(3):
            await group.change(lambda number=number: put(f"k/{number}", number))  # type: ignore[misc]
        monkeypatch.setattr(group.catalog, "flush", slow)
        group.maintain(1)
        first = await asyncio.to_thread(begun.get, True, 20)
        for _ in range(20):
            group.maintain(1)
        go.set()
        if full:
            async with asyncio.timeout(20):
                while begun.empty():
                    group.maintain(1)
                    await asyncio.sleep(0.01)
            assert begun.get() - first >= 0.5
        await asyncio.get_running_loop().run_in_executor(group._lane, lambda: None)
        assert begun.empty()
        monkeypatch.undo()

    with_group(tmp_path, use)


def test_changes_behind_one_that_waits_for_room_are_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CN-08. Goal: a master with a full disk answers NO_SPACE instead of leaving its callers without an answer. Method:
    the log's disk takes no byte: the first change waits, and those behind it are refused with NO_SPACE and not applied.
    With room again, the first one is committed, and so is the next."""

    async def use(group: CatalogGroup) -> None:
        with monkeypatch.context() as full:

            def refuse(*_: object) -> int:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            for name in ("pwrite", "pwritev"):
                full.setattr(os, name, refuse)
            first = asyncio.create_task(group.change(lambda: put("k/1", 1)))
            await until(lambda: group.replica.without_room is not None, "it has no room")
            for _ in range(50):
                if group.replica.without_room is not None:
                    with pytest.raises(Refused) as error:
                        await asyncio.wait_for(group.change(lambda: put("k/2", 2)), 20)
                    assert (error.value.code, error.value.applied) == (Code.NO_SPACE, Applied.NOT_APPLIED)
            assert not first.done()
        assert await asyncio.wait_for(first, 20) == 1
        await group.change(lambda: put("k/3", 3))
        assert [group.catalog.get(f"k/{n}") for n in (1, 2, 3)] == [{"v": 1}, None, {"v": 3}]

    with_group(tmp_path, use)


@pytest.mark.parametrize("folder", RAFT_FOLDERS)
def test_master_that_lost_a_folder_of_promises_does_not_start(folder: str, tmp_path: Path) -> None:
    """TC-72. Goal: a master that may have forgotten a vote or a logged entry does not start under its old uuid. Method:
    a folder is missing, as if its disk were not mounted; the start creates nothing in its place, and the refusal says
    what to do."""

    async def use(group: CatalogGroup) -> None:
        await group.change(lambda: put("k/1", 1))

    with_group(tmp_path, use)
    gone = ["tablet-meta", "consensus-meta", "wals"] if folder == "tablet-meta" else [folder]
    for name in gone:
        shutil.rmtree(tmp_path / name)
    with pytest.raises(Corruption, match=rf"mount its disk again.*nyala fs wipe.*{folder}"):
        with_group(tmp_path, use)
    assert not any((tmp_path / name).exists() for name in gone)
