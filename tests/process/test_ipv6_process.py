"""A cluster of which every address is one of IPv6."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.ipv6_drive import COMMANDS, ROWS
from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


def test_cluster_without_any_address_of_ipv4_writes_reads_copies_and_elects(tmp_path: Path) -> None:
    """Goal: nothing in a cluster needs IPv4, but a server's page of metrics. Method: three masters and four servers in
    a namespace that has `::1` only. Rows by both roads, commands, a replica that moves by a copy, the death of a leader
    and of a master, a stale read; both start again, and all replicas have equal checksums."""
    out = tmp_path / "found.json"
    ended = contained("tests.harness.ipv6_drive", str(out), timeout_s=300)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    found = json.loads(out.read_text())
    assert found["rows"] == ROWS + 2
    assert found["commands"] == dict.fromkeys(COMMANDS, 0)
    assert found["alive"] == 7 and found["addresses"] == ["[::1]"]
