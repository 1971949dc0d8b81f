"""Servers known by host names: what a name that does not resolve costs, and what it does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


def test_peer_whose_name_does_not_resolve_is_marked_asked_again_and_replaced(tmp_path: Path) -> None:
    """Goal: scenario 99. Method: four servers that say host names, in a namespace with a hosts file of its own. A
    voter's name is forgotten and the leader killed: the new one is elected, takes rows, and marks the peer; the name
    is back: the peer is healthy and has every row. Forgotten once more, it is replaced. No process ends by it."""
    out = tmp_path / "found.json"
    ended = contained("tests.harness.names_drive", str(out), timeout_s=600)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    found = json.loads(out.read_text())
    assert found["rows"] == found["written"] > 0
    assert found["alive"] == found["running"] and len(found["alive"]) == 3
    assert found["said"] > 0, "they tried, and said at which name"
