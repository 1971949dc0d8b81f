"""Measures the checksum of rows, and for comparison a plain read of the same bytes from memory."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import sum_of_rows
from nyala.replica.rows.buffers import offsets_of
from nyala.replica.types import limits

from .report import Figures

MEMORY_READ = "memory read"
"""The comparison: no checksum of these bytes can be faster."""
VALUE_BYTES = {"64b": (64, 64), "64_to_128b": (64, 128), "1kb": (1 << 10, 1 << 10), "1mb": (1 << 20, 1 << 20)}
"""The least and the greatest length of values whose figure is MB/s."""
SHORT_BYTES = {"16b": (16, 16), "32b": (32, 32), "63b": (63, 63), "1_to_63b": (1, 63)}
"""The same of values whose figure is cells/s."""
WIDE_COLUMNS = limits.COLUMNS_MAX
_LEAST_S = 0.2
"""The least time of a measurement, which repeats its rows, so that a short pause of the machine does not decide it."""


def values_of(least_bytes: int, most_bytes: int, mb: int) -> pa.Array:
    """A pa.BinaryArray of distinct values with random lengths from least to most, of about `mb` MB together."""
    random = np.random.default_rng(least_bytes)
    count = max(1, mb * 2_000_000 // (least_bytes + most_bytes))
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(random.integers(least_bytes, most_bytes, count, endpoint=True), out=offsets[1:])
    data = random.integers(0, 256, int(offsets[-1]), dtype=np.uint8)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def numbers_of(mb: int) -> pa.Array:
    """A pa.Int64Array of about `mb` MB."""
    return pa.array(np.random.default_rng(8).integers(0, 1 << 62, mb * 125_000, dtype=np.int64))


def batches_of(array: pa.Array, columns: int = 1) -> list[pa.RecordBatch]:
    """Batches with so many columns, as large as those of a scan, from the values of `array`."""
    cells = min(len(array), limits.SCAN_BATCH_BYTES * len(array) // array.nbytes)
    rows = min(limits.SCAN_PIECE_ROWS_MAX, max(1, cells // columns))
    names = [f"v{i}" for i in range(columns)]
    return [
        pa.record_batch([array.slice(at + i * rows, rows) for i in range(columns)], names)
        for at in range(0, len(array) - columns * rows + 1, columns * rows)
    ]


class Sums:
    """Batches of each kind of columns, made once for all rounds. Memory: eleven times `mb` MB."""

    def __init__(self, mb: int) -> None:
        """`mb`: MB of each kind."""
        numbers, short = numbers_of(mb), {name: values_of(*lengths, mb) for name, lengths in SHORT_BYTES.items()}
        self._long = {name: batches_of(values_of(*lengths, mb)) for name, lengths in VALUE_BYTES.items()}
        self._short = {name: batches_of(array) for name, array in (short | {"int64": numbers}).items()}
        self._short["wide_int64"] = batches_of(numbers, WIDE_COLUMNS)
        self._short["wide_1_to_63b"] = batches_of(short["1_to_63b"], WIDE_COLUMNS)

    def checksum_round(self, _number: int) -> Figures:
        """Compute the checksum as for a replica's rows."""
        return self._figures(lambda batch: sum_of_rows(batch, range(1, batch.num_columns + 1)))

    def read_round(self, _number: int) -> Figures:
        """Read every byte of the same values once."""
        return self._figures(lambda batch: [np.add.reduce(_words(column)) for column in batch.columns])

    def _figures(self, work: Callable[[pa.RecordBatch], object]) -> Figures:
        figures = {}
        for name, batches in self._long.items():
            size = sum(column.nbytes for batch in batches for column in batch.columns)
            figures[f"checksum_{name}_mb_per_s"] = size / 1e6 / _time_of(work, batches)
        for name, batches in self._short.items():
            cells = sum(batch.num_rows * batch.num_columns for batch in batches)
            figures[f"checksum_{name}_cells_per_s"] = cells / _time_of(work, batches)
        return figures


def _words(column: pa.Array) -> npt.NDArray[np.uint64]:
    """The aligned words that begin among the bytes of a column's values, without one that ends after them."""
    begin, end = 8 * column.offset, 8 * (column.offset + len(column))
    if pa.types.is_binary(column.type):
        begin, end = offsets_of(column)[[0, -1]].tolist()
    begin += -begin % 8
    return np.frombuffer(column.buffers()[-1], np.uint64, max(0, end - begin) // 8, begin)


def _time_of(work: Callable[[pa.RecordBatch], object], batches: list[pa.RecordBatch]) -> float:
    """The CPU seconds of this process for all batches. CPU time, because other work may share the machine."""
    work(batches[0])  # a first call, which allocates memory
    goes, began_s = 0, time.process_time()
    while time.process_time() - began_s < _LEAST_S:
        for batch in batches:
            work(batch)
        goes += 1
    return (time.process_time() - began_s) / goes
