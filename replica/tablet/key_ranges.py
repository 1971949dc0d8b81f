"""Where the rows of a block are that can meet the conditions on its key: a block is sorted by it, so they are few runs.

A run may hold rows that meet no condition; the scan still asks each row. It never leaves one out that meets them all.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from nyala.replica.rows import Term, sortable

from .page_crcs import PageChecks

FENCE_ROWS = 8192
"""Rows between two fences: of eight bytes each, a page of 64 KiB."""
RUNS_MAX = 256
"""If conditions leave more runs than this, those on further columns of the key do not cut them again."""
JOINED_ROWS = 4096
"""Runs this close together are read as one: to ask these rows costs less than a run of its own."""


class Fences(NamedTuple):
    """Some rows of a block in its order, the first and the last among them, and their keys, column by column."""

    rows: Sequence[int]
    keys: tuple[Sequence[Any], ...]


def fences_of(columns: Sequence[Any]) -> Fences:
    """`columns`: the key's columns of a block, in key order, of one row at least."""
    count = len(columns[0])
    rows = sorted({*range(0, count, FENCE_ROWS), count - 1})
    at = np.array(rows, dtype=np.int64)
    return Fences(rows, tuple([sortable(value) for value in column.take(at)] for column in columns))


class SortedKey:
    """The key's columns of one block, to be searched by one reader.

    A search among the fences costs no page; what is left is at most FENCE_ROWS rows, and every page that is looked at
    is checked before.
    """

    def __init__(self, columns: Sequence[Any], fences: Fences, checks: PageChecks) -> None:
        self._columns = columns
        self._fences = fences
        self._checks = checks

    def runs(self, terms: Sequence[Sequence[Term]]) -> list[tuple[int, int]]:
        """Runs (start, end) of rows in their order that have all rows which meet `terms`, those on each column of the
        key. Corruption if a page is not what it was."""
        found = [(0, len(self._columns[0]))]
        for pos, of_column in enumerate(terms):
            for term in of_column:
                found = [run for start, end in found for run in self._meeting(pos, term, start, end)]
            # The next column ascends only where this one has one value.
            if len(found) > RUNS_MAX or not any(term.op in ("=", "in") for term in of_column):
                break
        return list(_joined(found))

    def _meeting(self, pos: int, term: Term, start: int, end: int) -> Iterator[tuple[int, int]]:
        """The runs of rows that meet the term within a run where column `pos` ascends."""
        for value in term.values:
            low = start if term.op in ("<", "<=") else self._edge(pos, value, start, end, after=term.op == ">")
            high = end if term.op in (">", ">=") else self._edge(pos, value, low, end, after=term.op != "<")
            if low < high:
                yield low, high
            start = low if term.op == "in" else start  # the values of a list ascend

    def _edge(self, pos: int, value: Any, start: int, end: int, *, after: bool) -> int:
        """The first row from `start` on, before `end`, that is not below the value, or with `after` the first above it;
        `end` if there is none."""
        search = bisect_right if after else bisect_left
        rows, keys = self._fences.rows, self._fences.keys[pos]
        low, high = bisect_left(rows, start), bisect_left(rows, end)
        fence = search(keys, value, low, high)
        if fence > low:
            start = rows[fence - 1] + 1
        if fence < high:
            end = rows[fence]
        column = self._columns[pos]

        def key_of(row: int) -> Any:
            cell = column.slice(row, 1)
            self._checks.check((cell,))
            return sortable(cell[0])

        return start + search(range(start, end), value, key=key_of)


def _joined(runs: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    if not runs:
        return
    start, end = runs[0]
    for low, high in islice(runs, 1, None):
        if low - end > JOINED_ROWS:
            yield start, end
            start = low
        end = high
    yield start, end
