"""Turns keys in the forms that users pass into the key's columns."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from nyala.replica.rows import RowOp, TableSchema
from nyala.replica.types import as_given

from .argument_errors import invalid_argument
from .writing import as_table, conform

Value = int | str | bytes | decimal.Decimal | dt.date | dt.datetime
Key = Value | tuple[Value, ...] | Mapping[str, Value]
Row = dict[str, Any]
"""A row by column, with Python's values."""
_TABLES = (pa.Table, pa.RecordBatch)


def keys_of(given: object, schema: TableSchema) -> tuple[pa.RecordBatch, bool]:
    """Return (the key's columns in key order, whether it was one key). NotApplied(INVALID_ARGUMENT) names what is
    wrong."""
    if isinstance(given, list):
        rows: Any = [_as_mapping(key, schema, pos) for pos, key in enumerate(given)]
        single = False
    elif isinstance(given, _TABLES) or hasattr(given, "__arrow_c_stream__") or hasattr(given, "to_records"):
        rows, single = given, False
    else:
        rows, single = [_as_mapping(given, schema, 0)], True
    if isinstance(rows, list) and not rows:
        arrow = pa.schema([schema.arrow.field(name) for name in schema.key])
        return pa.RecordBatch.from_pylist([], schema=arrow), single
    columns = conform(as_table(rows, schema), schema, RowOp.DELETE)
    arrays = [_whole(columns.column(name)) for name in schema.key]
    return pa.RecordBatch.from_arrays(arrays, names=list(schema.key)), single


def _as_mapping(key: object, schema: TableSchema, row: int) -> Mapping[str, object]:
    if isinstance(key, Mapping):
        if extra := [name for name in key if name not in schema.key]:
            what = "a key has its own columns only"
            raise invalid_argument(what, "leave out the others", row=row, others=", ".join(map(repr, extra[:10])))
        return key
    values = key if isinstance(key, tuple) else (key,)
    if len(values) != len(schema.key):
        raise invalid_argument(
            f"a key of this table has {len(schema.key)} column{'s' if len(schema.key) > 1 else ''}",
            "give a tuple of their values, in key order" if len(schema.key) > 1 else "give its value",
            row=row,
            key=", ".join(schema.key),
            got=as_given(key),
        )
    return dict(zip(schema.key, values, strict=True))


def _whole(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    return array if isinstance(array, pa.Array) else pa.concat_arrays(array.chunks)
