"""The masters' side of Kafka: one thread publishes, one reads proposals, one inspects the other topics.

Kafka may be unreachable at any time, also at the start. Meanwhile the newest value of each key waits, not a backlog.
When Kafka is back, decisions and reports are derived again, and each is published once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from nyala.replica.decision_executor import TOPICS, Fault, Unusable, read_record
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.types import (
    KAFKA_AWAY,
    PLAINTEXT,
    Clock,
    Decision,
    HistoryEvent,
    KafkaSecurity,
    Outcome,
    Report,
    SystemClock,
    kafka_topics,
)
from nyala.schemas import encode_record

from .kafka_state import CHANNELS, Doing, KafkaState
from .outbox import Item, Outbox
from .proposals import Consider, Proposals, place_of

_log = logging.getLogger("nyala.master")

PUBLISH_BATCH_MAX = 500
DELIVERY_TIMEOUT_MS = 8_000
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0
WAIT_S = 2.0
PROBE_S = 4.0
"""If there is nothing to publish for this many seconds, the publisher asks Kafka for its topics, to notice an
outage."""
READ_MAX = 100
INSPECT_BACK = 10_000
"""A master that begins to lead inspects this many records before the end of each partition."""
INSPECT_PER_S_MAX = 1_000
INSPECT_POLL_MAX = 200
OVERWRITTEN_MAX = 1_000


class KafkaLink:
    """Topics `<prefix>decisions`, `proposals`, `outcomes`, `reports`, `history`.

    Invariants: a proposal's offset is committed only after its outcome was acknowledged; no record stops a thread.
    Durability: Kafka's, acks=all. Concurrency: public methods from any thread; three threads of its own.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        leads: Callable[[], bool],
        consider: Consider,
        security: KafkaSecurity = PLAINTEXT,
        *,
        clock: Clock | None = None,
        on_defect: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        """`on_defect` gets the error that ended a thread for good; it is called on that thread."""
        self.bootstrap = bootstrap
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "client_id": "nyala-master",
            "request_timeout_ms": 5_000,
            "bootstrap_timeout_ms": 4_000,
            **security.python(),
        }
        """The options of all Kafka clients."""
        self._prefix = prefix
        self._leads = leads
        self._on_defect = on_defect
        self.state = KafkaState(clock or SystemClock())
        self._proposals = Proposals(consider, self.state, leads)
        self._outbox = Outbox()
        self._closing = threading.Event()
        self._connected = threading.Event()
        self._connections = 0
        self._overwritten: deque[str] = deque(maxlen=OVERWRITTEN_MAX)
        self._threads = [
            threading.Thread(target=self._forever, args=(work, doing), name=name, daemon=True)
            for work, doing, name in (
                (self._publish, Doing.PUBLISHES, "kafka-out"),
                (self._read_proposals, Doing.READS, "kafka-in"),
                (self._inspect, Doing.INSPECTS, "kafka-watch"),
            )
        ]

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for thread in self._threads:
            thread.start()

    @property
    def connected(self) -> bool:
        """Whether the topics exist, and Kafka answered the last request, at most some seconds ago."""
        return self._connected.is_set()

    @property
    def connection(self) -> int:
        """Number of the connection; 0 while there is none. Records published on an earlier one may be lost."""
        return self._connections if self._connected.is_set() else 0

    @property
    def dropped(self) -> int:
        """Records that were dropped because too many waited."""
        return self._outbox.dropped

    @property
    def waiting(self) -> int:
        """Records of state that wait to be published."""
        return self._outbox.waiting

    def close(self) -> None:
        """End the threads. Waiting records are lost; the next leader derives them again."""
        self._closing.set()
        self._outbox.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)

    def publish(self, topic: str, key: str, record: Decision | Report | None) -> None:
        """Publish state under its key, or None to delete it."""
        value = None if record is None else encode_record(record)
        self._outbox.put(Item(self._prefix + topic, key.encode(), value))

    def publish_outcome(self, outcome: Outcome, done: Callable[[], None] | None = None) -> None:
        """Publish an outcome; `done` runs once it is acknowledged."""
        key, value = outcome.tablet_id.encode(), encode_record(outcome)
        self._outbox.put(Item(self._prefix + kafka_topics.OUTCOMES, key, value, event=True, done=done))

    def append_history(self, event: HistoryEvent, done: Callable[[], None]) -> None:
        """Append an event; `done` runs once it is acknowledged, on the publisher's thread."""
        key, value = event.tablet_id.encode(), encode_record(event)
        self._outbox.put(Item(self._prefix + kafka_topics.HISTORY, key, value, event=True, done=done))

    def _forever(self, work: Callable[[], None], doing: Doing = Doing.PUBLISHES) -> None:
        wait_s = RETRY_FIRST_S
        try:
            while not self._closing.is_set():
                try:
                    work()
                    wait_s = RETRY_FIRST_S
                except (KafkaError, *KAFKA_AWAY) as error:
                    _log.info("kafka %s: %s %s", threading.current_thread().name, type(error).__name__, error)
                    self.state.failed(doing, error)
                except Exception as error:  # noqa: BLE001 - without this the thread would end unseen
                    _log.exception("kafka %s failed, and begins anew", threading.current_thread().name)
                    self.state.failed(doing, error)
                self._closing.wait(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        except BaseException as error:  # noqa: BLE001 - the root of this thread: no other code sees it
            self.state.died(doing, error)
            _log.critical("kafka %s has ended: %s", threading.current_thread().name, error, exc_info=error)
            self._on_defect(error)

    def _publish(self) -> None:
        admin = KafkaAdminClient(**self._common)
        try:
            self._create_topics(admin)
            producer = KafkaProducer(
                acks="all", linger_ms=5, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, max_block_ms=5_000, **self._common
            )
            try:
                self._outbox.drop_state()
                self._connections += 1
                self._connected.set()
                self.state.succeeded(Doing.PUBLISHES)
                _log.info("kafka connected")
                self._publish_from(admin, producer)
            finally:
                self._connected.clear()
                producer.close(timeout=1)
        finally:
            admin.close()

    def _publish_from(self, admin: Any, producer: Any) -> None:
        idle_since_s = time.monotonic()
        while not self._closing.is_set():
            items = self._outbox.take(PUBLISH_BATCH_MAX, WAIT_S)
            if items:
                self._send(producer, items)
                idle_since_s = time.monotonic()
            elif time.monotonic() - idle_since_s >= PROBE_S:
                self._check_topics(admin)
                idle_since_s = time.monotonic()

    def _check_topics(self, admin: Any) -> None:
        """Raise KafkaError if Kafka does not answer, or has lost one of the topics. The next connection makes the
        topics again."""
        missing = {self._prefix + name for name in kafka_topics.PARTITIONS} - set(admin.list_topics())
        if missing:
            raise KafkaError(f"Kafka has no topic {', '.join(sorted(missing))}")
        self.state.succeeded(Doing.PUBLISHES)

    def _send(self, producer: Any, items: list[Item]) -> None:
        """Publish these records. Each one that Kafka does not acknowledge is queued again, whatever the error is."""
        left, waiting = list(items), list[tuple[Item, Any]]()
        error: Exception | None = None
        try:
            for item in items:
                try:
                    waiting.append((item, producer.send(item.topic, key=item.key, value=item.value)))
                except (KafkaError, *KAFKA_AWAY) as refused:
                    error = refused
            for item, future in waiting:
                try:
                    future.get(timeout=DELIVERY_TIMEOUT_MS / 1000 + 2)
                except (KafkaError, *KAFKA_AWAY) as refused:
                    error = refused
                else:
                    left.remove(item)
                    self.state.succeeded(Doing.PUBLISHES, self._bare(item.topic))
                    if item.done is not None:
                        item.done()
        finally:
            self._outbox.put_back(left)
        if error is not None:
            raise error

    def _create_topics(self, admin: Any) -> None:
        there = set(admin.list_topics())
        for name, partitions in kafka_topics.PARTITIONS.items():
            if self._prefix + name in there:
                continue
            settings = kafka_topics.settings_of(name)
            topic = NewTopic(self._prefix + name, partitions, -1, topic_configs=settings)
            try:
                admin.create_topics([topic], timeout_ms=5_000)
            except TopicAlreadyExistsError:
                continue

    def _may_read(self, doing: Doing) -> bool:
        """Whether this thread may read now: only the leading master reads."""
        if not self._leads():
            self.state.rests(doing)
        elif not self.connected:
            self.state.waits(doing)
        return not self._closing.is_set() and self._leads() and self.connected

    def _records(self, consumer: Any, doing: Doing, count: int) -> Iterator[tuple[Any, Any]]:
        """(partition, record) of the consumer's partitions, for as long as this thread may read."""
        heard_s = time.monotonic()
        while self._may_read(doing):
            step = self._poisoned(consumer, commit=doing is Doing.READS)
            for partition, record in poll(consumer, count, step):
                heard_s = time.monotonic()
                self.state.succeeded(doing, self._bare(record.topic))
                yield partition, record
            if time.monotonic() - heard_s >= PROBE_S:
                # Without a broker a poll returns nothing and raises nothing.
                consumer.end_offsets(consumer.assignment())
                heard_s = time.monotonic()
                self.state.succeeded(doing)

    def _bare(self, topic: str) -> str:
        return topic.removeprefix(self._prefix)

    def _partitions(self, consumer: Any, topic: str) -> list[Any]:
        partitions = sorted(consumer.partitions_for_topic(self._prefix + topic) or ())
        if not partitions:
            # Right after its creation a topic may not be in the broker's metadata yet.
            raise KafkaError(f"topic {self._prefix + topic} has no partitions yet")
        return [TopicPartition(self._prefix + topic, p) for p in partitions]

    def _read_proposals(self) -> None:
        """While this master leads: read from the committed offsets, answer, commit."""
        if not self._may_read(Doing.READS):
            return
        consumer = KafkaConsumer(
            group_id=f"{self._prefix}nyala-masters",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=4_000,
            heartbeat_interval_ms=1_000,
            max_poll_interval_ms=4_500,
            **self._common,
        )
        try:
            consumer.assign(self._partitions(consumer, kafka_topics.PROPOSALS))
            self.state.succeeded(Doing.READS)
            for partition, record in self._records(consumer, Doing.READS, READ_MAX):
                if not self._answer(record):
                    return
                self._commit(consumer, partition, record.offset + 1)
        finally:
            consumer.close(autocommit=False)

    def _commit(self, consumer: Any, partition: Any, offset: int) -> None:
        consumer.commit({partition: OffsetAndMetadata(offset, "", -1)})

    def _poisoned(self, consumer: Any, *, commit: bool) -> Callable[[Any, int, Exception], None]:
        """Counts an offset whose bytes the client cannot decode, and commits the next one."""

        def step(partition: Any, offset: int, error: Exception) -> None:
            place = f"{partition.topic}[{partition.partition}]@{offset}"
            self.state.skipped(
                self._bare(partition.topic), Fault.OTHER_SCHEMA, place, f"{type(error).__name__}: {error}"
            )
            if commit:
                self._commit(consumer, partition, offset + 1)

        return step

    def _answer(self, record: Any) -> bool:
        """Answer one proposal. Returns False if that is not possible now; the proposal is read again."""
        outcome = self._proposals.outcome_of(record)
        if outcome is None:
            return False
        acknowledged = threading.Event()
        self.publish_outcome(outcome, acknowledged.set)
        while not acknowledged.wait(0.5):
            if self._closing.is_set() or not self.connected:
                return False
        return True

    def _inspect(self) -> None:
        """While this master leads, inspect the topics that masters and executors write. Other clients may write to
        them, too, so records that cannot be used are counted."""
        if not self._may_read(Doing.INSPECTS):
            return
        consumer = KafkaConsumer(enable_auto_commit=False, auto_offset_reset="earliest", **self._common)
        try:
            topics = [topic for topic, doing in CHANNELS if doing is Doing.INSPECTS]
            partitions = [p for topic in topics for p in self._partitions(consumer, topic)]
            consumer.assign(partitions)
            ends, begins = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
            for partition in partitions:
                consumer.seek(partition, max(begins[partition], ends[partition] - INSPECT_BACK))
            self.state.succeeded(Doing.INSPECTS)
            began_s = time.monotonic()
            for count, (_, record) in enumerate(self._records(consumer, Doing.INSPECTS, INSPECT_POLL_MAX), start=1):
                self.inspect(record)
                if count % INSPECT_POLL_MAX == 0:  # a flood costs a bounded share of this process
                    self._closing.wait(max(0.0, INSPECT_POLL_MAX / INSPECT_PER_S_MAX - (time.monotonic() - began_s)))
                    began_s = time.monotonic()
        finally:
            consumer.close(autocommit=False)

    def inspect(self, record: Any) -> None:
        """Count one record of such a topic if it cannot be used."""
        topic = self._bare(record.topic)
        if record.value is None and record.key and topic in kafka_topics.COMPACTED:
            return  # a deletion of state
        found = read_record(TOPICS[topic], record.key, record.value)
        if isinstance(found, Unusable):
            self.state.skipped(topic, found.fault, place_of(record), found.reason)
            if topic == kafka_topics.REPORTS and record.key:
                self._overwritten.append(record.key.decode(errors="replace"))

    def overwritten(self) -> set[str]:
        """Keys of reports that another client has overwritten lately; each is returned once."""
        return {self._overwritten.popleft() for _ in range(len(self._overwritten))}
