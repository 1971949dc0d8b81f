"""CRC-32C of each page of a block's file, so that a scan can check the pages that it uses.

A scan reads a mapped block, and the kernel may read its pages from the disk again when memory was short. A scan cannot
check the CRC of the whole file each time. So the pages' CRCs are computed when the whole file is checked, and kept in
memory; no file holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.rows import never_stop, offsets_of
from nyala.replica.types import Corruption

I64 = npt.NDArray[np.int64]

PAGE_BYTES = 1 << 16
_ONE_BY_ONE_ROWS_MAX = 4
"""Up to so many rows are checked one by one, because the arrays for many rows cost more than that."""


class PageCrcs:
    """Computes the CRCs of a file's pages from pieces of any size."""

    def __init__(self) -> None:
        self._crcs: list[int] = []
        self._rest = b""

    def update(self, piece: bytes) -> None:
        """Add the next bytes of the file."""
        data = self._rest + piece
        end = len(data) - len(data) % PAGE_BYTES
        self._crcs += [google_crc32c.value(data[at : at + PAGE_BYTES]) for at in range(0, end, PAGE_BYTES)]
        self._rest = data[end:]

    def finish(self) -> list[int]:
        """The CRC of each page; the last page may be a short one."""
        if self._rest:
            self._crcs.append(google_crc32c.value(self._rest))
        return self._crcs


class PageChecks:
    """The pages of one mapped file that one reader has checked. A reader checks each page once.

    Concurrency: one reader.
    """

    def __init__(self, name: str, mapped: Any, crcs: list[int], stop: Callable[[], None] = never_stop) -> None:
        """`mapped`: pa.Buffer of the whole file; `crcs`: of its pages. `stop` is called before each page that is
        checked, and before each column of scattered rows; an error that it raises ends the check."""
        self._name, self._mapped, self._crcs, self._stop = name, mapped, crcs, stop
        self._proven = bytearray(len(crcs))

    def check(self, columns: Iterable[Any]) -> None:
        """Raise Corruption if a page under the rows of these Arrow arrays or NumPy vectors has changed."""
        for column in columns:
            for address, size_bytes in _spans(column):
                offset = address - self._mapped.address
                if size_bytes and 0 <= offset < self._mapped.size:  # otherwise made by Arrow, and in no file
                    self._check(offset // PAGE_BYTES, -(-(offset + size_bytes) // PAGE_BYTES))

    def check_rows(self, columns: Iterable[pa.Array | npt.NDArray[np.generic]], rows: I64) -> None:
        """Like `check`, but only for the pages under these rows, which may be in any order."""
        for column in columns if len(rows) else ():
            self._stop()
            if len(rows) <= _ONE_BY_ONE_ROWS_MAX:
                self.check(column[row : row + 1] for row in rows.tolist())
                continue
            for addresses, sizes in _cells(column, rows):
                some = sizes > 0
                offsets = addresses[some] - self._mapped.address
                if not len(offsets) or not 0 <= offsets[0] < self._mapped.size:  # made by Arrow, and in no file
                    continue
                low, high = offsets // PAGE_BYTES, (offsets + sizes[some] - 1) // PAGE_BYTES
                for page in np.unique(np.concatenate([low, high])).tolist():
                    self._check(page, page + 1)
                for row in np.flatnonzero(high - low > 1).tolist():
                    self._check(int(low[row]), int(high[row]))

    def _check(self, low: int, high: int) -> None:
        page = self._proven.find(0, low, high)
        while page >= 0:
            self._stop()
            start = page * PAGE_BYTES
            data = self._mapped.slice(start, min(PAGE_BYTES, self._mapped.size - start)).to_pybytes()
            found, recorded = google_crc32c.value(data), self._crcs[page]
            if found != recorded:
                raise Corruption(
                    "a block's file has changed since it was checked",
                    path=self._name,
                    bytes=f"{start} to {start + len(data)}",
                    crc=f"{found:08x}",
                    recorded=f"{recorded:08x}",
                )
            self._proven[page] = True
            page = self._proven.find(0, page, high)


def _spans(column: Any) -> Iterator[tuple[int, int]]:
    """(address, bytes) of all memory of the rows of a flat column.

    Lazily, and in this order, because the place of a string is read from offsets, which the caller has checked by then.
    """
    if isinstance(column, np.ndarray):
        yield column.ctypes.data, column.nbytes
        return
    start, rows, kind = column.offset, len(column), column.type
    valid, *buffers = column.buffers()
    if valid is not None:
        yield _bits(valid, start, rows)
    if pa.types.is_boolean(kind):
        yield _bits(buffers[0], start, rows)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, data = buffers
        if rows:
            yield offsets.address + 4 * start, 4 * (rows + 1)
            first, end = offsets_of(column)[[0, rows]].tolist()
            yield data.address + first, end - first
    else:
        width = kind.bit_width // 8
        yield buffers[0].address + width * start, width * rows


def _cells(column: pa.Array | npt.NDArray[np.generic], rows: I64) -> Iterator[tuple[I64, I64]]:
    """(addresses, bytes) of the memory of these rows of a flat column; lazily, in the order of `_spans`."""
    if isinstance(column, np.ndarray):
        yield column.ctypes.data + column.itemsize * rows, np.full(len(rows), column.itemsize)
        return
    at, kind = column.offset + rows, column.type
    valid, *buffers = column.buffers()
    one = np.ones(len(rows), dtype=np.int64)
    if valid is not None:
        yield valid.address + at // 8, one
    if pa.types.is_boolean(kind):
        yield buffers[0].address + at // 8, one
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        offsets, data = buffers
        yield offsets.address + 4 * at, 8 * one
        ends = offsets_of(column)
        first = ends[rows].astype(np.int64)
        yield data.address + first, ends[rows + 1] - first
    else:
        width = kind.bit_width // 8
        yield buffers[0].address + width * at, width * one


def _bits(buffer: Any, start: int, rows: int) -> tuple[int, int]:
    return buffer.address + start // 8, -(-(start + rows) // 8) - start // 8
