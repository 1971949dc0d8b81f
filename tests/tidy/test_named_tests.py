"""If a document names a test that shows a statement, that test exists."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(p for p in ROOT.glob("*/**/*.md") if p.relative_to(ROOT).parts[0][0] != ".")


@cache
def known() -> set[str]:
    """Return the names of all tests, test files and scripts."""
    files = [p for p in (ROOT / "tests").rglob("*") if p.suffix in (".py", ".txt")]
    tests = {
        name
        for p in files
        if p.suffix == ".py"
        for name in re.findall(r"^(?:async )?def (test_\w+)", p.read_text(), re.M)
    }
    return tests | {p.name for p in files} | {p.stem for p in files}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_and_scripts_that_a_document_names_are_there(document: Path) -> None:
    """Goal: a test that was renamed or dropped is noticed in each document that relies on it. Method: every name in
    backticks that looks like a test, a test file or a script."""
    named = {
        word.rpartition("/")[2]
        for word in re.findall(r"`([\w./]*(?:test_\w+|\w+\.txt)(?:\.py)?)`", document.read_text())
    }
    assert sorted(named - known()) == []
