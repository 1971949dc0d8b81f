"""Finds the rows of a block that can meet the conditions on its key. A block is sorted by it, so they are a few ranges.

A range may have rows that do not meet the conditions, so the scan still checks each row. It has every row that does.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from nyala.replica.rows import Term, never_stop, sortable

from .page_crcs import PageChecks

FENCE_ROWS = 8192
"""Rows between two fences: with eight bytes each, a page of 64 KiB."""
SEARCHES_MAX = 1024
"""Bounds the searches for one condition on one column of a block: each value in each range is one, of about 0.1 ms."""
SEARCH_ROWS = 256
"""If there are not this many rows for each search, they are read as they are, because that costs less."""
JOINED_ROWS = 4096
"""Ranges this close together are read as one, because checking these rows costs less than another range."""


class Fences(NamedTuple):
    """Some rows of a block in its order, including the first and the last, and their keys, column by column."""

    rows: Sequence[int]
    keys: tuple[Sequence[Any], ...]


def fences_of(columns: Sequence[Any]) -> Fences:
    """The fences of a block. `columns`: the key's columns, in key order, of at least one row."""
    count = len(columns[0])
    rows = sorted({*range(0, count, FENCE_ROWS), count - 1})
    at = np.array(rows, dtype=np.int64)
    return Fences(rows, tuple([sortable(value) for value in column.take(at)] for column in columns))


class SortedKey:
    """The key's columns of one block, for searches by one reader.

    A search among the fences reads no page of the file. Then at most FENCE_ROWS rows are left, and every page that is
    used is checked before.
    """

    def __init__(self, columns: Sequence[Any], fences: Fences, checks: PageChecks) -> None:
        self._columns = columns
        self._fences = fences
        self._checks = checks

    def runs(self, terms: Sequence[Sequence[Term]], stop: Callable[[], None] = never_stop) -> list[tuple[int, int]]:
        """Ranges (start, end), in order, of all rows that meet `terms`: the conditions on each column of the key, as
        `Conditions.terms` returns them. The ranges have more rows than that if a search would cost more than it saves.

        `stop` is called before each search, and may raise. Corruption if a page has changed.
        """
        found = [(0, len(self._columns[0]))]
        for pos, of_column in enumerate(terms):
            for term in of_column:
                searches, rows = len(found) * len(term.values), sum(end - start for start, end in found)
                if searches > min(SEARCHES_MAX, rows // SEARCH_ROWS):
                    return list(_joined(found))
                found = [run for start, end in found for run in self._meeting(pos, term, start, end, stop)]
            # The next column ascends only where this one has one value.
            if not any(term.op == "in" for term in of_column):
                break
        return list(_joined(found))

    def _meeting(
        self, pos: int, term: Term, start: int, end: int, stop: Callable[[], None]
    ) -> Iterator[tuple[int, int]]:
        """The ranges of rows that meet the condition, within a range in which column `pos` ascends."""
        for value in term.values:
            stop()
            low = start if term.op in ("<", "<=") else self._edge(pos, value, start, end, after=term.op == ">")
            high = end if term.op in (">", ">=") else self._edge(pos, value, low, end, after=term.op != "<")
            if low < high:
                yield low, high
            start = low  # the values of a list ascend

    def _edge(self, pos: int, value: Any, start: int, end: int, *, after: bool) -> int:
        """The first row from `start` on, before `end`, that is not below the value (with `after`: that is above it);
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
    for low, high in runs:
        if low - end > JOINED_ROWS:
            yield start, end
            start = low
        end = high
    yield start, end
