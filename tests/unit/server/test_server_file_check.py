"""Each file of a server damaged, cut, emptied and missing, while it runs and while it does not."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta, path_of
from nyala.replica.consensus_metadata.view import SCHEMA
from nyala.replica.fs import (
    INSTANCE,
    MARK,
    RAFT_FOLDERS,
    has_mark,
    mark_folders,
    open_or_format,
    read_instance,
    repair_instance,
)
from nyala.replica.master import MasterOptions
from nyala.replica.master.heartbeats.tablet_servers import ASK_TIMEOUT_S
from nyala.replica.policy.in_place import ORDER_AGAIN_US
from nyala.replica.raft_driver import Phase
from nyala.replica.server import ServerOptions, check_durable_state
from nyala.replica.server.copies.copy_jobs import CopyJobs
from nyala.replica.server.maintenance.file_check import CHECK_EVERY_S, FileChecker
from nyala.replica.server.maintenance.maintenance import Maintenance
from nyala.replica.server.runtime.memory import MemoryGuard
from nyala.replica.server.tablets.manager import TabletManager
from nyala.replica.tablet import Superblock, superblock_path
from nyala.replica.tablet_copy import CopyRequest, delete_replica, lost_tablets, parse_superblock, wal_folder
from nyala.replica.tools.fs_check import check_directory, remove_orphans
from nyala.replica.types import ZERO_OPID, Code, Corruption, DataState, DiskFailure, OpId, RaftConfig, Refused
from nyala.replica.wal import Log
from nyala.schemas import frame, unframe
from tests.harness.copies import CONFIG, SOURCE_UUID, TABLET, TARGET_UUID, NoBytes, TestClock, leading_source, new_disk
from tests.harness.later_format import later_version
from tests.harness.server_pair import Pair, run_pair, until
from tests.harness.sim_disk import SimDisk
from tests.unit.server.test_server_open import OTHER, served, two_tablets

Hurt = Callable[[SimDisk, str], None]


def flipped(disk: SimDisk, path: str) -> None:
    data = disk.read(path)
    at = len(data) // 2
    disk.poke(path, data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])


def head_flipped(disk: SimDisk, path: str) -> None:
    """One bit of the format version, if the file has one."""
    data = bytearray(disk.read(path))
    data[4] ^= 0x02
    disk.poke(path, bytes(data))


def cut(disk: SimDisk, path: str) -> None:
    disk.poke(path, disk.read(path)[: len(disk.read(path)) // 2])


def emptied(disk: SimDisk, path: str) -> None:
    disk.poke(path, b"")


def missing(disk: SimDisk, path: str) -> None:
    disk.remove(path)


def older(disk: SimDisk, path: str) -> None:
    """As a file from a backup, or of a disk that lost the last writes: it reads well."""
    if path == superblock_path(TABLET):
        found = Superblock.load(disk, TABLET)
        disk.poke(path, replace(found, blocks=(), next_block=0, flush_opid=ZERO_OPID, flush_time=0).encode())
    else:
        disk.poke(path, frame(SCHEMA, unframe(SCHEMA, disk.read(path)) | {"current_term": 0, "voted_for": ""}))


HURTS: list[Hurt] = [flipped, head_flipped, cut, emptied, missing]
RUNNING: list[Hurt] = [*HURTS, older]
"""Under a running server, whose memory has the content in force. A stopped one cannot know that a file is older."""
ROOTS = {"superblock": superblock_path(TABLET), "consensus metadata": path_of(TABLET)}
LARGE = {
    "block": f"data/{TABLET}-000000.arrow",
    "sidecar": f"data/{TABLET}-000000.idx",
    "segment": f"wals/{TABLET}/wal-000000001",
}
RECORD = {"record of the log's end": f"wals/{TABLET}/.newest-segment"}


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", RUNNING, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("file", ROOTS)
def test_small_file_that_is_lost_under_a_running_server_is_written_again(
    file: str, hurt: Hurt, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a running server writes a lost, damaged or earlier small file again from memory. Method: damage each
    file under a running replica. The next check writes it again with the same content and logs it; the replica runs on,
    and the next start finds everything. If nothing is wrong, nothing is written."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def use(manager: TabletManager) -> None:
        file_checker, hosted = FileChecker(manager), manager.get(TABLET)
        before = disk.read(superblock_path(TABLET))
        await file_checker.check_all()
        assert file_checker.repaired == 0
        hurt(disk, ROOTS[file])
        await file_checker.check_all()
        assert file_checker.repaired <= 1 and disk.read(superblock_path(TABLET)) == before
        assert hosted.cmeta is not None and ConsensusMeta.load(disk, TABLET).encode() == hosted.cmeta.encode()
        assert manager.get(TABLET).running and manager.get(OTHER).running
        if file == "superblock":  # an election may write the metadata first
            assert file_checker.repaired == 1
            assert f"the file of its {file} was damaged, missing or an earlier one" in caplog.text

    served(disk, use, fatal)
    disk.restart()

    async def again(manager: TabletManager) -> None:
        assert manager.get(TABLET).running

    served(disk, again, fatal)
    assert fatal == []


@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
def test_record_of_the_logs_end_that_is_lost_under_a_running_server_is_written_again(
    hurt: Hurt, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a replica whose log is whole is not lost at the next start because of the small record beside it.
    Method: damage the record of a running replica. The next check writes it again and logs it, the replica runs on; the
    log as a kill would leave it then opens with every entry. If nothing is wrong, nothing is written."""
    (path,) = RECORD.values()
    killed = new_disk()

    async def scenario(pair: Pair) -> None:
        disk, file_checker = pair.leader.disk, FileChecker(pair.leader.manager)
        await pair.put(1)
        before = disk.read(path)
        await file_checker.check_all()
        assert file_checker.repaired == 0
        hurt(disk, path)
        await file_checker.check_all()
        assert file_checker.repaired == 1 and disk.read(path) == before and pair.leader.serving
        assert f"the file of its {next(iter(RECORD))} was damaged, missing or an earlier one" in caplog.text
        await pair.put(2)
        assert pair.leader.hosted.log is not None
        killed.mkdir(wal_folder(TABLET))
        for name in [path, *(file.path for file in pair.leader.hosted.log.files())]:
            killed.poke(name, disk.read(name))

    run_pair(scenario)
    log, replay = Log.open(killed, wal_folder(TABLET), TABLET)
    assert log.last.index >= 3 and replay.withheld is None
    log.close()


@pytest.mark.parametrize("still_there", [False, True], ids=["gone", "empty"])
def test_folder_that_is_lost_under_a_running_server_is_not_made_anew_with_one_file(
    still_there: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a lost disk is not hidden by new files, because the next start must refuse it. Method: with two
    running tablets, the folder of superblocks is removed, or is empty as an unmounted one. The check writes nothing,
    saving a superblock or metadata creates no folder, and the next start refuses."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    instance = open_or_format(disk, TestClock())
    two_tablets(disk)

    async def use(manager: TabletManager) -> None:
        file_checker, tablet = FileChecker(manager), manager.get(TABLET).tablet
        disk.remove_tree("tablet-meta")
        if still_there:
            disk.mkdir("tablet-meta")
        await file_checker.check_all()
        assert tablet is not None and (still_there or not tablet.repair_superblock())
        if not still_there:
            with pytest.raises(DiskFailure):
                tablet.superblock.save(disk)
        assert (
            file_checker.repaired == 0
            and disk.exists("tablet-meta") == still_there
            and disk.listdir("tablet-meta") == []
        )
        assert "nothing is written" in caplog.text
        with pytest.raises(Corruption, match="tablet-meta"):
            check_durable_state(disk, instance)

    served(disk, use, fatal)
    assert fatal == []
    kept = ConsensusMeta.load(disk, TABLET)
    disk.remove_tree("consensus-meta")
    assert not kept.repair() and not disk.exists("consensus-meta")


def test_file_is_not_written_into_a_folder_that_is_not_the_one_the_server_began_with() -> None:
    """IN-21. Goal: the server writes no file into a folder that was replaced while it runs, for example by another
    disk. Method: the watch of folders tells of another folder; the superblock that is missing in it stays missing, and
    the process is told to end."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    taken = DiskFailure("a folder was taken away under the server", path="tablet-meta")

    async def use(manager: TabletManager) -> None:
        def look() -> None:
            raise taken

        missing(disk, ROOTS["superblock"])
        with pytest.raises(DiskFailure):
            await Maintenance(manager, MemoryGuard(1 << 40, lambda: 0), check_folders=look).file_checker.check_all()
        assert not disk.exists(ROOTS["superblock"])

    served(disk, use, fatal)
    assert fatal == [taken]


@pytest.mark.a_third
@pytest.mark.parametrize("end", ["refused", "failed", "full disk"])
@pytest.mark.parametrize("hurt", [flipped, missing, older], ids=lambda hurt: hurt.__name__)
def test_copy_over_a_running_replica_whose_superblock_is_lost_goes_by_memory(hurt: Hurt, end: str) -> None:
    """IN-21. Goal: a server whose superblock file is lost does not take its running replica for one that never existed.
    Method: damage the superblock of a running replica; its leader orders a copy before the next check. If the source
    refuses, the replica runs on and its superblock is written again. If the copy fails later, or the disk has no room
    once the tombstone is saved, the tombstone stays, and has the last OpId that was acknowledged."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    source = leading_source(flushed=(([1, 2], "a"), ([3], "b"), ([4], "c")), logged=())
    both = tuple(replace(m, votes=True, promote=False) for m in CONFIG.members)
    source.replica.cmeta.save_config(RaftConfig(OpId(6, 1), both))
    two_tablets(disk)
    source.is_leader = end != "refused"

    async def use(manager: TabletManager) -> None:
        hosted = manager.get(TABLET)
        hurt(disk, ROOTS["superblock"])
        if end == "full disk":
            disk.fail_on("replace", "quarantine/*/cmeta", "ENOSPC")
        jobs = CopyJobs(manager, lambda uuid, addresses: NoBytes(source.sessions, source.capture))
        state, last, generation = hosted.data_state, hosted.last_opid, hosted.superblock.wal_generation
        jobs.start(
            CopyRequest(dest_uuid=TARGET_UUID, from_uuid=SOURCE_UUID, tablet_id=TABLET, term=6, current_state=state), []
        )
        (job,) = jobs.running()
        await asyncio.wait_for(job.ended.wait(), 20)
        await jobs.stop()
        assert manager.get(TABLET) is hosted and hosted.running is (end == "refused")
        found = Superblock.load(disk, TABLET)
        if end == "refused":
            assert (found.data_state, len(found.blocks)) == (DataState.READY, 1)
        else:
            assert (found.data_state, found.last_logged, found.last_logged_known) == (DataState.DELETED, last, True)
            assert found == hosted.superblock and found.wal_generation == generation + (end == "failed")
            assert end == "full disk" or disk.listdir(found.quarantine) == ["cmeta", "superblock", "wal"]

    served(disk, use, fatal)
    assert fatal == []
    source.replica.close()


async def flushes(pair: Pair) -> None:
    assert await pair.leader.maintenance.flush(pair.leader.hosted)


async def merges(pair: Pair) -> None:
    assert await pair.leader.maintenance.compact(pair.leader.hosted)


async def opens_again(pair: Pair) -> None:
    """As after a want of resources."""
    hosted, manager = pair.leader.hosted, pair.leader.manager
    async with hosted.transition:
        await manager.shutdowns.halt(hosted)
        await manager.open(hosted)


async def fails_and_is_checked(pair: Pair) -> None:
    """For another reason than a file, so that no copy heals it."""
    hosted = pair.leader.hosted
    assert hosted.replica is not None
    hosted.replica.fail(RuntimeError("a defect"))
    await FileChecker(pair.leader.manager).check_all()
    assert not hosted.running and not hosted.damaged


async def ends(pair: Pair) -> None:
    await pair.leader.manager.delete(TABLET, None, "it leaves")


WRITERS = [flushes, merges, opens_again, fails_and_is_checked, ends]


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", RUNNING, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("work", WRITERS, ids=lambda work: work.__name__)
def test_work_over_a_damaged_superblock_goes_by_memory(
    work: Callable[[Pair], Coroutine[Any, Any, None]], hurt: Hurt, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: no work on a replica loses its tablet because the superblock's file was lost under the running
    server, also if there is no other replica. Method: the only replica of a tablet has four blocks and a row that is
    not flushed; damage its superblock, then flush, merge, open it again, fail it for another reason, or delete it. The
    file has the record of memory again, and the log says so; the next start serves every flushed row, or keeps the
    tombstone."""

    async def scenario(pair: Pair) -> None:
        disk, hosted = pair.leader.disk, pair.leader.hosted
        for key in range(4):
            await pair.put(key)
            await pair.leader.maintenance.flush(hosted)
        await pair.put(4)
        hurt(disk, ROOTS["superblock"])
        await work(pair)
        assert hosted.running is (work not in (ends, fails_and_is_checked))
        in_force = hosted.tablet.superblock if hosted.tablet is not None else hosted.superblock
        assert Superblock.load(disk, TABLET) == in_force
        assert f"T {TABLET} the record in memory replaces its file" in caplog.text
        await pair.restart_leader()
        hosted = pair.leader.hosted
        if work is ends:
            assert hosted.data_state is DataState.DELETED and hosted.superblock.last_logged_known
            assert len(parse_superblock(disk.read(f"{in_force.quarantine}/superblock"), "it").blocks) == 4
        else:
            assert hosted.running and pair.leader.rows()[:4] == [0, 1, 2, 3]

    run_pair(scenario)


@pytest.mark.parametrize("hurt", RUNNING, ids=lambda hurt: hurt.__name__)
def test_replica_that_is_opened_again_keeps_the_vote_that_memory_has(hurt: Hurt) -> None:
    """Goal: no replica votes twice in a term because its consensus metadata is damaged or an earlier one under the
    running server. Method: the only replica of a tablet has voted for another server in a later term; damage the file,
    and open the replica again. It has term and vote, in memory and in the file."""

    async def scenario(pair: Pair) -> None:
        disk, hosted = pair.leader.disk, pair.leader.hosted
        assert hosted.cmeta is not None
        voted = hosted.cmeta.term + 5, "c" * 32
        async with hosted.transition:
            await pair.leader.manager.shutdowns.halt(hosted)
            hosted.cmeta.save_hard_state(*voted)
            hurt(disk, path_of(TABLET))
            await pair.leader.manager.open(hosted)
        assert (hosted.cmeta.term, hosted.cmeta.voted_for) == voted and hosted.running
        found = ConsensusMeta.load(disk, TABLET)
        assert (found.term, found.voted_for) == voted

    run_pair(scenario)


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", [cut, emptied, missing], ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("file", LARGE)
def test_large_file_that_is_lost_under_a_running_server_fails_its_replica_at_the_next_look(
    file: str, hurt: Hurt
) -> None:
    """IN-21. Goal: the server finds a lost block or segment within a minute, not at the next restart. Method: damage a
    block, its sidecar or a log segment under a running replica: it becomes FAILED and damaged, so that it is copied;
    the other tablet runs on."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def use(manager: TabletManager) -> None:
        file_checker = FileChecker(manager)
        await file_checker.check_all()
        assert manager.get(TABLET).running
        hurt(disk, LARGE[file])
        await file_checker.check_all()
        hosted = manager.get(TABLET)
        assert hosted.replica is not None and hosted.replica.phase is Phase.FAILED and hosted.damaged
        assert LARGE[file] in hosted.replica.error and manager.get(OTHER).running

    served(disk, use, fatal)
    assert fatal == []


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("file", [*ROOTS, *LARGE, *RECORD])
def test_file_that_is_lost_while_the_server_is_stopped_leaves_a_replica_that_a_copy_replaces(
    file: str, hurt: Hurt, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: whichever file of a replica is damaged while the server is stopped, the replica can be repaired.
    Method: hurt each file of one of two tablets between two lives. A replica that cannot start says which file, is
    damaged, and the masters' order makes it a tombstone that does not vote; without a superblock the tablet is not
    here, its leader copies it, and the log says what else can be done."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)
    path = {**ROOTS, **LARGE, **RECORD}[file]
    hurt(disk, path)

    async def use(manager: TabletManager) -> None:
        assert manager.get(OTHER).running
        if file == "superblock" and hurt is missing:
            with pytest.raises(Refused) as refused:
                manager.get(TABLET)
            assert refused.value.code is Code.TABLET_NOT_FOUND
            assert lost_tablets(disk) == [TABLET]
            assert "superblock is missing" in caplog.text and "nyala unsafe recover" in caplog.text
            return
        hosted = manager.get(TABLET)
        if file == "segment" and hosted.running:  # the end of the log: its vote may be withheld, its leader heals it
            assert hurt in (flipped, cut)
            return
        if file in RECORD and hurt is missing:  # as of an earlier build or a copy
            assert hosted.running and disk.exists(path)
            return
        assert not hosted.running and hosted.damaged and hosted.error
        await manager.delete(TABLET, None, "the masters want it whole", damaged_only=True)
        assert hosted.data_state is DataState.DELETED and not hosted.superblock.last_logged_known
        assert Superblock.load(disk, TABLET).next_block >= 1

    served(disk, use, fatal)
    assert fatal == []


@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("folder", RAFT_FOLDERS)
def test_only_tablets_last_file_that_is_missing_at_a_start_concerns_that_tablet_alone(
    folder: str, earlier: bool
) -> None:
    """IN-21. Goal: a server whose only tablet lost its superblock, metadata or log starts, and the tablet can be
    copied. An empty mount point is refused all the same. Method: a server with one tablet; an earlier build's directory
    gets its marks at a start. Each folder loses its last file: the server starts, the tablet counts as absent or is
    damaged. Without the mark, or with another server's, the start is refused, and the error has the steps."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    instance = open_or_format(disk, TestClock())
    two_tablets(disk, [TABLET])
    mark = f"{folder}/{MARK}"
    if earlier:
        disk.remove(mark)
        assert open_or_format(disk, TestClock()) == instance
    disk.remove_tree(f"{folder}/{TABLET}") if folder == "wals" else disk.remove(f"{folder}/{TABLET}")
    check_durable_state(disk, open_or_format(disk, TestClock()))

    async def use(manager: TabletManager) -> None:
        if folder == "tablet-meta":
            assert TABLET not in manager.tablets and lost_tablets(disk) == [TABLET] and TABLET in manager.lost
        else:
            assert manager.get(TABLET).damaged and not manager.get(TABLET).running

    served(disk, use, fatal)
    assert fatal == []
    for other in (b"", b"e" * 32, None):
        disk.remove(mark) if other is None else disk.poke(mark, other)
        with pytest.raises(Corruption, match=rf"mount its disk.*from a backup.*nyala fs wipe.*lost={folder}"):
            check_durable_state(disk, open_or_format(disk, TestClock()))


def _as_of_an_earlier_build(disk: SimDisk) -> None:
    for mark in (MARK, *(f"{folder}/{MARK}" for folder in RAFT_FOLDERS)):
        disk.remove(mark)


@pytest.mark.a_third
@pytest.mark.parametrize("all_had_marks", [True, False], ids=["marked", "earlier build"])
@pytest.mark.parametrize("lost", [*RAFT_FOLDERS, "all"])
@pytest.mark.parametrize("left", ["tablet", "tombstone", "nothing"])
def test_folders_that_are_empty_mount_points_keep_a_server_down(left: str, lost: str, all_had_marks: bool) -> None:
    """IN-21, TC-72. Goal: no server starts under its uuid without the terms and votes that it gave. Method: a server
    with a running tablet, a tombstone, or no tablet; one folder of promises, or all, become empty, without a mark. With
    the note that all had marks, each is refused. A directory of an earlier build has no note: refused is what its other
    files show; a start on the rest notes the marks. `fs check` says the same as the start, and removes no block."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    instance = open_or_format(disk, TestClock())
    if left != "nothing":
        two_tablets(disk, [TABLET])
    if left == "tombstone":
        delete_replica(disk, Superblock.load(disk, TABLET), OpId(1, 1), stop=lambda: None)
        assert Superblock.load(disk, TABLET).data_state is DataState.DELETED
    if not all_had_marks:
        _as_of_an_earlier_build(disk)
    blocks = disk.listdir("data")
    for folder in RAFT_FOLDERS if lost == "all" else [lost]:
        disk.remove_tree(folder)
        disk.mkdir(folder)
    shown = {("tablet", "all"), *(("tablet", folder) for folder in RAFT_FOLDERS)}
    shown |= {("tombstone", "consensus-meta"), ("tombstone", "all")}
    if all_had_marks or (left, lost) in shown:
        with pytest.raises(Corruption, match="mount its disk again"):
            check_durable_state(disk, open_or_format(disk, TestClock()))
        assert not check_directory(disk).healthy and not check_directory(disk).orphans
        with pytest.raises(Refused, match="mount its disk again"):
            remove_orphans(disk)
        assert disk.listdir("data") == blocks
        return
    assert check_directory(disk).instance == instance
    check_durable_state(disk, open_or_format(disk, TestClock()))
    assert not has_mark(disk, "", instance)
    mark_folders(disk, instance)
    for folder in RAFT_FOLDERS:
        disk.remove_tree(folder)
        disk.mkdir(folder)
        with pytest.raises(Corruption, match="mount its disk again"):
            open_or_format(disk, TestClock())
        mark_folders(disk, instance)
    assert fatal == []


def test_folder_of_another_server_keeps_a_server_down() -> None:
    """IN-21. Goal: two servers whose folders were exchanged start neither, and nothing is changed. Method: a folder
    with files gets another server's mark: the error has both uuids and the mark's path, and `fs check` says it too. A
    mark that is cut short is no other server's and is written again."""
    for folder in RAFT_FOLDERS:
        disk = new_disk()
        instance = open_or_format(disk, TestClock())
        two_tablets(disk, [TABLET])
        mark = f"{folder}/{MARK}"
        disk.poke(mark, b"e" * 32)
        with pytest.raises(Corruption, match=rf"another server.*{mark}.*{'e' * 32}.*{instance.uuid}"):
            open_or_format(disk, TestClock())
        assert disk.read(mark) == b"e" * 32 and not check_directory(disk).healthy
        disk.poke(mark, b"e")
        assert open_or_format(disk, TestClock()) == instance and has_mark(disk, folder, instance)


def test_start_without_a_superblock_leaves_the_blocks_for_the_one_that_is_put_back() -> None:
    """IN-21. Goal: after a start without a superblock, an operator can still put the superblock back. Method: a
    superblock is missing at a start and is put back before the next: the first start, and a repair, remove no block of
    that tablet, though one of a tablet that never was here; the second serves every row."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    open_or_format(disk, TestClock())
    two_tablets(disk)
    backup = disk.read(superblock_path(TABLET))
    missing(disk, superblock_path(TABLET))
    disk.poke("data/nobodys-000000.arrow", b"x")

    async def without(manager: TabletManager) -> None:
        assert TABLET not in manager.tablets and manager.get(OTHER).running
        assert disk.exists(LARGE["block"]) and disk.exists(LARGE["sidecar"])
        assert not disk.exists("data/nobodys-000000.arrow")

    served(disk, without, fatal)
    assert remove_orphans(disk) == []
    disk.replace(superblock_path(TABLET), backup)

    async def again(manager: TabletManager) -> None:
        tablet = manager.get(TABLET).tablet
        assert tablet is not None
        assert sorted(key for found in tablet.scan() for key in found.column("k").to_pylist()) == [1, 2]

    served(disk, again, fatal)
    assert fatal == []


@pytest.mark.deep
def test_replica_without_a_superblock_is_copied_back_by_its_leader_with_its_term_and_vote() -> None:
    """IN-21. Goal: if a superblock is removed, the leader copies the tablet again, and the server keeps its term and
    vote. Method: the other server of two is stopped, its superblock removed beside log, block and metadata; as it
    starts again, the leader's order copies the tablet to it; its promises are not forgotten."""

    async def scenario(pair: Pair) -> None:
        await pair.put(1)
        tablet = pair.leader.hosted.tablet
        assert tablet is not None
        tablet.flush()
        await pair.put(2)
        await pair.add_other()
        await pair.voting()
        await pair.other.stop()
        kept = ConsensusMeta.load(pair.other.disk, TABLET)
        pair.other.disk.remove(superblock_path(TABLET))
        assert pair.other.disk.listdir(f"wals/{TABLET}")
        asked = pair.request("StartTabletCopy")  # the leader knows where the other server listened before
        await pair.restart_other()
        reply = await pair.other.copies.StartTabletCopy(asked, None)
        assert not reply.error.code, reply
        await until(lambda: pair.other.has_tablet and pair.other.serving, "the other server serves the tablet again")
        await until(lambda: pair.other.rows() == [1, 2], "every row is there")
        again = ConsensusMeta.load(pair.other.disk, TABLET)
        assert (again.term, again.voted_for, again.vote_floor_term) == (kept.term, kept.voted_for, kept.term)

    run_pair(scenario)


@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
def test_instance_file_is_written_again_by_a_running_server_and_refuses_a_start_with_the_command(hurt: Hurt) -> None:
    """IN-21. Goal: a running server writes its lost identity file again, and a start without that file is refused with
    the command that repairs it. Method: damage the file; the running server writes it again; a start without it
    refuses."""
    disk = new_disk()
    instance = open_or_format(disk, TestClock())
    assert not repair_instance(disk, instance)
    hurt(disk, INSTANCE)
    assert repair_instance(disk, instance) and read_instance(disk) == instance
    disk.poke("tablet-meta/t", b"x")
    hurt(disk, INSTANCE)
    with pytest.raises(Corruption, match="nyala fs wipe"):
        open_or_format(disk, TestClock())


def test_identity_and_marks_of_a_running_server_that_differ_are_written_again() -> None:
    """IN-21. Goal: a readable identity of an earlier time, which another cluster or an earlier build would take over,
    does not stay under a running server; nor does a mark with a flipped bit, with which the next start would be
    refused. Method: for each field another value on the disk; each bit of each mark, and an emptied one. A mark that is
    gone is not made, and a later build's identity is left alone; on a full disk the next call writes."""
    disk = new_disk()
    instance = replace(open_or_format(disk, TestClock()), cluster_id="c" * 32, inherited=True, takeover=3)
    assert repair_instance(disk, instance) == ["instance file"] and not repair_instance(disk, instance)
    whole = disk.read(INSTANCE)
    others = {"uuid": "d" * 32, "kind": "MASTER", "cluster_id": "", "created_us": 1, "inherited": False, "takeover": 2}
    for name, value in others.items():
        repair_instance(disk, replace(instance, **{name: value}))  # type: ignore[arg-type]
        assert disk.read(INSTANCE) != whole, name
        assert repair_instance(disk, instance)[0] == "instance file" and disk.read(INSTANCE) == whole, name
    for mark in (MARK, *(f"{folder}/{MARK}" for folder in RAFT_FOLDERS)):
        held = disk.read(mark)
        for bit in range(-1, 8 * len(held)):
            hurt = bytearray(held if bit >= 0 else b"")
            if bit >= 0:
                hurt[bit // 8] ^= 1 << bit % 8
            disk.poke(mark, bytes(hurt))
            assert repair_instance(disk, instance) == [f"mark {mark}"] and disk.read(mark) == held
        disk.poke(mark, b"x")
        disk.fail_on("read", mark, "EIO")
        assert repair_instance(disk, instance) == [f"mark {mark}"] and disk.read(mark) == held
        disk.remove(mark)
        assert not repair_instance(disk, instance) and not disk.exists(mark)
        disk.poke(mark, held)
    later = later_version(whole)
    disk.poke(INSTANCE, later)
    assert not repair_instance(disk, instance) and disk.read(INSTANCE) == later
    disk.poke(INSTANCE, b"x")
    disk.fail_on("replace", INSTANCE, "ENOSPC")
    assert not repair_instance(disk, instance) and repair_instance(disk, instance) == ["instance file"]


def test_files_of_a_server_that_wants_for_something_are_looked_at_later() -> None:
    """IN-21, IN-30. Goal: a file that cannot be opened for want of a resource is not taken for lost. Method: no file
    can be opened during a check."""
    disk, fatal = new_disk(), []  # type: ignore[var-annotated]
    two_tablets(disk)

    async def use(manager: TabletManager) -> None:
        file_checker = FileChecker(manager)
        for operation in ("read", "stat", "size"):
            disk.fail_on(operation, "*", "EMFILE", times=None)
        await file_checker.check_all()
        disk.heal()
        await asyncio.sleep(0)
        assert file_checker.repaired == 0 and manager.get(TABLET).running and manager.get(OTHER).running

    served(disk, use, fatal)
    assert fatal == []


def test_page_for_operators_has_each_file_and_the_times_of_this_code() -> None:
    """IN-21. Goal: the table for operators is complete, and its times are those of the code. Method: the table of the
    page has each file, damaged, emptied and missing, of a running and of a stopped server, once, and each small one of
    a running server of an earlier time; its seconds are the constants."""
    page = (Path(__file__).resolve().parents[3] / "docs/operate/repair.md").read_text()
    page = page.partition("### When a file of a master is damaged")[0]
    is_row = re.compile(r"\| [a-z' ]+ \| [a-z, ]+ \| (running|stopped) \|").match
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if is_row(line)]
    said = [(file, hurt, server) for file, hurts, server, *_ in rows for hurt in hurts.split(", ")]
    files = ["superblock", "consensus metadata", "block", "sidecar", "log segment", *RECORD, "instance file"]
    cases = itertools.product(files, ("damaged", "emptied", "missing"), ("running", "stopped"))
    earlier = [(file, "earlier", "running") for file in (*ROOTS, *RECORD, "instance file")]
    assert sorted(said) == sorted([*cases, *earlier])
    options = ServerOptions(root="x")
    times = {"running": {f"{CHECK_EVERY_S:.0f} s", f"{options.scrub_interval_s:,.0f} s"}, "stopped": {"the start"}}
    assert all(within in times[server] for _, _, server, _, within, _ in rows)
    to_copy_ms = 2 * options.heartbeat_ms + MasterOptions(root="x").policy_ms + 1000 * ASK_TIMEOUT_S
    assert (
        f"The copy begins at most {to_copy_ms / 1000:.0f} s" in " ".join(page.split())
        and f"at {options.scrub_mb_per_s} MB/s at most" in page
    )
    assert f"once in {ORDER_AGAIN_US // 1_000_000} s" in page
    assert all(f"`{folder}`" in page for folder in RAFT_FOLDERS) and f"`{MARK}`" in page
