"""Records to rows: operations, keys, framing, dead letters, mixed writer schemas."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest

from nyala import schemas
from nyala.pipeline.decode import Decoded, RowDecoder, WriterSchema
from nyala.pipeline.framing import Framing, wrap
from nyala.pipeline.row_schema import row_schema_json
from nyala.replica.rows import Column, ColumnType, RowOp, TableSchema
from nyala.replica.types import RowCode, limits
from tests.harness.row_keys import encode_key

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="n", type=ColumnType.INT16),
        Column(id=3, name="t", type=ColumnType.STRING),
    ),
    ("k",),
)
FULL = row_schema_json(SCHEMA)
PARTIAL = row_schema_json(SCHEMA, ["n"], name="Partial")


def value(writer: str, row: dict[str, Any], framing: Framing = Framing.SINGLE_OBJECT, registry_id: int = 0) -> bytes:
    parsed = schemas.parse_json(writer)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, row)
    return wrap(framing, out.getvalue(), fingerprint=schemas.fingerprint64(parsed), registry_id=registry_id)


def decode(
    records: list[tuple[bytes | None, bytes | None]], decoder: RowDecoder | None = None, headers: Any = None
) -> Decoded:
    decoder = decoder or RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(FULL), WriterSchema(PARTIAL)])
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([each for _, each in records], pa.binary())
    return decoder.decode(keys, values, np.arange(100, 100 + len(records), dtype=np.int64), headers)


def row(k: int, n: int | None = 1, t: str | None = "x", op: str = "UPSERT") -> tuple[bytes, bytes]:
    return encode_key(SCHEMA, {"k": k}), value(FULL, {"k": k, "n": n, "t": t, "op": op})


def rows_of(decoded: Decoded) -> list[dict[str, Any]]:
    return [each for batch in decoded.batches for each in batch.to_pylist()]


def test_good_records_become_one_batch_in_offset_order() -> None:
    """Goal: values, nulls, operations and offsets arrive as written. Method: three rows of one schema."""
    decoded = decode([row(1), row(2, None, None), row(3, 7, "é", "DELETE")])
    assert decoded.faults == []
    assert len(decoded.batches) == 1
    assert rows_of(decoded) == [
        {"k": 1, "n": 1, "t": "x", "__op": RowOp.UPSERT, "__offset": 100},
        {"k": 2, "n": None, "t": None, "__op": RowOp.UPSERT, "__offset": 101},
        {"k": 3, "n": 7, "t": "é", "__op": RowOp.DELETE, "__offset": 102},
    ]
    assert decoded.batches[0].schema.field("n").type == pa.int16()


def test_null_value_deletes_by_the_key_and_joins_its_run() -> None:
    """Goal: a null value is delete_ignore with the Kafka key's columns, in place. Method: one between two rows."""
    decoded = decode([row(1), (encode_key(SCHEMA, {"k": 9}), None), row(2)])
    assert [(each["k"], each["__op"]) for each in rows_of(decoded)] == [(1, 2), (9, RowOp.DELETE_IGNORE), (2, 2)]
    assert len(decoded.batches) == 1
    assert rows_of(decode([(encode_key(SCHEMA, {"k": 9}), None)])) == [{"k": 9, "__op": 7, "__offset": 100}]
    part = encode_key(SCHEMA, {"k": 3}), value(PARTIAL, {"k": 3, "n": 5, "op": "UPDATE"})
    first = decode([(encode_key(SCHEMA, {"k": 9}), None), row(1), part])
    assert [[each["k"] for each in batch.to_pylist()] for batch in first.batches] == [[9, 1], [3]]


def test_record_with_two_faults_is_told_by_the_first() -> None:
    """Goal: a record with two faults is one dead letter, always with the same one of them. Method: a null key with an
    operation that names nothing; a value out of range under another key, beside a good row."""
    (fault,) = decode([(None, row(1)[1])], headers=pa.array([b"x"], pa.binary())).faults
    assert fault.code is RowCode.NULL_KEY
    wide = '{"type":"record","name":"V","fields":[{"name":"k","type":"long"},{"name":"n","type":"int"}]}'
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(wide)])
    records: list[tuple[bytes | None, bytes | None]] = [
        (encode_key(SCHEMA, {"k": k}), value(wide, {"k": 1, "n": n})) for k, n in ((2, 1 << 20), (3, 1), (1, 1))
    ]
    decoded = decode(records, decoder)
    assert [(fault.code, fault.column) for fault in decoded.faults] == [
        (RowCode.VALUE_OUT_OF_RANGE, "n"),
        (RowCode.KEY_MISMATCH, "k"),
    ]
    assert [each["k"] for each in rows_of(decoded)] == [1]


def test_each_kind_of_bad_record_is_a_fault_and_the_rest_goes_on() -> None:
    """Goal: a bad record affects only itself, and its letter tells why. Method: all kinds between good rows."""
    good_key, good = row(1)
    extra = '{"type":"record","name":"E","fields":[{"name":"k","type":"long"},{"name":"zz","type":"int"}]}'
    wrong = '{"type":"record","name":"W","fields":[{"name":"k","type":"long"},{"name":"n","type":"string"}]}'
    wide = '{"type":"record","name":"V","fields":[{"name":"k","type":"long"},{"name":"n","type":"int"}]}'
    ops = '{"type":"record","name":"O","fields":[{"name":"k","type":"long"},{"name":"op","type":{"type":"enum","name":"Op","symbols":["UPSERT","MERGE"]}}]}'  # noqa: E501
    writers = [WriterSchema(each) for each in (FULL, extra, wrong, wide, ops)]
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, writers)
    bad: list[tuple[bytes | None, bytes | None, RowCode, str]] = [
        (good_key, good[:-2], RowCode.UNDECODABLE, "t"),
        (good_key, good + b"\x00", RowCode.UNDECODABLE, ""),
        (good_key, b"", RowCode.UNDECODABLE, ""),
        (good_key, b"junk that is no frame", RowCode.UNDECODABLE, ""),
        (good_key, good[:2] + b"\x00" * 8 + good[10:], RowCode.UNKNOWN_SCHEMA, ""),
        (None, good, RowCode.NULL_KEY, ""),
        (None, None, RowCode.NULL_KEY, ""),
        (b"\x80", None, RowCode.UNDECODABLE, ""),
        (encode_key(SCHEMA, {"k": 2}), good, RowCode.KEY_MISMATCH, "k"),
        (b"\x02\x02", good, RowCode.KEY_MISMATCH, ""),
        (good_key, value(extra, {"k": 1, "zz": 1}), RowCode.UNKNOWN_COLUMN, "zz"),
        (good_key, value(wrong, {"k": 1, "n": "a"}), RowCode.WRONG_TYPE, "n"),
        (good_key, value(wide, {"k": 1, "n": 1 << 20}), RowCode.VALUE_OUT_OF_RANGE, "n"),
        (good_key, value(ops, {"k": 1, "op": "MERGE"}), RowCode.UNKNOWN_OPERATION, ""),
        (good_key, b"\xc3\x01" + b"\x00" * limits.ROW_EVENT_BYTES_MAX, RowCode.ROW_TOO_LARGE, ""),
    ]
    records = [row(50)]
    for key, each, _, _ in bad:
        records += [(key, each), row(51)]  # type: ignore[list-item]
    decoded = decode(records, decoder)
    found = [(fault.offset, fault.code, fault.column) for fault in decoded.faults]
    assert found == [(101 + 2 * pos, code, column) for pos, (_, _, code, column) in enumerate(bad)]
    assert [each["k"] for each in rows_of(decoded)] == [50] + [51] * len(bad)


def test_invalid_utf8_is_a_fault_of_its_row_only() -> None:
    """Goal: bytes that are no UTF-8 never reach a string column. Method: corrupt one string's bytes."""
    key, good = row(1, 1, "abcd")
    decoded = decode([row(5), (key, good.replace(b"abcd", b"ab\xff\xfe")), row(6)])
    assert [(fault.offset, fault.code, fault.column) for fault in decoded.faults] == [(101, RowCode.UNDECODABLE, "t")]
    assert [each["k"] for each in rows_of(decoded)] == [5, 6]


def test_writer_schemas_that_alternate_keep_offset_order_in_runs() -> None:
    """Goal: partial updates keep their columns and their place. Method: full, partial, delete, partial, full."""
    key = encode_key(SCHEMA, {"k": 1})
    part = value(PARTIAL, {"k": 1, "n": 5, "op": "UPDATE"})
    decoded = decode([row(1), (key, part), (key, None), (key, part), row(1, 3)])
    assert [batch.schema.names for batch in decoded.batches] == [
        ["k", "n", "t", "__op", "__offset"],
        ["k", "n", "__op", "__offset"],
        ["k", "n", "t", "__op", "__offset"],
    ]
    assert [each["__offset"] for each in rows_of(decoded)] == [100, 101, 102, 103, 104]
    assert [each["__op"] for each in rows_of(decoded)] == [2, 3, 7, 3, 2]


def test_header_decides_the_operation() -> None:
    """Goal: `nyala-op` beats the enum, an unknown one is a fault. Method: a header, none, and two that name nothing."""
    headers = pa.array([None, b"insert", None, b"x", b""], pa.binary())
    decoded = decode([row(1), row(2), row(3, op="DELETE"), row(4), row(5)], headers=headers)
    assert [each["__op"] for each in rows_of(decoded)] == [RowOp.UPSERT, RowOp.INSERT, RowOp.DELETE]
    unknown = RowCode.UNKNOWN_OPERATION
    assert [(fault.offset, fault.code) for fault in decoded.faults] == [(103, unknown), (104, unknown)]


def test_framing_is_never_guessed() -> None:
    """Goal: only the declared framing decides how a record is read. Method: a bare datum that looks single-object, read
    as both."""
    text = '{"type":"record","name":"B","fields":[{"name":"k","type":"long"},{"name":"t","type":"string"}]}'
    datum = value(text, {"k": -98, "t": "\x01" * 8}, Framing.BARE)
    assert datum[:2] == b"\xc3\x01" or datum[0] == 0xC3
    bare = RowDecoder(SCHEMA, Framing.BARE, bare_schema=text)
    key = encode_key(SCHEMA, {"k": -98})
    assert rows_of(decode([(key, datum)], bare))[0]["t"] == "\x01" * 8
    assert decode([(key, datum)]).faults[0].code in (RowCode.UNKNOWN_SCHEMA, RowCode.UNDECODABLE)
    confluent = RowDecoder(SCHEMA, Framing.CONFLUENT, [WriterSchema(FULL, 77)])
    framed = value(FULL, {"k": 1, "n": 1, "t": "x", "op": "INSERT"}, Framing.CONFLUENT, 77)
    assert rows_of(decode([(encode_key(SCHEMA, {"k": 1}), framed)], confluent))[0]["__op"] == RowOp.INSERT
    unknown = value(FULL, {"k": 1, "n": 1, "t": "x", "op": "INSERT"}, Framing.CONFLUENT, 78)
    assert decode([(encode_key(SCHEMA, {"k": 1}), unknown)], confluent).faults[0].code is RowCode.UNKNOWN_SCHEMA


def test_unknown_schema_is_looked_up_once_per_batch_then_known() -> None:
    """Goal: an unknown schema costs one look-up in a batch, and is found if it was registered meanwhile. Method: count
    the calls."""
    calls: list[int] = []
    other = FULL.replace('"Row"', '"Other"')

    def lookup() -> list[WriterSchema]:
        calls.append(1)
        return [WriterSchema(other)]

    def record(k: int) -> tuple[bytes, bytes]:
        return encode_key(SCHEMA, {"k": k}), value(other, {"k": k, "n": 1, "t": "x", "op": "UPSERT"})

    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [], lookup=lookup)
    assert len(rows_of(decode([record(1), record(2)], decoder))) == 2
    assert len(calls) == 1
    decode([record(3)], decoder)
    assert len(calls) == 1


def test_schema_of_whole_rows_is_known_without_a_registration() -> None:
    """Goal: what RowPublisher writes by itself becomes rows. Method: a decoder that was told of no writer schema."""
    assert len(rows_of(decode([row(1)], RowDecoder(SCHEMA, Framing.SINGLE_OBJECT)))) == 1


def test_missing_key_columns_come_from_the_kafka_key() -> None:
    """Goal: a writer schema without key columns still names its row. Method: value with one other column."""
    text = '{"type":"record","name":"N","fields":[{"name":"n","type":["null","int"]}]}'
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(text)])
    decoded = decode([(encode_key(SCHEMA, {"k": 4}), value(text, {"n": 8}))], decoder)
    assert rows_of(decoded) == [{"k": 4, "n": 8, "__op": RowOp.UPSERT, "__offset": 100}]


def _record(**fields: str) -> str:
    """A writer schema: the fields' types as JSON, or as the name of one."""
    types = ",".join(
        f'{{"name":"{name}","type":{kind if kind[0] in "[{" else repr(kind)}}}' for name, kind in fields.items()
    )
    return f'{{"type":"record","name":"R","fields":[{types}]}}'.replace("'", '"')


def test_column_at_fault_is_named_from_the_first_on() -> None:
    """Goal: a dead letter names the column at which its record is damaged. Method: a value cut in front of each
    field."""
    key, good = row(1, 300, "x")
    ends = [10, 11, 14]
    assert good[10:11] == b"\x02" and good[11:14] == b"\x02\xd8\x04", "k, and n behind its branch"
    found = [decode([(key, good[:end])]).faults[0] for end in ends]
    assert [(fault.code, fault.column) for fault in found] == [(RowCode.UNDECODABLE, name) for name in ("k", "n", "t")]


def test_operation_that_is_null_is_an_upsert() -> None:
    """Goal: a row without an operation is written. Method: a nullable enum whose first symbol deletes, with and without
    a value; a header decides all the same."""
    enum = '{"type":"enum","name":"Op","symbols":["DELETE","UPSERT"]}'
    text = _record(k="long", op=f'["null",{enum}]')
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(text)])
    records: list[tuple[bytes | None, bytes | None]] = [
        (encode_key(SCHEMA, {"k": 1}), value(text, {"k": 1, "op": op})) for op in ("DELETE", None, None)
    ]
    decoded = decode(records, decoder, pa.array([None, None, b"insert"], pa.binary()))
    assert [each["__op"] for each in rows_of(decoded)] == [RowOp.DELETE, RowOp.UPSERT, RowOp.INSERT]


def test_field_is_the_operation_by_its_name_and_type_unless_the_table_has_such_a_column() -> None:
    """Goal: no column is taken for an operation, nor an operation for a column. Method: an enum of another name, a text
    of that name, and a table with a column of that name."""
    enum = '{"type":"enum","name":"E","symbols":["DELETE","RED"]}'
    key = encode_key(SCHEMA, {"k": 1})
    colour = _record(k="long", t=enum)
    word = _record(k="long", op="string")
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(colour), WriterSchema(word)])
    decoded = decode(
        [(key, value(colour, {"k": 1, "t": "RED"})), (key, value(word, {"k": 1, "op": "DELETE"}))], decoder
    )
    assert rows_of(decoded) == [{"k": 1, "t": "RED", "__op": RowOp.UPSERT, "__offset": 100}]
    assert [(fault.code, fault.column) for fault in decoded.faults] == [(RowCode.UNKNOWN_COLUMN, "op")]
    table = TableSchema(1, (SCHEMA.columns[0], Column(id=2, name="op", type=ColumnType.STRING)), ("k",))
    text = _record(k="long", op=enum)
    decoded = decode(
        [(key, value(text, {"k": 1, "op": "DELETE"}))],
        RowDecoder(table, Framing.SINGLE_OBJECT, [WriterSchema(text)]),
    )
    assert rows_of(decoded) == [{"k": 1, "op": "DELETE", "__op": RowOp.UPSERT, "__offset": 100}]


def test_schema_that_no_table_can_hold_fails_its_rows_and_no_others() -> None:
    """Goal: a registered schema with a nested field costs its own rows only. Method: one beside a good one."""
    nested = _record(k="long", t='{"type":"map","values":"string"}')
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, [WriterSchema(FULL), WriterSchema(nested)])
    decoded = decode([(encode_key(SCHEMA, {"k": 1}), value(nested, {"k": 1, "t": {}})), row(2)], decoder)
    assert [(fault.code, fault.column) for fault in decoded.faults] == [(RowCode.WRONG_TYPE, "t")]
    assert [each["k"] for each in rows_of(decoded)] == [2]


def test_unknown_schema_beside_a_known_one_is_looked_up() -> None:
    """Goal: an unknown schema is looked up even if the batch has known ones too. Method: both in one batch; also two
    schemas that say the same under two names, whose rows are one run."""
    other = FULL.replace('"Row"', '"Other"')
    mixed = (encode_key(SCHEMA, {"k": 2}), value(other, {"k": 2, "n": 1, "t": "x", "op": "UPSERT"}))
    decoder = RowDecoder(SCHEMA, Framing.SINGLE_OBJECT, lookup=lambda: [WriterSchema(other), WriterSchema(PARTIAL)])
    partial = (encode_key(SCHEMA, {"k": 3}), value(PARTIAL, {"k": 3, "n": 1, "op": "UPSERT"}))
    decoded = decode([row(1), mixed, partial], decoder)
    assert [[each["k"] for each in batch.to_pylist()] for batch in decoded.batches] == [[1, 2], [3]]


def test_schema_of_whole_rows_is_known_in_no_other_framing() -> None:
    """Goal: a registry's ids and a declared schema mean what they say. Method: a Confluent record of id 0, which nobody
    registered; bare records of a source that has registered schemas, too."""
    key, datum = encode_key(SCHEMA, {"k": 1}), value(FULL, {"k": 1, "n": 1, "t": "x", "op": "INSERT"}, Framing.BARE)
    (fault,) = decode([(key, b"\x00" * 5 + datum)], RowDecoder(SCHEMA, Framing.CONFLUENT)).faults
    assert fault.code is RowCode.UNKNOWN_SCHEMA
    bare = RowDecoder(SCHEMA, Framing.BARE, [WriterSchema(PARTIAL)], bare_schema=FULL)
    assert rows_of(decode([(key, datum)], bare)) == [{"k": 1, "n": 1, "t": "x", "__op": RowOp.INSERT, "__offset": 100}]


NO_SCHEMA = (
    "",
    "x y",
    "5",
    "null",
    "[]]",
    '"nonsense"',
    '{"type": "nonsense"}',
    '{"type": "record", "name": "r", "fields": 5}',
)


def _odd(column: str, kind: Any) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": column, "type": kind}]})


NO_COLUMN = (
    '"long"',
    _odd("b", {"type": "fixed", "name": "f", "size": "x"}),
    _odd("b", {"type": "fixed", "name": "f", "size": None}),
    _odd("b", {"type": "fixed", "name": "f", "size": -1}),
    _odd("b", {"type": "fixed", "name": "f", "size": 10**30}),
    _odd("d", {"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 39}),
    _odd("d", {"type": "bytes", "logicalType": ["decimal"], "scale": "x"}),
)
"""Avro schemas that are no rows of the table, with numbers that the parser does not check."""
TYPED = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="b", type=ColumnType.BINARY),
        Column(id=3, name="d", type=ColumnType.DECIMAL, precision=10, scale=2),
    ),
    ("k",),
)


def test_stored_schema_that_is_none_stops_no_table(caplog: pytest.LogCaptureFixture) -> None:
    """IN-82. Goal: a text in the catalog that is no Avro schema, as masters of 0.2.0 stored it, makes dead letters of
    its own records and of no others, and is told in the log once. Method: in each framing, records of a known schema
    between records of each unusable one, at the start and by a look-up, in two tasks."""
    key, good = encode_key(TYPED, {"k": 1}), {"k": 1, "b": b"x", "d": None, "op": "INSERT"}
    for text, reason in [(t, RowCode.UNKNOWN_SCHEMA) for t in NO_SCHEMA] + [(t, RowCode.WRONG_TYPE) for t in NO_COLUMN]:
        stored = [WriterSchema(text, 5), WriterSchema(row_schema_json(TYPED), 7)]
        datum = value(row_schema_json(TYPED), good, Framing.BARE)
        for decoder in (
            RowDecoder(TYPED, Framing.CONFLUENT, stored),
            RowDecoder(TYPED, Framing.CONFLUENT, lookup=lambda stored=stored: stored),  # type: ignore[misc]
        ):
            records = [(key, wrap(Framing.CONFLUENT, datum, registry_id=n)) for n in (7, 5, 7)]
            decoded = decode(records, decoder)
            assert [(f.offset, f.code) for f in decoded.faults] == [(101, reason)], (text, decoded.faults)
            assert len(rows_of(decoded)) == 2
        single = RowDecoder(TYPED, Framing.SINGLE_OBJECT, stored)
        known = (key, value(row_schema_json(TYPED), good))
        unknown = (key, wrap(Framing.SINGLE_OBJECT, datum, fingerprint=b"12345678"))
        assert [f.code for f in decode([known, unknown], single).faults] == [RowCode.UNKNOWN_SCHEMA]
        bare = decode([(key, datum)] * 2, RowDecoder(TYPED, Framing.BARE, bare_schema=text))
        assert [f.code for f in bare.faults] == [reason] * 2
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == len(NO_SCHEMA) and all("UNKNOWN_SCHEMA" in text for text in told), told
