"""Crashes at every named point, damage at rest, a full disk."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock, Tablet, block_names, sweep_orphans, verify_pieces
from nyala.replica.tablet.merge_rule import MERGE_BYTES_MAX, flush_runs
from nyala.replica.types import Code, Corruption, Refused
from tests.harness.sim_disk import SimCrash, SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, Twin, rows_of, superblock, write_entry

NAMES = ["k", "v", "s", "r"]
POINTS = [
    "tablet.before_block_write",
    "tablet.after_block_write",
    "tablet.before_superblock_flush",
    "tablet.after_superblock_flush",
    "tablet.before_compaction_swap",
    "tablet.after_compaction_swap",
]


def _write(index: int, rng: random.Random) -> tuple[Any, list[dict[str, Any]]]:
    rows = [
        {
            "op": rng.choice([RowOp.UPSERT, RowOp.UPSERT, RowOp.DELETE_IGNORE, RowOp.UPDATE]),
            "offset": index * 100 + i,
            "k": rng.randrange(30),
            "v": i,
            "s": "x",
            "r": index,
        }
        for i in range(12)
    ]
    return write_entry(index, INT_SCHEMA, NAMES, rows), rows


def _change(index: int, rng: random.Random) -> tuple[Any, list[dict[str, Any]]]:
    """A write of four rows, two of them of one key."""
    ops = [RowOp.INSERT, RowOp.DELETE, RowOp.INSERT, RowOp.UPDATE, RowOp.UPSERT]
    rows = [
        {"op": rng.choice(ops), "offset": index * 100 + i, "k": rng.randrange(6), "v": i, "s": "x", "r": index}
        for i in range(3)
    ]
    rows.append(rows[-1] | {"op": rng.choice(ops), "offset": index * 100 + 3, "v": 3})
    return write_entry(index, INT_SCHEMA, NAMES, rows), rows


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_tablet_crash_at_named_point_loses_nothing_applied(point: str, passes: int, power: bool) -> None:
    """Goal: after a crash at any point of a flush or compaction, superblock and log give the same rows, and stray files
    are removed. Method: crash at the n-th pass of the point, restart or cut the power, sweep, reopen, replay,
    compare."""
    rng = random.Random(f"{point}{passes}{power}")
    disk, twin, log = SimDisk(), Twin(INT_SCHEMA), []
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    disk.arm(point, passes)
    with pytest.raises(SimCrash):
        for index in range(1, 60):
            entry, rows = _write(index, rng)
            log.append(entry)
            twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
            tablet.apply([entry])
            if index % 3 == 0:
                tablet.flush()
                tablet.compact()
    if power:
        disk.power_loss(rng)
    else:
        disk.restart()
    saved = Superblock.load(disk, "a" * 32)
    sweep_orphans(disk, block_names(saved))
    again = Tablet.open(disk, saved)
    again.apply(log)
    assert rows_of(again.scan(), INT_SCHEMA) == twin.at(again.applied_time)
    again.flush()
    again.compact()
    assert {f"data/{n}" for n in disk.listdir("data")} == block_names(again.superblock)
    assert rows_of(again.scan(), INT_SCHEMA) == twin.at(again.applied_time)
    disk.close()


class HookedDisk(SimDisk):
    """Calls `at_hook` before each crash point, as a writer would come just there."""

    at_hook: Callable[[], None] | None = None

    def crash_point(self, name: str) -> None:
        if self.at_hook is not None:
            self.at_hook()
        super().crash_point(name)


@pytest.mark.deep
@pytest.mark.parametrize("point", POINTS)
def test_tablet_written_at_every_hook_and_crashed_twice_in_a_row_replays_each_change_once(point: str) -> None:
    """CN-02, scenario 51. Goal: scenario 51: replay neither loses nor doubles a change, whenever it came. Method: few
    keys are inserted, updated, deleted and inserted again, also at each hook of each flush and compaction; the process
    dies at the named one, is replayed, goes on, and dies there again, by kill or by power loss. After each death the
    results of what is replayed are those of its first time, and the rows are the twin's, now and at earlier times. Also
    with flushes that make a block of each batch."""
    for flush_bytes_max in (MERGE_BYTES_MAX, 1):
        rng = random.Random(f"{point}{flush_bytes_max}")
        disk, twin, log, results = HookedDisk(), Twin(INT_SCHEMA), [], {}
        tablet = Tablet.create(disk, superblock(INT_SCHEMA))
        tablet._work.flush_bytes_max = flush_bytes_max

        def change() -> None:
            entry, rows = _change(len(log) + 1, rng)  # noqa: B023
            log.append(entry)  # noqa: B023
            twin.apply(NAMES, rows, entry.hybrid_time, None, 0)  # noqa: B023
            (result,) = tablet.apply([entry])  # noqa: B023
            results[entry.opid] = result  # noqa: B023

        for _ in range(2):
            disk.at_hook = change
            disk.arm(point, rng.randint(1, 3))
            with pytest.raises(SimCrash):
                for _ in range(60):
                    change()
                    if len(log) % 3 == 0:
                        tablet.flush()
                        tablet.compact()
                        assert rows_of(tablet.scan(), INT_SCHEMA) == twin.at(tablet.applied_time)
            disk.at_hook = None
            if rng.random() < 0.5:
                disk.power_loss(rng)
            else:
                disk.restart()
            tablet = Tablet.open(disk, Superblock.load(disk, "a" * 32))
            tablet._work.flush_bytes_max = flush_bytes_max
            flushed = tablet.flush_opid
            assert flushed.index < len(log)
            replayed = tablet.apply(log[flushed.index :])
            assert replayed == [results[entry.opid] for entry in log[flushed.index :]]
            for entry in log[::3]:
                assert rows_of(tablet.scan(snapshot_time=entry.hybrid_time), INT_SCHEMA) == twin.at(entry.hybrid_time)
            assert rows_of(tablet.scan(), INT_SCHEMA) == twin.at(tablet.applied_time)
        disk.close()


def test_block_with_a_flipped_bit_is_corruption_at_open() -> None:
    """TC-51. Goal: damage in a stored file fails the replica, and is never read as rows. Method: flip a bit in each
    file in turn."""
    rng = random.Random(4)
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([_write(1, rng)[0]])
    tablet.flush()
    for path, length, _ in tablet.block_files():
        at = rng.randrange(length)
        disk.corrupt(path, at)
        with pytest.raises(Corruption):
            Tablet.open(disk, tablet.superblock)
        disk.corrupt(path, at)
    Tablet.open(disk, tablet.superblock)
    disk.remove(tablet.block_files()[0][0])
    with pytest.raises(Corruption):
        Tablet.open(disk, tablet.superblock)
    disk.close()


def test_block_that_went_bad_is_corruption_to_a_compaction_which_changes_nothing() -> None:
    """TC-63. Goal: a compaction fails on a damaged block instead of writing its content under a new checksum. Method:
    four blocks that are worth a compaction, a bit flipped in each file in turn: Corruption, the same files under the
    same superblock; whole again, they are merged."""
    rng, disk, twin = random.Random(6), SimDisk(), Twin(INT_SCHEMA)
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    for index in range(1, 5):
        entry, rows = _write(index, rng)
        twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
        tablet.apply([entry])
        tablet.flush()
    before, names = Superblock.load(disk, tablet.tablet_id), disk.listdir("data")
    for path, length, _ in tablet.block_files():
        at = rng.randrange(length)
        disk.corrupt(path, at)
        with pytest.raises(Corruption, match="another CRC-32C"):
            tablet.compact()
        disk.corrupt(path, at)
        assert (Superblock.load(disk, tablet.tablet_id), disk.listdir("data")) == (before, names)
    assert tablet.compact() and len(tablet.superblock.blocks) == 1
    assert rows_of(tablet.scan(), INT_SCHEMA) == twin.at(tablet.applied_time)
    disk.close()


def test_check_past_the_page_cache_gives_back_what_it_brought() -> None:
    """TC-63. Goal: the scrub reads blocks from the disk and leaves nothing in the page cache. Method: the operations on
    a block's file, in order, of a check that is to pass by the page cache, and of one that is not."""
    rng, disk = random.Random(8), SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([_write(1, rng)[0]])
    tablet.flush()
    for path, length, crc in tablet.block_files():
        for uncached in (True, False):
            seen: list[str] = []
            disk.hook = lambda operation, where, path=path, seen=seen: seen.append(operation) if where == path else None
            read = list(verify_pieces(disk, path, length, crc, piece_bytes=100, uncached=uncached))
            assert sum(read) == length and max(read) == 100
            drop = ["uncache"] * uncached
            assert [s for s in seen if s in ("pread", "uncache")] == [*drop, *["pread"] * len(read), *drop]
    disk.hook = None
    disk.close()


def test_flush_on_a_full_disk_is_refused_and_later_made_up_for() -> None:
    """Goal: a flush on a full disk changes nothing, the tablet stays readable and writable, and the next flush with
    room completes. Method: ENOSPC at the block and at the superblock, writes in between."""
    rng = random.Random(5)
    disk, twin, log = SimDisk(), Twin(INT_SCHEMA), []
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))

    def write(index: int) -> None:
        entry, rows = _write(index, rng)
        log.append(entry)
        twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
        tablet.apply([entry])

    write(1)
    for index, (operation, pattern) in enumerate([("pwrite", "data/*.idx"), ("replace", "tablet-meta/*")], start=2):
        disk.fail_on(operation, pattern, "ENOSPC")
        with pytest.raises(Refused) as refused:
            tablet.flush()
        assert refused.value.code is Code.NO_SPACE
        write(index)
        assert rows_of(tablet.scan(), INT_SCHEMA) == twin.at(tablet.applied_time)
    while tablet.flush() is not None:
        pass
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert again.flush_opid.index == 3
    assert rows_of(again.scan(), INT_SCHEMA) == twin.at(again.applied_time)
    disk.close()


def test_large_store_becomes_several_blocks_or_none() -> None:
    """Goal: a store that is longer than a block can be is flushed, in blocks of bounded size, and if the disk fills up
    at a later one, no file of the others stays. Method: a bound of two batches; updates and deletions of rows of an
    older block and of rows that are being flushed; ENOSPC at the third block, then none."""
    rng = random.Random(6)
    disk, twin, log = SimDisk(), Twin(INT_SCHEMA), []
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))

    def write(*indexes: int) -> None:
        for index in indexes:
            entry, rows = _write(index, rng)
            log.append(entry)
            twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
            tablet.apply([entry])

    write(1)
    tablet.flush()
    before = tablet.block_files()
    write(*range(2, 9))
    sizes = [chunk.size_bytes for chunk in tablet._contents.stores.active.chunks]
    tablet._work.flush_bytes_max = 2 * max(sizes)
    disk.fail_on("sync", "data/*-000003.idx", "ENOSPC")
    with pytest.raises(Refused) as refused:
        tablet.flush()
    assert refused.value.code is Code.NO_SPACE and tablet.block_files() == before
    assert {f"data/{n}" for n in disk.listdir("data")} == block_names(tablet.superblock)
    write(9, 10)
    flushed = tablet.flush()
    assert flushed is not None and flushed.flush_opid.index == 8
    assert len(flushed.blocks) == len(flush_runs(sizes, 2 * max(sizes))) > 3
    assert flushed.blocks == tuple(b.name for b in tablet.superblock.blocks[1:])
    assert flushed.rows == sum(b.rows for b in tablet.superblock.blocks[1:])
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    again.apply(log)
    for one in (tablet, again):
        for entry in log:
            assert rows_of(one.scan(snapshot_time=entry.hybrid_time), INT_SCHEMA) == twin.at(entry.hybrid_time)
    assert tablet.checksum() == again.checksum()
    disk.close()


@pytest.mark.parametrize("operation", ["open", "pread"])
def test_block_that_the_disk_cannot_read_is_corruption_not_the_end_of_the_server(operation: str) -> None:
    """TC-63: one bad sector in a block fails that replica alone. Method: EIO on the block's file at open."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([_write(1, random.Random(7))[0]])
    tablet.flush()
    disk.fail_on(operation, "data/*.arrow", "EIO")
    with pytest.raises(Corruption, match="cannot be read"):
        Tablet.open(disk, tablet.superblock)
    Tablet.open(disk, tablet.superblock)
    disk.close()


@pytest.mark.parametrize(
    ("operation", "pattern"), [("pwrite", "data/*.arrow"), ("sync", "data/*.idx"), ("sync_dir", "data")]
)
def test_block_that_the_disk_cannot_write_is_corruption_and_no_superblock_names_it(
    operation: str, pattern: str
) -> None:
    """IN-30. Goal: a data folder with I/O errors fails its replicas, and their logs still have what a flush could not
    write. Method: EIO in a flush; no half a block stays, the superblock is the old one, and replay from it gives every
    row."""
    disk, twin = SimDisk(), Twin(INT_SCHEMA)
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    entry, rows = _write(1, random.Random(8))
    twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
    tablet.apply([entry])
    disk.fail_on(operation, pattern, "EIO")
    with pytest.raises(Corruption, match="cannot be read or written"):
        tablet.flush()
    assert Superblock.load(disk, tablet.tablet_id).blocks == () and disk.listdir("data") == []
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    again.apply([entry])
    again.flush()
    assert rows_of(again.scan(), INT_SCHEMA) == twin.at(again.applied_time)
    disk.close()
