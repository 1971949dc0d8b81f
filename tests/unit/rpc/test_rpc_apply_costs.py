"""What batches that the leader lets through cost the threads that check and apply them, in steps, beside what is
stated."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client.pruning import positions
from nyala.replica.fs import RealDisk
from nyala.replica.rows import (
    Column,
    ColumnType,
    PartitionSpec,
    Predicate,
    RowOp,
    TableSchema,
    WriteMeta,
    crc32c,
    encode_batch,
    hashing,
    route,
)
from nyala.replica.tablet import Given, Tablet
from nyala.replica.types import Entry, EntryKind, OpId, limits
from tests.harness.tablet_twin import SOURCE, superblock
from tests.unit.rpc.test_rpc_thread_costs import Spent, spent

LONG = 270_000
"""Bytes of a value so long that batches in memory are not merged: 32 of them have more than 8 MiB."""
VALUE, TEXT = 301, 302


def schema_of(keys: int, values: int) -> TableSchema:
    """A key of so many columns, a binary column, a text, and so many numbers."""
    of_key = [
        Column(id=n, name=f"k{n}", type=ColumnType.INT64 if n == 1 else ColumnType.INT8, nullable=False)
        for n in range(1, keys + 1)
    ]
    long = Column(id=VALUE, name="v", type=ColumnType.BINARY)
    others = [Column(id=TEXT + n, name=f"c{n}", type=ColumnType.INT8) for n in range(values)]
    return TableSchema(1, (*of_key, long, *others), tuple(column.name for column in of_key))


class Leader:
    """A tablet whose rows lie in as many batches in memory as there are rows, and what its leader asks of a batch."""

    def __init__(self, root: Path, keys: int, values: int, places: int) -> None:
        disk = RealDisk(root)
        disk.mkdir("tablet-meta")
        self.schema, self.index, self.offset = schema_of(keys, values), 0, 0
        self.tablet = Tablet.create(disk, superblock(self.schema))
        long = pa.array([b"x" * (LONG if places > 1 else 1)], pa.binary())
        for number in range(places):
            entry, _ = self.entry(np.array([number]), RowOp.UPSERT, {VALUE: long})
            self.tablet.apply([entry])

    def entry(self, numbers: Any, op: RowOp, values: dict[int, Any]) -> tuple[Entry, WriteMeta]:
        """Rows whose keys differ in their first column."""
        rows, key = len(numbers), self.schema.key_columns
        ids = (*(column.id for column in key), *values)
        arrays = [pa.array(numbers), *[pa.array(np.zeros(rows, np.int8))] * (len(key) - 1), *values.values()]
        arrays += [pa.array([int(op)] * rows, pa.uint8()), pa.array(np.arange(rows) + self.offset)]
        payload = encode_batch(pa.RecordBatch.from_arrays(arrays, schema=self.schema.wire_schema(ids)))
        may_grow = self.schema.left_out(ids, False).may_grow
        meta = WriteMeta(column_ids=ids, rows=rows, source=SOURCE, rows_bounded=may_grow)
        self.index, self.offset = self.index + 1, self.offset + rows
        opid = OpId(1, self.index)
        return Entry(opid, EntryKind.WRITE, 1000 * self.index, 1, meta.encode(), payload, crc32c(payload)), meta

    def check(self, entry: Entry, meta: WriteMeta) -> None:
        """Refused if the leader refuses the batch."""
        size = len(entry.payload)
        batch = self.tablet.check_write(1, meta.column_ids, entry.payload, entry.payload_crc, meta.rows)
        given = Given(meta.column_ids, batch, self.tablet.check_passes(meta, batch, size))
        if self.tablet.may_keep_much(meta):
            self.tablet.check_kept(meta, given, size, [])

    def measured(self, entry: Entry, meta: WriteMeta) -> tuple[Spent, Spent]:
        """What the check and the application of the batch take."""
        checked = spent(lambda stop: self.check(entry, meta))
        return checked, spent(lambda stop: self.tablet.apply([entry]))


class Case(NamedTuple):
    keys: int
    """Columns of the key."""
    values: int
    """Columns of numbers."""
    places: int
    """Batches in memory, each with one row."""
    passes: int
    """How often the batch has each of these rows."""
    op: RowOp
    fresh: int = 0
    """Rows of the batch that are new."""


CASES = {
    "rows that all fail": Case(1, 0, 1, 1, RowOp.UPDATE, fresh=60_000),
    "one row as often as it may come": Case(2, 27, 1, 450, RowOp.UPDATE),
    "one row that exists as often as it may come": Case(2, 27, 1, 1000, RowOp.INSERT),
    "rows at many places many times": Case(2, 0, 60, 60, RowOp.INSERT),
    "keys of many columns at many places": Case(290, 0, 60, 8, RowOp.INSERT),
    "one row of many columns": Case(2, 297, 1, 100, RowOp.UPDATE),
    "many columns that stay at many places": Case(2, 297, 60, 1, RowOp.UPDATE),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", CASES, ids=lambda name: name.replace(" ", "-"))
def test_batch_takes_no_more_steps_of_a_thread_than_is_stated(name: str, tmp_path: Path) -> None:
    """IN-60. Goal: no batch that the leader lets through holds a tablet for long. Method: batches that multiply what
    bounds there are: rows, passes over the rows of one key, columns, and places of the stored rows; the steps of the
    leader's check and of the application are counted."""
    case = CASES[name]
    leader = Leader(tmp_path, case.keys, case.values, case.places)
    stored = np.tile(np.arange(case.places), case.passes)
    entry, meta = leader.entry(np.concatenate([stored, case.places + np.arange(case.fresh)]), case.op, {})
    checked, applied = leader.measured(entry, meta)
    columns, places = len(leader.schema.columns), case.places * case.passes
    most = limits.THREADS["check of a write"].most(columns=columns, kib_of_keys=len(entry.payload) >> 10)
    assert checked.steps <= most, checked
    most = limits.THREADS["apply of a write"].most(
        rows=meta.rows,
        passes=case.passes,
        columns_of_passes=columns * case.passes,
        places=places,
        reads=places * case.keys,
        kept_columns_of_places=case.places * (columns - case.keys),
    )
    assert applied.steps <= most, f"{applied} of {most}"


KEY = TableSchema(
    1, tuple(Column(id=n, name="_kl"[n], type=ColumnType.BINARY, nullable=False) for n in (1, 2)), ("k", "l")
)
SPLIT = PartitionSpec(("k", "l"), 4, 1, "k", (b"m",))


def tablet_of(root: Path, schema: TableSchema) -> Tablet:
    disk = RealDisk(root)
    disk.mkdir("tablet-meta")
    return Tablet.create(disk, superblock(schema))


def check_keys(tablet: Tablet, schema: TableSchema, columns: list[list[bytes]]) -> int:
    """Check a batch of these keys as a leader does; returns its bytes."""
    rows, ids = len(columns[0]), tuple(column.id for column in schema.key_columns)
    arrays = [*map(pa.array, columns), pa.array([0] * rows, pa.uint8()), pa.array(np.arange(rows))]
    payload = encode_batch(pa.RecordBatch.from_arrays(arrays, schema=schema.wire_schema(ids)))
    batch = tablet.check_write(1, ids, payload, crc32c(payload), rows)
    tablet.check_passes(WriteMeta(column_ids=ids, rows=rows, source=SOURCE), batch, len(payload))
    return len(payload)


def get_keys(tablet: Tablet, schema: TableSchema, columns: list[list[bytes]]) -> None:
    """Look these keys up as a server does."""
    keys = tablet.keys(encode_batch(pa.record_batch([pa.array(c, pa.binary()) for c in columns], list(schema.key))))
    assert not tablet.get(keys)[0].batch.num_rows


WAYS_IN: dict[str, Callable[[Tablet, list[list[bytes]]], object]] = {
    "a write": lambda tablet, columns: check_keys(tablet, KEY, columns),
    "a get": lambda tablet, columns: get_keys(tablet, KEY, columns),
    "rows that are sent to tablets": lambda tablet, columns: route(pa.record_batch(columns, ["k", "l"]), KEY, SPLIT),
    "a condition": lambda tablet, columns: positions(
        KEY, SPLIT, [Predicate(name, "=", (values[-1],)) for name, values in zip(KEY.key, columns, strict=True)]
    ),
}


@pytest.mark.parametrize("way", WAYS_IN, ids=lambda way: way.replace(" ", "-"))
def test_no_more_of_a_key_is_hashed_than_a_key_may_have(way: str, tmp_path: Path) -> None:
    """IN-60. Goal: a key that is far too long costs no more to hash than the longest one that can be stored, wherever
    it comes in. Method: both columns of the last key have a quarter of a megabyte; the lines that the hash executes are
    counted, five for each word of eight bytes that is mixed alone."""
    tablet, rows, lines = tablet_of(tmp_path, KEY), limits.BATCH_PASSES_MAX, 0
    columns = [[b"%d" % n for n in range(rows)] + [b"x" * (1 << 18)]] * 2

    def line(frame: Any, event: str, what: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return line

    sys.settrace(lambda frame, event, what: line if frame.f_code.co_filename == hashing.__file__ else None)
    try:
        WAYS_IN[way](tablet, columns)
    finally:
        sys.settrace(None)
    assert 0 < lines <= 5 * limits.KEY_SIZE_BYTES_MAX // 8 + 2000, lines


def test_keys_of_any_length_are_checked_within_the_bound(tmp_path: Path) -> None:
    """IN-60. Goal: a batch with keys that are far too long costs no more than is stated. Method: as many rows as are
    hashed before their lengths are known; 33 keys have a quarter of a megabyte each."""
    schema = TableSchema(1, (Column(id=1, name="k", type=ColumnType.BINARY, nullable=False),), ("k",))
    tablet, size_bytes = tablet_of(tmp_path, schema), 0
    values = [b"x" * 240_000] * 33 + [b"%d" % n for n in range(limits.BATCH_PASSES_MAX)]

    def check(stop: Any) -> None:
        nonlocal size_bytes
        size_bytes = check_keys(tablet, schema, [values])

    found = spent(check)
    most = limits.THREADS["check of a write"].most(columns=1, kib_of_keys=size_bytes >> 10)
    assert found.steps <= min(most, 2 * limits.REQUEST_STEPS), f"{found} of {most}"
