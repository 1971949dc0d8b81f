"""Tables and their tablets in the catalog: create, drop, find and describe them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from nyala.replica.policy import ServerView, place_tablets
from nyala.replica.rows import TableDescription, WriterSchemaInfo
from nyala.replica.rpc import check_description, description_from_pb, description_to_json, info_from_json
from nyala.replica.types import Code, Member, Refused, new_uuid

from .capacity import check_room
from .catalog import Catalog
from .records import DESIRED_CHANGE, NAME, REQUEST, SOURCE, TABLE, TABLET, Record, Table, TableId, Tablet, write

Change = tuple[Mapping[str, Record], list[str], str, Any]


def table_record(table: TableDescription) -> Table:
    """The record of a table."""
    return Table(name=table.name, replication_factor=table.replication_factor, described=description_to_json(table))


def table_described(table: Table) -> TableDescription:
    """The description in a table's record; fields from a newer build are left out."""
    return description_from_pb(info_from_json(write(table)))


def create_table(
    catalog: Catalog,
    asked: TableDescription,
    servers: Sequence[ServerView],
    load: dict[str, int],
    now_us: int,
    *,
    request_id: str = "",
    more_may_come: bool = False,
) -> Change:
    """The change that creates a table with its tablets placed; its result is the table id.

    If the request id was used before, the result is the first table's id, and nothing changes. Refused(ALREADY_EXISTS)
    for a taken name; INVALID_ARGUMENT if there are too few servers, or NOT_READY while `more_may_come`.
    """
    earlier = catalog.get(REQUEST, request_id) if request_id else None
    if earlier is not None:
        return {}, [], "", earlier.table_id
    table = replace(asked, table_id=new_uuid(), created_us=now_us)
    if NAME + table.name in catalog:
        raise Refused(Code.ALREADY_EXISTS, "a table of this name exists", name=table.name)
    partitions = table.partition.partitions
    live = sum(s.takes_replicas for s in servers)
    if more_may_come and live < table.replication_factor:
        what = "too few tablet servers count so far, and more of them may be about to; nothing was applied, try again"
        raise Refused(Code.NOT_READY, what, alive=live, replicas=table.replication_factor)
    placed = place_tablets(servers, load, len(partitions), table.replication_factor)
    made = TableId(table_id=table.table_id)
    puts: dict[str, Record] = {TABLE + table.table_id: table_record(table), NAME + table.name: made}
    for (bucket, range_pos), names in zip(partitions, placed, strict=True):
        members = first_members(servers, names)
        tablet = Tablet(table_id=table.table_id, bucket=bucket, range_pos=range_pos, members=members)
        puts[TABLET + new_uuid()] = tablet
    if request_id:
        puts[REQUEST + request_id] = made
    check_room(catalog, puts)
    return puts, [], request_id and f"create-{request_id}", table.table_id


def first_members(servers: Sequence[ServerView], names: Sequence[str]) -> tuple[Member, ...]:
    """The first members of a new tablet, on the servers with these names."""
    addresses = {s.uuid: s.member.addresses for s in servers}
    return tuple(Member(uuid, addresses[uuid]) for uuid in names)


def tablet_of(catalog: Catalog, tablet_id: str) -> Tablet:
    """The record of a tablet that was not dropped; Refused(TABLET_NOT_FOUND) if there is none."""
    tablet = catalog.get(TABLET, tablet_id)
    if tablet is None or tablet.dropped:
        raise Refused(Code.TABLET_NOT_FOUND, "no such tablet; `nyala tablet list` shows the tablets", tablet=tablet_id)
    return tablet


def find_table(catalog: Catalog, name: str = "", table_id: str = "") -> tuple[str, Table]:
    """(table id, record) by name or id; Refused(NOT_FOUND), or WRONG_TABLE if name and id disagree."""
    named = catalog.get(NAME, name) if name else None
    found = named.table_id if named else ("" if name else table_id)
    table = catalog.get(TABLE, found) if found else None
    if table is None:
        raise Refused(
            Code.NOT_FOUND, "no such table; `nyala table list` shows the tables", name=name, table_id=table_id
        )
    if table_id and table_id != found:
        raise Refused(Code.WRONG_TABLE, "the table was dropped and created again", name=name, known=table_id, now=found)
    return found, table


def drop_table(
    catalog: Catalog, name: str, table_id: str, now_us: int, holders: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Change:
    """The change that drops a table: its tablets stay known as dropped, so that their replicas may be deleted.

    `holders`: by tablet id, the uuids of the servers that may have a replica. For a tablet that is not in it, they are
    found later.
    """
    found, table = find_table(catalog, name, table_id)
    puts: dict[str, Record] = {}
    deletes = [TABLE + found, NAME + table.name]
    for tablet_id, tablet in catalog.tablets_of(found):
        if not tablet.dropped:
            held = tuple(holders[tablet_id]) if tablet_id in holders else tablet.holders
            puts[TABLET + tablet_id] = replace(tablet, dropped_us=now_us, holders=held)
            deletes.append(DESIRED_CHANGE + tablet_id)
    deletes.extend(f"{SOURCE}{found}/{k}" for k, _ in catalog.items(SOURCE, f"{found}/"))
    deletes.extend(REQUEST + request for request, made in catalog.items(REQUEST) if made.table_id == found)
    return puts, deletes, "", found


def forget_writer_schema(catalog: Catalog, name: str, fingerprint: str) -> Change:
    """The change that removes a writer schema; an unknown one changes nothing.

    Only an operator can know that no event with this schema will be read again: events may wait in Kafka for weeks, or
    be read again from the beginning.
    """
    found, stored = find_table(catalog, name)
    table = table_described(stored)
    kept = tuple(known for known in table.writer_schemas if known.fingerprint != fingerprint)
    if kept == table.writer_schemas:
        return {}, [], "", table
    table = replace(table, writer_schemas=kept)
    return {TABLE + found: table_record(table)}, [], "", table


def add_writer_schema(catalog: Catalog, name: str, schema: WriterSchemaInfo) -> Change:
    """The change that adds a writer schema under its fingerprint; a known one changes nothing."""
    found, stored = find_table(catalog, name)
    table = table_described(stored)
    if not schema.fingerprint or not schema.avro_json:
        raise Refused(
            Code.INVALID_ARGUMENT, "a writer schema has a fingerprint and its JSON", fingerprint=schema.fingerprint
        )
    writers = table.writer_schemas
    for pos, known in enumerate(writers):
        same = known.fingerprint == schema.fingerprint
        if same and (not schema.registry_id or known.registry_id in (0, schema.registry_id)):
            if known.avro_json != schema.avro_json:
                raise Refused(Code.ALREADY_EXISTS, "another schema has this fingerprint", known=schema.fingerprint)
            if known.registry_id == schema.registry_id or not schema.registry_id:
                return {}, [], "", table
            table = replace(table, writer_schemas=(*writers[:pos], schema, *writers[pos + 1 :]))
            return {TABLE + found: table_record(table)}, [], "", table
    table = replace(table, writer_schemas=(*writers, schema))
    check_description(table)
    puts = {TABLE + found: table_record(table)}
    check_room(catalog, puts)
    return puts, [], "", table
