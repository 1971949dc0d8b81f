"""Reads a topic, and goes on after bytes that Kafka's client cannot decode."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError

POISON = (CorruptRecordError, UnsupportedCodecError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError)
"""Errors of the client about bytes that it cannot decode, such as an unknown codec or a header that is not UTF-8. The
client would read the same bytes at the same offset again for ever."""

POLL_MS = 500


def poll(consumer: Any, count: int, poisoned: Callable[[Any, int, Exception], None]) -> Iterator[tuple[Any, Any]]:
    """(partition, record) of the next up to `count` records of the consumer's assignment.

    If the client cannot decode the next bytes of a partition, that offset is passed to `poisoned` and skipped. Each
    partition is polled alone then, because the client does not say which one it failed at.
    """
    try:
        found = consumer.poll(timeout_ms=POLL_MS, max_records=count)
    except POISON:
        for partition in consumer.assignment():
            yield from _poll_one(consumer, partition, count, poisoned)
        return
    for partition, records in found.items():
        for record in records:
            yield partition, record


def _poll_one(
    consumer: Any, partition: Any, count: int, poisoned: Callable[[Any, int, Exception], None]
) -> Iterator[tuple[Any, Any]]:
    others = [each for each in consumer.assignment() if each != partition]
    consumer.pause(*others)
    try:
        found = consumer.poll(timeout_ms=POLL_MS, max_records=count)
    except POISON as error:
        at = consumer.position(partition)
        consumer.seek(partition, at + 1)
        poisoned(partition, at, error)
        return
    finally:
        consumer.resume(*others)
    for record in found.get(partition, ()):
        yield partition, record
