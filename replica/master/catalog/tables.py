"""Tables and their tablets in the catalog: create, drop, find and describe them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf import json_format

from nyala.replica.policy import ServerView, place_tablets
from nyala.replica.rpc import config_to_pb, partition_from_pb, pb, schema_from_pb
from nyala.replica.types import (
    Code,
    InvariantViolation,
    Member,
    Refused,
    check_column_name,
    check_number,
    check_source_topic,
    check_table_name,
    limits,
    new_uuid,
)

from .capacity import check_defaults, check_description, check_room
from .catalog import Catalog
from .records import DESIRED_CHANGE, NAME, REQUEST, SOURCE, TABLE, TABLET, Json, Record, Table, TableId, Tablet, write

REPLICAS_MAX = 7
HISTORY_RETENTION_DEFAULT_US = 15 * 60 * 1_000_000

Change = tuple[Mapping[str, Record], list[str], str, Any]


def _refuse(what: str, /, **values: object) -> Refused:
    return Refused(Code.INVALID_ARGUMENT, what, values)


def table_record(info: pb.TableInfo) -> Table:
    """The record of a table as the service describes it."""
    described: Json = json_format.MessageToDict(info, preserving_proto_field_name=True)
    return Table(name=info.name, replication_factor=info.replication_factor, described=described)


def table_info(table: Table) -> pb.TableInfo:
    """The description of a table; fields from a newer build are left out."""
    info = pb.TableInfo()
    json_format.ParseDict(write(table), info, ignore_unknown_fields=True)
    return info


def checked_table(table: pb.TableInfo) -> pb.TableInfo:
    """`table` with ids and defaults filled in; Refused(INVALID_ARGUMENT) names an impossible part."""
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
    if not 1 <= out.replication_factor <= REPLICAS_MAX or out.replication_factor % 2 == 0:
        raise _refuse(f"the replication factor is an odd number from 1 to {REPLICAS_MAX}", got=out.replication_factor)
    out.history_retention_us = out.history_retention_us or HISTORY_RETENTION_DEFAULT_US
    check_number(out.history_retention_us, "history_retention_us", 1, limits.HISTORY_RETENTION_US_MAX)
    out.source.topic = out.source.topic or f"writes.{out.name}"
    check_source_topic(out.source.topic)
    out.source.framing = out.source.framing or "single-object"
    if out.source.framing not in ("single-object", "confluent", "bare"):
        raise _refuse("the framing is single-object, confluent or bare", got=out.source.framing)
    try:
        schema = schema_from_pb(out.schema)
        spec = partition_from_pb(out.partition, schema)
    except InvariantViolation as error:
        raise _refuse(str(error), table=out.name) from error
    if len(spec.partitions) > limits.TABLETS_PER_TABLE_MAX:
        what = "the table has too many tablets, which are its hash buckets times its ranges: use fewer of either"
        raise _refuse(what, tablets=len(spec.partitions), max=limits.TABLETS_PER_TABLE_MAX)
    check_defaults(schema)
    check_description(out)
    return out


def create_table(
    catalog: Catalog,
    request: pb.CreateTableRequest,
    servers: Sequence[ServerView],
    load: dict[str, int],
    now_us: int,
    *,
    more_may_come: bool = False,
) -> Change:
    """The change that creates a table with its tablets placed; its result is the table id.

    The same request id again gives the first id and changes nothing. Refused(ALREADY_EXISTS) for a taken name; while
    `more_may_come`, NOT_READY instead of INVALID_ARGUMENT if there are too few servers.
    """
    if request.request_id:
        earlier = catalog.get(REQUEST, request.request_id)
        if earlier is not None:
            return {}, [], "", earlier.table_id
    table = checked_table(request.table)
    if NAME + table.name in catalog:
        raise Refused(Code.ALREADY_EXISTS, "a table of this name exists", name=table.name)
    spec = partition_from_pb(table.partition, schema_from_pb(table.schema))
    live = sum(s.alive and not s.draining for s in servers)
    if more_may_come and live < table.replication_factor:
        what = "too few tablet servers count so far, and more of them may be about to; nothing was applied, try again"
        raise Refused(Code.NOT_READY, what, alive=live, replicas=table.replication_factor)
    placed = place_tablets(servers, load, len(spec.partitions), table.replication_factor)
    table.table_id = new_uuid()
    table.created_us = now_us
    made = TableId(table_id=table.table_id)
    puts: dict[str, Record] = {TABLE + table.table_id: table_record(table), NAME + table.name: made}
    for (bucket, range_pos), names in zip(spec.partitions, placed, strict=True):
        members = first_members(servers, names)
        tablet = Tablet(table_id=table.table_id, bucket=bucket, range_pos=range_pos, members=members)
        puts[TABLET + new_uuid()] = tablet
    if request.request_id:
        puts[REQUEST + request.request_id] = made
    check_room(catalog, puts)
    return puts, [], request.request_id and f"create-{request.request_id}", table.table_id


def first_members(servers: Sequence[ServerView], names: Sequence[str]) -> tuple[Member, ...]:
    """The first members of a new tablet, on the servers with these names."""
    addresses = {s.uuid: s.member.addresses for s in servers}
    return tuple(Member(uuid, addresses[uuid]) for uuid in names)


def tablet_of(catalog: Catalog, tablet_id: str) -> Tablet:
    """The record of a tablet that was not dropped; Refused(TABLET_NOT_FOUND) if there is none."""
    tablet = catalog.get(TABLET, tablet_id)
    if tablet is None or tablet.dropped:
        raise Refused(Code.TABLET_NOT_FOUND, "no such tablet", tablet=tablet_id)
    return tablet


def find_table(catalog: Catalog, name: str = "", table_id: str = "") -> tuple[str, Table]:
    """(table id, record) by name or id; Refused(NOT_FOUND), or WRONG_TABLE if name and id disagree."""
    named = catalog.get(NAME, name) if name else None
    found = named.table_id if named else ("" if name else table_id)
    table = catalog.get(TABLE, found) if found else None
    if table is None:
        raise Refused(Code.NOT_FOUND, "no such table", name=name, table_id=table_id)
    if table_id and table_id != found:
        raise Refused(Code.WRONG_TABLE, "the table was dropped and created again", name=name, known=table_id, now=found)
    return found, table


def drop_table(
    catalog: Catalog,
    name: str,
    table_id: str,
    now_us: int,
    holders: Callable[[Tablet, str], list[str]] | None = None,
) -> Change:
    """The change that drops a table: its tablets stay known as dropped, so that their replicas may be deleted.

    `holders(tablet, tablet id)`: uuids of the servers that may have a replica; default: they are found out later.
    """
    found, table = find_table(catalog, name, table_id)
    puts: dict[str, Record] = {}
    deletes = [TABLE + found, NAME + table.name]
    for tablet_id, tablet in catalog.items(TABLET):
        if tablet.table_id == found and not tablet.dropped:
            held = tablet.holders if holders is None else tuple(holders(tablet, tablet_id))
            puts[TABLET + tablet_id] = replace(tablet, dropped_us=now_us, holders=held)
            deletes.append(DESIRED_CHANGE + tablet_id)
    deletes.extend(f"{SOURCE}{found}/{k}" for k, _ in catalog.items(SOURCE, f"{found}/"))
    deletes.extend(REQUEST + request for request, made in catalog.items(REQUEST) if made.table_id == found)
    return puts, deletes, "", found


def encoded_for_servers(table: Table) -> bytes:
    """The description of a table as its servers get it, encoded; it takes milliseconds for 300 columns."""
    info = table_info(table)
    info.ClearField("writer_schemas")  # a server reads rows, not records
    return bytes(info.SerializeToString())


def create_order(tablet_id: str, tablet: Tablet, described: bytes, server_uuid: str) -> pb.CreateTabletRequest:
    """The order to a server to create its replica of a new tablet. `described`: its table, `encoded_for_servers`."""
    return pb.CreateTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        table=pb.TableInfo.FromString(described),
        bucket=tablet.bucket,
        range_pos=tablet.range_pos,
        config=config_to_pb(tablet.first_config),
        leader_hint=tablet.members[0].uuid,
    )


def forget_writer_schema(catalog: Catalog, name: str, fingerprint: str) -> Change:
    """The change that removes a writer schema; an unknown one changes nothing.

    Only an operator can know that no event with a schema will be read any more: events may wait in Kafka for weeks, or
    be read again from the beginning.
    """
    found, stored = find_table(catalog, name)
    table = table_info(stored)
    kept = [known for known in table.writer_schemas if known.fingerprint != fingerprint]
    if len(kept) == len(table.writer_schemas):
        return {}, [], "", table
    del table.writer_schemas[:]
    table.writer_schemas.extend(kept)
    return {TABLE + found: table_record(table)}, [], "", table


def add_writer_schema(catalog: Catalog, name: str, schema: pb.WriterSchema) -> Change:
    """The change that adds a writer schema under its fingerprint; a known one changes nothing."""
    found, stored = find_table(catalog, name)
    table = table_info(stored)
    if not schema.fingerprint or not schema.avro_json:
        raise _refuse("a writer schema has a fingerprint and its JSON", fingerprint=schema.fingerprint)
    for known in table.writer_schemas:
        same = known.fingerprint == schema.fingerprint
        if same and (not schema.registry_id or known.registry_id in (0, schema.registry_id)):
            if known.avro_json != schema.avro_json:
                raise Refused(Code.ALREADY_EXISTS, "another schema has this fingerprint", known=schema.fingerprint)
            if known.registry_id == schema.registry_id or not schema.registry_id:
                return {}, [], "", table
            known.registry_id = schema.registry_id
            return {TABLE + found: table_record(table)}, [], "", table
    table.writer_schemas.add().CopyFrom(schema)
    check_description(table)
    puts = {TABLE + found: table_record(table)}
    check_room(catalog, puts)
    return puts, [], "", table
