"""Reading the masters' topics for people: every record is an event, or is counted; Kafka may be away."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.errors import KafkaConnectionError
from kafka.structs import OffsetAndTimestamp

from nyala.pipeline import QueryInterrupted, decision_log
from nyala.pipeline.decision_log import UNDECODABLE, DecisionLog
from nyala.pipeline.decision_story import Step
from nyala.replica.types import EventKind, HistoryEvent, Result, limits
from nyala.schemas import encode_record
from tests.unit.pipeline.test_decision_story import ADD, PROPOSAL, decision, outcome

Row = namedtuple("Row", "topic partition offset key value timestamp")
BAD_HEADER = UnicodeDecodeError("utf-8", b"\xff", 0, 1, "header")


class Kafka:
    """The part of kafka-python's consumer that is used here. A log has (key, value) pairs, or errors that the client
    raises; each record's timestamp is its offset, unless `written_ms` has another one."""

    def __init__(self, logs: dict[tuple[str, int], list[Any]], first: dict[str, int]) -> None:
        self.logs = {TopicPartition(*place): items for place, items in logs.items()}
        self.first = first
        self.at: dict[Any, int] = {}
        self.written_ms: dict[int, int] = {}
        """By offset."""
        self.closed = self.away = False

    def topics(self) -> set[str]:
        return {place.topic for place in self.logs}

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {place.partition for place in self.logs if place.topic == topic}

    def assign(self, places: list[Any]) -> None:
        self.at = {place: self.at.get(place, 0) for place in places}

    def assignment(self) -> set[Any]:
        return set(self.at)

    def seek(self, place: Any, offset: int) -> None:
        self.at[place] = offset

    def seek_to_beginning(self, *places: Any) -> None:
        self.at |= {place: self.first.get(place.topic, 0) for place in places}

    def beginning_offsets(self, places: list[Any]) -> dict[Any, int]:
        return {place: self.first.get(place.topic, 0) for place in places}

    def end_offsets(self, places: list[Any]) -> dict[Any, int]:
        return {place: len(self.logs[place]) for place in places}

    def offsets_for_times(self, times: dict[Any, int]) -> dict[Any, Any]:
        found = {place: max(at, self.first.get(place.topic, 0)) for place, at in times.items()}
        return {p: OffsetAndTimestamp(at, at, 0) if at < len(self.logs[p]) else None for p, at in found.items()}

    def position(self, place: Any) -> int:
        return self.at[place]

    def poll(self, timeout_ms: int, max_records: int = 500) -> dict[Any, list[Row]]:
        if self.away:
            raise KafkaConnectionError("gone")
        for place in self.at:
            if self.at[place] < len(self.logs[place]):
                item = self.logs[place][self.at[place]]
                if isinstance(item, Exception):
                    raise item
                self.at[place] += 1
                offset = self.at[place] - 1
                return {place: [Row(*place, offset, *item, self.written_ms.get(offset, offset))]}
        return {}

    def close(self, **_: Any) -> None:
        self.closed = True


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    """A broker with a proposal, its outcomes, a decision of each of two tablets, and a withdrawal, among records that
    nobody can use."""
    t, garbage = b"t", (b"t", b"garbage")
    of_u = decision(1, tablet="u")
    logs: dict[tuple[str, int], list[Any]] = {
        ("x.proposals", 0): [garbage, (t, encode_record(PROPOSAL)), (t, None)],
        ("x.decisions", 0): [BAD_HEADER, (t, encode_record(ADD)), (b"other", encode_record(ADD)), (t, None)],
        ("x.decisions", 1): [(b"u", encode_record(of_u)), (b"", None), (b"k" * 2_000, None)],
        ("x.outcomes", 0): [(None, encode_record(outcome(ADD, Result.DONE, 0))), garbage],
        ("x.history", 0): [],
        ("x.reports", 0): [garbage],
        ("proposals", 0): [garbage],
    }
    found = Kafka(logs, {})
    monkeypatch.setattr(decision_log, "KafkaConsumer", lambda **_: found)
    monkeypatch.setattr(decision_log, "check_reachable", lambda _: None)
    return found


def steps(log: DecisionLog, **chosen: int) -> list[tuple[str, str, int]]:
    return sorted((e.tablet_id, e.step.value, e.at_us) for e in log.until_now(**chosen))


def test_every_record_is_an_event_or_is_counted(kafka: Kafka) -> None:
    """Goal: records of strangers stop no command and hide nothing. Method: garbage, nulls where none has a meaning, a
    decision under another key, a key that is no id, and bytes that Kafka's client cannot decode."""
    with DecisionLog("k:1", "x.") as log:
        assert steps(log) == [
            ("t", "DECIDED", 1_000), ("t", "DONE", 0), ("t", "PROPOSED", 1_000), ("t", "WITHDRAWN", 3_000),
            ("u", "DECIDED", 0),
        ]  # fmt: skip
        assert dict(log.skipped) == {
            ("x.proposals", "other schema"): 1, ("x.proposals", "no value"): 1, ("x.decisions", UNDECODABLE): 1,
            ("x.decisions", "bad value"): 1, ("x.decisions", "no value"): 2, ("x.outcomes", "other schema"): 1,
        }  # fmt: skip
        assert (log.absent, log.removed) == ([], {})
    assert kafka.closed and limits.TOPIC_NAME_CHARS_MAX < 2_000


def test_records_of_other_tablets_are_left_out_undecoded(kafka: Kafka) -> None:
    """Goal: the story of one tablet in a long topic costs no decoding of the others. Method: choose a tablet; what
    stands under other keys is no event, and is not counted; a record without a key is decoded."""
    with DecisionLog("k:1", "x.", wanted="u".__eq__) as log:
        assert steps(log) == [("u", "DECIDED", 0)]
        assert dict(log.skipped) == {("x.decisions", UNDECODABLE): 1}
    with DecisionLog("k:1", "x.", wanted="t".__eq__) as log:
        assert {tablet for tablet, _, _ in steps(log)} == {"t"} and ("x.decisions", "no value") not in log.skipped


def test_history_is_read_with_gaps_and_snapshots_if_asked(kafka: Kafka) -> None:
    """Goal: changes of configs are steps; a gap is shown for whichever tablet; a snapshot's records, one for each
    tablet and day, only where they are asked for. Method: an event of each kind, one of them under another key."""
    told = {kind: HistoryEvent(kind=kind, at_us=9) for kind in EventKind}
    of_t = (EventKind.CONFIG, EventKind.DROPPED, EventKind.DECIDED, EventKind.WITHDRAWN, EventKind.SNAPSHOT)
    told |= {kind: replace(told[kind], tablet_id="t") for kind in of_t}
    kafka.logs = {
        TopicPartition("x.history", 0): [(event.tablet_id.encode(), encode_record(event)) for event in told.values()],
        TopicPartition("x.history", 1): [(b"u", encode_record(told[EventKind.CONFIG])), (b"", b"?")],
    }
    shown = [("", "GAP", 9), *(("t", step, 9) for step in ("CONFIG", "DECIDED", "DROPPED", "WITHDRAWN"))]
    for wanted, snapshots, expected in [
        ("t", False, shown), ("u", False, shown[:1]), ("t", True, sorted([*shown, ("t", "KNOWN", 9)])),
    ]:  # fmt: skip
        with DecisionLog("k:1", "x.", wanted=wanted.__eq__, snapshots=snapshots) as log:
            assert steps(log) == expected
            faults = {reason for topic, reason in log.skipped if topic == "x.history"}
            assert faults == {"other schema", "bad value"} - ({"bad value"} if wanted == "t" else set())


def test_topics_that_are_missing_and_records_that_are_gone_are_told(kafka: Kafka) -> None:
    """Goal: an answer that is not complete says so. Method: a topic that no master has made; records that Kafka has
    removed; what was written since a time, and the newest records, of which Kafka has removed none."""
    del kafka.logs[TopicPartition("x.outcomes", 0)]
    kafka.first["x.proposals"] = 2
    for chosen, removed in [({}, 2), ({"since_us": 1_000}, 2), ({"since_us": 2_001_000}, 0), ({"newest": 1}, 2)]:
        with DecisionLog("k:1", "x.") as log:
            list(log.until_now(**chosen))
            assert (log.absent, log.removed.get("x.proposals", 0)) == (["x.outcomes"], removed), chosen
    with DecisionLog("k:1", "y.") as log:
        assert list(log.until_now()) == []
        assert log.absent == ["y.proposals", "y.decisions", "y.outcomes", "y.history"]


def test_reading_begins_at_a_time_or_at_the_newest_records(kafka: Kafka) -> None:
    """Goal: a short question to a long topic costs little. Method: the records since a time, and the newest one of each
    partition."""
    with DecisionLog("k:1", "x.") as log:
        assert steps(log, since_us=3_000) == [("t", "WITHDRAWN", 3_000)]
    with DecisionLog("k:1", "x.") as log:
        assert steps(log, newest=3) == [
            ("t", "DECIDED", 1_000), ("t", "DONE", 0), ("t", "PROPOSED", 1_000), ("t", "WITHDRAWN", 3_000),
            ("u", "DECIDED", 0),
        ]  # fmt: skip
    with DecisionLog("k:1", "x.") as log:
        assert steps(log, newest=1) == [("t", "WITHDRAWN", 3_000)]


def test_kafka_that_goes_away_ends_a_list_and_not_a_tail(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a list that is not whole is an error; a tail waits, says so once, and goes on with what came meanwhile.
    Method: a client that fails; a broker that gives no record in time; then one that is away for some polls, and a
    topic that is made later."""
    kafka.away = True
    with DecisionLog("k:1", "x.") as log, pytest.raises(QueryInterrupted, match=r"k:1 does not answer: .*gone"):
        list(log.until_now())
    kafka.away, silent = False, lambda timeout_ms, max_records: {}
    with monkeypatch.context() as patch, DecisionLog("k:1", "x.", wait_s=0.05) as log:
        patch.setattr(kafka, "poll", silent)
        with pytest.raises(QueryInterrupted, match=r"x\.proposals: no record came from Kafka at k:1 in"):
            list(log.until_now())
    outcomes = kafka.logs.pop(TopicPartition("x.outcomes", 0))
    monkeypatch.setattr(decision_log, "IDLE_S", 0.0)
    told: list[str] = []

    def pause(_: float) -> None:
        """Bring Kafka back after two failures, with the topic that was missing and one more withdrawal."""
        pauses.append(1)
        if len(pauses) == 2:
            kafka.away = False
            kafka.logs[TopicPartition("x.outcomes", 0)] = outcomes
            kafka.logs[TopicPartition("x.decisions", 1)].append((b"u", None))

    pauses: list[int] = []
    monkeypatch.setattr(decision_log.time, "sleep", pause)
    with DecisionLog("k:1", "x.") as log:
        assert len(list(log.until_now())) == 4
        kafka.away = True
        further: Iterator[Any] = log.follow(told.append)
        found = [event for events in islice(further, 3) for event in events]
        assert {(e.tablet_id, e.step) for e in found} == {("u", Step.WITHDRAWN), ("t", Step.DONE)}
        assert log.skipped["x.outcomes", "other schema"] == 1
    assert len(pauses) == 2 and len(told) == 2
    assert told[0].endswith("gone; waiting for it") and told[1] == "Kafka at k:1 answers again"
