"""Table schemas: named, typed columns with ids that never change, and the primary key."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from nyala.replica.types import limits

from .types import (
    KEY_TYPES,
    VARIABLE_LENGTH,
    Column,
    ColumnType,
    invalid,
    json_text,
    json_whole,
    value_from_json,
    value_to_json,
)

OP_COLUMN = "__op"
OFFSET_COLUMN = "__offset"
OP_FIELD = pa.field(OP_COLUMN, pa.uint8(), nullable=False)
OFFSET_FIELD = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)
_REMEMBERED_MAX = 64
"""The number of sets of columns for which a schema remembers the properties of their batches."""


class LeftOut(NamedTuple):
    """Properties of the rows of one kind of write batch that follow from the columns which the batch leaves out."""

    row_bytes: int
    """The bytes of a new row's defaults and nulls, for columns that the batch leaves out, or may leave out in some
    rows."""
    rows_max: int
    """The most rows of a batch that, when they are filled in, stay within BATCH_FILLED_BYTES_MAX."""
    may_grow: bool
    """Whether a row may end up longer than ROW_SIZE_BYTES_MAX although no row of the batch is, because the batch gives
    some of its values of variable length, and others stay or are defaults."""
    keeps: bool
    """Whether a row may keep values of variable length."""


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's columns. `key` names the primary key's columns, in key order.

    Invariants: names and ids are unique; key columns exist, are of a key type and not nullable.
    Refused(INVALID_ARGUMENT) at construction names the error.
    """

    schema_id: int
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.columns) <= limits.COLUMNS_MAX:
            raise invalid("a table has 1 to 300 columns", columns=len(self.columns))
        for what, seen in (("name", [c.name for c in self.columns]), ("id", [str(c.id) for c in self.columns])):
            twice = sorted({v for v in seen if seen.count(v) > 1})
            if twice:
                raise invalid(f"two columns have one {what}", repeated=",".join(twice))
        if not self.key:
            raise invalid("a table needs a primary key: name at least one column in key=")
        if len(set(self.key)) != len(self.key):
            raise invalid("the key names a column twice", key=",".join(self.key))
        by_name = self._by_name
        for name in self.key:
            column = by_name.get(name)
            if column is None:
                raise invalid("the key names a column that does not exist", column=name, known=",".join(by_name))
            if column.type not in KEY_TYPES:
                raise invalid("a column of this type cannot be in the key", column=name, type=column.type.value)
            if column.nullable:
                raise invalid("a key column must not be nullable", column=name)

    @cached_property
    def _wire_schemas(self) -> dict[tuple[int, ...], Any]:
        return {}

    @cached_property
    def _left_out(self) -> dict[tuple[tuple[int, ...], bool], LeftOut]:
        return {}

    @cached_property
    def _by_name(self) -> dict[str, Column]:
        return {c.name: c for c in self.columns}

    @cached_property
    def _by_id(self) -> dict[int, Column]:
        return {c.id: c for c in self.columns}

    @cached_property
    def arrow(self) -> Any:
        """pa.Schema of the columns, in order."""
        return pa.schema([pa.field(c.name, c.arrow_type, nullable=c.nullable) for c in self.columns])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(c.name for c in self.columns)

    @cached_property
    def ids(self) -> tuple[int, ...]:
        """Column ids, in order."""
        return tuple(c.id for c in self.columns)

    @cached_property
    def positions(self) -> dict[int, int]:
        """The position of each column, by its id."""
        return {c.id: pos for pos, c in enumerate(self.columns)}

    @cached_property
    def key_columns(self) -> tuple[Column, ...]:
        """The key's columns, in key order."""
        return tuple(self._by_name[n] for n in self.key)

    def has(self, name: str) -> bool:
        """Whether there is a column of that name."""
        return name in self._by_name

    def column(self, name: str) -> Column:
        """The column of that name; Refused(INVALID_ARGUMENT) if there is none."""
        column = self._by_name.get(name)
        if column is None:
            raise invalid("no such column", column=name, known=",".join(self._by_name))
        return column

    def by_id(self, column_id: int) -> Column:
        """The column of that id; Refused(INVALID_ARGUMENT) if there is none."""
        column = self._by_id.get(column_id)
        if column is None:
            raise invalid("no column of this id", column_id=column_id, schema_id=self.schema_id)
        return column

    def column_ids(self, names: Iterable[str]) -> tuple[int, ...]:
        """Ids of the named columns, in that order."""
        return tuple(self.column(n).id for n in names)

    @cached_property
    def _filled_bits(self) -> dict[int, int]:
        """The bits that a column's default or null takes in a row, by column id."""
        return {
            c.id: 8 * (int(pa.array([c.default], c.arrow_type).nbytes) - 4)  # one of two offsets
            if c.type in VARIABLE_LENGTH
            else c.arrow_type.bit_width
            for c in self.columns
        }

    def left_out(self, column_ids: Iterable[int], ignore_null: bool = False) -> LeftOut:
        """What a batch of those columns leaves out; the ids may be of other versions of the schema.

        With `ignore_null`, a row may leave out each column that is not in the key. Client and leader both call this.
        """
        ids = tuple(column_ids)
        known = self._left_out.get((ids, ignore_null))
        if known is None:
            given = frozenset(ids)
            left = [c for c in self.columns if c.name not in self.key and (ignore_null or c.id not in given)]
            row_bytes = -(-sum(self._filled_bits[c.id] for c in left) // 8)
            rows_max = min(limits.BATCH_ROWS_MAX, limits.BATCH_FILLED_BYTES_MAX // max(1, row_bytes))
            long = {c.id for c in self.columns if c.type in VARIABLE_LENGTH and c.name not in self.key}
            stay = [c for c in left if c.id in long]
            may_grow = any(c.default for c in stay) or bool(stay and long & given and len(long) > 1)
            known = LeftOut(row_bytes, rows_max, may_grow, bool(stay))
            if len(self._left_out) >= _REMEMBERED_MAX:
                self._left_out.clear()
            self._left_out[ids, ignore_null] = known
        return known

    def wire_schema(self, column_ids: Iterable[int]) -> Any:
        """pa.Schema of a write batch: those columns, then `__op` uint8 and `__offset` int64.

        All columns may have nulls on the wire: a null in a required column is an error of that row, not of the batch.
        """
        ids = tuple(column_ids)
        known = self._wire_schemas.get(ids)
        if known is None:
            fields = [pa.field(c.name, c.arrow_type) for c in map(self.by_id, ids)]
            known = pa.schema([*fields, OP_FIELD, OFFSET_FIELD])
            if len(self._wire_schemas) >= _REMEMBERED_MAX:
                self._wire_schemas.clear()
            self._wire_schemas[ids] = known
        return known

    def to_json(self) -> str:
        """One line of JSON; `from_json` is the inverse."""
        columns = [
            {
                "id": c.id,
                "name": c.name,
                "type": c.type.value,
                "nullable": c.nullable,
                "precision": c.precision,
                "scale": c.scale,
                "default": value_to_json(c.type, c.default),
            }
            for c in self.columns
        ]
        return json.dumps({"schema_id": self.schema_id, "columns": columns, "key": list(self.key)})

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        """The schema that `to_json` wrote; Refused(INVALID_ARGUMENT) for any other text."""
        try:
            raw = json.loads(text)
            columns = tuple(
                Column(
                    id=json_whole(c["id"]),
                    name=json_text(c["name"]),
                    type=ColumnType(c["type"]),
                    nullable=bool(c["nullable"]),
                    precision=json_whole(c["precision"]),
                    scale=json_whole(c["scale"]),
                    default=value_from_json(ColumnType(c["type"]), c["default"]),
                )
                for c in raw["columns"]
            )
            return cls(json_whole(raw["schema_id"]), columns, tuple(map(json_text, raw["key"])))
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            raise invalid("not a table schema's JSON", text=text[:200], reason=str(e)) from e
