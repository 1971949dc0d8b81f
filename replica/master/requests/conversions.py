"""Checks new tables and proposed times of queries, and converts source positions to protobuf."""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.rows import SourceFormat, TableDescription, WriterSchemaInfo
from nyala.replica.rpc import check_description, check_numbers, description_from_pb, pb, source_to_pb
from nyala.replica.types import (
    Code,
    InvariantViolation,
    Refused,
    check_column_name,
    check_source_topic,
    check_table_name,
    is_uuid,
    kafka_topics,
    limits,
    shown,
)
from nyala.schemas import parse_writer_schema

from ..catalog.capacity import check_defaults
from ..catalog.records import Position, ReadTime

HISTORY_RETENTION_DEFAULT_US = 15 * 60 * 1_000_000
_NO_SOURCE = SourceFormat()


def _refuse(what: str, /, **values: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, values)


def checked_table(table: pb.TableInfo, topic_prefix: str = "") -> TableDescription:
    """A new table, with ids and defaults filled in; Refused(INVALID_ARGUMENT) names the impossible value.
    `topic_prefix`: of the masters' topics, of which none may feed a table."""
    out = pb.TableInfo()
    out.CopyFrom(table)
    check_table_name(out.name)
    if out.name == "catalog":
        raise _refuse("this name is taken by the masters", name=out.name)
    if not 0 < len(out.schema.columns) <= limits.COLUMNS_MAX:
        raise _refuse("a table has columns", columns=len(out.schema.columns), max=limits.COLUMNS_MAX)
    for column in out.schema.columns:
        check_column_name(column.name)
    out.schema.schema_id = out.schema.schema_id or 1
    if not any(c.id for c in out.schema.columns):
        for pos, column in enumerate(out.schema.columns):
            column.id = pos + 1
    out.partition.hash_version = out.partition.hash_version or 1
    out.partition.buckets = out.partition.buckets or 1
    if out.partition.buckets > 1 and not out.partition.hash_columns:
        out.partition.hash_columns.extend(out.schema.key)
    out.replication_factor = out.replication_factor or 3
    out.history_retention_us = out.history_retention_us or HISTORY_RETENTION_DEFAULT_US
    out.source.topic = out.source.topic or f"writes.{out.name}"
    check_source_topic(out.source.topic, kafka_topics.control_topics(topic_prefix))
    out.source.framing = out.source.framing or "single-object"
    if out.source.framing not in kafka_topics.FRAMINGS:
        raise _refuse("the framing is single-object, confluent or bare", got=out.source.framing)
    # Before the splits are read, because that takes time for each.
    tablets = out.partition.buckets * (len(out.partition.range_splits_json) + 1)
    if tablets > limits.TABLETS_PER_TABLE_MAX:
        what = "the table has too many tablets, which are its hash buckets times its ranges: use fewer of either"
        raise _refuse(what, tablets=tablets, max=limits.TABLETS_PER_TABLE_MAX)
    try:
        checked = description_from_pb(out)
    except InvariantViolation as error:
        raise _refuse(str(error), table=out.name) from error
    check_numbers(checked)
    check_defaults(checked.schema)
    check_description(checked)
    return checked


def check_writer_schemas(writers: Iterable[WriterSchemaInfo], declared: SourceFormat = _NO_SOURCE) -> None:
    """Raise Refused(INVALID_ARGUMENT) unless each is an Avro schema under its own fingerprint, and the reader schema of
    a source of bare values is an Avro schema. The jobs that read the table's topic rely on them."""
    for writer in writers:
        made = _fingerprint(writer.avro_json, f"the writer schema of fingerprint {shown(writer.fingerprint)}")
        if writer.fingerprint != made:
            what = "the fingerprint is not that of the schema, by CRC-64-AVRO in hexadecimal; nothing was changed"
            raise _refuse(what, given=shown(writer.fingerprint), of_schema=made)
    if declared.framing == "bare":
        _fingerprint(declared.reader_schema, "reader_schema, which a source of bare values declares,")


def _fingerprint(avro_json: str, what: str) -> str:
    try:
        return parse_writer_schema(avro_json)[1].hex()
    except ValueError as error:
        what = (
            f"{what} is no Avro schema; nothing was changed: give the JSON of the schema that the producers write with"
        )
        raise _refuse(what, why=shown(str(error)), begins=shown(avro_json)) from error


def position_to_pb(position: Position) -> pb.SourcePosition:
    """The position as it is sent."""
    return pb.SourcePosition(
        table_id=position.table_id,
        source=source_to_pb(position.source),
        generation=position.generation,
        start=position.start,
        done=position.done,
        owner_run=position.owner_run,
        owner_deadline_us=position.owner_deadline_us,
        topic=position.topic,
        table=position.table,
    )


def positions_to_pb(positions: Iterable[Position]) -> list[pb.SourcePosition]:
    """The positions as they are sent."""
    return [position_to_pb(position) for position in positions]


def read_time_from_pb(request: pb.AgreeReadTimeRequest, host: str) -> ReadTime:
    """The time that a caller on `host` proposes for a Spark query; 0 if it proposes none. Refused INVALID_ARGUMENT for
    ids that no `load()` has."""
    for what, given in (("load_id", request.load_id), ("application", request.application)):
        if not is_uuid(given):
            raise _refuse(f"{what} has 32 hexadecimal digits, not {shown(given)!r}; nothing was changed")
    return ReadTime(
        application=request.application,
        load_id=request.load_id,
        query=request.query,
        time=request.snapshot_time,
        host=host,
    )
