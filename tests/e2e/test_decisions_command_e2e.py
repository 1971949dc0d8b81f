"""`nyala decisions` on a real broker: what its topics hold, lose and get, and a broker that goes away."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from typer.testing import CliRunner

from nyala.infra.cli.app import app
from nyala.infra.local.kafka import KafkaBroker
from nyala.replica.types import Result, kafka_topics
from nyala.schemas import encode_record
from tests.harness.bad_header import BAD_HEADER
from tests.harness.cluster import wait_until
from tests.unit.pipeline.test_decision_story import ADD, PROPOSAL, outcome

pytestmark = pytest.mark.e2e
RUN = "import sys; from nyala.infra.cli.app import main; sys.exit(main())"
T = b"t"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KafkaBroker]:
    """A broker without topics."""
    with KafkaBroker(tmp_path / "kafka") as made:
        yield made


def run(broker: KafkaBroker, *line: str) -> Any:
    where = ["--kafka", broker.bootstrap, "--topic-prefix", "x."]
    return CliRunner().invoke(app, ["decisions", *line, *where], env={"COLUMNS": "300"})


def steps(done: Any) -> list[str]:
    return [json.loads(line)["step"] for line in done.stdout.splitlines()]


def send(broker: KafkaBroker, *records: tuple[str, bytes | None, bytes | None], **more: Any) -> None:
    """Write (topic, key, value) records, one after the other."""
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    try:
        for topic, key, value in records:
            producer.send(f"x.{topic}", key=key, value=value, **more).get(timeout=120)
    finally:
        producer.close()


class Tail:
    """A process of `nyala decisions tail`, with the lines that it has printed."""

    def __init__(self, broker: KafkaBroker) -> None:
        where = ["--kafka", broker.bootstrap, "--topic-prefix", "x."]
        self.process = subprocess.Popen(
            [sys.executable, "-c", RUN, "decisions", "tail", "--json", *where],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.steps: list[str] = []
        self.said = ""
        self._readers = [threading.Thread(target=read) for read in (self._read_steps, self._read_said)]
        for reader in self._readers:
            reader.start()

    def _read_steps(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.steps.append(json.loads(line)["step"])

    def _read_said(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line

    def interrupt(self) -> int:
        """End it as Ctrl-C does; returns its exit status."""
        self.process.send_signal(signal.SIGINT)
        status = self.process.wait(timeout=60)
        for reader in self._readers:
            reader.join(timeout=60)
        return status


@pytest.mark.deep
def test_commands_tell_what_kafka_holds_and_what_it_lost(broker: KafkaBroker) -> None:
    """Goal: the whole change is read back from Kafka; whatever is missing, foreign or removed is told, and no topic is
    made. Method: no topics; empty ones; a move among garbage and a header that is no UTF-8; records that Kafka removes;
    `tail` in a process, while Kafka goes away and comes back; then a broker that is away."""
    none = run(broker, "list", "--json")
    assert none.exit_code == 0 and not none.stdout and none.stderr.count("there is no topic x.") == 4
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        assert not [name for name in admin.list_topics() if name.startswith("x.")], "a look makes no topic"
        admin.create_topics(
            [
                NewTopic(f"x.{name}", count, 1, topic_configs=kafka_topics.settings_of(name))
                for name, count in kafka_topics.PARTITIONS.items()
            ]
        )
        wait_until(lambda: "Kafka has no proposal" in run(broker, "list").stderr, "the topics are there")
        send(broker, ("proposals", T, b"garbage"), ("proposals", T, encode_record(PROPOSAL)))
        send(broker, ("outcomes", T, encode_record(outcome(PROPOSAL, Result.ACCEPTED, 0))))
        send(broker, ("decisions", T, encode_record(ADD)), ("decisions", b"other", encode_record(ADD)))
        send(broker, ("outcomes", T, b"header"), headers=[BAD_HEADER])
        send(broker, ("outcomes", T, encode_record(outcome(ADD, Result.DONE, 0))), ("decisions", T, None))
        send(broker, ("outcomes", T, encode_record(outcome(PROPOSAL, Result.DONE, 0))))
        whole = ["PROPOSED", "ACCEPTED", "DECIDED", "DONE", "WITHDRAWN", "DONE"]
        for command in (["explain", "t", "--json"], ["list", "--json", "--since", "1h"]):
            found = run(broker, *command)
            assert steps(found) == whole, found.output
            assert "x.proposals that cannot be read and are not shown: 1 (other schema)" in found.stderr
            assert "x.outcomes that cannot be read and are not shown: 1 (other bytes)" in found.stderr
        admin.delete_records({TopicPartition("x.outcomes", 0): 1})
        later = run(broker, "explain", "t", "--json")
        assert steps(later) == [step for step in whole if step != "ACCEPTED"]
        assert "the first 1 records of x.outcomes are not shown: Kafka keeps them no more" in later.stderr
    finally:
        admin.close()
    tail = Tail(broker)
    try:
        wait_until(lambda: len(tail.steps) == 5, "the tail shows what is there")
        again = encode_record(outcome(ADD, Result.REFUSED, 0))
        send(broker, ("outcomes", T, again))
        wait_until(lambda: tail.steps[5:] == ["REFUSED"], "the tail shows what comes")
        broker.kill()
        wait_until(lambda: "waiting for it" in tail.said, "the tail says that Kafka is away")
        away = run(broker, "list")
        assert away.exit_code == 1 and "does not answer" in str(away.exception)
        broker.start()
        wait_until(lambda: "answers again" in tail.said, "the tail says that Kafka is back")
        send(broker, ("outcomes", T, encode_record(outcome(ADD, Result.FAILED, 0, 7))))
        wait_until(lambda: tail.steps[6:] == ["FAILED"], "the tail goes on")
        assert tail.interrupt() == 130
        assert tail.said.endswith("nyala: interrupted: nothing was changed\n") and "Traceback" not in tail.said
    finally:
        tail.process.kill()
