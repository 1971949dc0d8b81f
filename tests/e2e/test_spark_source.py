"""Tables as a Spark data source: what Spark reads is what the client scans; batch writes upsert."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from nyala.pipeline.source import read, register
from nyala.replica.base import us_of_hybrid
from nyala.replica.client import wire_batches
from nyala.replica.rows import RowOp
from tests.harness.road import Lane, Road, row

pytestmark = pytest.mark.e2e


def write(lane: Lane, rows: list[dict[str, Any]], op: RowOp = RowOp.UPSERT) -> int:
    """Write past Kafka; the hybrid time of the last batch."""
    writer = lane.road.client.session_writer(lane.handle)
    for batch in wire_batches(lane.handle, pa.Table.from_pylist(rows), op):
        writer.send(batch)
    writer.flush()
    assert writer.row_errors == []
    return writer.last_time


def dicts(frame: Any) -> dict[int, dict[str, Any]]:
    """Rows by key; fails on a doubled one."""
    rows = [each.asDict() for each in frame.collect()]
    found = {each["k"]: each for each in rows}
    assert len(found) == len(rows)
    return found


def test_spark_source_reads_what_the_client_scans(road: Road) -> None:
    """Goal: columns, conditions, slices and a past time mean the same in Spark. Method: compare with scans."""
    lane = road.lane("readable")
    masters = road.stack.masters
    then = write(lane, [row(k) for k in range(500)])
    write(lane, [row(k, "later") for k in range(0, 500, 7)])
    bare = road.spark.read.format("nyala").option("masters", masters).option("table", "readable")
    assert dicts(bare.load()) == lane.rows()
    some = read(road.spark, "readable", masters=masters, columns=["k", "v"], where="k >= 100 and v = 'later'", slices=3)
    assert some.columns == ["k", "v"]
    assert dicts(some) == {k: {"k": k, "v": "later"} for k in range(100, 500) if k % 7 == 0}
    pushed = dicts(read(road.spark, "readable", masters=masters).filter("small in (3, 4) and k < 200"))
    assert pushed == {k: r for k, r in lane.rows().items() if r["small"] in (3, 4) and k < 200}
    past = read(road.spark, "readable", masters=masters, at=str(us_of_hybrid(then) + 1), slices=2)
    assert dicts(past) == {k: row(k) for k in range(500)}


def test_spark_source_batch_write_upserts(road: Road) -> None:
    """Goal: a DataFrame becomes rows, upserted. Method: write twice over each other, with and without registration."""
    lane = road.lane("writable")
    write(lane, [row(k) for k in range(100)])
    schema = "k bigint, v string, small tinyint, must int"
    frame = road.spark.createDataFrame([tuple(row(k, "spark").values()) for k in range(50, 150)], schema)
    options = {"masters": road.stack.masters, "table": "writable"}
    frame.write.format("nyala").options(**options).mode("append").save()
    assert lane.rows() == {k: row(k, "spark" if k >= 50 else "") for k in range(150)}
    register(road.spark)
    frame.filter("k < 60").selectExpr("k", "'again' as v", "small", "must").write.format("nyala").options(
        **options
    ).mode("append").save()
    assert {k for k, r in lane.rows().items() if r["v"] == "again"} == set(range(50, 60))
