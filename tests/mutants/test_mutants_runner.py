"""What counts as a mutant caught."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.mutants.__main__ import chosen, judge
from tests.mutants.mutant import ROOT, Mutant
from tests.mutants.runs import Ended, in_files

ROW = Mutant(name="x y", rows="IN-01, CN-02", test="tests/a.py::b tests/c.py", file="replica/a.py", before="", after="")
OTHER = Mutant(name="z", test="tests/a.py::d", file="replica/b.py", before="", after="")


def test_mutant_is_caught_by_a_red_test_and_by_nothing_else() -> None:
    """Goal: neither a slow machine, nor a test that is not found, nor a row that is no valid Python passes for a proof.
    Method: every end of pytest, and time that runs out."""
    assert judge(Ended(1, "", 0), ROW) == ""
    assert "did not end within" in judge(Ended(None, "", 0), ROW)
    assert "not noticed" in judge(Ended(0, "", 0), ROW)
    assert all("ended with status" in judge(Ended(status, "", 0), ROW) for status in (2, 3, 4, 5, 70, -9))
    assert "no catch: NameError: name 'q'" in judge(Ended(1, "x\nNameError: name 'q' is not defined\n", 0), ROW)


def test_mutants_are_chosen_by_name_row_test_and_file() -> None:
    """Goal: one row, or those of a change, are run alone. Method: each kind of word, and one that means nothing."""
    for word in ("x_y", "x y", "IN-01", "CN-02", "tests/a.py::b", "tests/c.py", "replica/a.py"):
        assert chosen([ROW, OTHER], [word]) == [ROW]
    assert chosen([ROW, OTHER], ["tests/a.py"]) == chosen([ROW, OTHER], []) == [ROW, OTHER]
    with pytest.raises(SystemExit, match="'IN-0' is no mutant's name"):
        chosen([ROW, OTHER], ["z", "IN-0"])
    assert in_files([*ROW.tests, *OTHER.tests]) == [("tests/a.py::b", "tests/a.py::d"), ("tests/c.py",)]


CHECK = """
import json, sys
from tests.mutants.__main__ import check
from tests.mutants.mutant import Mutant
from tests.mutants.runs import runner
with runner() as runs:
    rows = [Mutant(**row) for row in json.load(sys.stdin)]
    print(json.dumps({mutant.name: problem for mutant, problem, _ in check(runs, rows)}))
"""
TEST = "tests/unit/raft/test_raft_quorum.py::test_majority_any_group_size_is_more_than_half"
WRONG = {
    "return count": "",
    "return count // 2 + 1 + 0": "not noticed",
    "return count /": "no catch: replica/raft/quorum.py: invalid syntax",
    "return coun // 2 + 1": "no catch: NameError",
    "return count // 2 + 1": "the text after is the text before",
}
"""What stands in place of the rule, and what is said of it."""


@pytest.mark.parametrize("on_disk", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_mutants_are_told_from_rows_that_prove_nothing(on_disk: bool) -> None:
    """Goal: a mutant is seen by its test and by no other one, and what proves nothing is told: a change without effect,
    no Python, a name that is not there, a text that is gone, a test that is red anyway. Method: a rule of a line, run
    with each, in forked processes and in copies; none stops the others."""
    row = {"test": TEST, "file": "replica/raft/quorum.py", "function": "majority", "on_disk": on_disk}
    rows = [row | {"name": text, "before": "return count // 2 + 1", "after": text} for text in WRONG]
    rows += [
        row | {"name": "red", "test": f"{TEST}_gone", "before": "return count", "after": "return 0 * count"},
        row | {"name": "gone", "before": "return counts", "after": "return 1"},
    ]
    command = [sys.executable, "-c", CHECK]
    ended = subprocess.run(
        command, input=json.dumps(rows), cwd=ROOT, capture_output=True, text=True, timeout=600, check=True
    )
    told = json.loads(ended.stdout)
    expected = WRONG | {"red": "its test is red without it", "gone": "stands there 0 times"}
    assert told.keys() == expected.keys() and told["return count"] == ""
    assert {name: said for name, said in told.items() if expected[name] not in said} == {}
