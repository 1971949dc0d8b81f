"""Real servers in networks of their own, under partitions, pauses and kills: what clients saw must be linearizable."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.harness.history import History, Operation
from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("partitions") / "found.json"
    ended = contained("tests.harness.partition_drive", str(out), timeout_s=1500)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def test_clients_see_a_linearizable_history_while_leaders_are_cut_off_stopped_and_killed(
    found: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """CN-24: clients see linearizable data (scenarios 31, 33). Method: three servers in network namespaces; five
    clients write and read three rows, three of them each at one server only. The leader is cut off both ways, only from
    what it receives, only from what it sends, stopped, and killed. Clients get on each time; one order explains all
    that they saw."""
    history = History(lambda: 0.0)
    history.operations = [Operation(**o) for o in found["operations"]]
    history.refused_writes = {(key, value) for key, value in found["refused_writes"]}
    judged = history.verify()
    with capsys.disabled():
        print(f"\n{judged} operations judged, {found['lost']} lost, {found['refused']} refused; {found['done']}")
        for name, phase in found["phases"].items():
            print(f"  {name}: {phase}")
    assert len(found["phases"]) == 5
    assert found["refused"] > 50, "nobody asked who does not lead"


def test_stale_reads_are_answered_by_who_is_fresh_and_refused_with_the_lag_by_who_is_not(found: dict[str, Any]) -> None:
    """CN-24: a follower in touch answers; one that is cut off answers only what its age allows, and reports its age; a
    client sees its own writes though it calls followers first. Method: at the end of the same run, a follower is cut
    off from its peers, not from clients, while one row is written again and again."""
    stale = found["stale"]
    assert stale["answered"] == 1 and stale["old"] == 1
    assert [seen for _, seen in stale["own"]] == [value for value, _ in stale["own"]]
    assert stale["fresh"] == 7
    assert stale["refused"][0] == "LAGGING" and "lag_s=" in stale["refused"][1]
