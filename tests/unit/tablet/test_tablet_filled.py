"""The values that a batch leaves out, and every replica fills in, are bounded before the batch gets a place in the
log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.client.batching import wire_batches
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema, crc32c, encode_batch
from nyala.replica.tablet import Tablet
from nyala.replica.tablet.write_checks import check_filled
from nyala.replica.types import Code, Refused, limits
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import superblock

DEFAULT = "d" * 100_000
LONG = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="text", type=ColumnType.STRING, nullable=False, default=DEFAULT),
    ),
    ("k",),
)
WIDE = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        *(Column(id=n, name=f"c{n}", type=ColumnType.DECIMAL, precision=38, scale=2) for n in range(2, 301)),
    ),
    ("k",),
)
MOST = {"long": limits.BATCH_FILLED_BYTES_MAX // 100_004, "wide": limits.BATCH_FILLED_BYTES_MAX // (299 * 16)}
SCHEMAS = {"long": LONG, "wide": WIDE}


def checked(schema: TableSchema, rows: int, op: RowOp, ids: tuple[int, ...] = (1,), text: str | None = "t") -> Any:
    """A batch of keys alone, or with `text`, as the leader checks it before it gets an index. No text means that nulls
    leave the column as it is."""
    texts = [pa.array([text] * rows, pa.string())] if ids == (1, 2) else []
    arrays = [pa.array(range(rows)), *texts, pa.array(np.full(rows, int(op), np.uint8)), pa.array(range(rows))]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema.wire_schema(ids))
    payload = encode_batch(batch)
    return Tablet.create(SimDisk(), superblock(schema)).check_write(
        1, ids, payload, crc32c(payload), rows, ignore_null=text is None
    )


@pytest.mark.parametrize("name", SCHEMAS)
def test_small_batch_that_becomes_a_large_one_is_refused_before_it_is_in_the_log(name: str) -> None:
    """IN-60. Goal: a batch of some kilobytes that defaults would make very large is refused before it is in the log.
    Method: keys alone, of a table with a default of 100 KB or with 299 wide columns: up to the bound a batch is taken,
    with one row more it is refused with the number of rows; deletions, which fill nothing in, are taken."""
    schema, most = SCHEMAS[name], MOST[name]
    for op in (RowOp.INSERT, RowOp.UPSERT, RowOp.UPDATE):
        assert checked(schema, most, op).num_rows == most
        with pytest.raises(Refused) as refused:
            checked(schema, most + 1, op)
        assert refused.value.code is Code.TOO_LARGE and f"at most {most} rows" in str(refused.value)
    assert checked(schema, most + 1, RowOp.DELETE).num_rows == most + 1


def test_only_rows_that_are_filled_count() -> None:
    """IN-60. Goal: deletions do not use up the bound of the rows beside them. Method: as many inserts as the bound
    allows, and one more, beside a deletion of each sort."""
    most = MOST["long"]
    for inserts in (most, most + 1):
        ops = np.array([RowOp.INSERT] * inserts + [RowOp.DELETE, RowOp.DELETE_IGNORE], np.uint8)
        batch = pa.RecordBatch.from_arrays(
            [pa.array(range(len(ops))), pa.array(ops), pa.array(range(len(ops)))], schema=LONG.wire_schema((1,))
        )
        if inserts == most:
            check_filled(LONG, (1,), batch, ignore_null=False)
        else:
            with pytest.raises(Refused, match=f"rows={inserts}"):
                check_filled(LONG, (1,), batch, ignore_null=False)


def test_batch_that_gives_the_column_is_not_bounded_by_its_default() -> None:
    """Goal: a default counts only for rows that leave the column out. Method: more rows than the bound allows, each
    with a text of its own."""
    assert checked(LONG, 2 * MOST["long"], RowOp.INSERT, (1, 2)).num_rows == 2 * MOST["long"]


def test_nulls_that_leave_a_column_as_it_is_are_bounded_by_its_default() -> None:
    """IN-60. Goal: a null that leaves a column as it is counts with the column's default, because the row may be new.
    Method: `ignore_null`, with nulls in a column with a default of 100 KB, up to the bound and with one row more; the
    client cuts such rows."""
    most = MOST["long"]
    assert checked(LONG, most, RowOp.UPSERT, (1, 2), None).num_rows == most
    with pytest.raises(Refused, match=f"at most {most} rows"):
        checked(LONG, most + 1, RowOp.UPSERT, (1, 2), None)
    handle = TableHandle("i", "t", LONG, PartitionSpec(("k",), 1), 1, 0, 0, tablets=(TabletHandle("t", 0, 0, 0),))
    rows = pa.RecordBatch.from_arrays([pa.array(range(3 * most)), pa.nulls(3 * most, pa.string())], names=["k", "text"])
    assert [len(list(wire_batches(handle, rows, RowOp.UPSERT, ignore_null=mark))) for mark in (False, True)] == [1, 3]


@pytest.mark.parametrize("name", SCHEMAS)
def test_client_cuts_its_batches_as_servers_take_them(name: str) -> None:
    """IN-60. Goal: a client cuts its writes so that no batch exceeds the bound. Method: three times as many keys as one
    batch may have, in one write: every batch passes the leader's check, and every row is in one of them."""
    schema, rows = SCHEMAS[name], 3 * MOST[name]
    handle = TableHandle("i", "t", schema, PartitionSpec(("k",), 1), 1, 0, 0, tablets=(TabletHandle("t", 0, 0, 0),))
    tablet = Tablet.create(SimDisk(), superblock(schema))
    keys = pa.RecordBatch.from_arrays([pa.array(range(rows))], names=["k"])
    sent = 0
    for part in wire_batches(handle, keys, RowOp.UPSERT):
        sent += tablet.check_write(1, part.column_ids, part.payload, part.payload_crc, part.rows).num_rows
    assert sent == rows
