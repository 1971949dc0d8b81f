"""The topic that feeds a table, made with the table, from Python and from the command line."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import kafka.admin
import pytest
from kafka.errors import TopicAlreadyExistsError, TopicAuthorizationFailedError
from typer.testing import CliRunner

import nyala
from nyala.infra.cli import context, producers
from nyala.infra.cli.app import app
from nyala.replica.client import NotApplied, SourceFormat, TableHandle, TabletHandle
from nyala.replica.rows import PartitionSpec
from nyala.replica.types import Applied, Code, KafkaSecurity, kafka_topics
from nyala.topics import PARTITIONS, TopicMaker
from tests.harness.rows import SCHEMA

SSL = {"security.protocol": "SSL"}


class Broker:
    """A port that listens, and kafka-python's admin client beside it, played by the test."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.bootstrap = f"127.0.0.1:{self.listening.getsockname()[1]}"
        self.topics: dict[str, tuple[int, dict[str, str]]] = {}
        self.error: Exception | None = None
        self.options: dict[str, Any] = {}
        self.closed = 0

    def __call__(self, **options: Any) -> Broker:
        self.options = options
        return self

    def create_topics(self, topics: list[Any]) -> None:
        (new,) = topics
        if self.error is not None:
            raise self.error
        if new.name in self.topics:
            raise TopicAlreadyExistsError("there")
        assert new.replication_factor == -1
        self.topics[new.name] = (new.num_partitions, new.topic_configs)

    def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        return [{"partitions": list(range(self.topics[name][0]))} for name in names]

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    made = Broker()
    monkeypatch.setattr(kafka.admin, "KafkaAdminClient", made)
    with made.listening:
        yield made


@dataclass
class Masters:
    """The product's client as far as tables are created with it."""

    kafka: str = ""
    tables: dict[str, TableHandle] = field(default_factory=dict)

    def create_table(self, name: str, schema: Any, spec: Any, *, source: SourceFormat, **_: Any) -> TableHandle:
        if name in self.tables:
            raise NotApplied(Code.ALREADY_EXISTS, "a table of that name exists")
        tablets = (TabletHandle("t0", 0, 0, 0),)
        self.tables[name] = TableHandle("id", name, SCHEMA, PartitionSpec(("k",), 1), 3, 0, 0, source, tablets=tablets)
        return self.tables[name]

    def get_table(self, name: str) -> TableHandle:
        return self.tables[name]

    def kafka_of_masters(self) -> str:
        return self.kafka

    def close(self) -> None: ...


def cluster(masters: Masters, kafka: str = "") -> nyala.Cluster:
    return nyala.Cluster(masters, "m:1", kafka)  # type: ignore[arg-type]


COLUMNS = {"k": "int64", "v": "string"}


@pytest.mark.parametrize("named_by", ["the caller", "the masters"])
def test_table_is_created_with_its_topic_where_a_kafka_is_known(named_by: str, broker: Broker) -> None:
    """IN-70. Goal: a table made from Python is as complete as one made by the command line. Method: Kafka named in
    connect, or by the masters only; the topic has the partitions and the settings, and a second one is left alone."""
    masters = Masters(broker.bootstrap if named_by == "the masters" else "localhost:1")
    connected = cluster(masters, "" if named_by == "the masters" else broker.bootstrap)
    connected.create_table("readings", COLUMNS, key="k")
    assert broker.topics == {"writes.readings": (PARTITIONS, kafka_topics.WRITES_SETTINGS)}
    connected.create_table("more", COLUMNS, key="k", topic="their.topic", partitions=7, make_topic=True)
    assert broker.topics["their.topic"][0] == 7
    assert connected.create_topic("more", partitions=3) == 7, "it is there and stays as it is"
    assert connected.create_table("more", COLUMNS, key="k", partitions=2, if_not_exists=True).name == "more"
    assert broker.topics["their.topic"][0] == 7 and broker.closed == 4


def test_table_without_a_topic_where_nobody_names_a_kafka_or_wants_one(broker: Broker) -> None:
    """Goal: tables are for those without Kafka as well. Method: nobody names one; one is named and is not wanted; one
    is wanted and nobody names it: that is refused before anything is created."""
    masters = Masters()
    cluster(masters).create_table("one", COLUMNS, key="k")
    cluster(masters, broker.bootstrap).create_table("two", COLUMNS, key="k", make_topic=False)
    assert list(masters.tables) == ["one", "two"] and broker.topics == {} and broker.options == {}
    with pytest.raises(nyala.NotApplied, match="no Kafka is known"):
        cluster(masters).create_table("three", COLUMNS, key="k", make_topic=True)
    with pytest.raises(nyala.NotApplied, match="no Kafka is known"):
        cluster(masters).create_topic("one")
    assert list(masters.tables) == ["one", "two"]


@pytest.mark.parametrize("partitions", [0, -1, 1001, 2.0, True, None])
def test_number_of_partitions_is_checked_before_anything_is_created(partitions: Any, broker: Broker) -> None:
    """Goal: nothing is half done for a wrong number. Method: numbers out of range, and no numbers."""
    masters = Masters(broker.bootstrap)
    with pytest.raises(nyala.NotApplied, match="partitions= of a topic is a whole number from 1 to 1000"):
        cluster(masters).create_table("t", COLUMNS, key="k", partitions=partitions)
    assert masters.tables == {}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_table_is_not_created_if_its_kafka_does_not_answer(address: str) -> None:
    """IN-70. Goal: no table whose topic is missing because Kafka was away. Method: a port where nobody listens, and no
    address: the refusal says that nothing was applied, and nothing is."""
    masters = Masters(address)
    with pytest.raises(nyala.NotApplied, match=f"Kafka .*{address}.*nothing was applied"):
        cluster(masters).create_table("t", COLUMNS, key="k")
    assert masters.tables == {}


def test_topic_that_kafka_refuses_is_told_beside_the_table_that_is_there(broker: Broker) -> None:
    """IN-70. Goal: if Kafka refuses the topic, the error tells that the table was created, and how to go on. Method:
    Kafka refuses to create topics, then accepts."""
    masters = Masters(broker.bootstrap)
    broker.error = TopicAuthorizationFailedError("not yours")
    with pytest.raises(nyala.TopicNotMade) as caught:
        cluster(masters).create_table("t", COLUMNS, key="k")
    assert caught.value.applied is Applied.UNKNOWN and "outcome" not in str(caught.value)
    for part in ("table 't' was created", "topic 'writes.t'", "not yours", "nyala topic create t", broker.bootstrap):
        assert part in str(caught.value)
    broker.error = None
    assert cluster(masters).create_topic("t") == PARTITIONS and "writes.t" in broker.topics and broker.closed == 2


def test_topic_maker_logs_in_as_it_is_told(broker: Broker) -> None:
    """Goal: a Kafka that asks for a login gets one. Method: properties of the Java client given to connect, as the
    clients in Python name them; a wrong one is refused by connect."""
    with TopicMaker(broker.bootstrap, KafkaSecurity(tuple(SSL.items()))):
        assert broker.options["security_protocol"] == "SSL"
    with pytest.raises(nyala.Refused):
        nyala.connect("127.0.0.1:1", kafka_properties={"security.protocol": "carrier pigeon"})


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> Masters:
    masters = Masters()
    made = lambda address, kafka, kafka_properties: nyala.Cluster(masters, address, kafka)  # type: ignore[arg-type]  # noqa: E731
    monkeypatch.setattr(context.nyala, "connect", made)
    return masters


CREATE = ["table", "create", "t", "-c", "k:int64", "-c", "v:string", "-k", "k", "--masters", "m:1"]


def test_command_makes_the_same_topic_as_python(command_line: Masters, broker: Broker) -> None:
    """IN-70. Goal: one behaviour from both. Method: the Kafka that the masters name; one that is named; none; a topic
    that is not wanted; one that is made afterwards."""
    run = lambda *arguments: CliRunner().invoke(app, arguments)  # noqa: E731
    done = run(*CREATE)
    assert done.exit_code == 0 and "nyala topic create t --kafka" in done.stderr and broker.topics == {}
    done = run("topic", "create", "t", "--masters", "m:1", "--kafka", broker.bootstrap, "--partitions", "3")
    assert done.stdout == "topic writes.t has 3 partitions\n"
    command_line.tables.clear()
    command_line.kafka = broker.bootstrap
    done = run(*CREATE, "--topic", "other")
    assert done.exit_code == 0 and f"fed by topic other, 4 partitions, at {broker.bootstrap}" in done.stdout
    assert (
        broker.topics["other"] == (producers.PARTITIONS, kafka_topics.WRITES_SETTINGS)
        and producers.PARTITIONS == PARTITIONS
    )
    command_line.tables.clear()
    assert run(*CREATE, "--no-topic", "--topic", "third").exit_code == 0 and "third" not in broker.topics


def test_command_says_that_the_table_is_there_and_its_topic_is_not(command_line: Masters, broker: Broker) -> None:
    """IN-70. Goal: if Kafka refuses the topic, the command fails and still prints the table. Method: Kafka refuses to
    make it: exit code 1, and the table's document all the same."""
    command_line.kafka = broker.bootstrap
    broker.error = TopicAuthorizationFailedError("not yours")
    done = CliRunner().invoke(app, [*CREATE, "--json"])
    assert done.exit_code == 1 and '"name": "t"' in done.stdout and "but not the topic" in done.stderr
