"""Each file of a master damaged, cut, emptied and missing, while it runs and while it does not."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from nyala.replica.consensus_metadata import ConsensusMeta
from nyala.replica.fs import (
    MASTER,
    RAFT_FOLDERS,
    FolderWatch,
    Instance,
    RealDisk,
    join_cluster,
    open_or_format,
    read_instance,
    repair_instance,
)
from nyala.replica.master.catalog.catalog import CATALOG_ID
from nyala.replica.master.group import file_check
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.master.group.file_check import CHECK_EVERY_S, READ_BYTES, WAY_ON, FileChecker
from nyala.replica.master.options import MasterOptions
from nyala.replica.master.process import MasterProcess
from nyala.replica.tablet import Superblock
from nyala.replica.types import (
    Address,
    Disk,
    DiskFailure,
    Member,
    OpId,
    RaftConfig,
    Refused,
    ReplicaError,
    SystemClock,
)
from nyala.schemas import frame, unframe
from tests.harness.server_pair import until
from tests.unit.master.test_master_group import put

Hurt = Callable[[Path], None]
LOG = f"wals/{CATALOG_ID}"
SUPERBLOCK, METADATA, INSTANCE = f"tablet-meta/{CATALOG_ID}", f"consensus-meta/{CATALOG_ID}", "instance"
SEGMENTS, RECORD = (f"{LOG}/wal-000000001", f"{LOG}/wal-000000002"), f"{LOG}/.newest-segment"
CLUSTER = "c" * 32


def flipped(path: Path) -> None:
    data = path.read_bytes()
    at = len(data) // 2
    path.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])


def cut(path: Path) -> None:
    """Into what was written: the rest of an open segment is not."""
    path.write_bytes(path.read_bytes()[: min(300, path.stat().st_size // 2)])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def missing(path: Path) -> None:
    path.unlink()


HURTS: list[Hurt] = [flipped, cut, emptied, missing]


def with_keeper(root: Path, use: Callable[[CatalogGroup, FileChecker], Awaitable[None]]) -> None:
    """A single master's group under `root`, which leads, and what looks at its files; no clock but Raft's runs."""

    async def life() -> None:
        clock, disk = SystemClock(), RealDisk(root)
        instance = join_cluster(disk, open_or_format(disk, clock, kind=MASTER), CLUSTER)
        alone = RaftConfig(OpId(0, 0), (Member(instance.uuid, (Address("h", 1),)),))
        fatal: list[BaseException] = []
        group = CatalogGroup(disk, clock, instance.uuid, alone, send=lambda messages: None, on_fatal=fatal.append)
        await group.start()

        async def tick() -> None:
            while True:
                await asyncio.sleep(0.002)
                group.tick()

        ticking = asyncio.create_task(tick())
        try:
            await asyncio.wait_for(group.led.wait(), 20)
            await use(group, FileChecker(disk, instance, group, FolderWatch(disk, RAFT_FOLDERS).check))
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
            await group.stop()
        assert fatal == []

    asyncio.run(life())


async def two_segments(group: CatalogGroup) -> None:
    """The first closed; behind the flush are changes in both."""
    await group.change(lambda: put("k/1", 1))
    await group.flushed()
    await group.change(lambda: put("k/2", 2))
    await asyncio.to_thread(group.log.roll)
    await group.change(lambda: put("k/3", 3))
    assert [info.closed for info in group.log.segments()] == [True, False]


async def whole(group: CatalogGroup, _: FileChecker) -> None:
    await group.confirm()
    assert [key for key, _ in group.catalog.items("k/")] == ["1", "2", "3"]


def test_master_notes_the_highest_feature_level_of_its_cluster(tmp_path: Path) -> None:
    """IN-93. Goal: once the level is finalized, a build that does not know it cannot start on a master's directory.
    Method: a running master is told a level, and then a lower one; its directory has the first."""

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        await keeper.belong(CLUSTER, 2)
        await keeper.belong(CLUSTER, 1)
        assert keeper.instance.feature_level == 2
        with pytest.raises(Refused, match="feature-level-2"):  # for this build knows no level above 1
            read_instance(RealDisk(tmp_path))

    with_keeper(tmp_path, use)


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("file", [SUPERBLOCK, METADATA, INSTANCE, RECORD])
def test_small_file_that_is_lost_under_a_running_master_is_written_again(
    file: str, hurt: Hurt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a running master writes a lost or damaged small file again from memory. Method: damage each file
    under a running master. The next check writes it again with the same content and logs it, the master goes on, and
    the next start has everything. If nothing is wrong, nothing is written."""

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        await two_segments(group)
        await keeper.check_all()
        before = (tmp_path / file).read_bytes()
        assert keeper.repaired == 0 and group.trouble == "" and caplog.text.count("written again") == 0
        hurt(tmp_path / file)
        await keeper.check_all()
        assert keeper.repaired == 1 and (tmp_path / file).read_bytes() == before and "nothing is lost" in caplog.text
        assert ConsensusMeta.load(RealDisk(tmp_path), CATALOG_ID).encode() == group.cmeta.encode()
        assert read_instance(RealDisk(tmp_path)) == keeper.instance and keeper.instance.cluster_id == CLUSTER
        await group.confirm()

    with_keeper(tmp_path, use)
    with_keeper(tmp_path, whole)


@pytest.mark.parametrize("file", [SUPERBLOCK, METADATA, INSTANCE, RECORD])
def test_small_file_of_an_earlier_time_under_a_running_master_is_written_again(file: str, tmp_path: Path) -> None:
    """IN-21. Goal: a running master replaces a small file that reads well and is of an earlier time. Method: each file
    as it was before two changes, the identity before the cluster was joined, the metadata before the election; the next
    check writes it again."""
    earlier = {"instance": {"cluster_id": ""}, "consensus_metadata": {"current_term": 0, "voted_for": ""}}

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        await group.change(lambda: put("k/1", 1))
        data = (tmp_path / file).read_bytes()
        for schema in earlier if file in (METADATA, INSTANCE) else ():
            with suppress(ValueError):
                data = frame(schema, unframe(schema, data) | earlier[schema])
        await two_segments(group)
        before = (tmp_path / file).read_bytes()
        assert data != before
        (tmp_path / file).write_bytes(data)
        await keeper.check_all()
        assert keeper.repaired == 1 and (tmp_path / file).read_bytes() == before

    with_keeper(tmp_path, use)
    with_keeper(tmp_path, whole)


def test_identity_is_not_written_again_while_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-21. Goal: a check does not put an earlier identity in the place of the one that is just written. Method: a
    check begins when the directory has the new identity, and the process that writes it does not know so yet: it waits,
    and then finds nothing to write."""
    entered, released = threading.Event(), threading.Event()

    def slowly(disk: Disk, instance: Instance, cluster_id: str) -> Instance:
        changed = join_cluster(disk, instance, cluster_id)
        entered.set()
        assert released.wait(20)
        return changed

    monkeypatch.setattr(file_check, "join_cluster", slowly)

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        keeper.instance = replace(keeper.instance, cluster_id="")
        assert repair_instance(RealDisk(tmp_path), keeper.instance)
        changing = asyncio.create_task(keeper.belong(CLUSTER, 0))
        assert await asyncio.to_thread(entered.wait, 20)
        check = asyncio.create_task(keeper.check_all())
        await group.check_files()  # the check's own step before it waits, on the same thread
        for _ in range(20):
            await asyncio.to_thread(lambda: None)
        waits = not check.done()
        released.set()
        await asyncio.gather(changing, check)
        assert waits and keeper.repaired == 0 and read_instance(RealDisk(tmp_path)) == keeper.instance
        assert keeper.instance.cluster_id == CLUSTER

    with_keeper(tmp_path, use)


@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
def test_flush_of_a_master_over_a_damaged_superblock_is_done(hurt: Hurt, tmp_path: Path) -> None:
    """IN-21. Goal: a damaged superblock does not end a running master at its next flush. Method: damage the superblock,
    and flush before the next check: the master goes on, and the next start has everything."""

    async def use(group: CatalogGroup, _: FileChecker) -> None:
        await two_segments(group)
        hurt(tmp_path / SUPERBLOCK)
        await group.flushed()
        assert Superblock.load(RealDisk(tmp_path), CATALOG_ID).flush_opid == group.catalog.applied_opid
        await group.confirm()

    with_keeper(tmp_path, use)
    with_keeper(tmp_path, whole)


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", [cut, emptied, missing], ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("number", [1, 2])
def test_segment_that_is_lost_under_a_running_master_is_told_while_it_goes_on(
    number: int, hurt: Hurt, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21. Goal: a master that has its catalog in memory goes on when a segment of its log is damaged, and reports
    the damage at once instead of at the next start. Method: damage a closed and an open segment. The next check names
    the segment and the repair, also in the master's status, and flushes the catalog; changes go on. The only master
    starts again after the stated repair."""

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        await two_segments(group)
        hurt(tmp_path / LOG / f"wal-00000000{number}")
        assert group.catalog.flush_opid < group.catalog.applied_opid
        await keeper.check_all()
        assert f"wal-00000000{number}" in group.trouble and WAY_ON in group.trouble and group.trouble in caplog.text
        assert group.catalog.flush_opid == group.catalog.applied_opid
        await group.change(lambda: put("k/4", 4))

    with_keeper(tmp_path, use)
    assert f"move the folder {LOG} away" in WAY_ON
    shutil.move(tmp_path / LOG, tmp_path / "away")

    async def again(group: CatalogGroup, _: FileChecker) -> None:
        await group.confirm()
        assert [key for key, _ in group.catalog.items("k/")] == ["1", "2", "3", "4"]
        await group.change(lambda: put("k/5", 5))

    with_keeper(tmp_path, again)


def test_closed_segment_that_is_damaged_is_found_and_forgotten_with_the_segment(tmp_path: Path) -> None:
    """IN-21. Goal: the scrub finds damage in a segment that nothing else reads, and the report ends when the segment is
    removed. Method: change a byte near the end of a closed segment of some megabytes: the check that reaches it reports
    it, and so do later ones until log GC has removed the segment."""

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        for number in range(3):
            await group.change(lambda number=number: ({f"k/{number}": {"v": "x" * READ_BYTES}}, [], "", None))  # type: ignore[misc]
        await asyncio.to_thread(group.log.roll)
        await group.change(lambda: put("k/last", 7))
        closed = [info for info in group.log.segments() if info.closed]
        path = tmp_path / LOG / closed[-1].name
        data = path.read_bytes()
        path.write_bytes(data[: closed[-1].length_bytes - 99] + b"?" + data[closed[-1].length_bytes - 98 :])
        looks = 0
        while not group.trouble:
            await keeper.check_all()
            looks += 1
        assert 1 < looks <= 8 and closed[-1].name in group.trouble
        await keeper.check_all()
        assert closed[-1].name in group.trouble
        await asyncio.to_thread(group.log.gc, group.catalog.flush_opid.index)
        assert closed[-1] not in group.log.segments()
        await keeper.check_all()
        assert group.trouble == ""

    with_keeper(tmp_path, use)


def test_folder_of_promises_that_is_taken_away_under_a_master_is_not_made_anew(tmp_path: Path) -> None:
    """IN-21. Goal: if a disk is no longer mounted, the master does not write its files into the empty mount point.
    Method: before the next check, the folder of the superblock is replaced by another one."""

    async def use(group: CatalogGroup, keeper: FileChecker) -> None:
        await two_segments(group)
        shutil.move(tmp_path / "tablet-meta", tmp_path / "elsewhere")
        (tmp_path / "tablet-meta").mkdir()
        with pytest.raises(DiskFailure, match="taken away"):
            await keeper.check_all()
        assert keeper.repaired == 0 and list((tmp_path / "tablet-meta").iterdir()) == []
        (tmp_path / "tablet-meta").rmdir()
        shutil.move(tmp_path / "elsewhere", tmp_path / "tablet-meta")

    with_keeper(tmp_path, use)


def started(root: Path) -> str:
    """Return the only line that a master prints that starts there; empty if it leads."""

    async def life() -> str:
        process = MasterProcess(MasterOptions(root=str(root), ready_file=str(root.parent / "ready"), tick_ms=5))
        running = asyncio.create_task(process.run())
        await until(lambda: running.done() or (root.parent / "ready").exists(), "it starts or it does not")
        process.stopping.set()
        try:
            await running
        except ReplicaError as error:
            return str(error)
        return ""

    said = asyncio.run(life())
    (root.parent / "ready").unlink(missing_ok=True)
    return said


@pytest.mark.a_third
@pytest.mark.parametrize("hurt", HURTS, ids=lambda hurt: hurt.__name__)
@pytest.mark.parametrize("file", [SUPERBLOCK, METADATA, INSTANCE, *SEGMENTS, RECORD])
def test_master_that_was_stopped_starts_whole_or_says_what_to_do(file: str, hurt: Hurt, tmp_path: Path) -> None:
    """IN-21. Goal: a master whose files were damaged while it was stopped either starts with all it had, or refuses
    with the repair. Method: damage each file of a stopped master, and start it as its process does. If it refuses, the
    error names the file or the loss, and the commands; the damaged file is unchanged, so an operator can put a good one
    back. If only the log is damaged, the only master starts with everything after its folder is moved away, as the
    error says."""
    root = tmp_path / "m"
    root.mkdir()

    async def use(group: CatalogGroup, _: FileChecker) -> None:
        await two_segments(group)

    with_keeper(root, use)
    assert Superblock.load(RealDisk(root), CATALOG_ID).state
    backup = (root / file).read_bytes()
    hurt(root / file)
    if said := started(root):
        assert "nyala master copy-from" in said and ("backup" in said), said
        if file.startswith(LOG):
            assert f"move the folder {LOG} away" in said
            shutil.move(root / LOG, tmp_path / "away")
        else:
            (root / file).write_bytes(backup)
        assert started(root) == ""
    else:
        # All that was in that segment is flushed; a log without that record is one of an earlier build.
        assert hurt is missing and file in (SEGMENTS[0], RECORD)
    with_keeper(root, whole)


@pytest.mark.parametrize("masters", [1, 3])
def test_end_of_the_log_that_was_damaged_under_a_killed_master_is_told(
    masters: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-21, CN-22. Goal: a master with a damaged end of its log always says so. Method: the files as a kill leaves
    them, with one byte of the last write changed. One of three masters starts, and logs that it does not vote. The only
    master refuses, and names the file to remove; without that file it starts, and has lost only that write."""
    root, killed = tmp_path / "m", tmp_path / "killed"
    root.mkdir()

    async def use(group: CatalogGroup, _: FileChecker) -> None:
        await two_segments(group)
        await asyncio.to_thread(group.log.drain)
        shutil.copytree(root, killed)

    with_keeper(root, use)
    data = (killed / SEGMENTS[1]).read_bytes()
    end = len(data.rstrip(b"\0")) - 20
    (killed / SEGMENTS[1]).write_bytes(data[:end] + bytes([data[end] ^ 0x55]) + data[end + 1 :])
    if masters == 3:
        others = [Member(uuid, (Address("h", 1),)) for uuid in ("a" * 32, "b" * 32)]

        async def starts() -> None:
            disk, clock = RealDisk(killed), SystemClock()
            uuid = open_or_format(disk, clock, kind=MASTER).uuid
            three = RaftConfig(OpId(9, 9), (Member(uuid, (Address("h", 1),)), *others), unsafe=True)
            ConsensusMeta.load(disk, CATALOG_ID).force(three, 9)
            group = CatalogGroup(disk, clock, uuid, three, send=lambda messages: None, on_fatal=pytest.fail)
            await group.start()
            assert group.replica.withheld is not None and "does not vote before its leader" in caplog.text
            await group.stop()

        asyncio.run(starts())
        return
    said = started(killed)
    assert "may have been acknowledged" in said and f"remove {LOG}/withheld" in said
    (killed / LOG / "withheld").unlink()
    assert started(killed) == ""

    async def look(group: CatalogGroup, _: FileChecker) -> None:
        await group.confirm()
        assert [key for key, _ in group.catalog.items("k/")] == ["1", "2"]

    with_keeper(killed, look)


def test_page_for_operators_has_each_file_of_a_master_and_the_times_of_this_code() -> None:
    """IN-21. Goal: the table for operators is complete, and its times are those of the code. Method: the table has each
    file damaged, emptied and missing, of a running and of a stopped master, and each small one of a running master of
    an earlier time, exactly once; its numbers are compared with the code's."""
    page = (Path(__file__).resolve().parents[3] / "docs/operate/repair.md").read_text()
    page = page.partition("### When a file of a master is damaged")[2].partition("\n## ")[0]
    is_row = re.compile(r"\| [a-z' ]+ \| [a-z, ]+ \| (running|stopped) \|").match
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if is_row(line)]
    said = [(file, hurt, state) for file, hurts, state, *_ in rows for hurt in hurts.split(", ")]
    files = ["superblock", "consensus metadata", "log segment", "record of the log's end", "instance file"]
    cases = [*itertools.product(files, ("damaged", "emptied", "missing"), ("running", "stopped"))]
    cases += [(file, "earlier", "running") for file in files if file != "log segment"]
    assert sorted(said) == sorted(cases)
    times = {"running": {f"{CHECK_EVERY_S:.0f} s", "86,400 s"}, "stopped": {"the start"}}
    assert all(within in times[state] for _, _, state, _, within, _ in rows)
    assert f"{READ_BYTES >> 20} MB a minute" in page and LOG in page
    assert f"at most {MasterOptions(root='x').flush_entries}." in page
    for command in re.findall(r"`nyala ([a-z -]+) DIR", WAY_ON):
        assert f"`nyala {command} DIR" in page
