"""One run of the ingest query without Kafka and Spark: the parts of both that it calls, over a checkpoint folder of
files.

The catalog is the masters' own, without a log; the test chooses offsets, micro-batches and topics.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError

from nyala.pipeline import IngestOptions, IngestQuery, ingest, topics
from nyala.pipeline.task import RESULT_SCHEMA, TaskPlan
from nyala.replica.client import SourceFormat, TableHandle, TabletHandle
from nyala.replica.master.catalog.sources import advance_sources, open_sources, reset_source, source_positions
from nyala.replica.master.catalog.tables import create_table
from nyala.replica.master.requests.conversions import position_to_pb, positions_to_pb
from nyala.replica.policy import ServerView
from nyala.replica.rows import Column, ColumnType, PartitionSpec, SourceKey, TableSchema
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.types import Address, Member
from tests.harness.catalogs import AppliedCatalog, new_table

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="id", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
    ),
    ("id",),
)
SERVER = ServerView(uuid="1" * 32, member=Member("1" * 32, (Address("h", 7),)))
TOPIC = "writes.flights"


class Masters:
    """The client's calls that the query makes, answered by the masters' functions at `now_us`."""

    def __init__(self) -> None:
        self.now_us = 100_000_000
        self.looks: Callable[[], None] = lambda: None
        """Called at each read of the sources."""
        self._applied = AppliedCatalog()
        self._lock = threading.Lock()
        self.table_id: str = self._applied.commit(create_table(self._applied.catalog, new_table(rf=1), [SERVER], {}, 1))
        tablets = tuple(TabletHandle(name, pos, pos, 0) for pos, name in enumerate(("a", "b")))
        self.table = TableHandle(
            self.table_id, "flights", SCHEMA, PartitionSpec(("id",), 2), 1, 0, 0, SourceFormat(TOPIC), tablets=tablets
        )

    def get_table(self, _name: str) -> TableHandle:
        return self.table

    def open_sources(self, table: str, opens: Sequence[pb.SourceOpen], **given: Any) -> pb.OpenSourcesReply:
        request = pb.OpenSourcesRequest(table=table, opens=opens, **given)
        with self._lock:
            table_id, positions = self._applied.commit(open_sources(self._applied.catalog, request, self.now_us))
        return pb.OpenSourcesReply(table_id=table_id, positions=positions_to_pb(positions))

    def advance_sources(
        self, table_id: str, advances: Sequence[pb.SourceAdvance], *, timeout_s: float | None = None, **given: Any
    ) -> list[pb.SourcePosition]:
        request = pb.AdvanceSourcesRequest(table_id=table_id, advances=advances, **given)
        with self._lock:
            moved = advance_sources(self._applied.catalog, request, self.now_us)
            return positions_to_pb(self._applied.commit(moved))

    def reset_source(self, table: str, source: SourceKey, to_offset: int, **given: Any) -> pb.SourcePosition:
        request = pb.ResetSourceRequest(table=table, source=source_to_pb(source), to_offset=to_offset, **given)
        with self._lock:
            reset = reset_source(self._applied.catalog, request, self.now_us)
            return position_to_pb(self._applied.commit(reset))

    def list_sources(self, table: str = "") -> list[pb.SourcePosition]:
        self.looks()
        return self.sources(table)

    def close(self) -> None: ...

    def sources(self, table: str = "flights") -> list[pb.SourcePosition]:
        """Return the catalog's positions, without calling `looks`."""
        with self._lock:
            return [position_to_pb(p) for _, p in source_positions(self._applied.catalog, table)]

    def done(self) -> dict[int, int]:
        """Return by Kafka partition the offset up to which the catalog has the table as complete."""
        return {p.source.kafka_partition: p.done for p in self.sources()}

    def owners(self) -> set[str]:
        """Return the runs that own a source; an empty one for a source without an owner."""
        return {p.owner_run for p in self.sources()}


class Broker:
    """Kafka's answers about the topic, as its admin client and its consumer receive them."""

    def __init__(self) -> None:
        self.cluster_id = "c"
        self.topic_id = "first"
        self.partitions = 1
        self.away = False
        self.asked_in_vain = 0

    def _topic(self, _: list[str]) -> list[dict[str, Any]]:
        if self.away:
            self.asked_in_vain += 1
            raise KafkaTimeoutError("nobody answers")
        return [{"error_code": 0, "topic_id": self.topic_id, "partitions": [{}] * self.partitions}]

    def admin(self, **_: Any) -> Any:
        kept = {"topic": {TOPIC: {"cleanup.policy": "delete"}}}
        return SimpleNamespace(
            describe_topics=self._topic,
            describe_cluster=lambda: {"cluster_id": self.cluster_id},
            describe_configs=lambda *_, **__: kept,
            create_topics=lambda _: None,
            close=lambda: None,
        )

    def consumer(self, **_: Any) -> Any:
        begin = lambda asked: dict.fromkeys(asked, 0)  # noqa: E731
        return SimpleNamespace(beginning_offsets=begin, end_offsets=begin, close=lambda: None)


class MicroBatch:
    """What Spark passes to `foreachBatch`; `tasks` stands for its tasks, and receives the plan that they would
    receive."""

    def __init__(self, tasks: Callable[[TaskPlan], list[Any]]) -> None:
        self._tasks = tasks

    def mapInArrow(self, work: Any, schema: str) -> Any:
        """[pyspark] Run `work` on each partition."""
        assert schema == RESULT_SCHEMA
        (plan,) = work.args
        return SimpleNamespace(collect=lambda: self._tasks(plan))


class Spark:
    """A session and its streams: each micro-batch of `ends` is planned, passed on and committed, one by one.

    After the last of them the query ends, or, if `idle`, waits until it is stopped.
    """

    def __init__(
        self, checkpoint: Path, ends: Sequence[dict[int, int]], tasks: Callable[[TaskPlan], list[Any]]
    ) -> None:
        self.checkpoint = checkpoint
        self.ends = ends
        self.tasks = tasks
        self.idle = False
        self.commits: Callable[[int], None] = lambda _: None
        """Called with each micro-batch that Spark commits."""
        self.options: dict[str, str] = {}
        self.streams = 0
        self.sparkContext = SimpleNamespace(_jvm=Jvm(), _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))
        self.sparkContext._gateway = SimpleNamespace(new_array=lambda _, size: [None] * size)

    @property
    def readStream(self) -> Stream:
        """[pyspark] Return the way to read a stream."""
        return Stream(self)


class Stream:
    """A stream while it is put together, and then as it runs."""

    def __init__(self, spark: Spark) -> None:
        self._spark = spark
        self._stopped = threading.Event()
        self.isActive = True

    def __getattr__(self, name: str) -> Any:
        """Return a function for calls that only shape the stream."""
        if name == "writeStream":
            return self
        if name in ("format", "load", "selectExpr", "queryName", "trigger"):
            return lambda *_, **__: self
        raise AttributeError(name)

    def option(self, name: str, value: str) -> Stream:
        self._spark.options[name] = value
        return self

    def options(self, **given: str) -> Stream:
        self._spark.options |= given
        return self

    def foreachBatch(self, work: Callable[[Any, int], None]) -> Stream:
        """[pyspark] Set the function that is called with each micro-batch."""
        self._work = work
        return self

    def start(self) -> Stream:
        self._spark.streams += 1
        return self

    def awaitTermination(self) -> None:
        """[pyspark] Wait; here the micro-batches run within it."""
        for folder in ("offsets", "commits"):
            (self._spark.checkpoint / folder).mkdir(parents=True, exist_ok=True)
        for number, ends in enumerate(self._spark.ends):
            offsets = json.dumps({TOPIC: {str(partition): end for partition, end in ends.items()}})
            (self._spark.checkpoint / "offsets" / str(number)).write_text(f"v1\n{{}}\n{offsets}")
            try:
                self._work(MicroBatch(self._spark.tasks), number)
            except Exception as error:  # noqa: BLE001 - Spark hands on the text of any
                raise RuntimeError(f"the Python side raised\n{error}") from None
            self._spark.commits(number)
            (self._spark.checkpoint / "commits" / str(number)).write_text("v1\n{}")
        while self._spark.idle and not self._stopped.wait(60):
            continue

    def stop(self) -> None:
        self.isActive = False
        self._stopped.set()


class Jvm:
    """Spark's JVM, as far as a checkpoint is read and written through it: Hadoop's file system, over real files."""

    def __init__(self) -> None:
        rename = SimpleNamespace(OVERWRITE="OVERWRITE")
        context = SimpleNamespace(makeQualified=lambda path: path, rename=lambda old, new, _: old.path.rename(new.path))
        hadoop = {
            "Path": HadoopPath,
            "Options$Rename": rename,
            "FileContext": SimpleNamespace(getFileContext=lambda *_: context),
        }
        utilities = SimpleNamespace(IOUtils=SimpleNamespace(toString=lambda stream, _: stream.read().decode()))
        apache = SimpleNamespace(
            hadoop=SimpleNamespace(fs=SimpleNamespace(**hadoop)),
            commons=SimpleNamespace(io=utilities),
        )
        self.org = SimpleNamespace(apache=apache)
        self.java = SimpleNamespace(lang=SimpleNamespace(System=SimpleNamespace(nanoTime=lambda: 1)))


class HadoopPath:
    """A path, and the file system that it is on."""

    def __init__(self, root: str | HadoopPath, name: str = "") -> None:
        self.path = (root.path if isinstance(root, HadoopPath) else Path(root)) / name

    def getFileSystem(self, _: Any) -> Any:
        """[Hadoop] Return the file system."""
        return SimpleNamespace(exists=_exists, listStatus=_list, open=_open, create=_create)

    def getName(self) -> str:
        """[Hadoop] Return the last part."""
        return self.path.name

    def toUri(self) -> str:
        """[Hadoop] Return the whole path."""
        return self.path.as_uri()


def _exists(at: HadoopPath) -> bool:
    return at.path.exists()


def _list(at: HadoopPath) -> list[Any]:
    return [SimpleNamespace(getPath=lambda p=path: HadoopPath(str(p))) for path in at.path.iterdir()]


def _open(at: HadoopPath) -> Any:
    return at.path.open("rb")


def _create(at: HadoopPath, _overwrite: bool) -> Any:
    at.path.parent.mkdir(parents=True, exist_ok=True)
    return at.path.open("wb")


def totals(partition: int, records: int, acknowledged: dict[str, int] | None = None) -> list[Any]:
    """Return the result of a task that brought so many records into the tablets named."""
    names = [each.split()[0] for each in RESULT_SCHEMA.split(", ")]
    counted = {**dict.fromkeys(names, 0), "kafka_partition": partition, "tablet_id": None, "records": records}
    told = [SimpleNamespace(**counted)]
    for tablet_id, offset in (acknowledged or {}).items():
        told.append(SimpleNamespace(kafka_partition=partition, tablet_id=tablet_id, acknowledged=offset))
    return told


class World:
    """Masters, a broker, a checkpoint, and the runs of one query after each other."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.masters = Masters()
        self.broker = Broker()
        self.spark = Spark(folder / "checkpoint", [{0: 10}], lambda _: [])
        patch.setattr(ingest, "Client", lambda *_, **__: self.masters)
        patch.setattr(topics, "KafkaAdminClient", self.broker.admin)
        patch.setattr(topics, "KafkaConsumer", self.broker.consumer)
        patch.setattr(topics, "check_reachable", lambda _: None)

    def query(self, **changed: Any) -> IngestQuery:
        given = {"table": "flights", "masters": "m:1", "bootstrap": "k:1", "checkpoint": str(self.spark.checkpoint)}
        return IngestQuery(self.spark, IngestOptions(**{**given, "owner_wait_s": 0.0, **changed}))

    def run(self, **changed: Any) -> None:
        """Run the query to its end."""
        self.query(**changed).run()

    def own(self) -> Path:
        """Return our own file in the checkpoint."""
        return self.spark.checkpoint / "nyala" / "query.json"

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.spark.checkpoint)
