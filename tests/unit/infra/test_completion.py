"""The completions that a shell offers for the rest of a `nyala` line."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nyala.infra.cli.app import COMMANDS, app
from nyala.infra.cli.completion import NAMES_MAX, time_left
from nyala.infra.cli.completion import offered as names_offered
from tests.unit.infra.test_command_imports import LARGE

NYALA = Path(sys.executable).with_name("nyala")


def offered(line: str, **environment: str) -> list[str]:
    """Return bash's completions for the last word of `line`, an empty one after a space."""
    words = line.split(" ")
    asked = {"_NYALA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    result = CliRunner().invoke(app, [], env={**asked, **environment}, prog_name="nyala")
    assert result.exit_code == 0 and not result.stderr, result
    return result.stdout.split()


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("nyala ta", ["table", "tablet"]),
        ("nyala ", list(COMMANDS)),
        ("nyala table des", ["describe"]),
        ("nyala tablet change-config d", ["demote"]),
        ("nyala table scan t --stal", ["--staleness"]),
        ("nyala job ", ["ingest", "decisions", "placement", "rebalance", "verify"]),
        ("nyala table scan ", []),
        ("nyala tablet move ", []),
        ("nyala server retire ", []),
    ],
)
def test_shell_is_offered_what_may_stand_there(line: str, wanted: list[str], tmp_path: Path) -> None:
    """IN-72. Goal: completion offers what may follow, and never prints an error. Method: words of every level; names of
    tables, tablets and servers where no cluster is named, and where the named one does not answer."""
    assert offered(line, NYALA_DIR=str(tmp_path), NYALA_MASTERS="") == wanted
    assert offered(line, NYALA_DIR=str(tmp_path), NYALA_MASTERS="127.0.0.1:1") == wanted


def test_bash_completes_a_command_without_a_large_library(tmp_path: Path) -> None:
    """IN-72. Goal: completion works in a shell, at once. Method: bash takes the script that `nyala` prints for it and
    calls the function that it has registered; Python tells which modules the second call imported."""
    script = f"""
        set -eu
        eval "$(_NYALA_COMPLETE=source_bash {NYALA})"
        complete -p nyala
        COMP_WORDS=({NYALA} ta) COMP_CWORD=1
        PYTHONPROFILEIMPORTTIME=1 _nyala_completion {NYALA} 2> imported
        echo "${{COMPREPLY[@]}}"
    """
    environment = {k: v for k, v in os.environ.items() if not k.startswith("NYALA_")}
    ended = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    registered, *found = ended.stdout.splitlines()
    assert registered.endswith("nyala") and found == ["table tablet"], ended
    imported = {line.rpartition("|")[2].strip() for line in (tmp_path / "imported").read_text().splitlines()}
    assert "nyala.infra.cli.app" in imported
    assert not imported & {*LARGE, "nyala.infra.cli.context"}, "every module of commands imports the last one"


def test_names_are_offered_within_one_time_and_up_to_a_number() -> None:
    """IN-72. Goal: a cluster of many tables answers a <TAB> soon, or not at all. Method: names without end: the first
    thousand that fit; names each of which takes a quarter of the time: those of the first three, and of five none."""
    endless = (f"t{number}" for number in itertools.count())
    found = names_offered(endless, "t1", lambda: 1.0)
    assert len(found) == NAMES_MAX and all(name.startswith("t1") for name in found)
    for count, wanted in ((3, ["a", "a", "a"]), (5, None)):
        clock = [0.0]
        left_s = time_left(lambda clock=clock: clock[0], 2.0)  # type: ignore[misc]

        def slow(count: int = count, clock: list[float] = clock):  # type: ignore[no-untyped-def]
            for _ in range(count):
                clock[0] += 0.5
                yield "a"

        if wanted is None:
            with pytest.raises(TimeoutError):
                names_offered(slow(), "", left_s)
        else:
            assert names_offered(slow(), "", left_s) == wanted
