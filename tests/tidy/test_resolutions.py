"""Each contradiction of the source documents is answered once, and a test shows what its answer claims."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN_BY_NOTHING = {
    "X-02": "a choice of words",
}
"""The only answers without a row, and the reason why there is none."""


def test_each_conflict_is_answered_by_rows_that_tests_name() -> None:
    """Goal: no conflict is forgotten, and none is answered by a row without a test. Method: the X rows of the
    requirements against the table, and its last column against the docstrings of tests and heads of scripts; it is
    empty where this file says why and nowhere else, and what is open names rows that wait for it."""
    asked = re.findall(r"^\| (X-\d\d) \|", (ROOT / "tests" / "requirements.md").read_text(), re.M)
    lines = [line for line in (ROOT / "replica" / "RESOLUTIONS.md").read_text().splitlines() if line.startswith("| X-")]
    assert [found for line in lines for found in re.findall(r"X-\d\d", line.split("|")[1])] == asked
    shown_by = {line.split("|")[1].strip(): re.findall(r"\b[A-Z]{2}-\d\d\b", line.split("|")[3]) for line in lines}
    assert sorted(conflict for conflict, rows in shown_by.items() if not rows) == sorted(SHOWN_BY_NOTHING)
    open_ones = [line for line in lines if "Open:" in line]
    assert all(re.search(r"\bMF-\d\d\b", line.split("|")[2]) for line in open_ones), open_ones
    named = {row for line in lines for row in re.findall(r"\b[A-Z]{2}-\d\d\b", line.split("|")[3])}
    files = [p for p in (ROOT / "tests").rglob("*") if p.name.startswith("test_") or p.suffix == ".txt"]
    shown = {
        row for p in files if p.suffix in (".py", ".txt") for row in re.findall(r"\b[A-Z]{2}-\d\d\b", p.read_text())
    }
    assert sorted(named - shown) == []
