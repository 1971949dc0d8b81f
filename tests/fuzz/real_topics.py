"""Hostile records on the masters' topics of a real broker, and whether the leading master still answers proposals."""

from __future__ import annotations

import asyncio
import secrets
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import Any

from nyala import schemas
from nyala.replica.decision_executor import Unusable, read_record
from nyala.replica.rpc import pb
from nyala.replica.types import Outcome, Result, kafka_topics
from tests.formats import test_topic_formats as golden
from tests.fuzz.target import Broken
from tests.fuzz.topic_targets import unpack

with warnings.catch_warnings():  # kafka-python reads its message formats by a call that Python 3.11 deprecates
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError, MessageSizeTooLargeError

CONNECTED = "connected"
POLL_MS = 200
_PROPOSAL = golden.DATA["proposal"].fields
_TABLET = str(_PROPOSAL["tablet_id"]).encode()


def _text(value: bytes) -> bytes:
    """Return a short text as Avro writes it."""
    return bytes((2 * len(value),)) + value


def _long(number: int) -> bytes:
    """Return a number of at least 0 as Avro writes it."""
    left, out = 2 * number, bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes((*out, left))


def _opid(term: int, index: int) -> bytes:
    return _long(term) + _long(index)


class MastersTopics:
    """The topics of one cluster's masters. Concurrency: one thread."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producer = KafkaProducer(bootstrap_servers=bootstrap, acks="all", linger_ms=5)

    def close(self) -> None:
        self._producer.close()

    def sender(self, topic: str, tablet: Any, members: list[str]) -> Callable[[bytes], Awaitable[str]]:
        """Return a function that publishes an input about this tablet, and says what came of it. It does not wait until
        a master has read the record."""
        opid, seen = _PROPOSAL["config_opid"], tablet.config.opid
        ids = {
            _text(_TABLET): _text(tablet.tablet_id.encode()),
            _opid(opid["term"], opid["index"]): _opid(seen.term, seen.index),
            _long(_PROPOSAL["deadline_us"]): _long(0),
        } | {uuid.encode(): real.encode() for uuid, real in zip(("a" * 32, "b" * 32, "c" * 32), members, strict=True)}

        async def send(data: bytes) -> str:
            key, value = unpack(data)
            if key == _TABLET:
                key = tablet.tablet_id.encode()
            for old, new in ids.items() if value is not None else ():
                value = value.replace(old, new) if value is not None else None
            if key is None and topic in kafka_topics.COMPACTED:
                return "not published"  # the broker refuses it, and all records that come with it
            try:
                sent = self._producer.send(topic, key=key, value=value)
                await asyncio.to_thread(sent.get, 60)
            except (MessageSizeTooLargeError, AssertionError):  # the client publishes no record without key and value
                return "not published"
            except KafkaError as error:
                raise Broken(f"{topic}: the broker took no record: {error!r}") from error
            return "published"

        return send

    def check(self, at_master: Any, patience_s: float) -> None:
        """Check that an honest proposal is answered, after all records before it, and that the master reads and
        publishes every topic."""
        self._check_answered(patience_s)
        deadline = time.monotonic() + patience_s
        while True:
            status = at_master.Status(pb.Empty(), timeout=patience_s)
            away = [channel for channel in status.kafka if channel.link != CONNECTED]
            if status.kafka and not away:
                return
            if time.monotonic() > deadline:
                raise Broken(f"the master does not use its topics: {away or 'it has none'}")
            time.sleep(0.05)

    def _check_answered(self, patience_s: float) -> None:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False)
        partition = TopicPartition(kafka_topics.OUTCOMES, 0)
        try:
            consumer.assign([partition])
            consumer.seek_to_end(partition)
            consumer.position(partition)
            own = f"honest/{secrets.token_hex(8)}"
            record = schemas.encode("proposal", _PROPOSAL | {"proposal_id": own})
            self._producer.send(kafka_topics.PROPOSALS, key=_TABLET, value=record).get(60)
            deadline = time.monotonic() + patience_s
            while time.monotonic() < deadline:
                for each in (r for records in consumer.poll(POLL_MS).values() for r in records):
                    outcome = read_record(Outcome, each.key, each.value)
                    if not isinstance(outcome, Unusable) and outcome.subject_id == own:
                        if outcome.result is not Result.REFUSED:
                            raise Broken(f"a proposal about no tablet is not refused: {outcome}")
                        return
            raise Broken(f"an honest proposal is not answered within {patience_s:g} s")
        finally:
            consumer.close()
