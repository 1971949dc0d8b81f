"""Records with a header that is no UTF-8, in each topic that the pipeline reads with kafka-python, on a real broker."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from nyala.infra.local.kafka import KafkaBroker
from nyala.pipeline import RebalanceOptions, Rebalancer, dead_letter_topic, iterate_letters, source_lags
from nyala.replica.types import Result
from nyala.schemas import encode_record
from tests.harness.bad_header import BAD_HEADER
from tests.harness.patience import patience_s
from tests.unit.pipeline.test_decision_story import PROPOSAL, outcome

pytestmark = pytest.mark.e2e
BAD = object()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for all tests here."""
    with KafkaBroker(Path(tmp_path_factory.mktemp("broker")) / "kafka") as made:
        yield made


def fill(broker: KafkaBroker, topic: str, *partitions: list[Any]) -> None:
    """Make a topic of these values by partition; BAD is a record that kafka-python cannot decode."""
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    try:
        admin.create_topics([NewTopic(topic, len(partitions), 1)])
        for number, values in enumerate(partitions):
            for value in values:
                bad = value is BAD
                headers = [BAD_HEADER] if bad else []
                sent = producer.send(topic, b"bad" if bad else value, partition=number, headers=headers)
                sent.get(timeout=patience_s(60))
    finally:
        producer.close()
        admin.close()


def test_letters_beside_a_record_that_cannot_be_decoded_are_read(broker: KafkaBroker) -> None:
    """IN-90. Goal: a record of somebody else in a dead-letter topic hides no letter, and is shown itself. Method: such
    records at the beginning, between and at the end, in two partitions."""
    fill(broker, dead_letter_topic("t"), [BAD, b"one", BAD, b"two", BAD], [BAD], [b"three"])
    letters = list(iterate_letters(broker.bootstrap, "t"))
    assert all(letter.foreign for letter in letters) and len(letters) == 7
    assert sorted(letter.record["value"] for letter in letters) == [b""] * 4 + [b"one", b"three", b"two"]
    assert sorted(letter.place.rpartition("[")[2] for letter in letters if not letter.record["value"]) == [
        "0]@0",
        "0]@2",
        "0]@4",
        "1]@0",
    ]


def test_lag_behind_a_record_that_cannot_be_decoded_has_no_age(broker: KafkaBroker) -> None:
    """IN-90. Goal: how far a table is behind is told for each partition. Method: the oldest record of two partitions
    cannot be decoded; a third one's can."""
    fill(broker, "source", [b"x", BAD, b"y"], [BAD], [b"z"])
    found = source_lags(broker.bootstrap, "source", {0: 1, 1: 0, 2: 0})
    assert {place: lag.records for place, lag in found.items()} == {0: 2, 1: 1, 2: 1}
    assert found[0].seconds is None and found[1].seconds is None
    assert found[2].seconds is not None and 0 <= found[2].seconds < patience_s(600)


def test_outcomes_beside_a_record_that_cannot_be_decoded_are_followed(
    broker: KafkaBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-90. Goal: a job that waits for its plan learns how each move ended. Method: such a record before an outcome,
    and one behind it."""
    done = outcome(PROPOSAL, Result.DONE, 1)
    fill(broker, "p.outcomes", [BAD, encode_record(done), BAD], [BAD], [])
    rebalancer = Rebalancer(None, RebalanceOptions(bootstrap=broker.bootstrap, topic_prefix="p."))
    with caplog.at_level(logging.WARNING):
        found = next(rebalancer._outcomes(time.monotonic() + patience_s(30)))
    assert found == done
    assert any("cannot decode a record, which was skipped" in line and "offset 0" in line for line in caplog.messages)
