"""Which pages of a file are checked for some rows: all that the rows lie on, no others, and each of them once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from nyala.replica.rows import crc32c
from nyala.replica.tablet import page_crcs as module
from nyala.replica.tablet.page_crcs import PageChecks
from nyala.replica.types import Corruption

PAGE = 16
ROWS = 70
BEHIND = 64
"""Bytes on both sides of the file, in the same memory."""


class File:
    """A file of pages of 16 bytes in memory: columns of each shape, of 70 rows, and a vector; `columns` are views."""

    def __init__(self, rng: Random) -> None:
        nulls = [rng.random() < 0.3 for _ in range(ROWS)]
        texts = ["x" * rng.choice((0, 1, 5, 40, 100)) for _ in range(ROWS)]
        some = pa.record_batch(
            {
                "long": pa.array(range(ROWS), pa.int64()),
                "short": pa.array([None if no else n for n, no in enumerate(nulls)], pa.int16()),
                "text": pa.array(texts),
                "binary": pa.array([None if no else text.encode() for text, no in zip(texts, nulls, strict=True)]),
                "flag": pa.array([n % 2 == 0 for n in range(ROWS)]),
                "maybe": pa.array([None if no else True for no in nulls]),
            }
        )
        message = some.serialize().to_pybytes()
        vector = np.arange(ROWS, dtype=np.int32).tobytes()
        data = vector + message + bytes(4)  # so that the last page is a short one
        assert len(data) % PAGE
        self.memory = pa.py_buffer(bytes(BEHIND) + data + bytes(BEHIND))
        self.mapped = self.memory.slice(BEHIND, len(data))
        batch = pa.ipc.read_record_batch(self.mapped.slice(len(vector)), some.schema)
        self.vector = np.frombuffer(self.mapped, np.int32, ROWS)
        self.columns: list[Any] = [*batch.columns, self.vector]
        self.crcs = [crc32c(data[at : at + PAGE]) for at in range(0, len(data), PAGE)]

    def found(self, check: Callable[[PageChecks], None], scattered: int = 0) -> set[int]:
        """The pages that are checked, which are those whose change is noticed; the count of checks is the same.
        `scattered`: the columns of which some rows are checked; there is one more look at the deadline for each."""
        looks: list[None] = []
        check(PageChecks("f", self.mapped, self.crcs, lambda: looks.append(None)))
        pages = set()
        for page in range(len(self.crcs)):
            changed = [*self.crcs[:page], self.crcs[page] ^ 1, *self.crcs[page + 1 :]]
            try:
                check(PageChecks("f", self.mapped, changed))
            except Corruption as error:
                end = min((page + 1) * PAGE, self.mapped.size)
                assert f"bytes={page * PAGE} to {end}" in str(error)
                pages.add(page)
        assert len(looks) == len(pages) + scattered, "each once"
        return pages

    def under(self, columns: list[Any], rows: list[int]) -> set[int]:
        """The pages under these rows, row by row."""
        places = [place for column in columns for row in rows for place in _memory(column, row)]
        offsets = [(address - self.mapped.address, size) for address, size in places if size]
        return {page for at, size in offsets for page in range(at // PAGE, (at + size - 1) // PAGE + 1)}


def _memory(column: Any, row: int) -> Iterator[tuple[int, int]]:
    """(address, bytes) of everything that is read for one row."""
    if isinstance(column, np.ndarray):
        yield column[row:].ctypes.data, column.itemsize
        return
    valid, *buffers = column.buffers()
    at = column.offset + row
    if valid is not None:
        yield valid.address + at // 8, 1
    if pa.types.is_boolean(column.type):
        yield buffers[0].address + at // 8, 1
    elif len(buffers) == 2:
        offsets = np.frombuffer(buffers[0], np.int32)
        yield buffers[0].address + 4 * at, 8
        yield buffers[1].address + int(offsets[at]), int(offsets[at + 1] - offsets[at])
    else:
        width = column.type.bit_width // 8
        yield buffers[0].address + width * at, width


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch) -> File:
    monkeypatch.setattr(module, "PAGE_BYTES", PAGE)
    return File(Random(7))


@pytest.mark.a_third
@pytest.mark.parametrize("pos", range(7))
def test_change_under_a_slice_is_noticed_and_no_other(pos: int, file: File) -> None:
    """TC-51. Goal: a scan never serves rot, and damage elsewhere does not end it. Method: slices of each sort of
    column, also of a part of them, with every page changed in turn, against the memory of each row."""
    for begin in (0, 11):
        column = file.columns[pos][begin:]
        for start, end in ((0, 1), (0, len(column)), (7, 8), (7, 9), (8, 16), (13, 40), (len(column) - 1, len(column))):
            checked = file.found(lambda checks, part=column[start:end]: checks.check([part]))  # type: ignore[misc]
            assert checked == file.under([column], list(range(start, end))), (begin, start, end)
        if isinstance(column, np.ndarray) or column.type == pa.string():
            assert file.found(lambda checks, part=column[5:5]: checks.check([part])) == set()  # type: ignore[misc]


@pytest.mark.a_third
@pytest.mark.parametrize("count", [0, 1, 4, 5, 12, ROWS - 11])
def test_change_under_any_rows_is_noticed_and_no_other(count: int, file: File) -> None:
    """TC-51. Goal: as above, for rows of a look-up, few or many. Method: any rows in any order, of each column and of
    all of them together."""
    rng = Random(count)
    for begin in (0, 11):
        columns = [column[begin:] for column in file.columns]
        rows = rng.sample(range(ROWS - begin), min(count, ROWS - begin))
        at = np.array(rows, np.int64)
        for some in (*([column] for column in columns), columns):
            looks = len(some) if count else 0
            checked = file.found(lambda checks, some=some, at=at: checks.check_rows(some, at), looks)  # type: ignore[misc]
            assert checked == file.under(some, rows), (begin, rows)


def test_change_under_scattered_rows_is_noticed_where_the_file_begins_and_in_long_columns(file: File) -> None:
    """TC-51. Goal: as above. Method: the first rows of the file; rows of which one has bytes, and none; marks of more
    than one page."""
    text = file.columns[2]
    sized = [row for row, value in enumerate(text.to_pylist()) if value]
    empty = [row for row, value in enumerate(text.to_pylist()) if not value]
    cases: list[tuple[Any, list[int]]] = [
        (file.vector, [0, 1, 2, 3, 4]),
        (text, [*empty[:5], sized[0]]),
        (text, empty[:6]),
    ]
    for column, rows in cases:
        checked = file.found(lambda checks, c=column, at=rows: checks.check_rows([c], np.array(at)), 1)  # type: ignore[misc]
        assert checked == file.under([column], rows)
    marks = np.frombuffer(file.mapped, np.uint8, 50)
    flags = pa.BooleanArray.from_buffers(pa.bool_(), 400, [None, file.mapped.slice(0, len(marks))])
    for start, end in ((120, 128), (127, 129), (392, 400), (248, 256)):
        assert file.found(lambda checks, a=start, b=end: checks.check([flags[a:b]])) == file.under(  # type: ignore[misc]
            [flags], list(range(start, end))
        )
    for base in (120, 248, 256, 390):
        rows = list(range(base, base + 6))
        checked = file.found(lambda checks, at=rows: checks.check_rows([flags], np.array(at)), 1)  # type: ignore[misc]
        assert checked == file.under([flags], rows)


@pytest.mark.parametrize("rows", [[0], list(range(6))], ids=["few", "many"])
def test_memory_outside_of_the_file_is_not_looked_for_in_it(rows: list[int], file: File) -> None:
    """Goal: what Arrow has made is in no file, so that no page of the file is to blame. Method: vectors that end where
    the file begins and begin where it ends, and an array of its own."""
    before = np.frombuffer(file.memory, np.int8, BEHIND)
    behind = np.frombuffer(file.memory, np.int8, BEHIND, BEHIND + file.mapped.size)
    made = pa.array(["a text", None] * 9)
    for column in (before, behind, made):
        assert file.found(lambda checks, column=column: checks.check_rows([column], np.array(rows)), 1) == set()  # type: ignore[misc]
        assert file.found(lambda checks, column=column: checks.check([column[: len(rows)]])) == set()  # type: ignore[misc]
