"""One DataFrame, used by query after query: each query has its own rows, and its own time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import pytest
from pyspark.errors import PythonException

from nyala.pipeline.source import register
from tests.e2e.test_spark_source import write
from tests.harness.road import Lane, Road, row

pytestmark = pytest.mark.e2e
ROWS = {k: row(k, f"v{k}") for k in range(100)}
FILTERS: dict[str, Callable[[int], bool]] = {
    "true": lambda k: True,
    "k = 3": lambda k: k == 3,
    "k < 10 and v <> 'v4'": lambda k: k < 10 and k != 4,
    "k % 2 = 0": lambda k: k % 2 == 0,
    "k >= 50 and v like '%9%'": lambda k: k >= 50 and "9" in str(k),
}
"""Filters that a source could evaluate, that only Spark can, of both kinds, and none; with what they mean."""


def source(lane: Lane, **options: str) -> Any:
    """Return a DataFrame of the lane's table."""
    return (
        lane.road.spark.read.format("nyala").options(masters=lane.road.stack.masters, table=lane.name, **options).load()
    )


def keys(frame: Any) -> list[int]:
    """Return the keys that a query of the frame finds."""
    return sorted(each["k"] for each in frame.select("k").collect())


@pytest.mark.deep
def test_each_query_of_one_dataframe_has_the_rows_of_its_own_filters(road: Road) -> None:
    """Goal: no query of a DataFrame is answered with the filters of another one. Method: one DataFrame, and a view of
    it, in a session with Spark's setting for filter pushdown on and off; each kind of filter after each other one,
    unions and joins of two of them, and a cached one; against the same computed in Python."""
    lane = road.lane("reused")
    write(lane, list(ROWS.values()))
    wanted = {text: [k for k in ROWS if holds(k)] for text, holds in FILTERS.items()}
    pairs = list(permutations(FILTERS, 2))
    register(road.spark)
    for pushdown in ("true", "false"):
        road.spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
        frame = source(lane)
        frame.createOrReplaceTempView("reused")
        for text in [first for pair in pairs for first in pair]:
            assert keys(frame.where(text)) == wanted[text], (pushdown, text)
        for one, other in pairwise(FILTERS):
            both = frame.where(one).union(frame.where(other))
            assert keys(both) == sorted(wanted[one] + wanted[other]), (pushdown, one, other)
            joined = frame.where(one).alias("a").join(frame.where(other).select("k"), "k")
            assert keys(joined) == [k for k in wanted[one] if k in wanted[other]], (pushdown, one, other)
            found = road.spark.sql(
                f"select k from reused where {one} and k not in (select k from reused where {other})"
            )
            assert keys(found) == [k for k in wanted[one] if k not in wanted[other]], (pushdown, one, other)
        cached = frame.where("k < 10").cache()
        assert cached.count() == 10 and frame.count() == 100 and keys(cached.where("k = 3")) == [3]
        cached.unpersist()


@pytest.mark.deep
def test_each_query_of_one_dataframe_is_of_its_own_time(road: Road) -> None:
    """Goal: a query holds what was acknowledged before it began, however often its DataFrame was used before; a stale
    one what the application has seen, and is as old as allowed; both have what the application wrote. Method: one
    DataFrame, one with `staleness`, a view, and one that was read before; another client writes between, and Spark. A
    join of two uses reads both at one time. A frame with at = now stays as it was."""
    lane = road.lane("requeried")
    write(lane, [row(k, "0") for k in range(20)])
    frame, stale, old, fixed = source(lane), source(lane, staleness="3600"), source(lane), source(lane, at="now")
    frame.createOrReplaceTempView("requeried")

    def shown(asked: Any) -> set[str]:
        rows = asked.collect()
        assert len(rows) == 20
        return {each["v"] for each in rows}

    assert shown(frame) == shown(stale) == shown(old) == shown(fixed) == {"0"}
    for turn in ("1", "2", "3"):
        write(lane, [row(k, turn) for k in range(20)])
        assert shown(frame) == {turn}, "a strong read, again"
        assert shown(stale) == {turn}, "what this application has seen"
        assert shown(road.spark.table("requeried")) == shown(old) == {turn}
        joined = frame.alias("a").join(frame.selectExpr("k", "v as w"), "k")
        assert joined.where("v = w").count() == joined.sort("v").count() == 20
    rows = [tuple(row(k, "spark").values()) for k in range(20)]
    written = road.spark.createDataFrame(rows, "k bigint, v string, small tinyint, must int")
    options = {"masters": road.stack.masters, "table": lane.name}
    written.write.format("nyala").options(**options).mode("append").save()
    assert shown(stale) == shown(frame) == {"spark"}
    assert shown(fixed) == {"0"} and {each["v"] for each in fixed.rdd.collect()} == {"0"}
    with pytest.raises(PythonException, match=r"an RDD .*load\(\)"):
        frame.rdd.collect()
