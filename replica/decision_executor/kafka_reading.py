"""Reads a topic, and goes on after bytes that Kafka's client cannot decode."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from kafka.errors import CorruptRecordError, UnsupportedCodecError

POISON = (CorruptRecordError, UnsupportedCodecError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error, EOFError)
"""Errors of the client about bytes that it cannot decode, such as an unknown codec or a header that is not UTF-8. The
client would read the same bytes at the same offset again for ever."""

POLL_MS = 500


def poll(consumer: Any, count: int, poisoned: Callable[[Any, int, Exception], None]) -> Iterator[tuple[Any, Any]]:
    """(partition, record) of the next up to `count` records of the consumer's assignment.

    If the client cannot decode the next bytes of a partition, that offset is skipped and passed to `poisoned`, behind
    the records. Each partition is polled alone then, because the client does not say which one it failed at.
    """
    bad: dict[Any, tuple[int, Exception]] = {}
    try:
        found = consumer.poll(timeout_ms=POLL_MS, max_records=count)
    except POISON as error:
        found, bad = _poll_each(consumer, count, error)
    for partition, records in found.items():
        for record in records:
            yield partition, record
    for partition, (offset, reason) in bad.items():
        poisoned(partition, offset, reason)


def _poll_each(consumer: Any, count: int, error: Exception) -> tuple[dict[Any, Any], dict[Any, tuple[int, Exception]]]:
    """Return the next records of each partition, and the partitions whose next offset was skipped: offset, error.

    kafka-python 3.0 keeps a fetch that it failed to decode. At the next poll it takes records from it in a loop without
    an end, if the partition is still assigned and at the same offset; else it drops the fetch. So no partition is
    polled again at such an offset before the fetch was dropped. A partition that is paused would keep its fetch, so
    the others are unassigned meanwhile.
    """
    partitions = list(consumer.assignment())
    begin = {partition: consumer.position(partition) for partition in partitions}
    if len(partitions) == 1:
        consumer.seek(partitions[0], begin[partitions[0]] + 1)
        return {}, {partitions[0]: (begin[partitions[0]], error)}
    found: dict[Any, Any] = {}
    bad: dict[Any, tuple[int, Exception]] = {}
    at = dict(begin)
    try:
        for partition in partitions:
            consumer.seek(partition, begin[partition] + 1)
        with suppress(*POISON):
            consumer.poll(timeout_ms=0, max_records=1)
        for partition in partitions:
            consumer.assign([partition])
            consumer.seek(partition, begin[partition])
            try:
                found |= consumer.poll(timeout_ms=POLL_MS, max_records=count)
                at[partition] = consumer.position(partition)
            except POISON as met:
                bad[partition] = begin[partition], met
                at[partition] = begin[partition] + 1
    except BaseException:
        at = begin
        raise
    finally:
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, at[partition])
    return found, bad
