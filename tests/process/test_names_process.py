"""Servers known by host names: the effects of a name that does not resolve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


def test_peer_whose_name_does_not_resolve_is_marked_asked_again_and_replaced(tmp_path: Path) -> None:
    """Goal: scenario 99. Method: four servers that give host names, in a namespace with a hosts file of its own. A
    voter's name is removed and the leader killed: the new leader is elected, accepts rows, and marks the peer; the name
    is back: the peer is healthy and has every row. Removed once more, it is replaced. No process ends because of it."""
    out = tmp_path / "found.json"
    ended = contained("tests.harness.names_drive", str(out), timeout_s=600)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    found = json.loads(out.read_text())
    assert found["rows"] == found["written"] > 0
    assert found["alive"] == found["running"] and len(found["alive"]) == 3
    assert found["said"] > 0, "they tried, and said at which name"


def test_master_is_replaced_by_its_name_and_nobody_is_told(tmp_path: Path) -> None:
    """Goal: MF-06, MF-07, MF-11, MF-12: a master's name moves to another machine, and masters and servers find it there
    by looking the name up again. Method: three masters at names of their own, and a server with these names in its
    options. One is lost, and its name moves to the new one's machine while the new one already runs; the new one is
    caught up, leads, and receives the server's heartbeats. The config has names, and no process that still runs was
    restarted or reconfigured."""
    out = tmp_path / "found.json"
    ended = contained("tests.harness.master_names_drive", str(out), timeout_s=300)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    found = json.loads(out.read_text())
    assert found["stored"] == found["names"]
    assert found["led_by"] == found["new"] and found["tables"] == ["one", "two"]
    assert "ts1" in found["kept"] and found["running"] == found["kept"]
