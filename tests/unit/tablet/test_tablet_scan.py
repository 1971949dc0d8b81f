"""What a scan returns at each time, from blocks and memory, and how little of a block it reads for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from nyala.replica.rows import Conditions, Predicate, RowOp, ScanSpec, never_stop
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.scan import pieces
from nyala.replica.types import Code, Refused, limits
from tests.harness.hash_twin import key_hash_one
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import INT_SCHEMA, Twin, rows_of, superblock, write_entry

NAMES = ["k", "v", "s", "r"]
ROWS = 4096


def write(tablet: Tablet, index: int, op: int, keys: range | tuple[int, ...], **more: Any) -> list[dict[str, Any]]:
    """Write rows of these keys at the hybrid time 1000 * index; return them."""
    rows = [
        {"op": op, "offset": 100_000 * index + n, "k": k, "v": index, "s": f"{k}:{index}", "r": -k, **more}
        for n, k in enumerate(keys)
    ]
    tablet.apply([write_entry(index, INT_SCHEMA, NAMES, rows)])
    return rows


@pytest.mark.deep
def test_scan_returns_what_the_twin_has_at_each_time_in_each_slice_within_each_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: a scan and a count are of exactly the rows that are visible, and are cut where they are asked to be.
    Method: two blocks and three batches in memory, with rows that were changed and deleted inside of a block, over
    blocks and over memory, read in pieces of 3 rows; each time between, slices, limits and conditions, against the slow
    twin."""
    monkeypatch.setattr(limits, "SCAN_PIECE_ROWS_MAX", 3)
    disk, twin = SimDisk(), Twin(INT_SCHEMA)
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    steps: list[tuple[RowOp, range | tuple[int, ...]] | None] = [
        (RowOp.INSERT, range(10)),
        (RowOp.UPSERT, (2, 3, 4)),
        None,
        (RowOp.INSERT, range(10, 15)),
        (RowOp.DELETE, (0, 10)),
        None,
        (RowOp.UPSERT, (5, 11, 15, 16, 18, 19, 20)),
        (RowOp.DELETE, (15, 1, 19)),
        (RowOp.INSERT, (0, 17)),
    ]
    index = 0
    for step in steps:
        if step is None:
            tablet.flush()
            continue
        index += 1
        for row in write(tablet, index, *step):
            assert twin.apply_row(NAMES, row, 1000 * index) is None
    conditions: list[tuple[tuple[Predicate, ...], Callable[[dict[str, Any]], bool]]] = [
        ((), lambda row: True),
        ((Predicate("k", ">=", (4,)),), lambda row: row["k"] >= 4),
        ((Predicate("k", "in", (0, 5, 16)),), lambda row: row["k"] in (0, 5, 16)),
        ((Predicate("v", "=", (1,)), Predicate("r", "<", (-4,))), lambda row: row["v"] == 1 and row["r"] < -4),
    ]
    for time in (999, 1000, *(1000 * i + more for i in range(2, index + 1) for more in (0, 999))):
        for slices in (1, 2):
            for pos in range(slices):
                for predicates, holds in conditions:
                    asked = {"predicates": predicates, "snapshot_time": time, "slice": (pos, slices)}
                    rows = [
                        row
                        for row in twin.at(time)
                        if holds(row)
                        and (key_hash_one([row["k"]], [INT_SCHEMA.columns[0].type]) & (1 << 32) - 1) * slices >> 32
                        == pos
                    ]
                    assert rows_of(tablet.scan(**asked), INT_SCHEMA) == rows, asked
                    for limit in {0, 1, len(rows), len(rows) + 1}:
                        most = min(limit, len(rows)) if limit else len(rows)
                        batches = list(tablet.scan(limit=limit, **asked))
                        assert all(batch.num_rows for batch in batches)
                        found = [row for batch in batches for row in batch.to_pylist()]
                        assert len(found) == most and all(row in rows for row in found), (asked, limit)
                        (count,) = tablet.scan(limit=limit, count_only=True, **asked)
                        assert count.to_pylist() == [{"count": most}], (asked, limit)
    disk.close()


class Steps:
    """Counts the steps of a scan: each block, each piece, each search, and each page that is checked."""

    def __init__(self, tablet: Tablet) -> None:
        self._tablet = tablet

    def of(self, columns: list[str] | None = None, **asked: Any) -> int:
        """The number of steps of one scan."""
        seen: list[None] = []
        for _ in self._tablet.scan(columns, stop=lambda: seen.append(None), **asked):
            pass
        return len(seen)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Tablet:
    """Two blocks of 10 and 6 rows, all visible, read in pieces of 2 rows. Each file has one page."""
    monkeypatch.setattr(limits, "SCAN_PIECE_ROWS_MAX", 2)
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(10))
    tablet.flush()
    write(tablet, 2, RowOp.INSERT, range(10, 16))
    tablet.flush()
    return tablet


def test_scan_reads_no_block_that_is_younger_than_its_time(small: Tablet) -> None:
    """Goal: the cost of a read of the past is that of the past. Method: before both blocks, a step for each; between
    them, the first one's pieces."""
    assert Steps(small).of(snapshot_time=999, count_only=True) == 2
    assert Steps(small).of(snapshot_time=1999, count_only=True) == 2 + 5


def test_count_of_blocks_that_are_wholly_visible_reads_no_page(small: Tablet) -> None:
    """Goal: a count without conditions reads neither keys nor times nor columns. Method: a step for each block and each
    piece, and no more; with a slice, the page with the key of each block too."""
    steps = Steps(small)
    assert steps.of(count_only=True) == 2 + 5 + 3
    assert steps.of(count_only=True, slice=(0, 2)) == 2 + 5 + 3 + 2


def test_scan_ends_where_its_limit_is_reached(small: Tablet) -> None:
    """Goal: a limit bounds the work, too. Method: the steps up to a block's second piece; no third."""
    steps = Steps(small)
    for limit in (3, 4):
        assert steps.of(limit=limit, count_only=True) == 1 + 2
        assert steps.of(limit=limit) == 1 + 2 + 1, "the block's one page is checked"
    assert steps.of(limit=5, count_only=True) == 1 + 3


def test_scan_can_be_stopped_before_each_piece_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the work of a scan whose caller left ends within a piece. Method: 5 rows in memory, in pieces of 2."""
    monkeypatch.setattr(limits, "SCAN_PIECE_ROWS_MAX", 2)
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(5))
    assert Steps(tablet).of(count_only=True) == 3


def test_piece_has_a_mask_only_if_it_has_a_row_that_is_not_visible(small: Tablet) -> None:
    """Goal: rows that are all visible are not copied, and those of which none is visible are not looked at. Method: the
    second row of a block is deleted, and the whole second piece of another block."""
    write(small, 3, RowOp.DELETE, (1, 12, 13))
    view, at = small._view(None)
    asked = ScanSpec(snapshot_time=at, count_only=True)
    found = [
        (piece.batch.column(0).to_pylist(), None if piece.mask is None else piece.mask.tolist())
        for piece in pieces(view, asked, Conditions((), INT_SCHEMA.arrow, never_stop))
    ]
    assert found == [
        ([0, 1], [True, False]),
        ([2, 3], None),
        ([4, 5], None),
        ([6, 7], None),
        ([8, 9], None),
        ([10, 11], None),
        ([14, 15], None),
    ]


def test_scan_reads_only_the_pages_of_the_columns_that_it_needs() -> None:
    """Goal: the cost of a read follows the columns and rows that are asked for. Method: a block of 4,096 rows with
    texts of 1,000 bytes, so of 63 pages of texts; what each question reads."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(ROWS), s="x" * 1000)
    tablet.flush()
    steps = Steps(tablet)
    texts = ROWS * 1000 // 65536
    assert steps.of(["r"], count_only=True) == steps.of(count_only=True) < steps.of(["r"]) < texts
    assert steps.of(["s"]) > texts
    assert steps.of(["r"]) < steps.of(["r"], slice=(0, 2)) < texts, "a slice needs the key"
    assert steps.of(["s"], predicates=[Predicate("k", "<", (ROWS // 2,))]) < texts


def test_scan_of_far_apart_rows_of_a_block_leaves_out_those_that_are_not_visible() -> None:
    """Goal: each range of rows has its own part of the mask. Method: two keys at the ends of a block in which rows were
    changed: now, and before the change; and a key that is not there."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(5 * ROWS))
    write(tablet, 2, RowOp.UPSERT, (100, 5 * ROWS - 100))
    tablet.flush()
    wanted = [Predicate("k", "in", (100, 5 * ROWS - 100))]
    for time, version in ((None, 2), (1999, 1)):
        found = rows_of(tablet.scan(["k", "v"], wanted, time), INT_SCHEMA)
        assert found == [{"k": 100, "v": version}, {"k": 5 * ROWS - 100, "v": version}]
    assert rows_of(tablet.scan(["k"], [Predicate("k", "=", (5 * ROWS,))]), INT_SCHEMA) == []


def test_scan_by_key_passes_over_a_block_of_deletions_alone() -> None:
    """Goal: a block without rows, which has only what was superseded elsewhere, answers nothing. Method: rows, a flush,
    a deletion, a flush; a range of keys, now and before."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(5))
    tablet.flush()
    write(tablet, 2, RowOp.DELETE, (3,))
    tablet.flush()
    assert [block.rows for block in tablet.superblock.blocks] == [5, 0]
    wanted = [Predicate("k", ">=", (2,))]
    assert rows_of(tablet.scan(["k"], wanted), INT_SCHEMA) == [{"k": 2}, {"k": 4}]
    assert rows_of(tablet.scan(["k"], wanted, 1999), INT_SCHEMA) == [{"k": 2}, {"k": 3}, {"k": 4}]


@pytest.mark.parametrize("slices", [(0, 1), (0, 2)])
def test_scan_without_columns_is_refused_unless_it_counts(slices: tuple[int, int]) -> None:
    """IN-82. Goal: a request for no columns is refused, and neither answered without the rows that are there, nor ended
    by an exception of Arrow. Method: rows in memory, a scan of all of them and of a slice; the count of the same."""
    tablet = Tablet.create(SimDisk(), superblock(INT_SCHEMA))
    write(tablet, 1, RowOp.INSERT, range(20))
    with pytest.raises(Refused) as refused:
        tablet.scan((), slice=slices)
    assert refused.value.code is Code.INVALID_ARGUMENT and "name a column" in str(refused.value)
    counts = [next(iter(tablet.scan((), slice=(pos, slices[1]), count_only=True))) for pos in range(slices[1])]
    assert sum(count.column(0)[0].as_py() for count in counts) == 20
