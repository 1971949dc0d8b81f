"""Checks the values of a row event before they are encoded. A value that its column cannot hold exactly is refused.

Without this check, fastavro cuts 50.9 to 50 in a long, takes a naive datetime as local time, and accepts an integer of
any size.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import NamedTuple

import pyarrow as pa

from nyala.replica.rows import VARIABLE_LENGTH, Column, ColumnType, Misfit, TableSchema, array_of
from nyala.replica.types import as_given

_BITS = {ColumnType.INT8: 8, ColumnType.INT16: 16, ColumnType.INT32: 32, ColumnType.INT64: 64}
_SAME = {ColumnType.BOOL: bool, ColumnType.DOUBLE: float, ColumnType.STRING: str, ColumnType.BINARY: bytes}
_OF_AVRO = {"string": pa.string(), "enum": pa.string(), "bytes": pa.binary()}

_SURELY_FLOAT = 3.4e38
"""Numbers below this are in the range of a float."""


class _Rule(NamedTuple):
    kind: pa.DataType
    """The pa.DataType whose values the field may have."""
    as_given: Callable[[object], bool]
    """A quick test whether a value needs no conversion. Other values are converted."""


class RowValues:
    """The values of rows that are written with one Avro schema. Concurrency: any thread."""

    def __init__(self, schema: TableSchema, fields: list[Mapping[str, object]]) -> None:
        """`fields`: those of the writer schema. Fields that are no column are not checked here."""
        self._rules = {
            str(f["name"]): _rule(schema.column(name), f["type"]) for f in fields if schema.has(name := str(f["name"]))
        }

    def exact(self, row: Mapping[str, object]) -> dict[str, object]:
        """Return the row in the types of its columns. Misfit, with the column in its reason, if a value does not
        fit."""
        out = dict(row)
        for name, rule in self._rules.items():
            value = out.get(name)
            if value is None or rule.as_given(value):
                continue
            try:
                out[name] = array_of([value], rule.kind)[0].as_py()
            except Misfit as e:
                raise Misfit(0, value, f"column {name!r} cannot hold {as_given(value)}: {e.reason}") from e
        return out


def _rule(column: Column, avro: object) -> _Rule:
    branches = [branch for branch in (avro if isinstance(avro, list) else [avro]) if branch != "null"]
    branch = branches[0] if branches else "null"
    plain = branch["type"] if isinstance(branch, dict) else branch
    logical = branch.get("logicalType", "") if isinstance(branch, dict) else ""
    kind, bits = column.arrow_type, _BITS.get(column.type, 0)
    if column.type in VARIABLE_LENGTH:
        kind = _OF_AVRO.get(str(plain), kind)
        same: type = str if kind == pa.string() else bytes
        return _Rule(kind, lambda value: type(value) is same)
    if bits:
        bits = min(bits, 32) if plain == "int" else bits
        low, high = -(1 << bits - 1), (1 << bits - 1) - 1
        kind = pa.int32() if bits == 32 else kind
        return _Rule(kind, lambda value: type(value) is int and low <= value <= high)
    if column.type is ColumnType.TIMESTAMP:
        if logical == "timestamp-micros":
            return _Rule(kind, lambda value: type(value) is dt.datetime and value.tzinfo is not None)
        # A schema with milliseconds loses nothing, and local times are written as those of UTC.
        return _Rule(pa.timestamp("ms", tz="UTC") if logical.endswith("-millis") else kind, _never)
    if column.type in _SAME:
        same = _SAME[column.type]
        return _Rule(kind, lambda value: type(value) is same)
    if column.type is ColumnType.FLOAT:
        return _Rule(kind, lambda value: type(value) is float and abs(value) < _SURELY_FLOAT)
    if column.type is ColumnType.DATE:
        return _Rule(kind, lambda value: type(value) is dt.date)
    return _Rule(kind, _never)


def _never(value: object) -> bool:
    return False
