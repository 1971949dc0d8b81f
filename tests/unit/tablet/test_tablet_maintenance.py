"""Flush and compaction by themselves: what they write, what they leave out, and what they do again later."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest

from nyala.replica.fs import MapReserve, map_reserve
from nyala.replica.rows import RowOp
from nyala.replica.tablet import Superblock, Tablet, maintenance
from nyala.replica.types import Code, Refused, ResourcesExhausted, ResourceUse, hybrid_from_us, us_of_hybrid
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, noop_entry, rows_of, superblock, write_entry

NAMES = list(INT_SCHEMA.names)
SECOND = 1_000_000


def put(tablet: Tablet, second: int, op: RowOp, *keys: int) -> None:
    """Write one row for each key at this second."""
    index = tablet.applied_opid.index + 1
    rows = [{"op": op, "offset": 10_000 * index + n, "k": k, "v": 1, "s": "", "r": 1} for n, k in enumerate(keys)]
    tablet.apply([write_entry(index, INT_SCHEMA, NAMES, rows, time=hybrid_from_us(second * SECOND))])


def pause(tablet: Tablet, second: int) -> None:
    """Apply an entry that changes no row."""
    tablet.apply([noop_entry(tablet.applied_opid.index + 1, hybrid_from_us(second * SECOND))])


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
            assert len(tablet._contents._to_remove) == left
        assert named_and_there(disk, tablet) == (left > 0)
        disk.close()


def test_rows_that_end_while_they_are_flushed_are_ended_again_by_replay() -> None:
    """Goal: a block has only what entries up to its flush position did, so that replay of the later ones has the same
    results. Method: rows of a frozen store and of a block end before it is flushed, by a deletion whose result would
    change if the file had it; the tablet that is opened from the files applies it again."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    put(tablet, 1, RowOp.INSERT, 1, 2)
    tablet.flush()
    put(tablet, 2, RowOp.INSERT, 3, 4)
    put(tablet, 3, RowOp.DELETE, 2, 4)
    with tablet._contents.maintenance:
        tablet._contents.freeze()
    rows = [{"op": RowOp.DELETE, "offset": 90_000 + k, "k": k} for k in (1, 2, 3, 4)]
    later = write_entry(4, INT_SCHEMA, ["k"], rows, time=hybrid_from_us(4 * SECOND))
    (first,) = tablet.apply([later])
    assert [error.offset for error in first.row_errors] == [90_002, 90_004]
    flushed = tablet.flush()
    assert flushed is not None and flushed.flush_opid.index == 3
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert keys_of(again) == [1, 3] and keys_of(tablet) == []
    assert again.apply([later]) == [first] and keys_of(again) == []
    disk.close()


class Recorder(SimDisk):
    """A disk that lists the files' operations and the crash points in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[str] = []
        self.hook = lambda operation, path: self.steps.append(f"{operation} {path.partition('.')[2] or path}")

    def crash_point(self, name: str) -> None:
        if name.startswith("tablet."):
            self.steps.append(name.removeprefix("tablet."))
        super().crash_point(name)

    def block_steps(self) -> list[str]:
        """The crash points since the last call, and what was done with blocks and their folder."""
        of_blocks = [f"{kind} {what}" for kind in ("pread", "sync", "remove") for what in ("arrow", "idx")]
        found = [step for step in self.steps if " " not in step or step in [*of_blocks, "sync_dir data"]]
        self.steps.clear()
        return found


def test_crash_points_stand_on_both_sides_of_each_step_of_a_flush_and_of_a_merge() -> None:
    """Goal: a test can stop the process before and after each change of the disk: the block's files, the superblock.
    What a flush has just written it does not read again, and what a merge reads was checked before it wrote. Method:
    the order of crash points, reads, syncs and deletions of a flush, of one that has two blocks, and of a merge."""
    disk = Recorder()
    tablet = four_blocks(disk)
    block = ["before_block_write", "sync arrow", "sync idx", "sync_dir data", "after_block_write"]
    tablet._work.flush_bytes_max = 1
    put(tablet, 5, RowOp.INSERT, 5)
    put(tablet, 6, RowOp.INSERT, 6)
    disk.steps.clear()
    tablet.flush()
    assert disk.block_steps() == [*block, *block, "before_superblock_flush", "after_superblock_flush"]
    tablet.compact()
    reads, gone = ["pread arrow", "pread idx"] * 6, ["remove arrow", "remove idx"] * 6
    assert disk.block_steps() == [*reads, *block, "before_compaction_swap", "after_compaction_swap", *gone]
    disk.close()


def test_level_of_a_block_counts_the_merges_behind_its_rows() -> None:
    """Goal: a block says how often its rows were written again. Method: blocks of flushes, a merge of them, and a merge
    of that one with blocks of flushes; then of one block alone, many of whose rows have ended."""
    disk = SimDisk()
    tablet = four_blocks(disk, retention_us=1)
    assert [b.level for b in tablet.superblock.blocks] == [0, 0, 0, 0]
    assert tablet.compact() and [b.level for b in tablet.superblock.blocks] == [1]
    for index in range(5, 8):
        put(tablet, index, RowOp.INSERT, index)
        tablet.flush()
    assert [b.level for b in tablet.superblock.blocks] == [1, 0, 0, 0]
    assert tablet.compact() and [b.level for b in tablet.superblock.blocks] == [2]
    put(tablet, 8, RowOp.DELETE, 1, 2, 3)
    tablet.flush()
    pause(tablet, 9)
    assert tablet.compact() and sorted(b.level for b in tablet.superblock.blocks) == [0, 3]
    assert tablet.superblock.next_block == 11 and named_and_there(disk, tablet)
    disk.close()


@pytest.mark.parametrize("ended, merged", [(0, False), (3, False), (4, True), (10, True)])
def test_block_is_written_again_once_more_than_a_share_of_it_is_dead(ended: int, merged: bool) -> None:
    """Goal: a block of which a read can see few rows gives back its room, and one of which it sees many stays. Method:
    of ten rows some are deleted; while the deletions are in memory only or may still be read nothing is merged."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=3 * SECOND))
    put(tablet, 1, RowOp.INSERT, *range(10))
    tablet.flush()
    if ended:
        put(tablet, 2, RowOp.DELETE, *range(ended))
    pause(tablet, 3)
    assert not tablet.wants_compaction(), "replay needs them"
    tablet.flush()
    assert not tablet.wants_compaction(), "a snapshot may see them"
    pause(tablet, 5)
    assert tablet.wants_compaction() == merged
    assert tablet.compact() == merged
    assert [b.rows for b in tablet.superblock.blocks if b.rows] == (
        [10 - ended] if merged and ended < 10 else [10] * (not merged)
    )
    assert keys_of(tablet) == list(range(ended, 10)) and not tablet.wants_compaction()
    assert named_and_there(disk, tablet)
    disk.close()


def test_smallest_block_of_dead_rows_is_written_again_first() -> None:
    """Goal: room is given back where it costs least. Method: three blocks, the largest of which is the oldest, all of
    their rows but one deleted."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=1))
    sizes = (3000, 1000, 2000)
    tablet._work.merge_bytes_max = 1  # so that no blocks are merged for being of one size
    for index, rows in enumerate(sizes, 1):
        put(tablet, index, RowOp.INSERT, *range(10_000 * index, 10_000 * index + rows))
        tablet.flush()
    for index, rows in enumerate(sizes, 1):
        put(tablet, 10 + index, RowOp.DELETE, *range(10_000 * index + 1, 10_000 * index + rows))
    tablet.flush()
    pause(tablet, 20)
    left = []
    while tablet.compact():
        left.append([b.rows for b in tablet.superblock.blocks if b.rows > 1])
    assert left[:3] == [[3000, 2000], [3000], []]
    assert keys_of(tablet) == [10_000, 20_000, 30_000]
    disk.close()


def test_part_of_which_no_row_is_left_makes_no_block_before_one_that_has_some() -> None:
    """Goal: a flush makes no block without rows if another one can carry what it ended in older blocks. Method: two
    batches, each a block of its own; the rows of the first have ended, and so has one in an older block."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=1))
    put(tablet, 1, RowOp.INSERT, 1, 2)
    tablet.flush()
    tablet._work.flush_bytes_max = 1
    put(tablet, 2, RowOp.INSERT, 3)
    put(tablet, 3, RowOp.DELETE, 1, 3)
    put(tablet, 4, RowOp.INSERT, 4)
    pause(tablet, 5)
    flushed = tablet.flush()
    assert flushed is not None and flushed.rows == len(flushed.blocks) == 1
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert keys_of(again) == keys_of(tablet) == [2, 4]
    disk.close()


def some_blocks(disk: SimDisk) -> Tablet:
    """Blocks of rows, of rows and what ended in the first one, of rows that all ended, and of ended rows alone."""
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=1))
    put(tablet, 1, RowOp.INSERT, 1, 2, 3)
    tablet.flush()
    put(tablet, 2, RowOp.INSERT, 4, 5)
    put(tablet, 3, RowOp.DELETE, 1)
    tablet.flush()
    put(tablet, 4, RowOp.INSERT, 6)
    tablet.flush()
    put(tablet, 5, RowOp.DELETE, 2, 4, 6)
    tablet.flush()
    pause(tablet, 6)
    tablet.flush()
    return tablet


@pytest.mark.a_third
@pytest.mark.parametrize("chosen", [c for n in range(1, 5) for c in combinations(range(4), n)], ids=str)
def test_merge_of_any_blocks_keeps_what_they_ended_in_the_others(
    chosen: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: rows that ended stay so whichever blocks are merged, and a merge with nothing to write makes no block.
    Method: each choice of four blocks, which have rows, rows that ended in other blocks, or both; the rows before and
    after, also of a tablet that is opened from the files; what a new sidecar names."""
    disk = SimDisk()
    tablet = some_blocks(disk)
    assert len(tablet.superblock.blocks) == 4 and keys_of(tablet) == [3, 5]
    inputs = [tablet._contents.stores.blocks[pos] for pos in chosen]
    monkeypatch.setattr(tablet._work, "choose", lambda blocks: inputs)
    stay = [b.block_id for pos, b in enumerate(tablet.superblock.blocks) if pos not in chosen]
    named = {block_id for b in inputs for block_id in b.sidecar.deltas} & set(stay)
    rows = sum((1, 1, 0, 0)[pos] for pos in chosen)
    assert tablet.compact()
    new = [b for b in tablet._contents.stores.blocks if b.info.block_id not in stay]
    assert [b.info.block_id for b in tablet._contents.stores.blocks] == [b.block_id for b in tablet.superblock.blocks]
    assert len(new) == bool(rows or named) and sum(b.rows for b in new) == rows
    assert {block_id for b in new for block_id in b.sidecar.deltas} == named
    again = Tablet.open(disk, Superblock.load(disk, tablet.tablet_id))
    assert keys_of(again) == keys_of(tablet) == [3, 5]
    assert named_and_there(disk, tablet)
    disk.close()
