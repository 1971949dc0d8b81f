"""A Kafka that asks who comes: every client of the query logs in by one set of properties."""

from __future__ import annotations

import pytest
from kafka import KafkaProducer

from nyala.pipeline import IngestQuery, KafkaSecurity, Topics, read_letters
from nyala.replica.client import ScanSpec
from tests.harness.kafka_login import LOGIN
from tests.harness.road import Road, event, key_of, row

pytestmark = pytest.mark.e2e


def test_secured_kafka_is_read_and_gets_its_letters(road: Road) -> None:
    """Goal: source, topic checks, dead letters and their reader all log in. Method: a SASL listener, a bad record."""
    lane = road.lane("secured")
    security = KafkaSecurity.of(LOGIN)
    producer = KafkaProducer(bootstrap_servers=road.kafka_login, acks="all", **security.python())
    for k in range(10):
        producer.send(lane.topic, key=key_of(k), value=event(row(k)))
    producer.send(lane.topic, key=key_of(50), value=b"no row")
    producer.flush()
    producer.close()
    IngestQuery(road.spark, lane.options(bootstrap=road.kafka_login, kafka=LOGIN)).run()
    topics = Topics(road.kafka_login, 30.0, security)
    assert topics.identity("dead-letters.secured").partitions == 1
    topics.close()
    letters = read_letters(road.kafka_login, "secured", security=security)
    assert [(one.place, one.record["value"]) for one in letters] == [("writes.secured[0]@10", b"no row")]
    assert road.client.count(lane.handle, ScanSpec()) == 10
