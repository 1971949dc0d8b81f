"""The page of runs by hand: what a command appends, and what is removed when the page is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.hand_runs import PAGE, ROWS_MAX, command_line, kind_of, record


def rows_of(page: Path) -> list[str]:
    lines = page.read_text().splitlines()
    return [line for line in lines[lines.index("|---|---|---|---|---|") + 1 :] if line.startswith("|")]


def test_run_is_appended_to_the_table_of_runs_and_to_nothing_else(tmp_path: Path) -> None:
    """Goal: a reader sees when each run by hand was made last, where, and how it ended. Method: a copy of the page; two
    runs, one with a line and a bar in its result; all that stood there stays."""
    page = tmp_path / "RUNS.md"
    page.write_text(PAGE.read_text() + "\nA text after the table.\n")
    before = page.read_text()
    rows = [record("python -m tests.soak --seed 3", "1 run,\n0 | failed", page=page)]
    rows.append(record("python -m tests.load", "nothing failed", page=page))
    assert rows_of(page)[-2:] == rows
    date, commit, machine, command, result = (cell.strip() for cell in rows[0].strip("|").split("|"))
    assert len(date) == 10 and commit and "cores" in machine and "Python 3" in machine
    assert (command, result) == ("`python -m tests.soak --seed 3`", "1 run, 0 / failed")
    assert [line for line in page.read_text().splitlines() if line not in rows] == before.splitlines()


@pytest.mark.deep
def test_full_page_loses_the_oldest_row_of_the_command_that_has_most(tmp_path: Path) -> None:
    """Goal: the page stays short, and no command's last run is lost to another command that runs every day. Method: one
    run of each of two commands, then more of a third one than the page holds."""
    page = tmp_path / "RUNS.md"
    page.write_text(PAGE.read_text())
    rare = [record(f"python -m tests.fuzz{more} --seed 1", "well", page=page) for more in ("", " --real")]
    for number in range(ROWS_MAX + 3):
        record("python -m tests.soak", f"run {number}", page=page)
    found = rows_of(page)
    assert len(found) == ROWS_MAX and set(rare) <= set(found)
    assert {kind_of(row) for row in rare} == {"python -m tests.fuzz", "python -m tests.fuzz --real"}
    assert f"run {ROWS_MAX + 2} |" in found[-1] and not any("| run 0 |" in row for row in found)


def test_command_is_recorded_without_the_option_that_records_it() -> None:
    """Goal: who repeats a command from the page does not change the page. Method: words with the option between."""
    assert command_line("tests.load", ["scans", "--record", "--brief"]) == "python -m tests.load scans --brief"


def test_page_without_a_table_is_refused(tmp_path: Path) -> None:
    """Goal: no row is lost in silence. Method: an empty page."""
    page = tmp_path / "RUNS.md"
    page.write_text("# Runs\n")
    with pytest.raises(ValueError, match="is not in list"):
        record("python -m tests.load", "well", page=page)
    assert page.read_text() == "# Runs\n"
