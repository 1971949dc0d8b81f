"""Produces the records that did not become rows as dead letters: inside the task with acks=all, flushed before the task
succeeds.

Production is at-least-once: a task that runs again produces them again under the same key, so a reader keeps one of
each key.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka import KafkaProducer
from kafka.errors import KafkaError

from nyala import schemas
from nyala.replica.rows import SourceKey
from nyala.replica.types import PLAINTEXT, KafkaSecurity, RowCode

from .errors import QueryInterrupted, TaskFailed
from .kafka_timeouts import CLOSE_TIMEOUT_S, KAFKA_TIMEOUT_S, check_reachable, producer_options

LETTER_BYTES_MAX = 32 << 20
"""The largest message of a dead-letter topic. A letter is larger than its record, which may be as large as its topic
allows."""

LETTERS_TOPIC = {"max.message.bytes": str(LETTER_BYTES_MAX), "retention.ms": "-1"}
"""Settings of a dead-letter topic that a query creates. A letter may be the only copy of its record that is left, so
Kafka removes none by age."""


@dataclass(frozen=True)
class DeadLetter:
    """One record with its place, the reason and its bytes."""

    kafka_offset: int
    code: RowCode
    column: str
    key: bytes | None
    value: bytes | None
    op_header: bytes | None = None


@dataclass(frozen=True)
class Origin:
    """Where a task's records come from."""

    table: str
    table_id: str
    topic: str
    source: SourceKey
    generation: int


def letter_key(source: SourceKey, kafka_offset: int) -> bytes:
    """Return the Kafka key of a dead letter: one per record of a source."""
    return f"{source.cluster_id}/{source.topic_id}/{source.kafka_partition}/{kafka_offset}".encode()


def encode_letter(origin: Origin, letter: DeadLetter) -> bytes:
    """Encode a letter as bare Avro `DeadLetter`."""
    return schemas.encode(
        "dead_letter",
        {
            "table": origin.table,
            "table_id": origin.table_id,
            "cluster_id": origin.source.cluster_id,
            "topic": origin.topic,
            "topic_id": origin.source.topic_id,
            "kafka_partition": origin.source.kafka_partition,
            "kafka_offset": letter.kafka_offset,
            "generation": origin.generation,
            "code": int(letter.code),
            "reason": letter.code.name,
            "column": letter.column,
            "key": letter.key,
            "value": letter.value,
            "op_header": letter.op_header,
            "at_us": time.time_ns() // 1000,
        },
    )


@dataclass(eq=False)
class DeadLetterSink:
    """One producer per worker process, made for the first letter and kept over tasks. Concurrency: one thread.

    Invariants: a producer that failed once is never used again, because an idempotent one may not recover; letters that
    an earlier task queued and did not wait for are not this task's.
    """

    bootstrap: str
    topic: str
    timeout_s: float = KAFKA_TIMEOUT_S
    security: KafkaSecurity = PLAINTEXT
    _futures: list[Any] = field(default_factory=list, init=False)
    _producer: Any = field(default=None, init=False)

    def begin(self) -> None:
        """Begin a task: forget the letters of an earlier task that failed. That task runs again, and queues them
        again."""
        self._futures = []

    def put(self, origin: Origin, letter: DeadLetter) -> None:
        """Queue one letter; bounded by the producer's own buffer, which blocks when full. TaskFailed (retryable)."""
        key, value = letter_key(origin.source, letter.kafka_offset), encode_letter(origin, letter)
        try:
            self._futures.append(self._connected().send(self.topic, key=key, value=value))
        except (KafkaError, QueryInterrupted) as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        """Return when all are acknowledged; TaskFailed (retryable) if not: the task must not succeed without them."""
        futures, self._futures = self._futures, []
        if not futures:
            return
        try:
            self._producer.flush(timeout=self.timeout_s)
            for future in futures:
                future.get(timeout=self.timeout_s)
        except KafkaError as error:
            raise self._failed(error) from error

    def _connected(self) -> Any:
        if self._producer is None:
            check_reachable(self.bootstrap)
            options = producer_options(self.timeout_s) | self.security.python()
            self._producer = KafkaProducer(
                bootstrap_servers=self.bootstrap, max_request_size=LETTER_BYTES_MAX, **options
            )
        return self._producer

    def _failed(self, error: Exception) -> TaskFailed:
        failed, self._producer, self._futures = self._producer, None, []
        if failed is not None:
            with suppress(KafkaError):
                failed.close(timeout=CLOSE_TIMEOUT_S)
        return TaskFailed(f"dead letters could not be produced to {self.topic}: {error}", fatal=False)
