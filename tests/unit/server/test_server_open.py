"""Tablets that cannot start: the effect on the server, and which of them try again."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nyala.replica.raft import AppendEntries
from nyala.replica.raft_driver import Replica
from nyala.replica.rpc import pb
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.heartbeats.heartbeat import Heartbeats
from nyala.replica.server.maintenance.file_check import FileChecker
from nyala.replica.server.runtime.channels import Channels
from nyala.replica.server.runtime.gil_watch import GilWatch
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.runtime.resources import ResourceWatch
from nyala.replica.server.tablets import manager as manager_module
from nyala.replica.server.tablets.hosted import HostedTablet
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.server.tablets.status import replica_status
from nyala.replica.tablet import Superblock
from nyala.replica.tablet_copy import CopyRequest
from nyala.replica.types import (
    Address,
    Code,
    Corruption,
    DataState,
    Entry,
    EntryKind,
    InvariantViolation,
    Member,
    OpId,
    RaftConfig,
    Refused,
)
from nyala.replica.wal import Log
from tests.harness.copies import TABLET, TARGET_UUID, new_disk, superblock, write_entry
from tests.harness.managers import new_manager
from tests.harness.server_pair import identity_of
from tests.harness.sim_disk import SimDisk

OTHER = "tablet-2"
ALONE = RaftConfig(OpId(0, 0), (Member(TARGET_UUID, (Address("127.0.0.1", 2),)),))


def served(
    disk: SimDisk, use: Callable[[TabletManager], Coroutine[Any, Any, None]], fatal: list[BaseException]
) -> None:
    """One life of a server on `disk`."""

    async def life() -> None:
        manager = new_manager(disk, fatal.append)
        await manager.start()
        await asyncio.gather(*manager.open_all())
        try:
            await use(manager)
        finally:
            await manager.stop()

    asyncio.run(life())


async def flushed(manager: TabletManager, hosted: HostedTablet, entry: Entry) -> None:
    """Apply the next entry, and wait until it is in the log and in a block."""
    loop = asyncio.get_running_loop()
    assert hosted.tablet is not None and hosted.log is not None
    hosted.tablet.apply([entry])
    done = loop.create_future()
    hosted.log.append([entry], lambda result: loop.call_soon_threadsafe(done.set_result, result))
    await asyncio.wait_for(done, 20)
    await manager.in_thread(hosted.tablet.flush)


def two_tablets(disk: SimDisk, tablet_ids: Sequence[str] = (TABLET, OTHER)) -> None:
    """Two tablets of one voter, or those of these ids, each with a flushed block."""

    async def fill(manager: TabletManager) -> None:
        for tablet_id in tablet_ids:
            hosted = await manager.create(replace(superblock(), tablet_id=tablet_id), ALONE, campaign=False)
            await flushed(manager, hosted, write_entry(1, [1, 2], "x", 1))

    fatal: list[BaseException] = []
    served(disk, fill, fatal)
    assert fatal == []
    disk.restart()


@pytest.mark.parametrize("ends", [False, True], ids=["the server goes on", "the server stops"])
def test_copy_that_failed_writes_no_superblock_beside_a_replica_that_is_stopping(ends: bool) -> None:
    """Goal: an older superblock never replaces a newer file. Method: a replica that has flushed since it was
    opened is being stopped, because a resource was exhausted, while a flush of it still runs. A copy fails meanwhile
    and takes the state from the disk: the file stays as it is, and the replica is opened again with all that it had,
    when its files are closed; not if the whole server stops meanwhile."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        tablet, replica = hosted.tablet, hosted.replica
        assert tablet is not None and replica is not None
        await flushed(manager, hosted, write_entry(2, [5, 6], "y", 1))
        newest = Superblock.load(disk, TABLET)
        assert newest.flush_opid > hosted.superblock.flush_opid
        hosted.unattended.clear()
        stopping = asyncio.create_task(manager._reopen(hosted, replica))
        for _ in range(20):  # it takes two turns of the loop
            await asyncio.sleep(0)
        assert hosted.replica is None
        settling = asyncio.create_task(CopyJobs(manager, lambda *_: None)._settle(hosted))  # type: ignore[arg-type]
        for _ in range(20):
            await manager.in_thread(lambda: None)
        meanwhile = Superblock.load(disk, TABLET), hosted.opening, hosted.replica
        manager.stopping = ends
        hosted.unattended.set()
        assert meanwhile == (newest, False, None) and newest == tablet.superblock
        await settling
        assert Superblock.load(disk, TABLET) == newest == hosted.superblock
        opened = hosted.replica
        assert opened is None if ends else opened is not None and opened.last_logged == OpId(1, 2)
        stopping.cancel()

    served(disk, look, fatal)
    assert fatal == []


def test_check_of_files_that_a_stop_cuts_off_writes_no_earlier_superblock() -> None:
    """Goal: an orderly stop leaves the newest superblock. Method: a replica has flushed since it was opened. The server
    stops while the thread of a check stands before the superblock, and while a flush of the replica still runs: the
    check's task is cancelled, the replica is halted, and the thread goes on."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    entered, released = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert released.wait(20)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        await flushed(manager, hosted, write_entry(2, [5, 6], "y", 1))
        newest = Superblock.load(disk, TABLET)
        assert newest.flush_opid > hosted.superblock.flush_opid
        checking = asyncio.create_task(FileChecker(manager, wait).check_all())
        assert await asyncio.to_thread(entered.wait, 20)
        checking.cancel()
        await asyncio.wait([checking])
        hosted.unattended.clear()
        halting = asyncio.create_task(manager.shutdowns.halt(hosted))
        for _ in range(20):  # it takes a few turns of the loop
            await asyncio.sleep(0)
        assert hosted.tablet is None
        released.set()
        await asyncio.to_thread(manager._open_pool.shutdown)  # it returns when the check's thread has ended
        meanwhile = Superblock.load(disk, TABLET)
        hosted.unattended.set()
        await halting
        assert meanwhile == Superblock.load(disk, TABLET) == newest == hosted.superblock

    served(disk, look, fatal)
    assert fatal == []


def test_stop_that_fails_takes_the_record_that_the_tablet_had() -> None:
    """Goal: what is written from memory after a stop that failed is the newest record. Method: a replica that has
    flushed since it was opened is stopped, and its log cannot be closed."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        await flushed(manager, hosted, write_entry(2, [5, 6], "y", 1))
        assert hosted.log is not None

        def cannot() -> None:
            raise Refused(Code.NO_SPACE, "no room")

        hosted.log.close = cannot  # type: ignore[method-assign]
        async with hosted.transition:
            with pytest.raises(Refused, match="no room"):
                await manager.shutdowns.halt(hosted)
        assert hosted.superblock == Superblock.load(disk, TABLET) and hosted.superblock.flush_opid == OpId(1, 2)

    served(disk, look, fatal)


def test_failed_replica_says_why_while_it_is_being_deleted() -> None:
    """TC-63. Goal: a FAILED replica always has the reason in its status. Method: a running replica finds a damaged
    block, and is to be deleted while a flush of it still runs: it is stopped, and waits; its status has the reason."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        manager.damaged(hosted, Corruption("a block cannot be read", block="data/x"))
        hosted.unattended.clear()
        deletion = asyncio.create_task(manager.delete(TABLET, None, "it is damaged", damaged_only=True))
        for _ in range(20):  # it takes two turns of the loop
            await asyncio.sleep(0)
        status, stopped = replica_status(hosted, manager.uuid, 10), hosted.replica is None
        hosted.unattended.set()
        await deletion
        assert stopped and status.phase == "FAILED" and "a block cannot be read" in status.error
        status = replica_status(hosted, manager.uuid, 10)
        assert status.phase == "STOPPED" and not status.error

    served(disk, look, fatal)
    assert fatal == []


def test_server_with_one_unreadable_block_serves_its_other_tablets() -> None:
    """TC-63: one tablet's trouble is not the server's. Method: EIO on one tablet's block at a start."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    disk.fail_on("pread", f"data/{TABLET}-*", "EIO", times=None)

    async def look(manager: TabletManager) -> None:
        assert "cannot be read" in manager.get(TABLET).error and not manager.get(TABLET).running
        assert manager.get(OTHER).running

    served(disk, look, fatal)
    assert fatal == []


def cut(data: bytes) -> bytes:
    return data.rstrip(b"\0")[:-20]


def flipped(byte_offset: int) -> Callable[[bytes], bytes]:
    """With another bit there, counted from the end of the content if below zero."""

    def flip(data: bytes) -> bytes:
        at = byte_offset if byte_offset >= 0 else len(data.rstrip(b"\0")) + byte_offset
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return flip


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("segment", "hurt", "why"),
    [
        (2, cut, ""),
        (2, flipped(-60), ""),
        (1, flipped(10), "header"),
        (1, flipped(-60), "later ones hold data"),
        (1, cut, "damaged=wal-000000001"),
    ],
    ids=["torn end", "damaged end", "header", "body", "cut in the middle"],
)
def test_log_that_is_damaged_before_its_end_costs_one_replica_and_at_its_end_none(
    segment: int, hurt: Callable[[bytes], bytes], why: str
) -> None:
    """TC-63, scenario 36. Goal: what a crash may leave is opened, and any other damage is one replica's end, not the
    server's. Method: two tablets, the log of one has a closed segment and an unfinished one of two group commits; the
    last of them is cut or flipped: that replica runs with all entries before it. Header or body of the closed one: it
    is offline and says why. The other tablet runs in each case."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    log, _ = Log.open(disk, f"wals/{TABLET}", TABLET)
    for index in (2, 3):
        log.append([write_entry(index, [index], "x", 1)], lambda _: None)
        log.drain()
    disk.restart()
    path = f"wals/{TABLET}/wal-00000000{segment}"
    disk.poke(path, hurt(disk.read(path)))

    async def look(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        assert (hosted.running, hosted.error == "") == (not why, not why) and why in hosted.error
        if not why:
            assert hosted.log is not None
            assert [e.opid.index for e in hosted.log.read(1, 3, 1 << 20)] == [1, 2]
        assert manager.get(OTHER).running

    served(disk, look, fatal)
    assert fatal == []


def test_server_whose_folder_of_blocks_cannot_be_listed_serves_who_has_none_there() -> None:
    """TC-63: the folder of blocks is its replicas' trouble, and no server's end. Method: at a start EIO on the folder's
    list and on one tablet's blocks; the other stands for one whose rows are all in its log."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    disk.fail_on("listdir", "data", "EIO", times=None)
    disk.fail_on("open", f"data/{TABLET}-*", "EIO", times=None)

    async def look(manager: TabletManager) -> None:
        assert "cannot be read" in manager.get(TABLET).error and not manager.get(TABLET).running
        assert manager.get(OTHER).running

    served(disk, look, fatal)
    assert fatal == [] and disk.fired["listdir", "EIO"]


def test_what_breaks_in_a_later_turn_of_the_loop_is_fatal() -> None:
    """Goal: a broken invariant in a callback of the loop ends the process. Method: a tablet without a leader refuses a
    write in a later iteration, and the caller's callback raises."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    broken = InvariantViolation("broken")

    def answered(_: Any) -> None:
        raise broken

    async def use(manager: TabletManager) -> None:
        group = RaftConfig(OpId(0, 0), (*ALONE.members, Member("c" * 32, (Address("127.0.0.1", 3),))))
        hosted = await manager.create(superblock(), group, campaign=False)
        assert hosted.replica is not None
        hosted.replica.write(EntryKind.WRITE, 1, b"", b"x", 0, answered)
        assert fatal == []
        await asyncio.sleep(0)

    served(disk, use, fatal)
    assert fatal == [broken]


def test_tablet_that_found_no_room_to_start_tries_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a full disk at a start is no end. Method: no room for a while when a tablet opens its log; no restart."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    disk.fail_on("open", f"wals/{TABLET}/*", "ENOSPC", times=3)

    async def look(manager: TabletManager) -> None:
        await asyncio.wait_for(manager._later.ended(), 20)
        assert manager.get(TABLET).running and manager.get(TABLET).error == "" and manager.get(OTHER).running

    served(disk, look, fatal)
    offline = [r.getMessage() for r in caplog.records if "stays offline" in r.getMessage()]
    assert fatal == [] and len(offline) == disk.fired["open", "ENOSPC"] == 3
    assert all(f"T {TABLET} " in line and "the disk is full" in line for line in offline)


def test_later_try_that_breaks_an_invariant_is_fatal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a broken invariant in a repeated opening ends the process. Method: no room at a start, and what breaks an
    invariant when the tablet tries again."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal, broken = new_disk(), [], InvariantViolation("broken")  # type: ignore[var-annotated]
    two_tablets(disk)
    disk.fail_on("open", f"wals/{TABLET}/*", "ENOSPC", times=1)
    start = Replica.start

    def breaks(replica: Replica, *args: Any, **named: Any) -> None:
        if replica.tablet_id == TABLET:
            raise broken
        start(replica, *args, **named)

    monkeypatch.setattr(Replica, "start", breaks)

    async def look(manager: TabletManager) -> None:
        await asyncio.wait_for(manager._later.ended(), 20)
        await asyncio.sleep(0)
        assert disk.fired["open", "ENOSPC"] == 1, "only the later try can have got as far as the invariant"
        assert fatal == [broken]

    served(disk, look, fatal)


def test_order_that_breaks_an_invariant_is_fatal_and_one_that_is_refused_is_not() -> None:
    """Goal: an order of a master costs no more than the same request of anybody else. Method: both ways to fail."""
    disk, fatal, broken = new_disk(), [], InvariantViolation("broken")  # type: ignore[var-annotated]

    async def use(manager: TabletManager) -> None:
        address = Address("127.0.0.1", 2)
        others: dict[str, Any] = {
            "process": 7, "identity": identity_of(manager.uuid), "unreachable": list,
            "found": lambda uuid, places: None, "resources": ResourceWatch(manager.uuid),
        }  # fmt: skip
        beats = Heartbeats(manager, Channels(), MemoryGuard(1 << 30, lambda: 0), GilWatch(), address, **others)
        for number, error in enumerate((Refused(Code.OVERLOADED, "full"), broken)):

            async def act(_: TabletManager, __: Any, error: Exception = error) -> None:
                raise error

            beats._order_tasks.start(beats._order(pb.CreateTabletRequest(dest_uuid=TARGET_UUID), act))
            await beats._order_tasks.ended()
            await asyncio.sleep(0)
            assert bool(fatal) is bool(number)
        assert set(fatal) == {broken}

    served(disk, use, fatal)


@pytest.mark.parametrize("state", [DataState.COPYING, DataState.DELETED])
def test_start_that_finds_no_room_for_a_tombstone_makes_it_later(
    monkeypatch: pytest.MonkeyPatch, state: DataState
) -> None:
    """TC-12. Goal: a disk that is full at a start keeps no tablet offline until the next one. Method: a copy, or a
    deletion, was cut off; no room for a while as the start goes on with it; without a restart it is a tombstone, which
    knows its log's end. The other tablet runs all the time."""
    monkeypatch.setattr(manager_module, "REOPEN_AFTER_S", 0.0)
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    for step in (DataState.DELETED, state):
        replace(Superblock.load(disk, TABLET), data_state=step, last_logged=OpId(1, 1)).save(disk)
    disk.fail_on("replace", f"*{TABLET}*", "ENOSPC", times=3)

    async def look(manager: TabletManager) -> None:
        await asyncio.wait_for(manager._later.ended(), 20)
        hosted = manager.get(TABLET)
        assert disk.fired["replace", "ENOSPC"] == 3
        assert (hosted.error, hosted.data_state, hosted.last_opid) == ("", DataState.DELETED, OpId(1, 1))
        assert hosted.cmeta is not None and manager.get(OTHER).running
        assert not disk.exists(f"wals/{TABLET}")

    served(disk, look, fatal)
    assert fatal == []


def test_tablet_that_is_being_created_is_not_copied_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-27: a replica is created or copied, never both at once. Method: the files of a new tablet are held up; the
    leader of the others meanwhile sends a heartbeat, which is not answered with "no such tablet", and asks for a copy,
    which is refused; the same creation asked for again ends when the first one does. A creation that fails leaves no
    trace of the tablet."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    begun, go, create_files = threading.Event(), threading.Event(), manager_module.create_files

    def slow(*args: Any) -> None:
        begun.set()
        assert go.wait(20)
        create_files(*args)

    def failing(*args: Any) -> None:
        raise Refused(Code.NO_SPACE, "no room")

    async def use(manager: TabletManager) -> None:
        jobs = CopyJobs(manager, lambda *args: pytest.fail("a source was asked"))  # type: ignore[arg-type]
        answers: list[Any] = []
        manager.reply = lambda tablet_id, message: answers.append(message)  # type: ignore[method-assign]
        monkeypatch.setattr(manager_module, "create_files", failing)
        with pytest.raises(Refused):
            await manager.create(replace(superblock(), tablet_id=OTHER), ALONE, campaign=False)
        assert OTHER not in manager.tablets

        monkeypatch.setattr(manager_module, "create_files", slow)
        first = asyncio.create_task(manager.create(superblock(), ALONE, campaign=False))
        await asyncio.get_running_loop().run_in_executor(None, begun.wait)
        again = asyncio.create_task(manager.create(superblock(), ALONE, campaign=False))
        heartbeat = AppendEntries(to_uuid=TARGET_UUID, from_uuid="x", term=1, prev=OpId(0, 0))
        manager.deliver(TABLET, heartbeat)
        for state in (DataState.DOES_NOT_EXIST, DataState.READY):
            with pytest.raises(Refused):
                wanted = CopyRequest(
                    dest_uuid=TARGET_UUID, from_uuid="x", tablet_id=TABLET, term=1, current_state=state
                )
                jobs.start(wanted, [])
        assert answers == [] and not again.done()
        go.set()
        assert (await first).running and (await again).running
        await jobs.stop()

    served(disk, use, fatal)
    assert fatal == []


def test_server_that_holds_as_many_tablets_as_it_may_takes_no_other() -> None:
    """CN-03: the limit on tablets holds at the server too. Method: room for one tablet: a second is neither created nor
    copied here, with an error that says what to do and leaves nothing behind; the first is created again without harm,
    and once it is a tombstone it takes no room."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    wanted = CopyRequest(
        dest_uuid=TARGET_UUID, from_uuid="x", tablet_id=OTHER, term=1, current_state=DataState.DOES_NOT_EXIST
    )

    async def use(manager: TabletManager) -> None:
        jobs = CopyJobs(manager, lambda *args: pytest.fail("a source was asked"))  # type: ignore[arg-type]
        manager.options = replace(manager.options, tablets_max=1)
        first = await manager.create(superblock(), ALONE, campaign=False)
        with pytest.raises(Refused, match=r"--tablets-max.*held=1, max=1") as refused:
            await manager.create(replace(superblock(), tablet_id=OTHER), ALONE, campaign=False)
        assert refused.value.code is Code.OVERLOADED
        with pytest.raises(Refused, match="--tablets-max"):
            jobs.start(wanted, [])
        assert list(manager.tablets) == [TABLET] and not disk.exists(f"tablet-meta/{OTHER}")
        assert await manager.create(superblock(), ALONE, campaign=False) is first
        await manager.delete(TABLET, None, "makes room")
        assert (await manager.create(replace(superblock(), tablet_id=OTHER), ALONE, campaign=False)).running
        await jobs.stop()

    served(disk, use, fatal)
    assert fatal == []
