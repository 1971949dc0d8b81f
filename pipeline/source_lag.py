"""Measures how far a table is behind its topic: the number of records that are not in it yet, and the age of the oldest
one."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from nyala.replica.decision_executor.kafka_reading import POISON
from nyala.replica.types import KAFKA_AWAY, PLAINTEXT, KafkaSecurity

from .errors import QueryInterrupted
from .kafka_timeouts import check_reachable, client_options

LAG_TIMEOUT_S = 15.0
OLDEST_WITHIN_S = 5.0
"""The time to read the oldest records of all partitions; a record that does not come by then has an unknown age."""


class SourceLag(NamedTuple):
    """The lag of one Kafka partition. `records`: offsets from `done` to the end, transaction markers included.
    `seconds`: the age of the record at `done`, by its timestamp; 0 without records, None if Kafka did not answer, or if
    its client cannot decode the record."""

    records: int
    seconds: float | None


def source_lags(
    bootstrap: str,
    topic: str,
    done: Mapping[int, int],
    *,
    security: KafkaSecurity = PLAINTEXT,
    now: Callable[[], float] = time.time,
) -> dict[int, SourceLag]:
    """Return the lag of each Kafka partition. `done`: partition -> the first offset that is not in the table.
    QueryInterrupted."""
    check_reachable(bootstrap)
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=bootstrap,
            enable_auto_commit=False,
            max_poll_records=1,
            **client_options(LAG_TIMEOUT_S),
            **security.python(),
        )
        try:
            places = {TopicPartition(topic, number): offset for number, offset in done.items()}
            ends = consumer.end_offsets(list(places))
            late = {place: offset for place, offset in places.items() if offset < ends[place]}
            written = _written_at(consumer, late)
        finally:
            consumer.close()
    except (KafkaError, *KAFKA_AWAY) as error:
        raise QueryInterrupted(f"Kafka at {bootstrap} does not answer: {error}") from error
    found = {}
    for place, offset in places.items():
        ms = written.get(place, -1)
        age_s = max(0.0, now() - ms / 1000) if ms >= 0 else None
        found[place.partition] = SourceLag(max(0, ends[place] - offset), age_s if place in late else 0.0)
    return found


def _written_at(consumer: Any, late: Mapping[Any, int]) -> dict[Any, int]:
    """Return the times, in ms since 1970, at which the first record at or after each offset was written. Records that
    do not come in time are left out."""
    found: dict[Any, int] = {}
    until = time.monotonic() + OLDEST_WITHIN_S
    for place, offset in late.items():
        # One partition at a time, and one record: a poll of all may return any number of records of one and none of
        # others.
        consumer.assign([place])
        consumer.seek(place, offset)
        left_s = until - time.monotonic()
        if left_s <= 0:
            break
        with suppress(*POISON):  # the next partition is another assignment, which the client's next poll takes anew
            for records in consumer.poll(timeout_ms=int(1000 * left_s)).values():
                for record in records[:1]:
                    found[place] = int(record.timestamp if record.timestamp is not None else -1)
    return found
