"""Kafka's answers about a topic, and which of them end a query for good."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import (
    KafkaConnectionError,
    LeaderNotAvailableError,
    NodeNotReadyError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

from nyala.pipeline import QueryInterrupted, QueryRefused, Topics, topics
from nyala.pipeline.errors import UNKNOWN_TOPIC, of_spark
from nyala.pipeline.ingest import LETTERS_TOPIC

FOUND = {"error_code": 0, "topic_id": "x", "partitions": [{}, {}]}
UNKNOWN = {"error_code": UnknownTopicOrPartitionError.errno, "topic_id": "", "partitions": []}


class Admin:
    """Kafka's admin client as far as it is asked here: `answers` one by one, the last of them for ever."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)
        self.asked = self.closed = 0
        self.created: list[Any] = []

    def describe_topics(self, _: list[str]) -> list[dict[str, Any]]:
        self.asked += 1
        return [self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]]

    def describe_cluster(self) -> dict[str, Any]:
        return {"cluster_id": "c"}

    def close(self) -> None:
        self.closed += 1

    def create_topics(self, new: list[Any]) -> None:
        self.created += new


def asking(monkeypatch: pytest.MonkeyPatch, admin: Admin) -> Topics:
    """Topics connected to `admin`."""
    monkeypatch.setattr(topics, "KafkaAdminClient", lambda **_: admin)
    monkeypatch.setattr(topics, "check_reachable", lambda _: None)
    monkeypatch.setattr(topics, "UNKNOWN_PAUSE_S", 0.0)
    return Topics("h:1")


def test_topic_that_a_young_broker_does_not_know_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a broker that has just come up does not end a query. Method: unknown twice, then there."""
    admin = Admin(UNKNOWN, UNKNOWN, FOUND)
    found = asking(monkeypatch, admin).identity("t")
    assert (found.topic_id, found.partitions, admin.asked) == ("x", 2, 3)


def test_topic_that_stays_unknown_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a topic that does not exist is refused. Method: unknown for ever, without patience."""
    monkeypatch.setattr(topics, "UNKNOWN_FOR_S", 0.0)
    with pytest.raises(QueryRefused, match="there is no topic t: create it"):
        asking(monkeypatch, Admin(UNKNOWN)).identity("t")


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (LeaderNotAvailableError.errno, QueryInterrupted, "cannot say yet what topic t is: LeaderNotAvailableError"),
        (0, QueryInterrupted, "cannot say yet"),
        (TopicAuthorizationFailedError.errno, QueryRefused, "grant it Describe, Read and Write"),
    ],
)
def test_topic_without_partitions_goes_away_or_not_by_its_code(
    code: int, kind: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what goes away is waited out, and named; what a person must grant is not. Method: codes without partitions.

    The same for a query that runs: it must not take a broker's bad moment for a topic that was deleted.
    """
    seen = asking(monkeypatch, Admin(FOUND)).identity("t")
    failing = asking(monkeypatch, Admin({"error_code": code, "topic_id": "", "partitions": []}))
    with pytest.raises(kind, match=says):
        failing.identity("t")
    with pytest.raises(kind, match=says):
        failing.check_unchanged(seen, "t")


@pytest.mark.parametrize(
    "error", [NodeNotReadyError("n"), OSError("o"), ValueError("fd -1"), RuntimeError("no id"), AssertionError("a")]
)
def test_broker_that_is_away_is_away_in_all_words_of_its_client(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: no error of Kafka's client ends the thread that watches the topic. Method: what it raises of a broker that
    is going away; the connection that failed is not used again."""
    admin = Admin(FOUND)
    asked = asking(monkeypatch, admin)
    seen = asked.identity("t")

    def away() -> None:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(admin, "describe_cluster", away)
        with pytest.raises(QueryInterrupted, match="Kafka at h:1 does not answer"):
            asked.check_unchanged(seen, "t")
    assert admin.closed == 1
    asked.check_unchanged(seen, "t")


@pytest.mark.parametrize("breaks", [1, 2])
def test_broken_connection_is_made_anew_once(breaks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one lost broker of several does not interrupt a query; a second break in one call does. Method: a
    connection that breaks once, or each time."""
    admin = Admin(FOUND)
    asked = asking(monkeypatch, admin)
    seen = asked.identity("t")
    left = [KafkaConnectionError("socket disconnected")] * breaks

    def breaking() -> dict[str, Any]:
        if left:
            raise left.pop()
        return {"cluster_id": "c"}

    monkeypatch.setattr(admin, "describe_cluster", breaking)
    if breaks == 1:
        asked.check_unchanged(seen, "t")
    else:
        with pytest.raises(QueryInterrupted, match="does not answer: KafkaConnectionError: socket disconnected"):
            asked.check_unchanged(seen, "t")
    assert admin.closed == breaks


class Beginning:
    """Kafka's consumer as far as it is asked where partitions begin."""

    def __init__(self, **_: Any) -> None:
        pass

    def beginning_offsets(self, asked: list[Any]) -> dict[Any, int]:
        return {each: (5, 10)[each.partition] for each in asked}

    def close(self) -> None:
        pass


def test_records_that_kafka_removed_unread_are_named_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """CC-41: what is lost is told exactly. Goal: no offset is skipped silently, and none is called lost that is there.
    Method: partitions that begin at 5 and 10, read on at, below and above them."""
    asked = asking(monkeypatch, Admin(FOUND))
    monkeypatch.setattr(topics, "KafkaConsumer", Beginning)
    seen = asked.identity("t")
    asked.check_retained(seen, "table", {0: 5, 1: 11}, "/c")
    with pytest.raises(QueryRefused, match=r"not read: t\[1\] offsets 7 to 9\. .*table --partition 1 --to 10`;"):
        asked.check_retained(seen, "table", {0: 5, 1: 7}, "/c")


def test_own_topics_are_kept_as_the_brokers_keep_theirs_and_letters_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: one dead broker, or a week, loses no letter. Method: what is asked of Kafka at creation."""
    admin = Admin(UNKNOWN)
    asking(monkeypatch, admin).ensure("dead-letters.t", configs=LETTERS_TOPIC)
    (made,) = admin.created
    assert made.replication_factor == -1
    assert made.topic_configs["retention.ms"] == "-1"


def test_topic_that_spark_misses_may_come_back() -> None:
    """Goal: an error of Spark about a topic that a new broker does not know yet does not end a query for good. Method:
    what it raises then."""
    error = RuntimeError(f"Query terminated: org.apache.kafka.common.errors.{UNKNOWN_TOPIC}: not hosted here")
    assert isinstance(of_spark(error), QueryInterrupted)
    assert isinstance(of_spark(RuntimeError("KafkaDataLoss: some data may have been missed")), QueryRefused)


def test_what_java_raised_is_told_not_which_call_it_was() -> None:
    """Goal: the one line says what is wrong. Method: the text of py4j's exception."""
    text = "An error occurred while calling o114.start.\n: java.io.IOException: mkdir of file:/proc/x failed\n\tat org."
    assert str(of_spark(RuntimeError(text))) == "java.io.IOException: mkdir of file:/proc/x failed"
