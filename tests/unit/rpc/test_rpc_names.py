"""One alphabet, one length and one range for each kind of name, id and number that comes in."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nyala.replica.master.requests.conversions import checked_table
from nyala.replica.rows import ColumnType, PartitionSpec, value_from_json
from nyala.replica.rpc import partition_from_pb, pb, schema_from_pb
from nyala.replica.types import (
    Code,
    Refused,
    check_column_name,
    check_id,
    check_number,
    check_source_topic,
    check_table_name,
    check_text,
    check_token,
    check_topic,
    limits,
    names,
    new_uuid,
    parse_json,
    shown,
)
from tests.harness.catalogs import table_info

NAN, INF = float("nan"), float("inf")


def an_id(text: str) -> object:
    return check_id(text, "a tablet")


def a_token(text: str) -> object:
    return check_token(text, "a request id")


def words(text: str) -> object:
    return check_text(text, "a reason")


Check = Callable[[Any], object]
GOOD: list[tuple[Check, list[Any]]] = [
    (an_id, ["a", new_uuid(), "t-1", "_x", "A.b", "x" * limits.ID_LENGTH_MAX]),
    (a_token, ["a", "run/7 of 8", "\u0442\u0430\u0431", "x" * limits.TOKEN_LENGTH_MAX]),
    (words, ["", "two\nlines\tand a tab", "x" * limits.TEXT_LENGTH_MAX]),
    (check_table_name, ["t", "2024.flights_a-b", "x" * limits.TABLE_NAME_LENGTH_MAX]),
    (check_column_name, ["c", "a b", "\u0446\u0435\u043d\u0430", "a/b", "x" * limits.NAME_LENGTH_MAX]),
    (check_topic, ["writes.t", "_x", "decisions", "x" * limits.TOPIC_LENGTH_MAX]),
    (check_source_topic, ["writes.t", "decisions", "_x", "a__b"]),
]
BAD: list[tuple[Check, list[Any]]] = [
    (an_id, ["", ".", "..", ".x", "../x", "a/b", "a\0", "a b", "a\n", "\u0442", "x" * (limits.ID_LENGTH_MAX + 1)]),
    (a_token, ["", "a\0b", "a\nb", "\x7f", "\u2028", "x" * (limits.TOKEN_LENGTH_MAX + 1)]),
    (words, ["a\0b", "\x1b[2J", "x" * (limits.TEXT_LENGTH_MAX + 1)]),
    (check_table_name, ["", ".t", "-t", "a b", "a/b", "t\0", "\u0442", "t\n", "x" * 237]),
    (check_column_name, ["", "a\0b", " a", "a ", "a\tb", "x" * 257]),
    (check_topic, ["", ".", "..", "a b", "a/b", "a\0", "x" * 250]),
    (check_source_topic, ["dead-letters.t", "__consumer_offsets", "__x", "", "a/b"]),
    (lambda n: check_number(n, "a number", 0, 5), [-1, 6, NAN, INF, -INF]),
    (
        lambda t: parse_json(t, "a value"),
        ["", "{", "NaN", "[Infinity]", b"\xff", "[" * 33 + "]" * 33, "[" * 10**6, '{"a":' * 10**5, "9" * 5000],
    ),
]


@pytest.mark.parametrize("check, values", GOOD)
def test_name_within_its_bounds_is_taken_as_it_is(check: Check, values: list[Any]) -> None:
    """IN-82. Goal: a name within its bounds is accepted. Method: each kind at its bounds."""
    for value in values:
        assert check(value) == value


@pytest.mark.parametrize("check, values", BAD)
def test_name_or_number_that_cannot_be_is_refused_and_shown(check: Check, values: list[Any]) -> None:
    """IN-82. Goal: an invalid name or number is refused with its value, short and without control characters. Method:
    each kind beyond its bounds: empty, NUL, too long, paths, other alphabets, out of range, NaN, no JSON and JSON
    without end."""
    for value in values:
        with pytest.raises(Refused) as caught:
            check(value)
        text = str(caught.value)
        assert caught.value.code is Code.INVALID_ARGUMENT and len(text) < 500 and text.isprintable(), value


@settings(max_examples=200)
@given(st.text())
def test_what_is_shown_is_short_printable_and_says_how_long_it_was(text: str) -> None:
    """IN-82. Goal: a name in an error writes no second line and moves no cursor. Method: any text."""
    told = shown(text)
    assert len(told) < 650 and told.isprintable()
    assert len(text) <= 80 or f"({len(text)} characters)" in told


def test_values_in_the_text_of_an_error_are_printable_and_bounded() -> None:
    """IN-82. Goal: the values in an error's text are printable and bounded. Method: a line's end, an escape and a mark
    that turns a line around, as the value of an error; and three lists without end."""
    endless = {name: ["x"] * 100_000 for name in ("several", "known", "others")}
    told = str(Refused(Code.NOT_FOUND, "no such table", endless, name="a\nb\x1b[2J\u202ec"))
    assert told.isprintable() and len(told) < 4096
    assert "name=a\\u000ab\\u001b[2J\\u202ec)" in told and "(500000 characters)" in told


def test_json_may_nest_as_deep_as_is_stated_and_brackets_in_texts_do_not_count() -> None:
    """IN-82. Goal: depth is bounded where it costs the stack. Method: the bound itself, and texts full of brackets."""
    deep = "[" * limits.JSON_DEPTH_MAX + "]" * limits.JSON_DEPTH_MAX
    assert parse_json(deep, "x") is not None
    assert parse_json('{"a[[[[[": "' + "[" * 1000 + '\\"{{{"}', "x") == {"a[[[[[": "[" * 1000 + '"{{{'}


LONG = "x" * (2 << 20)
QUOTES = '"' + '\\"' * (1 << 20)
"""A text that begins and does not end: each of its escaped quotes could be read as a beginning."""


def test_no_part_that_the_depth_of_a_json_text_is_told_from_has_more_than_two_characters() -> None:
    """IN-82. Goal: the time to find the depth of a JSON text follows its length, whatever it contains. Method: parts of
    texts that end, that do not, and of escapes: each has one or two characters, and none is looked at twice."""
    for text in ('"' + "x" * 100 + '"', '{"a": ["b"]}', QUOTES[:21], QUOTES[:21] + '"', '"' + "\\" * 20 + '"'):
        parts = [part.span() for part in names._JSON_PART.finditer(text)]
        assert parts and all(end - begin <= 2 for begin, end in parts), text
        assert all(before[1] <= after[0] for before, after in pairwise(parts))


@pytest.mark.a_third
@pytest.mark.parametrize("text", [QUOTES, QUOTES[:-1], QUOTES + "\\", "[" + QUOTES, '"' + LONG], ids=range(5))
def test_json_text_without_an_end_is_refused(text: str) -> None:
    """IN-82. Goal: a JSON text of two megabytes without an end is refused quickly. Method: escaped quotes, and plain
    ones."""
    with pytest.raises(Refused):
        parse_json(text, "x")


def test_writer_schema_has_a_request_that_is_little_larger_than_itself() -> None:
    """IN-60, IN-82. Goal: no more is read than can be taken. Method: the two bounds, side by side."""
    bound = limits.REQUESTS["MasterService.AddWriterSchema"].bytes_max
    assert limits.WRITER_SCHEMA_BYTES_MAX + 4096 < bound <= 2 * limits.WRITER_SCHEMA_BYTES_MAX


TEXTS = st.text(st.sampled_from('"\\[]{}:,a\u00e4\n'), max_size=12)
VALUES = st.recursive(
    TEXTS | st.none() | st.integers() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
)


def levels(value: Any) -> int:
    """How deep it nests, told from the value itself."""
    if isinstance(value, list | dict):
        return 1 + max(map(levels, value.values() if isinstance(value, dict) else value), default=0)
    return 0


@pytest.mark.deep
@settings(max_examples=200)
@given(VALUES, st.booleans())
def test_depth_of_a_json_text_is_that_of_its_value(value: Any, ascii_only: bool) -> None:
    """IN-82. Goal: what may be is taken, and one level more is refused. Method: any value, its texts of quotes,
    backslashes and brackets, against its depth as it is told from the value."""
    text, depth = json.dumps(value, ensure_ascii=ascii_only), levels(value)
    assert parse_json(text, "x", depth_max=depth) == value
    if depth:
        with pytest.raises(Refused, match=f"at most {depth - 1} levels"):
            parse_json(text, "x", depth_max=depth - 1)


def changed(**fields: Any) -> pb.TableInfo:
    """A good table with some fields as they should not be; `column` is the last one, which is not in the key."""
    info = table_info()
    for name, value in fields.items():
        target: Any = info
        *path, last = name.split("__")
        for part in path:
            target = target.columns[-1] if part == "column" else getattr(target, part)
        setattr(target, last, value)
    return info


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "../x"},
        {"name": "x" * 237},
        {"name": "catalog"},
        {"schema__column__name": "a\0b"},
        {"schema__column__name": "x" * 257},
        {"schema__column__name": "__op"},
        {"history_retention_us": -1},
        {"history_retention_us": limits.HISTORY_RETENTION_US_MAX + 1},
        {"source__topic": "decisions"},
        {"source__topic": "__transaction_state"},
        {"source__topic": "proposals"},
        {"source__topic": "outcomes"},
        {"source__topic": "reports"},
        {"source__topic": "dead-letters.t"},
        {"source__topic": "a b"},
        {"source__topic": "x" * 250},
        {"replication_factor": 2},
        {"partition__buckets": 5000},
    ],
    ids=str,
)
def test_table_that_cannot_be_is_refused_before_it_is_made(fields: dict[str, Any]) -> None:
    """IN-82. Goal: nothing gets into the catalog that a file, Kafka or an operator would choke on. Method: a good
    table with one thing wrong; the good one is taken."""
    assert checked_table(changed()).name
    with pytest.raises(Refused) as caught:
        checked_table(changed(**fields))
    assert caught.value.code is Code.INVALID_ARGUMENT


def test_tables_that_were_made_with_odd_names_are_still_read() -> None:
    """IN-82. Goal: what exists goes on. Method: a schema with a NUL in a column's name, as an order of a master has
    it, and as files have it."""
    columns = [pb.Column(id=1, name="k", type="int64"), pb.Column(id=2, name="a\0b", type="string", nullable=True)]
    schema = schema_from_pb(pb.TableSchema(schema_id=1, columns=columns, key=["k"]))
    assert type(schema).from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    "splits",
    [[b"{}", b"[]"], [b'"a"', b"1"], [b"1", b'"a"'], [b"{}"], [b"[" * 5000], [b"NaN"], [b"1e999", b"2"], [b"\xff"]],
)
def test_range_splits_that_are_no_values_are_refused(splits: list[bytes]) -> None:
    """IN-82. Goal: hostile JSON raises nothing but a refusal. Method: objects, mixed types, depth and no numbers."""
    schema = schema_from_pb(pb.TableSchema(schema_id=1, columns=[pb.Column(id=1, name="k", type="int64")], key=["k"]))
    with pytest.raises(Refused):
        partition_from_pb(
            pb.PartitionSpec(buckets=1, hash_version=1, range_column="k", range_splits_json=splits), schema
        )


@pytest.mark.parametrize(
    "kind, value",
    [
        (ColumnType.DECIMAL, "NaN"),
        (ColumnType.DECIMAL, "sNaN"),
        (ColumnType.DECIMAL, "Infinity"),
        (ColumnType.DECIMAL, {}),
        (ColumnType.TIMESTAMP, "0001-01-01T00:00:00+23:59"),
        (ColumnType.TIMESTAMP, []),
        (ColumnType.DATE, "x" * 1000),
        (ColumnType.BINARY, "\u0442"),
        (ColumnType.DOUBLE, "1e"),
    ],
)
def test_value_as_json_that_the_type_cannot_hold_is_refused(kind: ColumnType, value: object) -> None:
    """IN-82. Goal: defaults and splits are values, or refused. Method: NaN and infinities of decimals, times outside of
    the calendar in UTC, other JSON."""
    with pytest.raises(Refused):
        value_from_json(kind, value)
    assert PartitionSpec((), 1).partitions == [(0, 0)]
