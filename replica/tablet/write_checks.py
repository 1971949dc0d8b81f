"""What the leader asks of a decoded batch before it is in the log: would applying it cost the replicas too much?

A batch of 8 MiB may stand for terabytes of rows, or for minutes under the tablet's lock. Replicas apply a batch as a
whole, so the leader bounds what all of its rows together cost. These bounds are the leader's alone: what is in the log
is applied, whoever wrote it. Each function refuses with TOO_LARGE, and then nothing of the batch is applied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa

from nyala.replica.rows import OP_COLUMN, RowOp, TableSchema, WriteMeta, key_hash
from nyala.replica.types import Code, Refused, limits

from .contents import Contents
from .hash_index import U64
from .kept_bound import Given, kept_bytes, kept_ceiling, longest_given, longest_of
from .resolve import Checked, WireRows, in_passes

Check = Callable[[WireRows, U64 | None], Checked]
"""The tablet's `check_rows`: of rows, and of their key hashes if they are known."""


def check_filled(schema: TableSchema, column_ids: Sequence[int], batch: pa.RecordBatch, ignore_null: bool) -> None:
    """Raise Refused(TOO_LARGE) if the columns that a batch leaves out would take too much memory of every replica."""
    left_out = schema.left_out(column_ids, ignore_null)
    each, most = left_out.row_bytes, left_out.rows_max
    if batch.num_rows <= most:
        return
    ops = batch.column(OP_COLUMN).to_numpy()
    stay = int(np.count_nonzero((ops != RowOp.DELETE) & (ops != RowOp.DELETE_IGNORE)))
    if stay > most:
        what = (
            f"the columns that the batch leaves out, or may leave out, take {each} bytes in each row, with their "
            f"defaults: send at most {most} rows in one batch, or give the columns"
        )
        raise Refused(Code.TOO_LARGE, what, rows=stay, bytes=stay * each)


def check_passes(schema: TableSchema, meta: WriteMeta, batch: pa.RecordBatch, check: Check) -> U64 | None:
    """Raise Refused(TOO_LARGE) if the rows of a batch would be applied in too many passes, one after the other, or if
    these passes would read keys at too many places.

    Returns the key hash of each row if the batch is so large that they were needed. In most batches no group of hashes
    that end in the same bits is as large as the bounds, and then nothing is sorted.
    """
    most = min(limits.BATCH_PASSES_MAX, limits.BATCH_PASS_VALUES_MAX // len(schema.columns))
    reads_max, places = limits.BATCH_PASS_READS_MAX, limits.BATCH_PASS_PLACES
    if meta.rows <= most:
        return None
    rows = WireRows.of_batch(batch, meta)
    natural = key_hash(rows.keys(schema))
    group = _largest_group(natural)
    if group <= most and min(meta.rows, group * places) * len(schema.key) <= reads_max:
        return natural
    checked = check(rows, natural)
    if len(checked.hashes) > most:
        sizes = np.bincount(in_passes(checked.rows, checked.hashes, schema)[1])
        passes, reads = len(sizes), int(np.minimum(sizes, places).sum()) * len(schema.key)
        if passes > most or reads > reads_max:
            what = (
                "the batch has too many rows that have to be applied one after the other, because they write one key "
                "again, or have different keys of one hash: send its rows in two batches, one after the other"
            )
            raise Refused(Code.TOO_LARGE, what, rows=meta.rows, passes=passes, max=most, reads=reads)
    return natural


def _largest_group(natural: U64) -> int:
    """How many of the hashes end in the same 16 bits at most."""
    return int(np.bincount((natural & np.uint64(0xFFFF)).view(np.int64)).max())


def may_keep_much(schema: TableSchema, meta: WriteMeta) -> bool:
    """Whether `check_kept` must be called for a batch, because its rows could keep more than BATCH_KEPT_BYTES_MAX."""
    if meta.rows == 1 or meta.rows * limits.ROW_SIZE_BYTES_MAX <= limits.BATCH_KEPT_BYTES_MAX:
        return False
    return schema.left_out(meta.column_ids, meta.ignore_null).keeps


def check_kept(contents: Contents, meta: WriteMeta, given: Given, under_way: Iterable[Given], check: Check) -> None:
    """Raise Refused(TOO_LARGE) if the rows of a batch keep too many stored values.

    `under_way`: the writes that will be applied before this one and may not be applied yet.
    """
    schema, stores = contents.schema, contents.stores
    rows = WireRows.of_batch(given.batch, meta)
    most = limits.BATCH_KEPT_BYTES_MAX
    before = longest_given(under_way)
    if kept_ceiling(schema, rows, longest_of([before, *stores.longest(contents.lock)])) <= most:
        return
    checked = check(rows, given.hashes)
    with contents.lock:
        contents.check_open()
        kept = kept_bytes(stores, schema, checked.rows, checked.hashes, before)
    if kept > most:
        what = (
            "the rows of the batch would keep too many bytes in the columns that it leaves out: send its rows in "
            "two batches, one after the other"
        )
        raise Refused(Code.TOO_LARGE, what, rows=meta.rows, kept_bytes=kept, max=most)
