"""The ingest query: stock Kafka source -> foreachBatch -> one sending task per Kafka partition.

A micro-batch has these steps. The query checks that the topic is the one it opened. Tablets or the dead-letter topic
acknowledge every task's records. The query checks the topic again. The catalog's `done` moves. Spark commits. If the
query dies between any two of these steps, the micro-batch is replayed, and the tablets' ledgers drop the rows that they
have.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from nyala.replica.client import Client, TableHandle, credentials_in, parse_masters
from nyala.replica.rpc import pb, source_to_pb
from nyala.replica.types import Refused, check, limits

from .checkpoint import Checkpoint
from .dead_letter_producer import LETTERS_TOPIC
from .driver import run_uninterrupted
from .errors import UNKNOWN_TOPIC, QueryInterrupted, QueryRefused, of_refusal, of_spark
from .kafka_security import security_of
from .kafka_timeouts import KAFKA_TIMEOUT_S, spark_options
from .lease import SourceLease
from .owner import new_owner_run
from .progress import QUERY_ENDED, QUERY_STARTS, Progress
from .session import interrupted_in_order, stop_query
from .task import KAFKA_COLUMNS, RESULT_SCHEMA, SEND_DEADLINE_S, TaskPlan, run_task
from .topics import TopicIdentity, Topics, dead_letter_topic, grown_text, reset_to_new_topic, writes_topic

_log = logging.getLogger(__name__)

RESERVED_KAFKA_OPTIONS = frozenset(
    {
        "minpartitions",
        "maxrecordsperpartition",
        "subscribe",
        "subscribepattern",
        "assign",
        "startingoffsets",
        "startingtimestamp",
        "endingoffsets",
        "includeheaders",
    }
)
"""Options of Spark's source that the query sets itself, or that would assign one Kafka partition to two tasks."""


@dataclass(frozen=True, kw_only=True)
class IngestOptions:
    """Options of one ingest query; all stable."""

    table: str
    masters: str
    bootstrap: str
    checkpoint: str
    topic: str = ""
    """Default: the topic that the table's source declares, else `writes.<table>`."""
    starting: str = "earliest"
    """The place at which the query begins a source that the catalog does not know: earliest or latest."""
    trigger_s: float = 0.0
    """Seconds between micro-batches; 0 starts the next one at once."""
    available_now: bool = False
    """Read the records that exist now, then end."""
    offsets_per_trigger_max: int = 400_000
    """Bounds the offsets of one micro-batch; at most `limits.LEDGER_ERROR_RUNS_MAX`, so that a tablet can remember that
    all failed."""
    isolation: str = "read_committed"
    lease_s: float = 30.0
    owner_wait_s: float = 40.0
    """The longest wait for another owner's lease to end. It is longer than a lease, so that a dead owner's lease ends
    meanwhile.

    The query does not wait if the owner is certainly dead, on this machine, or if it renews its lease."""
    owner_run: str = field(default_factory=new_owner_run)
    """The id of this run in the catalog: a new one in each process, the same for restarts with the same options."""
    accept_partitions: int = 0
    """The number of partitions to which the topic may have grown since it was opened first; 0: it must not have
    grown."""
    dead_letters_max: int | None = None
    """The query ends after more dead letters than this in one run."""
    ignore_null: bool = False
    """Whether upserts and updates leave a column whose value is null as it is. If so, no event can make a value
    null."""
    batch_bytes: int = limits.BATCH_TARGET_BYTES
    send_deadline_s: float = SEND_DEADLINE_S
    kafka_timeout_s: float = KAFKA_TIMEOUT_S
    """The time that each Kafka client waits for a broker that does not answer. Then the run ends and is restarted."""
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Further options for Spark's Kafka source. Those for logging in hold for all of the query's Kafka clients."""
    tls: str = ""
    """The directory of the client's credentials, at the same path on the driver and on all executors; empty: that of
    NYALA_TLS on each machine."""

    def __post_init__(self) -> None:
        check(self.starting in ("earliest", "latest"), "starting is earliest or latest", starting=self.starting)
        if not 0 < self.offsets_per_trigger_max <= limits.LEDGER_ERROR_RUNS_MAX:
            raise QueryRefused(
                f"offsets_per_trigger_max is {self.offsets_per_trigger_max}, it must be from 1 to "
                f"{limits.LEDGER_ERROR_RUNS_MAX}: a tablet remembers why rows failed until their micro-batch is over"
            )
        check(self.owner_wait_s == 0 or self.owner_wait_s > self.lease_s, "owner_wait_s is 0 or longer than a lease")
        security_of(self.kafka)
        for name in self.kafka:
            if name.lower() in RESERVED_KAFKA_OPTIONS:
                raise QueryRefused(
                    f"option {name} cannot be set, leave it out: exactly-once needs one task for each Kafka partition, "
                    "and offsets come from the catalog"
                )


class IngestQuery:
    """One run of the query on an existing SparkSession. `report` receives each micro-batch's Progress, on Spark's
    thread.

    `life` receives QUERY_STARTS, and QUERY_ENDED if the query ended by itself.

    Concurrency: `run` blocks one thread; `stop` may be called from another.
    """

    def __init__(
        self,
        spark: Any,
        options: IngestOptions,
        report: Callable[[Progress], None] = lambda _: None,
        life: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._options = options
        self._report = report
        self._life = life
        self._client = Client(parse_masters(options.masters), credentials=credentials_in(options.tls))
        self._security = security_of(options.kafka)
        self._topics = Topics(options.bootstrap, options.kafka_timeout_s, self._security)
        self._failure: BaseException | None = None
        self._query: Any = None
        self._lease: SourceLease | None = None
        self._stopping = threading.Event()
        self._known: dict[int, dict[str, int]] = {}
        self._dead_letters = 0

    def run(self) -> None:
        """Run until the query ends. QueryRefused: an operator must act; QueryInterrupted: start another run.

        The lease is released however the run ends, even by a SystemExit at any moment. Another query may take it before
        the next run of this one. That is safe, because a query writes only under its lease.
        """
        try:
            with interrupted_in_order(self._spark, self._stopping):
                self._run()
        finally:
            run_uninterrupted(self._give_back)
            self._topics.close()
            self._client.close()

    def _give_back(self) -> None:
        self.stop()
        if self._lease is not None:
            self._lease.release()

    def _run(self) -> None:
        try:
            lease = self._open()
            self._in_background(lambda: lease.renew_until(self._stopping, self._fail), "lease")
            self._in_background(self._watch_topic, "topic")
            self._life(QUERY_STARTS)
            self._query = self._start_query(lease)
            if self._failure is None and not self._stopping.is_set():
                self._query.awaitTermination()
                self._life(QUERY_ENDED)
            if self._failure is not None:
                raise of_spark(self._failure)
        except (QueryRefused, QueryInterrupted):
            raise
        except Refused as error:
            raise of_refusal(error) from error
        except Exception as error:
            ended = of_spark(self._failure or error)
            if self._failure is None and (isinstance(ended, QueryRefused) or UNKNOWN_TOPIC in str(error)):
                # Spark reports that the topic, or some offsets, are gone; the topic's present state decides what to do.
                self._topics.check_unchanged(self._topic, self._table.name)
            raise ended from error

    def stop(self) -> None:
        """End the query after the micro-batch that is running."""
        self._stopping.set()
        self._end_query()

    def _end_query(self) -> None:
        if self._query is not None:
            stop_query(self._query)

    # ------------------------------------------------------------------------------------------------ start

    def _open(self) -> SourceLease:
        """Take the lease, after all checks that can refuse the query; nothing is read before that."""
        options = self._options
        self._table: TableHandle = self._client.get_table(options.table)
        topic = options.topic or self._table.source.topic or writes_topic(options.table)
        self._topic: TopicIdentity = self._topics.identity(topic)
        self._topics.check_not_compacted(topic)
        self._dead_topic = dead_letter_topic(options.table)
        self._topics.ensure(self._dead_topic, configs=LETTERS_TOPIC)
        self._checkpoint = Checkpoint(self._spark, options.checkpoint)
        own = self._checkpoint.own()
        if own.get("topic_id", self._topic.topic_id) != self._topic.topic_id:
            raise QueryRefused(
                f"checkpoint {options.checkpoint} is of another topic {topic} (id {own['topic_id']}, now "
                f"{self._topic.topic_id}); nothing was read: to read the new topic, remove the checkpoint and run "
                f"`{reset_to_new_topic(options.table, topic)}`"
            )
        lease = self._lease = SourceLease(self._client, self._table, self._topic, options.owner_run, options.lease_s)
        known, now = lease.known_partitions(), self._topic.partitions
        if known and known < now and options.accept_partitions != now:
            raise QueryRefused(grown_text(topic, known, now))
        opens = self._opens(lease)
        lease.open(opens, own.get("table_id", ""), options.owner_wait_s, self._stopping)
        begin = {p: position.done for p, position in lease.positions.items()}
        if known and not any(each.has_checkpoint for each in opens):
            _log.warning(
                "checkpoint %s is new, and table %s knows topic %s: reading goes on at offsets %s, where its sources "
                "are done, and not where the topic begins",
                options.checkpoint,
                options.table,
                topic,
                json.dumps(begin),
            )
        begin.update({e.source.kafka_partition: e.checkpoint_offset for e in opens if e.has_checkpoint})
        self._topics.check_retained(self._topic, options.table, begin, options.checkpoint)
        self._checkpoint.write_own({"table_id": self._table.table_id, "topic_id": self._topic.topic_id})
        return lease

    def _opens(self, lease: SourceLease) -> list[pb.SourceOpen]:
        """The request to the catalog: each partition with its first offset by the checkpoint, or else by the topic."""
        topic = self._topic
        at = self._checkpoint.next_offsets(topic.topic)
        # `latest` counts only while the catalog knows no partition of this topic. Partitions that are added later are
        # read from their first record.
        latest = self._options.starting == "latest" and not lease.known_partitions()
        initial = self._topics.offsets(topic.topic, topic.partitions, latest=latest)
        opens = []
        for number in range(topic.partitions):
            each = pb.SourceOpen(source=source_to_pb(lease.source(number)), topic=topic.topic)
            each.initial_start = initial[number]
            if at is not None and number in at:
                each.has_checkpoint, each.checkpoint_offset = True, at[number]
            opens.append(each)
        return opens

    def _start_query(self, lease: SourceLease) -> Any:
        options = self._options
        begin = json.dumps({self._topic.topic: {str(p): position.done for p, position in lease.positions.items()}})
        reader = (
            self._spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", options.bootstrap)
            .option("subscribe", self._topic.topic)
        )
        # Spark uses it only if there is no checkpoint. Then reading begins at the catalog's `done`.
        reader = reader.option("startingOffsets", begin).option("includeHeaders", "true")
        reader = reader.option("kafka.isolation.level", options.isolation).option("failOnDataLoss", "true")
        # The consumer returns 500 records at a time by default, and each return has a cost.
        reader = reader.option("kafka.max.poll.records", "20000").option("kafka.max.partition.fetch.bytes", "4194304")
        reader = reader.option("maxOffsetsPerTrigger", str(options.offsets_per_trigger_max))
        reader = reader.options(**{**spark_options(options.kafka_timeout_s), **options.kafka})
        writer = reader.load().selectExpr(*KAFKA_COLUMNS).writeStream.foreachBatch(partial(self._micro_batch, lease))
        writer = writer.queryName(f"nyala ingest {options.table}").option("checkpointLocation", options.checkpoint)
        if options.available_now:
            writer = writer.trigger(availableNow=True)
        elif options.trigger_s:
            writer = writer.trigger(processingTime=f"{options.trigger_s} seconds")
        return writer.start()

    # ------------------------------------------------------------------------------------------ micro-batches

    def _micro_batch(self, lease: SourceLease, rows: Any, batch_id: int) -> None:
        try:
            self._carry_out(lease, rows, batch_id)
        except Exception as error:
            # Spark passes on only the text; `run` needs the exception itself.
            self._failure = self._failure or of_spark(error)
            raise

    def _carry_out(self, lease: SourceLease, rows: Any, batch_id: int) -> None:
        started = time.perf_counter()
        if self._failure is not None:
            raise self._failure
        self._topics.check_unchanged(self._topic, self._table.name)
        ends = self._checkpoint.batch_end(batch_id, self._topic.topic)
        results = rows.mapInArrow(partial(run_task, self._plan(lease)), RESULT_SCHEMA).collect()
        self._topics.check_unchanged(self._topic, self._table.name)
        progress = Progress(batch_id=batch_id, duration_s=time.perf_counter() - started, ends=ends)
        for row in results:
            if row.tablet_id is not None:
                known = self._known.setdefault(row.kafka_partition, {})
                known[row.tablet_id] = max(row.acknowledged, known.get(row.tablet_id, -1))
            else:
                progress.add(row)
        lease.advance(ends)
        self._dead_letters += progress.dead_letters
        self._report(progress)
        most = self._options.dead_letters_max
        if most is not None and self._dead_letters > most:
            raise QueryRefused(
                f"{self._dead_letters} dead letters in this run, the limit is {most}: look at them with "
                f"`nyala dead-letter list {self._options.table}`, then start the query again or raise the limit"
            )

    def _plan(self, lease: SourceLease) -> TaskPlan:
        return TaskPlan(
            table=self._table,
            topic=self._topic,
            masters=self._options.masters,
            bootstrap=self._options.bootstrap,
            dead_letter_topic=self._dead_topic,
            positions=dict(lease.positions),
            known={partition: dict(known) for partition, known in self._known.items()},
            batch_bytes=self._options.batch_bytes,
            ignore_null=self._options.ignore_null,
            deadline_s=self._options.send_deadline_s,
            kafka_timeout_s=self._options.kafka_timeout_s,
            security=self._security,
            tls=self._options.tls,
        )

    def _in_background(self, work: Callable[[], None], name: str) -> None:
        threading.Thread(target=work, name=name, daemon=True).start()

    def _watch_topic(self) -> None:
        """Notice a topic that was deleted, recreated or grown while no micro-batch checks it."""
        topics = Topics(self._options.bootstrap, self._options.kafka_timeout_s, self._security)
        try:
            while not self._stopping.wait(self._options.lease_s / 3):
                try:
                    topics.check_unchanged(self._topic, self._table.name)
                except QueryInterrupted:
                    # Kafka does not answer: the query itself notices that, or waits.
                    continue
                except QueryRefused as refusal:
                    self._fail(refusal)
                    return
        finally:
            topics.close()

    def _fail(self, refusal: QueryRefused) -> None:
        """End the query from another thread; `run` raises the refusal."""
        self._failure = self._failure or refusal
        self._end_query()
