"""Reading dead letters back, and publishing their records again.

A letter that was produced twice, because its task ran again, counts once: letters are keyed by their place in Kafka.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from nyala import schemas

from .dead_letters import LETTER_BYTES_MAX
from .row_schema import OP_HEADER
from .topics import dead_letter_topic

READ_WAIT_S = 30.0
FLUSH_WAIT_S = 60.0


class LettersUnreadable(Exception):
    """The dead-letter topic could not be read to its end, or a record not published again; the text says what to do."""


@dataclass(frozen=True)
class Letter:
    """One dead letter as it was written: a dict of schema `dead_letter`, under its key."""

    letter_key: bytes
    record: dict[str, Any]

    @property
    def place(self) -> str:
        """topic[partition]@offset of the record."""
        r = self.record
        return f"{r['topic']}[{r['kafka_partition']}]@{r['kafka_offset']}"


def read_letters(bootstrap: str, table: str, *, wait_s: float = READ_WAIT_S) -> list[Letter]:
    """All distinct letters of a table as of now, by topic, partition and offset; empty if there is no such topic."""
    topic = dead_letter_topic(table)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest")
    try:
        partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
        letters = {
            key: Letter(key, schemas.decode("dead_letter", value)) for key, value in _all(consumer, partitions, wait_s)
        }
    except KafkaError as error:
        raise LettersUnreadable(f"{topic} cannot be read: {error}; is the broker at {bootstrap} up?") from error
    finally:
        consumer.close(autocommit=False)
    return sorted(
        letters.values(),
        key=lambda one: (one.record["topic"], one.record["kafka_partition"], one.record["kafka_offset"]),
    )


def _all(consumer: Any, partitions: Sequence[Any], wait_s: float) -> Iterator[tuple[bytes, bytes]]:
    if not partitions:
        return
    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    consumer.seek_to_beginning(*partitions)
    deadline = time.monotonic() + wait_s
    while any(consumer.position(p) < ends[p] for p in partitions):
        if time.monotonic() > deadline:
            raise LettersUnreadable(f"{partitions[0].topic} could not be read to its end in {wait_s:.0f} s: try again")
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                if record.value is not None:
                    yield record.key, record.value


def replay_letters(bootstrap: str, letters: Sequence[Letter], topic: str = "") -> int:
    """Publish the letters' records again, to the topic they came from or to `topic`; how many Kafka acknowledged.

    They go through the ingest query like any record: what was wrong with them must have been mended first, or they
    come back as dead letters of their new offsets. The murmur2 partitioner sends a key where it came from.
    """
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, max_request_size=LETTER_BYTES_MAX
    )
    try:
        sent = [
            producer.send(
                topic or letter.record["topic"],
                key=letter.record["key"],
                value=letter.record["value"],
                headers=[(OP_HEADER, letter.record["op_header"])] if letter.record["op_header"] else [],
            )
            for letter in letters
        ]
        producer.flush(timeout=FLUSH_WAIT_S)
        for future in sent:
            future.get(timeout=FLUSH_WAIT_S)
    except KafkaError as error:
        raise LettersUnreadable(f"not every record was published again: {error}; some may have been") from error
    finally:
        producer.close(timeout=5)
    return len(letters)
