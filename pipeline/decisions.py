"""The decisions query: Kafka `decisions` -> the leader of each tablet -> `outcomes`. Spark's tasks do the work; the
driver keeps the catalog terms and counts.

A micro-batch may run again: executing a decision twice, late or out of order is safe, because the leader checks term,
version, config and deadline. After a failed decision the masters decide anew.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any

from nyala.replica.client import credentials_in, parse_masters
from nyala.replica.types import Refused, Result, check, kafka_topics

from .decision_tasks import MASTERS, ROW_SCHEMA, SKIPPED, TERM, DecisionsPlan, Row, carry_out, read_decisions
from .errors import QueryInterrupted, QueryRefused, of_refusal, of_spark
from .kafka_security import security_of
from .kafka_timeouts import KAFKA_TIMEOUT_S, spark_options
from .session import interrupted_in_order, stop_query
from .topics import Topics

_log = logging.getLogger("nyala.pipeline")
RECORDS_MAX = 10_000
"""The most records of one micro-batch. They bound the rows that the driver collects, and the time that later records
wait."""
TERMS_KEPT_MAX = 100_000
"""The most keys whose catalog terms are kept from one micro-batch to the next. A deposed master's record comes within
its producer's time-out, at most minutes after the decision that replaces it. If its key was forgotten by then, the
tablet's leader refuses it."""
EXAMPLES_MAX = 8


@dataclass(frozen=True, kw_only=True)
class DecisionsOptions:
    """Options of the decisions query; all stable."""

    masters: str
    bootstrap: str
    checkpoint: str
    topic_prefix: str = ""
    """The masters' prefix of the topics `decisions` and `outcomes`."""
    executor: str = "spark"
    """The executor's name in `outcomes`."""
    available_now: bool = False
    kafka_timeout_s: float = KAFKA_TIMEOUT_S
    kafka: Mapping[str, str] = field(default_factory=dict)
    """Both as of the ingest query."""
    tls: str = ""
    """As of the ingest query; the certificate is an operator's."""

    def __post_init__(self) -> None:
        check(bool(self.masters and self.bootstrap and self.checkpoint), "masters, bootstrap and checkpoint are needed")
        security_of(self.kafka)

    @property
    def decisions_topic(self) -> str:
        """Return the topic that is read."""
        return self.topic_prefix + kafka_topics.DECISIONS

    @property
    def outcomes_topic(self) -> str:
        """Return the topic that is written."""
        return self.topic_prefix + kafka_topics.OUTCOMES


@dataclass(frozen=True, kw_only=True)
class DecisionsProgress:
    """The counts of one micro-batch: how many decisions ended with each result, and how many records were skipped."""

    results: Mapping[str, int]
    duration_s: float = 0.0
    skipped: int = 0
    examples: tuple[str, ...] = ()
    """Examples of decisions that were not done, and of skipped records: one for each task and kind, EXAMPLES_MAX at
    most."""

    def line(self) -> str:
        """Return the counts as one line for operators."""
        counts = [f"{count} {result}" for result, count in sorted(self.results.items())]
        counts += [f"{self.skipped} records skipped"] * (self.skipped > 0)
        return "; ".join([f"decisions in {self.duration_s:.1f} s: {', '.join(counts)}", *self.examples])

    def json(self) -> str:
        """Return the counts as one JSON object, for programs."""
        return json.dumps({"event": "decisions", **asdict(self)})


def with_terms(kept: Mapping[bytes, int], risen: Mapping[bytes, int], most: int) -> dict[bytes, int]:
    """Return the catalog terms of keys with those that have risen; the newest `most` are kept. Pure."""
    both = {key: term for key, term in kept.items() if key not in risen} | dict(risen)
    return dict(islice(both.items(), max(0, len(both) - most), None))


class DecisionsQuery:
    """One run of the query. `report` receives each micro-batch's DecisionsProgress. Concurrency: as IngestQuery."""

    def __init__(
        self, spark: Any, options: DecisionsOptions, report: Callable[[DecisionsProgress], None] = lambda _: None
    ) -> None:
        self._spark = spark
        self._options = options
        self._report = report
        self._query: Any = None
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._security = security_of(options.kafka)
        # An error in these ends the job here, and not a task later.
        parse_masters(options.masters)
        credentials_in(options.tls)
        self._terms: dict[bytes, int] = {}
        self._term_known = 0
        self.skipped = 0
        """The number of records that were no decision of a master."""

    def run(self) -> None:
        """Run until the query ends. QueryRefused or QueryInterrupted, as for ingest."""
        try:
            with interrupted_in_order(self._spark, self._stopping):
                self._run()
        finally:
            self.stop()

    def _run(self) -> None:
        try:
            self._ensure_topics()
            self._query = self._start()
            if not self._stopping.is_set():
                self._query.awaitTermination()
            if self._failure is not None:
                raise of_spark(self._failure)
        except (QueryRefused, QueryInterrupted):
            raise
        except Refused as error:
            raise of_refusal(error) from error
        except Exception as error:
            raise of_spark(self._failure or error) from error

    def stop(self) -> None:
        """End the query; a micro-batch that is running is finished or runs again."""
        self._stopping.set()
        if self._query is not None:
            stop_query(self._query)

    def _ensure_topics(self) -> None:
        topics = Topics(self._options.bootstrap, self._options.kafka_timeout_s, self._security)
        try:
            for name in (kafka_topics.DECISIONS, kafka_topics.OUTCOMES):
                topic, settings = self._options.topic_prefix + name, kafka_topics.settings_of(name)
                topics.ensure(topic, kafka_topics.PARTITIONS[name], configs=settings)
        finally:
            topics.close()

    def _start(self) -> Any:
        options = self._options
        reader = self._spark.readStream.format("kafka").option("kafka.bootstrap.servers", options.bootstrap)
        reader = reader.options(**{**spark_options(options.kafka_timeout_s), **options.kafka})
        reader = reader.option("subscribe", options.decisions_topic).option("startingOffsets", "earliest")
        reader = reader.option("maxOffsetsPerTrigger", str(RECORDS_MAX))
        # The topic is compacted: a decision that is gone was replaced or withdrawn.
        reader = reader.option("failOnDataLoss", "false").option("kafka.isolation.level", "read_committed")
        writer = reader.load().writeStream.foreachBatch(self._micro_batch)
        writer = writer.queryName("nyala decisions").option("checkpointLocation", options.checkpoint)
        return (writer.trigger(availableNow=True) if options.available_now else writer).start()

    def _micro_batch(self, rows: Any, _: int) -> None:
        # Half of the slots, so that an ingest query in the same driver goes on while tasks wait for servers.
        tasks = max(1, self._spark.sparkContext.defaultParallelism // 2)
        plan, began = self._plan(), time.monotonic()
        try:
            read = rows.select("key", "value", "offset").mapInArrow(partial(read_decisions, plan), ROW_SCHEMA)
            work = partial(carry_out, replace(plan, terms={}))
            done = read.repartition(tasks, "target").mapInArrow(work, ROW_SCHEMA)
            told = [Row(**row.asDict()) for row in done.drop("target", "value").collect()]
            self._note(told, time.monotonic() - began)
        except Exception as error:
            self._failure = of_spark(error)
            raise

    def _plan(self) -> DecisionsPlan:
        """Return the input of the next micro-batch's tasks."""
        options = self._options
        return DecisionsPlan(
            options.masters, options.bootstrap, options.outcomes_topic, options.executor, self._terms,
            self._term_known, options.kafka_timeout_s, self._security, tls=options.tls,
        )  # fmt: skip

    def _note(self, told: Iterable[Row], duration_s: float = 0.0) -> None:
        """Keep what the tasks report of one micro-batch, and report it."""
        risen: dict[bytes, int] = {}
        counts: Counter[str] = Counter()
        examples: list[str] = []
        for row in told:
            number = row.number or 0
            if row.kind == TERM:
                risen[bytes(row.key or b"")] = number
            elif row.kind == MASTERS:
                self._term_known = max(self._term_known, number)
            else:
                counts[row.kind] += number
                if row.kind != Result.DONE and len(examples) < EXAMPLES_MAX:
                    examples.append(f"{row.kind} {row.text}")
        self._terms = with_terms(self._terms, risen, TERMS_KEPT_MAX)
        skipped = counts.pop(SKIPPED, 0)
        if skipped:
            self.skipped += skipped
            _log.warning(
                "%d records of %s were skipped, %d in all", skipped, self._options.decisions_topic, self.skipped
            )
        if counts or skipped:
            self._report(
                DecisionsProgress(
                    results=dict(counts), duration_s=duration_s, skipped=skipped, examples=tuple(examples)
                )
            )
