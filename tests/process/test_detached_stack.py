"""`nyala up --detach` as users have it: a supervisor without a terminal, ended in order and not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nyala
from nyala.infra.local import read_state, stop
from tests.harness.cluster import wait_until
from tests.harness.processes import is_gone, kill

pytestmark = pytest.mark.process
ROWS = [{"id": n, "name": f"row {n}"} for n in range(100)]


def say(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """`nyala ...` about the stack in `folder`, in a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NYALA_M")} | {"NYALA_DIR": str(folder)}
    told = [sys.executable, "-m", "nyala.infra.cli.app", *command]
    return subprocess.run(told, env=environment, capture_output=True, text=True, timeout=300, check=False)


def up(folder: Path) -> dict[str, Any]:
    """Start the stack; its state."""
    ended = say(folder, "up", "--detach", "--no-kafka")
    assert ended.returncode == 0, ended.stderr
    state = read_state(folder)
    assert state is not None
    return state


def rows_of(state: dict[str, Any]) -> list[dict[str, Any]]:
    with nyala.connect(state["masters"]) as cluster:
        return sorted(cluster.table("kept").scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_death_of_a_detached_supervisor_leaves_no_orphan_and_loses_no_row(tmp_path: Path) -> None:
    """Goal: whoever kills the supervisor has killed the stack, and starts it again as it was. Method: rows, kill -9 of
    the supervisor; every child ends, `nyala status` and a table's command say that no stack runs; `nyala up` again
    serves the rows at the same addresses; `nyala down` ends all of it."""
    folder = tmp_path / "stack"
    state = up(folder)
    try:
        with nyala.connect(state["masters"]) as cluster:
            table = cluster.create_table("kept", {"id": "int64", "name": "string"}, key="id")
            table.insert(ROWS)
        kill(state["pid"])
        orphans = [child["pid"] for child in state["children"]]
        assert len(orphans) == 4
        wait_until(lambda: all(map(is_gone, orphans)), "master and servers have ended with their supervisor")
        for command in (["status"], ["table", "list"]):
            ended = say(folder, *command)
            assert ended.returncode != 0 and "no stack runs" in ended.stderr and "nyala up" in ended.stderr
        again = up(folder)
        assert again["addresses"] == state["addresses"] and again["pid"] != state["pid"]
        assert rows_of(again) == ROWS
        ended = say(folder, "down")
        assert ended.returncode == 0, ended.stderr
        assert all(is_gone(child["pid"]) for child in again["children"])
    finally:
        stop(folder)
