"""The catalog's state machine, tables in it, and source positions."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest

from nyala.replica.master import CATALOG_ID, Catalog, encode_change
from nyala.replica.master.catalog.records import TABLET
from nyala.replica.master.catalog.tables import add_writer_schema, create_table, drop_table, find_table
from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.master.tablets.descriptions import encoded_for_servers
from nyala.replica.master.tablets.orders import create_order
from nyala.replica.policy import ServerView
from nyala.replica.rows import WriterSchemaInfo
from nyala.replica.rpc import pb
from nyala.replica.tablet import Superblock
from nyala.replica.types import Address, Code, Corruption, Entry, EntryKind, Member, OpId, Refused
from tests.harness.catalogs import AppliedCatalog, new_table, table_info
from tests.harness.sim_disk import SimDisk


def hosts(n: int = 3) -> tuple[ServerView, ...]:
    """Live servers."""
    names = [f"{i:032x}" for i in range(1, n + 1)]
    return tuple(ServerView(uuid=u, member=Member(u, (Address("h", 7),))) for u in names)


def test_catalog_flush_and_reopen_keeps_records_and_requests() -> None:
    """Goal: the superblock's state is complete to its flush position. Method: apply, flush, apply more, reopen."""
    box = AppliedCatalog()
    box.commit(({"a/1": {"x": 1}}, [], "r1", None))
    box.commit(({"a/2": {"x": 2}}, ["a/1"], "", None))
    assert box.catalog.flush() and not box.catalog.flush()
    late = box.entry({"a/3": {"x": 3}}, (), "r1")
    box.catalog.apply([late])
    assert box.catalog.get("a/3") is None, "a request id applies once"
    again = Catalog.open(box.disk)
    assert again.flush_opid == again.applied_opid == OpId(1, 2)
    assert list(again.items("a/")) == [("2", {"x": 2})] and again.seen("r1")
    again.apply([late])
    assert again.get("a/3") is None


def test_catalog_power_loss_before_flush_loses_only_what_the_log_replays() -> None:
    """Goal: state never holds more than its flush position says. Method: power loss right after an apply."""
    box = AppliedCatalog()
    box.commit(({"k": {"x": 1}}, [], "", None))
    box.catalog.flush()
    box.commit(({"k": {"x": 2}}, [], "", None))
    again = Catalog.open(box.disk)
    assert again.get("k") == {"x": 1} and again.applied_opid.index == 1


def test_catalog_undecodable_change_is_corruption() -> None:
    """Goal: a committed entry that cannot be applied fails the replica. Method: garbage meta, then garbage state."""
    box = AppliedCatalog()
    bad = Entry(OpId(1, 1), EntryKind.CATALOG, 1, 0, b"\xff\xff", b"", 0)
    with pytest.raises(Corruption):
        box.catalog.apply([bad])
    disk = SimDisk()
    Superblock(tablet_id=CATALOG_ID, table_id=CATALOG_ID, state=b"[1]").save(disk)
    with pytest.raises(Corruption):
        Catalog.open(disk)


def test_create_table_places_replicas_and_fills_ids_in() -> None:
    """Goal: ids, defaults and placement of a new table. Method: create on four servers, look at records and orders."""
    box = AppliedCatalog()
    table_id = box.commit(create_table(box.catalog, new_table(buckets=4), hosts(4), {}, 9, request_id="q"))
    found, table = find_table(box.catalog, "flights")
    assert found == table_id
    assert [c["id"] for c in table.described["schema"]["columns"]] == [1, 2]
    assert table.described["source"] == {"topic": "writes.flights", "framing": "single-object"}
    tablets = dict(box.catalog.items(TABLET))
    assert sorted(t.bucket for t in tablets.values()) == [0, 1, 2, 3]
    held = Counter(m.uuid for t in tablets.values() for m in t.members)
    assert set(held.values()) == {3}
    tablet_id, tablet = next(iter(tablets.items()))
    described = encoded_for_servers(find_table(box.catalog, table_id=table_id)[1])
    order = create_order(tablet_id, tablet, described, hosts()[0].uuid)
    assert order.table.table_id == table_id and len(order.config.members) == 3
    assert order.config.opid.index == 0 and all(m.votes for m in order.config.members)


def test_create_table_same_request_again_gives_the_first_table() -> None:
    """Goal: scenario 126: if the acknowledgement of a creation is lost, the repeated request returns the same table.
    Method: repeat the request, also across a flush and reopen."""
    box = AppliedCatalog()
    table = new_table()
    first = box.commit(create_table(box.catalog, table, hosts(), {}, 9, request_id="q"))
    assert create_table(box.catalog, table, hosts(), {}, 9, request_id="q") == ({}, [], "", first)
    box.catalog.flush()
    again = AppliedCatalog(box.disk)
    assert again.commit(create_table(again.catalog, table, hosts(), {}, 9, request_id="q")) == first
    with pytest.raises(Refused) as refusal:
        create_table(box.catalog, table, hosts(), {}, 9, request_id="other")
    assert refusal.value.code is Code.ALREADY_EXISTS


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "no/slash"}, "name"),
        ({"name": "abc\n"}, "name"),
        ({"name": "x" * 237}, "max=236"),
        ({"source": pb.SourceSpec(topic="a b")}, "Kafka takes"),
        ({"source": pb.SourceSpec(topic="t" * 250)}, "max=249"),
        ({"name": "catalog"}, "taken"),
        ({"replication_factor": 2}, "odd"),
        ({"source": pb.SourceSpec(framing="guess")}, "framing"),
        ({"partition": pb.PartitionSpec(hash_columns=["v"], buckets=2)}, "key"),
        ({"schema": pb.TableSchema()}, "columns"),
    ],
)
def test_create_table_impossible_one_is_refused_and_changes_nothing(change: dict[str, object], text: str) -> None:
    """Goal: a bad definition is refused with an error that names the fault. Method: one bad field each."""
    box = AppliedCatalog()
    table = table_info()
    for field, value in change.items():
        if isinstance(value, str | int):
            setattr(table, field, value)
        else:
            table.ClearField(field)
            getattr(table, field).CopyFrom(value)
    with pytest.raises(Refused, match=text) as refusal:
        create_table(box.catalog, checked_table(table), hosts(), {}, 9)
    assert refusal.value.code is Code.INVALID_ARGUMENT
    assert not box.catalog.records


def test_drop_table_keeps_its_tablets_known_as_dropped() -> None:
    """Goal: the masters may order a deletion only of tablets that the catalog has as dropped. Method: drop, then create
    the name again."""
    box = AppliedCatalog()
    first = box.commit(create_table(box.catalog, new_table(), hosts(), {}, 9))
    box.commit(drop_table(box.catalog, "flights", "", 10))
    assert all(t.dropped_us == 10 for _, t in box.catalog.items(TABLET))
    second = box.commit(create_table(box.catalog, new_table(), hosts(), {}, 11))
    with pytest.raises(Refused) as refusal:
        find_table(box.catalog, "flights", first)
    assert refusal.value.code is Code.WRONG_TABLE and first in str(refusal.value) and second in str(refusal.value)


def test_writer_schema_same_fingerprint_is_kept_once() -> None:
    """Goal: registering is idempotent and never replaces. Method: twice, with a registry id, with other JSON."""
    box = AppliedCatalog()
    box.commit(create_table(box.catalog, new_table(), hosts(), {}, 9))
    schema = WriterSchemaInfo("aa", 0, '"long"')
    for _ in range(2):
        table = box.commit(add_writer_schema(box.catalog, "flights", schema))
    assert len(table.writer_schemas) == 1
    table = box.commit(add_writer_schema(box.catalog, "flights", replace(schema, registry_id=5)))
    assert [s.registry_id for s in table.writer_schemas] == [5]
    with pytest.raises(Refused):
        add_writer_schema(box.catalog, "flights", WriterSchemaInfo("aa", 5, '"int"'))


@pytest.mark.parametrize("config", [{"term": 1, "index": 1, "decision": "", "unsafe": False, "members": []}, "x" * 3])
def test_record_that_no_master_wrote_is_corruption(config: object) -> None:
    """Goal: a catalog with a record of another origin fails to open, and the error names the record. Method: a config
    of other types than a master's, in a change and in the state."""
    tablet = {"table_id": "t", "bucket": 0, "range_pos": 0, "members": [], "config": config}
    box = AppliedCatalog()
    with pytest.raises(Corruption, match="tablet/x"):
        box.catalog.apply([Entry(OpId(1, 1), EntryKind.CATALOG, 1, 0, encode_change({"tablet/x": tablet}), b"", 0)])
    state = json.dumps({"records": {"tablet/x": tablet}, "requests": []}).encode()
    superblock = Superblock(tablet_id=CATALOG_ID, table_id=CATALOG_ID, table_name="catalog", state=state)
    with pytest.raises(Corruption, match="tablet/x"):
        Catalog(box.disk, superblock)
