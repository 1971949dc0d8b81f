"""Tables as a Spark data source: Spark reads what the client scans, and batch writes upsert."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from nyala.pipeline.source import read, register
from nyala.replica.client import ScanSpec, wire_batches
from nyala.replica.rows import KEY_TYPES, Column, ColumnType, PartitionSpec, RowOp, TableSchema
from nyala.replica.types import us_of_hybrid
from tests.harness.every_type import KINDS, ROW_COUNTS, values
from tests.harness.road import Lane, Road, row

pytestmark = pytest.mark.e2e
T = ColumnType
LIMITS: dict[ColumnType, list[Any]] = {
    T.BOOL: [True, False],
    T.INT8: [-(1 << 7), (1 << 7) - 1, 0],
    T.INT16: [-(1 << 15), (1 << 15) - 1, 0],
    T.INT32: [-(1 << 31), (1 << 31) - 1, 0],
    T.INT64: [-(1 << 63), (1 << 63) - 1, 0],
    T.FLOAT: [math.nan, math.inf, -math.inf, -0.0, (2 - 2**-23) * 2.0**127, 2.0**-149],
    T.DOUBLE: [math.nan, math.inf, -math.inf, -0.0, sys.float_info.max, 5e-324],
    T.DECIMAL: [Decimal("9" * 30 + "." + "9" * 8), Decimal("-" + "9" * 30 + "." + "9" * 8), Decimal("0.00000001")],
    T.STRING: ["", "nul \0, z\u00fcrich, \U0001f992", "x" * 70_000],
    T.BINARY: [b"", bytes(range(256)), b"\0" * 70_000],
    T.DATE: [dt.date.min, dt.date.max, dt.date(1582, 10, 10), dt.date(1969, 12, 31)],
    T.TIMESTAMP: [
        at.replace(tzinfo=dt.UTC)
        for at in (dt.datetime.min, dt.datetime.max, dt.datetime(1969, 12, 31, 23, 59, 59, 999_999))
    ],
}
"""For each type the values at its ends, and those most likely to be changed, such as a day that a calendar left out."""
OF_ALL_TYPES = TableSchema(
    1,
    (
        Column(id=1, name="k", type=T.INT64, nullable=False),
        *(
            Column(id=n, name=f"c_{kind}", type=kind, **({"precision": 38, "scale": 8} if kind is T.DECIMAL else {}))
            for n, kind in enumerate(LIMITS, 2)
        ),
    ),
    ("k",),
)


def rows_of_all_types() -> list[dict[str, Any]]:
    """Return each value of LIMITS once at least, at keys from one end to the other; then nothing but nulls."""
    count = max(map(len, LIMITS.values()))
    keys = [-(1 << 63), (1 << 63) - 1, *range(count - 2)]
    rows = [{"k": k} | {f"c_{kind}": some[n % len(some)] for kind, some in LIMITS.items()} for n, k in enumerate(keys)]
    return [*rows, {"k": -1} | dict.fromkeys(OF_ALL_TYPES.names[1:])]


def told(rows: list[dict[str, Any]]) -> dict[int, str]:
    """Return the rows by key, in a form in which NaN equals itself, and 0.0 and False do not equal -0.0 and 0."""
    at_utc = lambda v: v.astimezone(dt.UTC) if isinstance(v, dt.datetime) else v  # noqa: E731
    found = {each["k"]: repr({name: at_utc(value) for name, value in each.items()}) for each in rows}
    assert len(found) == len(rows)
    return found


class Scan(NamedTuple):
    """The request that Spark made to the source, and the result, for a frame that was collected."""

    partitions: int
    rows: int


def scan_of(frame: Any) -> Scan:
    """Return the frame's only scan, by the plan that was carried out."""
    leaf = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return Scan(frame.rdd.getNumPartitions(), leaf.metrics().apply("numOutputRows").value())


def write(lane: Lane, rows: list[dict[str, Any]], op: RowOp = RowOp.UPSERT) -> int:
    """Write without Kafka; returns the hybrid time of the last batch."""
    writer = lane.road.client.session_writer(lane.handle)
    for batch in wire_batches(lane.handle, pa.Table.from_pylist(rows), op):
        writer.send(batch)
    writer.flush()
    assert writer.row_errors == []
    return writer.last_time


def dicts(frame: Any) -> dict[int, dict[str, Any]]:
    """Return the rows by key; fails on a doubled one."""
    rows = [each.asDict() for each in frame.collect()]
    found = {each["k"]: each for each in rows}
    assert len(found) == len(rows)
    return found


def test_spark_source_reads_what_the_client_scans(road: Road) -> None:
    """Goal: columns, conditions, slices and a past time mean the same in Spark, and the condition of the option `where`
    runs at the tablets. Method: compare with scans; how many rows and partitions come out of the source."""
    lane = road.lane("readable")
    masters = road.stack.masters
    then = write(lane, [row(k) for k in range(500)])
    write(lane, [row(k, "later") for k in range(0, 500, 7)])
    bare = road.spark.read.format("nyala").option("masters", masters).option("table", "readable")
    assert dicts(bare.load()) == lane.rows()
    some = read(road.spark, "readable", masters=masters, columns=["k", "v"], where="k >= 100 and v = 'later'", slices=3)
    assert some.columns == ["k", "v"]
    assert dicts(some) == {k: {"k": k, "v": "later"} for k in range(100, 500) if k % 7 == 0}
    whole = read(road.spark, "readable", masters=masters)
    assert dicts(whole) == lane.rows() and scan_of(whole) == Scan(2, 500)
    some = read(road.spark, "readable", masters=masters, where="small in (5, 7) and k < 200")
    left = {k: r for k, r in lane.rows().items() if r["small"] in (5, 7) and k < 200}
    filtered = some.filter("v like '%l%'")
    assert dicts(filtered) == {k: r for k, r in left.items() if "l" in r["v"]} != left
    assert scan_of(filtered) == Scan(2, len(left)), "the tablets left the others out"
    one = read(road.spark, "readable", masters=masters, where="k = 7")
    assert dicts(one) == {7: row(7, "later")}
    assert scan_of(one) == Scan(1, 1), "the other tablet was not asked"
    past = read(road.spark, "readable", masters=masters, at=str(us_of_hybrid(then) + 1), slices=2)
    assert dicts(past) == {k: row(k) for k in range(500)}


def test_values_of_every_type_are_the_same_from_kafka_to_spark_and_back(road: Road) -> None:
    """Goal: no value is bent on the road: Kafka, ingest, tablet, and Spark's reading and writing.

    Method: a table of all types, rows with each type's limits, and one of nothing but nulls. What the client scans and
    what Spark reads are what was published; Spark writes what it read into another table, which is then the same.
    """
    assert set(LIMITS) == set(ColumnType)
    lane = road.lane("typed", schema=OF_ALL_TYPES)
    published = rows_of_all_types()
    lane.publish(published)
    lane.run()
    assert told(list(lane.rows().values())) == told(published) and lane.letters() == []
    frame = read(road.spark, "typed", masters=road.stack.masters)
    assert told(frame.toArrow().cast(OF_ALL_TYPES.arrow).to_pylist()) == told(published)
    again = road.client.create_table("typed-again", OF_ALL_TYPES, PartitionSpec(("k",), 2), replication_factor=1)
    options = {"masters": road.stack.masters, "table": again.name}
    frame.write.format("nyala").options(**options).mode("append").save()
    copied = [each for part in road.client.scan(again, ScanSpec()) for b in part.batches for each in b.to_pylist()]
    assert told(copied) == told(published)


def keyed_by(*kinds: ColumnType) -> TableSchema:
    """Return a schema with a key of `k`, of the first type, and of a column of each other type; and a value of every
    type."""
    digits = lambda kind: {"precision": 12, "scale": 2} if kind is T.DECIMAL else {}  # noqa: E731
    names = ["k", *(f"k_{kind}" for kind in kinds[1:])]
    key = [
        Column(id=n, name=name, type=kind, nullable=False, **digits(kind))
        for n, (name, kind) in enumerate(zip(names, kinds, strict=True), 100)
    ]
    return TableSchema(1, (*key, *OF_ALL_TYPES.columns[1:]), tuple(names))


@pytest.mark.deep
def test_one_row_of_every_type_in_the_key_is_the_same_from_kafka_to_spark_and_back(road: Road) -> None:
    """IN-02. Goal: a table whose key is a decimal, or holds every type that a key may hold, gets one row from Kafka as
    it gets many, and gives it to Spark, and takes it from Spark, unchanged; each replica has it.

    Method: two tables of two tablets and three replicas. One row is published and read, by the client and by Spark;
    then two more, at the ends of the key's types. Spark writes what it read into another table. The checksums of the
    three replicas of each tablet are one.
    """
    cents = [Decimal("-9999999999.99"), Decimal("9999999999.99"), Decimal("0.01")]
    others = sorted(KEY_TYPES - {T.DECIMAL})
    cases = {"by-decimal": keyed_by(T.DECIMAL), "by-everything": keyed_by(T.DECIMAL, *others)}
    for name, schema in cases.items():
        rows = [
            {"k": cents[at]}
            | {f"k_{kind}": LIMITS[kind][at % len(LIMITS[kind])] for kind in others if f"k_{kind}" in schema.key}
            | {f"c_{kind}": some[at % len(some)] for kind, some in LIMITS.items()}
            for at in range(3)
        ]
        for each in rows:  # a key has 16 KiB at most
            each |= {column: each[column][:1000] for column in ("k_string", "k_binary") if column in each}
        lane = road.lane(name, schema=schema, rf=3)
        for published in (rows[:1], rows):
            lane.publish(published[-2:])
            lane.run()
            assert lane.letters() == []
            assert told(list(lane.rows().values())) == told(published)
            frame = read(road.spark, name, masters=road.stack.masters)
            assert told(frame.toArrow().cast(schema.arrow).to_pylist()) == told(published)
        spec = PartitionSpec(schema.key, 2)
        again = road.client.create_table(f"{name}-again", schema, spec, replication_factor=3)
        options = {"masters": road.stack.masters, "table": again.name}
        frame.write.format("nyala").options(**options).mode("append").save()
        copied = [each for part in road.client.scan(again, ScanSpec()) for b in part.batches for each in b.to_pylist()]
        assert told(copied) == told(rows)
        for handle in (lane.handle, again):
            at = road.client.snapshot_time(handle)
            servers = road.client.list_servers().servers
            for tablet in handle.tablets:
                assert len({road.client.checksum(server, tablet.tablet_id, at) for server in servers}) == 1


@pytest.mark.deep
@pytest.mark.parametrize("count", ROW_COUNTS[-2:])
def test_chunk_of_rows_and_one_row_more_are_the_same_from_kafka_to_spark_and_back(road: Road, count: int) -> None:
    """IN-01, IN-02. Goal: a whole chunk, and a last chunk of one row, are on the whole road what one row is there, for
    values of every type, with nulls and without.

    Method: 16,384 and 16,385 rows of every type, twice, once with nulls, are published and ingested into one tablet of
    three replicas; read by the client and by Spark; Spark writes what it read into another table. The checksums of the
    three replicas of each tablet are one.
    """
    full = [kind.column(at, f"f_{kind.name}", nullable=False) for at, kind in enumerate(KINDS, 2)]
    some = [kind.column(at, f"s_{kind.name}", nullable=True) for at, kind in enumerate(KINDS, 2 + len(full))]
    schema = TableSchema(1, (OF_ALL_TYPES.columns[0], *full, *some), ("k",))
    columns = [
        pa.array(range(count)),
        *(values(kind, count) for kind in KINDS),
        *(values(kind, count, nulls=True) for kind in KINDS),
    ]
    published = pa.Table.from_arrays(columns, schema=schema.arrow)
    wanted = told(published.to_pylist())
    lane = road.lane(f"chunk-{count}", schema=schema, tablets=1, rf=3)
    lane.publish(published.to_pylist())
    lane.run()
    assert lane.letters() == []
    assert told(list(lane.rows().values())) == wanted
    frame = read(road.spark, lane.name, masters=road.stack.masters)
    assert told(frame.toArrow().cast(schema.arrow).to_pylist()) == wanted
    again = road.client.create_table(f"{lane.name}-again", schema, PartitionSpec(("k",), 1), replication_factor=3)
    options = {"masters": road.stack.masters, "table": again.name}
    frame.write.format("nyala").options(**options).mode("append").save()
    for handle in (lane.handle, again):
        found = [each for part in road.client.scan(handle, ScanSpec()) for b in part.batches for each in b.to_pylist()]
        assert told(found) == wanted
        at = road.client.snapshot_time(handle)
        servers = road.client.list_servers().servers
        for tablet in handle.tablets:
            assert len({road.client.checksum(server, tablet.tablet_id, at) for server in servers}) == 1


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


def test_stale_reads_of_one_spark_application_never_go_back(road: Road) -> None:
    """IN-10. Goal: the memory of a Spark application survives the processes that plan and commit for it. Method: a
    DataFrame is written, and what another client writes is read strongly; each time a read that may be an hour old,
    planned by whatever process Spark takes, shows it, over two tablets."""
    lane = road.lane("aging")
    source = {"masters": road.stack.masters, "table": "aging"}
    stale = road.spark.read.format("nyala").options(**source, staleness="3600")
    rows = [tuple(row(k, "spark").values()) for k in range(20)]
    frame = road.spark.createDataFrame(rows, "k bigint, v string, small tinyint, must int")
    frame.write.format("nyala").options(**source).mode("append").save()
    assert {each["v"] for each in stale.load().collect()} == {"spark"} and stale.load().count() == 20
    for turn in ("one", "two"):
        write(lane, [row(k, turn) for k in range(20)])
        strong = road.spark.read.format("nyala").options(**source).load()
        assert {each["v"] for each in strong.collect()} == {turn}
        assert {each["v"] for each in stale.load().collect()} == {turn}


@pytest.mark.deep
def test_spark_write_task_that_dies_after_its_first_batch_is_repeated_and_the_table_is_right(road: Road) -> None:
    """Goal: at least once over attempts: each is a client of its own, so nothing that the repeated one writes is taken
    for what the dead one wrote. Method: the workers of both tasks die after a batch that a tablet has acknowledged, and
    Spark repeats them; every row is of the second attempt, but one that only the first made, and that is there too."""
    lane = road.lane("repeated", tablets=1)
    write(lane, [row(k) for k in range(6000)])

    def of_attempt(batches: Iterator[Any]) -> Iterator[Any]:
        """Keys, the attempt's own before them, with the number of the attempt that makes them."""
        from pyspark import TaskContext

        attempt = TaskContext.get().attemptNumber()  # type: ignore[union-attr]
        own = [1_000_000 + attempt]
        for batch in batches:
            keys = own + batch["id"].to_pylist()
            own = []
            yield pa.RecordBatch.from_pydict({"k": keys, "attempt": [attempt] * len(keys)})

    frame = road.spark.range(0, 5000, 1, 2).mapInArrow(of_attempt, "k bigint, attempt bigint")
    frame = frame.selectExpr(
        "k", "concat('attempt ', attempt) as v", "cast(k % 100 as tinyint) as small", "cast(k as int) as must"
    )
    records = road.spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
    road.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "250")
    try:
        with road.workers_die_at("pipeline.after_first_batch"):
            register(road.spark)  # What is registered keeps the environment that its workers get.
            options = {"masters": road.stack.masters, "table": "repeated"}
            frame.write.format("nyala").options(**options).mode("append").save()
    finally:
        road.spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", records)
        register(road.spark)
    left = {k: row(k, "attempt 1" if k < 5000 else "") for k in range(6000)}
    own = {1_000_000 + attempt: row(1_000_000 + attempt, f"attempt {attempt}") for attempt in (0, 1)}
    assert lane.rows() == left | own
