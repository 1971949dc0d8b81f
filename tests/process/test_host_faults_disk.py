"""Disks of real servers that become read-only or full, on mounts of the tests' own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.harness.netns import contained

pytestmark = [pytest.mark.process, pytest.mark.deep]


def told(story: str, out: Path) -> Any:
    ended = contained("tests.harness.host_disk_drive", story, str(out), timeout_s=800)
    assert ended.returncode == 0, f"{ended.stdout[-4000:]}\n{ended.stderr[-12000:]}"
    return json.loads(out.read_text())


def test_server_on_a_disk_that_becomes_read_only_ends_by_name_and_comes_back_whole(tmp_path: Path) -> None:
    """CN-08, CN-26. Goal: a directory that cannot be written costs one process, which says why, and no row. Method: the
    leader's directory becomes read-only: 12 MB of rows are acknowledged all the same; the process ends by itself and
    names the cause and the remedy; a start there is refused with that in one line, and without a traceback; once the
    disk is writable it starts, and three replicas have every row."""
    found = told("read-only-server", tmp_path / "found.json")
    remedy = "whether the disk is mounted writable"
    assert found["code"] == 70 and remedy in found["log"], found
    assert remedy in found["at_start"] and "Read-only file system" in found["at_start"], found["at_start"]
    assert found["rows"] == found["expected"], found


def test_master_whose_disk_is_full_refuses_changes_by_name_serves_and_heals(tmp_path: Path) -> None:
    """CN-08. Goal: a full disk of a master costs no table, no row and no process, and is told. Method: a master on 8
    MB; tables are made until one is refused as NO_SPACE, and its log says why it waits; rows are written and read
    meanwhile, the tables are listed, all servers count. It is killed, and starts on a disk without one free page: it
    votes and leads. With room again, and without more, a table is made; the one that found no room is there or not."""
    found = told("full-master", tmp_path / "found.json")
    assert "NO_SPACE" in found["refusal"] and "cannot write its log or its metadata" in found["log"], found
    there = {*found["made"], "before"}
    assert there <= set(found["listed"]) and there | {"after"} <= set(found["after"]), found
    assert len(found["after"]) <= len(there) + 2, found
    assert found["served"] == [1, 2] and found["rows"] == [1, 2, 3, 4] and found["started"], found
