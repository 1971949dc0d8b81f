"""Cuts the rows of a batch into pieces for a scan, by the bytes that the rows really have, not by their average."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from functools import partial

import pyarrow as pa

from nyala.replica.rows import ColumnType, TableSchema, offsets_of
from nyala.replica.types import limits

from .columns import filled


class RunSizes:
    """The bytes of any range of rows of one batch, in the columns that a scan reads.

    Nothing is computed for every row: the size of a range follows from the offsets at its two ends.
    """

    def __init__(self, batch: pa.RecordBatch, source: TableSchema, target: TableSchema, ids: Collection[int]) -> None:
        """`batch` has the schema `source`. `ids`: columns of `target`; those that the batch lacks are filled in."""
        arrays = {c.id: batch.column(pos) for pos, c in enumerate(source.columns)}
        self._offsets = []
        self._row_bits = 0
        for column in target.columns:
            if column.id not in ids:
                continue
            array = arrays.get(column.id)
            if array is None:
                self._row_bits += 8 * filled(column, 1).nbytes
            elif column.type in (ColumnType.STRING, ColumnType.BINARY):
                self._offsets.append(offsets_of(array))
                self._row_bits += 32
            else:
                self._row_bits += array.type.bit_width
            self._row_bits += array is not None and array.null_count > 0

    def of(self, start: int, end: int) -> int:
        """Bytes of the rows from `start` to before `end`."""
        return self._row_bits * (end - start) // 8 + sum(int(o[end]) - int(o[start]) for o in self._offsets)


def runs(sizes: RunSizes, start: int, last: int) -> Iterator[tuple[int, int]]:
    """(start, end) of ranges that follow one another and cover all rows from `start` to before `last`. A range has at
    most SCAN_BATCH_BYTES and SCAN_PIECE_ROWS_MAX, or is one longer row."""
    while start < last:
        end = most = min(start + limits.SCAN_PIECE_ROWS_MAX, last)
        if sizes.of(start, most) > limits.SCAN_BATCH_BYTES:
            fitting = bisect_right(range(start + 1, most), limits.SCAN_BATCH_BYTES, key=partial(sizes.of, start))
            end = start + max(1, fitting)
        yield start, end
        start = end
