"""Schemas, write meta and predicates refuse impossible values, and survive a round trip."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import json
import math
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pyarrow as pa
import pytest

from nyala.replica.rows import (
    Column,
    ColumnType,
    PartitionSpec,
    Predicate,
    SourceKey,
    TableSchema,
    WriteMeta,
    predicate_mask,
    type_of_arrow,
    value_from_json,
)
from nyala.replica.types import Code, Corruption, Refused

KEY = Column(id=1, name="k", type=ColumnType.INT64, nullable=False)


def test_table_schema_json_round_trip_keeps_defaults_of_every_type() -> None:
    """Goal: a stored schema is the schema. Method: defaults of each type through JSON."""
    defaults: list[tuple[ColumnType, Any]] = [
        (ColumnType.BOOL, True),
        (ColumnType.INT8, -7),
        (ColumnType.DOUBLE, 0.1),
        (ColumnType.DOUBLE, float("inf")),
        (ColumnType.STRING, "é"),
        (ColumnType.BINARY, b"\x00\xff"),
        (ColumnType.DATE, dt.date(2013, 1, 2)),
        (ColumnType.TIMESTAMP, dt.datetime(2013, 1, 2, 3, 4, 5, 6, dt.UTC)),
    ]
    columns = [Column(id=i + 2, name=f"c{i}", type=t, default=v) for i, (t, v) in enumerate(defaults)]
    money = Column(id=99, name="m", type=ColumnType.DECIMAL, precision=9, scale=2, default=decimal.Decimal("1.50"))
    schema = TableSchema(3, (KEY, *columns, money), ("k",))
    assert TableSchema.from_json(schema.to_json()) == schema
    assert schema.wire_schema([1, 99]).names == ["k", "m", "__op", "__offset"]


@pytest.mark.parametrize(
    "columns, key",
    [
        ((KEY, Column(id=2, name="k", type=ColumnType.BOOL)), ("k",)),
        ((KEY, Column(id=1, name="v", type=ColumnType.BOOL)), ("k",)),
        ((KEY,), ()),
        ((KEY,), ("k", "k")),
        ((KEY,), ("missing",)),
        ((KEY, Column(id=2, name="v", type=ColumnType.INT64)), ("k", "v")),
        ((KEY, Column(id=2, name="v", type=ColumnType.DOUBLE, nullable=False)), ("k", "v")),
        ((), ("k",)),
    ],
)
def test_table_schema_that_cannot_be_is_refused(columns: tuple[Column, ...], key: tuple[str, ...]) -> None:
    """Goal: an invalid table schema is refused. Method: one case for each rule."""
    with pytest.raises(Refused) as caught:
        TableSchema(1, columns, key)
    assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"name": "__op"},
        {"name": "x" * 257},
        {"id": -1},
        {"precision": 3},
        {"type": ColumnType.DECIMAL},
        {"type": ColumnType.DECIMAL, "precision": 3, "scale": 4},
        {"default": "text"},
    ],
)
def test_column_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    """Goal: an invalid column is refused. Method: one case for each rule."""
    with pytest.raises(Refused):
        Column(**{"id": 1, "name": "c", "type": ColumnType.INT64, **fields})


def test_type_of_arrow_maps_wider_forms_and_refuses_lists() -> None:
    """Goal: tables made from foreign Arrow schemas hold their values. Method: unsigned, large, dictionary, list."""
    assert type_of_arrow(pa.uint32())[0] is ColumnType.INT64
    assert type_of_arrow(pa.dictionary(pa.int8(), pa.large_string()))[0] is ColumnType.STRING
    assert type_of_arrow(pa.timestamp("ns"))[0] is ColumnType.TIMESTAMP
    assert type_of_arrow(pa.decimal128(9, 2)) == (ColumnType.DECIMAL, 9, 2)
    with pytest.raises(Refused):
        type_of_arrow(pa.list_(pa.int8()))


def test_write_meta_round_trip_and_broken_bytes() -> None:
    """Goal: meta survives, broken meta is corruption. Method: round trips, then every cut of one."""
    source = WriteMeta((3, 1), 10, SourceKey("c", "t", 4), generation=2, after=None, done=7)
    client = WriteMeta((1,), 1, client_id="abc", sequence=5, first_incomplete=4)
    for meta in (source, client, WriteMeta((1,), 2, SourceKey("c", "t", 0), after=0)):
        assert WriteMeta.decode(meta.encode()) == meta
    encoded = source.encode()
    for cut in range(len(encoded) - 3):
        with pytest.raises(Corruption):
            WriteMeta.decode(encoded[:cut])


BATCH = pa.record_batch(
    {
        "n": pa.array([1, None, 3, 100], pa.int8()),
        "s": ["a", "b", None, "d"],
        "t": pa.array([dt.datetime(2013, 1, d, tzinfo=dt.UTC) for d in (1, 2, 3, 4)], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.mark.parametrize(
    "predicates, rows",
    [
        ([], [0, 1, 2, 3]),
        ([Predicate("n", "=", (3,))], [2]),
        ([Predicate("n", "!=", (3,))], [0, 3]),
        ([Predicate("n", ">", (1.5,))], [2, 3]),
        ([Predicate("n", "<", (1000,))], [0, 2, 3]),
        ([Predicate("n", "in", (1, 100, 5000))], [0, 3]),
        ([Predicate("n", "in", ())], []),
        ([Predicate("n", "is_null", ())], [1]),
        ([Predicate("s", "is_not_null", ()), Predicate("n", "<=", (3,))], [0]),
        ([Predicate("t", ">=", (dt.datetime(2013, 1, 3, tzinfo=dt.UTC),))], [2, 3]),
        ([Predicate("s", "in", ("a", "d")), Predicate("n", ">=", (2,))], [3]),
    ],
)
def test_predicate_mask_selects_rows_and_never_nulls(predicates: list[Predicate], rows: list[int]) -> None:
    """Goal: SQL's meaning, with null as no. Method: each operator, values that the column's type cannot hold."""
    mask = predicate_mask(BATCH, predicates)
    assert mask.null_count == 0
    assert [i for i, keep in enumerate(mask.to_pylist()) if keep] == rows


WHOLE = [-(1 << 63), -(1 << 63) + 1, -(1 << 53) - 1, -2, -1, 0, 1, 2, (1 << 53) + 1, (1 << 63) - 1]
FLOATS = [-math.inf, -1e300, float(-(1 << 63)), -1.5, -0.0, 1.0, 1.5, float(1 << 53), float(1 << 63), math.inf]


@pytest.mark.parametrize("op", ["=", "!=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("value", FLOATS)
def test_whole_numbers_compare_with_a_float_exactly(op: str, value: float) -> None:
    """Goal: whole numbers compare exactly with a float, also beyond 2^53, where Arrow refuses. Method: extreme rows of
    64 and of 8 bits, each operator; Python compares exactly."""
    compare = {"=": eq, "!=": ne, "<": lt, "<=": le, ">": gt, ">=": ge}[op]
    for kind in (pa.int64(), pa.int8()):
        rows = [row for row in WHOLE if kind == pa.int64() or abs(row) < 100]
        batch = pa.RecordBatch.from_arrays([pa.array([*rows, None], kind)], names=["n"])
        mask = predicate_mask(batch, [Predicate("n", op, (value,))]).to_pylist()
        assert mask == [*(compare(row, value) for row in rows), False]


def test_whole_numbers_are_found_in_a_list_of_floats() -> None:
    """Goal: the same for lists. Method: floats that are rows, that are none, and that no column holds."""
    batch = pa.RecordBatch.from_arrays([pa.array(WHOLE)], names=["n"])
    mask = predicate_mask(batch, [Predicate("n", "in", (*FLOATS, math.nan))]).to_pylist()
    assert mask == [row in FLOATS for row in WHOLE]


ENDLESS = decimal.Decimal("1e-999999999")


def test_decimal_of_endless_places_is_refused_before_arrow_sees_it() -> None:
    """IN-60. Goal: a default, a split or a value of a condition with a thousand million places, of which pyarrow dies,
    is a wrong argument. Method: as JSON of the wire, as a column's default, as a split, in a list of a condition; the
    longest that a column holds is taken, and a comparison finds what Python finds."""
    column = Column(id=1, name="d", type=ColumnType.DECIMAL, precision=38, scale=38, nullable=False)
    schema = TableSchema(1, (column,), ("d",))
    batch = pa.RecordBatch.from_arrays([pa.array([decimal.Decimal("0.5")], column.arrow_type)], names=["d"])
    for attempt in (
        lambda: value_from_json(ColumnType.DECIMAL, str(ENDLESS)),
        lambda: dataclasses.replace(column, default=ENDLESS),
        lambda: PartitionSpec(hash_columns=(), buckets=1, range_column="d", range_splits=(ENDLESS,)).validate_for(
            schema
        ),
        lambda: predicate_mask(batch, [Predicate("d", "in", (ENDLESS, ENDLESS))]),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.code is Code.INVALID_ARGUMENT
    assert predicate_mask(batch, [Predicate("d", "<=", (ENDLESS,))]).to_pylist() == [False]
    least = decimal.Decimal("1e-38")
    assert value_from_json(ColumnType.DECIMAL, str(least)) == dataclasses.replace(column, default=least).default


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema_id", "1"), ("schema_id", 1 << 31), ("schema_id", True), ("key", [1]), ("key", ["\ud800"])],
)
def test_stored_schema_with_another_type_in_a_field_is_refused(field: str, value: object) -> None:
    """IN-60. Goal: a schema of a log's entry that nothing here wrote is known for none before it is applied. Method:
    its JSON with a text, a truth, a number too large, and half of a character in the place of what belongs there."""
    schema = TableSchema(1, (Column(id=1, name="k", type=ColumnType.INT64, nullable=False),), ("k",))
    with pytest.raises(Refused, match="not a table schema's JSON"):
        TableSchema.from_json(json.dumps(json.loads(schema.to_json()) | {field: value}))


@pytest.mark.parametrize(
    "predicate",
    [Predicate("zz", "=", (1,)), Predicate("n", "like", (1,)), Predicate("n", "=", ()), Predicate("n", "=", ("x",))],
)
def test_predicate_mask_refuses_what_it_cannot_compare(predicate: Predicate) -> None:
    """Goal: a wrong condition is the caller's error. Method: unknown column, unknown operator, no value, other type."""
    with pytest.raises(Refused) as caught:
        predicate_mask(BATCH, [predicate])
    assert caught.value.code is Code.INVALID_ARGUMENT
