"""The verify job: every replica of a table at one time, its report and its exit status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nyala.jobs.verify import main
from nyala.replica.rows import RowOp
from tests.harness.cluster import wait_until
from tests.harness.road import Lane, Road, row
from tests.harness.stack import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.deep]


def verify(road: Road, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the JSON object."""
    capsys.readouterr()
    status = main(["--masters", road.stack.masters, "--json", *more])
    return status, json.loads(capsys.readouterr().out)


def sums_of(told: dict[str, Any], lane: Lane) -> list[set[str | None]]:
    """Return the different checksums of each tablet of a lane."""
    return [{r["checksum"] for r in t["replicas"]} for t in told["tablets"] if t["table"] == lane.name]


def test_verify_job_compares_replicas_and_fails_when_one_cannot_be_read(
    road: Road, capsys: pytest.CaptureFixture[str]
) -> None:
    """Goal: equal replicas pass, a silent one does not, a dry run reads nothing. Method: a server killed and back."""
    lane = road.lane("verified", rf=3)
    lane.publish([row(k) for k in range(1000)], RowOp.INSERT)
    lane.run()
    only = ("--table", lane.name)
    status, told = verify(road, capsys, *only, "--dry-run")
    assert (status, told["dry_run"], sums_of(told, lane)) == (0, True, [{None}, {None}])

    def compared() -> dict[str, Any] | None:
        """Return the report once all servers answered in time and every tablet had a leader; replicas that differ then,
        differ for good."""
        status, told = verify(road, capsys, *only)
        assert not [f for f in told["findings"] if "replicas differ" in f["what"]], told
        return told if status == 0 else None

    told = wait_until(compared, "all replicas tell their checksums")
    assert told["healthy"] and told["hybrid_time"] > 0, told
    assert [len(sums) for sums in sums_of(told, lane)] == [1, 1] and all(
        len(t["replicas"]) == 3 for t in told["tablets"]
    )
    wait_until(lambda: main(["--masters", road.stack.masters, *only]) == 0, "a person is told the same")
    assert "verified: 1,000 rows, 6 replicas read, 2 of 2 tablets the same" in capsys.readouterr().out
    assert main(["--masters", road.stack.masters, "--table", "nowhere"]) == 1
    assert "no such table" in capsys.readouterr().err
    stack = Stack(road.stack, road.client)
    victim = stack.followers(lane.handle.tablets[0].tablet_id)[0]
    uuid = stack.info(victim).uuid
    road.stack.kill_for_good(victim)
    try:
        wait_until(lambda: all(stack.leader(t.tablet_id) != victim for t in lane.handle.tablets), "others lead")
        status, told = verify(road, capsys, *only, "--timeout-s", "5")
    finally:
        road.stack.start_child(victim)
    assert status == 2
    assert any("voters were not compared" in f["what"] and uuid in f["what"] for f in told["findings"]), told[
        "findings"
    ]
