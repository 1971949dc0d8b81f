"""Numbers that commands show: true, with their unit, and marked where they are estimates."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from nyala import pipeline
from nyala.infra.cli import cluster, sources, tables
from nyala.infra.cli.app import app
from nyala.pipeline import QueryInterrupted, SourceLag, TopicIdentity
from nyala.replica import tools
from nyala.replica.client import TableHandle, TabletHandle
from nyala.replica.rows import Column, ColumnType, PartitionSpec, SourceKey, TableSchema
from nyala.replica.rpc import pb

WIDE = {"COLUMNS": "300"}
SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="day", type=ColumnType.INT32, nullable=False),
        Column(id=2, name="id", type=ColumnType.INT64, nullable=False),
        Column(id=3, name="fare", type=ColumnType.DECIMAL, precision=9, scale=2),
    ),
    ("day", "id"),
)


def run(*line: str) -> Any:
    done = CliRunner().invoke(app, line, env=WIDE)
    assert done.exit_code == 0, done.output
    return done


def words(text: str) -> str:
    return " ".join(text.replace("\u2502", " ").replace("\u2503", " ").split())


# ---------------------------------------------------------------------------------------------------------- replicas


@pytest.fixture
def replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """One replica whose 103 MB are in its log, none in blocks."""
    status = pb.ReplicaStatus(tablet_id="t" * 8, phase="RUNNING", role="LEADER", rows=1234, wal_bytes=103 << 20)
    table = TableHandle(
        "i" * 8, "t", SCHEMA, PartitionSpec(("id",), 1), 1, 0, 0, tablets=(TabletHandle("t" * 8, 0, 0, 0),)
    )
    view = tools.ClusterView("c", [], tables=[table], replicas={"t" * 8: [tools.ReplicaView("s" * 8, status)]})
    monkeypatch.setattr(cluster.tools, "gather", lambda _: view)

    @contextmanager
    def client(_: str) -> Iterator[None]:
        yield None

    monkeypatch.setattr(cluster, "client", client)


def test_disk_of_a_replica_is_its_blocks_and_its_log(replicas: None) -> None:
    """IN-71. Goal: 103 MB on the disk are not shown as 0 B, and an estimate is marked as one. Method: a replica that
    has flushed nothing yet, in the table and in the document."""
    said = words(run("tablet", "list").stdout)
    assert "103.0 MiB" in said and " 0 B" not in said and "~rows" in said
    (tablet,) = json.loads(run("tablet", "list", "--json").stdout)
    (replica,) = tablet["replicas"]
    assert (replica["bytes_on_disk"], replica["block_bytes"], replica["wal_bytes"]) == (103 << 20, 0, 103 << 20)
    assert replica["rows"] == 1234 and replica["rows_is_estimate"] is True


def test_list_of_servers_shows_no_number_that_nobody_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-71. Goal: an unknown figure is shown as unknown, not as 0. Method: a master, whose numbers no list has, and a
    tablet server that holds nothing yet; in the table and in the document. There, open files and maps too."""
    listing = pb.ListServersReply(masters=[pb.ServerInfo(uuid="m" * 8)], servers=[pb.ServerInfo(uuid="s" * 8)])

    @contextmanager
    def client(_: str) -> Iterator[Any]:
        yield SimpleNamespace(list_servers=lambda: listing)

    monkeypatch.setattr(cluster, "client", client)
    monkeypatch.setattr(cluster.tools, "ask_masters", lambda connected, listing: [])
    said = [words(line) for line in run("server", "list").stdout.splitlines()]
    assert "master mmmmmmmm silent" in said and "tablet server ssssssss silent 0 0 0 B 0 B" in said
    master, server = json.loads(run("server", "list", "--json").stdout)
    assert [master[name] for name in ("replicas", "leaders", "bytes_on_disk", "memory_bytes")] == [None] * 4
    assert [server[name] for name in ("replicas", "leaders", "bytes_on_disk", "memory_bytes")] == [0] * 4
    uses = ("open_files", "open_files_max", "memory_maps", "memory_maps_max")
    assert [server[name] for name in uses] == [None] * 4, "a server that just started has not counted them yet"
    listing.servers[0].open_files.MergeFrom(pb.ResourceUse(used=30, limit=1000))
    listing.servers[0].memory_maps.MergeFrom(pb.ResourceUse(used=60_000, limit=65_530))
    master, server = json.loads(run("server", "list", "--json").stdout)
    assert [[each[name] for name in uses] for each in (master, server)] == [[None] * 4, [30, 1000, 60_000, 65_530]]


# ------------------------------------------------------------------------------------------------------------ tables


def handle(spec: PartitionSpec) -> TableHandle:
    tablets = tuple(TabletHandle(f"t{n}", n, *place) for n, place in enumerate(spec.partitions))
    return TableHandle("i" * 8, "flights", SCHEMA, spec, 3, 3_600_000_000, 0, tablets=tablets)


HASH_AND_RANGE = PartitionSpec(("id",), 2, range_column="day", range_splits=(100, 200))
CUTS = {
    "6 tablets by hash of id in 2 buckets and by range of day (below 100; 100 to below 200; 200 and above), 3 replicas;"
    " history of 3600 s": HASH_AND_RANGE,
    "2 tablets by range of day (below 100; 100 and above), 3": PartitionSpec(
        (), 1, range_column="day", range_splits=(100,)
    ),
    "4 tablets by hash of day, id in 4 buckets, 3": PartitionSpec(("day", "id"), 4),
    "1 tablets, 3 replicas": PartitionSpec(("id",), 1),
}


def described(monkeypatch: pytest.MonkeyPatch, spec: PartitionSpec, *more: str) -> str:
    @contextmanager
    def connected(_: str) -> Iterator[Any]:
        get = lambda name: handle(spec)  # noqa: E731
        yield SimpleNamespace(table=lambda name: SimpleNamespace(name=name), client=SimpleNamespace(get_table=get))

    monkeypatch.setattr(tables, "cluster", connected)
    return run("table", "describe", "flights", *more).stdout


@pytest.mark.parametrize("said", CUTS)
def test_description_of_a_table_has_its_decimals_and_its_ranges(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-71. Goal: what was given to create the table can be read back. Method: tables cut by hash, by range, by both
    and not at all, with a decimal column; in the table and in the document."""
    spec = CUTS[said]
    shown = words(described(monkeypatch, spec))
    assert "fare decimal(9,2) yes" in shown and "id int64 2" in shown and said in shown
    document = json.loads(described(monkeypatch, spec, "--json"))
    assert [c["type"] for c in document["columns"]] == ["int32", "int64", "decimal(9,2)"]
    assert (document["range_column"], document["range_splits"]) == (spec.range_column, list(spec.range_splits))
    assert (document["buckets"], document["history_retention_s"]) == (spec.buckets, 3600)


# ----------------------------------------------------------------------------------------------------------- servers


KNOWN = {"counts": {"alive"}, "stopped": {"silent"}, "made-up": {"heard"}, "foreign": {"heard"}}


def test_server_that_does_not_count_is_not_shown_as_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """IN-43. Goal: `server list` claims no state that no master knows: the heartbeats of a server that does not count
    may come from another process than the one at its address. Method: one server that counts, a silent one, one that
    no process answers for, and one of another cluster, in the table and in JSON."""
    reason = "no process answers at h:1"
    listing = pb.ListServersReply(
        servers=[pb.ServerInfo(uuid="counts", alive=True), pb.ServerInfo(uuid="stopped")],
        candidates=[pb.ServerInfo(uuid="made-up", alive=True, not_counted=reason)],
        foreign=[pb.ServerInfo(uuid="foreign", alive=True)],
    )

    @contextmanager
    def client(_: str) -> Iterator[Any]:
        yield SimpleNamespace(list_servers=lambda: listing)

    monkeypatch.setattr(cluster, "client", client)
    monkeypatch.setattr(cluster.tools, "ask_masters", lambda *_: [])
    lines = run("server", "list").output.splitlines()
    shown = {uuid: {*words(line).split()} for uuid in KNOWN for line in lines if uuid in line}
    assert {uuid: found & {"alive", "silent", "heard"} for uuid, found in shown.items()} == KNOWN
    document = {each["uuid"]: each for each in json.loads(run("server", "list", "--json").stdout)}
    alive = {uuid: each["alive"] for uuid, each in document.items()}
    assert alive == {"counts": True, "stopped": False, "made-up": None, "foreign": None}
    assert {uuid: each["not_counted"] for uuid, each in document.items() if each["not_counted"]} == {"made-up": reason}


# ----------------------------------------------------------------------------------------------------------- sources


class Topics:
    """Kafka as far as a list of sources asks: topic `gone` is another one by now, `away` cannot be asked."""

    def __init__(self, bootstrap: str, *_: Any) -> None:
        self.bootstrap = bootstrap

    def identity(self, topic: str) -> TopicIdentity:
        if topic == "away":
            raise QueryInterrupted(f"Kafka at {self.bootstrap} does not answer: no route")
        return TopicIdentity("c", topic, "other" if topic == "gone" else f"{topic}-id", 3)

    def close(self) -> None: ...


def position(topic: str, partition: int, done: int) -> Any:
    source = SourceKey("c", f"{topic}-id", partition)
    fields = {"table": "t", "generation": 1, "start": 0, "owner_run": "", "owner_deadline_us": 0}
    return SimpleNamespace(topic=topic, source=source, done=done, **fields)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, dict[int, int]]]:
    """Return the requests to Kafka: (where, topic, done)."""
    asked: list[tuple[str, str, dict[int, int]]] = []
    positions = [position("a", 0, 70), position("a", 1, 5), position("a", 2, 9), position("gone", 0, 1)]
    positions.append(position("away", 0, 1))

    def lags(bootstrap: str, topic: str, done: dict[int, int], **_: Any) -> dict[int, SourceLag]:
        asked.append((bootstrap, topic, dict(done)))
        return {0: SourceLag(1230, 61.4), 1: SourceLag(0, 0.0), 2: SourceLag(7, None)}

    @contextmanager
    def client(_: str) -> Iterator[Any]:
        yield SimpleNamespace(list_sources=lambda table: positions, kafka_of_masters=lambda: "k:9")

    monkeypatch.setattr(sources, "client", client)
    monkeypatch.setattr(pipeline, "Topics", Topics)
    monkeypatch.setattr(pipeline, "source_lags", lags)
    return asked


def test_list_of_sources_says_how_far_behind_each_is(listed: list[tuple[str, str, dict[int, int]]]) -> None:
    """IN-71. Goal: `source list` shows the lag in records and in seconds; an unknown lag is shown as unknown, not as 0.
    Method: partitions behind, level, and of unknown age; a topic that is another one by now; one that cannot be asked
    for. Kafka is where the masters say, or where the command is told."""
    done = run("source", "list", "--masters", "m:1")
    said = [words(line) for line in done.stdout.splitlines()]
    assert any("records behind seconds behind" in line for line in said)
    assert [line for line in said if line.startswith("t a 0")] == ["t a 0 1 0 70 1,230 61 - a-id c"]
    assert [line for line in said if line.startswith("t a 1")] == ["t a 1 1 0 5 0 0 - a-id c"]
    assert [line for line in said if line.startswith("t a 2")] == ["t a 2 1 0 9 7 ? - a-id c"]
    assert "t gone 0 1 0 1 ? ? - gone-id c" in said and "t away 0 1 0 1 ? ? - away-id c" in said
    assert "topic away is unknown: Kafka at k:9 does not answer" in done.stderr
    assert listed == [("k:9", "a", {0: 70, 1: 5, 2: 9})]
    found = json.loads(run("source", "list", "--masters", "m:1", "--kafka", "k:7", "--json").stdout)
    assert [(p["records_behind"], p["seconds_behind"]) for p in found] == [
        (1230, 61.4), (0, 0.0), (7, None), (None, None), (None, None)
    ]  # fmt: skip
    assert listed[-1][0] == "k:7"
