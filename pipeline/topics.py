"""Reads and checks Kafka topics for the pipeline: identity, partitions, clean-up policy, offsets."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
from kafka.errors import (
    KafkaConnectionError,
    KafkaError,
    TopicAlreadyExistsError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
    for_code,
)

from nyala.replica.types import KAFKA_AWAY, PLAINTEXT, KafkaSecurity

from .errors import QueryInterrupted, QueryRefused
from .kafka_timeouts import KAFKA_TIMEOUT_S, check_reachable, client_options

UNKNOWN_FOR_S = 2.0
UNKNOWN_PAUSE_S = 0.25
BROKER_DEFAULT = -1
"""The replication factor of our topics: the brokers' `default.replication.factor`, as for the masters' topics."""


def writes_topic(table: str) -> str:
    """Return the topic of a table's row events."""
    return f"writes.{table}"


def dead_letter_topic(table: str) -> str:
    """Return the topic of the records that did not become rows of a table."""
    return f"dead-letters.{table}"


def reset_to_new_topic(table: str, topic: str) -> str:
    """Return the command by which a table's source begins anew in another topic of the same name."""
    return f"nyala source reset {table} --topic {topic} --to earliest"


def grown_text(topic: str, had: int, has: int) -> str:
    """Return the text for operators about a topic that has grown."""
    return (
        f"topic {topic} has {has} partitions and had {had}; keys move to other partitions when a topic grows, so "
        "events of one key may be read out of order. If the older partitions were read before it grew, or order "
        f"does not matter, start the query again with --accept-partitions {has}; else write to a new topic"
    )


@dataclass(frozen=True)
class TopicIdentity:
    """The identity of a topic. A topic that was deleted and created again has another id, and one that grew has more
    partitions."""

    cluster_id: str
    topic: str
    topic_id: str
    partitions: int


class Topics:
    """Admin calls over one kept connection. QueryInterrupted if Kafka does not answer. Concurrency: one thread."""

    def __init__(self, bootstrap: str, timeout_s: float = KAFKA_TIMEOUT_S, security: KafkaSecurity = PLAINTEXT) -> None:
        self._bootstrap = bootstrap
        self._options = client_options(timeout_s) | security.python()
        self._kept: Any = None

    def identity(self, topic: str) -> TopicIdentity:
        """Return the topic as it is now; QueryRefused if there is none."""
        found = self._identity(topic)
        if found is None:
            raise QueryRefused(f"there is no topic {topic}: create it, then start the query again")
        return found

    def is_there(self, topic: str) -> bool:
        """Return whether there is such a topic."""
        return self._identity(topic) is not None

    def _identity(self, topic: str) -> TopicIdentity | None:
        """Return the topic, or None once Kafka has answered for UNKNOWN_FOR_S that there is none: a broker that has
        just started may not know it."""
        until = time.monotonic() + UNKNOWN_FOR_S
        while True:
            found, cluster = self._call(lambda admin: (admin.describe_topics([topic])[0], admin.describe_cluster()))
            if found["error_code"] != UnknownTopicOrPartitionError.errno:
                break
            if time.monotonic() >= until:
                return None
            time.sleep(UNKNOWN_PAUSE_S)
        if found["error_code"] == TopicAuthorizationFailedError.errno:
            raise QueryRefused(f"Kafka does not let this query see topic {topic}: grant it Describe, Read and Write")
        if found["error_code"] or not found["partitions"]:
            why = for_code(found["error_code"]).__name__
            raise QueryInterrupted(f"Kafka at {self._bootstrap} cannot say yet what topic {topic} is: {why}")
        return TopicIdentity(str(cluster["cluster_id"]), topic, str(found["topic_id"]), len(found["partitions"]))

    def all(self) -> list[TopicIdentity]:
        """Return every topic of the cluster as it is now. Topics that are just being made or deleted, and Kafka's own,
        are left out."""
        found, cluster = self._call(lambda admin: (admin.describe_topics(), admin.describe_cluster()))
        named = [t for t in found if not t["error_code"] and t["partitions"] and not t["is_internal"]]
        cluster_id = str(cluster["cluster_id"])
        return [TopicIdentity(cluster_id, str(t["name"]), str(t["topic_id"]), len(t["partitions"])) for t in named]

    def check_unchanged(self, expected: TopicIdentity, table: str) -> None:
        """Raise QueryRefused if the topic is not `expected` any more: it was deleted, created again or has grown, or it
        is another cluster's now."""
        now = self._identity(expected.topic)
        if now is None:
            raise QueryRefused(
                f"topic {expected.topic} (id {expected.topic_id}) was deleted while the query ran: unread records "
                "is gone. To go on in a new topic of its name, create it, remove this query's checkpoint and run "
                f"`{reset_to_new_topic(table, expected.topic)}`"
            )
        if now.cluster_id != expected.cluster_id:
            raise QueryRefused(
                f"topic {expected.topic} is another Kafka cluster's now ({expected.cluster_id}, now {now.cluster_id}): "
                "its offsets mean other records. To go on there, remove this query's checkpoint and run "
                f"`{reset_to_new_topic(table, expected.topic)}`"
            )
        if now.topic_id != expected.topic_id:
            raise QueryRefused(
                f"topic {expected.topic} was deleted and created again (id {expected.topic_id}, now {now.topic_id}): "
                "its offsets begin anew. To read it, remove this query's checkpoint and run "
                f"`{reset_to_new_topic(table, expected.topic)}`"
            )
        if now.partitions != expected.partitions:
            raise QueryRefused(grown_text(expected.topic, expected.partitions, now.partitions))

    def check_not_compacted(self, topic: str) -> None:
        """Raise QueryRefused if the topic's clean-up policy drops records by key."""
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        found = self._call(lambda admin: admin.describe_configs([resource], config_filter="all"))
        policy = _value(found["topic"][topic].get("cleanup.policy"))
        if "compact" in policy:
            raise QueryRefused(
                f"topic {topic} has cleanup.policy={policy}: compaction drops events that a table still "
                "needs. Set cleanup.policy=delete on it"
            )

    def check_retained(self, topic: TopicIdentity, table: str, begin: Mapping[int, int], checkpoint: str) -> None:
        """Raise QueryRefused, with the exact offsets, if Kafka has removed records at or after `begin`, where reading
        goes on.

        Records that Kafka removes while a query runs are Spark's error; the next start names the offsets here.
        """
        first = self.offsets(topic.topic, topic.partitions)
        gone = [(n, at, first[n]) for n, at in sorted(begin.items()) if at < first.get(n, 0)]
        if gone:
            ranges = ", ".join(f"{topic.topic}[{n}] offsets {at} to {now - 1}" for n, at, now in gone)
            resets = " and ".join(f"`nyala source reset {table} --partition {n} --to {now}`" for n, _, now in gone)
            raise QueryRefused(
                f"Kafka has removed what was not read: {ranges}. To go on without it, remove checkpoint {checkpoint} "
                f"and run {resets}; it is in no table then"
            )

    def offsets(self, topic: str, partitions: int, *, latest: bool = False) -> dict[int, int]:
        """Return the first (or, with `latest`, next) offset of each partition."""
        check_reachable(self._bootstrap)
        try:
            consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, enable_auto_commit=False, **self._options)
            try:
                asked = [TopicPartition(topic, number) for number in range(partitions)]
                found = consumer.end_offsets(asked) if latest else consumer.beginning_offsets(asked)
            finally:
                consumer.close()
        except (KafkaError, *KAFKA_AWAY) as error:
            raise QueryInterrupted(f"Kafka at {self._bootstrap} does not answer: {error}") from error
        return {each.partition: int(offset) for each, offset in found.items()}

    def ensure(self, topic: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None) -> None:
        """Create the topic unless it exists; an existing one is left as it is."""
        new = NewTopic(topic, partitions, BROKER_DEFAULT, topic_configs=dict(configs or {}))
        try:
            self._call(lambda admin: admin.create_topics([new]))
        except QueryInterrupted as error:
            if not isinstance(error.__cause__, TopicAlreadyExistsError):
                raise

    def close(self) -> None:
        """Close the kept connection."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _call(self, ask: Any) -> Any:
        """Return Kafka's answer. If a connection breaks, another broker is asked once; every request may be
        repeated."""
        try:
            try:
                return ask(self._admin())
            except KafkaConnectionError:
                self.close()
                return ask(self._admin())
        except TopicAlreadyExistsError as error:
            raise QueryInterrupted(str(error)) from error
        except (KafkaError, *KAFKA_AWAY) as error:
            self.close()
            raise QueryInterrupted(f"Kafka at {self._bootstrap} does not answer: {error}") from error

    def _admin(self) -> KafkaAdminClient:
        if self._kept is None:
            check_reachable(self._bootstrap)
            self._kept = KafkaAdminClient(bootstrap_servers=self._bootstrap, **self._options)
        return self._kept


def _value(found: Any) -> str:
    return str(found["value"] if isinstance(found, dict) else found)
