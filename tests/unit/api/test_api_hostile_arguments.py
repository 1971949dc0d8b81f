"""Impossible names, numbers and times, given to Python's API and to Spark's options, are refused at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nyala
from nyala.expressions import parse_condition
from nyala.pipeline.source.reader import ReadOptions
from nyala.pipeline.source.where import parse_where
from nyala.replica.client import Client, ClientOptions, parse_masters
from nyala.replica.rows import Column, ColumnType, TableSchema
from nyala.replica.types import Code, Refused

NAN, INF = float("nan"), float("inf")
SCHEMA = TableSchema(1, (Column(id=1, name="k", type=ColumnType.INT64, nullable=False),), ("k",))


@pytest.fixture
def cluster() -> Iterator[nyala.Cluster]:
    """One that nobody listens for: what is wrong must be told before anybody is asked."""
    client = Client(parse_masters("127.0.0.1:1"), ClientOptions(connect_timeout_s=0.1))
    with nyala.Cluster(client, "127.0.0.1:1") as made:
        yield made


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "a\0b"},
        {"name": "x" * 300},
        {"name": "../x"},
        {"name": "\udcff"},
        {"name": 5},
        {"name": ""},
        {"columns": {"k": "int64 not null", "a\0b": "string"}},
        {"columns": {"k": "int64 not null", "\udcff": "string"}},
        {"topic": "dead-letters.x"},
        {"topic": "__consumer_offsets"},
        {"topic": "a b"},
        {"topic": 7},
        {"replication_factor": 2**40},
        {"replication_factor": -1},
        {"replication_factor": NAN},
        {"history_retention_s": -1},
        {"history_retention_s": NAN},
        {"history_retention_s": INF},
        {"history_retention_s": "1"},
        {"hash_buckets": -1},
        {"hash_buckets": 2**40},
    ],
    ids=str,
)
def test_table_that_cannot_be_is_told_before_a_master_is_asked(cluster: nyala.Cluster, changes: dict[str, Any]) -> None:
    """IN-82. Goal: an invalid table is refused with the value before a master is asked. Method: one argument each."""
    given = {"name": "t", "columns": {"k": "int64 not null"}, "key": "k"} | changes
    with pytest.raises(nyala.NotApplied) as caught:
        cluster.create_table(given.pop("name"), given.pop("columns"), **given)
    assert caught.value.code is Code.INVALID_ARGUMENT and str(caught.value).isprintable()


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 300, "\udcff", None, 5])
def test_table_of_no_possible_name_is_not_looked_for(cluster: nyala.Cluster, name: Any) -> None:
    """IN-82. Goal: as above. Method: look-up and drop."""
    for call in (cluster.table, cluster.drop_table):
        with pytest.raises(nyala.NotApplied) as caught:
            call(name)
        assert caught.value.code is Code.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "make",
    [lambda: nyala.col("x") == NAN, lambda: nyala.col("x") < NAN, lambda: nyala.col("x").isin([1.0, NAN])],
)
def test_nan_is_nothing_to_compare_with(make: Callable[[], object]) -> None:
    """IN-82. Goal: a condition with NaN is refused, because no row can meet it. Method: NaN in each place."""
    with pytest.raises(nyala.NotApplied, match="NaN"):
        make()


@pytest.mark.parametrize("name", [f for f in ClientOptions.__dataclass_fields__ if f.endswith("_s")])
@pytest.mark.parametrize("value", [NAN, INF, -1.0, 1e12])
def test_duration_that_cannot_be_is_refused(name: str, value: float) -> None:
    """IN-82. Goal: no client waits for ever, or not at all, for a number that is none. Method: every duration."""
    options: dict[str, Any] = {name: value}
    with pytest.raises(Refused, match=name):
        ClientOptions(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"at": "9" * 5000},
        {"at": "9" * 18},
        {"at": "0001-01-01T00:00:00"},
        {"at": "9999-12-31T23:59:59-23:59"},
        {"at": "\u00b2"},
        {"at": "nan"},
        {"at": "-1"},
        {"staleness": "nan"},
        {"staleness": "inf"},
        {"staleness": "-1"},
        {"slices": "9" * 5000},
        {"slices": "-1"},
    ],
    ids=lambda o: str(o)[:40],
)
def test_spark_option_that_cannot_be_is_refused(options: dict[str, str]) -> None:
    """IN-82. Goal: a job says which option is wrong. Method: numbers and times beyond every range."""
    with pytest.raises(Refused) as caught:
        ReadOptions.of({"table": "t", "masters": "m:1"} | options)
    assert caught.value.code is Code.INVALID_ARGUMENT
    assert ReadOptions.of({"table": "t", "masters": "m:1", "at": "2024-01-01"}).at_time > 0


@pytest.mark.parametrize(
    "text",
    ["k = 007", "k = 1e", "k = ", "k in (1, 02)", "k = " + "9" * 5000, "(" * 5000, "k = \x1b", "k = " + "x" * 9999],
)
def test_condition_as_text_that_is_none_is_refused(text: str) -> None:
    """IN-82. Goal: never a raw exception, nor one that shows all of a long text. Method: numbers that are none, depth,
    and words without end."""
    with pytest.raises(Refused) as refused:
        parse_where(text, SCHEMA)
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(("before", "after"), [("k = ", ""), ("", ""), ('k = "', '"')], ids=["word", "name", "quoted"])
def test_refusal_of_a_long_condition_shows_its_beginning(before: str, after: str) -> None:
    """IN-82. Goal: the error about a long condition is a few lines. Method: words without end, in each place."""
    with pytest.raises(Refused) as refused:
        parse_condition(before + "x" * 9999 + after)
    assert len(str(refused.value)) < 1000
