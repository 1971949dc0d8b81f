"""The rebalancing batch job: reports, a plan, proposals, and what masters and the decisions query make of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nyala.jobs.rebalance import main
from nyala.replica.client import Client
from nyala.replica.rows import RowOp
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.plan_job import PlanJob
from tests.harness.road import Place, Road, row

pytestmark = pytest.mark.e2e
PREFIX = "even."
ROWS = 600


@pytest.mark.deep
def test_server_that_joins_gets_its_share_by_proposals_and_by_none_of_a_dry_run(
    road: Road, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: reports -> plan -> proposals -> decisions -> copies; who asks what would happen changes nothing; what the
    job could not touch it does not call done. Method: a fourth server beside three with three tablets; a dry run plans
    and publishes nothing. While a server is away, no tablet is settled: runs name them and do not end with 0. When it
    is back, one run in rounds ends when nothing is left to move; members are even and the rows the same."""
    with local_cluster() as cluster:
        kafka = (f"--kafka={road.kafka}", f"--topic-prefix={PREFIX}", "--execute-decisions=none", "--policy-ms=200")
        master = cluster.add_master(*kafka, "--rereplicate-after-ms=600000")
        for _ in range(3):
            cluster.add_server()
        with Client([master.address]) as client:
            wait_until(lambda: sum(s.alive for s in client.list_servers().servers) == 3, "three servers are alive")
            place: Any = Place(str(master.address), road.kafka)
            here = Road(place, client, road.spark, tmp_path, "")
            lane = here.lane("evened", tablets=3, rf=3)
            lane.publish([row(k) for k in range(ROWS)], RowOp.INSERT)
            lane.run()
            rows = lane.rows()
            assert rows == {k: row(k) for k in range(ROWS)}

            def held() -> Counter[str]:
                return Counter(m.uuid for tablet in client.tablet_infos("evened") for m in tablet.config.members)

            newcomer = cluster.add_server().uuid
            before, job = held(), PlanJob(main, road, PREFIX, capsys, monkeypatch)

            def planned(moves: bool) -> dict[str, Any] | None:
                status, plans = job.run("--dry-run")
                if not plans:
                    return None
                (told,) = plans
                assert (status, told["state"], told["dry_run"]) == (0, {}, True)
                found = any(m["wanted"] == "MOVE_REPLICA" for m in told["moves"])
                return told if found == moves and (found or len(told["unsettled"]) == 3) else None

            told = wait_until(lambda: planned(True), "the job sees that the fourth server is empty")
            moves = [m for m in told["moves"] if m["wanted"] == "MOVE_REPLICA"]
            assert {m["to_uuid"] for m in moves} == {newcomer} and {m["from_uuid"] for m in moves} <= set(before)

            away = cluster.server(min(before))
            away.kill()
            wait_until(lambda: planned(False), "the job sees that no tablet is settled", 240)
            for rounds in ("1", "3"):
                status, (told,) = job.run("--wait", "--wait-s", "2", "--rounds-max", rounds)
                assert status == 2 and told["moves"] == []
                assert set(told["unsettled"]) == {t.tablet_id for t in lane.handle.tablets}
            assert job.proposed() == 0 and held() == before

            away.start()
            with here.deciding(topic_prefix=PREFIX):
                status, plans = job.run("--wait", "--wait-s", "400", "--rounds-max", "20")
            assert status == 0, plans
            assert (plans[-1]["moves"], plans[-1]["unsettled"]) == ([], [])
            assert sorted(held().values()) == [2, 2, 2, 3]
            became = [result for told in plans for result in told["state"].values()]
            assert became.count("DONE") >= 2 and job.proposed() == len(became)
            assert lane.rows() == rows
