"""Where a scan cuts: by the bytes that rows really have, in the columns that it reads."""

from __future__ import annotations

from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.fs import RealDisk
from nyala.replica.rows import Column, ColumnType, TableSchema
from nyala.replica.rpc.call_costs import reply_cost
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.columns import select
from nyala.replica.tablet.cuts import RunSizes, runs
from nyala.replica.types import limits
from tests.harness.spent import peak_bytes
from tests.harness.tablet_twin import INT_SCHEMA, schema_entry, superblock, write_entry

GIANT = "x" * (limits.ROW_SIZE_BYTES_MAX - 100)
WIDER = TableSchema(
    2,
    (
        *INT_SCHEMA.columns,
        Column(id=5, name="note", type=ColumnType.STRING, nullable=False, default="n" * 400),
        Column(id=6, name="flag", type=ColumnType.BOOL),
    ),
    ("k",),
)

LENGTHS = st.lists(
    st.tuples(st.sampled_from([0, 1, 20, 5000, 200_000, 1_000_000]), st.integers(1, 40)), min_size=1, max_size=8
)
"""Runs of texts of one length: (length, how many)."""


def rows_of(lengths: list[int], offset: int) -> Any:
    """A batch of INT_SCHEMA, as a slice that does not begin where its buffers do."""
    lengths = [7] * offset + lengths
    ends = pa.py_buffer(np.cumsum([0, *lengths], dtype=np.int32))
    columns = [
        pa.array(range(len(lengths)), pa.int64()),
        pa.array([None if n % 3 == 0 else n for n in range(len(lengths))], pa.int32()),
        pa.StringArray.from_buffers(len(lengths), ends, pa.py_buffer(bytes(sum(lengths)))),
        pa.array(range(len(lengths)), pa.int32()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INT_SCHEMA.arrow).slice(offset)


@pytest.mark.deep
@settings(max_examples=200, deadline=None)
@given(shape=LENGTHS, offset=st.integers(0, 9), ids=st.sets(st.sampled_from([1, 2, 3, 4, 5, 6])))
def test_every_run_is_as_long_as_it_may_be(shape: list[tuple[int, int]], offset: int, ids: set[int]) -> None:
    """IN-60. Goal: a scan's piece of rows is bounded for values of any lengths in any order. Method: texts of 0 to
    1,000,000 bytes side by side, any columns of a schema that has two more than the rows: the runs are all rows in
    their order, each has at most SCAN_BATCH_BYTES, counted by Arrow, or is one row, and one row more would be too
    much."""
    batch = rows_of([length for length, count in shape for _ in range(count)], offset)
    names = [c.name for c in WIDER.columns if c.id in ids]

    def counted(start: int, end: int) -> int:
        # Arrow counts one offset more than there are rows, and whole bytes of bits.
        spare = 6 * len(names)
        return max(0, int(select(batch.slice(start, end - start), INT_SCHEMA, WIDER, names).nbytes) - spare)

    found = list(runs(RunSizes(batch, INT_SCHEMA, WIDER, ids), 0, batch.num_rows))
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])] and found[-1][1] == batch.num_rows
    for start, end in found:
        assert end - start == 1 or counted(start, end) <= limits.SCAN_BATCH_BYTES
    for (start, _), (_, after) in pairwise(found):
        assert after - start > 1 and counted(start, after) + 12 * len(names) > limits.SCAN_BATCH_BYTES


@pytest.mark.parametrize("ids", [{1}, {2}, {3}, {4}, {1, 2, 3, 4}], ids=str)
def test_size_of_rows_is_what_arrow_takes_for_them(ids: set[int]) -> None:
    """Goal: a piece has as many rows as fit, and no more. Method: the sizes of whole bytes of rows, in each column and
    in all, against Arrow's own count."""
    lengths = [0, 5, 300, 1, 1, 70_000, 2, 9] * 4
    for first in (0, 8):
        batch = rows_of(lengths, first)
        names = [c.name for c in INT_SCHEMA.columns if c.id in ids]
        sizes = RunSizes(batch, INT_SCHEMA, INT_SCHEMA, ids)
        for start, end in ((0, 8), (0, 32), (8, 24), (16, 16)):
            taken = pa.RecordBatch.from_pylist(batch.slice(start, end - start).to_pylist(), schema=INT_SCHEMA.arrow)
            assert sizes.of(start, end) == taken.select(names).nbytes, (start, end)


def test_size_of_rows_with_one_null_or_a_default_is_no_less_than_arrow_takes() -> None:
    """Goal: what a scan makes counts too. Method: a column with one null; a text and a null that a later column fills
    in, which may count for eight bytes a row more."""
    rows = [{"k": n, "v": n or None, "s": "", "r": n} for n in range(8)]
    batch = pa.RecordBatch.from_pylist(rows, schema=INT_SCHEMA.arrow)
    assert RunSizes(batch, INT_SCHEMA, INT_SCHEMA, {2}).of(0, 8) == batch.select(["v"]).nbytes == 33
    for name, column_id in (("note", 5), ("flag", 6)):
        taken = select(batch, INT_SCHEMA, WIDER, [name]).nbytes
        assert taken <= RunSizes(batch, INT_SCHEMA, WIDER, {column_id}).of(0, 8) <= taken + 64


def test_piece_may_have_all_the_bytes_that_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a bound is a bound. Method: rows of eight bytes, of which ten are as many bytes as a piece may have."""
    monkeypatch.setattr(limits, "SCAN_BATCH_BYTES", 80)
    sizes = RunSizes(rows_of([1] * 31, 0), INT_SCHEMA, INT_SCHEMA, {1})
    assert list(runs(sizes, 0, 20)) == [(0, 10), (10, 20)]
    assert list(runs(sizes, 0, 31)) == [(0, 10), (10, 20), (20, 30), (30, 31)]
    assert list(runs(sizes, 5, 7)) == [(5, 7)] and list(runs(sizes, 5, 5)) == []
    monkeypatch.setattr(limits, "SCAN_BATCH_BYTES", 7)
    assert list(islice(runs(sizes, 0, 3), 9)) == [(0, 1), (1, 2), (2, 3)], "a longer row is a piece of its own"


def test_runs_of_small_rows_are_bounded_in_number() -> None:
    """IN-60. Goal: the number of rows in a piece is bounded too, because masks and hashes are made for each row.
    Method: a scan of no column at all, as a count is."""
    rows = 2 * limits.SCAN_PIECE_ROWS_MAX + 1
    batch = pa.RecordBatch.from_arrays([pa.nulls(rows, f.type) for f in INT_SCHEMA.arrow], schema=INT_SCHEMA.arrow)
    ends = [end for _, end in runs(RunSizes(batch, INT_SCHEMA, INT_SCHEMA, ()), 0, rows)]
    assert ends == [limits.SCAN_PIECE_ROWS_MAX, rows - 1, rows]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Tablet:
    """60,000 short rows, 35 giant ones after them by key and nowhere else, all in one block; the mean is 600 bytes."""
    disk = RealDisk(tmp_path_factory.mktemp("mixed"))
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    short = [{"op": 1, "offset": k, "k": k, "s": "s", "r": 0} for k in range(60_000)]
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "s", "r"], short)])
    for index in range(5):
        giant = [
            {"op": 1, "offset": k, "k": k, "s": GIANT, "r": 1} for k in range(60_000 + index * 7, 60_007 + index * 7)
        ]
        tablet.apply([write_entry(2 + index, INT_SCHEMA, ["k", "s", "r"], giant)])
    assert tablet.flush() is not None
    return tablet


@pytest.mark.deep
def test_scan_of_short_rows_and_giant_ones_stays_below_what_a_call_is_charged(mixed: Tablet) -> None:
    """IN-60. Goal: the size of a scan's piece follows the actual rows, so a giant row is a piece of its own. Method: a
    filter copies what it keeps, and a slice keeps half: the peak of Arrow's and Python's memory, over all pieces, is
    below what a call of Scan is charged; so is that of a checksum."""
    bound = limits.REQUESTS["TabletService.Scan"].fixed_bytes + reply_cost(limits.SCAN_CHUNK_BYTES_MAX)
    longest = []

    def read() -> None:
        for batch in mixed.scan(slice=(0, 2)):
            longest.append(batch.nbytes)

    assert peak_bytes(read) < bound
    assert len(longest) > 10 and max(longest) <= limits.SCAN_BATCH_BYTES + 100
    assert peak_bytes(mixed.checksum) < bound


def test_values_that_a_later_column_fills_in_are_counted(tmp_path: Path) -> None:
    """IN-60. Goal: defaults of a later column, which a scan makes for older rows, count for the size of a piece.
    Method: 20,000 rows of some bytes, and a column with a default of 400: no batch is longer than one may be."""
    disk = RealDisk(tmp_path)
    disk.mkdir("tablet-meta")
    tablet = Tablet.create(disk, superblock(INT_SCHEMA))
    rows = [{"op": 1, "offset": k, "k": k, "s": "s", "r": 0} for k in range(20_000)]
    tablet.apply([write_entry(1, INT_SCHEMA, ["k", "s", "r"], rows), schema_entry(2, WIDER)])
    for _ in ("memory", "block"):
        batches = list(tablet.scan())
        assert sum(b.num_rows for b in batches) == 20_000
        assert max(b.nbytes for b in batches) <= limits.SCAN_BATCH_BYTES + 100
        tablet.flush()


@pytest.mark.deep
def test_columns_that_are_not_read_do_not_make_pieces_short(mixed: Tablet) -> None:
    """Goal: columns that a scan does not read do not count for the size of its pieces. Method: `r` beside a text of
    which 35 are 1 MB."""
    assert len(list(mixed.scan(["r"]))) == 1
