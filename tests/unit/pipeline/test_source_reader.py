"""The parts of a Spark read that run at the tablets: conditions, columns read, tablets called, at one time."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, IsNotNull
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from nyala.pipeline.source import NyalaSource, data_source, reader
from nyala.pipeline.source.reader import Reader, ReadOptions
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import Column, ColumnType, PartitionSpec, Predicate, TableSchema
from nyala.replica.types import Code, Refused, limits

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
        Column(id=3, name="n", type=ColumnType.INT32),
        Column(id=4, name="d", type=ColumnType.DOUBLE),
        Column(id=5, name="f", type=ColumnType.FLOAT),
    ),
    ("k",),
)
TABLETS = tuple(TabletHandle(f"t{n}", n, n, 0) for n in range(4))
TABLE = TableHandle("id", "t", SCHEMA, PartitionSpec(("k",), 4), 3, 0, 0, tablets=TABLETS)
OPTIONS = {"masters": "m:1", "table": "t"}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The process's client as far as a read uses it: it notes each scan, and answers with one row of every column; no
    two snapshot times are equal."""
    row = pa.RecordBatch.from_pylist([{"k": 7, "v": "x", "n": 1, "d": 0.5, "f": 0.5}], SCHEMA.arrow)
    scans: list[tuple[str, Any, int]] = []

    def scan_tablet(handle: TableHandle, tablet: TabletHandle, spec: Any) -> Any:
        scans.append((tablet.tablet_id, spec, spec.slice_pos))
        return SimpleNamespace(batches=[row])

    times = itertools.count(99)
    timed: list[list[int]] = []

    def snapshot_time(handle: TableHandle, staleness_us: int = 0, tablets: Sequence[TabletHandle] = ()) -> int:
        timed.append([tablet.pos for tablet in tablets])
        return next(times) << 12

    made = SimpleNamespace(
        scans=scans, scan_tablet=scan_tablet, snapshot_time=snapshot_time, get_table=lambda _: TABLE, timed=timed
    )
    made.time_seen, made.observe = 0, lambda time: setattr(made, "time_seen", max(made.time_seen, time))
    for module in (reader, data_source):
        monkeypatch.setattr(module, "shared_client", lambda _: made)
    return made


def made_reader(columns: tuple[str, ...] = SCHEMA.names, **options: str) -> Reader:
    return Reader(ReadOptions.of({**OPTIONS, **options}), TABLE, columns)


def test_filters_of_spark_are_left_to_spark(client: SimpleNamespace) -> None:
    """Goal: Spark may plan with filters and answer a later query, without them, from that plan: so no plan holds any.
    Method: the call with which Spark's worker offers filters, and the scans after it, which have `where` alone."""
    asking = made_reader(where="n >= 3")
    given = [EqualTo(("k",), 7), GreaterThan(("n",), 5), IsNotNull(("v",))]
    assert list(asking.pushFilters(given)) == given
    there = pickle.loads(pickle.dumps(asking))
    for part in pickle.loads(pickle.dumps(asking.partitions())):
        list(there.read(part))
    wanted = (Predicate("n", ">=", (3,)),)
    assert [(tablet, spec.predicates) for tablet, spec, _ in client.scans] == [(f"t{n}", wanted) for n in range(4)]


def test_conditions_beyond_what_a_scan_may_have_are_refused_at_the_driver(
    client: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IN-61. Goal: no job has tasks that every tablet refuses. Method: an option `where` with as many values as a scan
    may have, and with one more: that read ends where it is planned, and says what to do."""
    monkeypatch.setattr(limits, "SCAN_VALUES_MAX", 300)
    listed = {count: f"k in ({','.join(map(str, range(count)))})" for count in (300, 301)}
    assert len(made_reader(where=listed[300]).partitions()) == 4
    with pytest.raises(Refused, match=r"at most 300 values .* in Spark, join"):
        made_reader(where=listed[301]).partitions()
    assert not client.scans


def test_condition_on_the_key_leaves_tablets_out(client: SimpleNamespace) -> None:
    """Goal: a read of one key has the partitions of one tablet. Method: a key pinned by the option; with slices."""
    assert len(made_reader().partitions()) == 4
    pinned = {(part.pos, part.spec.slice_pos) for part in made_reader(where="k = 7", slices="3").partitions()}  # type: ignore[attr-defined]
    assert len({pos for pos, _ in pinned}) == 1 and {number for _, number in pinned} == {0, 1, 2}


@pytest.mark.parametrize("more", [{}, {"staleness": "5"}, {"at": "2033-01-01T00:00:00"}])
def test_tablet_that_a_read_does_not_need_is_not_asked_for_the_time(
    more: dict[str, str], client: SimpleNamespace
) -> None:
    """Goal: a tablet without a server delays no read of other tablets. Method: a read of one key, strong, stale and of
    a given time; the tablets that are asked for the time, and those that are read."""
    parts = made_reader(where="k = 7", **more).partitions()
    assert client.timed == [[part.pos for part in parts]] and len(parts) == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("staleness", [{}, {"staleness": "5"}])
def test_all_parts_of_a_read_are_of_one_time(staleness: dict[str, str], client: SimpleNamespace) -> None:
    """Goal: all parts of a Spark read use one snapshot time. Method: a client whose every time is later; tablets in
    slices, the parts as Spark sends them; then the time of each scan. A second read is of a time of its own."""
    asking = made_reader(slices="3", **staleness)
    for _ in range(2):
        for part in pickle.loads(pickle.dumps(asking.partitions())):
            list(asking.read(part))
    assert [spec.snapshot_time for _, spec, _ in client.scans] == [99 << 12] * 12 + [100 << 12] * 12


@pytest.mark.parametrize(
    ("option", "asked", "read"),
    [
        ("", None, ("k", "v", "n", "d", "f")),
        ("v, k", None, ("v", "k")),
        ("", ("n",), ("n",)),
        ("v,n,k", ("k", "v"), ("k", "v")),
    ],
)
def test_only_the_columns_that_were_asked_for_are_read(
    option: str,
    asked: tuple[str, ...] | None,
    read: tuple[str, ...],
    client: SimpleNamespace,
) -> None:
    """Goal: projection runs at the tablets. Method: the option `columns`, a schema as `.schema(...)` gives it, both;
    what each scan was asked for and what comes out, in that order, though a tablet answers with more."""
    made = NyalaSource(options=OPTIONS | ({"columns": option} if option else {}))
    schema = made.schema()
    if asked is not None:
        kinds = {"k": LongType(), "v": StringType(), "n": IntegerType()}
        schema = StructType([StructField(name, kinds[name]) for name in asked])
    found = made.reader(schema)
    batches = [batch for part in found.partitions() for batch in found.read(part)]
    assert [batch.schema.names for batch in batches] == [list(read)] * 4
    assert [(spec.columns, spec.snapshot_time) for _, spec, _ in client.scans] == [(read, 99 << 12)] * 4


def test_schema_that_names_a_column_with_another_type_is_refused(client: SimpleNamespace) -> None:
    """Goal: a Spark schema with another type than the column's is refused. Method: `.schema(...)` with a string for a
    number."""
    with pytest.raises(Refused, match="column n is int, not string") as told:
        NyalaSource(options=OPTIONS).reader(StructType([StructField("n", StringType())]))
    assert told.value.code is Code.INVALID_ARGUMENT
