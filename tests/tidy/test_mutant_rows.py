"""A mutant's text is where its row states, and the test that it turns red exists and names the same requirement."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.mutant import Edit, Mutant, Stale, all_mutants, changed, mutated, pieces, places, source_of
from tests.tidy.test_layers import parsed

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"\b(?:TC|MF|CN|CC|IN)-\d\d\b")
SCRIPTS = "tests/raft_scripts/test_raft_scripts.py"


@cache
def claims(file: str) -> dict[str, set[str]]:
    """Return test -> rows that its docstring claims; empty if there is no such file."""
    if not (ROOT / file).is_file():
        return {}
    return {
        node.name: set(ROW.findall(ast.get_docstring(node) or ""))
        for node in parsed((ROOT / file).read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def claimed_by(test: str) -> set[str]:
    """Return the rows claimed by a test `path::name[case]`, or by all of a file; a script's rows are in its head."""
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


def disowned(mutant: Mutant) -> str:
    """Return what is wrong with the tests of a mutant: one does not exist, or none claims one of its rows if it has
    any."""
    for test in mutant.tests:
        file, _, name = test.partition("::")
        if not claims(file) or (name and name.partition("[")[0] not in claims(file)):
            return f"there is no test {test}"
    rows = set(ROW.findall(mutant.rows))
    claimed = {row for test in mutant.tests for row in claimed_by(test)}
    return "" if not rows or rows & claimed else f"{sorted(rows)} are claimed by none of its tests: {sorted(claimed)}"


def misplaced(mutant: Mutant) -> str:
    """Return what is wrong with the texts of a mutant; empty if each occurs once where it should, and what it leaves is
    Python."""
    try:
        sources = mutated(mutant)
        for edit in mutant.edits:
            if edit.file.endswith(".py") and not _function_is_python(edit):
                ast.parse(sources[edit.file])
    except (Stale, OSError, SyntaxError) as error:
        return str(error)
    return ""


def _function_is_python(edit: Edit) -> bool:
    """Whether the changed function is Python by itself, without the other edits: to parse the file takes ten times as
    long."""
    source, found = source_of(edit.file), places(source_of(edit.file), edit)
    texts = [
        source[begin:first] + after + source[last:end]
        for begin, end in pieces(source, edit.function)
        for first, last, after in found
        if begin <= first < end
    ]
    try:
        for text in texts:
            ast.parse(f"if 1:\n{text}" if text.startswith(" ") else text)
    except SyntaxError:
        return False
    return bool(texts)


def test_each_mutant_stands_where_its_row_says_and_its_test_claims_a_row_of_it() -> None:
    """Goal: a rename that leaves a mutant behind is reported at once, and the test that turns red for a row is the one
    that shows it. Method: all tables against sources, tests, their docstrings and heads of scripts."""
    mutants = all_mutants()
    assert mutants and {m.name: wrong for m in mutants if (wrong := misplaced(m) or disowned(m))} == {}
    assert [name for name, times in Counter(m.name for m in mutants).items() if times > 1] == []


def test_row_without_its_test_or_with_rows_of_another_one_is_told() -> None:
    """Goal: the check above reports such rows. Method: invented rows that do not fit, and one that does."""

    def row(rows: str, test: str) -> Mutant:
        return Mutant(name="x", rows=rows, test=test, file="x.py", before="a", after="b")

    here = "tests/tidy/test_mutant_rows.py::test_row_without_its_test_or_with_rows_of_another_one_is_told"
    assert "claimed by none" in disowned(row("TC-99", here)) and not disowned(row("D-1", here))
    script = f"{SCRIPTS}::test_script_prints_what_was_kept[one_change_at_a_time]"
    assert "claimed by none" in disowned(row("TC-99", script)) and not disowned(row("TC-99, CC-03", script))
    assert "no test" in disowned(row("", f"{here}_gone")) and "no test" in disowned(row("", "tests/gone.py::test_x"))
    assert "No such file" in misplaced(row("", here))


def test_row_that_leaves_no_python_behind_is_told() -> None:
    """Goal: a row whose text after no longer fits the line around it is reported before anybody runs it. Method: a
    text before that has become a part of a longer one."""
    edit = Edit(file="tests/mutants/mutant.py", function="source_of", before="(ROOT / file)", after="pass")
    assert "invalid syntax" in misplaced(Mutant(name="x", test="", **vars(edit)))


SOURCE = """\
def first(a):
    if a:
        return 1
    return 2


class C:
    @property
    def x(self):
        if self.a:
            return 1

        return 2
"""


def test_edit_changes_its_function_alone_and_refuses_a_text_that_is_not_there_once() -> None:
    """Goal: a row can break only the one place that it names. Method: pieces of a line and whole lines, in any
    indentation, in a function, a method and a file; texts that occur nowhere, twice, or in a function that is gone."""
    assert changed(SOURCE, Edit(file="", function="first", before="return 1", after="pass")) == SOURCE.replace(
        "return 1", "pass", 1
    )
    lines = Edit(
        file="",
        function="C.x",
        before="""
                            if self.a:
                                return 1

                            return 2
        """,
        after="""
                            return 1

                            if self.a:
                                pass
        """,
    )
    assert changed(SOURCE, lines).endswith("(self):\n        return 1\n\n        if self.a:\n            pass\n")
    less = Edit(file="", function="first", before="\n        return 1\n", after="\n    a += 1\n")
    assert changed(SOURCE, less).startswith("def first(a):\n    if a:\n    a += 1\n    return 2\n")
    assert "class C" in changed(SOURCE, Edit(file="", before="if a:", after="if 0:"))
    gone = Edit(file="", function="first", before="\n    return 2\n", after="")
    assert changed(SOURCE, gone).startswith("def first(a):\n    if a:\n        return 1\n\n\nclass C")
    for function, before, why in (
        ("", "return 1", "stands there 2 times"),
        ("first", "self.a", "stands there 0 times"),
        ("C.x", "\n    return\n", "stands there 0 times"),
        ("C.y", "return 1", "nothing has that name"),
    ):
        with pytest.raises(Stale, match=why):
            changed(SOURCE, Edit(file="", function=function, before=before, after="pass"))
