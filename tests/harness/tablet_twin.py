"""A slow, obvious twin of the tablet, and a builder of entries for both.

The twin keeps every version of every key in a dict and applies rows one at a time. It knows nothing of batches, hashes,
blocks or flushes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nyala import schemas
from nyala.replica.rows import (
    OFFSET_COLUMN,
    OP_COLUMN,
    Column,
    ColumnType,
    RowError,
    RowOp,
    SourceKey,
    TableSchema,
    WriteMeta,
    crc32c,
    encode_batch,
)
from nyala.replica.tablet import Superblock
from nyala.replica.types import Code, Entry, EntryKind, OpId, RowCode, limits
from tests.harness.hash_twin import key_hash_one

SOURCE = SourceKey("c" * 8, "t" * 8, 0)

INT_SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.INT32),
        Column(id=3, name="s", type=ColumnType.STRING, nullable=False, default="-"),
        Column(id=4, name="r", type=ColumnType.INT32, nullable=False),
    ),
    ("k",),
)
STRING_SCHEMA = TableSchema(
    1,
    (
        Column(id=2, name="v", type=ColumnType.INT32),
        Column(id=1, name="k", type=ColumnType.STRING, nullable=False),
        Column(id=3, name="s", type=ColumnType.STRING, nullable=False, default="-"),
        Column(id=5, name="k2", type=ColumnType.INT8, nullable=False),
        Column(id=4, name="r", type=ColumnType.INT32, nullable=False),
    ),
    ("k", "k2"),
)

PAIR_SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=5, name="k2", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.INT32),
        Column(id=3, name="s", type=ColumnType.STRING, nullable=False, default="-"),
        Column(id=4, name="r", type=ColumnType.INT32, nullable=False),
    ),
    ("k", "k2"),
)
TEXT_SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.STRING, nullable=False),
        Column(id=2, name="v", type=ColumnType.INT32),
        Column(id=3, name="s", type=ColumnType.STRING, nullable=False, default="-"),
        Column(id=4, name="r", type=ColumnType.INT32, nullable=False),
        Column(id=5, name="t", type=ColumnType.STRING),
        Column(id=6, name="u", type=ColumnType.STRING, default="long as a default"),
    ),
    ("k",),
)
"""A schema of rows that become too long only by what they keep."""
_MASK = (1 << 64) - 1
_COMBINE = 0x9FB21C651E98DF25


def _unshift(y: int, by: int) -> int:
    x = y
    for _ in range(64 // by + 1):
        x = y ^ x >> by
    return x


def _unmix(y: int) -> int:
    """Return the inverse of splitmix64's step, as the key hash documents it."""
    x = _unshift(y, 31) * pow(0x94D049BB133111EB, -1, 1 << 64) & _MASK
    x = _unshift(x, 27) * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & _MASK
    return (_unshift(x, 30) - 0x9E3779B97F4A7C15) & _MASK


def colliding_key(number: int, target: int = 12345) -> tuple[int, int]:
    """Return a key of PAIR_SCHEMA; different numbers are different keys, but have one hash for all of one `target`."""
    return number, last_of_key((number,), target)


def last_of_key(before: tuple[int, ...], target: int = 12345) -> int:
    """Return the number that, as the last column of a key of int64 behind these columns, gives the key this hash."""
    first = key_hash_one(before, [ColumnType.INT64] * len(before))
    last = _unmix((_unmix(target) - first * _COMBINE) & _MASK)
    return last - (1 << 64) if last >> 63 else last


def superblock(schema: TableSchema, *, retention_us: int = 1 << 50, **more: Any) -> Superblock:
    """Return a READY superblock of an empty tablet."""
    return Superblock(
        tablet_id="a" * 32, table_id="b" * 32, table_schemas=(schema,), history_retention_us=retention_us, **more
    )


def batch_of(schema: TableSchema, names: list[str], rows: list[dict[str, Any]]) -> Any:
    """Return a write batch: rows are dicts with `op`, `offset` and values of the named columns."""
    wire = schema.wire_schema(schema.column_ids(names))
    arrays = [pa.array([r.get(n) for r in rows], type=wire.field(n).type) for n in names]
    arrays.append(pa.array([int(r["op"]) for r in rows], pa.uint8()))
    arrays.append(pa.array([r["offset"] for r in rows], pa.int64()))
    assert wire.names[-2:] == [OP_COLUMN, OFFSET_COLUMN]
    return pa.RecordBatch.from_arrays(arrays, schema=wire)


def write_entry(
    index: int,
    schema: TableSchema,
    names: list[str],
    rows: list[dict[str, Any]],
    *,
    time: int | None = None,
    source: SourceKey | None = SOURCE,
    **meta: Any,
) -> Entry:
    """Return a WRITE entry of these rows."""
    payload = encode_batch(batch_of(schema, names, rows))
    described = WriteMeta(column_ids=schema.column_ids(names), rows=len(rows), source=source, **meta)
    return Entry(
        OpId(1, index),
        EntryKind.WRITE,
        time if time is not None else index * 1000,
        schema.schema_id,
        described.encode(),
        payload,
        crc32c(payload),
    )


def noop_entry(index: int, time: int | None = None) -> Entry:
    """Return a NOOP entry."""
    return Entry(OpId(1, index), EntryKind.NOOP, time if time is not None else index * 1000, 0, b"", b"", 0)


def schema_entry(index: int, schema: TableSchema) -> Entry:
    """Return a SCHEMA entry."""
    meta = schemas.encode("schema_change", {"schema_json": schema.to_json(), "reserved": b""})
    return Entry(OpId(1, index), EntryKind.SCHEMA, index * 1000, schema.schema_id, meta, b"", 0)


def ledger_entry(index: int, source: SourceKey, generation: int, done: int) -> Entry:
    """Return a LEDGER entry."""
    value = {"source": source._asdict(), "generation": generation, "done": done, "reserved": b""}
    return Entry(OpId(1, index), EntryKind.LEDGER, index * 1000, 0, schemas.encode("ledger_change", value), b"", 0)


@dataclass
class Twin:
    """Every version of every key: key -> [(time, row or None for deleted)], ascending."""

    schema: TableSchema
    versions: dict[tuple[Any, ...], list[tuple[int, dict[str, Any] | None]]] = field(default_factory=dict)
    last: int = -1
    done: int = 0
    errors: dict[int, RowError] = field(default_factory=dict)
    time: int = 0

    def key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(row.get(n) for n in self.schema.key)

    def current(self, key: tuple[Any, ...]) -> dict[str, Any] | None:
        history = self.versions.get(key)
        return history[-1][1] if history else None

    def apply_row(
        self, names: list[str], row: dict[str, Any], time: int, ignore_null: bool = False, bounded: bool = False
    ) -> RowError | None:
        """Apply one row."""
        op, offset = row["op"], row["offset"]
        given = {n: row.get(n) for n in names}
        if ignore_null and op in (RowOp.UPSERT, RowOp.UPDATE, RowOp.UPDATE_IGNORE):
            names = [n for n in names if n in self.schema.key or row.get(n) is not None]
        if op not in list(RowOp):
            return RowError(offset, RowCode.UNKNOWN_OPERATION, "")
        for name in self.schema.key:
            if row.get(name) is None:
                return RowError(offset, RowCode.NULL_KEY, name)
        if text_bytes(given) > limits.ROW_SIZE_BYTES_MAX:
            return RowError(offset, RowCode.ROW_TOO_LARGE, "")
        insert = op in (RowOp.INSERT, RowOp.INSERT_IGNORE)
        delete = op in (RowOp.DELETE, RowOp.DELETE_IGNORE)
        for column in self.schema.columns:
            if column.nullable or column.name in self.schema.key:
                continue
            given_null = column.name in names and row.get(column.name) is None and not delete
            not_given = column.name not in names and column.default is None and insert
            if given_null or not_given:
                return RowError(offset, RowCode.NULL_IN_REQUIRED_COLUMN, column.name)
        key = self.key(row)
        old = self.current(key)
        history = self.versions.setdefault(key, [])
        if insert and old is not None:
            return RowError(offset, RowCode.ALREADY_PRESENT, "") if op == RowOp.INSERT else None
        if old is None and op in (RowOp.UPDATE, RowOp.DELETE):
            return RowError(offset, RowCode.NOT_FOUND, "")
        if old is None and op in (RowOp.UPDATE_IGNORE, RowOp.DELETE_IGNORE):
            return None
        if delete:
            history.append((time, None))
            return None
        new = {}
        for column in self.schema.columns:
            if column.name in names:
                new[column.name] = row.get(column.name)
            elif old is not None:
                new[column.name] = old[column.name]
            elif column.default is None and not column.nullable:
                return RowError(offset, RowCode.NULL_IN_REQUIRED_COLUMN, column.name)
            else:
                new[column.name] = column.default
        if bounded and text_bytes(new) > limits.ROW_SIZE_BYTES_MAX:
            return RowError(offset, RowCode.ROW_TOO_LARGE, "")
        history.append((time, new))
        return None

    def apply(
        self,
        names: list[str],
        rows: list[dict[str, Any]],
        time: int,
        after: int | None,
        done: int,
        ignore_null: bool = False,
        bounded: bool = False,
    ) -> tuple[Code | None, list[RowError]]:
        """Apply one batch of the source, row by row; returns (refusal, row errors)."""
        time = max(time, self.time + 1)
        self.time = time
        if after is not None and after > self.last:
            return Code.GAP, []
        self.done = max(self.done, done)
        self.errors = {o: e for o, e in self.errors.items() if o >= self.done}
        result = []
        for row in rows:
            if row["offset"] <= self.last:
                if row["offset"] in self.errors:
                    result.append(self.errors[row["offset"]])
                continue
            error = self.apply_row(names, row, time, ignore_null, bounded)
            if error is not None:
                result.append(error)
                if error.offset >= self.done:
                    self.errors[error.offset] = error
        self.last = max(self.last, rows[-1]["offset"])
        return None, result

    def at(self, time: int) -> list[dict[str, Any]]:
        """Return the rows visible at `time`, sorted by key."""
        rows = []
        for history in self.versions.values():
            seen = [row for when, row in history if when <= time]
            if seen and seen[-1] is not None:
                rows.append(seen[-1])
        return sorted(rows, key=self.key)


def text_bytes(row: dict[str, Any]) -> int:
    """Return the bytes of a row's texts."""
    return sum(len(value.encode()) for value in row.values() if isinstance(value, str))


def rows_of(scan: Any, schema: TableSchema) -> list[dict[str, Any]]:
    """Return what a scan yields, sorted by key."""
    rows = [row for batch in scan for row in batch.to_pylist()]
    return sorted(rows, key=lambda r: tuple(r[n] for n in schema.key))
