"""Every scenario of `tests/SCENARIOS.md` is named by a test, and every test that names one names one of the list."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.tidy.test_layers import nodes_of

TESTS = Path(__file__).resolve().parents[1]
LIST = TESTS / "SCENARIOS.md"
NUMBERS = re.compile(r"[Ss]cenarios? ((?:\d+(?:, | and )?)+)")


@cache
def listed() -> dict[int, str]:
    """Return number -> level, as the list's table has it."""
    return {int(n): level for n, level in re.findall(r"^\| (\d+) \| .* \| (\w+) \|$", LIST.read_text(), re.M)}


def note(found: dict[int, set[str]], test: str, text: str) -> None:
    for numbers in NUMBERS.findall(" ".join(text.split())):
        for number in re.findall(r"\d+", numbers):
            found.setdefault(int(number), set()).add(test)


@cache
def named() -> dict[int, set[str]]:
    """Return number -> tests, `path::name`, whose docstring names it, and scripts whose first line does."""
    found: dict[int, set[str]] = {}
    for script in (TESTS / "raft_scripts").glob("*.txt"):
        note(found, str(script.relative_to(TESTS)), script.read_text().splitlines()[0])
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        for node in nodes_of(text) if "cenario" in text else ():
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or not node.name.startswith("test_"):
                continue
            note(found, f"{path.relative_to(TESTS)}::{node.name}", ast.get_docstring(node) or "")
    return found


def test_each_listed_scenario_is_shown_at_its_level() -> None:
    """Goal: no scenario loses its test unnoticed. Method: the docstrings; `real` demands a test with real processes."""
    assert listed() and sorted(set(listed()) - set(named())) == []
    real = {number: named()[number] for number, level in listed().items() if level == "real"}
    beneath = {n: t for n, t in real.items() if not any(x.startswith(("process/", "e2e/", "soak/")) for x in t)}
    assert real and beneath == {}


def test_named_scenarios_are_listed() -> None:
    """Goal: a number can be looked up. Method: all numbers in docstrings against the list."""
    assert sorted(set(named()) - set(listed())) == []
