"""Produces records inside a Spark task with acks=all. They are flushed before the task succeeds.

Production is at-least-once: a task that runs again produces its records again.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kafka import KafkaProducer
from kafka.errors import KafkaError

from nyala.replica.types import PLAINTEXT, KafkaSecurity

from .errors import QueryInterrupted, TaskFailed
from .kafka_timeouts import CLOSE_TIMEOUT_S, KAFKA_TIMEOUT_S, check_reachable, producer_options


@dataclass(eq=False)
class TaskProducer:
    """One producer per worker process and topic, made for the first record and kept over tasks. Concurrency: one
    thread.

    Invariants: a producer that failed once is never used again, because an idempotent one may not recover; records that
    an earlier task queued without waiting for them do not count for this task.
    """

    records: ClassVar[str] = "outcomes"
    """The name of the records, in errors."""
    request_bytes_max: ClassVar[int] = 1 << 20
    """The largest request, and so the largest record; Kafka's default for a topic's records is the same."""

    bootstrap: str
    topic: str
    timeout_s: float = KAFKA_TIMEOUT_S
    security: KafkaSecurity = PLAINTEXT
    _futures: list[Any] = field(default_factory=list, init=False)
    _producer: Any = field(default=None, init=False)

    def begin(self) -> None:
        """Begin a task: forget the records of an earlier task that failed. That task runs again, and queues them
        again."""
        self._futures = []

    def send(self, key: bytes, value: bytes) -> None:
        """Queue one record; bounded by the producer's own buffer, which blocks when full. TaskFailed (retryable)."""
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
                bootstrap_servers=self.bootstrap, max_request_size=self.request_bytes_max, **options
            )
        return self._producer

    def _failed(self, error: Exception) -> TaskFailed:
        failed, self._producer, self._futures = self._producer, None, []
        if failed is not None:
            with suppress(KafkaError):
                failed.close(timeout=CLOSE_TIMEOUT_S)
        return TaskFailed(f"{self.records} could not be produced to {self.topic}: {error}", fatal=False)
