"""Flush and compaction by themselves: what they write, what they leave out, and what they do again later."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nyala.replica.fs import MapReserve, map_reserve
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock, Tablet, maintenance
from nyala.replica.types import Code, Refused, ResourcesExhausted, ResourceUse, hybrid_from_us, us_of_hybrid
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, noop_entry, rows_of, superblock, write_entry

NAMES = list(INT_SCHEMA.names)
SECOND = 1_000_000


def put(tablet: Tablet, index: int, op: RowOp, *keys: int) -> None:
    """Write one row for each key, a second after the entry before."""
    rows = [{"op": op, "offset": 1000 * index + n, "k": k, "v": 1, "s": "", "r": 1} for n, k in enumerate(keys)]
    tablet.apply([write_entry(index, INT_SCHEMA, NAMES, rows, time=hybrid_from_us(index * SECOND))])


def pause(tablet: Tablet, index: int) -> None:
    """Apply an entry that changes no row, a second after the entry before."""
    tablet.apply([noop_entry(index, hybrid_from_us(index * SECOND))])


def keys_of(tablet: Tablet) -> list[int]:
    return [row["k"] for row in rows_of(tablet.scan(["k"]), INT_SCHEMA)]


def four_blocks(disk: SimDisk, **more: int) -> Tablet:
    """A tablet with as many blocks as a merge needs, each of one row."""
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, **more))
    for index in range(1, 5):
        put(tablet, index, RowOp.INSERT, index)
        tablet.flush()
    return tablet


def named_and_there(disk: SimDisk, tablet: Tablet) -> bool:
    """Whether the folder has the files of the superblock and no other."""
    return {f"data/{name}" for name in disk.listdir("data")} == {path for path, _, _ in tablet.block_files()}


@pytest.mark.parametrize("what", ["nothing", "deletions"])
@pytest.mark.parametrize("spare", [1, 2])
def test_flush_without_a_row_takes_maps_for_the_one_block_that_it_may_make(
    what: str, spare: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-32. Goal: a flush that has no rows to write, only ended ones, keeps the last maps for other work, and needs no
    more than those of one block. Method: an entry that changes no row, or a deletion; as many maps are left as a block
    has, or one fewer."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    put(tablet, 1, RowOp.INSERT, 1, 2)
    tablet.flush()
    put(tablet, 2, RowOp.DELETE, 1) if what == "deletions" else pause(tablet, 2)
    monkeypatch.setattr(map_reserve, "COUNT_EVERY_S", 0.0)
    monkeypatch.setattr(maintenance, "RESERVE", MapReserve(lambda: ResourceUse(98_000 - spare, 100_000)))
    if spare < 2:
        with pytest.raises(ResourcesExhausted, match=r"vm\.max_map_count"):
            tablet.flush()
    else:
        flushed = tablet.flush()
        assert flushed is not None and len(flushed.blocks) == (what == "deletions")
    disk.close()


def test_flush_of_entries_that_change_no_row_makes_no_block() -> None:
    """Goal: a tablet whose log has only leaders' entries collects no empty blocks, and a block has in its sidecar only
    blocks of which it ends rows. Method: two blocks; an entry without rows; then a deletion in one of the blocks."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    for index in (1, 2):
        put(tablet, index, RowOp.INSERT, index)
        tablet.flush()
    before = tablet.superblock
    pause(tablet, 3)
    flushed = tablet.flush()
    assert flushed is not None and (flushed.rows, flushed.bytes_written, flushed.blocks) == (0, 0, ())
    assert tablet.superblock.blocks == before.blocks and tablet.superblock.next_block == before.next_block
    assert tablet.superblock.flush_opid.index == 3 and named_and_there(disk, tablet)
    put(tablet, 4, RowOp.DELETE, 2)
    tablet.flush()
    last = tablet._contents.stores.blocks[-1]
    assert last.rows == 0 and list(last.sidecar.deltas) == [before.blocks[1].block_id]
    disk.close()


def test_history_that_a_flush_dropped_is_gone_whatever_the_retention_is_later() -> None:
    """Goal: a read at a time whose versions a flush dropped is refused, not answered with fewer rows. Method: a version
    that ended in memory is dropped by the flush; the superblock is opened with a retention that would reach back."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=SECOND))
    put(tablet, 1, RowOp.INSERT, 1)
    put(tablet, 2, RowOp.DELETE, 1)
    pause(tablet, 3)
    pause(tablet, 4)
    tablet.flush()
    saved = Superblock.load(disk, tablet.tablet_id)
    assert us_of_hybrid(saved.history_horizon) == 3 * SECOND
    again = Tablet.open(disk, replace(saved, history_retention_us=100 * SECOND))
    with pytest.raises(Refused) as refused:
        again.scan(snapshot_time=hybrid_from_us(SECOND))
    assert refused.value.code is Code.HISTORY_GONE
    disk.close()


def test_file_that_lacks_a_resource_to_be_deleted_is_deleted_after_the_next_merge() -> None:
    """IN-30. Goal: if the server has no file left with which to delete a merged block, the merge stands, and the file
    goes later; if the disk fails or the file is gone, the start's sweep has it. Method: a merge whose deletions fail;
    a held superblock is released, which deletes what is left."""
    for kind, left in (("EMFILE", 2), ("EIO", 0)):
        disk = SimDisk()
        tablet = four_blocks(disk)
        old = [path for path, _, _ in tablet.block_files()]
        disk.fail_on("remove", "data/*-000002.*", kind, times=2)
        assert tablet.compact() and keys_of(tablet) == [1, 2, 3, 4]
        assert [path for path in old if disk.exists(path)] == [p for p in old if "-000002." in p]
        with tablet.hold():
            assert len(tablet._contents._doomed) == left
        assert named_and_there(disk, tablet) == (left > 0)
        disk.close()
