"""Blocks that change on disk under an open tablet: a scan returns what was flushed, or nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.fs import RealDisk
from nyala.replica.rows import ColumnType, Predicate, crc32c
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.tablet.page_crcs import PAGE_BYTES, PageCrcs
from nyala.replica.types import Corruption
from tests.harness.rot import flip
from tests.harness.tablet_twin import INT_SCHEMA, superblock, write_entry

ROWS = 30_000
COLUMNS = ["k", "v", "s", "r"]
MASK = 0x40


@pytest.fixture(scope="module")
def flushed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tablet]:
    """(block file, open tablet): rows of some thirty pages, one in five of them superseded in the file itself."""
    root = tmp_path_factory.mktemp("rot")
    disk = RealDisk(root)
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    inserts = [
        {"op": 1, "offset": k, "k": k, "v": None if k % 3 else k, "s": f"row {k:06d} " * (k % 4), "r": k ^ 7}
        for k in range(ROWS)
    ]
    tablet.apply([write_entry(1, INT_SCHEMA, COLUMNS, inserts)])
    updates = [{"op": 3, "offset": ROWS + k, "k": k, "r": -k} for k in range(0, ROWS, 5)]
    tablet.apply([write_entry(2, INT_SCHEMA, ["k", "r"], updates)])
    result = tablet.flush()
    assert result is not None
    path = root / result.blocks[0]
    assert path.stat().st_size > 8 * PAGE_BYTES
    return path, tablet


def rows_of(tablet: Tablet, *columns: str, **how: Any) -> Any:
    """A table: rotten strings are compared by their bytes, and never decoded."""
    scan = tablet.scan(list(columns), **how)
    return pa.Table.from_batches(list(scan), schema=scan.schema)


@pytest.mark.a_third
@pytest.mark.parametrize("columns", [tuple(COLUMNS), ("v",), ("s",), ("r",)], ids=" ".join)
def test_scan_of_a_block_with_any_page_changed_is_right_or_corruption(
    columns: tuple[str, ...], flushed: tuple[Path, Tablet]
) -> None:
    """TC-51, scenario 158: reads never return rot. Method: a byte here and there, three in each page and those at the
    page's ends, is another one under an open tablet; each scan yields the rows of before or names the file and the
    place. Where the scan reads nothing it goes on: not every damage is the end of every read."""
    path, tablet = flushed
    before = rows_of(tablet, *columns)
    size, seen = path.stat().st_size, {"right": 0, "corruption": 0}
    inside = (0, 1, PAGE_BYTES // 3, PAGE_BYTES // 2, PAGE_BYTES - 1)
    for at in (page + offset for page in range(0, size, PAGE_BYTES) for offset in inside if page + offset < size):
        flip(path, at, MASK)
        try:
            assert rows_of(tablet, *columns).equals(before), at
            seen["right"] += 1
        except Corruption as error:
            page = at // PAGE_BYTES * PAGE_BYTES
            assert path.name in str(error) and f"bytes={page} to " in str(error), error
            seen["corruption"] += 1
        finally:
            flip(path, at, MASK)
    assert seen["corruption"] > 0 and (seen["right"] > 0 or len(columns) == len(COLUMNS))
    assert rows_of(tablet, *columns).equals(before)


def test_rot_hides_no_row_from_a_predicate_a_slice_or_a_count(flushed: tuple[Path, Tablet]) -> None:
    """TC-51, scenario 158. Goal: scenario 158: damage in data that only selects rows hides no row. Method: each byte's
    page is spoilt in turn; a predicate on the key by which blocks are left out, a slice of the hash space, a count:
    right, or Corruption. Then the block's last key becomes a small one, and the block is not left out for that; nor is
    a row that is searched for, when another key stands in the place of its own."""
    path, tablet = flushed
    questions: list[dict[str, Any]] = [
        {"predicates": (Predicate("k", ">=", (ROWS - 5,)),)},
        {"predicates": (Predicate("r", "<", (0,)),), "count_only": True},
        {"slice": (1, 3), "count_only": True},
        {"count_only": True},
    ]
    before = [rows_of(tablet, "r", **question) for question in questions]
    assert [b.num_rows for b in before] == [5, 1, 1, 1]
    corrupt = [0] * len(questions)
    for page in range(0, path.stat().st_size, PAGE_BYTES):
        last = min(page + PAGE_BYTES, path.stat().st_size)
        for at in range(page, last, 4096):
            flip(path, at + min(7, last - 1 - at), 0xC0)
        for number, question in enumerate(questions):
            try:
                assert rows_of(tablet, "r", **question).equals(before[number])
            except Corruption:
                corrupt[number] += 1
        for at in range(page, last, 4096):
            flip(path, at + min(7, last - 1 - at), 0xC0)
    assert min(corrupt) > 0
    for question, rows in zip(questions, before, strict=True):
        assert rows_of(tablet, "r", **question).equals(rows)

    last_key = path.read_bytes().find((ROWS - 1).to_bytes(8, "little"))
    flip(path, last_key + 1, MASK)
    with pytest.raises(Corruption):
        rows_of(tablet, "r", **questions[0])
    flip(path, last_key + 1, MASK)

    wanted = {"predicates": (Predicate("k", "=", (ROWS - 7,)),)}
    assert rows_of(tablet, "r", **wanted).num_rows == 1
    its_key = path.read_bytes().find((ROWS - 7).to_bytes(8, "little"))
    flip(path, its_key, MASK)
    with pytest.raises(Corruption):
        rows_of(tablet, "r", **wanted)
    flip(path, its_key, MASK)


def test_block_opened_unread_is_checked_before_its_first_row_is_served(tmp_path: Path) -> None:
    """TC-51. Goal: blocks of a copy, which are opened without being read, are checked before their first row is served.
    Method: opened so, spoilt before the first scan and, a second time, after it."""
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "r"], [{"op": 1, "offset": k, "k": k, "r": 7} for k in range(300)])])
    tablet.flush()
    tablet.close()
    record = Superblock.load(disk, tablet.tablet_id)
    path = tmp_path / record.blocks[0].name
    early = Tablet.open(disk, record, verify=False)
    flip(path, path.stat().st_size // 2, MASK)
    with pytest.raises(Corruption, match=r"CRC-32C"):
        early.checksum()
    flip(path, path.stat().st_size // 2, MASK)
    before = early.checksum()
    assert before[1] == 300
    flip(path, 700, MASK)
    with pytest.raises(Corruption, match=r"has changed since"):
        early.checksum()
    flip(path, 700, MASK)
    assert early.checksum() == before


def test_crcs_of_pages_do_not_depend_on_the_pieces_that_a_file_comes_in() -> None:
    """Goal: the CRCs of pages are the same however the file was cut when it was written. Method: random cuts, a last
    page of any length."""
    rng = np.random.default_rng(5)
    for size in (0, 1, 7, PAGE_BYTES - 1, PAGE_BYTES, PAGE_BYTES + 1, 3 * PAGE_BYTES + 12345):
        data = rng.bytes(size)
        pages = [crc32c(data[at : at + PAGE_BYTES]) for at in range(0, size, PAGE_BYTES)]
        for _ in range(5):
            whole, cuts = PageCrcs(), sorted(rng.integers(0, size + 1, 6).tolist())
            for low, high in zip([0, *cuts], [*cuts, size], strict=True):
                whole.update(data[low:high])
            assert whole.finish() == pages, (size, cuts)


@pytest.mark.parametrize("wrong", ["name", "type"])
def test_block_without_the_columns_of_its_superblocks_schema_is_corrupt(wrong: str, tmp_path: Path) -> None:
    """IN-21: a superblock whose schema has a column that a block has not, or has with another type, names the block and
    the column. So the replica is healed by a copy like after any other damage."""
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    tablet.apply([write_entry(1, INT_SCHEMA, COLUMNS, [{"op": 1, "offset": 0, "k": 1, "v": 1, "s": "a", "r": 1}])])
    tablet.flush()
    tablet.close()
    found = Superblock.load(disk, superblock(INT_SCHEMA).tablet_id)
    (schema,) = found.table_schemas
    old = schema.columns[-1]
    new = replace(old, name="other") if wrong == "name" else replace(old, type=ColumnType.STRING)
    other = replace(schema, columns=(*schema.columns[:-1], new))
    with pytest.raises(Corruption, match=rf"has not the columns.*column={new.name}"):
        Tablet.open(disk, replace(found, table_schemas=(other,)))
    Tablet.open(disk, found).close()
