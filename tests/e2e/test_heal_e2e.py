"""A dead server's replicas are replaced by way of Kafka and Spark, under a running ingest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nyala.replica.client import Client
from nyala.replica.rows import RowOp
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.road import Place, Road, row

pytestmark = [pytest.mark.e2e, pytest.mark.deep]


def test_dead_server_is_replaced_through_kafka_and_spark_while_rows_flow(road: Road, tmp_path: Path) -> None:
    """Goal: 3-4-3 healing end to end: the master decides on Kafka, the decisions query adds and evicts at the leader,
    and ingest goes on. Method: four servers, three replicas, a master that carries nothing out; kill -9 a leader in
    mid-stream for good; voters are three or four at every look and end as three without it; rows are exact."""
    with local_cluster() as cluster:
        fast = ("--server-dead-ms=5000", "--rereplicate-after-ms=10000", "--policy-ms=200")
        kafka = (f"--kafka={road.kafka}", "--topic-prefix=heal.", "--execute-decisions=none")
        master = cluster.add_master(*fast, *kafka)
        for _ in range(4):
            cluster.add_server()
        with Client([master.address]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 4, "four servers are alive")
            place: Any = Place(str(master.address), road.kafka)
            here = Road(place, client, road.spark, tmp_path, "")
            lane = here.lane("healed", tablets=1, rf=3)
            (tablet,) = lane.handle.tablets
            lane.publish([row(k) for k in range(500)], RowOp.INSERT)
            seen: set[int] = set()
            with lane.running(offsets_per_trigger_max=400) as query, here.deciding(topic_prefix="heal."):
                query.wait_done(500)
                victim = cluster.leader(tablet.tablet_id)
                victim.kill()
                lane.publish([row(k) for k in range(500, 1000)], RowOp.INSERT)

                def healed() -> bool:
                    (info,) = client.tablet_infos("healed")
                    voters = {m.uuid for m in info.config.members if m.votes}
                    seen.add(len(voters))
                    return info.running and len(voters) == 3 and victim.uuid not in voters

                wait_until(healed, "three others vote", 240)
                lane.publish([row(k) for k in range(1000, 1200)], RowOp.INSERT)
                query.wait_done(1200)
            assert query.error is None and seen <= {3, 4}
            assert lane.rows() == {k: row(k) for k in range(1200)} and lane.letters() == []
