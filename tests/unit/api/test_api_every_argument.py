"""Every parameter of every public function and method, with values that no well-meaning caller would give."""

from __future__ import annotations

import datetime as dt
import decimal
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

import nyala
from nyala.pipeline import Framing, QueryInterrupted, RowPublisher
from nyala.pipeline.publish import RowEncoder
from nyala.replica.client import Client, parse_masters
from nyala.replica.types import Applied, Code, Refused, printable, text_of
from tests.harness.rows import SCHEMA
from tests.unit.client.test_client_row_errors import TABLE

AWAY = "127.0.0.1:1"
"""An address where no process listens: a call that a master or Kafka would be asked for ends as UNAVAILABLE."""
HURRIED = nyala.ClientOptions(
    timeout_s=0.02, write_timeout_s=0.02, scan_timeout_s=0.02, connect_timeout_s=0.02, attempt_timeout_s=0.02
)


class Odd:
    """A value whose text cannot be had."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def _within_itself() -> list[Any]:
    endless: list[Any] = []
    endless.append(endless)
    return endless


class _WithoutOffset(dt.tzinfo):
    """A zone that gives no offset, which Python allows."""

    def utcoffset(self, _: dt.datetime | None) -> None:
        return None

    dst = utcoffset

    def tzname(self, _: dt.datetime | None) -> str:
        return "nowhere"


HOSTILE: dict[str, object] = {
    "None": None,
    "True": True,
    "False": False,
    "0": 0,
    "-1": -1,
    "1.5": 1.5,
    "1e30": 10**30,
    "1e5000": 10**5000,
    "nan": float("nan"),
    "inf": float("inf"),
    "Decimal nan": decimal.Decimal("NaN"),
    "Decimal snan": decimal.Decimal("sNaN"),
    "complex": 1j,
    "empty": "",
    "blank": " ",
    "x": "x",
    "long": "x" * 5000,
    "NUL": "a\0b",
    "surrogate": "\ud800",
    "odd port": "h:\u00b2",
    "long port": "h:" + "1" * 5000,
    "odd host": "\ud800:1",
    "long host": "x" * 100 + ":1",
    "bytes": b"x",
    "date": dt.date(2024, 1, 1),
    "zone without an offset": dt.datetime(2024, 1, 1, tzinfo=_WithoutOffset()),
    "long decimal": {"k": f"decimal({'1' * 5000},2)"},
    "first time": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    "[]": [],
    "[None]": [None],
    "['x']": ["x"],
    "['x', 'x']": ["x", "x"],
    "[surrogate]": ["\ud800"],
    "[[]]": [[]],
    "[['x']]": [["x"]],
    "['k', 1]": ["k", 1],
    "[object]": [object()],
    "list in itself": _within_itself(),
    "()": (),
    "('x',)": ("x",),
    "{}": {},
    "{'x': 1}": {"x": 1},
    "{'k': []}": {"k": []},
    "{1: 2}": {1: 2},
    "{'x': 1, 2: 3}": {"x": 1, 2: 3},
    "{surrogate: 1}": {"\ud800": 1},
    "set": set(),
    "range": range(3),
    "object": object(),
    "a type": float,
    "a function": len,
    "no text": Odd(),
}


class Call(NamedTuple):
    """One function or method, on an object that is ready for it, and arguments that it takes."""

    function: Callable[..., Any]
    good: dict[str, Any]
    of: Callable[[], Any] | None = None
    """Makes the object of a method; None for functions and classes."""

    def parameters(self) -> list[inspect.Parameter]:
        """Return the parameters that a caller gives."""
        found = list(inspect.signature(self.function).parameters.values())
        return found[1:] if self.of is not None else found


class _Kafka:
    """What a publisher has sent."""

    def send(self, topic: str, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]) -> None:
        """Take only what Kafka's clients do."""
        assert all(part is None or type(part) is bytes for part in (key, value)), "Kafka takes bytes"


def _cluster() -> nyala.Cluster:
    return nyala.Cluster(Client(parse_masters(AWAY), HURRIED), AWAY)


def _table() -> nyala.Table:
    return nyala.Table(Client(parse_masters(AWAY), HURRIED), TABLE)


def _publisher() -> RowPublisher:
    made = object.__new__(RowPublisher)
    made._rows = RowEncoder(SCHEMA, Framing.SINGLE_OBJECT, None, "", 0)
    made._topic, made._sink = "t", _Kafka()  # type: ignore[assignment]
    return made


def _col() -> nyala.Col:
    return nyala.col("k")


COLUMNS = {"columns": {"k": "int64"}}
ROW = {"k": 1}
WRITE = {"rows": [ROW]}
OPERATORS = ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__")
PUBLISHER = {"bootstrap": AWAY, "topic": "t", "schema": SCHEMA}
CALLS: dict[str, Call] = {
    "connect": Call(nyala.connect, {"address": AWAY, "options": HURRIED}),
    "col": Call(nyala.col, {"name": "k"}),
    "parse_condition": Call(nyala.parse_condition, {"text": "k = 1"}),
    "ClientOptions": Call(nyala.ClientOptions, {}),
    "Cluster.create_table": Call(
        nyala.Cluster.create_table, {**COLUMNS, "name": "t", "key": "k", "make_topic": False}, _cluster
    ),
    "Cluster.create_table, in ranges": Call(
        nyala.Cluster.create_table,
        {**COLUMNS, "name": "t", "key": "k", "make_topic": False, "range_column": "k", "range_splits": [1]},
        _cluster,
    ),
    "Cluster.table": Call(nyala.Cluster.table, {"name": "t"}, _cluster),
    "Cluster.drop_table": Call(nyala.Cluster.drop_table, {"name": "t"}, _cluster),
    "Cluster.create_topic": Call(nyala.Cluster.create_topic, {"name": "t"}, _cluster),
    "Cluster.sql": Call(nyala.Cluster.sql, {"query": "select 1"}, _cluster),
    "Table.scan": Call(nyala.Table.scan, {}, _table),
    "Table.to_arrow_dataset": Call(nyala.Table.to_arrow_dataset, {}, _table),
    "Table.get": Call(nyala.Table.get, {"key": 1}, _table),
    "Table.count": Call(nyala.Table.count, {}, _table),
    "Table.insert": Call(nyala.Table.insert, WRITE, _table),
    "Table.upsert": Call(nyala.Table.upsert, WRITE, _table),
    "Table.update": Call(nyala.Table.update, {"rows": [ROW | {"v": "x"}]}, _table),
    "Table.delete": Call(nyala.Table.delete, WRITE, _table),
    "Col.isin": Call(nyala.Col.isin, {"values": [1]}, _col),
    "Col.between": Call(nyala.Col.between, {"low": 1, "high": 2}, _col),
    **{f"Col.{op}": Call(getattr(nyala.Col, op), {"value": 1}, _col) for op in OPERATORS},
    "Condition.__and__": Call(nyala.Condition.__and__, {"other": nyala.col("k") == 1}, lambda: nyala.col("k") == 1),
    "Condition.__or__": Call(nyala.Condition.__or__, {"other": nyala.col("k") == 1}, lambda: nyala.col("k") == 1),
    "RowPublisher": Call(RowPublisher, PUBLISHER),
    "RowPublisher.publish": Call(RowPublisher.publish, {"row": ROW}, _publisher),
    "RowPublisher.delete": Call(RowPublisher.delete, {"row": ROW}, _publisher),
    "RowPublisher.key_of": Call(RowPublisher.key_of, {"row": ROW}, _publisher),
    "RowPublisher.publish_raw": Call(RowPublisher.publish_raw, {"key": None, "value": b""}, _publisher),
}


def outcome(call: Call, parameter: str, value: object) -> Refused | None:
    """Return the refusal of the call with that value; None if it was accepted."""
    given = {**call.good, parameter: value}
    on = () if call.of is None else (call.of(),)
    positional = [p.name for p in call.parameters() if p.kind is p.POSITIONAL_ONLY]
    try:
        made = call.function(*on, *(given.pop(name) for name in positional), **given)
        if isinstance(made, nyala.Condition):
            assert repr(made)
            _table().scan(where=made)
    except Refused as error:
        return None if error.code in (Code.UNAVAILABLE, Code.TIMED_OUT) else error
    except QueryInterrupted:
        return None
    return None


MADE_BY_NYALA = {
    "Cluster", "Code", "Col", "Condition", "NotApplied", "OutcomeUnknown", "Refused", "ReplicaError", "RowCode",
    "Query", "RowErrors", "RowFailure", "Scan", "Table", "TopicNotMade", "WriteResult",
}  # fmt: skip
"""Classes that a user's program does not make itself: only their methods are listed."""
PROTOCOL = {"__init__", "__exit__", "__reduce__", "__setattr__", "__delattr__", "__lt__", "__eq__"}
"""Methods of Python's own protocols. Those of `Col` that compare are listed all the same."""
COMPARED = {"0", "-1", "1.5", "1e30", "1e5000", "inf"}
FLAG = {"True", "False"}
LOOKED_FOR = {"blank", "x", "odd port", "long host"}
WHERE = {"None", "empty", "blank", "[]", "[None]", "()"}
STALENESS = {"None", "1.5"}
ROWS = {"[]", "()"}
ACCEPTED: dict[str, set[str]] = {
    "connect.address": {"long host"},
    "connect.kafka": {"empty", "long host"},
    "connect.kafka_properties": {"None", "{}"},
    "connect.options": {"None"},
    "connect.tls": {"None"},
    "col.name": {"blank", "x", "long", "NUL", "surrogate", "odd port", "long port", "odd host", "long host"},
    "parse_condition.text": {"empty", "blank"},
    "ClientOptions.timeout_s": {"1.5"},
    "ClientOptions.scan_timeout_s": {"1.5"},
    "ClientOptions.connect_timeout_s": {"1.5"},
    "ClientOptions.attempt_timeout_s": {"1.5"},
    "ClientOptions.look_up_staleness_s": {"0", "1.5"},
    "ClientOptions.backoff_max_s": {"1.5"},
    "Cluster.create_table.name": {"x"},
    "Cluster.create_table.schema": {"None"},
    "Cluster.create_table.hash_columns": {"None", "[]", "()"},
    "Cluster.create_table.range_column": {"empty"},
    "Cluster.create_table.range_splits": {"[]", "()"},
    "Cluster.create_table.history_retention_s": {"0", "1.5"},
    "Cluster.create_table.topic": {"empty", "x"},
    "Cluster.create_table.reader_schema": {"empty"},
    "Cluster.create_table.make_topic": {"None", "False"},
    "Cluster.create_table.if_not_exists": FLAG,
    "Cluster.create_table, in ranges.range_column": set(),
    "Cluster.create_table, in ranges.range_splits": {"[]", "()", "range"},
    "Cluster.table.name": LOOKED_FOR,
    "Cluster.drop_table.name": LOOKED_FOR,
    "Cluster.drop_table.if_exists": FLAG,
    "Cluster.create_topic.name": LOOKED_FOR,
    # A query may have parameters or none, so any list of values and any dict with names is taken here.
    "Cluster.sql.parameters": {
        "None",
        "[]",
        "[None]",
        "['x']",
        "['x', 'x']",
        "[surrogate]",
        "[[]]",
        "[['x']]",
        "['k', 1]",
        "[object]",
        "list in itself",
        "()",
        "('x',)",
        "{}",
        "{'x': 1}",
        "{'k': []}",
        "{surrogate: 1}",
        "long decimal",
    },
    "Cluster.sql.at": {"None"},
    "Table.scan.columns": {"None"},
    "Table.scan.where": WHERE,
    "Table.scan.at": {"None"},
    "Table.scan.limit": {"None"},
    "Table.scan.staleness": STALENESS,
    "Table.get.key": {"True", "False", "0", "-1", "[]"},
    "Table.get.columns": {"None"},
    "Table.get.staleness": STALENESS,
    "Table.count.where": WHERE,
    "Table.count.at": {"None"},
    "Table.to_arrow_dataset.at": {"None"},
    "Table.count.staleness": STALENESS,
    "Table.insert.rows": ROWS,
    "Table.insert.ignore_existing": FLAG,
    "Table.upsert.rows": ROWS,
    "Table.upsert.ignore_null": FLAG,
    "Table.update.rows": ROWS,
    "Table.update.ignore_missing": FLAG,
    "Table.update.ignore_null": FLAG,
    "Table.delete.rows": ROWS,
    "Table.delete.ignore_missing": FLAG,
    "Col.isin.values": {"[]", "()", "set", "range"},
    "Col.between.low": COMPARED,
    "Col.between.high": COMPARED,
    **{f"Col.{op}.value": COMPARED for op in OPERATORS},
    "Condition.__and__.other": WHERE,
    "RowPublisher.bootstrap": {"long host"},
    "RowPublisher.topic": {"x"},
    "RowPublisher.columns": {"None", "[]", "()"},
    "RowPublisher.writer_json": {"empty"},
    "RowPublisher.registry_id": {"0"},
    "RowPublisher.bulk": FLAG,
    "RowPublisher.publish_raw.key": {"None", "bytes"},
    "RowPublisher.publish_raw.value": {"None", "bytes"},
}
"""The values with a meaning, by parameter. A parameter without a row takes none of them: a new one needs a row."""
CALLED = {
    "kafka_properties": "kafka_properties|kafka option",
    "key": "key|column", "columns": "column", "hash_columns": "column", "range_column": "range_column|column|key",
    "range_splits": "range_splits|split", "text": "condition", "other": "condition|where=|or ", "rows": "row|column",
    "row": "row|column", "value": "compar|nan|value", "values": "isin|value|condition", "low": "compar|nan",
    "high": "compar|nan",
    "make_topic": "make_topic|no kafka", "where": "where=|condition|column", "bootstrap": "kafka",
    "schema": "schema|column",
}  # fmt: skip
"""The words by which an error names a parameter, if not by its own name."""
NOT_SHOWN = {
    "connect.kafka_properties": "one of them is a password",
    "Cluster.create_table.make_topic": "what is wrong with True is that no Kafka is known",
    "Cluster.create_table, in ranges.make_topic": "the same",
    "Condition.__or__.other": "any value is refused: there is no OR",
}
PARAMETERS = [(name, parameter.name) for name, call in CALLS.items() for parameter in call.parameters()]


def _texts(value: object) -> Iterator[str]:
    """The beginnings of the texts by any of which an error may show a value, or a part of it."""
    yield text_of(value, repr)[:10]
    if isinstance(value, str):
        yield printable(value)[:10]
    if value is None:
        yield "no value"
    if value in ([], (), {}, set()):
        yield ""  # There is nothing to show.
    if isinstance(value, float | decimal.Decimal):
        yield "nan"
    if isinstance(value, dict | list | tuple | range) and value is not HOSTILE["list in itself"]:
        for part in (*value, *(value.values() if isinstance(value, dict) else ())):
            yield from _texts(part)


@pytest.mark.a_third
@pytest.mark.parametrize(("name", "parameter"), PARAMETERS, ids=map(".".join, PARAMETERS))
def test_argument_has_a_meaning_or_is_refused(name: str, parameter: str) -> None:
    """IN-82. Goal: no argument raises an exception of Python's or of a library's, and none that means nothing is taken
    for something. An error names the parameter and the value, and says that nothing was applied. Method: each parameter
    of each public function and method with each of fifty values. No process listens at the addresses: a call that
    gets as far as a master or Kafka counts as accepted."""
    place, taken = f"{name}.{parameter}", set()
    for what, value in HOSTILE.items():
        error = outcome(CALLS[name], parameter, value)
        if error is None:
            taken.add(what)
            continue
        text, words = str(error), CALLED.get(parameter, parameter)
        assert error.applied is Applied.NOT_APPLIED, (what, text)
        assert error.only_read or text.endswith("; nothing was applied"), (what, text)
        assert text.isprintable() and len(text) < 1000, (what, text)
        assert "; " in error.what or (": " in error.what and not isinstance(error, nyala.NotApplied)), (what, text)
        assert re.search(words, text.lower()), (what, text)
        shown = any(part in text or part.lower() in text.lower() for part in _texts(value))
        default = inspect.signature(CALLS[name].function).parameters[parameter].default
        in_part = "near=" in text  # The place in a condition, and the text there.
        assert shown or in_part or place in NOT_SHOWN or value is default, (what, text)
    assert taken == ACCEPTED.get(place, ACCEPTED.get(f"{CALLS[name].function.__qualname__}.{parameter}", set()))


def _public() -> Iterator[str]:
    """The public functions, and the methods with parameters of the public classes."""
    for name in (*nyala.__all__, "RowPublisher"):
        found = RowPublisher if name == "RowPublisher" else getattr(nyala, name)
        if not inspect.isclass(found):
            if callable(found):
                yield name
            continue
        if name not in MADE_BY_NYALA:
            yield name
        for method, function in inspect.getmembers(found, inspect.isfunction):
            ours = function.__module__.startswith("nyala") and function.__qualname__.startswith(name)
            public = not method.startswith("_") or (method[:2] == "__" and (name == "Col" or method not in PROTOCOL))
            if ours and public and method != "__init__" and len(inspect.signature(function).parameters) > 1:
                yield f"{name}.{method}"


def test_every_public_function_is_in_the_table() -> None:
    """Goal: a new function, method or parameter is tried too. Method: what the package exports, beside the table. The
    parameters come from the signatures; one that is not required and takes a value needs a row in `ACCEPTED`."""
    assert {name.partition(",")[0] for name in CALLS} == set(_public())
    assert ACCEPTED.keys() <= {f"{name}.{parameter}" for name, parameter in PARAMETERS}
    assert set().union(*ACCEPTED.values()) <= HOSTILE.keys()
