"""Reads dead letters, and publishes their records again. Both work in pages, because there may be many letters, of up
to 32 MiB each.

If a task ran again, its letters are in the topic twice. Each counts once, because its key is the record's position in
Kafka.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from nyala import schemas
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.rows import SourceKey
from nyala.replica.types import KAFKA_AWAY, PLAINTEXT, KafkaSecurity, ReplicaError

from .dead_letter_producer import LETTER_BYTES_MAX, letter_key
from .errors import QueryInterrupted
from .kafka_timeouts import KAFKA_TIMEOUT_S, check_reachable, client_options, producer_options
from .row_schema import OP_HEADER
from .topics import dead_letter_topic

COUNT_TIMEOUT_S = 15.0
READ_WAIT_S = 30.0
"""If no further record comes within this time, the topic counts as unreadable."""
PAGE_LETTERS_MAX = 500
PAGE_BYTES_MAX = 16 << 20
"""Bounds the bytes of records that wait for Kafka's acknowledgement."""
KEYS_REMEMBERED_MAX = 1_000_000
"""The most keys that are remembered. A repeated letter is found if fewer other letters are between the two."""
FOREIGN = "FOREIGN"
"""The reason of a record in the dead-letter topic that is no dead letter: another program wrote it."""


class LettersUnreadable(ReplicaError):
    """The dead-letter topic could not be read to its end, or a record could not be published again. The text states
    what to do."""


@dataclass(frozen=True)
class StoredDeadLetter:
    """One dead letter as it was written: a dict of schema `dead_letter`, under its key.

    `foreign`: the record is no dead letter; place, `key` and `value` are those of the record in the dead-letter topic.
    """

    letter_key: bytes
    record: dict[str, Any]
    foreign: bool = False

    @property
    def place(self) -> str:
        """Return topic[partition]@offset of the record."""
        r = self.record
        return f"{r['topic']}[{r['kafka_partition']}]@{r['kafka_offset']}"


def iterate_letters(
    bootstrap: str, table: str, *, wait_s: float = READ_WAIT_S, security: KafkaSecurity = PLAINTEXT
) -> Iterator[StoredDeadLetter]:
    """Yield the distinct letters of a table as of now, in the order of their topic; none if there is no such topic.

    The memory is that of one answer of Kafka and of KEYS_REMEMBERED_MAX keys. QueryInterrupted if Kafka does not
    answer.
    """
    topic = dead_letter_topic(table)
    check_reachable(bootstrap)
    seen: OrderedDict[bytes, None] = OrderedDict()
    try:
        options = client_options(wait_s) | security.python()
        consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **options)
        try:
            partitions = [TopicPartition(topic, p) for p in sorted(consumer.partitions_for_topic(topic) or ())]
            for record in _records(consumer, partitions, wait_s):
                letter = letter_of(record)
                if letter.letter_key not in seen:
                    seen[letter.letter_key] = None
                    if len(seen) > KEYS_REMEMBERED_MAX:
                        seen.popitem(last=False)
                    yield letter
        finally:
            consumer.close(autocommit=False)
    except KafkaError as error:
        raise LettersUnreadable(f"{topic} cannot be read: {error}; is the broker at {bootstrap} up?") from error


def letters_held(
    bootstrap: str, tables: Iterable[str], *, security: KafkaSecurity = PLAINTEXT, timeout_s: float = COUNT_TIMEOUT_S
) -> dict[str, int]:
    """Return table -> the number of records in its dead-letter topic, if there are any; in three requests for all
    tables.

    Letters of a task that ran again count twice, and FOREIGN records count, too. So the number of refused records is
    not higher than this, except for letters that were removed. QueryInterrupted if Kafka does not answer.
    """
    check_reachable(bootstrap)
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, **client_options(timeout_s), **security.python()
        )
        try:
            there = consumer.topics()
            topics = {dead_letter_topic(table): table for table in tables if dead_letter_topic(table) in there}
            places = [TopicPartition(t, p) for t in topics for p in consumer.partitions_for_topic(t) or ()]
            first, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        finally:
            consumer.close(autocommit=False)
    except (KafkaError, *KAFKA_AWAY) as error:
        raise QueryInterrupted(f"Kafka at {bootstrap} does not answer: {error}") from error
    held = dict.fromkeys(topics.values(), 0)
    for place in places:
        held[topics[place.topic]] += max(0, ends[place] - first[place])
    return {table: count for table, count in held.items() if count}


def letter_of(record: Any) -> StoredDeadLetter:
    """Return the letter in a record of a dead-letter topic, or a FOREIGN one.

    Other bytes may look like a letter by chance, but their key is not the place that the letter names.
    """
    try:
        found = schemas.decode("dead_letter", record.value)
        source = SourceKey(found["cluster_id"], found["topic_id"], found["kafka_partition"])
        if record.key == letter_key(source, found["kafka_offset"]):
            return StoredDeadLetter(record.key, found)
    except ValueError:
        pass
    return StoredDeadLetter(
        f"{record.partition}@{record.offset}".encode(),
        {
            "topic": record.topic,
            "kafka_partition": record.partition,
            "kafka_offset": record.offset,
            "code": 0,
            "reason": FOREIGN,
            "column": "",
            "key": record.key,
            "value": record.value,
            "op_header": None,
            "at_us": record.timestamp * 1000,
        },
        foreign=True,
    )


class _Undecodable(NamedTuple):
    """A record that Kafka's client cannot decode."""

    topic: str
    partition: int
    offset: int
    key: bytes | None = None
    value: bytes = b""
    timestamp: int = 0


def _records(consumer: Any, partitions: Sequence[Any], wait_s: float) -> Iterator[Any]:
    """Yield all records that the partitions hold now, except tombstones."""
    if not partitions:
        return
    undecodable: list[_Undecodable] = []

    def skipped(partition: TopicPartition, offset: int, _: Exception) -> None:
        undecodable.append(_Undecodable(partition.topic, partition.partition, offset))

    consumer.assign(partitions)
    ends = consumer.end_offsets(partitions)
    consumer.seek_to_beginning(*partitions)
    deadline = time.monotonic() + wait_s
    while any(consumer.position(p) < ends[p] for p in partitions):
        if time.monotonic() > deadline:
            raise LettersUnreadable(f"{partitions[0].topic}: no record came in {wait_s:.0f} s: try again")
        undecodable.clear()
        for place, record in poll(consumer, PAGE_LETTERS_MAX, skipped):
            if record.value is not None and record.offset < ends[place]:
                yield record
            deadline = time.monotonic() + wait_s
        if undecodable:
            yield from undecodable
            deadline = time.monotonic() + wait_s


def replay_letters(
    bootstrap: str, letters: Iterable[StoredDeadLetter], topic: str = "", *, security: KafkaSecurity = PLAINTEXT
) -> int:
    """Publish the letters' records again, to the topic they came from or to `topic`; returns how many Kafka
    acknowledged.

    They go through the ingest query like any record. Unless the cause was repaired before, they become dead letters
    again, with their new offsets. The murmur2 partitioner sends a key to its former partition. Foreign letters are left
    out. LettersUnreadable states how many were acknowledged before a failure.
    """
    check_reachable(bootstrap)
    published = 0
    try:
        options = producer_options(KAFKA_TIMEOUT_S) | security.python()
        producer = KafkaProducer(bootstrap_servers=bootstrap, max_request_size=LETTER_BYTES_MAX, **options)
        try:
            for page in _pages(one for one in letters if not one.foreign):
                sent = [_send(producer, letter.record, topic) for letter in page]
                producer.flush(timeout=KAFKA_TIMEOUT_S)
                for future in sent:
                    future.get(timeout=KAFKA_TIMEOUT_S)
                    published += 1
        finally:
            producer.close(timeout=5)
    except KafkaError as error:
        raise LettersUnreadable(
            f"{published} records were published again, then Kafka failed: {error}. A few more may have been published"
        ) from error
    return published


def _send(producer: Any, record: dict[str, Any], topic: str) -> Any:
    headers = [(OP_HEADER, record["op_header"])] if record["op_header"] else []
    return producer.send(topic or record["topic"], key=record["key"], value=record["value"], headers=headers)


def _pages(letters: Iterable[StoredDeadLetter]) -> Iterator[list[StoredDeadLetter]]:
    page: list[StoredDeadLetter] = []
    size_bytes = 0
    for letter in letters:
        page.append(letter)
        size_bytes += len(letter.record["value"] or b"")
        if len(page) >= PAGE_LETTERS_MAX or size_bytes >= PAGE_BYTES_MAX:
            yield page
            page, size_bytes = [], 0
    if page:
        yield page
