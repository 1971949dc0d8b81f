"""The rebalancing batch job: reports, a plan, proposals, and what masters and the decisions query make of them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from nyala.jobs.rebalance import main
from nyala.pipeline import Topics
from nyala.replica.client import Client
from nyala.replica.rows import RowOp
from tests.harness.cluster import local_cluster, wait_until
from tests.harness.road import Place, Road, row

pytestmark = pytest.mark.e2e
PREFIX = "even."
ROWS = 600


class Job:
    """Runs of the job in this process; what they print shares the standard output with the queries' lines."""

    def __init__(self, road: Road, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._road = road
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def run(self, *more: str) -> tuple[int, dict[str, Any]]:
        """Exit status and the JSON object, empty if the job could not run."""
        arguments = ["rebalance", "--kafka", self._road.kafka, "--topic-prefix", PREFIX, "--json", *more]
        self._monkeypatch.setattr(sys, "argv", arguments)
        self._capsys.readouterr()
        status = main()
        out, err = self._capsys.readouterr()
        if status == 1:
            print(err)
            return status, {}
        told: dict[str, Any] = json.JSONDecoder().raw_decode(out[out.index('{"plan_id"') :])[0]
        return status, told

    def proposed(self) -> int:
        """Proposals on Kafka."""
        topics = Topics(self._road.kafka)
        try:
            return sum(topics.offsets(f"{PREFIX}proposals", 1, latest=True).values())
        finally:
            topics.close()


def test_server_that_joins_gets_its_share_by_proposals_and_by_none_of_a_dry_run(
    road: Road, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: reports -> plan -> proposals -> decisions -> copies, and who asks what would happen changes nothing.
    Method: a fourth server beside three with three tablets; a dry run plans and publishes nothing; then the job with
    --wait, over again as long as a tablet was not settled when it looked; members are even and the rows the same."""
    with local_cluster() as cluster:
        kafka = (f"--kafka={road.kafka}", f"--topic-prefix={PREFIX}", "--execute-decisions=none", "--policy-ms=200")
        master = cluster.add_master(*kafka)
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
            before, job = held(), Job(road, capsys, monkeypatch)

            def planned() -> list[dict[str, Any]]:
                status, told = job.run("--dry-run")
                if not told:
                    return []
                assert (status, told["state"], told["dry_run"]) == (0, {}, True)
                return [m for m in told["moves"] if m["wanted"] == "MOVE_REPLICA"]

            moves = wait_until(planned, "the job sees that the fourth server is empty")
            assert {m["to_uuid"] for m in moves} == {newcomer} and {m["from_uuid"] for m in moves} <= set(before)
            assert job.proposed() == 0 and held() == before
            became: list[str] = []

            def even() -> bool:
                status, told = job.run("--wait", "--wait-s", "200")
                if told:
                    assert status == (0 if set(told["state"].values()) <= {"DONE"} else 2)
                    became.extend(told["state"].values())
                return sorted(held().values()) == [2, 2, 2, 3]

            with here.deciding(topic_prefix=PREFIX):
                wait_until(even, "each server holds its share", 240)
            assert became.count("DONE") >= 2 and job.proposed() >= len(became)
            assert lane.rows() == rows
