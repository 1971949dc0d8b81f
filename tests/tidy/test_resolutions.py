"""Each contradiction of the source documents is answered once, and what is said to show it is shown."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_conflict_is_answered_by_rows_that_tests_name() -> None:
    """Goal: no conflict is forgotten, and none is answered by a row without a test. Method: the X rows of the
    requirements against the table, and its last column against the docstrings of tests and heads of scripts."""
    asked = re.findall(r"^\| (X-\d\d) \|", (ROOT / "tests" / "requirements.md").read_text(), re.M)
    lines = [line for line in (ROOT / "replica" / "RESOLUTIONS.md").read_text().splitlines() if line.startswith("| X-")]
    assert [found for line in lines for found in re.findall(r"X-\d\d", line.split("|")[1])] == asked
    named = {row for line in lines for row in re.findall(r"\b[A-Z]{2}-\d\d\b", line.split("|")[3])}
    files = [p for p in (ROOT / "tests").rglob("*") if p.name.startswith("test_") or p.suffix == ".txt"]
    shown = {
        row for p in files if p.suffix in (".py", ".txt") for row in re.findall(r"\b[A-Z]{2}-\d\d\b", p.read_text())
    }
    assert sorted(named - shown) == []
