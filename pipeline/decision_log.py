"""Reads proposals, decisions and outcomes from the masters' topics, as events of `decision_story`.

Any client of Kafka may write to these topics. So a record that cannot be read is counted and left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.consumer.fetcher import ConsumerRecord
from kafka.errors import KafkaError

from nyala.replica.decision_executor import TOPICS, Unusable, read_record
from nyala.replica.decision_executor.kafka_reading import poll
from nyala.replica.types import (
    KAFKA_AWAY,
    PLAINTEXT,
    EventKind,
    HistoryEvent,
    KafkaSecurity,
    kafka_topics,
    limits,
)

from .decision_story import Event, event_of
from .errors import QueryInterrupted
from .kafka_timeouts import check_reachable, client_options

READ = (kafka_topics.PROPOSALS, kafka_topics.DECISIONS, kafka_topics.OUTCOMES, kafka_topics.HISTORY)
WAIT_S = 30.0
"""If no further record comes within this time, a topic counts as unreadable."""
PAGE_RECORDS = 500
IDLE_S = 10.0
"""If no record comes, `follow` checks at this interval whether Kafka answers, and whether a missing topic was
created."""
UNDECODABLE = "other bytes"
"""A reason beside the values of `Fault`: Kafka's client could not decode the record."""


class DecisionLog:
    """The topics `proposals`, `decisions`, `outcomes` and `history` of one cluster, read once. A context manager.

    `topic_prefix`: that of the cluster's masters. `wanted` chooses tablets by id. Records of other tablets are neither
    decoded nor counted. `snapshots`: whether the configs in snapshots become events. `names`: the topics, without the
    prefix; () means all. QueryInterrupted if Kafka does not answer. Concurrency: one thread.
    """

    def __init__(
        self,
        bootstrap: str,
        topic_prefix: str = "",
        *,
        wanted: Callable[[str], bool] = lambda tablet_id: True,
        security: KafkaSecurity = PLAINTEXT,
        wait_s: float = WAIT_S,
        snapshots: bool = False,
        names: Sequence[str] = (),
    ) -> None:
        check_reachable(bootstrap)
        self._names = names or READ
        self._bootstrap, self._prefix, self._wanted, self._wait_s = bootstrap, topic_prefix, wanted, wait_s
        self._left_out = {EventKind.SNAPSHOT_BEGAN, EventKind.SNAPSHOT_ENDED}
        if not snapshots:
            self._left_out.add(EventKind.SNAPSHOT)
        self.skipped: Counter[tuple[str, str]] = Counter()
        """(topic, reason) -> records that were left out."""
        self.removed: dict[str, int] = {}
        """Topic -> records that Kafka no longer has and that the reader asked for."""
        self._places: list[TopicPartition] = []
        try:
            options = client_options(wait_s) | security.python()
            self._consumer: Any = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, **options)
        except (KafkaError, *KAFKA_AWAY) as error:
            raise self._away(error) from error

    def __enter__(self) -> DecisionLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close(autocommit=False)

    @property
    def absent(self) -> list[str]:
        """Return the names of topics that do not exist."""
        there = {place.topic for place in self._places}
        return [self._prefix + name for name in self._names if self._prefix + name not in there]

    def until_now(self, since_us: int = 0, newest: int = 0) -> Iterator[Event]:
        """Yield the events that the topics hold now, one page in memory at a time: those of records that were written
        since `since_us`, and of the newest `newest` records of each partition; 0 means all."""
        for record in self._records(lambda: self._begin(since_us, newest)):
            yield from self._event(record)

    def history(self, progress: Callable[[int, int], None]) -> Iterator[tuple[HistoryEvent, int]]:
        """Yield the events that the topic `history` holds now and that were not yielded before, one page in memory at a
        time, each with the wall-clock time of its record in microseconds. `progress` gets the number of records read,
        and of all."""
        for record in self._records(self._ends if self._places else lambda: self._begin(0, 0), progress):
            found = read_record(HistoryEvent, record.key, record.value)
            if isinstance(found, Unusable):
                self.skipped[record.topic, found.fault.value] += 1
            else:
                yield found, max(0, record.timestamp) * 1000  # type: ignore[misc]

    def _records(
        self,
        begin: Callable[[], dict[TopicPartition, int]],
        progress: Callable[[int, int], None] = lambda read, total: None,
    ) -> Iterator[ConsumerRecord]:
        """Yield the records up to the ends that `begin` returns."""
        try:
            ends = begin()
            left = total = sum(max(0, end - self._consumer.position(place)) for place, end in ends.items())
            deadline = time.monotonic() + self._wait_s
            while left:
                if time.monotonic() > deadline:
                    topic = next(place.topic for place in ends if self._consumer.position(place) < ends[place])
                    raise QueryInterrupted(
                        f"{topic}: no record came from Kafka at {self._bootstrap} in {self._wait_s:.0f} s: try again"
                    )
                for place, record in poll(self._consumer, PAGE_RECORDS, self._undecodable):
                    deadline = time.monotonic() + self._wait_s
                    if record.offset < ends.get(place, 0):
                        yield record
                left = sum(max(0, end - self._consumer.position(place)) for place, end in ends.items())
                progress(total - left, total)
        except (KafkaError, *KAFKA_AWAY) as error:
            raise self._away(error) from error

    def follow(self, tell: Callable[[str], None]) -> Iterator[list[Event]]:
        """Yield the events after those of `until_now` as they come, for ever, and an empty list for records that are
        left out. `tell` gets a line when Kafka ceases to answer, and when it answers again."""
        looked, away = time.monotonic(), False
        while True:
            found: list[Event] = []
            skipped = self.skipped.total()
            try:
                for _, record in poll(self._consumer, PAGE_RECORDS, self._undecodable):
                    found += self._event(record)
                    looked = time.monotonic()
                if time.monotonic() - looked > IDLE_S:
                    looked = time.monotonic()
                    check_reachable(self._bootstrap)
                    if self.absent:
                        self._find_places()
                    if away:
                        away = False
                        tell(f"Kafka at {self._bootstrap} answers again")
            except (KafkaError, QueryInterrupted, *KAFKA_AWAY) as error:
                if not away:
                    tell(f"{error}; waiting for it")
                away = True
                time.sleep(1)
            if found or self.skipped.total() > skipped:
                yield found

    def _begin(self, since_us: int, newest: int) -> dict[TopicPartition, int]:
        """Move to the position at which reading begins; returns the end of each partition."""
        places = self._find_places()
        if not places:
            return {}
        first, ends = self._consumer.beginning_offsets(places), self._consumer.end_offsets(places)
        begin = dict(first)
        if since_us:
            found = self._consumer.offsets_for_times(dict.fromkeys(places, since_us // 1000))
            begin = {place: found[place].offset if found.get(place) else ends[place] for place in places}
        if newest:
            begin = {place: max(at, ends[place] - newest) for place, at in begin.items()}
        for place in places:
            self._consumer.seek(place, begin[place])
            if 0 < first[place] == begin[place]:
                self.removed[place.topic] = self.removed.get(place.topic, 0) + first[place]
        return dict(ends)

    def _ends(self) -> dict[TopicPartition, int]:
        return dict(self._consumer.end_offsets(self._places))

    def _find_places(self) -> list[TopicPartition]:
        """Assign the partitions of the topics that exist; new ones begin at their first record."""
        there = self._consumer.topics()
        wanted = [
            TopicPartition(self._prefix + name, number)
            for name in self._names
            if self._prefix + name in there
            for number in sorted(self._consumer.partitions_for_topic(self._prefix + name) or ())
        ]
        new = [place for place in wanted if place not in self._places]
        if new:
            self._consumer.assign(wanted)
            self._consumer.seek_to_beginning(*new)
            self._places = wanted
        return wanted

    def _event(self, record: ConsumerRecord) -> Iterator[Event]:
        tablet_id = (record.key or b"").decode(errors="replace")
        name = record.topic.removeprefix(self._prefix)
        of_none = name == kafka_topics.HISTORY and record.key == b""
        if record.key is not None and not of_none and not self._wanted(tablet_id):
            return
        at_us = max(0, record.timestamp) * 1000
        named = 0 < len(tablet_id) <= limits.TOPIC_NAME_CHARS_MAX
        if name == kafka_topics.DECISIONS and record.value is None and named:
            yield event_of(None, tablet_id, at_us)
            return
        found = read_record(TOPICS[name], record.key, record.value)
        if isinstance(found, Unusable):
            self.skipped[record.topic, found.fault.value] += 1
        elif isinstance(found, HistoryEvent):
            if found.kind not in self._left_out and (found.kind is EventKind.GAP or self._wanted(found.tablet_id)):
                yield event_of(found, found.tablet_id, at_us)
        elif self._wanted(found.tablet_id):
            yield event_of(found, found.tablet_id, at_us)  # type: ignore[arg-type]

    def _undecodable(self, place: TopicPartition, offset: int, error: Exception) -> None:
        self.skipped[place.topic, UNDECODABLE] += 1

    def _away(self, error: BaseException) -> QueryInterrupted:
        return QueryInterrupted(f"Kafka at {self._bootstrap} does not answer: {error}")
