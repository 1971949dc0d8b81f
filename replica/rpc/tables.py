"""Table schemas, partition specs, predicates, sources and row errors and their wire form."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from nyala.replica.rows import (
    Column,
    ColumnType,
    ConditionsSize,
    ConditionValues,
    MalformedMessage,
    Misfit,
    PartitionSpec,
    Predicate,
    RowError,
    SourceKey,
    TableSchema,
    array_of,
    check_decimals,
    never_stop,
    read_values,
    value_from_json,
    value_to_json,
)
from nyala.replica.types import Code, Refused, RowCode, known_value, parse_json, read_number, shown

from . import nyala_pb2 as pb


def _json_bytes(kind: ColumnType, value: object) -> bytes:
    return json.dumps(value_to_json(kind, value)).encode()


def _json_value(kind: ColumnType, data: bytes) -> object:
    return value_from_json(kind, parse_json(data, "a column's value"))


def column_to_pb(column: Column) -> pb.Column:
    """To the wire."""
    return pb.Column(
        id=column.id,
        name=column.name,
        type=column.type.value,
        nullable=column.nullable,
        precision=column.precision,
        scale=column.scale,
        default_json=b"" if column.default is None else _json_bytes(column.type, column.default),
    )


def column_from_pb(message: pb.Column) -> Column:
    """From the wire; Refused(INVALID_ARGUMENT) for an unknown type or an impossible column."""
    kind = known_value(ColumnType, message.type, f"the type of column {shown(message.name)}")
    return Column(
        id=message.id,
        name=message.name,
        type=kind,
        nullable=message.nullable,
        precision=message.precision,
        scale=message.scale,
        default=_json_value(kind, message.default_json) if message.default_json else None,
    )


def schema_to_pb(schema: TableSchema) -> pb.TableSchema:
    """To the wire."""
    return pb.TableSchema(
        schema_id=schema.schema_id, columns=[column_to_pb(c) for c in schema.columns], key=list(schema.key)
    )


def schema_from_pb(message: pb.TableSchema) -> TableSchema:
    """From the wire; Refused(INVALID_ARGUMENT) if it is no possible schema."""
    return TableSchema(message.schema_id, tuple(column_from_pb(c) for c in message.columns), tuple(message.key))


def _range_type(schema: TableSchema, range_column: str) -> ColumnType:
    return schema.column(range_column).type if range_column else ColumnType.INT64


def partition_to_pb(spec: PartitionSpec, schema: TableSchema) -> pb.PartitionSpec:
    """To the wire; `schema` gives the type of the range splits."""
    kind = _range_type(schema, spec.range_column)
    return pb.PartitionSpec(
        hash_columns=list(spec.hash_columns),
        buckets=spec.buckets,
        hash_version=spec.hash_version,
        range_column=spec.range_column,
        range_splits_json=[_json_bytes(kind, v) for v in spec.range_splits],
    )


def partition_from_pb(message: pb.PartitionSpec, schema: TableSchema) -> PartitionSpec:
    """From the wire; Refused(INVALID_ARGUMENT) if it cannot cut tables of `schema`."""
    kind = _range_type(schema, message.range_column)
    spec = PartitionSpec(
        hash_columns=tuple(message.hash_columns),
        buckets=message.buckets,
        hash_version=message.hash_version,
        range_column=message.range_column,
        range_splits=tuple(_json_value(kind, s) for s in message.range_splits_json),
    )
    spec.validate_for(schema)
    return spec


def source_to_pb(source: SourceKey) -> pb.SourceKey:
    """To the wire."""
    return pb.SourceKey(cluster_id=source.cluster_id, topic_id=source.topic_id, kafka_partition=source.kafka_partition)


def source_from_pb(message: pb.SourceKey) -> SourceKey:
    """From the wire."""
    return SourceKey(message.cluster_id, message.topic_id, message.kafka_partition)


def row_errors_to_pb(errors: Iterable[RowError]) -> list[pb.RowErrorPb]:
    """To the wire."""
    return [pb.RowErrorPb(offset=e.offset, code=int(e.code), column=e.column) for e in errors]


def row_errors_from_pb(messages: Iterable[pb.RowErrorPb]) -> list[RowError]:
    """From the wire. For a code of a newer server the text has its number, and that this program is older."""
    return [RowError(m.offset, read_number(RowCode, m.code), m.column) for m in messages]


def predicate_to_pb(predicate: Predicate, data_type: Any) -> pb.Predicate:
    """To the wire. Values are sent as `data_type`, the column's type, or in their own type if that cannot hold them."""
    message = pb.Predicate(column=predicate.column, op=predicate.op)
    values = [v for v in predicate.values if v is not None]
    if values or predicate.op == "in":
        array = _values_array(values, data_type)
        sink = pa.BufferOutputStream()
        batch = pa.record_batch([array], names=["v"])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        message.values = sink.getvalue().to_pybytes()
    return message


def _values_array(values: list[object], data_type: Any) -> Any:
    refusals = (pa.ArrowException, TypeError, ValueError, OverflowError)
    try:
        array = array_of(values, data_type)
        # A float column rounds the value, which would change the meaning of `x > 0.1`.
        if not any(isinstance(v, float | decimal.Decimal) for v in values) or array.to_pylist() == values:
            return array
    except Misfit:
        pass
    try:
        check_decimals(values)
        return pa.array(values)
    except MemoryError:  # Arrow's, too, which is no fault of the values
        raise
    except refusals as e:
        raise Refused(
            Code.INVALID_ARGUMENT, "values of one condition have one type: convert them first", values=str(values[:5])
        ) from e


def predicate_from_pb(message: pb.Predicate) -> Predicate:
    """From the wire; Refused(INVALID_ARGUMENT) if the values cannot be read, or are more than a scan may have."""
    if not message.values:
        return Predicate(message.column, message.op, ())
    try:
        array = read_values(message.values)
        values: Sequence[object] = ConditionValues(array) if len(array) > 1 else tuple(array.to_pylist())
    except MemoryError:  # Arrow's, too, which is no fault of the values
        raise
    except (MalformedMessage, pa.ArrowException, ValueError, OverflowError) as e:
        raise Refused(
            Code.INVALID_ARGUMENT,
            "a condition's values cannot be read",
            column=shown(message.column),
            reason=str(e)[:200],
        ) from e
    if pa.types.is_floating(array.type) and np.isnan(array.to_numpy()).any():
        what = "NaN in a condition: it equals nothing and has no order; leave the value out"
        raise Refused(Code.INVALID_ARGUMENT, what, column=shown(message.column))
    return Predicate(message.column, message.op, values)


def predicates_from_pb(
    messages: Sequence[pb.Predicate], stop: Callable[[], None] = never_stop
) -> tuple[Predicate, ...]:
    """All conditions of one scan; Refused(INVALID_ARGUMENT) as for one, or for too many conditions or values.

    `stop` is called before each, and may raise.
    """
    size = ConditionsSize(len(messages), 0, sum(len(m.values) for m in messages))
    size.check()
    found: list[Predicate] = []
    for message in messages:
        stop()
        found.append(predicate_from_pb(message))
        size = size._replace(values=size.values + len(found[-1].values))
        size.check()
    return tuple(found)
