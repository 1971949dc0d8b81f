"""The whole road over a Kafka of three brokers that loses one at a time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from nyala.replica.client import Client
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.event_load import EventLoad
from tests.harness.road import Place, Road
from tests.harness.three_brokers import three_brokers

pytestmark = [pytest.mark.e2e, pytest.mark.deep]
PREFIX = "three."
LOST = int(os.environ.get("NYALA_TEST_BROKERS_LOST", "1"))
"""How many brokers are lost, one after the other. By hand: 3, which takes five minutes."""


def test_kafka_that_loses_one_of_its_three_brokers_delays_rows_and_moves_only(road: Road, tmp_path: Path) -> None:
    """Goal: with one broker of three away, rows flow, decisions are made and carried out, and each event counts once.
    Method: topics of three replicas, two of which acknowledge. Events that leave a trace if they are applied twice flow
    all the time. kill -9 of a broker that leads a partition of the source; while it is away, events published after its
    death are done, and a replica moves from one server to another by the decisions query. Then it comes back."""
    with three_brokers(tmp_path) as kafka, local_cluster() as cluster:
        master = cluster.add_master(
            f"--kafka={kafka.bootstrap}", f"--topic-prefix={PREFIX}", "--execute-decisions=none", "--policy-ms=200"
        )
        for _ in range(2):
            cluster.add_server()
        with Client([master.address]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 2, "two servers are alive")
            place: Any = Place(str(master.address), kafka.bootstrap)
            here = Road(place, client, road.spark, tmp_path, "")
            lane = here.lane("trio", tablets=1, partitions=3)
            (tablet,) = lane.handle.tablets
            topics = [lane.topic, f"{PREFIX}decisions"]
            done = lambda: sum(p.done for p in client.list_sources(lane.name))  # noqa: E731
            load = EventLoad(lane)
            with lane.running() as query, here.deciding(topic_prefix=PREFIX) as deciding:
                wait_until(lambda: load.events, "the first events are published")
                for number in range(LOST):
                    wait_until(lambda: all(map(kafka.in_sync, topics)), "no broker is behind", 300)
                    led = kafka.leads(lane.topic)
                    broker = kafka.brokers[number if number in led else min(led)]
                    broker.kill()
                    published = load.events
                    wait_until(lambda: load.events > published and done() > published, "rows flow on", 300)  # noqa: B023
                    (home,) = wait_until(lambda: here.homes(tablet.tablet_id), "somebody leads")
                    target = next(s.uuid for s in cluster.servers if s.uuid != home)
                    client.move_replica(
                        tablet.tablet_id, home, target, reason=f"the broker of {broker.folder.name} is away"
                    )
                    wait_until(lambda: here.homes(tablet.tablet_id) == [target], "the replica has moved", 300)  # noqa: B023
                    broker.start()
                events = load.finish()
                wait_until(lambda: done() == events, "every event is done", 300)
            assert query.error is None and deciding.error is None
            assert lane.rows() == load.rows
            letters = lane.letters()
            assert {each.record["reason"] for each in letters} == {"ALREADY_PRESENT"}
            assert sorted(each.record["key"] for each in letters) == sorted(load.letters)
