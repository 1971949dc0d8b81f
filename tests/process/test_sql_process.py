"""SQL and Arrow datasets over real servers."""

from __future__ import annotations

import datetime as dt
import decimal
import json
import math
from collections.abc import Iterator
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.replica.client import ScanSpec
from tests.harness.cluster import LocalCluster, local_cluster, wait_until

pytestmark = pytest.mark.process
COLUMNS = {
    "id": "int64",
    "name": "string",
    "share": "double",
    "on": "bool",
    "day": "date",
    "moment": "timestamp",
    "price": "decimal(9,2)",
    "raw": "binary",
}
ROWS = 600


def some_rows(first: int = 0) -> pa.Table:
    """Rows with nulls, NaN and repeated values in every column but the key."""
    start = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    return pa.table(
        {
            "id": range(first, first + ROWS),
            "name": [None if i % 7 == 0 else f"it's {i % 50}" for i in range(ROWS)],
            "share": [math.nan if i % 11 == 0 else None if i % 13 == 0 else i / 4 for i in range(ROWS)],
            "on": [None if i % 5 == 0 else i % 2 == 0 for i in range(ROWS)],
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=i % 40) for i in range(ROWS)],
            "moment": pa.array([start + dt.timedelta(seconds=i) for i in range(ROWS)], pa.timestamp("us", "UTC")),
            "price": pa.array([decimal.Decimal(i) / 4 for i in range(ROWS)], pa.decimal128(9, 2)),
            "raw": [bytes([i % 3]) * (i % 4) for i in range(ROWS)],
        }
    )


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        made.add_master("--execute-decisions=none")
        for _ in range(3):
            made.add_server()
        yield made


@pytest.fixture(scope="module")
def cluster(servers: LocalCluster) -> Iterator[nyala.Cluster]:
    with nyala.connect(servers.masters[0].address) as made:
        wait_until(lambda: sum(s.alive for s in made.client.list_servers().servers) == 3, "three servers are alive")
        for name in ("things", "other-things"):
            made.create_table(name, COLUMNS, key="id", hash_buckets=3, make_topic=False).insert(some_rows())
        yield made


@pytest.fixture
def read(cluster: nyala.Cluster, monkeypatch: pytest.MonkeyPatch) -> list[ScanSpec]:
    """The scans that the cluster object runs from now on."""
    seen: list[ScanSpec] = []
    scan = cluster.client.scan

    def noted(handle: Any, spec: ScanSpec) -> Any:
        seen.append(spec)
        return scan(handle, spec)

    monkeypatch.setattr(cluster.client, "scan", noted)
    return seen


QUERIES = [
    "select * from things order by id",
    "select count(*), count(name), sum(price) from things",
    "select name, count(*) n, max(moment) from things group by name order by n, name nulls first",
    "select id from things where id in (3, 5, 900) or name = 'it''s 9' order by id",
    "select id from things where \"on\" and not (id < 100) and day between '2020-01-05' and '2020-01-09' order by id",
    "select id from things where share > 100 and share <> 120 order by id",
    "select id from things where share >= 'nan'::double order by id",
    "select id from things where name is null and price >= 10.25 order by id",
    "select id from things where name like 'it''s 1%' and moment < '2020-01-01 00:02:00+00' order by id limit 5",
    "select id from things where raw = '\\x01'::blob order by id",
    'select a.id, b.name from things a join "other-things" b on a.id = b.id + 1 where a.id < 9 order by a.id',
    "with few as (select * from things where id < 30) select f.id, g.id other from few f join few g "
    "using (name) order by all",
    "select id, row_number() over (partition by day order by id) from things order by id",
    "select 1 one",
    "select id from things where false",
]


@pytest.mark.parametrize("query", QUERIES)
def test_queries_give_what_duckdb_gives_over_the_same_rows_in_memory(query: str, cluster: nyala.Cluster) -> None:
    """Goal: a query over tables means what it means in SQL, wherever its parts are evaluated. Method: DuckDB over Arrow
    tables of the same rows."""
    with duckdb.connect() as alone:
        alone.execute("SET TimeZone = 'UTC'")
        rows = some_rows()
        alone.register("things", rows)
        alone.register("other-things", rows)
        wanted = alone.sql(query).to_arrow_table()
    found = cluster.sql(query).to_arrow()
    assert found.schema.names == wanted.schema.names
    assert [repr(row) for row in found.to_pylist()] == [repr(row) for row in wanted.to_pylist()]


def test_tablets_get_columns_and_conditions_and_send_no_more(cluster: nyala.Cluster, read: list[ScanSpec]) -> None:
    """Goal: a query costs what it asks for. Method: the scans behind two queries."""
    cluster.sql("select name from things where id >= 590 and name is not null").to_arrow()
    cluster.sql("select id from things where id = 3 or name = 'it''s 9'").to_arrow()
    pushed, kept = read
    assert pushed.columns == ("name",)
    assert {(p.column, p.op, tuple(p.values)) for p in pushed.predicates} == {
        ("id", ">=", (590,)),
        ("name", "is_not_null", ()),
    }
    assert set(kept.columns or ()) == {"id", "name"} and kept.predicates == ()


def test_all_tables_of_a_query_are_of_one_time_that_holds_what_was_written(
    cluster: nyala.Cluster, read: list[ScanSpec]
) -> None:
    """Goal: a join never sees two times, and sees what was acknowledged. Method: a row that is written to two tables,
    and a join of them; the same query as of the time before."""
    old = cluster.sql("select count(*) n from things")
    before = old.to_arrow()["n"][0].as_py()
    del read[:]
    new = {"id": 10_000 + before, "name": "new"}
    for name in ("things", "other-things"):
        cluster.table(name).insert(new)
    joined = 'select count(*) n from things join "other-things" using (id)'
    query = cluster.sql(joined)
    assert query.to_arrow()["n"][0].as_py() == before + 1
    assert {spec.snapshot_time for spec in read} == {query.snapshot_time} and len(read) == 2
    assert cluster.sql(joined, at=old.snapshot_time).to_arrow()["n"][0].as_py() == before
    for name in ("things", "other-things"):
        cluster.table(name).delete(new)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("select * from thing", "there is no table 'thing'; did you mean 'things'?"),
        ("select nam from things", "DuckDB cannot run the query; correct it"),
        ("selec 1", "the query is no SQL that DuckDB knows"),
        ("select 1; select 2", "sql() takes one query; give one SELECT (queries=2"),
        ("", "sql() takes one query; give one SELECT (queries=0"),
        ("delete from things", "sql() takes a query that only reads"),
        ("create table x as select 1", "sql() takes a query that only reads"),
        ("select * from cluster", "there is no table 'cluster'"),
        ("select cast(name as int) from things", "Conversion Error"),
        ("select * from '/no/such/file.csv'", "No files found"),
        (3, "a query"),
    ],
)
def test_queries_that_cannot_be_answered_are_refused_in_one_line(query: Any, says: str, cluster: nyala.Cluster) -> None:
    """Goal: an error says what is wrong. Method: mistakes in names, in SQL and in what may be done."""
    with pytest.raises(nyala.NotApplied) as refused:
        cluster.sql(query).to_arrow()
    assert says in str(refused.value) and "\n" not in str(refused.value)


def test_parameters_are_values_and_never_sql(cluster: nyala.Cluster) -> None:
    """Goal: values come as parameters. Method: by position, by name, as text that looks like SQL, and of no such
    type."""
    assert cluster.sql("select id from things where id = ?", [7]).to_arrow()["id"].to_pylist() == [7]
    assert cluster.sql("select id from things where id = $k", {"k": 7}).to_arrow()["id"].to_pylist() == [7]
    assert cluster.sql("select id from things where name = ?", ["' or true --"]).to_arrow().num_rows == 0
    with pytest.raises(nyala.NotApplied, match="parameters= takes a list"):
        cluster.sql("select ?", "x")  # type: ignore[arg-type]


def test_error_of_a_tablet_reaches_the_caller_as_it_is(cluster: nyala.Cluster) -> None:
    """Goal: an error of a read is told as by a scan, not as DuckDB passes it on. Method: a time whose
    history is gone."""
    with pytest.raises(nyala.NotApplied) as refused:
        cluster.sql("select * from things", at=dt.datetime(2001, 1, 1, tzinfo=dt.UTC)).to_arrow()
    assert refused.value.code is nyala.Code.HISTORY_GONE


def test_dataset_is_read_by_pyarrow_polars_and_duckdb(cluster: nyala.Cluster, read: list[ScanSpec]) -> None:
    """Goal: a table is a dataset for who reads such. Method: each of its calls beside an Arrow table of the same rows;
    polars; a union, which would read past the calls."""
    table, rows = cluster.table("things").to_arrow_dataset(), some_rows()
    either = (pc.field("id") < 5) | (pc.field("name") == "it's 9")
    assert table.schema.names == rows.schema.names
    assert table.to_table().num_rows == table.count_rows() == ROWS
    assert table.count_rows(filter=pc.field("id") < 5) == 5
    assert table.count_rows(filter=either) == rows.filter(either).num_rows
    assert sorted(table.to_table(["name"], either)["name"].to_pylist(), key=str) == sorted(
        rows.filter(either)["name"].to_pylist(), key=str
    )
    assert table.head(3).num_rows == 3 and table.take([0, 2]).num_rows == 2 and table.to_table([]).num_rows == ROWS
    assert [b.num_columns for b in table.to_batches(["id"], pc.field("id") == 3)] == [1]
    del read[:]
    assert pl.scan_pyarrow_dataset(table).filter(pl.col("id") < 3).select("name").collect().height == 3
    assert [(p.column, p.op) for p in read[0].predicates] == [("id", "<")]
    with pytest.raises(nyala.NotApplied, match="there is no column 'nam'"):
        table.to_table(["nam"])
    for past in (lambda: ds.dataset([table]).to_table(), table.get_fragments, lambda: table.files, table.__reduce__):
        with pytest.raises((NotImplementedError, FileNotFoundError), match="a dataset of Nyala"):
            past()


def test_command_prints_a_table_csv_or_json(cluster: nyala.Cluster, servers: LocalCluster) -> None:
    """Goal: a question is asked in a terminal. Method: each form, the limit, and a mistake."""
    masters = f"--masters={servers.masters[0].address}"

    def run(*words: str) -> Any:
        return CliRunner().invoke(app, ["sql", *words, masters])

    query = "select id, name from things where id < 25 order by id"
    assert json.loads(run(query, "--json").stdout)[1] == {"id": 1, "name": "it's 1"}
    assert run(query, "--csv").stdout.splitlines()[:3] == ["id,name", "0,", "1,it's 1"]
    assert "20 rows" in run(query).stdout and "--limit 0 shows all" in run(query).stdout
    assert "25 rows" in run(query, "--limit", "0").stdout
    assert run("select id from things where false", "--csv").stdout == "id\n"
    assert json.loads(run("select id, id from things where id = 1", "--json").stdout) == [{"id": 1, "id_1": 1}]
    assert "no SQL that DuckDB knows" in str(run("selec").exception)
