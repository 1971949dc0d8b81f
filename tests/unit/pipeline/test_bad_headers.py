"""Records that Kafka's client cannot decode, in each topic that the pipeline reads with it; on a real broker in
`tests/e2e/test_bad_headers_e2e.py`."""

from __future__ import annotations

import logging
import time
from itertools import islice
from typing import Any

import pytest
from kafka import TopicPartition

from nyala.pipeline import RebalanceOptions, Rebalancer, dead_letter_reader, rebalance, source_lag
from nyala.replica.types import Result
from nyala.schemas import encode_record
from tests.harness.patience import patience_s
from tests.unit.pipeline.test_decision_log import BAD_HEADER, Kafka
from tests.unit.pipeline.test_decision_story import PROPOSAL, outcome
from tests.unit.pipeline.test_topics_identity import FOUND, Admin, asking


def partitions(topic: str, *logs: list[Any]) -> tuple[Kafka, list[TopicPartition]]:
    """A topic of these logs, and its partitions."""
    kafka = Kafka({(topic, number): log for number, log in enumerate(logs)}, {})
    return kafka, list(kafka.logs)


def test_letters_beside_a_record_that_cannot_be_decoded_are_read() -> None:
    """IN-90. Goal: a record of somebody else in a dead-letter topic hides no letter, and is shown itself. Method: such
    records at the beginning, between and at the end, in two partitions."""
    bad = BAD_HEADER
    kafka, places = partitions("d", [bad, (b"k", b"one"), bad, (b"k", b"two"), bad], [bad], [(b"k", b"three")])
    found = list(dead_letter_reader._records(kafka, places, patience_s(30)))
    assert sorted((record.partition, record.offset, record.value) for record in found) == [
        (0, 0, b""), (0, 1, b"one"), (0, 2, b""), (0, 3, b"two"), (0, 4, b""), (1, 0, b""), (2, 0, b"three"),
    ]  # fmt: skip


def test_lag_behind_a_record_that_cannot_be_decoded_has_no_age() -> None:
    """IN-90. Goal: how far a table is behind is told for each partition. Method: the oldest record of two partitions
    cannot be decoded; a third one's can."""
    kafka, places = partitions("s", [(None, b"x"), BAD_HEADER], [BAD_HEADER], [(None, b"y"), (None, b"z")])
    assert source_lag._written_at(kafka, dict(zip(places, (1, 0, 1), strict=True))) == {places[2]: 1}


def test_outcomes_beside_a_record_that_cannot_be_decoded_are_followed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """IN-90. Goal: a job that waits for its plan learns how each move ended. Method: such a record before an outcome,
    and one behind it, beside a partition of another one."""
    done = outcome(PROPOSAL, Result.DONE, 1)
    kafka, places = partitions("p.outcomes", [BAD_HEADER, (None, encode_record(done)), BAD_HEADER], [BAD_HEADER], [])
    monkeypatch.setattr(rebalance, "KafkaConsumer", lambda **_: kafka)
    asking(monkeypatch, Admin(FOUND | {"partitions": places}))
    rebalancer = Rebalancer(None, RebalanceOptions(bootstrap="k:1", topic_prefix="p."))
    with caplog.at_level(logging.WARNING):
        assert list(islice(rebalancer._outcomes(time.monotonic() + patience_s(30)), 1)) == [done]
    assert any("cannot decode a record, which was skipped" in line and "offset 0" in line for line in caplog.messages)
    assert kafka.closed
