"""Turns the arguments of `create_table` into a definition, with a schema and a partition spec."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from nyala.replica.rows import Column, ColumnType, Misfit, PartitionSpec, TableSchema, array_of, type_of_arrow
from nyala.replica.types import (
    as_given,
    check_column_name,
    check_kind,
    check_list,
    check_measure,
    check_names,
    check_source_topic,
    check_table_name,
    check_whole,
    limits,
    text_of,
)

from .argument_errors import invalid_argument, unknown_name, valid, valid_text

_TYPE_TEXT = re.compile(
    r"^\s*([a-z0-9_]+)\s*(?:\(\s*(\d{1,3})\s*(?:,\s*(\d{1,3})\s*)?\))?\s*(not\s+null)?\s*$", re.IGNORECASE
)
_OTHER_NAMES = {
    "boolean": "bool",
    "tinyint": "int8",
    "smallint": "int16",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "long": "int64",
    "float32": "float",
    "real": "float",
    "float64": "double",
    "str": "string",
    "text": "string",
    "varchar": "string",
    "bytes": "binary",
    "numeric": "decimal",
    "date32": "date",
    "datetime": "timestamp",
}
_PYTHON_TYPES = {bool: "bool", int: "int64", float: "double", str: "string", bytes: "binary"}

Columns = Mapping[str, Any] | Iterable[Any]
"""{name: type}, or a list of (name, type) or Column, or a pa.Schema. A type is text (for example "int64",
"decimal(9,2)", "string not null"), a pa.DataType, or one of bool, int, float, str, bytes."""


class Definition(NamedTuple):
    """A table definition that passed all checks, as it is sent to the masters."""

    schema: TableSchema
    partition: PartitionSpec
    replication_factor: int
    history_retention_us: int
    topic: str


def definition_of(
    name: str,
    columns: Columns,
    *,
    key: str | Sequence[str] = (),
    hash_buckets: int = 1,
    hash_columns: Sequence[str] | None = None,
    range_column: str = "",
    range_splits: Sequence[object] = (),
    replication_factor: int = 3,
    history_retention_s: float = 0,
    topic: str = "",
) -> Definition:
    """Return the table that a user describes; NotApplied if it cannot be. The arguments are those of `create_table`. No
    master is asked."""
    valid_text(check_table_name, name)
    topic = f"writes.{name}" if topic == "" else topic
    valid_text(check_source_topic, topic, what="topic=")
    factor = valid(check_whole, replication_factor, "replication_factor=", 1, 7)
    most_s = limits.HISTORY_RETENTION_US_MAX / 1e6
    retention_us = int(1e6 * valid(check_measure, history_retention_s, "history_retention_s=", 0, most_s))
    schema = schema_of(columns, key)
    spec = partition_of(
        schema,
        hash_buckets=hash_buckets,
        hash_columns=hash_columns,
        range_column=range_column,
        range_splits=range_splits,
    )
    return Definition(schema, spec, factor, retention_us, topic)


def schema_of(columns: Columns, key: str | Sequence[str]) -> TableSchema:
    """Return the schema that a user describes. Key columns are never nullable; others are, unless their type contains
    "not null"."""
    keys = (key,) if isinstance(key, str) else valid(check_names, key, "key=", limits.COLUMNS_MAX)
    made = [_column(pos + 1, name, kind, name in keys) for pos, (name, kind) in enumerate(_pairs(columns))]
    if not made:
        todo = 'give them as in {"id": "int64"}'
        raise invalid_argument("a table needs columns", todo, columns=as_given(columns))
    names = [c.name for c in made]
    for name in keys:
        if name not in names:
            raise unknown_name("column", name, names)
    if not keys:
        raise invalid_argument("a table needs a primary key", "name its columns in key=", columns=", ".join(names))
    return valid(lambda: TableSchema(1, tuple(made), keys))


def partition_of(
    schema: TableSchema,
    *,
    hash_buckets: int,
    hash_columns: Sequence[str] | None,
    range_column: str,
    range_splits: Sequence[object],
) -> PartitionSpec:
    """Return the partition spec that a user describes; default: all key columns are hashed."""
    columns = schema.key
    if hash_columns is not None:
        columns = valid(check_names, hash_columns, "hash_columns=", limits.COLUMNS_MAX)
    valid(check_kind, range_column, str, "range_column=")
    buckets = valid(check_whole, hash_buckets, "hash_buckets=", 1, limits.TABLETS_PER_TABLE_MAX)
    for name in (*columns, *((range_column,) if range_column else ())):
        if not schema.has(name):
            raise unknown_name("column", name, schema.names)

    splits = valid(check_list, range_splits, "range_splits=", limits.TABLETS_PER_TABLE_MAX - 1)
    if splits and not range_column:
        todo = "name the column that they split"
        raise invalid_argument("range_splits= need range_column=", todo, range_splits=as_given(list(splits[:5])))
    if range_column:
        splits = tuple(_exactly("a split", split, schema.column(range_column)) for split in splits)

    def make() -> PartitionSpec:
        spec = PartitionSpec(columns, buckets, range_column=range_column, range_splits=splits)
        spec.validate_for(schema)
        return spec

    return valid(make)


def _exactly(what: str, value: object, column: Column) -> object:
    """Return a split or a default in the column's type; NotApplied if the type does not hold it exactly."""
    try:
        return array_of([value], column.arrow_type)[0].as_py()
    except Misfit as e:
        raise invalid_argument(
            f"{what} does not fit its column",
            "change it, or give the column a type that holds it",
            column=column.name,
            type=column.type_text,
            value=as_given(value),
            reason=e.reason,
        ) from e


def _pairs(columns: Columns) -> list[tuple[str, Any]]:
    if isinstance(columns, pa.Schema):
        return [(f.name, f) for f in columns]
    if isinstance(columns, Mapping):
        return list(columns.items())
    pairs = []
    for item in valid(check_list, columns, "columns=", limits.COLUMNS_MAX):
        if isinstance(item, Column | pa.Field):
            pairs.append((item.name, item))
        elif isinstance(item, tuple | list) and len(item) == 2:
            pairs.append((item[0], item[1]))
        else:
            raise invalid_argument("this is no column", 'give a column as ("name", "type")', got=as_given(item))
    return pairs


def _column(column_id: int, name: str, kind: Any, in_key: bool) -> Column:
    valid_text(check_column_name, name, what="a column's name")
    if isinstance(kind, Column):
        return replace(kind, default=_exactly("the default", kind.default, kind))
    nullable = True
    if isinstance(kind, pa.Field):
        nullable = kind.nullable
        kind = kind.type
    if isinstance(kind, pa.DataType):
        column_type, precision, scale = valid(lambda: type_of_arrow(kind))
    else:
        text = _PYTHON_TYPES.get(kind, "") if isinstance(kind, type) else text_of(kind)
        column_type, precision, scale, required = _type_of_text(name, text or as_given(kind))
        nullable = nullable and not required
    return valid(
        lambda: Column(
            id=column_id,
            name=name,
            type=column_type,
            nullable=nullable and not in_key,
            precision=precision,
            scale=scale,
        )
    )


def _type_of_text(name: str, text: str) -> tuple[ColumnType, int, int, bool]:
    match = _TYPE_TEXT.match(text)
    word = match.group(1).lower() if match else text
    word = _OTHER_NAMES.get(word, word)
    if match is None or word not in {t.value for t in ColumnType}:
        error = unknown_name("type", text, [t.value for t in ColumnType])
        error.values["column"] = name
        raise error
    if word == "decimal" and match.group(2) is None:
        raise invalid_argument(
            "a decimal needs its precision and scale", "give them as in decimal(9,2)", column=name, type=text
        )
    return ColumnType(word), int(match.group(2) or 0), int(match.group(3) or 0), bool(match.group(4))
