"""A Kafka that asks who comes: every client of the query logs in by one set of properties."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka import KafkaProducer

from nyala.infra.local.kafka import KafkaBroker
from nyala.pipeline import IngestQuery, KafkaSecurity, Topics, read_letters
from nyala.replica.client import ScanSpec
from tests.harness.road import Road, event, key_of, row

pytestmark = pytest.mark.e2e

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BROKER = f"""
listeners=SASL_PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller_port}}
advertised.listeners=SASL_PLAINTEXT://127.0.0.1:{{port}}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={MODULE} username="broker" password="b" user_broker="b" \
user_nyala="s3cret";
"""
LOGIN = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": f'{MODULE} username="nyala" password="s3cret";',
}


def test_secured_kafka_is_read_and_gets_its_letters(road: Road, tmp_path: Path) -> None:
    """Goal: source, topic checks, dead letters and their reader all log in. Method: a SASL broker, a bad record."""
    lane = road.lane("secured")
    security = KafkaSecurity.of(LOGIN)
    with KafkaBroker(tmp_path / "kafka", properties=BROKER) as broker:
        topics = Topics(broker.bootstrap, 30.0, security)
        topics.ensure(lane.topic)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", **security.python())
        for k in range(10):
            producer.send(lane.topic, key=key_of(k), value=event(row(k)))
        producer.send(lane.topic, key=key_of(50), value=b"no row")
        producer.flush()
        producer.close()
        options = lane.options(bootstrap=broker.bootstrap, kafka=LOGIN)
        IngestQuery(road.spark, options).run()
        assert topics.identity("dead-letters.secured").partitions == 1
        topics.close()
        letters = read_letters(broker.bootstrap, "secured", security=security)
        assert [(one.place, one.record["value"]) for one in letters] == [("writes.secured[0]@10", b"no row")]
    assert road.client.count(lane.handle, ScanSpec()) == 10
