"""The parts of a Spark read that run at the tablets: conditions, columns read, tablets called, at one time."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path
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
from tests.harness.agreed_times import AgreedTimes
from tests.harness.spark_tasks import in_query

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
def client(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SimpleNamespace]:
    """The process's client as far as a read uses it: it notes each scan, and answers with one row of every column; no
    two snapshot times are equal. The process is a task of a query."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    row = pa.RecordBatch.from_pylist([{"k": 7, "v": "x", "n": 1, "d": 0.5, "f": 0.5}], SCHEMA.arrow)
    scans: list[tuple[str, Any, int]] = []

    def scan_tablet(handle: TableHandle, tablet: TabletHandle, spec: Any) -> Any:
        scans.append((tablet.tablet_id, spec, spec.slice_pos))
        return SimpleNamespace(batches=[row])

    times = itertools.count(99)
    timed: list[list[int]] = []
    staleness: list[int] = []

    def snapshot_time(handle: TableHandle, staleness_us: int = 0, tablets: Sequence[TabletHandle] = ()) -> int:
        timed.append([tablet.pos for tablet in tablets])
        staleness.append(staleness_us)
        return next(times) << 12

    made = SimpleNamespace(
        scans=scans, scan_tablet=scan_tablet, snapshot_time=snapshot_time, get_table=lambda _: TABLE, timed=timed
    )
    agreed, made.staleness = AgreedTimes(), staleness
    made.agree_read_time, made.catalog_position = agreed.agree_read_time, agreed.catalog_position
    made.time_seen, made.observe = 0, lambda time: setattr(made, "time_seen", max(made.time_seen, time))
    for module in (reader, data_source):
        monkeypatch.setattr(module, "shared_client", lambda *_: made)
    with in_query(1):
        yield made


def made_reader(columns: tuple[str, ...] = SCHEMA.names, **options: str) -> Reader:
    return Reader(ReadOptions.of({**OPTIONS, **options}), TABLE, columns)


def test_filters_of_spark_are_left_to_spark(client: SimpleNamespace) -> None:
    """Goal: Spark may plan with filters and answer a later query, without them, from that plan: so no plan holds any.
    Method: the call with which Spark's worker offers filters, and the scans after it, which have `where` alone."""
    made = NyalaSource(options=OPTIONS | {"where": "n >= 3"})
    asking = made.reader(made.schema())
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


@pytest.mark.parametrize("more", [{}, {"staleness": "5"}, {"at": "2033-01-01T00:00:00"}, {"at": "now"}])
def test_tablet_that_a_read_does_not_need_is_not_asked_for_the_time(
    more: dict[str, str], client: SimpleNamespace
) -> None:
    """Goal: a tablet without a server delays no read of other tablets. Method: a read of one key, strong, stale, of a
    given time and of the first use; the tablets that are asked for the time, and those that are read."""
    asking = made_reader(where="k = 7", **more)
    (part,) = asking.partitions()
    list(asking.read(part))
    assert client.timed == [[part.pos]]  # type: ignore[attr-defined]


@pytest.mark.parametrize("staleness", [{}, {"staleness": "5"}])
def test_all_tasks_of_a_query_read_at_one_time_and_those_of_the_next_at_a_later_one(
    staleness: dict[str, str], client: SimpleNamespace
) -> None:
    """Goal: all parts of a Spark query use one snapshot time, also when a stage is repeated, and each query has its
    own, though Spark plans once. Method: a client whose every time is later; tablets in slices, the parts as Spark
    sends them, read twice in a query, once in the next, and again in the first; then the time of each scan."""
    asking = made_reader(slices="3", **staleness)
    parts = pickle.loads(pickle.dumps(asking.partitions()))
    for query in (1, 1, 2, 1):
        with in_query(query):
            for part in parts:
                list(asking.read(part))
    times = [spec.snapshot_time >> 12 for _, spec, _ in client.scans]
    assert times == [99] * 24 + [100] * 12 + [99] * 12


def test_two_dataframes_of_one_query_have_times_of_their_own(client: SimpleNamespace) -> None:
    """Goal: the time of a read is of the tablets that it reads. Method: a join of two, each planned; their scans."""
    for asking in (made_reader(), made_reader(where="k = 7")):
        for part in asking.partitions():
            list(asking.read(part))
    assert [spec.snapshot_time >> 12 for _, spec, _ in client.scans] == [99] * 4 + [100]


def test_dataframe_of_its_first_use_has_one_time_for_all_queries(client: SimpleNamespace) -> None:
    """Goal: with at = now there is one snapshot for many queries, for an RDD, and on many hosts; if the table's history
    no longer reaches back, the error names the remedy. Method: two queries and a task without one."""
    asking = made_reader(at="now")
    parts = asking.partitions()
    for query in (1, 2, None):
        with in_query(query):
            for part in parts:
                list(asking.read(part))
    assert {spec.snapshot_time >> 12 for _, spec, _ in client.scans} == {99} and len(client.scans) == 12

    def gone(*_: Any) -> Any:
        raise Refused(Code.HISTORY_GONE, "too old")

    client.scan_tablet = gone
    with pytest.raises(Refused) as told:
        list(asking.read(parts[0]))
    assert "load() it again" in told.value.__notes__[0]


def test_tasks_of_an_rdd_read_nothing(client: SimpleNamespace) -> None:
    """Goal: no query is silently of two times, or of an old one. Method: a task of an RDD, which has no query. The
    error says what to do."""
    asking = made_reader()
    part = asking.partitions()[0]
    with in_query(None), pytest.raises(Refused, match=r"RDD .*at = \"now\"") as told:
        list(asking.read(part))
    assert told.value.code is Code.INVALID_ARGUMENT and "load() the DataFrame" in str(told.value)
    assert not client.scans and not client.timed


@pytest.mark.parametrize("more", [{}, {"staleness": "5"}])
def test_tasks_on_another_host_read_at_the_time_of_the_query(
    more: dict[str, str], client: SimpleNamespace, tmp_path: Path
) -> None:
    """IN-10. Goal: tasks without the driver's folder, which are on other hosts, read at the time of the query. They
    cannot know what the application has read, so they choose no stale time. Method: the first part is read on the
    driver's host and the others elsewhere; the next query begins elsewhere. The time of each scan, and the staleness
    of each choice."""
    asking = made_reader(**more)
    parts = pickle.loads(pickle.dumps(asking.partitions()))
    list(asking.read(parts[0]))
    away = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-elsewhere"))
    for part in parts[1:]:
        list(asking.read(part))
    with in_query(2):
        list(asking.read(parts[0]))
    away.rename(tmp_path)
    with in_query(2):
        list(asking.read(parts[1]))
    assert [spec.snapshot_time >> 12 for _, spec, _ in client.scans] == [99] * 4 + [100] * 2
    assert client.staleness == [5_000_000 if more else 0, 0]
    assert {spec.staleness_us for _, spec, _ in client.scans} == {5_000_000 if more else 0}


@pytest.mark.parametrize("more", [{"at": "2033-01-01T00:00:00"}, {"at": "now"}])
def test_read_with_a_time_asks_the_masters_for_none(more: dict[str, str], client: SimpleNamespace) -> None:
    """Goal: a read of a given time needs no masters that keep times of queries. Method: masters without that call."""
    del client.agree_read_time, client.catalog_position
    asking = made_reader(**more)
    assert len([batch for part in asking.partitions() for batch in asking.read(part)]) == 4


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
