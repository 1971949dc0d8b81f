"""Conditions: built or read from text, bound to a schema, and refused with what is wrong."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import itertools
import math
import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import nyala
from nyala.expressions import as_condition, bound
from nyala.pipeline.source.where import parse_where
from nyala.replica.rows import Column, ColumnType, Predicate, TableSchema, predicate_mask
from nyala.replica.rpc import predicate_from_pb, predicate_to_pb
from nyala.replica.types import limits

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="carrier", type=ColumnType.STRING),
        Column(id=3, name="delay", type=ColumnType.DOUBLE),
        Column(id=4, name="day", type=ColumnType.DATE),
        Column(id=5, name="at", type=ColumnType.TIMESTAMP),
        Column(id=6, name="price", type=ColumnType.DECIMAL, precision=9, scale=2),
        Column(id=7, name="odd name", type=ColumnType.BOOL),
        Column(id=8, name="raw", type=ColumnType.BINARY),
    ),
    ("k",),
)
NUMBERS = TableSchema(
    1,
    (
        Column(id=1, name="i", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="b", type=ColumnType.INT8),
        Column(id=3, name="f", type=ColumnType.FLOAT),
        Column(id=4, name="d", type=ColumnType.DOUBLE),
        Column(id=5, name="m", type=ColumnType.DECIMAL, precision=9, scale=2),
        Column(id=6, name="w", type=ColumnType.DECIMAL, precision=38, scale=0),
    ),
    ("i",),
)
EDGES = [0, 1, -1, 3, 127, 128, 1 << 24, 1 << 53, 10**9, 1 << 63, -(1 << 63), 10**38, 10**400, -(10**400)]
INTS = [edge + by for edge in EDGES for by in (-1, 0, 1)]
FINITE = [0.0, -0.0, 0.1, -1.5, 5e-324, 1e300, -1e300, 2.0**63, 0.10000000149011612, *map(float, INTS[:33])]
FLOATS = [*FINITE, math.inf, -math.inf]
DECIMALS = [
    *(decimal.Decimal(text) for text in ("0.1", "9007199254740993.5", "-0.005", "0.125", "1e-30", "1e300", "-0.00")),
    *(decimal.Decimal(edge) + decimal.Decimal("0.5") for edge in INTS[:33]),
]
STORED: dict[str, list[Any]] = {
    "i": [n for n in INTS if -(1 << 63) <= n < 1 << 63],
    "b": [n for n in INTS if -128 <= n < 128],
    "f": [math.nan, *(f for f in FLOATS if abs(f) == math.inf or (abs(f) < 3e38 and float(np.float32(f)) == f))],
    "d": [math.nan, *FLOATS],
    "m": [decimal.Decimal(n) / 100 for n in (0, 1, -1, 10, 12, 13, 999_999_999, -999_999_999, 10**7)],
    "w": [decimal.Decimal(n) for n in INTS if abs(n) < 10**38],
}
COMPARE = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
HALF = range(limits.SCAN_VALUES_MAX // 2)
EAST = dt.timezone(dt.timedelta(hours=1))
NOON = dt.datetime(2013, 1, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "text, built",
    [
        ("carrier = 'AA' and delay > 10", (nyala.col("carrier") == "AA") & (nyala.col("delay") > 10)),
        ("k in (1, 2,-3)", nyala.col("k").isin([1, 2, -3])),
        ("k between 1 and 5 AND delay<=.5", nyala.col("k").between(1, 5) & (nyala.col("delay") <= 0.5)),
        ("delay is null and carrier IS NOT NULL", nyala.col("delay").is_null() & nyala.col("carrier").is_not_null()),
        ("carrier <> 'O''Hare'", nyala.col("carrier") != "O'Hare"),
        ('"odd name" = true', nyala.col("odd name") == True),  # noqa: E712
        ("day >= '2013-01-01'", nyala.col("day") >= dt.date(2013, 1, 1)),
        ("day = date '2013-01-01'", nyala.col("day") == dt.date(2013, 1, 1)),
        ("at < '2013-01-01T12:00:00+00:00'", nyala.col("at") < NOON),
        ("at < '2013-01-01 12:00'", nyala.col("at") < NOON),
        ("price == 1.50", nyala.col("price") == decimal.Decimal("1.50")),
        ("(k >= 1 and k < 3) and (delay != 1e3)", "k >= 1 and k < 3 and delay != 1000"),
        ("", []),
        (["k = 1", nyala.col("delay") > 2], (nyala.col("k") == 1) & (nyala.col("delay") > 2)),
    ],
)  # fmt: skip
def test_condition_text_means_what_the_builder_means(text: Any, built: Any) -> None:
    """Goal: the command line and Python say the same. Method: both bound to one schema."""
    assert bound(as_condition(text), SCHEMA) == bound(as_condition(built), SCHEMA)


@pytest.mark.parametrize(
    "text, says",
    [
        ("carrier = AA", "single quotes"),
        ("delay >", "missing at the end"),
        ("k = 1 or k = 2", "IN"),
        ("carrier = 'AA", "not closed"),
        ("k in 1", "parentheses"),
        ("k in (1", "closing"),
        ("(k = 1", "closing"),
        ("k = null", "IS NULL"),
        ("k = 1 k = 2", "AND"),
        ("not k = 1", "IS NOT NULL"),
        ("k ! 1", "cannot be read"),
        ("k = 12abc", "cannot be read"),
        ("= 3", "name"),
        ("k", "operator"),
        ("k is 3", "IS NULL"),
        ("k between 1", "BETWEEN"),
        ("(" * 2000 + "k = 1", "parentheses within one another"),
        ("k = " + "9" * 5000, "more than 400 characters"),
        ("k = -5e308999999999999999999", "an exponent is out of range"),
        ("k = 1e-99999999999999999999", "an exponent is out of range"),
    ],
)
def test_condition_text_that_cannot_be_read_says_where(text: str, says: str) -> None:
    """IN-60. Goal: the error about a condition's text names the reason and the place. Method: each kind of mistake."""
    with pytest.raises(nyala.NotApplied, match=says) as caught:
        nyala.parse_condition(text)
    assert 1 <= caught.value.values["at"] <= len(text) + 1  # type: ignore[operator]


@settings(max_examples=100)
@given(st.text(max_size=40))
def test_condition_text_of_any_kind_is_read_or_refused(text: str) -> None:
    """Goal: no text raises anything but a refusal. Method: random text."""
    with contextlib.suppress(nyala.NotApplied):
        nyala.parse_condition(text)


@pytest.mark.deep
@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.builds(Predicate, st.just("carrier"), st.sampled_from(["=", "!=", "<"]), st.tuples(st.text(max_size=9))),
            st.builds(Predicate, st.just("k"), st.sampled_from([">", ">="]), st.tuples(st.integers(-(2**40), 2**40))),
            st.builds(lambda v: Predicate("odd name", "is_null", ()), st.none()),
        ),
        min_size=1,
        max_size=4,
    )
)  # fmt: skip
def test_condition_written_out_and_read_again_is_the_same(predicates: list[Predicate]) -> None:
    """Goal: names and text with quotes survive. Method: write SQL of random predicates, read it."""

    def sql(p: Predicate) -> str:
        name = f'"{p.column}"'
        if p.op == "is_null":
            return f"{name} is null"
        value = p.values[0]
        shown = "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)
        return f"{name} {p.op} {shown}"

    assert list(nyala.parse_condition(" and ".join(map(sql, predicates))).predicates) == predicates


@pytest.mark.parametrize(
    "condition, says",
    [
        (nyala.col("dealy") > 3, "did you mean 'delay'"),
        (nyala.col("CARRIER") == "AA", "did you mean 'carrier'"),
        (nyala.col("k") == "abc", "value='abc'|value=\"'abc'\""),
        (nyala.col("carrier") == 3, "value_type=int"),
        (nyala.col("day") == "yesterday", "yesterday"),
        (nyala.col("at") > 5, "timestamp"),
        (nyala.col("price") < "cheap", "cheap"),
        (nyala.col("odd name") == 1, "bool"),
        (nyala.col("raw") == "text", "binary"),
        (nyala.col("k") > True, "bool"),
    ],
)
def test_condition_bound_to_a_schema_refuses_what_does_not_fit(condition: nyala.Condition, says: str) -> None:
    """Goal: wrong names and values in a condition are refused before anything is read. Method: one mistake each."""
    with pytest.raises(nyala.NotApplied, match="(?i)" + says):
        bound(condition, SCHEMA)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: nyala.col("a") == None,  # noqa: E711
        lambda: nyala.col("a") == nyala.col("b"),
        lambda: (nyala.col("a") == 1) | (nyala.col("a") == 2),
        lambda: ~(nyala.col("a") == 1),
        lambda: (nyala.col("a") == 1) and (nyala.col("b") == 2),
        lambda: 1 < nyala.col("a") < 3,
        lambda: nyala.col("a").isin("abc"),
        lambda: nyala.col("a").isin([1, None]),
        lambda: nyala.col(""),
        lambda: as_condition(nyala.col("a")),
        lambda: as_condition(3),  # type: ignore[arg-type]
    ],
)
def test_condition_that_would_mean_something_else_is_refused(wrong: Any) -> None:
    """Goal: Python's own traps are caught. Method: None, and, or, not, chained comparison, strings as lists."""
    with pytest.raises(nyala.NotApplied):
        wrong()


@pytest.mark.a_third
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: nyala.col("k").isin(itertools.count()), f"at most {limits.SCAN_VALUES_MAX} values together"),
        (lambda: nyala.col("k").isin(HALF) & nyala.col("k").isin(HALF) & (nyala.col("k") > 0), "values together"),
        (lambda: nyala.col("carrier").isin(["é" * (1 << 20)] * 4), f"at most {limits.SCAN_VALUES_BYTES_MAX} bytes"),
        (lambda: [nyala.col("k") > 0] * (limits.SCAN_PREDICATES_MAX + 1), "conditions"),
    ],
    ids=["values", "of two lists", "bytes", "conditions"],
)
def test_conditions_beyond_what_a_scan_may_have_are_refused_at_once(make: Any, says: str) -> None:
    """IN-61. Goal: the caller hears the bound and what to do, before anything is sent. Method: each bound by one; just
    the bound is taken."""
    with pytest.raises(nyala.NotApplied, match=f"{says}.* Split the list"):
        bound(as_condition(make()), SCHEMA)
    assert len(bound(nyala.col("k").isin(HALF) & nyala.col("k").isin(HALF), SCHEMA)) == 2


def test_conditions_that_are_joined_are_refused_at_the_bound() -> None:
    """IN-61. Goal: a loop that joins conditions without end costs nothing beyond the bound: to join n conditions copies
    n * n / 2 of them. Method: conditions joined one by one, in a list and in text; the join beyond the bound is
    refused, and of an endless list no more is read than that."""
    one = nyala.col("k") > 3
    joined = one
    for _ in range(limits.SCAN_PREDICATES_MAX - 1):
        joined = joined & one
    assert len(joined.predicates) == limits.SCAN_PREDICATES_MAX
    left = itertools.count()
    endless = (one.predicates[0] for _ in left)
    text = f"({' and '.join(['k > 3'] * 20_000)})"
    beyond: list[Any] = [lambda: joined & one, lambda: type(one)(endless), lambda: nyala.parse_condition(text)]
    for make in beyond:
        with pytest.raises(nyala.NotApplied, match=r"at most 1000 conditions.* Split the list"):
            make()
    assert next(left) == limits.SCAN_PREDICATES_MAX + 1


def test_condition_shows_itself_as_text() -> None:
    """Goal: a person sees what it says. Method: the repr of a long one."""
    condition = (nyala.col("k") > 3) & nyala.col("odd name").is_null() & nyala.col("k").isin(range(9))
    assert repr(condition) == 'k > 3 and "odd name" is null and k in (0, 1, 2, 3, 4, ...)'


@pytest.mark.parametrize(
    "text", ["delay < " + "9" * 400, "price < 1e-999999999", "price = 1e999999999", "k = 1e-999999999"]
)
def test_number_that_no_column_holds_is_bound_or_refused(text: str) -> None:
    """IN-82. Goal: a condition with any numbers is accepted or refused, and never ends the process. Method: numbers
    beyond a double, and with more places than a decimal has; what is bound is evaluated over no rows."""
    try:
        predicates = bound(nyala.parse_condition(text), SCHEMA)
        assert predicate_mask(pa.RecordBatch.from_pylist([], SCHEMA.arrow), predicates).to_pylist() == []
    except nyala.Refused as error:
        assert error.code is nyala.Code.INVALID_ARGUMENT


def test_exponent_of_a_condition_costs_no_time() -> None:
    """Goal: 1e999999999 is not written out. Method: beside an integer it is beyond all integers."""
    assert bound(nyala.parse_condition("k < 1e999999999"), SCHEMA) == (Predicate("k", "<=", ((1 << 63) - 1,)),)


def test_integers_beyond_64_bits_still_compare() -> None:
    """Goal: k < 2**70 is simply true. Method: the bound is the highest value of the column."""
    assert bound(nyala.col("k") < 2**70, SCHEMA) == (Predicate("k", "<=", ((1 << 63) - 1,)),)


def found(column: str, predicates: Iterable[Predicate]) -> list[bool]:
    """Return which rows of STORED, with a null behind them, a server finds."""
    kind = NUMBERS.column(column).arrow_type
    sent = [predicate_from_pb(predicate_to_pb(p, kind)) for p in predicates]
    array = pa.array([*STORED[column], None], kind)
    return list(predicate_mask(pa.record_batch([array], names=[column]), sent).to_pylist())


def condition_texts(column: str, op: str, given: Sequence[Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the condition in the forms of a text, with the values that they have there."""
    if any(abs(v) == math.inf or len(str(v)) > 300 for v in given):
        return
    real = NUMBERS.column(column).type in (ColumnType.FLOAT, ColumnType.DOUBLE)
    shown = list(map(str, given))
    values = [int(t) if re.fullmatch(r"-?\d+", t) else float(t) if real else decimal.Decimal(t) for t in shown]
    text = f"({', '.join(map(str, given))})" if op == "in" else str(given[0])
    yield bound(nyala.parse_condition(f"{column} {op} {text}"), NUMBERS), values
    yield parse_where(f"{column} {op} {text}", NUMBERS), values


def meets(op: str, stored: Any, values: Sequence[Any]) -> bool:
    """Return whether Python says that a stored value meets a condition."""
    if stored != stored:  # A decimal has no order beside NaN.
        return op == "!="
    return any(stored == v for v in values) if op == "in" else bool(COMPARE[op](stored, values[0]))


@pytest.mark.deep
@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(sorted(STORED)),
    st.sampled_from([*COMPARE, "in"]),
    st.lists(st.sampled_from([*INTS, *FLOATS, *DECIMALS]), min_size=1, max_size=3),
)
@example("i", "=", [-(1 << 63) - 1])
@example("i", "in", [3, -(1 << 63) - 1])
@example("i", "in", [1.5, (1 << 53) + 1])
@example("i", "=", [decimal.Decimal("9007199254740993.5")])
@example("d", "=", [(1 << 53) + 1])
@example("d", "in", [0])
@example("f", "in", [-0.0])
def test_condition_on_numbers_finds_what_python_finds(column: str, op: str, given: list[Any]) -> None:
    """IN-01. Goal: no condition rounds: a row is found if and only if Python, which compares numbers exactly, says so.
    Method: integers, floats and decimals around the bounds of every type, in columns of each type of numbers, built,
    as text, and as text of Spark's option; over the network. In a text, a number with a fraction beside a float is the
    nearest one, and a float beside a decimal is its digits."""
    given = given if op == "in" else given[:1]
    built = nyala.col(column).isin(given) if op == "in" else COMPARE[op](nyala.col(column), given[0])
    for predicates, values in ((bound(built, NUMBERS), given), *condition_texts(column, op, given)):
        if NUMBERS.column(column).type is ColumnType.DECIMAL:
            values = [decimal.Decimal(str(v)) if isinstance(v, float) else v for v in values]
        assert found(column, predicates) == [*(meets(op, one, values) for one in STORED[column]), False], predicates


@pytest.mark.parametrize(
    ("condition", "same"),
    [
        (nyala.col("at") == pd.Timestamp("2026-01-01T00:00:00.000000001Z"), None),
        (nyala.col("at") < np.datetime64("2026-01-01T00:00:00.000000001"), None),
        ("at = '2026-01-01T00:00:00.000000999'", None),
        (nyala.col("at") == pd.Timestamp("2026-01-01T00:00:00.000001Z"), NOON.replace(2026, hour=0, microsecond=1)),
        ("at = '2013-01-01T13:00:00.000000000+01:00'", NOON),
        (nyala.col("at") == np.datetime64("2013-01-01T12:00:00", "ns"), NOON),
        (nyala.col("at") == dt.date(2013, 1, 1), NOON.replace(hour=0)),
        (nyala.col("day") == dt.datetime(2026, 1, 1, tzinfo=EAST), None),
        (nyala.col("day") == dt.datetime(2026, 1, 1, 1, tzinfo=EAST), dt.date(2026, 1, 1)),
        (nyala.col("k") == np.timedelta64(5, "ns"), None),
        (nyala.col("delay") == np.float32("nan"), None),
    ],
)  # fmt: skip
def test_condition_on_times_has_the_value_that_was_given_or_is_refused(condition: Any, same: object) -> None:
    """IN-01, IN-82. Goal: the rule of writes holds for conditions: a time with nanoseconds, or a datetime that is no
    date in UTC, is refused and not cut. Method: times of pandas, numpy, Python and text, in other zones."""
    if same is None:
        with pytest.raises(nyala.NotApplied, match="cannot be compared"):
            bound(as_condition(condition), SCHEMA)
        if isinstance(condition, str):
            with pytest.raises(nyala.Refused, match="not a value of the type"):
                parse_where(condition, SCHEMA)
    else:
        assert bound(as_condition(condition), SCHEMA)[0].values == (same,)
