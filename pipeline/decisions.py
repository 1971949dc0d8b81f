"""The decisions query: Kafka `decisions` -> the executor at each tablet's leader -> `outcomes`. It runs on the driver
alone.

A micro-batch may run again: executing a decision twice, late or out of order is safe, because the leader checks term,
version, config and deadline. After a failed decision the masters decide anew.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from nyala.replica.client import Client, parse_masters
from nyala.replica.decision_executor import Unusable, execute, outcome_of, read_record
from nyala.replica.types import Code, Decision, Outcome, Refused, check, kafka_topics
from nyala.schemas import encode_record

from .errors import QueryInterrupted, QueryRefused, of_refusal, of_spark
from .kafka_security import security_of
from .kafka_timeouts import CLOSE_TIMEOUT_S, KAFKA_TIMEOUT_S, check_reachable, producer_options, spark_options
from .session import interrupted_in_order, stop_query
from .topics import Topics

_log = logging.getLogger("nyala.pipeline")
PARALLEL_MAX = 8
RETRY_PAUSE_S = 0.5
RETRY_FOR_S = 20.0
"""How long one decision is executed again; after it the outcome is FAILED and the masters decide anew."""


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


NO_CEILING = 1 << 63


def newest(
    records: Iterable[tuple[bytes | None, bytes | None, int]],
    terms: dict[bytes, int],
    *,
    term_max: int = NO_CEILING,
    skip: Callable[[int, str], None] = lambda offset, reason: None,
) -> list[Decision]:
    """Return the decisions in force of (key, value, offset) records: the last of each tablet, withdrawn ones left out.

    `terms`: the highest catalog term of each key so far; this function updates it. A decision of a lower term is left
    out, because a deposed master wrote it, or wrote it earlier. A term above `term_max`, which is the masters' own, is
    of no master: such a decision is left out, and so is a record that is no decision. `skip` is called with the offset
    and the reason of each.
    """
    in_force: dict[bytes, tuple[int, Decision]] = {}
    for key, value, offset in sorted(records, key=lambda record: record[2]):
        if key is not None and value is None:
            in_force.pop(key, None)
            continue
        decision = read_record(Decision, key, value)
        if isinstance(decision, Unusable):
            skip(offset, decision.reason)
        elif decision.catalog_term > term_max:
            skip(offset, f"no master has reached the catalog term {decision.catalog_term}, they are at {term_max}")
        elif key is not None and decision.catalog_term >= terms.get(key, 0):
            terms[key] = decision.catalog_term
            in_force[key] = (offset, decision)
    return [decision for _, decision in sorted(in_force.values(), key=lambda each: each[0])]


def term_of(key: bytes | None, value: bytes | None) -> int:
    """Return the catalog term of a decision; 0 of anything else."""
    decision = read_record(Decision, key, value)
    return 0 if isinstance(decision, Unusable) else decision.catalog_term


def carry_out(
    decision: Decision,
    client: Client,
    *,
    wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    pause: Callable[[float], None] = time.sleep,
) -> Outcome:
    """Execute a decision, and again while that may help and its deadline has not passed; returns its outcome."""
    until_us = wall_us() + int(RETRY_FOR_S * 1e6)
    if decision.deadline_us > 0:
        until_us = min(until_us, decision.deadline_us)
    while True:
        try:
            outcome = execute(decision, client, now_us=wall_us)
        except Exception as error:  # noqa: BLE001 - a decision that meets a defect would end every run of the query
            _log.exception("T %s a decision could not be carried out", decision.tablet_id)
            return outcome_of(decision, Refused(Code.ILLEGAL_STATE, f"{type(error).__name__}: {error}"))
        if not outcome.retryable or wall_us() >= until_us:
            return outcome
        pause(RETRY_PAUSE_S)


class DecisionsQuery:
    """One run of the query. `report` receives a line for each outcome. Concurrency: as IngestQuery."""

    def __init__(
        self, spark: Any, options: DecisionsOptions, report: Callable[[Outcome], None] = lambda _: None
    ) -> None:
        self._spark = spark
        self._options = options
        self._report = report
        self._query: Any = None
        self._failure: BaseException | None = None
        self._stopping = threading.Event()
        self._security = security_of(options.kafka)
        self._client = Client(parse_masters(options.masters))
        self._producer: Any = None
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
            self._close_producer()
            self._client.close()

    def _run(self) -> None:
        try:
            self._ensure_topics()
            self._producer = self._new_producer()
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

    def _new_producer(self) -> Any:
        bootstrap = self._options.bootstrap
        check_reachable(bootstrap)
        options = producer_options(self._options.kafka_timeout_s) | self._security.python()
        return KafkaProducer(bootstrap_servers=bootstrap, **options)

    def _close_producer(self) -> None:
        try:
            if self._producer is not None:
                self._producer.close(timeout=CLOSE_TIMEOUT_S)
        except KafkaError:
            # An outcome was not published: its micro-batch runs again.
            return

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
        # The topic is compacted: a decision that is gone was replaced or withdrawn.
        reader = reader.option("failOnDataLoss", "false").option("kafka.isolation.level", "read_committed")
        writer = reader.load().select("key", "value", "offset").writeStream.foreachBatch(self._micro_batch)
        writer = writer.queryName("nyala decisions").option("checkpointLocation", options.checkpoint)
        return (writer.trigger(availableNow=True) if options.available_now else writer).start()

    def _micro_batch(self, rows: Any, _: int) -> None:
        try:
            records = [(row.key, row.value, row.offset) for row in rows.toLocalIterator()]
            decisions = newest(records, self._terms, term_max=self._term_max(records), skip=self._skip)
            if decisions:
                with ThreadPoolExecutor(PARALLEL_MAX, thread_name_prefix="decision") as pool:
                    outcomes = list(pool.map(lambda each: carry_out(each, self._client), decisions))
                self._publish(outcomes)
        except Exception as error:
            self._failure = of_spark(error)
            raise

    def _term_max(self, records: Iterable[tuple[bytes | None, bytes | None, int]]) -> int:
        """Return the catalog term that the masters have reached; they are asked again only for a decision that is above
        it.

        While no master answers, every decision is tried, because the tablets' leaders check the term too.
        """
        highest = max((term_of(key, value) for key, value, _ in records), default=0)
        if highest <= self._term_known:
            return self._term_known
        self._term_known = max(self._term_known, self._client.catalog_term())
        return self._term_known or NO_CEILING

    def _skip(self, offset: int, reason: str) -> None:
        self.skipped += 1
        if self.skipped & (self.skipped - 1) == 0:  # the first, second, fourth, ...: a flood does not fill the log
            _log.warning("record at offset %d of %s is skipped, number %d: %s",
                         offset, self._options.decisions_topic, self.skipped, reason)  # fmt: skip

    def _publish(self, outcomes: list[Outcome]) -> None:
        sent = []
        for outcome in outcomes:
            value = encode_record(replace(outcome, executor=self._options.executor, at_us=time.time_ns() // 1000))
            sent.append(self._producer.send(self._options.outcomes_topic, key=outcome.tablet_id.encode(), value=value))
        self._producer.flush(timeout=self._options.kafka_timeout_s)
        for future, outcome in zip(sent, outcomes, strict=True):
            future.get(timeout=self._options.kafka_timeout_s)
            self._report(outcome)
