"""What a tablet holds between its entries and its files."""

from __future__ import annotations

import pytest

from nyala.replica.rows import RowOp
from nyala.replica.tablet import Tablet, contents
from nyala.replica.tablet.contents import Contents
from nyala.replica.types import Code, Refused, hybrid_from_us, us_of_hybrid
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, rows_of, superblock, write_entry

NAMES = list(INT_SCHEMA.names)
LOGICAL = 3
"""The part of a hybrid time that counts within a microsecond."""


def write(tablet: Tablet, index: int, op: RowOp, *keys: int) -> None:
    """Write one row for each key, five seconds after the write before."""
    rows = [{"op": op, "offset": 100 * index + n, "k": k, "v": 1, "s": "", "r": 1} for n, k in enumerate(keys)]
    tablet.apply([write_entry(index, INT_SCHEMA, NAMES, rows, time=hybrid_from_us(5_000_000 * index) + LOGICAL)])


@pytest.mark.parametrize(
    "retention_us, behind_us",
    [(0, 0), (-1, 0), (1, 1), (2, 2), (999_999, 999_999), (9_000_000, 5_000_000)],
    ids=["none", "below none", "one microsecond", "two", "almost a second", "more than there is"],
)
def test_history_reaches_back_as_far_as_it_is_retained(retention_us: int, behind_us: int) -> None:
    """Goal: a read is refused exactly below the time that is behind the newest one by the retention. Method: a
    row at five seconds after the beginning of time, and each side of the horizon."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA, retention_us=retention_us))
    write(tablet, 1, RowOp.INSERT, 1)
    horizon = tablet.history_horizon
    assert us_of_hybrid(horizon) == 5_000_000 - behind_us
    assert horizon == (tablet.applied_time if not behind_us else hybrid_from_us(5_000_000 - behind_us))
    tablet.scan(snapshot_time=horizon)
    if horizon:
        with pytest.raises(Refused):
            tablet.scan(snapshot_time=horizon - 1)


def test_tablet_applied_in_part_makes_no_file_until_it_is_closed() -> None:
    """Goal: a part of an entry never reaches the disk, and a closed tablet, which makes no file, refuses nothing for
    that. Method: the mark of a tablet whose entry failed half-way; a flush and a merge, then a close and both again."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, 1)
    tablet._contents.partly_applied = True
    for work in (tablet.flush, tablet.compact):
        with pytest.raises(Refused) as refused:
            work()
        assert refused.value.code is Code.NOT_READY and tablet.tablet_id in str(refused.value)
    tablet.close()
    assert tablet.flush() is None and not tablet.compact()


def test_next_memory_store_has_room_for_as_many_rows_as_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a steady load never moves its rows, and one large batch does not take room for ever. Method: 3,000 rows are
    flushed, with room for at most 2,000 and for more."""
    for most, room in ((2000, 2000), (1 << 20, 3000)):
        monkeypatch.setattr(contents, "EXPECTED_ROWS_MAX", most)
        tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
        write(tablet, 1, RowOp.INSERT, *range(3000))
        tablet.flush()
        assert len(tablet._contents.stores.active.ts) == room


def held(tablet: Tablet) -> Contents:
    """Four flushed blocks that are worth a merge."""
    for index in range(1, 5):
        write(tablet, index, RowOp.INSERT, index)
        tablet.flush()
    return tablet._contents


def test_merge_of_some_blocks_leaves_the_others() -> None:
    """Goal: a merge replaces its inputs and nothing else, also if none of their rows is left. Method: the rows of the
    first blocks are deleted and no longer retained, and a large block stands beside them."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=1))
    held(tablet)
    write(tablet, 5, RowOp.DELETE, 1, 2, 3, 4)
    tablet.flush()
    write(tablet, 6, RowOp.INSERT, *range(10, 20_000))
    tablet.flush()
    before = tablet._contents.stores.blocks
    large = before[-1]
    while tablet.compact():
        pass
    after = tablet._contents.stores.blocks
    assert large in after and len(after) < len(before)
    assert len(rows_of(tablet.scan(["k"]), INT_SCHEMA)) == 19_990
    assert {f"data/{name}" for name in disk.listdir("data")} == {path for path, _, _ in tablet.block_files()}


def test_file_that_could_not_be_deleted_is_deleted_with_the_next_ones() -> None:
    """Goal: no file of a merged block stays for ever. Method: the disk fails at the first deletion of a merge; a later
    merge deletes that file too."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    state = held(tablet)
    assert state.take_removable() == []
    state.remove_later("data/one.arrow")
    state.remove_later("data/two.arrow")
    state.holds = 1
    assert state.take_removable() == []
    state.holds = 0
    assert state.take_removable() == ["data/one.arrow", "data/two.arrow"]
    assert state.take_removable() == []


def test_horizon_of_a_merge_holds_after_a_restart() -> None:
    """Goal: versions that a merge dropped are not missed by a read after a restart, when the tablet's time is an
    earlier one. Method: a merge beside a row that is not flushed, whose time is far ahead; the tablet that is opened
    from the files refuses what lies below the last flush."""
    disk = SimDisk()
    tablet = Tablet.create(disk, superblock(INT_SCHEMA, retention_us=1_000_000))
    held(tablet)
    write(tablet, 5, RowOp.UPSERT, 1)
    assert tablet.compact()
    again = Tablet.open(disk, tablet.superblock)
    assert again.applied_time == again.history_horizon == hybrid_from_us(20_000_000) + LOGICAL
