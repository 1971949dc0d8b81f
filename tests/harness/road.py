"""The whole path of data in one process: a stack with Kafka, one Spark session, and lanes: a table with its topic
each."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
from kafka import KafkaProducer

from nyala import schemas
from nyala.infra.local import Supervisor
from nyala.pipeline import (
    DecisionsOptions,
    DecisionsQuery,
    Framing,
    IngestOptions,
    IngestQuery,
    Progress,
    QueryInterrupted,
    QueryRefused,
    RestartOptions,
    RowPublisher,
    StoredDeadLetter,
    Topics,
    dead_letter_topic,
    iterate_letters,
    row_schema_json,
    run_with_restarts,
    spark_session,
    submit_command,
    submit_environment,
)
from nyala.pipeline.framing import wrap
from nyala.replica.client import Client, ScanSpec, SourceFormat, TableHandle, WriterSchemaInfo
from nyala.replica.rows import Column, ColumnType, PartitionSpec, RowOp, SourceKey, TableSchema
from nyala.replica.rpc import pb
from nyala.replica.types import PLAINTEXT, KafkaSecurity
from tests.harness.cluster import wait_until
from tests.harness.processes import children_of
from tests.harness.row_keys import encode_key

SCHEMA = TableSchema(
    1,
    (
        Column(id=1, name="k", type=ColumnType.INT64, nullable=False),
        Column(id=2, name="v", type=ColumnType.STRING),
        Column(id=3, name="small", type=ColumnType.INT8),
        Column(id=4, name="must", type=ColumnType.INT32, nullable=False),
    ),
    ("k",),
)
Row = dict[str, Any]
RESTARTS = RestartOptions(restarts_max=20, backoff_s_min=0.2, backoff_s_max=2.0)


def row(k: int, v: str = "") -> Row:
    """Return a row of SCHEMA."""
    return {"k": k, "v": v or f"v{k}", "small": k % 100, "must": k}


def key_of(k: int) -> bytes:
    """Return the Kafka key of a row."""
    return encode_key(SCHEMA, {"k": k})


def read_letters(bootstrap: str, table: str, security: KafkaSecurity = PLAINTEXT) -> list[StoredDeadLetter]:
    """All distinct letters of a table as of now, sorted by topic, partition and offset."""
    places = itemgetter("topic", "kafka_partition", "kafka_offset")
    return sorted(iterate_letters(bootstrap, table, security=security), key=lambda one: places(one.record))


def event(fields: Row, writer_json: str = "") -> bytes:
    """Return the framed value of a row event, written with the full row's schema or with another."""
    parsed = schemas.parse_json(writer_json or row_schema_json(SCHEMA))
    out = io.BytesIO()
    fastavro.schemaless_writer(out, parsed, {"op": "UPSERT", **fields})
    return wrap(Framing.SINGLE_OBJECT, out.getvalue(), fingerprint=schemas.fingerprint64(parsed))


def writer_info(avro_json: str) -> WriterSchemaInfo:
    """Return a writer schema as the catalog keeps it."""
    return WriterSchemaInfo(schemas.fingerprint64(schemas.parse_json(avro_json)).hex(), 0, avro_json)


@contextmanager
def spark_in_process(folder: Path) -> Iterator[Any]:
    """Yield a session with the jars and settings that spark-submit gets, two cores, and one repetition of a failed
    task."""
    earlier = dict(os.environ)
    command = submit_command("ingest", [], master="local[2,2]", conf={"spark.sql.warehouse.dir": str(folder)})
    os.environ.update(submit_environment())
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*command[1:-1], "pyspark-shell"])
    from pyspark import SparkContext

    try:
        spark = spark_session("tests")
        try:
            yield spark
        finally:
            gateway = SparkContext._gateway
            spark.stop()
            gateway.shutdown()
            gateway.proc.stdin.close()
            gateway.proc.wait(180)
            SparkContext._gateway = SparkContext._jvm = None
    finally:
        os.environ.clear()
        os.environ.update(earlier)


class Place(NamedTuple):
    """The parts of a stack that a road on another cluster needs."""

    masters: str
    kafka_bootstrap: str


class Road:
    """A running stack and a Spark session; both are shared, so tests keep to lanes of their own."""

    def __init__(self, stack: Supervisor, client: Client, spark: Any, folder: Path, kafka_login: str) -> None:
        """`kafka_login`: host:port at which the same broker requires a login."""
        self.kafka_login = kafka_login
        self.stack = stack
        self.client = client
        self.spark = spark
        self.folder = folder

    @property
    def kafka(self) -> str:
        return self.stack.kafka_bootstrap

    def lane(
        self,
        name: str,
        *,
        tablets: int = 2,
        partitions: int = 1,
        rf: int = 1,
        writers: Sequence[str] = (),
        schema: TableSchema = SCHEMA,
    ) -> Lane:
        """Return a new table with `tablets` tablets and a new topic; `writers`: more writer schemas than the full
        row's."""
        self.make_topic(f"writes.{name}", partitions)
        lane = Lane(self, name, tablets, rf, (row_schema_json(schema), *writers), schema)
        lane.make_table()
        return lane

    def make_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        topics = Topics(self.kafka)
        settings = {k.replace("_", "."): v for k, v in configs.items()}

        def there() -> bool:
            """Return whether the topic is there: one that was just made, or just deleted, takes a while to be as it
            will be."""
            try:
                topics.ensure(topic, partitions, configs=settings)
                return topics.identity(topic).partitions == partitions
            except (QueryRefused, QueryInterrupted):
                return False

        wait_until(there, f"topic {topic} is there")
        topics.close()

    def homes(self, tablet_id: str) -> list[str]:
        """Return the members of a tablet's committed config as its leader has it; empty while none leads."""
        for server in self.client.list_servers().servers:
            for status in self.client.list_tablets(server, [tablet_id]):
                if status.role == "LEADER":
                    return sorted(member.uuid for member in status.committed_config.members)
        return []

    @contextmanager
    def deciding(self, restarts: RestartOptions = RESTARTS, **changed: Any) -> Iterator[RunningQuery]:
        """Run the decisions query on a thread of its own."""
        checkpoint = str(self.folder / "checkpoint-decisions")
        options = DecisionsOptions(masters=self.stack.masters, bootstrap=self.kafka, checkpoint=checkpoint, **changed)
        running = RunningQuery("decisions", lambda: DecisionsQuery(self.spark, options), restarts)
        try:
            yield running
        finally:
            running.stop()

    @contextmanager
    def kafka_away(self) -> Iterator[None]:
        """Kill -9 the broker, which is back at the end."""
        self.stack.kill_for_good("kafka")
        wait_until(lambda: self.stack.children["kafka"].pid is None, "the broker is gone")
        try:
            yield
        finally:
            self.stack.start_child("kafka")

    @contextmanager
    def kafka_held(self) -> Iterator[None]:
        """Make the broker accept connections and answer nothing, until the end: harder than a broker that is gone."""
        wrapper = self.stack.children["kafka"].pid
        assert wrapper is not None
        (jvm,) = children_of(wrapper)
        os.kill(jvm, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(jvm, signal.SIGCONT)
            # Its own controller counted it as dead meanwhile: its topics have no leader until it has reported again.
            wait_until(self._kafka_serves, "the broker serves again")

    def _kafka_serves(self) -> bool:
        topics = Topics(self.kafka)
        try:
            topics.ensure("probe", 1)
            return len(topics.offsets("probe", 1)) == 1
        except (QueryRefused, QueryInterrupted):
            return False
        finally:
            topics.close()

    @contextmanager
    def workers_die_at(self, point: str) -> Iterator[None]:
        """Arm this crash point in the workers of queries that start meanwhile: Spark keys workers by environment."""
        self.spark.sparkContext.environment["NYALA_CRASH_POINT"] = point
        try:
            yield
        finally:
            del self.spark.sparkContext.environment["NYALA_CRASH_POINT"]


class Lane:
    """One table, its topic and a query's checkpoint."""

    def __init__(
        self, road: Road, name: str, tablets: int, rf: int, writers: Sequence[str], schema: TableSchema
    ) -> None:
        self.road = road
        self.name = name
        self.topic = f"writes.{name}"
        self.tablets = tablets
        self.rf = rf
        self.writers = writers
        self.schema = schema
        self.checkpoint = road.folder / f"checkpoint-{name}"
        self.handle: TableHandle

    def make_table(self) -> None:
        self.handle = self.road.client.create_table(
            self.name, self.schema, PartitionSpec(("k",), self.tablets), replication_factor=self.rf,
            source=SourceFormat(self.topic), writer_schemas=[writer_info(w) for w in self.writers],
        )  # fmt: skip
        self.road.client.count(self.handle, ScanSpec())

    # ------------------------------------------------------------------------------------------------ publishing

    def publish(self, rows: Sequence[Row], op: RowOp = RowOp.UPSERT, **how: Any) -> None:
        """Publish and wait for Kafka; `how`: columns or writer_json of the RowPublisher."""
        with RowPublisher(self.road.kafka, self.topic, self.schema, **how) as publisher:
            for each in rows:
                publisher.publish(each, op)

    def publish_raw(
        self, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]] = (), partition: int = 0
    ) -> int:
        """Publish these bytes; returns their offset."""
        # The producer is not kept: one that lives while the broker is killed leaves a socket open for each refused
        # connection.
        producer = KafkaProducer(bootstrap_servers=self.road.kafka, acks="all", max_request_size=8 << 20)
        try:
            sent = producer.send(self.topic, key=key, value=value, headers=list(headers), partition=partition)
            return int(sent.get(timeout=120).offset)
        finally:
            producer.close()

    # -------------------------------------------------------------------------------------------------- the query

    def options(self, **changed: Any) -> IngestOptions:
        given: dict[str, Any] = {
            "table": self.name,
            "masters": self.road.stack.masters,
            "bootstrap": self.road.kafka,
            "checkpoint": str(self.checkpoint),
            "available_now": True,
            "lease_s": 20.0,
            "owner_wait_s": 0.0,
        }
        return IngestOptions(**{**given, **changed})

    def run(self, **changed: Any) -> list[Progress]:
        """Run the query until it has caught up; raises the error that it ends with."""
        told: list[Progress] = []
        IngestQuery(self.road.spark, self.options(**changed), told.append).run()
        return told

    @contextmanager
    def running(self, restarts: RestartOptions = RESTARTS, **changed: Any) -> Iterator[Running]:
        """Run the query as a stream on a thread of its own."""
        running = Running(self, self.options(available_now=False, **changed), restarts)
        try:
            yield running
        finally:
            running.stop()

    def forget_last_commit(self) -> None:
        """Leave what a driver leaves that dies before Spark's commit: the micro-batch is replayed."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink(missing_ok=True)

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    # -------------------------------------------------------------------------------------------------- the result

    def rows(self) -> dict[int, Row]:
        """Return all rows by key; fails on a doubled one."""
        found: dict[int, Row] = {}
        for part in self.road.client.scan(self.road.client.get_table(self.name), ScanSpec()):
            for batch in part.batches:
                for each in batch.to_pylist():
                    assert each["k"] not in found
                    found[each["k"]] = each
        return found

    def letters(self) -> list[StoredDeadLetter]:
        """Return the distinct dead letters, by place."""
        return read_letters(self.road.kafka, self.name)

    def letter_count(self) -> int:
        """Return the number of all dead letters, doubled ones too."""
        topics = Topics(self.road.kafka)
        try:
            return topics.offsets(dead_letter_topic(self.name), 1, latest=True)[0]
        finally:
            topics.close()

    def position(self, partition: int = 0) -> pb.SourcePosition:
        """Return the catalog's position of one Kafka partition."""
        found = self.road.client.list_sources(self.name)
        return next(p for p in found if p.source.kafka_partition == partition)

    def source(self, partition: int = 0) -> SourceKey:
        at = self.position(partition).source
        return SourceKey(at.cluster_id, at.topic_id, at.kafka_partition)

    def ledger(self) -> dict[str, int]:
        """Return tablet id -> highest offset applied of partition 0; tablets without the source are left out."""
        found = {}
        for tablet in self.handle.tablets:
            for each in self.road.client.ledger(self.name, tablet.tablet_id):
                if each.source.kafka_partition == 0:
                    found[tablet.tablet_id] = int(each.last_offset)
        return found


class RunningQuery:
    """A query that runs on a thread, restarted like the job does."""

    def __init__(self, name: str, make: Callable[[], IngestQuery | DecisionsQuery], restarts: RestartOptions) -> None:
        self.told: list[str] = []
        self.error: BaseException | None = None
        self._ending = False
        self._make = make
        self._restarts = restarts
        self._query: IngestQuery | DecisionsQuery | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _tell(self, text: str) -> None:
        """Keep the text, and show it with the test's output if the test fails."""
        self.told.append(text)
        print(f"{time.strftime('%H:%M:%S')} {self._thread.name}: {text}")

    def _once(self) -> None:
        self._query = self._make()
        if not self._ending:
            self._query.run()

    def _run(self) -> None:
        try:
            run_with_restarts(self._once, self._restarts, self._tell)
        except BaseException as error:  # noqa: BLE001 - what it ended with is what the test asks for
            self.error = error

    def wait_error(self, timeout_s: float = 240.0) -> BaseException:
        """Return the error with which the query ended by itself."""
        self._thread.join(timeout_s)
        assert not self._thread.is_alive() and self.error is not None, self.told
        return self.error

    def stop(self) -> None:
        self._ending = True
        if self._query is not None:
            self._query.stop()
        self._thread.join(240)
        assert not self._thread.is_alive(), self.told


class Running(RunningQuery):
    """A lane's ingest query on a thread."""

    def __init__(self, lane: Lane, options: IngestOptions, restarts: RestartOptions) -> None:
        self.progress: list[Progress] = []
        self._lane = lane
        make = lambda: IngestQuery(lane.road.spark, options, self.progress.append)  # noqa: E731
        super().__init__(f"ingest {lane.name}", make, restarts)

    @property
    def records(self) -> int:
        """Return the records of all reported micro-batches."""
        return sum(each.records for each in list(self.progress))

    def wait_done(self, done: int, timeout_s: float = 240.0, partition: int = 0) -> None:
        """Wait until the catalog's `done` of the partition is there."""

        def there() -> bool:
            assert self.error is None, self.error
            found = self._lane.road.client.list_sources(self._lane.name)
            return any(p.source.kafka_partition == partition and p.done >= done for p in found)

        wait_until(there, f"done is {done}", timeout_s)
