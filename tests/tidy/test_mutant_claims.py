"""A mutant and the test that it turns red speak of the same requirement."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\b(?:TC|MF|CN|CC)-\d\d\b")
SCRIPTS = "tests/raft_scripts/test_raft_scripts.py"


@cache
def claims(file: str) -> dict[str, set[str]]:
    """Test -> rows that its docstring claims."""
    return {
        node.name: set(ROW.findall(ast.get_docstring(node) or ""))
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def claimed_by(test: str) -> set[str]:
    """By a test `path::name[case]`, or by all of a file; a script's rows stand in its head."""
    file, _, name = test.partition("::")
    name, _, case = name.partition("[")
    found = {row for one, rows in claims(file).items() if name in ("", one) for row in rows}
    if file != SCRIPTS:
        return found
    for script in sorted((ROOT / SCRIPTS).parent.glob("*.txt")):
        if case in ("", f"{script.stem}]"):
            head = re.match(r"(?:#.*\n)*", script.read_text())
            found |= set(ROW.findall(head[0] if head else ""))
    return found


def disowned(patch: str) -> str:
    """What is wrong with a mutant whose rows are claimed by none of its tests; empty if one is, or it names no row."""
    rows = set(ROW.findall(" ".join(re.findall(r"^# rows:(.*)$", patch, re.M))))
    tests = " ".join(re.findall(r"^# test:(.*)$", patch, re.M)).split()
    claimed = {row for test in tests for row in claimed_by(test)}
    return "" if not rows or rows & claimed else f"{sorted(rows)} are claimed by none of {tests}: {sorted(claimed)}"


def test_each_mutants_test_claims_a_row_that_the_mutant_is_of() -> None:
    """Goal: a row is shown by the test that turns red for it, not by one beside it. Method: rows and tests in the heads
    of all patches against docstrings and heads of scripts; an invented head that does not fit is told."""
    patches = sorted((ROOT / "tests" / "mutants").glob("*.patch"))
    assert patches and {p.name: wrong for p in patches if (wrong := disowned(p.read_text()))} == {}
    here = "# test: tests/tidy/test_mutant_claims.py\n"
    assert "claimed by none" in disowned(f"# rows: TC-99\n{here}") and not disowned(f"# rows: D-1\n{here}")
    script = f"# test: {SCRIPTS}::test_script_prints_what_was_kept[one_change_at_a_time]\n"
    assert disowned(f"# rows: TC-99\n{script}") and not disowned(f"# rows: TC-99, CC-03\n{script}")
