"""Which writer schemas the masters keep: Avro schemas under their own fingerprint, and no others."""

from __future__ import annotations

import asyncio
import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nyala.replica.master.requests.conversions import check_writer_schemas
from nyala.replica.rows import WriterSchemaInfo
from nyala.replica.rpc import pb
from nyala.replica.types import Code, Refused, limits
from nyala.schemas import fingerprint64, parse_json, parse_writer_schema
from tests.harness.catalogs import table_info
from tests.harness.master_calls import MasterWorld
from tests.unit.rpc.test_rpc_thread_costs import spent

ROW = {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "long"}, {"name": "v", "type": "string"}]}
NONSENSE: dict[str, str] = {
    "no JSON": "x y",
    "nothing": "",
    "a number": "5",
    "null": "null",
    "an unknown type": '{"type": "nonsense"}',
    "an unknown name": '"nonsense"',
    "no type": '{"name": "r"}',
    "a record without a name": '{"type": "record", "fields": []}',
    "fields that are none": '{"type": "record", "name": "r", "fields": 5}',
    "a field without a type": '{"type": "record", "name": "r", "fields": [{"name": "a"}]}',
    "a name that is none": '{"type": "record", "name": 5, "fields": []}',
    "symbols that are none": '{"type": "enum", "name": "e", "symbols": 5}',
    "a fixed without a size": '{"type": "fixed", "name": "f"}',
    "a name twice": json.dumps([{"type": "fixed", "name": "f", "size": 1}] * 2),
    "a long name": json.dumps(ROW | {"name": "x" * 257}),
    "a long namespace": json.dumps(ROW | {"namespace": "x" * 257}),
    "a mark that it was parsed": '{"type": "nonsense", "__fastavro_parsed": true, "__named_schemas": {}}',
    "a mark in a union": '[{"type": "nonsense", "__fastavro_parsed": true, "__named_schemas": {}}]',
}


def fingerprint(text: str) -> str:
    return fingerprint64(parse_json(text)).hex()


def run(scenario: Callable[[MasterWorld], Any]) -> None:
    async def scene() -> None:
        world = MasterWorld()
        await world.begin()
        try:
            await scenario(world)
        finally:
            await world.end()

    asyncio.run(scene())


def requests(schema: pb.WriterSchema) -> list[tuple[str, Any]]:
    """Every request that brings that schema into the catalog."""
    table = table_info("new", buckets=1)
    table.writer_schemas.append(schema)
    bare = table_info("bare", buckets=1)
    bare.source.framing, bare.source.reader_schema = "bare", schema.avro_json
    return [
        ("AddWriterSchema", pb.AddWriterSchemaRequest(table="flights", schema=schema)),
        ("AddWriterSchema", pb.AddWriterSchemaRequest(table="flights", schema=schema, forget="f")),
        ("CreateTable", pb.CreateTableRequest(table=table, request_id="new")),
        ("CreateTable", pb.CreateTableRequest(table=bare, request_id="bare")),
    ]


def test_text_that_is_no_avro_schema_is_not_stored() -> None:
    """IN-82. Goal: no request puts a writer schema into the catalog that a job cannot read. Method: JSON of all kinds
    that is no Avro schema, registered, with a new table, and declared by a new table of bare values: refused with the
    text, and nothing has changed."""

    async def scenario(world: MasterWorld) -> None:
        before = await world.state()
        for name, text in NONSENSE.items():
            for method, request in requests(pb.WriterSchema(fingerprint="0" * 16, avro_json=text)):
                error = (await world.call("MasterService", method, request)).error
                assert error.code == Code.INVALID_ARGUMENT and "nothing was changed" in error.message, (name, error)
                assert text[:20] in error.message.replace("\\'", "'") and len(error.message) < 800, (name, error)
            assert await world.state() == before, name

    run(scenario)


@pytest.mark.parametrize("given", ["0" * 16, fingerprint(json.dumps(ROW)).upper(), "f", ""])
def test_schema_is_stored_under_its_own_fingerprint_only(given: str) -> None:
    """IN-82. Goal: a stored fingerprint is that of the schema. Method: another one, one of other letters, none; then
    the right one."""

    async def scenario(world: MasterWorld) -> None:
        text = json.dumps(ROW)
        before = await world.state()
        for method, request in requests(pb.WriterSchema(fingerprint=given, avro_json=text))[:3]:
            error = (await world.call("MasterService", method, request)).error
            assert error.code == Code.INVALID_ARGUMENT and fingerprint(text) in error.message, error
        assert await world.state() == before
        for method, request in requests(pb.WriterSchema(fingerprint=fingerprint(text), avro_json=text)):
            await world.done(method, request)

    run(scenario)


WORDS = st.sampled_from(
    ["record", "enum", "fixed", "array", "map", "int", "null", "r", "", "a.b", "decimal", "date", "x" * 300]
)
KEYS = st.sampled_from(
    ["type", "name", "namespace", "fields", "symbols", "size", "items", "values", "logicalType", "precision", "scale",
     "default", "aliases", "doc", "order", "__fastavro_parsed", "__named_schemas"]
)  # fmt: skip
ANY = st.recursive(
    WORDS | st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=6),
    max_leaves=12,
)


@given(ANY)
def test_any_json_is_a_schema_or_refused(found: Any) -> None:
    """IN-82. Goal: no JSON ends the parser with another error. Method: JSON that is made of the words of Avro: it has a
    fingerprint that the loader agrees with, or ValueError tells the reason."""
    text = json.dumps(found)
    try:
        parsed, made = parse_writer_schema(text)
    except ValueError as error:
        assert len(str(error)) < 400
        return
    assert len(made) == 8 and fingerprint64(parsed) == made


def largest(count: int) -> dict[str, str]:
    """Schemas of about 30 * count bytes that make most of each byte."""
    names = [{"name": f"f{n}", "type": "int"} for n in range(count)]
    kinds = [{"name": f"g{n}", "type": {"type": "fixed", "name": f"x{n}", "size": 1}} for n in range(count // 2)]
    space = "n" * min(256, count)
    return {
        "fields": json.dumps(ROW | {"fields": names}),
        "names in a namespace": json.dumps(ROW | {"namespace": space, "fields": kinds}),
        "a namespace as long as the rest": json.dumps(ROW | {"namespace": "n" * 15 * count, "fields": kinds}),
        "symbols": json.dumps({"type": "enum", "name": "e", "symbols": [f"s{n}" for n in range(3 * count)]}),
        "a union": json.dumps(["int"] * 4 * count),
        "maps": json.dumps([{}] * 8 * count),
    }


@pytest.mark.a_third
@pytest.mark.parametrize("name", largest(2))
def test_reading_writer_schemas_costs_a_thread_what_is_stated(name: str) -> None:
    """IN-60. Goal: the time for a schema grows with its length and no faster. Method: schemas of 2 KB and of 200 KB,
    accepted or refused: steps on the thread, and memory and time, which C code takes without steps."""
    for count in (70, 7000):
        text = largest(count)[name]
        infos = [WriterSchemaInfo("0" * 16, 0, text)]

        def check(stop: Callable[[], None], infos: list[WriterSchemaInfo] = infos) -> None:
            with pytest.raises(Refused):
                check_writer_schemas(infos)

        bound = limits.THREADS["reading of writer schemas"].most(bytes=len(text))
        assert spent(check).steps <= bound, (name, len(text), spent(check), bound)
    began = time.process_time()
    tracemalloc.start()
    try:
        check(lambda: None)
        memory = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert memory <= 40 * len(text) + (1 << 20), (name, len(text), memory)
    assert time.process_time() - began < 5.0


def test_canonical_form_is_bounded() -> None:
    """IN-60. Goal: the fingerprint, which C code computes without a pause, is of a bounded text. Method: a schema whose
    names in a namespace make its canonical form ten times as long as itself; one just below the bound."""
    fixed = [{"name": "a", "type": {"type": "fixed", "name": f"x{n}", "size": 1}} for n in range(4000)]
    text = json.dumps({"type": "record", "name": "r", "namespace": "n" * 256, "fields": fixed}, separators=(",", ":"))
    assert len(text) < limits.WRITER_SCHEMA_BYTES_MAX
    with pytest.raises(ValueError, match="canonical form"):
        parse_writer_schema(text)
    parse_writer_schema(text.replace("n" * 256, "n" * 4))
