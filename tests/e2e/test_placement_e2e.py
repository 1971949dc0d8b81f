"""The placement batch job: reports, a plan, proposals, and what masters and the decisions query make of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nyala.jobs.placement import main
from nyala.replica.client import Client
from nyala.replica.rows import RowOp
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.plan_job import PlanJob
from tests.harness.road import Place, Road, row

pytestmark = pytest.mark.e2e
PREFIX = "place."
ROWS = 300


@pytest.mark.deep
def test_replicas_in_one_rack_are_spread_by_the_job_and_only_those_of_the_named_table(
    road: Road, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """OP-07, OP-08. Goal: tables that were made while there was one rack survive the loss of a rack, once there are
    three. Method: two tables on three servers of one rack; two servers in two other racks join. The job for one table,
    in rounds, leaves one replica of each of its tablets in each rack and touches no other table. Then all tables; then
    nothing is left, and the rows are the same."""
    with local_cluster() as cluster:
        kafka = (f"--kafka={road.kafka}", f"--topic-prefix={PREFIX}", "--execute-decisions=none", "--policy-ms=200")
        master = cluster.add_master(*kafka, "--rereplicate-after-ms=600000")
        racks = {cluster.add_server("--location=/dc1/rack1").uuid: 1 for _ in range(3)}
        with Client([master.address]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
            place: Any = Place(str(master.address), road.kafka)
            here = Road(place, client, road.spark, tmp_path, "")
            lane, other = here.lane("placed", tablets=2, rf=3), here.lane("placed_later", tablets=1, rf=3)
            lane.publish([row(k) for k in range(ROWS)], RowOp.INSERT)
            lane.run()
            for rack in (2, 3):
                racks[cluster.add_server(f"--location=/dc1/rack{rack}").uuid] = rack

            def crowds(table: str) -> list[int]:
                """The most replicas of each tablet in one rack."""
                members = ([racks[m.uuid] for m in t.config.members] for t in client.tablet_infos(table))
                return [max(Counter(of_tablet).values()) for of_tablet in members]

            job = PlanJob(main, road, PREFIX, capsys, monkeypatch)

            def planned() -> bool:
                status, plans = job.run("--spread", "--dry-run", "--inputs-wait-s", "60")
                return status == 0 and {m["tablet_id"] for m in plans[0]["moves"]} == {
                    t.tablet_id for each in (lane, other) for t in each.handle.tablets
                }

            wait_until(planned, "the job sees that one rack holds all replicas", 240)
            assert job.proposed() == 0 and crowds(lane.name) + crowds(other.name) == [3, 3, 3]
            rounds = ("--wait", "--wait-s", "400", "--rounds-max", "20")
            with here.deciding(topic_prefix=PREFIX):
                status, plans = job.run("--table", lane.name, "--spread", *rounds)
                assert (status, plans[-1]["moves"], plans[-1]["unsettled"]) == (0, [], []), plans
                assert (crowds(lane.name), crowds(other.name)) == ([1, 1], [3])
                status, plans = job.run("--spread", *rounds)
            assert (status, plans[-1]["moves"]) == (0, []) and crowds(other.name) == [1]
            assert lane.rows() == {k: row(k) for k in range(ROWS)}
