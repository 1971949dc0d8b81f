"""How the masters' threads read a topic: whatever stands in it, the thread goes on behind it."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError

POISON = (CorruptRecordError, UnsupportedCodecError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError)
"""What the client raises about bytes that Kafka handed over and that it cannot take apart: it would meet the same bytes
again at the same place for ever. A sender may compress as this client cannot, or name a header in no UTF-8."""

POLL_MS = 500


def poll(consumer: Any, count: int, poisoned: Callable[[Any, int, Exception], None]) -> Iterator[tuple[Any, Any]]:
    """(partition, record) of the next up to `count` records of the consumer's assignment.

    Where the client cannot take apart what is next in a partition, that offset is passed to `poisoned` and stepped
    over. Every partition is looked at by itself then, because the client does not say which one it met.
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
