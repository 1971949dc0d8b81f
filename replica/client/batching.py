"""Turns rows of a table into the batches for its tablets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import OFFSET_COLUMN, OP_COLUMN, RowOp, TableSchema, crc32c, encode_batch, route
from nyala.replica.types import Code, Refused, check, limits

from .tables import TableHandle


class WireBatch(NamedTuple):
    """One encoded batch for one tablet."""

    pos: int
    column_ids: tuple[int, ...]
    payload: bytes
    payload_crc: int
    rows: int
    first_offset: int
    last_offset: int
    ignore_null: bool = False
    """Whether upserts and updates leave a column whose value is null as it is."""


def wire_batches(
    handle: TableHandle,
    columns: Any,
    ops: RowOp | npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64] | None = None,
    *,
    target_bytes: int = limits.BATCH_TARGET_BYTES,
    ignore_null: bool = False,
) -> Iterator[WireBatch]:
    """Split rows by tablet, keep their order within each, cut to about `target_bytes`, encode.

    `columns`: pa.Table or pa.RecordBatch of columns of the table, among them the key, with the schema's types, at least
    one row. `ops`: one operation, or one for each row. `offsets`: ascending, one for each row; default: row numbers.
    `ignore_null`: upserts and updates leave a column whose value is null as it is.
    """
    rows = columns.num_rows
    if rows == 0:
        return
    names = columns.schema.names
    column_ids = handle.schema.column_ids(names)
    offsets = np.arange(rows, dtype=np.int64) if offsets is None else offsets
    codes = np.full(rows, int(ops), dtype=np.uint8) if isinstance(ops, RowOp) else ops
    check(len(offsets) == rows and len(codes) == rows, "one offset and one operation for each row", rows=rows)
    batch = _whole_batch(columns, codes, offsets, handle.schema.wire_schema(column_ids))
    position = route(batch, handle.schema, handle.partition)
    one = rows == 1 or int(position.min()) == int(position.max())
    for pos in [int(position[0])] if one else np.unique(position).tolist():
        picked = batch if one else batch.take(pa.array(np.flatnonzero(position == pos)))
        yield from cut(handle.schema, pos, column_ids, picked, target_bytes, ignore_null)


def _whole_batch(columns: Any, ops: Any, offsets: Any, schema: Any) -> Any:
    arrays = []
    for name, field in zip(columns.schema.names, schema, strict=False):
        column = columns.column(name)
        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if isinstance(array, pa.ChunkedArray):
            what = "more than 2 GiB in one column; write in parts"
            raise Refused(Code.TOO_LARGE, what, column=name, bytes=array.nbytes)
        arrays.append(array if array.type == field.type else array.cast(field.type))
    check(schema.names[-2:] == [OP_COLUMN, OFFSET_COLUMN], "system columns come last", names=schema.names)
    return pa.RecordBatch.from_arrays(
        [*arrays, pa.array(ops, pa.uint8()), pa.array(offsets, pa.int64())], schema=schema
    )


def cut(
    schema: TableSchema, pos: int, column_ids: tuple[int, ...], batch: Any, target_bytes: int, ignore_null: bool
) -> Iterator[WireBatch]:
    """Encode rows of one tablet in equal parts of about the target size, in order.

    `batch`: pa.RecordBatch of the wire schema, at least one row, offsets ascending. A part that is too large for the
    wire because of a few large rows is halved; Refused(TOO_LARGE) names a row that is too large alone. With the columns
    that it leaves out, no part is larger than a server accepts.
    """
    rows_max = schema.left_out(column_ids, ignore_null).rows_max
    parts = max(1, round(batch.nbytes / target_bytes), -(-batch.num_rows // rows_max))
    step = max(1, -(-batch.num_rows // parts))
    todo = [(at, min(step, batch.num_rows - at)) for at in range(0, batch.num_rows, step)][::-1]
    while todo:
        at, rows = todo.pop()
        part = batch if rows == batch.num_rows else batch.slice(at, rows)
        payload = encode_batch(part)
        if len(payload) > limits.BATCH_SIZE_BYTES_MAX:
            if rows == 1:
                first = part.column(OFFSET_COLUMN)[0].as_py()
                raise Refused(
                    Code.TOO_LARGE,
                    "a row is too large; keep its largest value elsewhere, or split the row",
                    row=first,
                    bytes=len(payload),
                    limit_bytes=limits.ROW_SIZE_BYTES_MAX,
                )
            todo += [(at + rows // 2, rows - rows // 2), (at, rows // 2)]
            continue
        yield _wire_batch(pos, column_ids, part, payload, ignore_null)


def wire_batch(pos: int, column_ids: tuple[int, ...], part: pa.RecordBatch, ignore_null: bool) -> WireBatch:
    """All rows of a pa.RecordBatch of the wire schema, at least one, encoded."""
    return _wire_batch(pos, column_ids, part, encode_batch(part), ignore_null)


def _wire_batch(
    pos: int, column_ids: tuple[int, ...], part: pa.RecordBatch, payload: bytes, ignore_null: bool
) -> WireBatch:
    offsets = part.column(OFFSET_COLUMN)
    first, last = offsets[0].as_py(), offsets[part.num_rows - 1].as_py()
    return WireBatch(pos, column_ids, payload, crc32c(payload), part.num_rows, first, last, ignore_null)
