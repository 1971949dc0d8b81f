"""The Kafka topic that feeds a table: made in one place, for Python and for the command line."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from nyala.replica.client import NotApplied
from nyala.replica.types import KAFKA_AWAY, Applied, Code, KafkaSecurity, Refused, kafka_topics, reach_kafka

PARTITIONS = 4
"""The partitions of a new topic, unless the caller names another number."""
PARTITIONS_MAX = 1000
BROKER_DEFAULT = -1
"""The replication factor: the brokers' `default.replication.factor`, as for the masters' topics."""
TIMEOUT_MS = 20_000


class TopicNotMade(Refused):
    """A table was created, and the topic that is to feed it was not."""

    def __init__(self, table: str, topic: str, why: str) -> None:
        super().__init__(
            Code.UNAVAILABLE,
            f"table {table!r} was created, but not the topic {topic!r} that is to feed it: {why}. Once that is mended, "
            f"`nyala topic create {table}` or cluster.create_topic({table!r}) makes the topic",
            applied=Applied.UNKNOWN,  # the table is there, so NOT_APPLIED would be wrong
        )

    def __str__(self) -> str:
        return f"{self.code.name}: {self.what}"


class TopicMaker:
    """A connection to Kafka that makes topics; a context manager. NotApplied if Kafka does not answer."""

    def __init__(self, bootstrap: str, security: KafkaSecurity) -> None:
        from kafka.admin import KafkaAdminClient

        self._bootstrap = bootstrap
        try:
            reach_kafka(bootstrap)
            self._admin = self._carried_out(
                lambda: KafkaAdminClient(
                    bootstrap_servers=bootstrap,
                    client_id="nyala",
                    request_timeout_ms=TIMEOUT_MS,
                    bootstrap_timeout_ms=TIMEOUT_MS,
                    **security.python(),
                )
            )
        except Refused as error:
            raise NotApplied(error.code, error.what) from error

    def make(self, topic: str, partitions: int) -> int:
        """Make the topic; one that exists is left as it is. Returns the number of its partitions; Refused."""
        from kafka.admin import NewTopic
        from kafka.errors import TopicAlreadyExistsError

        settings = dict(kafka_topics.WRITES_SETTINGS)
        new = NewTopic(topic, partitions, BROKER_DEFAULT, topic_configs=settings)

        def made() -> int:
            try:
                self._admin.create_topics([new])
                return partitions
            except TopicAlreadyExistsError:
                return len(self._admin.describe_topics([topic])[0]["partitions"])

        return int(self._carried_out(made))

    def _carried_out(self, ask: Any) -> Any:
        from kafka.errors import KafkaError

        try:
            return ask()
        except (KafkaError, *KAFKA_AWAY) as error:
            raise Refused(Code.UNAVAILABLE, f"Kafka at {self._bootstrap} refuses: {_text(error)}") from error

    def __enter__(self) -> TopicMaker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close()


def _text(error: BaseException) -> str:
    return (str(error).splitlines() or [""])[0][:200] or type(error).__name__
