"""A real server whose disk fills up under a leader: refusals, another leader, a restart, and all rows in the end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


def test_leader_whose_disk_is_full_hands_over_restarts_and_catches_up(tmp_path: Path) -> None:
    """CN-26 (scenario 48). Goal: a full disk costs a leader its leadership, no acknowledged row, no answer and no
    process. Method: three servers, the leader's directory on 24 MB; write until it takes no more, asked by hand, so a
    call without an answer is seen; another server leads and takes rows; the full one is killed and starts, still
    without room; then there is room, and all three hold the same rows."""
    out = tmp_path / "found.json"
    ended = contained("tests.harness.full_disk_drive", str(out), timeout_s=500)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    found = json.loads(out.read_text())
    assert found["acknowledged"] > 1000 and found["alive"] and found["started"], found
    assert found["refusals"] and set(found["refusals"]) <= {"NO_SPACE", "STEPPING_DOWN", "NOT_LEADER"}, found
    assert found["rows"] == found["expected"], found
