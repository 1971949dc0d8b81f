"""Converts descriptions of tables to the wire form and back; the masters' catalog has its JSON."""

from __future__ import annotations

from google.protobuf import json_format

from nyala.replica.rows import SourceFormat, TableDescription, WriterSchemaInfo
from nyala.replica.types import Code, Refused, check_number, limits

from . import nyala_pb2 as pb
from .tables import partition_from_pb, partition_to_pb, schema_from_pb, schema_to_pb


def writer_schema_to_pb(schema: WriterSchemaInfo) -> pb.WriterSchema:
    """To the wire."""
    return pb.WriterSchema(fingerprint=schema.fingerprint, registry_id=schema.registry_id, avro_json=schema.avro_json)


def writer_schema_from_pb(message: pb.WriterSchema) -> WriterSchemaInfo:
    """From the wire."""
    return WriterSchemaInfo(message.fingerprint, message.registry_id, message.avro_json)


def description_to_pb(table: TableDescription) -> pb.TableInfo:
    """To the wire."""
    source = table.source
    return pb.TableInfo(
        table_id=table.table_id,
        name=table.name,
        schema=schema_to_pb(table.schema),
        partition=partition_to_pb(table.partition, table.schema),
        replication_factor=table.replication_factor,
        history_retention_us=table.history_retention_us,
        source=pb.SourceSpec(topic=source.topic, framing=source.framing, reader_schema=source.reader_schema),
        writer_schemas=map(writer_schema_to_pb, table.writer_schemas),
        created_us=table.created_us,
        older_schemas=map(schema_to_pb, table.older_schemas),
    )


def description_from_pb(message: pb.TableInfo) -> TableDescription:
    """The description from the wire; Refused(INVALID_ARGUMENT) if it describes no possible table."""
    schema, source = schema_from_pb(message.schema), message.source
    return TableDescription(
        table_id=message.table_id,
        name=message.name,
        schema=schema,
        partition=partition_from_pb(message.partition, schema),
        replication_factor=message.replication_factor,
        history_retention_us=message.history_retention_us,
        created_us=message.created_us,
        source=SourceFormat(source.topic, source.framing or "single-object", source.reader_schema),
        writer_schemas=tuple(map(writer_schema_from_pb, message.writer_schemas)),
        older_schemas=tuple(map(schema_from_pb, message.older_schemas)),
    )


def description_to_json(table: TableDescription) -> dict[str, object]:
    """The JSON of its message, for the catalog."""
    found: dict[str, object] = json_format.MessageToDict(description_to_pb(table), preserving_proto_field_name=True)
    return found


def info_from_json(described: dict[str, object]) -> pb.TableInfo:
    """The message whose JSON is in the catalog; fields from a newer build are left out."""
    info = pb.TableInfo()
    json_format.ParseDict(described, info, ignore_unknown_fields=True)
    return info


def check_replicas(number: int) -> None:
    """Refused(INVALID_ARGUMENT) if so many voting replicas cannot be wanted."""
    if not 1 <= number <= limits.REPLICAS_MAX or number % 2 == 0:
        most = limits.REPLICAS_MAX
        what = f"the number of voting replicas is odd, from 1 to {most}: an even one tolerates no fault more"
        raise Refused(Code.INVALID_ARGUMENT, what, got=number)


def check_numbers(table: TableDescription) -> None:
    """Refused(INVALID_ARGUMENT) if a table cannot have this replication factor or history retention."""
    check_replicas(table.replication_factor)
    check_number(table.history_retention_us, "history_retention_us", 1, limits.HISTORY_RETENTION_US_MAX)


def check_description(table: TableDescription) -> None:
    """Refused(TOO_LARGE) if the description of a table is too large; it names the part that takes most."""
    message = description_to_pb(table)
    for schema in message.writer_schemas:
        if schema.ByteSize() > limits.WRITER_SCHEMA_BYTES_MAX:
            raise Refused(
                Code.TOO_LARGE,
                "the writer schema is too large: leave documentation and defaults out of it, they make no other schema",
                bytes=schema.ByteSize(),
                max=limits.WRITER_SCHEMA_BYTES_MAX,
            )
    if len(message.writer_schemas) > limits.WRITER_SCHEMAS_MAX:
        raise Refused(
            Code.TOO_LARGE,
            "the table knows as many writer schemas as it may: find one that no event is written with any more (`nyala "
            "schema list`), make room (`nyala schema forget`), then register this one again",
            table=message.name,
            max=limits.WRITER_SCHEMAS_MAX,
        )
    parts = {
        "its columns": message.schema.ByteSize(),
        "its partitions": message.partition.ByteSize(),
        "its source": message.source.ByteSize(),
        "its writer schemas": sum(w.ByteSize() for w in message.writer_schemas),
        "its older schemas": sum(s.ByteSize() for s in message.older_schemas),
    }
    if message.ByteSize() > limits.TABLE_BYTES_MAX:
        largest = max(parts, key=lambda name: parts[name])
        raise Refused(
            Code.TOO_LARGE,
            f"the description of the table is too large, and {largest} take most of it: use shorter names, fewer "
            "columns or ranges, or make room by `nyala schema forget`",
            table=message.name,
            bytes=message.ByteSize(),
            max=limits.TABLE_BYTES_MAX,
        )
