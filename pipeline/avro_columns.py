"""Decodes many Avro data of one flat record schema at once, column by column, straight into Arrow arrays.

Field after field is read for all rows together with numpy, so the cost is per column and not per value. fastavro reads
one datum at a time into a dict; the tests compare this module with it. Nested types (records, arrays, maps, unions of
more than null and one type) cannot be columns of a table and are refused when the plan is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from nyala.replica.types import RowCode, limits

I64 = npt.NDArray[np.int64]
_VARINT_BYTES_MAX = 10
_DECIMAL_BYTES = 16
_SCALE_MAX = 38


class Field(NamedTuple):
    """One field of a writer's record. `kind` is an Avro primitive, `enum` or `fixed`; `null_branch` -1: no union."""

    name: str
    kind: str
    logical: str
    null_branch: int
    scale: int
    size: int
    symbols: tuple[str, ...]


class UnsupportedSchema(ValueError):
    """The writer's schema is not a flat record; `column` names the field."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"field {column!r}: {why}")
        self.column = column


@dataclass
class Values:
    """Raw values of one field. `valid`: rows that hold a value. Exactly one of the others is set.

    `words` int64 (integers, dates, enum positions), `reals` float64, `spans` starts and lengths in the data.
    """

    valid: npt.NDArray[np.bool_]
    words: I64 | None = None
    reals: npt.NDArray[np.float64] | None = None
    starts: I64 | None = None
    lengths: I64 | None = None


def plan(parsed: Any) -> tuple[Field, ...]:
    """Return the fields of a parsed Avro record schema, in order; UnsupportedSchema if one cannot be a column."""
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise UnsupportedSchema("", "a row event is an Avro record")
    return tuple(_field(f["name"], f["type"]) for f in parsed["fields"])


def _field(name: str, kind: Any) -> Field:
    null_branch = -1
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(kind) != 2 or len(others) != 1:
            raise UnsupportedSchema(name, "a union must be of null and one type")
        null_branch = kind.index("null")
        kind = others[0]
    details = kind if isinstance(kind, dict) else {"type": kind}
    base = details["type"]
    if base not in ("boolean", "int", "long", "float", "double", "string", "bytes", "enum", "fixed"):
        raise UnsupportedSchema(name, f"type {base!r} cannot be a column")
    logical = details.get("logicalType", "")
    scale = _number(name, "scale", details.get("scale") or 0, _SCALE_MAX) if logical == "decimal" else 0
    size = _number(name, "size", details.get("size"), limits.ROW_SIZE_BYTES_MAX) if base == "fixed" else 0
    return Field(name, base, logical, null_branch, scale, size, tuple(details.get("symbols", ())))


def _number(column: str, what: str, value: object, most: int) -> int:
    """Return a number of a schema, which its parser did not check."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise UnsupportedSchema(column, f"its {what} is {str(value)[:40]!r}, not a number from 0 to {most}")
    return value


class Cursor:
    """The read position in each datum. Undecodable rows get a code and are read no further.

    Invariants: each read checks that the position of no readable row passes its end. Shapes: `position`, `end`, `code`,
    `fault` are (rows,); `fault` is the position of the field that failed, or -1.
    """

    def __init__(self, data: npt.NDArray[np.uint8], start: I64, end: I64) -> None:
        self.data = data if data.size else np.zeros(1, np.uint8)
        self._last = self.data.size - 1
        self.position = start.copy()
        self.end = end
        self.code = np.zeros(start.size, np.uint8)
        self.fault = np.full(start.size, -1, np.int64)
        self.field = -1

    def fail(self, rows: Any, code: RowCode) -> None:
        """Set the code of `rows` (positions) unless they have one, and move them to their end."""
        fresh = rows[self.code[rows] == 0]
        self.code[fresh] = code
        self.fault[fresh] = self.field
        self.position[rows] = self.end[rows]

    def check_ends(self) -> None:
        """Mark rows that were read past their end as undecodable."""
        over = np.flatnonzero(self.position > self.end)
        if over.size:
            self.fail(over, RowCode.UNDECODABLE)

    def finish(self) -> None:
        """Mark rows with bytes left over as undecodable."""
        left = np.flatnonzero((self.position != self.end) & (self.code == 0))
        if left.size:
            self.field = -1
            self.fail(left, RowCode.UNDECODABLE)

    def _bytes_at(self, positions: I64) -> npt.NDArray[np.uint8]:
        return self.data[np.minimum(positions, self._last)]

    def read_long(self, rows: Any) -> I64:
        """Read zig-zag varints at `rows` (positions, or slice(None) for all) and move on."""
        at = self.position[rows].copy()
        first = self._bytes_at(at)
        value = (first & 0x7F).astype(np.uint64)
        more = np.flatnonzero(first & 0x80)
        at += 1
        shift = 7
        while more.size and shift < 7 * _VARINT_BYTES_MAX:
            byte = self._bytes_at(at[more])
            at[more] += 1
            value[more] |= (byte & np.uint8(0x7F)).astype(np.uint64) << np.uint64(shift)
            more = more[(byte & 0x80) != 0]
            shift += 7
        self.position[rows] = at
        if more.size:
            self.fail(np.arange(self.position.size)[rows][more], RowCode.UNDECODABLE)
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)

    def read_fixed(self, rows: Any, size: int) -> npt.NDArray[np.uint8]:
        """Read `size` bytes at each of `rows`, as shape (rows, size), and move on."""
        at = self.position[rows]
        taken = self._bytes_at(at[:, None] + np.arange(size))
        self.position[rows] = at + size
        return taken

    def read_span(self, rows: Any) -> tuple[I64, I64]:
        """Read the starts and lengths of `bytes` or `string` values at `rows`, and move on. Wrong lengths fail their
        rows."""
        lengths = self.read_long(rows)
        starts = self.position[rows].copy()
        # The length is checked before the addition, which a hostile one would overflow.
        wrong = np.flatnonzero((lengths < 0) | (lengths > self.end[rows] - starts))
        if wrong.size:
            self.fail(np.arange(self.position.size)[rows][wrong], RowCode.UNDECODABLE)
            starts[wrong] = self.position[rows][wrong]
            lengths[wrong] = 0
        self.position[rows] = starts + lengths
        return starts, lengths


def read_field(cursor: Cursor, field: Field) -> Values:
    """Read the values of one field for all rows of `cursor`; the caller has set `cursor.field`."""
    count = cursor.position.size
    rows: Any = slice(None)
    valid = np.ones(count, bool)
    if field.null_branch >= 0:
        branch = cursor.read_long(slice(None))
        cursor.check_ends()
        unknown = np.flatnonzero((branch != 0) & (branch != 1))
        if unknown.size:
            cursor.fail(unknown, RowCode.UNDECODABLE)
        valid = (branch == 1 - field.null_branch) & (cursor.code == 0)
        if not valid.all():
            rows = np.flatnonzero(valid)
    values = _READERS[field.kind](cursor, field, rows, count)
    cursor.check_ends()
    values.valid = valid & (cursor.code == 0)
    return values


def _spread(part: Any, rows: Any, count: int, kind: Any) -> Any:
    if isinstance(rows, slice):
        return part
    out = np.zeros(count, kind)
    out[rows] = part
    return out


def _read_integer(cursor: Cursor, field: Field, rows: Any, count: int) -> Values:
    words = cursor.read_long(rows)
    if field.kind == "enum":
        wrong = np.flatnonzero((words < 0) | (words >= len(field.symbols)))
        if wrong.size:
            cursor.fail(np.arange(count)[rows][wrong], RowCode.UNDECODABLE)
            words[wrong] = 0
    return Values(np.empty(0, bool), words=_spread(words, rows, count, np.int64))


def _read_boolean(cursor: Cursor, field: Field, rows: Any, count: int) -> Values:
    taken = cursor.read_fixed(rows, 1)[:, 0]
    wrong = np.flatnonzero(taken > 1)
    if wrong.size:
        cursor.fail(np.arange(count)[rows][wrong], RowCode.UNDECODABLE)
    return Values(np.empty(0, bool), words=_spread(taken.astype(np.int64), rows, count, np.int64))


def _read_real(cursor: Cursor, field: Field, rows: Any, count: int) -> Values:
    kind = "<f4" if field.kind == "float" else "<f8"
    taken = np.ascontiguousarray(cursor.read_fixed(rows, int(kind[2]))).view(kind)[:, 0]
    with np.errstate(invalid="ignore"):  # a signalling NaN is a NaN
        wide = taken.astype(np.float64)
    return Values(np.empty(0, bool), reals=_spread(wide, rows, count, np.float64))


def _read_bytes(cursor: Cursor, field: Field, rows: Any, count: int) -> Values:
    if field.kind == "fixed":
        starts = cursor.position[rows].copy()
        lengths = np.full(starts.size, field.size, np.int64)
        cursor.position[rows] = starts + field.size
    else:
        starts, lengths = cursor.read_span(rows)
    if not isinstance(rows, slice):
        # Rows without a value get an empty span at their position, so that the spans ascend with the rows.
        all_starts = cursor.position.copy()
        all_starts[rows] = starts
        starts = all_starts
        lengths = _spread(lengths, rows, count, np.int64)
    return Values(np.empty(0, bool), starts=starts, lengths=lengths)


_READERS: dict[str, Callable[[Cursor, Field, Any, int], Values]] = {
    "int": _read_integer,
    "long": _read_integer,
    "enum": _read_integer,
    "boolean": _read_boolean,
    "float": _read_real,
    "double": _read_real,
    "string": _read_bytes,
    "bytes": _read_bytes,
    "fixed": _read_bytes,
}


def gather(data: Any, starts: I64, lengths: I64, valid: npt.NDArray[np.bool_]) -> Any:
    """Return a pa.BinaryArray of the spans. `data` is the pa.Buffer they point into; starts ascend with the rows.

    The spans and the gaps between them form one array over `data` without a copy; every other element is taken.
    """
    count = starts.size
    if count == 0:
        return pa.array([], pa.binary())
    lengths = np.where(valid, lengths, 0)
    # A failed row's span may point anywhere. It is replaced by an empty one, at the end of the spans before it.
    ends = np.maximum.accumulate(np.where(valid, starts + lengths, 0))
    starts = np.where(valid, starts, ends)
    edges = np.empty(2 * count, np.int64)
    edges[0::2] = starts
    edges[1::2] = starts + lengths
    spans = pa.Array.from_buffers(pa.large_binary(), 2 * count - 1, [None, pa.py_buffer(edges), data])
    taken = spans.take(pa.array(np.arange(0, 2 * count, 2)))
    if not valid.all():
        offsets, content = taken.buffers()[1:]
        bitmap = pa.py_buffer(np.packbits(valid, bitorder="little"))
        taken = pa.Array.from_buffers(pa.large_binary(), count, [bitmap, offsets, content])
    return taken.cast(pa.binary())


def unscaled_words(data: npt.NDArray[np.uint8], values: Values) -> npt.NDArray[np.uint8]:
    """Return big-endian two's complement spans as (rows, 16) little-endian sign-extended bytes, as decimal128 stores
    them."""
    starts, lengths = values.starts, values.lengths
    if starts is None or lengths is None:
        raise TypeError("only byte spans hold decimals")
    out = np.empty((starts.size, _DECIMAL_BYTES), np.uint8)
    last = data.size - 1
    lead = data[np.clip(starts, 0, last)]
    filler = np.where((lead & 0x80).astype(bool) & (lengths > 0), 0xFF, 0).astype(np.uint8)
    for pos in range(_DECIMAL_BYTES):
        at = starts + lengths - 1 - pos
        out[:, pos] = np.where(pos < lengths, data[np.clip(at, 0, last)], filler)
    return out
