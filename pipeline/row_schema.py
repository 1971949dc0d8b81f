"""Avro schemas of row events and of Kafka keys, derived from a table's schema."""

from __future__ import annotations

import json
from typing import Any

from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema

OP_FIELD = "op"
"""Name of the enum field with the operation, in writer schemas of tables that have no column of that name."""
OP_HEADER = "nyala-op"
"""Kafka header with the operation; if present it overrides the value's field."""
NAMESPACE = "nyala.rows"

_AVRO: dict[ColumnType, Any] = {
    ColumnType.BOOL: "boolean",
    ColumnType.INT8: "int",
    ColumnType.INT16: "int",
    ColumnType.INT32: "int",
    ColumnType.INT64: "long",
    ColumnType.FLOAT: "float",
    ColumnType.DOUBLE: "double",
    ColumnType.STRING: "string",
    ColumnType.BINARY: "bytes",
    ColumnType.DATE: {"type": "int", "logicalType": "date"},
    ColumnType.TIMESTAMP: {"type": "long", "logicalType": "timestamp-micros"},
}


def avro_type(column: Column) -> Any:
    """Return the Avro type that holds a column's values, without the null branch."""
    if column.type is ColumnType.DECIMAL:
        return {"type": "bytes", "logicalType": "decimal", "precision": column.precision, "scale": column.scale}
    return _AVRO[column.type]


def key_schema_json(schema: TableSchema) -> str:
    """Return the Avro JSON of the Kafka key: a record of the primary key's columns, in key order."""
    fields = [{"name": column.name, "type": avro_type(column)} for column in schema.key_columns]
    return json.dumps({"type": "record", "name": "Key", "namespace": NAMESPACE, "fields": fields})


def row_schema_json(schema: TableSchema, columns: list[str] | None = None, *, name: str = "Row") -> str:
    """Return the Avro JSON of a row event: `columns` (default: all), then the `op` enum, whose default is UPSERT.

    Fewer columns make partial updates: the others of an existing row stay as they are.
    """
    wanted = set(schema.names if columns is None else (*schema.key, *columns))
    fields: list[dict[str, Any]] = []
    for column in schema.columns:
        if column.name in wanted:
            plain = avro_type(column)
            fields.append(
                {"name": column.name, "type": ["null", plain], "default": None}
                if column.nullable
                else {"name": column.name, "type": plain}
            )
    if not schema.has(OP_FIELD):
        enum = {"type": "enum", "name": "Op", "symbols": [op.name for op in RowOp], "default": "UPSERT"}
        fields.append({"name": OP_FIELD, "type": enum, "default": "UPSERT"})
    return json.dumps({"type": "record", "name": name, "namespace": NAMESPACE, "fields": fields})
