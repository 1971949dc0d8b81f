"""The entries that a master accepts into its catalog's log: those that masters write, and none that could not be read
afterwards."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.fs import MASTER, RealDisk, open_or_format
from nyala.replica.master.catalog.records import (
    TABLET,
    Cluster,
    Desired,
    Finalized,
    Maintenance,
    Position,
    ReadFloor,
    ReadLoad,
    ReadTime,
    Retired,
    Table,
    TableId,
    Tablet,
    Takeover,
    read,
    write,
)
from nyala.replica.master.catalog.sources import open_sources, reset_source
from nyala.replica.master.catalog.tables import create_table, drop_table
from nyala.replica.master.group.catalog_group import CatalogGroup
from nyala.replica.master.group.entries import unfit_entry, unfit_record
from nyala.replica.master.requests.change_requests import add, cancel
from nyala.replica.master.requests.conversions import position_to_pb
from nyala.replica.master.requests.desired import maintain
from nyala.replica.policy import DesiredChange
from nyala.replica.raft import AppendEntries
from nyala.replica.rpc import info_from_json, opid_to_pb, pb
from nyala.replica.types import (
    MAX_HYBRID_TIME,
    ZERO_OPID,
    Address,
    Entry,
    EntryKind,
    Member,
    OpId,
    RaftConfig,
    SystemClock,
    is_uuid,
    new_uuid,
)
from nyala.schemas import build_level, encode
from tests.harness.catalogs import AppliedCatalog, new_table
from tests.harness.leading_master import Masters, S

OPTIONAL = {
    *("table.table_id", "table.created_us", "table.schema", "table.partition", "table.source"),
    *("table.history_retention_us", "tablet.replication_factor", "tablet.formed", "tablet.wishes", "tablet.config"),
    *("tablet.dropped_us", "tablet.holders", "tablet.replaced_by", "tablet.gone_us", "source.retired"),
    *("wish.witness", "wish.cancelled", "read-load.from_query"),
}
"""Fields without which an older build wrote such records, or which they have at times only."""
VALUES = (None, "", "x", -1, 2**31, 2**63, 2**70, 1.5, True, [], {}, [None], [[]], {"a": 1}, "\ud800")


def written() -> dict[str, Any]:
    """A record of each kind with every field that masters write, by its key, made by what makes them."""
    m = Masters()
    found: dict[str, Any] = {}

    def note() -> None:
        for prefix in ("table/", "name/", "tablet/", "source/", "wish/", "retired/", "maintenance/", "request/"):
            for key, record in m.box.catalog.records.items():
                if key.startswith(prefix):
                    found[key] = {**found.get(key, {}), **record}
        found["desired"] = m.box.catalog.records.get("desired")

    servers = m.state.servers()
    m.box.commit(create_table(m.box.catalog, new_table("x"), servers, {}, 1, request_id="r"))
    source = pb.SourceKey(cluster_id="c", topic_id="t", kafka_partition=0)
    opens = [pb.SourceOpen(source=source, topic="writes.flights", initial_start=3)]
    opening = pb.OpenSourcesRequest(table="flights", owner_run="a", opens=opens)
    m.box.commit(open_sources(m.box.catalog, opening, 1))
    other = pb.SourceKey(cluster_id="c", topic_id="t2", kafka_partition=0)
    reset = pb.ResetSourceRequest(table="flights", source=other, force=True)
    m.box.commit(reset_source(m.box.catalog, reset, 2))
    m.set(1)
    m.set(3, table="", tablet_id=m.tablet)
    m.want(add, S[3])
    note()
    m.want(cancel, S[3])
    note()
    m.box.commit(({}, [f"wish/{m.tablet}"], "", None))
    m.retire(S[3])
    m.box.commit(maintain(m.state, S[3], 60, owner="ann", reason="new disk"))
    note()
    config = RaftConfig(OpId(1, 7), tuple(map(Member, S[:3])), (2, 3), True)
    tablet = m.box.catalog.get(TABLET, m.tablet)
    assert tablet is not None
    m.box.commit(({TABLET + m.tablet: replace(tablet, config=config)}, [], "", None))
    m.box.commit(drop_table(m.box.catalog, "flights", "", 5, {m.tablet: S[:2]}))
    note()
    found[TABLET + m.tablet] |= {"replaced_by": new_uuid(), "gone_us": 7}
    level = {"level": build_level(), "since_us": 5}
    single = {"cluster/id": {"id": new_uuid()}, f"master/{S[0]}": {"takeover": 1}, "feature-level": level}
    load = ReadLoad(made_term=1, made_index=1, from_query=3)
    read_time = ReadTime(application=S[0], load_id=S[1], query=7, time=MAX_HYBRID_TIME, host="10.0.0.1")
    floor = ReadFloor(term=1, index=2)
    times = {f"read-load/{S[1]}": load, "read-time/0000000000000009": read_time, "read-floor": floor}
    return found | single | {key: write(record) for key, record in times.items()}


def entry(puts: dict[str, Any], value: Any = json.dumps) -> Entry:
    """A CATALOG entry as a leader would send it."""
    records = [{"key": k, "value": value(v).encode()} for k, v in puts.items()]
    meta = encode("catalog_change", {"puts": records, "deletes": [], "request_id": "", "reserved": b""})
    return Entry(OpId(2, 9), EntryKind.CATALOG, 1, 0, meta, b"", 0)


def variants(record: Any) -> Iterator[tuple[str, Any]]:
    """(field, record) with each field, at any depth, missing, or of each value that JSON can carry there."""
    items = record.items() if isinstance(record, dict) else enumerate(record)
    for name, value in items:
        for hostile in VALUES:
            yield str(name), _with(record, name, hostile)
        if isinstance(record, dict):
            yield f"-{name}", {k: v for k, v in record.items() if k != name}
        if isinstance(value, (dict, list)):
            for inner, changed in variants(value):
                yield f"{name}.{inner}", _with(record, name, changed)


def _with(record: Any, name: Any, value: Any) -> Any:
    changed = record.copy()
    changed[name] = value
    return changed


def use(key: str, found: Any) -> None:
    """Return what masters read from a record that is in their catalog."""
    match record := read(key, found):
        case Table():
            info_from_json(write(record))
            assert record.name.encode() is not None and record.replication_factor < 2**31
        case Tablet():
            assert all(m.uuid for c in (record.first_config, record.known_config) for m in c.members)
            pb.TabletInfo(bucket=record.bucket, range_pos=record.range_pos, table_id=record.table_id)
            pb.TabletInfo(wishes=record.wishes, replication_factor=record.replication_factor)
            assert (record.gone_us or 0) >= 0 and sorted(record.holders or ()) is not None
            assert record.replaced_by.encode() is not None and (record.dropped_us or 0) < 2**63
        case Position():
            position_to_pb(record)
        case DesiredChange() as desired:
            pb.DesiredChangeInfo(
                kind=desired.kind, from_uuid=desired.from_uuid, to_uuid=desired.to_uuid, deadline_us=desired.deadline_us
            )
            pb.DesiredChangeInfo(reason=desired.reason, plan_id=desired.plan_id, cancelled=desired.cancelled)
        case Retired():
            pb.ServerInfo(tablets_at_first=record.tablets_at_first, drain_reason=record.reason)
        case Maintenance():
            pb.ServerInfo(maintenance_until_us=record.until_us, maintenance_owner=record.owner)
            pb.ServerInfo(maintenance_reason=record.reason)
            assert record.since_us + record.seconds < 2**64
        case Desired():
            pb.ListServersReply(desired_changes=record.changes)
        case Cluster():
            pb.HeartbeatReply(cluster_id=record.id)
        case Takeover():
            assert record.takeover < 2**63
        case TableId():
            assert record.table_id.encode() is not None
        case ReadTime():
            pb.AgreeReadTimeReply(snapshot_time=record.time)
            assert 0 <= record.query < 2**63 and is_uuid(record.load_id) and is_uuid(record.application)
            assert record.host.encode() is not None
        case ReadLoad():
            assert record.made >= ZERO_OPID and record.from_query >= 0
            opid_to_pb(record.made)
        case ReadFloor():
            opid_to_pb(OpId(record.term, record.index))
        case Finalized():
            assert 0 <= record.level <= build_level() and record.since_us < 2**63
        case _:
            pytest.fail(f"{key} is of no kind")


@pytest.mark.deep
def test_no_record_goes_into_the_log_that_could_not_be_read() -> None:
    """IN-50. Goal: an append of a forged catalog entry is refused with a reason, and never fails later, when it is
    applied. Method: each kind of record that masters write is accepted. With each field, at any depth, missing or of
    another value, the record is either refused, or a catalog applies it, alone and beside the good records, and every
    reader can read it. A record without a field that every build writes is refused."""
    needed = set()
    beside = AppliedCatalog()
    beside.catalog.apply([entry(written())._replace(opid=OpId(1, 1))])
    for key, record in written().items():
        assert unfit_record(key, record) == unfit_entry(entry({key: record})) == ""
        assert unfit_record(key, record | {"of a later build": [{}]}) == ""
        group = key.partition("/")[0]
        for field, changed in variants(record):
            why = unfit_record(key, changed)
            assert len(why) < 400 and why.isprintable()
            if not why:
                for catalog in (AppliedCatalog().catalog, beside.catalog):
                    at = catalog.applied_opid.index + 1
                    catalog.apply([entry({key: changed})._replace(opid=OpId(1, at))])
                use(key, changed)
            if field.startswith("-") and f"{group}.{field[1:]}" not in OPTIONAL:
                assert repr(field[1:]) in why, f"{key} without {field[1:]}"
                needed.add(group)
    assert len(needed) == 15


def test_forged_entries_are_refused_by_their_bytes() -> None:
    """IN-50. Goal: an entry that is no record at all is refused. Method: invalid JSON, JSON that is no object, nests
    too deep, or has an invalid number; keys without an id, and far too long ones. A key of a later build is
    accepted."""
    record = next(record for key, record in written().items() if key.startswith(TABLET))
    for value in ("", "[]", "7", "{", "{" * 5000, "NaN", '{"a":NaN}', '{"a":' * 40 + "1" + "}" * 40):
        assert unfit_entry(entry({"later/x": None}, lambda _, value=value: value)), value
    for forged in ("tablet/", "tablet", "tablet/" + "x" * 5000):
        assert "is none that a master writes" in unfit_entry(entry({forged: record}))
    assert unfit_entry(entry({"later/x": {"any": 1}})) == ""


def test_follower_refuses_a_forged_catalog_entry(tmp_path: Path) -> None:
    """IN-50. Goal: a following master checks a catalog entry before it goes into its log. Method: a follower of two
    masters gets an append whose CATALOG entry lacks a field, one with a feature level of a later build, and then a good
    one."""

    async def scenario() -> None:
        disk, clock = RealDisk(tmp_path), SystemClock()
        uuid = open_or_format(disk, clock, kind=MASTER).uuid
        config = RaftConfig(OpId(0, 0), (Member(uuid, (Address("h", 1),)), Member(S[0], (Address("h", 2),))))
        group = CatalogGroup(disk, clock, uuid, config, send=lambda messages: None, on_fatal=pytest.fail)
        await group.start()
        later = "CATALOG entry 1.1: the record 'feature-level' cannot be read"
        for key, record, why in (
            ("name/x", {}, "CATALOG entry 1.1: the record 'name/x' lacks 'table_id'"),
            ("feature-level", {"level": build_level() + 1, "since_us": 1}, later),
            ("name/x", {"table_id": "t"}, ""),
        ):
            put = entry({key: record})._replace(opid=OpId(1, 1))
            message = AppendEntries(to_uuid=uuid, from_uuid=S[0], term=1, prev=ZERO_OPID, entries=(put,))
            assert group.replica.step(message).startswith(why)
            assert (group.replica.last_logged == put.opid) is not bool(why)
        await group.stop()

    asyncio.run(scenario())
