"""Produces the records that did not become rows as dead letters, inside the task.

Production is at-least-once: a task that runs again produces them again, under the same key. So a reader keeps one
letter of each key.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from nyala import schemas
from nyala.replica.rows import SourceKey
from nyala.replica.types import RowCode

from .task_producer import TaskProducer

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


class DeadLetterSink(TaskProducer):
    """The producer of one worker process's dead letters."""

    records = "dead letters"
    request_bytes_max = LETTER_BYTES_MAX

    def put(self, origin: Origin, letter: DeadLetter) -> None:
        """Queue one letter, as `send` does."""
        self.send(letter_key(origin.source, letter.kafka_offset), encode_letter(origin, letter))
