"""Remembers why rows were not applied, as runs, because a producer that repeats an error makes long runs of it."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nyala.replica.rows import RowError
from nyala.replica.types import RowCode

I64 = npt.NDArray[np.int64]
Run = tuple[int, int, int, str]
"""The first and the last offset, the code, the column."""

_PACKED = struct.Struct("<qqhi")
_PACKED_BYTES_FIXED = 240
_RECORD_BYTES = 300
"""The bytes of one record in the tablet's superblock, without its column's name. The saved superblock stays in
memory."""


@dataclass(frozen=True, eq=False)
class ErrorRuns:
    """The row errors of one source, as runs in ascending order; arrays of shape (runs,).

    A run states that all rows of this tablet with `first` <= offset <= `last` failed for one reason. Rows in between
    that went to other tablets do not matter, because nobody asks this tablet for their errors.
    """

    first: I64
    last: I64
    code: npt.NDArray[np.int16]
    column: npt.NDArray[np.int32]
    """Positions in `columns`."""
    columns: tuple[str, ...]

    @classmethod
    def none(cls) -> ErrorRuns:
        """An empty list of runs."""
        return _NONE

    def __len__(self) -> int:
        return len(self.first)

    def append(self, errors: Sequence[RowError], offsets: I64, *, after: int) -> ErrorRuns:
        """These runs with the `errors` of a batch's new rows added. `offsets`, shape (rows,): all new rows. Both
        ascend.

        `after` is the row that this tablet got right before these: a run that ends there may go on.
        """
        if not errors:
            return self
        columns = list(self.columns)
        known = {name: pos for pos, name in enumerate(columns)}
        for error in errors:
            if error.column not in known:
                known[error.column] = len(columns)
                columns.append(error.column)
        at = np.fromiter((e.offset for e in errors), np.int64, len(errors))
        code = np.fromiter((int(e.code) for e in errors), np.int16, len(errors))
        column = np.fromiter((known[e.column] for e in errors), np.int32, len(errors))
        place = np.searchsorted(offsets, at)
        begins = np.ones(len(errors), dtype=np.bool_)
        begins[1:] = (np.diff(place) != 1) | (np.diff(code) != 0) | (np.diff(column) != 0)
        goes_on = (
            len(self)
            and place[0] == 0
            and int(self.last[-1]) == after
            and (int(self.code[-1]), int(self.column[-1])) == (int(code[0]), int(column[0]))
        )
        heads = np.flatnonzero(begins)
        lasts = at[np.append(heads[1:], len(at)) - 1]
        before = self
        if goes_on:
            before = replace(self, last=np.append(self.last[:-1], lasts[0]))
            heads, lasts = heads[1:], lasts[1:]
        return ErrorRuns(
            np.concatenate([before.first, at[heads]]),
            np.concatenate([before.last, lasts]),
            np.concatenate([before.code, code[heads]]),
            np.concatenate([before.column, column[heads]]),
            tuple(columns),
        )

    def forget_below(self, offset: int) -> ErrorRuns:
        """The runs without rows below `offset`."""
        if not len(self) or offset <= int(self.first[0]):
            return self
        cut = int(np.searchsorted(self.last, offset))
        if cut == len(self):
            return _NONE
        first = np.maximum(self.first[cut:], offset)
        return replace(self, first=first, last=self.last[cut:], code=self.code[cut:], column=self.column[cut:])

    def of(self, offsets: I64) -> list[RowError]:
        """The errors of these rows; `offsets` ascends."""
        if not len(self):
            return []
        run = np.searchsorted(self.first, offsets, side="right") - 1
        hit = np.flatnonzero((run >= 0) & (offsets <= self.last[run]))
        at, run = offsets[hit].tolist(), run[hit]
        return [
            RowError(offset, RowCode(code), self.columns[column])
            for offset, code, column in zip(at, self.code[run].tolist(), self.column[run].tolist(), strict=True)
        ]

    def to_avro(self) -> list[dict[str, Any]]:
        """The runs as `RowError` records: one for a run of one row, two for a longer one, the second with its code
        negated."""
        return _records(self)

    def __iter__(self) -> Iterator[Run]:
        runs = zip(self.first.tolist(), self.last.tolist(), self.code.tolist(), self.column.tolist(), strict=True)
        return ((first, last, code, self.columns[column]) for first, last, code, column in runs)

    @classmethod
    def from_avro(cls, records: Sequence[dict[str, Any]]) -> ErrorRuns:
        """The inverse of `to_avro`; ValueError if a run ends without a beginning."""
        first: list[int] = []
        last: list[int] = []
        code: list[int] = []
        column: list[int] = []
        known: dict[str, int] = {}
        for record in records:
            pos = known.setdefault(record["column"], len(known))
            if record["code"] > 0:
                first.append(record["offset"])
                last.append(record["offset"])
                code.append(int(RowCode(record["code"])))
                column.append(pos)
            elif not first or (code[-1], column[-1]) != (-record["code"], pos) or record["offset"] <= last[-1]:
                raise ValueError(f"a run of row errors ends at {record['offset']} that did not begin")
            else:
                last[-1] = record["offset"]
        return cls(
            np.array(first, np.int64),
            np.array(last, np.int64),
            np.array(code, np.int16),
            np.array(column, np.int32),
            tuple(known),
        )


class PackedErrors(NamedTuple):
    """The row errors of one write of a client, as runs.

    A run has every offset between its ends, so the errors can be listed without the rows. Immutable, and smaller than a
    tuple of errors.
    """

    packed: bytes
    """One `_PACKED` for each run, ascending; its column is a position in `columns`."""
    columns: tuple[str, ...]

    @classmethod
    def of(cls, errors: Iterable[RowError]) -> PackedErrors:
        """Pack errors that ascend."""
        return cls._of_runs((e.offset, e.offset, int(e.code), e.column) for e in errors)

    @classmethod
    def _of_runs(cls, runs: Iterable[Run]) -> PackedErrors:
        """Pack runs that ascend. Neighbours with the same reason become one run."""
        packed = bytearray()
        columns: dict[str, int] = {}
        begun: tuple[int, int, int, int] | None = None
        for first, last, code, name in runs:
            column = columns.setdefault(name, len(columns))
            if begun is not None:
                if begun[1:] == (first - 1, code, column):
                    begun = (begun[0], last, code, column)
                    continue
                packed += _PACKED.pack(*begun)
            begun = (first, last, code, column)
        if begun is None:
            return NO_ERRORS
        packed += _PACKED.pack(*begun)
        return cls(bytes(packed), tuple(columns))

    @property
    def size_bytes(self) -> int:
        """The bytes that they take in memory, here and in the superblock. On disk they take much less."""
        if not self.packed:
            return 0
        records = [_RECORD_BYTES + len(name.encode()) for name in self.columns]
        runs = _PACKED.iter_unpack(self.packed)
        saved: int = sum(records[column] << (last != first) for first, last, _, column in runs)
        return _PACKED_BYTES_FIXED + len(self.packed) + saved

    def runs(self) -> Iterator[Run]:
        """The runs, in ascending order."""
        unpacked = _PACKED.iter_unpack(self.packed)
        return ((first, last, code, self.columns[column]) for first, last, code, column in unpacked)

    def errors(self) -> tuple[RowError, ...]:
        """One error for each row."""
        return tuple(
            RowError(offset, RowCode(code), column)
            for first, last, code, column in self.runs()
            for offset in range(first, last + 1)
        )

    def to_avro(self) -> list[dict[str, Any]]:
        """The runs as `ErrorRuns.to_avro` has them."""
        return _records(self.runs())

    @classmethod
    def from_avro(cls, records: Sequence[dict[str, Any]]) -> PackedErrors:
        """The inverse of `to_avro`; also accepts a list with a record for each error, as earlier builds wrote it."""
        return cls._of_runs(ErrorRuns.from_avro(records))


NO_ERRORS = PackedErrors(b"", ())


def _records(runs: Iterable[Run]) -> list[dict[str, Any]]:
    records = []
    for first, last, code, column in runs:
        records.append({"offset": first, "code": code, "column": column})
        if last != first:
            records.append({"offset": last, "code": -code, "column": column})
    return records


_NONE = ErrorRuns(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int16), np.empty(0, np.int32), ())
