"""Bounds on the catalog's size, and the refusals when it is full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.master.catalog import sources
from nyala.replica.master.catalog.tables import (
    add_writer_schema,
    create_table,
    drop_table,
    find_table,
    forget_writer_schema,
)
from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.master.tablets.descriptions import encoded_for_servers
from nyala.replica.policy import ServerView
from nyala.replica.rows import Column, ColumnType, TableSchema, WriterSchemaInfo
from nyala.replica.rpc import description_to_pb, pb, schema_to_pb
from nyala.replica.types import Address, Code, Member, Refused, limits
from tests.harness.catalogs import AppliedCatalog, table_info

SERVERS = [ServerView(uuid=letter * 32, member=Member(letter * 32, (Address("h", 1),))) for letter in "abc"]

LONG_SCHEMA = pb.TableSchema(
    columns=[pb.Column(id=n, name=f"c{n:0255}", type="int64") for n in range(1, limits.COLUMNS_MAX + 1)],
    key=[f"c{1:0255}"],
)


def create(box: AppliedCatalog, table: pb.TableInfo) -> str:
    made: str = box.commit(create_table(box.catalog, checked_table(table), SERVERS, {}, 1))
    return made


def refused(code: Code, call: Any, *args: Any) -> str:
    with pytest.raises(Refused) as error:
        call(*args)
    assert error.value.code is code, error.value
    return str(error.value)


def wide(columns: int, name_chars: int) -> pb.TableInfo:
    table = table_info("wide")
    for n in range(columns - 2):
        table.schema.columns.add(name=f"c{n:03}".ljust(name_chars, "x"), type="string", nullable=True)
    return table


def test_widest_table_that_may_be_is_taken() -> None:
    """IN-81. Goal: the largest table that other limits allow is accepted. Method: 300 columns with names of the
    greatest length, 1,024 tablets, and ten writer schemas of 40 KB."""
    table = wide(limits.COLUMNS_MAX, limits.NAME_LENGTH_MAX)
    table.partition.buckets = 1024
    for n in range(10):
        table.writer_schemas.add(fingerprint=f"{n:016x}", avro_json=json.dumps("x" * 40_000))
    assert description_to_pb(checked_table(table)).ByteSize() < limits.TABLE_BYTES_MAX


@pytest.mark.parametrize(
    ("change", "code", "told"),
    [
        (lambda t: setattr(t.source, "reader_schema", json.dumps("x" * (1 << 20))), Code.TOO_LARGE, "source"),
        (lambda t: t.writer_schemas.add(avro_json=json.dumps("x" * (300 << 10))), Code.TOO_LARGE, "writer schema"),
        (lambda t: [t.writer_schemas.add(avro_json="1") for _ in range(201)], Code.TOO_LARGE, "writer schemas"),
        (lambda t: [t.writer_schemas.add(avro_json="1" * (200 << 10)) for _ in range(6)], Code.TOO_LARGE, "writer"),
        (lambda t: t.older_schemas.extend([LONG_SCHEMA] * 14), Code.TOO_LARGE, "older schemas"),
        (lambda t: setattr(t.partition, "buckets", 1025), Code.INVALID_ARGUMENT, "hash buckets times its ranges"),
    ],
)  # fmt: skip
def test_description_that_is_too_large_is_refused_with_its_largest_part(change: Any, code: Code, told: str) -> None:
    """IN-81. Goal: a table whose description is too large is refused, with the part to make smaller. Method: each part
    of a description beyond the bound, the others small."""
    table = table_info()
    change(table)
    text = refused(code, checked_table, table)
    assert told in text
    assert "max=" in text


def with_defaults(*values: str | bytes | int) -> pb.TableInfo:
    """A table with columns of these defaults."""
    types = {str: ColumnType.STRING, bytes: ColumnType.BINARY, int: ColumnType.INT64}
    defaults = [
        Column(id=n, name=f"d{n}", type=types[type(value)], default=value) for n, value in enumerate(values, start=2)
    ]
    table = table_info()
    key = Column(id=1, name="k", type=ColumnType.INT64, nullable=False)
    table.schema.CopyFrom(schema_to_pb(TableSchema(1, (key, *defaults), ("k",))))
    table.partition.hash_columns[:] = ["k"]
    return table


def test_defaults_of_a_table_are_bounded_together_in_bytes() -> None:
    """IN-81. Goal: a key of eight bytes does not stand for a long row because of how a table was created. Method:
    defaults of texts, bytes and numbers at the bound are taken; a byte more is refused, also if only its encoding has
    more bytes than its characters, with the column of the longest default."""
    most = limits.DEFAULTS_BYTES_MAX
    for taken in (("x" * most,), ("x" * (most - 5), b"12345", 7), ("é" * (most // 2),), ("x",) * 200):
        checked_table(with_defaults(*taken))
    for refused_ones in (("x" * (most - 5), b"123456", 7), (1, "é" * (most // 2), "y")):
        text = refused(Code.TOO_LARGE, checked_table, with_defaults(*refused_ones))
        longest = max(range(len(refused_ones)), key=lambda n: len(str(refused_ones[n])))
        assert f"d{longest + 2}" in text and f"{most + 1}" in text.replace(",", ""), text


def test_writer_schemas_of_a_table_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-81. Goal: `nyala schema register` cannot make a table too large for an answer. Method: schemas are registered
    until the bound of the number, then of the bytes; a known one changes nothing even then, and one that is forgotten,
    once or twice, makes room. A server that makes a tablet is told none of them."""
    monkeypatch.setattr(limits, "WRITER_SCHEMAS_MAX", 5)
    box = AppliedCatalog()
    create(box, table_info("flights", buckets=1))

    def register(number: int, size: int = 10) -> None:
        schema = WriterSchemaInfo(f"{number:016x}", 0, json.dumps("x" * size))
        box.commit(add_writer_schema(box.catalog, "flights", schema))

    for n in range(5):
        register(n)
    assert "nyala schema forget" in refused(Code.TOO_LARGE, register, 6)
    register(3)
    for _ in range(2):
        table = box.commit(forget_writer_schema(box.catalog, "flights", f"{2:016x}"))
        assert [int(w.fingerprint, 16) for w in table.writer_schemas] == [0, 1, 3, 4]
    register(2)
    monkeypatch.setattr(limits, "WRITER_SCHEMAS_MAX", 500)
    assert "documentation" in refused(Code.TOO_LARGE, register, 6, 300 << 10)
    for n in range(6, 10):
        register(n, 240 << 10)
    assert "its writer schemas take most" in refused(Code.TOO_LARGE, register, 11, 240 << 10)
    assert len(encoded_for_servers(find_table(box.catalog, "flights")[1])) < 2_000


@pytest.mark.parametrize("what", ["TABLES_MAX", "TABLETS_MAX", "CATALOG_BYTES_MAX"])
def test_full_catalog_says_so_and_takes_what_makes_room(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-81. Goal: the catalog always fits in the one message in which it is copied. Method: tables are created up to
    each bound; one more is refused, as are writer schemas and sources where bytes are what is missing; a drop is
    taken, and the tables that are there go on."""
    box = AppliedCatalog()
    create(box, table_info("a", buckets=4))
    create(box, table_info("b", buckets=4))
    most = {"TABLES_MAX": 2, "TABLETS_MAX": 11, "CATALOG_BYTES_MAX": box.catalog.size_bytes + 100}
    monkeypatch.setattr(limits, what, most[what])
    text = refused(Code.NO_SPACE, create, box, table_info("c", buckets=4))
    assert "drop tables" in text
    assert box.catalog.get("name/c") is None
    opens = [pb.SourceOpen(source=pb.SourceKey(cluster_id="k", topic_id="t"), topic="writes.a")]
    opening = pb.OpenSourcesRequest(table="a", owner_run="r", opens=opens)
    if what == "CATALOG_BYTES_MAX":
        refused(Code.NO_SPACE, sources.open_sources, box.catalog, opening, 1)
        schema = WriterSchemaInfo("f" * 16, 0, json.dumps("x" * 200))
        refused(Code.NO_SPACE, add_writer_schema, box.catalog, "a", schema)
    else:
        box.commit(sources.open_sources(box.catalog, opening, 1))
    box.commit(drop_table(box.catalog, "b", "", 5))
    if what == "TABLES_MAX":
        create(box, table_info("c", buckets=4))


def test_source_positions_of_a_table_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-81. Goal: the number of source positions of a table is bounded. Method: one more than the bound; those that
    are there are opened again."""
    monkeypatch.setattr(limits, "SOURCES_PER_TABLE_MAX", 3)
    box = AppliedCatalog()
    create(box, table_info("a"))

    def opening(count: int) -> sources.OpenSources:
        keys = [pb.SourceKey(cluster_id="k", topic_id="t", kafka_partition=n) for n in range(count)]
        opens = [pb.SourceOpen(source=k, topic="writes.a") for k in keys]
        return pb.OpenSourcesRequest(table="a", owner_run="r", opens=opens)

    box.commit(sources.open_sources(box.catalog, opening(3), 1))
    box.commit(sources.open_sources(box.catalog, opening(3), 1))
    assert "source positions" in refused(Code.NO_SPACE, sources.open_sources, box.catalog, opening(4), 1)


def test_resets_of_a_source_keep_no_endless_list_of_former_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-81. Goal: a reset that adopts a topic adds a position, and so has the same bound as opening. Method: a source
    is reset to one new topic id after another up to the bound; then a new one is refused, nothing has changed, and a
    reset without a new topic is still made."""
    monkeypatch.setattr(limits, "SOURCES_PER_TABLE_MAX", 3)
    box = AppliedCatalog()
    create(box, table_info("a"))

    def key(topic_id: str) -> pb.SourceKey:
        return pb.SourceKey(cluster_id="k", topic_id=topic_id, kafka_partition=0)

    def reset(topic_id: str) -> pb.ResetSourceRequest:
        return pb.ResetSourceRequest(table="a", source=key(topic_id), topic="writes.a", to_offset=7)

    opens = [pb.SourceOpen(source=key("t0"), topic="writes.a")]
    box.commit(sources.open_sources(box.catalog, pb.OpenSourcesRequest(table="a", owner_run="r", opens=opens), 1))
    for topic_id in ("t1", "t2"):
        box.commit(sources.reset_source(box.catalog, reset(topic_id), 1 << 60))
    before = box.catalog.records
    assert "source positions" in refused(Code.NO_SPACE, sources.reset_source, box.catalog, reset("t3"), 1 << 60)
    assert box.catalog.records == before and box.catalog.count("source/") == 3
    assert box.commit(sources.reset_source(box.catalog, reset("t2"), 1 << 60)).generation == 4


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 9), st.none() | st.text(max_size=40)), max_size=40))
def test_size_of_the_catalog_is_that_of_its_state(changes: list[tuple[int, str | None]]) -> None:
    """IN-81. Goal: the bound is of the bytes that a copy has. Method: records put, replaced and deleted at random; the
    counted size and the state on disk differ by its frame only, also after a restart."""
    box = AppliedCatalog()
    for number, text in changes:
        key = f"table/{number}"
        box.commit(
            ({}, [key], "", None) if text is None else ({key: {"name": text, "replication_factor": 3}}, [], "", None)
        )
    state = len(json.dumps({"records": box.catalog.records}))
    assert abs(box.catalog.size_bytes - state) <= 40
    box.catalog.flush()
    again = type(box.catalog).open(box.disk)
    assert abs(again.size_bytes - state) <= 40
