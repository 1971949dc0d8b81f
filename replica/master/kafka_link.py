"""The masters' side of Kafka: one thread publishes, one reads proposals. Kafka may be away at any time, also at start.

While it is away, state is not queued: decisions and reports are re-derived, and on return each is said once.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

from nyala.replica.base import KAFKA_AWAY, PLAINTEXT, Code, KafkaSecurity, kafka_topics
from nyala.schemas import decode, encode

from .outbox import Item, Outbox

_log = logging.getLogger("nyala.master")

PUBLISH_BATCH_MAX = 500
DELIVERY_TIMEOUT_MS = 8_000
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 5.0
WAIT_S = 2.0
KEY_SHOWN_MAX = 64

Consider = Callable[[dict[str, Any]], dict[str, Any] | None]
"""Answers a proposal with an outcome; None: not ours to answer now, ask again later."""


class KafkaLink:
    """Topics `<prefix>decisions`, `proposals`, `outcomes`, `reports`.

    Invariants: a proposal's offset is committed only after its outcome was acknowledged. Durability: Kafka's, acks=all.
    Concurrency: public methods from any thread; two threads of its own.
    """

    def __init__(
        self,
        bootstrap: str,
        prefix: str,
        leads: Callable[[], bool],
        consider: Consider,
        security: KafkaSecurity = PLAINTEXT,
    ) -> None:
        self._common: dict[str, Any] = {
            "bootstrap_servers": bootstrap.split(","),
            "client_id": "nyala-master",
            "request_timeout_ms": 5_000,
            "bootstrap_timeout_ms": 4_000,
            **security.python(),
        }
        """What all clients are given."""
        self._prefix = prefix
        self._leads = leads
        self._consider = consider
        self._outbox = Outbox()
        self._closing = threading.Event()
        self._connected = threading.Event()
        self._connections = 0
        self._threads = [
            threading.Thread(target=self._forever, args=(self._publish,), name="kafka-out", daemon=True),
            threading.Thread(target=self._forever, args=(self._read_proposals,), name="kafka-in", daemon=True),
        ]

    def start(self) -> None:
        """Begin to connect; returns at once."""
        for thread in self._threads:
            thread.start()

    @property
    def connected(self) -> bool:
        """Whether the topics are there and the last publication was acknowledged."""
        return self._connected.is_set()

    @property
    def connection(self) -> int:
        """Number of the connection, 0 while there is none: what was said on an earlier one may not have been heard."""
        return self._connections if self._connected.is_set() else 0

    def close(self) -> None:
        """End both threads; what waits is lost, and re-derived by the next leader."""
        self._closing.set()
        self._outbox.wake()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout=10)

    def say(self, topic: str, key: str, record: dict[str, Any] | None) -> None:
        """Publish state under its key: a record of the schema named as the topic is, or None to delete it."""
        value = None if record is None else encode(topic.removesuffix("s"), record)
        self._outbox.put(Item(self._prefix + topic, key.encode(), value))

    def tell_outcome(self, outcome: dict[str, Any], done: Callable[[], None] | None = None) -> None:
        """Publish an outcome; `done` runs once it is acknowledged."""
        key = str(outcome["tablet_id"]).encode()
        self._outbox.put(
            Item(self._prefix + kafka_topics.OUTCOMES, key, encode("outcome", outcome), event=True, done=done)
        )

    def _forever(self, work: Callable[[], None]) -> None:
        wait_s = RETRY_FIRST_S
        while not self._closing.is_set():
            try:
                work()
                wait_s = RETRY_FIRST_S
            except (KafkaError, *KAFKA_AWAY) as error:
                _log.info("kafka %s: %s %s", threading.current_thread().name, type(error).__name__, error)
            except Exception:  # noqa: BLE001 - the root of this thread: without it a master would be deaf or dumb unseen
                _log.exception("kafka %s failed, and begins anew", threading.current_thread().name)
            self._closing.wait(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)

    def _publish(self) -> None:
        self._create_topics()
        producer = KafkaProducer(
            acks="all", linger_ms=5, delivery_timeout_ms=DELIVERY_TIMEOUT_MS, max_block_ms=5_000, **self._common
        )
        try:
            self._outbox.drop_state()
            self._connections += 1
            self._connected.set()
            _log.info("kafka connected")
            while not self._closing.is_set():
                # A broker that went away is noticed by the next publication, which waits for its acknowledgement.
                items = self._outbox.take(PUBLISH_BATCH_MAX, WAIT_S)
                if items:
                    self._send(producer, items)
        finally:
            self._connected.clear()
            producer.close(timeout=1)

    def _send(self, producer: Any, items: list[Item]) -> None:
        waiting: list[tuple[Item, Any]] = []
        failed: list[Item] = []
        error: Exception | None = None
        for item in items:
            try:
                waiting.append((item, producer.send(item.topic, key=item.key, value=item.value)))
            except (KafkaError, *KAFKA_AWAY) as refused:
                failed.append(item)
                error = refused
        for item, future in waiting:
            try:
                future.get(timeout=DELIVERY_TIMEOUT_MS / 1000 + 2)
            except (KafkaError, *KAFKA_AWAY) as refused:
                failed.append(item)
                error = refused
            else:
                if item.done is not None:
                    item.done()
        if error is not None:
            self._outbox.put_back(failed)
            raise error

    def _create_topics(self) -> None:
        admin = KafkaAdminClient(**self._common)
        try:
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
        finally:
            admin.close()

    def _read_proposals(self) -> None:
        """While this master leads: read from the committed offsets, answer, commit."""
        if not (self._leads() and self.connected):
            return
        topic = self._prefix + kafka_topics.PROPOSALS
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
            partitions = sorted(consumer.partitions_for_topic(topic) or ())
            if not partitions:
                # Right after its creation a topic may not be in the broker's metadata yet.
                raise KafkaError(f"topic {topic} has no partitions yet")
            consumer.assign([TopicPartition(topic, p) for p in partitions])
            while not self._closing.is_set() and self._leads() and self.connected:
                for partition, records in consumer.poll(timeout_ms=500, max_records=100).items():
                    for record in records:
                        if not self._answer(record):
                            return
                        after = OffsetAndMetadata(record.offset + 1, "", -1)
                        consumer.commit({partition: after})
        finally:
            consumer.close(autocommit=False)

    def _answer(self, record: Any) -> bool:
        """Answer one proposal; False: not now, it is read again."""
        try:
            proposal = decode("proposal", record.value)
        except ValueError as error:
            _log.warning("proposal %s[%d]@%d cannot be read: %s", record.topic, record.partition, record.offset, error)
            outcome: dict[str, Any] | None = unreadable(record, error)
        else:
            outcome = self._consider(proposal)
        if outcome is None:
            return False
        acknowledged = threading.Event()
        self.tell_outcome(outcome, acknowledged.set)
        while not acknowledged.wait(0.5):
            if self._closing.is_set() or not self.connected:
                return False
        return True


def unreadable(record: Any, error: Exception) -> dict[str, Any]:
    """The outcome of a record that is no proposal of this build's: its key says which tablet's proposer waits.

    Its plan cannot be known, so `plan_id` is empty.
    """
    return {
        "subject": "PROPOSAL",
        "subject_id": f"{record.topic}[{record.partition}]@{record.offset}",
        "plan_id": "",
        "tablet_id": (record.key or b"")[:KEY_SHOWN_MAX].decode(errors="replace"),
        "result": "REFUSED",
        "code": int(Code.INVALID_ARGUMENT),
        "message": f"the proposal cannot be read ({type(error).__name__}): is its sender of another version?",
        "at_us": time.time_ns() // 1000,
        "catalog_term": 0,
        "version": 0,
        "executor": "",
        "reserved": b"",
    }
