"""The state of a master's work with each Kafka topic, and the counts of records that it could not use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from nyala.replica.decision_executor import Fault
from nyala.replica.types import Clock, kafka_topics

REASON_CHARS_MAX = 300


class Doing(StrEnum):
    """The kinds of work of a master with a topic."""

    PUBLISHES = "publishes"
    READS = "reads"
    """It reads and answers the records, as with proposals."""
    INSPECTS = "inspects"
    """It only counts records that cannot be used."""


class Link(StrEnum):
    """The state of that work. Operators see the values."""

    NEVER_CONNECTED = "never connected"
    CONNECTED = "connected"
    RECONNECTING = "reconnecting"
    NOT_LEADING = "not leading"
    """Only the leading master does this."""
    DEAD = "dead"
    """A defect has ended its thread: an operator must restart this master."""


@dataclass(frozen=True)
class Channel:
    """The present state of one topic. Times of the monotonic clock, in microseconds; None: never."""

    topic: str
    doing: Doing
    link: Link = Link.NEVER_CONNECTED
    success_us: int | None = None
    error: str = ""
    error_us: int | None = None
    failures: int = 0

    @property
    def away(self) -> Link:
        """The state without an answer from Kafka: a channel that has never worked stays NEVER_CONNECTED."""
        return Link.NEVER_CONNECTED if self.success_us is None else Link.RECONNECTING


@dataclass(frozen=True)
class Skipped:
    """Records of one topic that were not used, for one reason; the last of them in detail."""

    topic: str
    fault: Fault
    count: int
    place: str
    reason: str
    last_us: int


CHANNELS = (
    (kafka_topics.DECISIONS, Doing.PUBLISHES),
    (kafka_topics.REPORTS, Doing.PUBLISHES),
    (kafka_topics.OUTCOMES, Doing.PUBLISHES),
    (kafka_topics.HISTORY, Doing.PUBLISHES),
    (kafka_topics.PROPOSALS, Doing.READS),
    *((topic, Doing.INSPECTS) for topic in kafka_topics.PARTITIONS if topic != kafka_topics.PROPOSALS),
)
"""All work of a master with Kafka: each kind, with the topic."""


class KafkaState:
    """The states and counts, which the threads of Kafka write and the master's status reads. Bounded: one entry for
    each topic and reason. Concurrency: any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._channels = {(topic, doing): Channel(topic, doing) for topic, doing in CHANNELS}
        self._skipped: dict[tuple[str, Fault], Skipped] = {}

    def _change(self, doing: Doing, topic: str | None, change: Callable[[Channel], Channel]) -> None:
        """Change the channel of this work with the topic; without a topic, all channels of this work."""
        with self._lock:
            for key, channel in self._channels.items():
                if key[1] is doing and topic in (None, key[0]):
                    self._channels[key] = change(channel)

    def succeeded(self, doing: Doing, topic: str | None = None) -> None:
        """Note that Kafka has answered for the topic; without one, for all of them."""
        now_us = self._clock.monotonic_us()
        self._change(doing, topic, lambda old: replace(old, link=Link.CONNECTED, success_us=now_us))

    def failed(self, doing: Doing, error: BaseException, topic: str | None = None) -> None:
        """Note that Kafka did not answer, or refused. A channel that has never worked stays NEVER_CONNECTED."""
        now_us, what = self._clock.monotonic_us(), f"{type(error).__name__}: {error}"[:REASON_CHARS_MAX]

        def failed(old: Channel) -> Channel:
            return replace(old, link=old.away, error=what, error_us=now_us, failures=old.failures + 1)

        self._change(doing, topic, failed)

    def waits(self, doing: Doing) -> None:
        """Note that this work pauses until the publishing thread reaches Kafka again."""
        self._change(doing, None, lambda old: replace(old, link=old.away))

    def rests(self, doing: Doing) -> None:
        """Note that this master does not lead, so it does not do this work."""
        self._change(doing, None, lambda old: replace(old, link=Link.NOT_LEADING))

    def died(self, doing: Doing, error: BaseException) -> None:
        """Note that the thread of this work has ended by a defect."""
        self.failed(doing, error)
        self._change(doing, None, lambda old: replace(old, link=Link.DEAD))

    def skipped(self, topic: str, fault: Fault, place: str, reason: str) -> int:
        """Count a record that is not used; returns how many there are for this reason."""
        with self._lock:
            old = self._skipped.get((topic, fault))
            count = 1 + (old.count if old is not None else 0)
            reason = "".join(c if c.isprintable() else "?" for c in reason[:REASON_CHARS_MAX])
            self._skipped[topic, fault] = Skipped(topic, fault, count, place, reason, self._clock.monotonic_us())
            return count

    def channels(self) -> list[Channel]:
        """The state of each kind of work, for each topic."""
        with self._lock:
            return list(self._channels.values())

    def all_skipped(self) -> list[Skipped]:
        """The skipped records by topic and reason, since this master started."""
        with self._lock:
            return [self._skipped[key] for key in sorted(self._skipped)]
