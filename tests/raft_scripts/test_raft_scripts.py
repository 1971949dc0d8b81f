"""Every scenario script prints today what it printed when it was read and kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.raft_script import run_script

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda p: p.stem)
def test_script_prints_what_was_kept(path: Path) -> None:
    """Goal: each story ends as told. Method: run it; `python -m tests.harness.raft_script --rewrite` after a change."""
    text = path.read_text()
    assert text.startswith(f"# {path.name}: "), "a script begins with its name and its story"
    assert run_script(text) == text


def test_runner_wrong_expectation_is_replaced() -> None:
    """Goal: the runner compares what commands print. Method: a script with a lie comes back different."""
    lie = "cluster voters=a\nelect a\nstatus\n----\na FOLLOWER\n"
    assert run_script(lie) == "cluster voters=a\nelect a\nstatus\n----\na LEADER term=1 last=1.1 commit=1\n"
