"""A value is stored as it was given, or refused: each column type against each type of Python's values, each way in."""

from __future__ import annotations

import datetime as dt
import io
import math
import operator
import time
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from enum import IntEnum
from fractions import Fraction
from typing import Any

import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import nyala
from nyala import schemas
from nyala.definitions import partition_of, schema_of
from nyala.keys import keys_of
from nyala.pipeline import Framing, RowMisfit
from nyala.pipeline.publish import RowEncoder
from nyala.pipeline.row_schema import row_schema_json
from nyala.replica.rows import (
    KEY_TYPES,
    Column,
    ColumnType,
    Misfit,
    Predicate,
    RowOp,
    TableSchema,
    array_of,
    cast_exactly,
    predicate_mask,
    python_rows,
    python_values,
)
from nyala.replica.rpc.tables import predicate_from_pb, predicate_to_pb
from nyala.writing import as_table, conform
from tests.harness.every_type import Kind
from tests.harness.every_type import values as values_of

UTC, EAST = dt.UTC, dt.timezone(dt.timedelta(hours=5))
DAY = dt.date(2020, 1, 2)
REFUSED = object()
KINDS = (
    *(Kind(kind.value, kind) for kind in ColumnType if kind is not ColumnType.DECIMAL),
    *(Kind(f"decimal_{p}_{s}", ColumnType.DECIMAL, p, s) for p, s in ((9, 2), (38, 0), (18, 4))),
)


class Small(IntEnum):
    """An integer with a name."""

    ONE = 1


VALUES: list[tuple[Any, Any]] = [
    *((v, v) for v in (True, False, 0, 1, 2, -5, 127, 128, 1 << 15, 1 << 24, (1 << 24) + 1, 1 << 31, (1 << 53) + 1)),
    *((v, v) for v in ((1 << 63) - 1, -(1 << 63), 1 << 63, 1 << 64, 10**20, 10**40)),
    *((v, v) for v in (0.0, -0.0, 1.0, 3.0, 0.1, 1.5, -0.5, 50.9, 12.345, 2.0**63, 1e300, math.inf, math.nan)),
    *((Decimal(v), Decimal(v)) for v in ("3", "3.0", "1.5", "12.345", "101.70", "1e30", "1e-40", "NaN", "Infinity")),
    *((v, v) for v in ("", "55", "grün", b"", b"55", b"\xff", "\ud800")),
    (bytearray(b"x"), b"x"),
    (memoryview(b"y"), b"y"),
    (DAY, DAY),
    *((dt.datetime(2020, 1, 2, *at), dt.datetime(2020, 1, 2, *at)) for at in ((), (23, 59), (0, 0, 0, 1))),
    *((dt.datetime(2020, 1, 2, hour, tzinfo=zone),) * 2 for zone in (UTC, EAST) for hour in (0, 5)),
    (np.int8(5), 5),
    (np.int64(-7), -7),
    (np.uint64(1 << 63), 1 << 63),
    (np.float16(2.0), 2.0),
    (np.float32(1.5), 1.5),
    (np.float64(2.7), 2.7),
    (np.float64(4.0), 4.0),
    (np.bool_(True), True),
    (np.str_("q"), "q"),
    (np.bytes_(b"q"), b"q"),
    (np.datetime64("2020-01-02"), DAY),
    (np.datetime64("2020-01-02T05"), dt.datetime(2020, 1, 2, 5)),
    (np.datetime64("2020-01-02T05:00:00.000000001"), None),
    (np.timedelta64(5, "ns"), None),
    (pd.Timestamp("2020-01-02T05:00"), dt.datetime(2020, 1, 2, 5)),
    (pd.Timestamp("2020-01-02T00:00:00.000000001"), None),
    (Small.ONE, 1),
    *((v, None) for v in (1j, [1], {}, dt.time(1), dt.timedelta(1), object())),
]
"""(the value as given, the plain Python value that it is; None: no column holds it)."""


def held(kind: Kind, value: Any) -> Any:
    """What a column holds of a plain value, or REFUSED: the rules of docs/use/python.md, written a second time."""
    number = isinstance(value, int | float | Decimal)
    finite = number and not isinstance(value, bool) and (isinstance(value, int) or math.isfinite(value))
    match kind.type:
        case ColumnType.BOOL:
            return bool(value) if isinstance(value, int) and value in (0, 1) else REFUSED
        case ColumnType.INT8 | ColumnType.INT16 | ColumnType.INT32 | ColumnType.INT64:
            half = 1 << int(kind.name[3:]) - 1
            whole = isinstance(value, bool) or (finite and value == int(value))
            return int(value) if whole and -half <= value < half else REFUSED
        case ColumnType.FLOAT | ColumnType.DOUBLE:
            width = np.float32 if kind.type is ColumnType.FLOAT else np.float64
            if isinstance(value, int):
                return float(value) if abs(value) <= 1 << (24 if width is np.float32 else 53) else REFUSED
            if isinstance(value, Decimal) and (not finite or value == Decimal("1e-40")):
                return REFUSED
            with np.errstate(over="ignore"):
                made = float(width(value)) if number else REFUSED
            return REFUSED if finite and made in (math.inf, -math.inf) else made
        case ColumnType.DECIMAL:
            if not finite:
                return REFUSED
            exact = Decimal(value) if value == int(value) else Decimal(str(value))
            made = round(Fraction(exact) * 10**kind.scale)
            fits = Fraction(made, 10**kind.scale) == Fraction(exact) and abs(made) < 10**kind.precision
            return Decimal(made).scaleb(-kind.scale, Context(prec=kind.precision)) if fits else REFUSED
        case ColumnType.STRING:
            return value if isinstance(value, str) and value != "\ud800" else REFUSED
        case ColumnType.BINARY:
            return value if isinstance(value, bytes) else REFUSED
    if not isinstance(value, dt.date):
        return REFUSED
    at = value if isinstance(value, dt.datetime) else dt.datetime(value.year, value.month, value.day)
    at = at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    if kind.type is ColumnType.TIMESTAMP:
        return at
    return at.date() if at.time() == dt.time() else REFUSED


def schema_with(kind: Kind, *, in_key: bool = False) -> TableSchema:
    number = Column(id=1, name="k", type=ColumnType.INT64, nullable=in_key)
    return TableSchema(1, (number, kind.column(2, "c", nullable=not in_key)), ("c" if in_key else "k",))


def written(kind: Kind, rows: Any) -> Any:
    schema = schema_with(kind)
    return conform(as_table(rows, schema), schema, RowOp.UPSERT).column("c")[1].as_py()


def through_dicts(kind: Kind, value: Any) -> Any:
    """Write the value in a row after one without a value."""
    return written(kind, [{"k": 1, "c": None}, {"k": 2, "c": value}])


def through_arrow(kind: Kind, value: Any) -> Any:
    """Write the value in an Arrow array of its own type."""
    own = pa.timestamp("us", tz="UTC") if isinstance(value, dt.datetime) else None
    return written(kind, pa.table({"k": [1, 2], "c": pa.array([None, value], type=own)}))


def through_keys(kind: Kind, value: Any) -> Any:
    """Ask for rows of this key: in the list, the second key is the value's."""
    schema = schema_with(kind, in_key=True)
    good = {ColumnType.STRING: "", ColumnType.BINARY: b"", ColumnType.DATE: DAY}.get(kind.type, 1)
    good = dt.datetime(2020, 1, 1, tzinfo=UTC) if kind.type is ColumnType.TIMESTAMP else good
    return keys_of([good, (value,)], schema)[0].column(0)[1].as_py()


def through_kafka(kind: Kind, value: Any) -> Any:
    """Encode the value in a row event, and read the event."""
    schema = schema_with(kind)
    encoded = RowEncoder(schema, Framing.BARE, None, "", 0).value({"k": 1, "c": value}, RowOp.UPSERT)
    read: Any = fastavro.schemaless_reader(io.BytesIO(encoded), schemas.parse_json(row_schema_json(schema)), None)
    return read["c"]


def arrow_holds(value: Any) -> bool:
    """Whether pyarrow has a type of its own for the value."""
    try:
        pa.array([value])
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine whose local time is nine hours ahead of UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.a_third
@pytest.mark.usefixtures("far_from_utc")
@pytest.mark.parametrize("kind", KINDS, ids=operator.attrgetter("name"))
def test_value_is_stored_as_it_was_given_or_refused_through_every_way_in(kind: Kind) -> None:
    """IN-01, IN-02. Goal: no way in changes a value; each gives the same verdict, and a refusal names column, row and
    value and says that nothing was applied. Method: 70 values of every Python type, as a row in a dict, in an Arrow
    array, as a key of `get` and as a row event, against the rules, written a second time."""
    for given, plain in VALUES:
        expected = REFUSED if plain is None else held(kind, plain)
        ways: list[Callable[[Kind, Any], Any]] = [through_dicts, through_kafka]
        if kind.type in KEY_TYPES:
            ways.append(through_keys)
        if plain is not None and given is plain and arrow_holds(plain):
            ways.append(through_arrow)
        for way in ways:
            place = f"{way.__name__} of {given!r}"
            if expected is REFUSED:
                with pytest.raises(RowMisfit if way is through_kafka else nyala.NotApplied) as caught:
                    pytest.fail(f"{place} gave {way(kind, given)!r}")
                says = str(caught.value)
                named = ("'c'", repr(given)[:40]) if way is through_kafka else ("column=c, ", "row=1, ", "value=")
                assert all(words in says for words in named), f"{place}: {says}"
                assert says.endswith("; nothing was applied")
            else:
                got = way(kind, given)
                same = got == expected or (got != got and expected != expected)
                assert same and type(got) is type(expected), f"{place} gave {got!r}, not {expected!r}"


def test_one_bad_value_among_many_is_found_and_the_others_are_mixed_as_they_come() -> None:
    """IN-02. Goal: a column of several Python types is converted value by value, and a bad one among many is named.
    Method: mixed columns; one bad value in 10,001, as Python values and as an Arrow array; decimals whose common type
    would have too many digits."""
    for values, kind, expected in (
        ([1.0, 2, True, None, Decimal("3.0"), np.int8(4)], pa.int64(), [1, 2, 1, None, 3, 4]),
        ([1, 2.5, None], pa.float64(), [1.0, 2.5, None]),
        ([DAY, dt.datetime(2020, 1, 2), pd.NaT], pa.date32(), [DAY, DAY, None]),
        ([1e300, Decimal("1e30"), Decimal("0." + "0" * 29 + "1")], pa.float64(), [1e300, 1e30, 1e-30]),
    ):
        assert array_of(values, kind).to_pylist() == expected
    many: list[Any] = [*range(7000), 7000.5, *range(3000)]
    for convert in (lambda: array_of(many, pa.int64()), lambda: cast_exactly(pa.array(map(float, many)), pa.int64())):
        with pytest.raises(Misfit) as caught:
            convert()
        assert (caught.value.row, caught.value.value) == (7000, 7000.5)
    with pytest.raises(Misfit, match="beyond the range"):
        cast_exactly(pa.array([1.0, 1e300]), pa.float32())
    assert cast_exactly(pa.array([5, None]), pa.decimal128(9, 2)).to_pylist() == [Decimal(5), None]


BATCH = pa.record_batch(
    {
        "i": pa.array([101, 102]),
        "d": [DAY, dt.date(2020, 1, 3)],
        "t": pa.array([dt.datetime(2020, 1, 2), dt.datetime(1970, 1, 1, 0, 0, 0, 5)], pa.timestamp("us", "UTC")),
        "f": pa.array([0.1, 1.5], pa.float32()),
        "m": pa.array([Decimal("1.25"), Decimal("2.50")], pa.decimal128(9, 2)),
    }
)


@pytest.mark.parametrize(
    ("column", "op", "values", "found"),
    [
        ("i", "=", [Decimal("101.7")], [False, False]),
        ("i", "<", [Decimal("101.7")], [True, False]),
        ("i", "in", [Decimal("101.7"), Decimal(102)], [False, True]),
        ("i", "in", [np.float32(101.5), 102], [False, True]),
        ("d", "=", [dt.datetime(2020, 1, 2, 23, 59)], [False, False]),
        ("d", "<", [dt.datetime(2020, 1, 2, 23, 59)], [True, False]),
        ("d", "in", [dt.datetime(2020, 1, 2, 23, 59)], [False, False]),
        ("f", ">", [Decimal("0.1")], [True, True]),
        ("f", "=", [0.1], [False, False]),
        ("m", "in", [Decimal("1.255"), Decimal("2.5")], [False, True]),
        ("t", "=", [dt.datetime(2020, 1, 2)], [True, False]),
        ("t", "=", [5], None),
        ("t", "in", [5], None),
    ],
)
def test_condition_compares_the_value_that_was_given(column: str, op: str, values: list[Any], found: Any) -> None:
    """IN-01. Goal: a condition never compares with a value that was cut to the column's type. Method: values that the
    type does not hold, evaluated here and after the way over the network; a number beside a time is refused."""
    asked = Predicate(column, op, tuple(values))

    def sent() -> Predicate:
        return predicate_from_pb(predicate_to_pb(asked, BATCH.schema.field(column).type))

    for predicate in (lambda: asked, sent):
        if found is None:
            with pytest.raises(nyala.Refused, match="cannot be compared"):
                predicate_mask(BATCH, [predicate()])
        else:
            assert predicate_mask(BATCH, [predicate()]).to_pylist() == found


def test_default_and_split_are_held_exactly_or_refused() -> None:
    """IN-82. Goal: a definition has no value that differs from what was given. Method: defaults and splits with a
    fraction, and whole ones as a float."""

    def with_default(value: object) -> TableSchema:
        return schema_of([("k", "int64"), Column(id=2, name="n", type=ColumnType.INT32, default=value)], "k")

    def splits(value: object) -> object:
        schema = schema_of({"k": "int64"}, "k")
        return partition_of(schema, hash_buckets=1, hash_columns=(), range_column="k", range_splits=[value])

    for make, says in (
        (with_default, "the default does not fit.*column=n"),
        (splits, "a split does not fit.*column=k"),
    ):
        with pytest.raises(nyala.NotApplied, match=f"{says}.*value=3.5.*nothing was applied"):
            make(3.5)
    assert repr(with_default(3.0).column("n").default) == "3"
    assert splits(3.0).range_splits == (3,)  # type: ignore[attr-defined]


def odd_times() -> Iterator[tuple[Any, str]]:
    """Yield scalars of dates and times that Python cannot hold, and the text of each."""
    for day, text in ((-(1 << 31), "-5877641-06-23"), ((1 << 31) - 1, "5881580-07-11"), (-719_163, "0000-12-31")):
        yield pa.scalar(day, pa.int32()).cast(pa.date32()), text
    for us, text in (
        (-(1 << 63), "-290308-12-21T19:59:05.224192+00:00"),
        ((1 << 63) - 1, "294247-01-10T04:00:54.775807+00:00"),
        (-62_135_596_800_000_001, "0000-12-31T23:59:59.999999+00:00"),
        (253_402_300_800_000_000, "10000-01-01T00:00:00.000000+00:00"),
    ):
        yield pa.scalar(us, pa.int64()).cast(pa.timestamp("us", "UTC")), text
    yield pa.scalar(1 << 48, pa.int64()).cast(pa.timestamp("s")), "8921556-12-07T10:44:16.0+00:00"


def test_stored_value_is_its_python_value_or_its_text() -> None:
    """IN-82. Goal: no stored value makes its reader fail. Method: values of each type, extreme ones and null among
    them, and the dates and times that Python cannot hold, each beside values that it can."""
    for kind in KINDS:
        array = values_of(kind, 9, nulls=True)
        assert list(map(repr, python_values(array))) == list(map(repr, array.to_pylist()))
    for scalar, text in odd_times():
        some = pa.array([None, DAY]).cast(scalar.type)
        column = pa.chunked_array([some, pa.array([scalar])])
        assert python_values(column) == [*some.to_pylist(), text]
        assert python_rows(pa.table({"a": column, "b": ["x", "y", "z"]}))[2] == {"a": text, "b": "z"}


def test_nested_value_is_refused_before_arrow_reads_it() -> None:
    """Goal: no value ends the process: Arrow follows a list that holds itself until the stack is full. Method: each
    kind of container, for columns of two types; the one that holds itself comes last."""
    endless: list[object] = []
    endless.append(endless)
    for value in ([1], (1,), {1}, frozenset((1,)), {"a": 1}, np.array([1]), endless):
        for kind in (pa.int64(), pa.string()):
            with pytest.raises(Misfit, match=f"a {type(value).__name__} is no value of a column"):
                array_of([None, value], kind)
