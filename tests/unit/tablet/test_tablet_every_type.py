"""Rows of every type in a tablet: applied, flushed, merged, opened again; read as they were written."""

from __future__ import annotations

import operator
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import (
    PartitionSpec,
    Predicate,
    RowOp,
    TableSchema,
    WriteMeta,
    crc32c,
    encode_batch,
    route,
)
from nyala.replica.tablet import Superblock, Tablet
from nyala.replica.types import Entry, EntryKind, OpId
from tests.harness.every_type import KEYS, KINDS, ROW_COUNTS, Kind, same_values, table_schema, values
from tests.harness.sim_disk import SimDisk
from tests.harness.tablet_twin import superblock


def _entry(index: int, schema: TableSchema, array: Any, numbers: Any, op: RowOp = RowOp.UPSERT) -> Entry:
    rows = len(array)
    ops, offsets = pa.array(np.full(rows, int(op), np.uint8)), pa.array(np.arange(rows))
    batch = pa.RecordBatch.from_arrays([array, numbers, ops, offsets], schema=schema.wire_schema((1, 2)))
    payload = encode_batch(batch)
    meta = WriteMeta(column_ids=(1, 2), rows=rows).encode()
    return Entry(OpId(1, index), EntryKind.WRITE, index * 1000, 1, meta, payload, crc32c(payload))


def _scanned(tablet: Tablet, *predicates: Predicate) -> Any:
    """The rows by `n`."""
    batches = list(tablet.scan(predicates=predicates))
    table = pa.Table.from_batches(batches, tablet.schema.arrow).combine_chunks()
    order = pa.array(np.argsort(table["n"].to_numpy()))
    return {n: pa.concat_arrays(table[n].chunks or [pa.array([], table[n].type)]).take(order) for n in ("c", "n")}


@pytest.mark.a_third
@pytest.mark.parametrize("kind", KINDS, ids=operator.attrgetter("name"))
@pytest.mark.parametrize("key", [False, True], ids=["value", "key"])
def test_rows_of_every_type_are_kept_as_they_were_written(kind: Kind, key: bool) -> None:
    """IN-01. Goal: applying, flushing, merging, opening again and summing rows up is right for every type, for a batch
    of one row too, and changes neither the rows nor the entry that carries them.

    Method: 0, 1, 2, 16,384 and 16,385 rows, with and without nulls, as a key where the type may be one and as a value,
    in one tablet of three, so that rows are routed as well. After each step the scan gives the rows bit by bit and the
    checksum is what it was; the entry's bytes still have the CRC of its sender.
    """
    if key and kind not in KEYS:
        return
    schema = table_schema(kind, key=key)
    spec = PartitionSpec(schema.key, 3)
    for rows in ROW_COUNTS:
        for nulls in (False, True) if not key else (False,):
            array, numbers = values(kind, rows, nulls=nulls), pa.array(np.arange(rows))
            whole = pa.RecordBatch.from_arrays([array, numbers], schema=schema.arrow)
            mine = pa.array(np.flatnonzero(route(whole, schema, spec) == 1))
            array, numbers = array.take(mine), numbers.take(mine)
            _live_through(schema, spec, array, numbers)
    # One row is in one tablet of three, so that a tablet of one row is made of any.
    _live_through(schema, None, values(kind, 1), pa.array([7]))


def _live_through(schema: TableSchema, spec: PartitionSpec | None, array: Any, numbers: Any) -> None:
    disk = SimDisk()
    more = {"partition": spec, "bucket": 1} if spec is not None else {}
    tablet = Tablet.create(disk, superblock(schema, **more))
    sums = {tablet.checksum()}
    assert len(_scanned(tablet)["n"]) == 0

    def same() -> None:
        found = _scanned(tablet)
        assert same_values(found["c"], array) and found["n"].equals(numbers)
        sums.add(tablet.checksum())
        present = _scanned(tablet, Predicate("c", "is_not_null"))
        assert len(present["n"]) == len(array) - array.null_count

    if len(array):
        sums.clear()
        entries = [_entry(i, schema, array, numbers) for i in (1, 2)]
        copies = [bytes(bytearray(e.payload)) for e in entries]
        for entry, copy in zip(entries, copies, strict=True):
            tablet.check_write(1, (1, 2), entry.payload, entry.payload_crc, len(array))
            (result,) = tablet.apply([entry])
            assert result.error is None and result.row_errors == () and result.rows_applied == len(array)
            assert entry.payload == copy and crc32c(entry.payload) == entry.payload_crc
            same()
            assert tablet.flush() is not None
            same()
        tablet.compact()
        same()
    tablet.close()
    tablet = Tablet.open(disk, Superblock.load(disk, "a" * 32))
    same()
    assert len(sums) == 1, "one checksum, wherever the rows lie"
    tablet.close()
    disk.close()


def test_batch_whose_buffers_end_mid_value_is_applied_like_any_other() -> None:
    """IN-01. Goal: how long a sender says that a buffer is, beyond what its rows need, decides nothing: such a batch is
    valid, so it must not end the tablet where its sizes are checked. Method: string offsets for two rows of 9,000 bytes
    are said to be 13 to 16 bytes long instead of 12; each batch is checked, applied and scanned."""
    schema = table_schema(next(kind for kind in KEYS if kind.name == "string"), key=True)
    array, numbers = pa.array(["x" * 9000, "y" * 9000]), pa.array([0, 1])
    good = _entry(1, schema, array, numbers)
    at = good.payload.index(struct.pack("<qq", 0, 12))
    for length in range(12, 17):
        payload = good.payload[:at] + struct.pack("<qq", 0, length) + good.payload[at + 16 :]
        tablet = Tablet.create(SimDisk(), superblock(schema))
        tablet.check_write(1, (1, 2), payload, crc32c(payload), 2)
        (result,) = tablet.apply([good._replace(payload=payload, payload_crc=crc32c(payload))])
        assert result.error is None and result.rows_applied == 2
        assert _scanned(tablet)["c"].equals(array)
