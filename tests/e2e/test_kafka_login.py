"""A Kafka that requires a login: every client of the query logs in by one set of properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from nyala.pipeline import (
    IngestQuery,
    KafkaSecurity,
    QueryInterrupted,
    QueryRefused,
    RowPublisher,
    Topics,
)
from nyala.replica.client import ScanSpec
from nyala.replica.rpc import pb, pb_grpc
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.kafka_login import LOGIN
from tests.harness.road import SCHEMA, Road, key_of, read_letters, row

pytestmark = [pytest.mark.e2e, pytest.mark.deep]


def test_secured_kafka_is_read_and_gets_its_letters(road: Road) -> None:
    """Goal: publishers, source, topic checks, dead letters and their reader all log in. Method: a SASL listener, rows
    from both kinds of publishers, a bad record."""
    lane = road.lane("secured")
    security = KafkaSecurity.of(LOGIN)
    for bulk, keys in ((False, range(5)), (True, range(5, 10))):
        with RowPublisher(road.kafka_login, lane.topic, SCHEMA, bulk=bulk, security=security) as publisher:
            for k in keys:
                publisher.publish(row(k))
            if bulk:
                publisher.publish_raw(key_of(50), b"no row")
    IngestQuery(road.spark, lane.options(bootstrap=road.kafka_login, kafka=LOGIN)).run()
    topics = Topics(road.kafka_login, 30.0, security)
    assert topics.identity("dead-letters.secured").partitions == 1
    topics.close()
    letters = read_letters(road.kafka_login, "secured", security=security)
    assert [(one.place.partition("[")[0], one.record["value"]) for one in letters] == [("writes.secured", b"no row")]
    assert road.client.count(lane.handle, ScanSpec()) == 10


def test_masters_log_in_by_a_file_of_properties(road: Road, tmp_path: Path) -> None:
    """Goal: decisions and reports reach a Kafka that asks who comes. Method: a master with a properties file connects
    and makes its topics; one without the file does not, and says so instead of ending."""
    properties = tmp_path / "kafka.properties"
    properties.write_text("".join(f"{name.removeprefix('kafka.')}={value}\n" for name, value in LOGIN.items()))
    kafka = f"--kafka={road.kafka_login}"
    with local_cluster() as cluster:
        known = cluster.add_master(kafka, "--topic-prefix=known.", f"--kafka-properties={properties}")
        status = pb_grpc.MasterServiceStub(known.channel).Status
        wait_until(lambda: status(pb.Empty(), timeout=30).kafka_connected, "the master is connected to Kafka")
        topics = Topics(road.kafka_login, 30.0, KafkaSecurity.of(LOGIN))

        def made() -> bool:
            try:
                return topics.identity("known.decisions").partitions == 4
            except (QueryRefused, QueryInterrupted):
                return False

        wait_until(made, "it has made its topics")
        topics.close()
    with local_cluster() as cluster:
        stranger = cluster.add_master(kafka, "--topic-prefix=stranger.")
        wait_until(lambda: "kafka kafka-out" in stranger.log_path.read_text(), "the refusal is logged")
        status = pb_grpc.MasterServiceStub(stranger.channel).Status
        assert not status(pb.Empty(), timeout=30).kafka_connected
