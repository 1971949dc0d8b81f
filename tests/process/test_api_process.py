"""A user's work with `import nyala`, against real servers."""

from __future__ import annotations

import datetime as dt
import io
import json
import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import nyala
from nyala.infra.cli.app import app
from nyala.pipeline.source.reader import Reader, ReadOptions
from nyala.replica.rows import ColumnType, PartitionSpec
from tests.harness.cluster import LocalCluster, local_cluster, wait_until
from tests.harness.every_type import KINDS, values
from tests.harness.register_load import SCHEMA, RegisterLoad
from tests.harness.spark_tasks import in_query
from tests.unit.infra.test_command_imports import LOOK, run
from tests.unit.infra.test_completion import offered

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def servers() -> Iterator[LocalCluster]:
    with local_cluster() as made:
        made.add_master("--execute-decisions=none")
        for _ in range(3):
            made.add_server()
        yield made


@pytest.fixture
def cluster(servers: LocalCluster) -> Iterator[nyala.Cluster]:
    with nyala.connect(servers.masters[0].address) as made:
        alive = lambda: sum(s.alive for s in made.client.list_servers().servers) == 3  # noqa: E731
        wait_until(alive, "three servers are alive")
        for name in made.tables():
            made.drop_table(name)
        yield made


MOMENT = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
FLIGHTS = {"time": "timestamp", "carrier": "string", "flight": "int32", "delay": "double", "fare": "decimal(9,2)"}


def test_table_life_from_creation_to_drop(cluster: nyala.Cluster) -> None:
    """Goal: the whole of a table's life works by its public names. Method: create, list, open, drop; twice where
    allowed."""
    made = cluster.create_table("flights", FLIGHTS, key=["time", "carrier", "flight"], hash_buckets=3)
    assert cluster.tables() == ["flights"]
    opened = cluster.table("flights")
    assert opened.schema == made.schema and opened.key == ("time", "carrier", "flight")
    assert len(opened.handle.tablets) == 3 and opened.handle.source.topic == "writes.flights"
    with pytest.raises(nyala.NotApplied, match="exists") as caught:
        cluster.create_table("flights", FLIGHTS, key="flight")
    assert caught.value.code is nyala.Code.ALREADY_EXISTS
    assert cluster.create_table("flights", FLIGHTS, key="flight", if_not_exists=True).key == opened.key
    with pytest.raises(nyala.NotApplied, match=r"no table 'flihgts'; did you mean 'flights'"):
        cluster.table("flihgts")
    with pytest.raises(nyala.NotApplied, match="no table 'other'"):
        cluster.drop_table("other")
    assert cluster.drop_table("flights") and not cluster.drop_table("flights", if_exists=True)
    assert cluster.tables() == []


def test_writes_of_each_kind_and_what_they_leave(cluster: nyala.Cluster) -> None:
    """Goal: each operation does what its name states, row by row. Method: all operations on five keys, then the
    table."""
    table = cluster.create_table("kinds", {"k": "int64", "v": "string", "n": "int32"}, key="k", hash_buckets=2)
    assert table.insert([{"k": k, "v": "a", "n": k} for k in range(5)]).applied == 5
    again = table.insert(pa.table({"k": [4, 5], "v": ["b", "b"], "n": [0, 0]}), on_error="return")
    assert again.applied == 1
    assert [(e.row, e.code, e.key) for e in again.errors] == [(0, nyala.RowCode.ALREADY_PRESENT, {"k": 4})]
    assert table.insert([{"k": 4, "v": "c", "n": 9}], ignore_existing=True).ok
    assert table.upsert(pd.DataFrame({"k": [0, 6], "v": ["d", "d"]})).ok
    assert [e.code for e in table.update([{"k": 99, "n": 1}], on_error="return").errors] == [nyala.RowCode.NOT_FOUND]
    assert table.update(pl.DataFrame({"k": [1], "n": [100]})).ok
    with pytest.raises(
        nyala.RowErrors, match=r"1 of 2 rows was not applied, the other one was: row 1 .k=77."
    ) as caught:
        table.delete([{"k": 2}, {"k": 77}])
    assert caught.value.rows.to_pylist() == [{"k": 77}]
    assert table.delete([{"k": 77}], ignore_missing=True).ok
    assert table.insert([]) == nyala.WriteResult(0, ())
    partial = [{"k": 0, "v": None, "n": 7}, {"k": 1, "v": "e", "n": None}, {"k": 7, "v": None, "n": None}]
    assert table.upsert(partial, ignore_null=True).applied == 3
    assert table.update([{"k": 3, "v": "f", "n": None}], ignore_null=True).ok
    rows = table.scan().to_arrow().sort_by("k").to_pylist()
    assert [(r["k"], r["v"], r["n"]) for r in rows] == [
        (0, "d", 7), (1, "e", 100), (3, "f", 3), (4, "a", 4), (5, "b", 0), (6, "d", None), (7, None, None),
    ]  # fmt: skip


def test_scans_select_project_limit_and_count(cluster: nyala.Cluster) -> None:
    """Goal: a scan returns the requested rows, in each form. Method: one table, many questions, known answers."""
    table = cluster.create_table(
        "asked", {"k": "int64", "carrier": "string", "delay": "double"}, key="k", hash_buckets=3
    )
    size = 5000
    delays = [None if k % 10 == 0 else float(k % 100) for k in range(size)]
    table.insert(
        pa.table({"k": np.arange(size), "carrier": [("AA", "UA")[k % 2] for k in range(size)], "delay": delays})
    )
    assert table.count() == size
    assert table.scan(where="carrier = 'AA' and delay > 90").count() == size // 100 * 4
    assert table.count(where=nyala.col("delay").is_null()) == size // 10
    found = table.scan(columns=["delay", "k"], where=nyala.col("k").isin([7, 8, 10**12])).to_pandas().sort_values("k")
    assert found.columns.tolist() == ["delay", "k"] and found["k"].tolist() == [7, 8]
    assert table.scan(where="k = 4711").to_arrow().to_pylist() == [{"k": 4711, "carrier": "UA", "delay": 11.0}]
    assert table.scan(limit=7).to_polars().height == 7 and table.scan(limit=7).count() == 7
    assert sum(b.num_rows for b in table.scan(columns=["k"])) == size
    none = table.scan(where="k < 0").to_arrow()
    assert none.num_rows == 0 and none.schema == table.schema
    with pytest.raises(nyala.NotApplied, match="did you mean 'delay'"):
        table.scan(columns=["dealy"])


def test_rows_by_key_are_there_at_once_and_in_the_order_of_the_keys(
    cluster: nyala.Cluster, servers: LocalCluster
) -> None:
    """RD-02. Goal: a read by key, by its public name. Method: single keys and many, in each form, strong and stale, of
    a table of three tablets, after every kind of write; more keys than one call takes; wrong ones."""
    table = cluster.create_table("looked", {"k": "int64", "n": "int32", "v": "string"}, key=["k", "n"], hash_buckets=3)
    size = 30_000
    table.insert(pa.table({"k": np.arange(size), "n": np.arange(size) % 7, "v": [f"v{k}" for k in range(size)]}))
    table.upsert({"k": 3, "n": 3, "v": "new"})
    table.delete({"k": 4, "n": 4})
    assert table.get((3, 3)) == {"k": 3, "n": 3, "v": "new"} == table.get({"n": 3, "k": 3})
    assert table.get((4, 4)) is None and table.get((5, 4)) is None
    assert table.get((5, 5), columns=["v"]) == {"v": "v5"}
    found = table.get([(9, 2), (4, 4), (3, 3), (9, 2)])
    assert found.schema == table.schema and found.column("v").to_pylist() == ["v9", "new", "v9"]
    assert table.get([]).num_rows == 0 and table.get([(4, 4)]).schema == table.schema
    asked = np.random.default_rng(5).permutation(size)
    keys = pa.table({"n": asked % 7, "k": asked})
    for given in (keys, keys.to_pandas(), pl.from_arrow(keys)):
        found = table.get(given, columns=["k", "v"])
        assert found.column("k").to_pylist() == [k for k in asked.tolist() if k != 4]
    assert found.column("v").to_pylist() == ["new" if k == 3 else f"v{k}" for k in asked.tolist() if k != 4]
    with nyala.connect(servers.masters[0].address) as other:
        for row in range(3):
            other.table("looked").upsert({"k": 3, "n": 3, "v": f"row {row}"})
            newest = {"k": 3, "n": 3, "v": f"row {row}"}
            assert table.get((3, 3)) == newest == table.get((3, 3), staleness=3600)
    for wrong in ((1, 2, 3), 1, {"k": 1}, {"k": 1, "n": 1, "v": "x"}, ("one", 1), [(1, None)], [1], "k"):
        with pytest.raises(nyala.NotApplied):
            table.get(wrong)  # type: ignore[call-overload]
    with pytest.raises(nyala.NotApplied, match="there is no column 'w'"):
        table.get((1, 1), columns=["w"])


def test_rows_by_key_are_of_one_moment_while_they_are_written(cluster: nyala.Cluster, servers: LocalCluster) -> None:
    """RD-02. Goal: a read by key that needs several calls mixes no two writes. Method: a writer sets all rows of one
    tablet to one number after the other; reads of all its keys, strong and stale, meanwhile."""
    table, size = cluster.create_table("moments", {"k": "int64", "v": "int64"}, key="k"), 9000
    keys, over = pa.table({"k": np.arange(size)}), threading.Event()
    table.upsert(keys.append_column("v", pa.array(np.zeros(size, np.int64))))

    def write() -> int:
        number = 0
        with nyala.connect(servers.masters[0].address) as other:
            while not over.is_set():
                number += 1
                other.table("moments").upsert(keys.append_column("v", pa.array(np.full(size, number))))
        return number

    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            found = [table.get(keys, staleness=60 if n % 2 else None).column("v").to_pylist() for n in range(30)]
        finally:
            over.set()
        assert writer.result() > 3
    assert all(len(values) == size and len(set(values)) == 1 for values in found)
    seen = [values[0] for values in found]
    assert seen == sorted(seen) and seen[-1] > 0


def test_snapshot_read_stays_the_same_while_the_table_changes(cluster: nyala.Cluster) -> None:
    """Goal: one time, one answer. Method: read, remember the time, change everything, read at that time."""
    table = cluster.create_table("history", {"k": "int64", "v": "int64"}, key="k", hash_buckets=3)
    table.insert(pa.table({"k": np.arange(3000), "v": np.zeros(3000, np.int64)}))
    scan = table.scan()
    before = scan.to_arrow().sort_by("k")
    table.upsert(pa.table({"k": np.arange(0, 4000, 2), "v": np.ones(2000, np.int64)}))
    table.delete(pa.table({"k": np.arange(1, 3000, 2)}))
    assert table.scan(at=scan.snapshot_time).to_arrow().sort_by("k").equals(before)
    assert table.count() == 2000 and table.count(at=scan.snapshot_time) == 3000


def test_scans_that_may_be_stale_hold_what_this_client_wrote_and_are_of_one_time(
    cluster: nyala.Cluster, servers: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """CN-24: a scan of bounded staleness sees its client's own writes, at one time in all tablets, from Python, the
    command line and Spark's reader; what it cannot promise is refused before anything is sent. Method: three tablets;
    write and read stale at once, again and again; the time is one at which a snapshot holds the same."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    table = cluster.create_table("stale", {"k": "int64", "v": "int64"}, key="k", hash_buckets=3)
    for turn in range(5):
        table.upsert(pa.table({"k": np.arange(90), "v": np.full(90, turn)}))
        scan = table.scan(staleness=3600)
        rows = scan.to_arrow()
        assert rows.num_rows == 90 and set(rows["v"].to_pylist()) == {turn}
        assert table.scan(at=scan.snapshot_time).to_polars().sort("k").equals(pl.DataFrame(rows).sort("k"))
        assert table.count(where=nyala.col("v") == turn, staleness=2) == 90
    said = nyala_says(cluster, "table", "scan", "stale", "--staleness", "5", "--csv")
    assert 1 <= len(said.splitlines()) <= 91, "another client, which may be five seconds behind"
    assert nyala_says(cluster, "table", "scan", "stale", "--staleness", "0.6", "--limit", "3", "--json").count("{") == 3
    options = {"masters": servers.masters[0].address, "table": "stale", "staleness": "0.6", "slices": "2"}
    reader = Reader(ReadOptions.of(options), table.handle, ("k", "v"))
    parts = reader.partitions()
    assert len(parts) == 6 and len({(p.spec.snapshot_time, p.spec.staleness_us) for p in parts}) == 1  # type: ignore[attr-defined]
    with in_query(1):
        assert sum(batch.num_rows for part in parts for batch in reader.read(part)) == 90
    with pytest.raises(nyala.NotApplied, match="exclude"):
        table.scan(at=MOMENT, staleness=5)
    with pytest.raises(nyala.NotApplied, match="clocks may differ"):
        table.scan(staleness=0.5)


def test_stale_count_is_never_below_what_the_client_has_counted(cluster: nyala.Cluster, servers: LocalCluster) -> None:
    """IN-10. Goal: after a fresh read a staler one shows no less, over three tablets. Method: rows come one by one from
    another client; as soon as a fresh count shows a row, counts and scans that may be an hour old show it too."""
    table = cluster.create_table("counted", {"k": "int64"}, key="k", hash_buckets=3)
    with nyala.connect(servers.masters[0].address) as other:
        for rows in range(1, 4):
            other.table("counted").insert({"k": rows})
            wait_until(lambda rows=rows: table.count(staleness=0.6) == rows, "a fresh count shows the row")  # type: ignore[misc]
            assert table.count(staleness=3600) == rows
            assert table.scan(staleness=3600).to_arrow().num_rows == rows


@pytest.mark.deep
def test_clients_that_mix_reads_over_three_tablets_see_histories_that_are_explained(
    cluster: nyala.Cluster, servers: LocalCluster
) -> None:
    """IN-10. Goal: no client's reads go back, and stale ones are as fresh as they say, while leaders change. Method:
    writers, a reader and one that mixes strong and stale reads on three tablets; each server in turn is killed and
    started; the checker judges the history."""
    cluster.client.create_table("registers", SCHEMA, PartitionSpec(("k",), 3), replication_factor=3)
    handle = cluster.client.get_table("registers")
    load = RegisterLoad([servers.masters[0].address], handle, [])
    load.start()
    for server in servers.servers:
        load.progress("with all servers", 10)
        server.kill()
        load.progress("with one server less", 10)
        server.start()
    enough = lambda: not load.surprises and load.done["stale read"] > 50 and sum(load.done.values()) > 400  # noqa: E731
    wait_until(enough, "stale reads are among many others")
    load.stop()
    assert load.history.verify() > 300


def test_spark_query_reads_what_was_there_when_its_first_task_began(
    cluster: nyala.Cluster, servers: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: all parts of a Spark query are of one snapshot, however late a task reads its own, and the next query of
    the same plan is of a new one. Method: a read of three tablets in slices is planned, rows are added, and its first
    part is read; every row is changed or deleted, others are added; then all parts, as Spark sends them, hold what was
    there; in the next query what is there now."""
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    table = cluster.create_table("planned", {"k": "int64", "v": "int64"}, key="k", hash_buckets=3)
    table.insert(pa.table({"k": np.arange(300), "v": np.zeros(300, np.int64)}))
    options = {"masters": servers.masters[0].address, "table": "planned", "slices": "2"}
    reader = Reader(ReadOptions.of(options), table.handle, ("k", "v"))
    parts = pickle.loads(pickle.dumps(reader.partitions()))
    rows = lambda part: pa.Table.from_batches(reader.read(part), table.schema).sort_by("k")  # noqa: E731
    table.insert(pa.table({"k": np.arange(300, 310), "v": np.zeros(10, np.int64)}))
    with in_query(1):
        early = rows(parts[0])
    table.upsert(pa.table({"k": np.arange(100, 400), "v": np.ones(300, np.int64)}))
    table.delete(pa.table({"k": np.arange(100)}))
    with in_query(1):
        read = [rows(part) for part in parts]
    with in_query(2):
        new = pa.concat_tables([rows(part) for part in parts]).sort_by("k").to_pylist()
    assert new == [{"k": k, "v": 1} for k in range(100, 400)]
    assert 0 < early.num_rows < 310 and read[0].equals(early)
    whole = pa.concat_tables(read).sort_by("k").to_pylist()
    assert whole == [{"k": k, "v": 0} for k in range(310)] and table.count(where="v = 1") == table.count() == 300


def test_write_larger_than_a_batch_with_repeated_keys_keeps_its_order(cluster: nyala.Cluster) -> None:
    """Goal: the last of a key's rows wins, however the rows are cut. Method: three megabytes, each key four times."""
    table = cluster.create_table("repeated", {"k": "int64", "v": "int64", "pad": "string"}, key="k", hash_buckets=2)
    size = 24_000
    rows = pa.table({"k": np.arange(size) % (size // 4), "v": np.arange(size), "pad": ["x" * 120] * size})
    assert table.upsert(rows).applied == size
    values = table.scan(columns=["k", "v"]).to_arrow().sort_by("k")["v"].to_numpy()
    assert np.array_equal(values, np.arange(size // 4 * 3, size))


def test_table_dropped_and_created_again_is_not_written_through_an_old_handle(cluster: nyala.Cluster) -> None:
    """Goal: rows never land in another life of a table. Method: an old Table object, after drop and create."""
    old = cluster.create_table("reborn", {"k": "int64"}, key="k")
    old.insert([{"k": 1}])
    cluster.drop_table("reborn")
    new = cluster.create_table("reborn", {"k": "int64"}, key="k")
    with pytest.raises(nyala.Refused) as caught:
        old.insert([{"k": 2}])
    assert caught.value.code in (nyala.Code.WRONG_TABLE, nyala.Code.NOT_FOUND)
    assert new.count() == 0 and new.insert([{"k": 3}]).ok


def test_connect_to_a_tablet_server_says_that_it_is_no_master(servers: LocalCluster) -> None:
    """Goal: the error names the likeliest wrong address. Method: connect to a tablet server."""
    with pytest.raises(nyala.NotApplied, match="give a master's address"):
        nyala.connect(servers.servers[0].address)


def nyala_says(cluster: nyala.Cluster, *command: str) -> str:
    """Return what `nyala ...` prints to standard output, having ended well."""
    masters = str(cluster).removeprefix("<nyala.Cluster ").removesuffix(">")
    ended = CliRunner().invoke(app, [*command, "--masters", masters])
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def test_scan_command_exports_every_row_and_shows_people_twenty(cluster: nyala.Cluster) -> None:
    """Goal: a file is never silently short, and a screen that shows fewer rows states it. Method: 30 rows as CSV, JSON,
    table; limits."""
    table = cluster.create_table("t", {"id": "int64", "at": "timestamp", "note": "string"}, key="id", hash_buckets=2)
    assert nyala_says(cluster, "table", "scan", "t", "--csv") == "id,at,note\n"
    assert json.loads(nyala_says(cluster, "table", "scan", "t", "--json")) == []
    table.insert([{"id": k, "at": MOMENT, "note": f"a, {k}" if k else None} for k in range(30)])
    frame = pl.read_csv(io.StringIO(nyala_says(cluster, "table", "scan", "t", "--csv")))
    assert frame.columns == ["id", "at", "note"] and sorted(frame["id"]) == list(range(30))
    rows = json.loads(nyala_says(cluster, "table", "scan", "t", "--json", "--columns", "id,note"))
    assert {r["id"]: r["note"] for r in rows} == {k: f"a, {k}" if k else None for k in range(30)}
    assert len(nyala_says(cluster, "table", "scan", "t", "--csv", "--limit", "5").splitlines()) == 6
    assert "the first 20 rows; --limit 0 shows all" in nyala_says(cluster, "table", "scan", "t")
    assert "the first" not in nyala_says(cluster, "table", "scan", "t", "--limit", "0")
    assert nyala_says(cluster, "table", "scan", "t", "--count").strip() == "30"


def test_extreme_values_of_every_type_are_shown_returned_and_named_in_errors(cluster: nyala.Cluster) -> None:
    """IN-02, IN-82. Goal: whatever Arrow, Spark or Kafka stored in a column, each display and answer has it: a date or
    time beyond Python's years as text. Method: a table of every type's extreme values, which Arrow wrote, as table,
    JSON, CSV, pandas and polars, by `get`, and in the errors of a second insert. In a second table they are the
    key."""
    days = pa.array([-(2**31), 2**31 - 1, -719_163, 2_932_897], pa.int32()).cast(pa.date32())
    times = pa.array([-(2**63), 2**63 - 1, -62_135_596_800_000_001, 253_402_300_800_000_000])
    odd = {ColumnType.DATE: days, ColumnType.TIMESTAMP: times.cast(pa.timestamp("us", "UTC"))}
    columns = {kind.name: odd.get(kind.type, values(kind, 4)) for kind in KINDS}
    shown_days = ["-5877641-06-23", "5881580-07-11", "0000-12-31", "10000-01-01"]
    shown_times = [
        "-290308-12-21T19:59:05.224192+00:00",
        "294247-01-10T04:00:54.775807+00:00",
        "0000-12-31T23:59:59.999999+00:00",
        "10000-01-01T00:00:00.000000+00:00",
    ]

    types = {name: array.type for name, array in columns.items()}
    table = cluster.create_table("t", {"n": "int64", **types}, key="n", make_topic=False)
    table.insert(pa.table({"n": range(4), **columns}))
    for n, (day, time) in enumerate(zip(shown_days, shown_times, strict=True)):
        row = table.get(n)
        assert row is not None and (row["date"], row["timestamp"]) == (day, time)
        assert repr(row["double"]) == repr(columns["double"][n].as_py()) and row["int64"] == columns["int64"][n].as_py()
    read = {r["n"]: r for r in json.loads(nyala_says(cluster, "table", "scan", "t", "--json"))}
    assert [read[n]["date"] for n in range(4)] == shown_days and [read[n]["timestamp"] for n in range(4)] == shown_times
    for output in (("--columns", "date,timestamp"), ("--csv",)):
        printed = nyala_says(cluster, "table", "scan", "t", *output)
        form = [time.replace("+00:00", "+0000") for time in shown_times] if "--csv" in output else shown_times
        assert all(text in printed for text in (*shown_days, *form))
    assert sorted(table.scan().to_pandas()["date"]) == sorted(shown_days)
    assert table.scan().to_polars().height == 4

    key = cluster.create_table(
        "k", {"date": "date", "timestamp": "timestamp"}, key=("date", "timestamp"), make_topic=False
    )
    rows = pa.table(list(odd.values()), names=["date", "timestamp"])
    assert key.insert(rows).applied == 4
    assert json.loads(nyala_says(cluster, "table", "scan", "k", "--json", "--limit", "1"))
    with pytest.raises(nyala.RowErrors) as caught:
        key.insert(rows)
    assert [e.key for e in caught.value.errors if isinstance(e, nyala.RowFailure)] == [
        {"date": day, "timestamp": time} for day, time in zip(shown_days, shown_times, strict=True)
    ]
    assert len(key.insert(rows, on_error="return").errors) == 4 and shown_times[1] in str(caught.value)


def test_look_ups_import_the_client_alone_and_tab_knows_the_names(
    cluster: nyala.Cluster, servers: LocalCluster, tmp_path: Path
) -> None:
    """IN-72. Goal: a look at a cluster costs no Kafka, no Polars and no Spark, and <TAB> completes its names. Method:
    run look-ups to their end in a new process; complete the names of tables, tablets and servers, by `--masters` on the
    line too."""
    made = cluster.create_table("readings", {"id": "int64"}, key="id")
    cluster.create_table("flights", {"id": "int64"}, key="id")
    masters = servers.masters[0].address
    lines = [["table", "list"], ["table", "describe", "readings"], ["tablet", "list"], ["server", "list"]]
    lines += [["master", "list"], ["source", "list"], ["copy", "list"], ["table", "scan", "readings", "--count"]]
    lines += [["table", "scan", "readings", "--json"], ["cluster", "check", "--wait", "60"]]
    for line, (status, found) in zip(lines, run([[*x, "--masters", masters] for x in lines], tmp_path), strict=True):
        assert status == 0 and found <= set(LOOK.split()), (line, status, found - set(LOOK.split()))
    assert offered("nyala table scan r", NYALA_MASTERS=masters) == ["readings"]
    assert offered(f"nyala table scan --masters {masters} ", NYALA_MASTERS="") == ["flights", "readings"]
    tablet = made.handle.tablets[0].tablet_id
    assert offered(f"nyala tablet move {tablet[:6]}", NYALA_MASTERS=masters) == [tablet]
    uuids = sorted(s.uuid for s in cluster.client.list_servers().servers)
    assert sorted(offered("nyala server retire ", NYALA_MASTERS=masters)) == uuids
