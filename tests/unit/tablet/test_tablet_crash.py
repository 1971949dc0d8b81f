"""Crashes at every named point, damage at rest, a full disk."""

from __future__ import annotations

import random
from typing import Any

import pytest

from nyala.replica.base import Code, Corruption, Refused
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock, Tablet, block_names, sweep_orphans
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


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_tablet_crash_at_named_point_loses_nothing_applied(point: str, passes: int, power: bool) -> None:
    """Goal: whatever point a flush or compaction dies at, superblock plus log give the same rows, and stray files are
    swept. Method: crash at the n-th pass of the point, restart or cut the power, sweep, reopen, replay, compare."""
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


def test_block_with_a_flipped_bit_is_corruption_at_open() -> None:
    """Goal: TC-51: damage at rest fails the replica, is never read as rows. Method: flip a bit in each file in turn."""
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
    """TC-63. Goal: a merge does not give damage a new checksum. Method: four blocks that are worth a compaction, a bit
    flipped in each file in turn: Corruption, the same files under the same superblock; whole again, they are merged."""
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


def test_flush_on_a_full_disk_is_refused_and_later_made_up_for() -> None:
    """Goal: no space leaves the tablet as it was, writable and readable; with space the next flush completes.
    Method: ENOSPC at the block and at the superblock, writes in between."""
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
    """Goal: a bad data folder fails its replicas, and what they were to flush is in their logs. Method: EIO in a flush;
    the superblock is the old one, and replay from it gives every row."""
    disk, twin = SimDisk(), Twin(INT_SCHEMA)
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    entry, rows = _write(1, random.Random(8))
    twin.apply(NAMES, rows, entry.hybrid_time, None, 0)
    tablet.apply([entry])
    disk.fail_on(operation, pattern, "EIO")
    with pytest.raises(Corruption, match="cannot be read or written"):
        tablet.flush()
    assert Superblock.load(disk, tablet.tablet_id).blocks == ()
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    again.apply([entry])
    again.flush()
    assert rows_of(again.scan(), INT_SCHEMA) == twin.at(again.applied_time)
    disk.close()
