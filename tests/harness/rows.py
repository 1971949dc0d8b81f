"""A small table, its batches and its tablets, for tests that call servers directly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, TableSchema, crc32c, encode_batch
from nyala.replica.rpc import partition_to_pb, pb, schema_to_pb

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    ),
    ("k",),
)
PARTITION = PartitionSpec(hash_columns=("k",), buckets=1)


def table_info(table_id: str = "t1", name: str = "things", retention_us: int = 3_600_000_000) -> Any:
    """Return the table as a master would send it."""
    return pb.TableInfo(
        table_id=table_id,
        name=name,
        schema=schema_to_pb(SCHEMA),
        partition=partition_to_pb(PARTITION, SCHEMA),
        replication_factor=3,
        history_retention_us=retention_us,
    )


def batch(keys: Sequence[int], values: Sequence[str | None], op: RowOp = RowOp.UPSERT, first_offset: int = 0) -> Any:
    """Return rows as they travel."""
    wire = SCHEMA.wire_schema((1, 2))
    return pa.RecordBatch.from_arrays(
        [
            pa.array(keys, pa.int64()),
            pa.array(values, pa.string()),
            pa.array([int(op)] * len(keys), pa.uint8()),
            pa.array(range(first_offset, first_offset + len(keys)), pa.int64()),
        ],
        schema=wire,
    )


def write_request(dest_uuid: str, tablet_id: str, rows: Any, *, table_id: str = "t1", **fields: Any) -> Any:
    """Return a Write of one batch."""
    payload = encode_batch(rows)
    return pb.WriteRequest(
        dest_uuid=dest_uuid,
        tablet_id=tablet_id,
        table_id=table_id,
        schema_id=1,
        column_ids=[1, 2],
        payload=payload,
        payload_crc=crc32c(payload),
        rows=rows.num_rows,
        **fields,
    )


def read_rows(chunks: Any, column: str = "v") -> tuple[dict[int, str | None], int]:
    """Return ({k: the column}, snapshot time) of a Scan's chunks; AssertionError if it ended with an error or without
    end."""
    schema, found, time, last = None, {}, 0, False
    for chunk in chunks:
        assert not chunk.error.code, chunk.error
        assert not last, "a chunk after the last"
        time = chunk.snapshot_time
        if chunk.arrow_schema:
            schema = pa.ipc.read_schema(pa.py_buffer(chunk.arrow_schema))
        if chunk.arrow_batch:
            rows = pa.ipc.read_record_batch(pa.py_buffer(chunk.arrow_batch), schema)
            found.update(zip(rows.column("k").to_pylist(), rows.column(column).to_pylist(), strict=True))
        last = chunk.last
    assert last, "the scan was cut off"
    return found, time
