"""What counts as a mutant caught."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.patience import patience_s
from tests.mutants.__main__ import chosen, judge, third
from tests.mutants.in_place import caught_in_place
from tests.mutants.mutant import ROOT, Mutant, all_mutants
from tests.mutants.runs import PATIENCE_S, Ended, in_files

pytestmark = pytest.mark.process

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


def test_thirds_have_each_mutant_once_and_each_test_file_whole() -> None:
    """Goal: CI has run every mutant after as many commits as there are shares, and none of its runs is much longer than
    the others. Method: the thirds of all rows."""
    every = all_mutants()
    found = [third(every, number) for number in (7, 8, 9)]
    assert sorted(m.name for mutants in found for m in mutants) == sorted(m.name for m in every)
    for copied in (False, True):
        files = [{m.tests[0].partition("::")[0] for m in one if m.needs_a_copy is copied} for one in found]
        assert sum(map(len, files)) == len(set.union(*files))
    sizes = [len(one) for one in found]
    assert max(sizes) <= 1.25 * min(sizes), sizes


LANES = """
import sys, time
from pathlib import Path
from tests.mutants.children import ends, fork
here = Path(sys.argv[1])
def done(number):
    return (here / f"done {number}").exists()
def job(number):
    end_s = time.monotonic() + float(sys.argv[2])
    while number == 0 and not done(2) and time.monotonic() < end_s:
        time.sleep(0.01)
    good = done(2) if number == 0 else number != 1 or done(0)
    (here / f"done {number}").touch()
    return 0 if good else 1
def start(number):
    (here / str(number)).mkdir()
    return fork(number, here / str(number), 600, lambda: job(number))
print(sorted((child.pos, status) for child, status, _ in ends([([0, 1], 1), ([2], 1)], start)))
"""


def test_lanes_run_side_by_side_and_none_has_more_than_its_number(tmp_path: Path) -> None:
    """Goal: what waits for servers leaves the cores to what runs in memory, and neither is more than the machine can
    bear. Method: two lanes of one at a time. The first child ends after the other lane's; the second begins after the
    first one's end."""
    command = [sys.executable, "-c", LANES, str(tmp_path), str(patience_s(60))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    assert ended.stdout == "[(0, 0), (1, 0), (2, 0)]\n", ended.stdout


FOR_EVER = """
import json, sys
from pathlib import Path
import pytest
from tests.mutants import forks
from tests.mutants.in_place import _Row
from tests.mutants.mutant import Mutant
forks.WAIT_S = 1.0
row = Mutant(name="x", **json.loads(sys.argv[2]), after="import threading; threading.Event().wait()")
class Session:
    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session):
        made = forks.Forks(session, Path(sys.argv[1]), [row.file], 1)
        names = sorted(made.items, key=lambda name: not name.startswith(row.test))
        usual_s = {name: 0.1 if name.startswith(row.test) else 1e4 for name in names}
        _, verdict = next(made.verdicts([_Row(row)], [usual_s]))
        print(verdict.by, verdict.over, 1.0 < verdict.took_s < float(sys.argv[3]))
        return True
pytest.main([*forks.QUIETLY, row.test.partition("::")[0]], plugins=[Session()])
"""


def test_mutant_that_waits_for_ever_has_the_time_of_the_test_that_it_stops(tmp_path: Path) -> None:
    """Goal: a mutant with hundreds of tests that waits in the first one is given up soon, and counts as no catch of
    that test. Method: a rule of a line waits for ever; its first test takes a tenth of a second without it, the others
    hours."""
    row = {"test": TEST, "file": "replica/raft/quorum.py", "function": "majority", "before": "return count // 2 + 1"}
    command = [sys.executable, "-c", FOR_EVER, str(tmp_path), json.dumps(row), str(patience_s(120))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience_s(120), check=True)
    assert ended.stdout.split() == ["True", "True"], ended.stdout + ended.stderr


CHECK = """
import json, sys
from tests.harness.green_tests import Green
from tests.mutants.__main__ import check
from tests.mutants.mutant import Mutant
from tests.mutants.runs import runner
with runner() as runs:
    given = json.load(sys.stdin)
    rows, green = [Mutant(**row) for row in given["rows"]], Green("d", given["took_s"])
    print(json.dumps({mutant.name: problem for mutant, problem, _ in check(runs, rows, green)}))
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


def checked(rows: list[dict[str, Any]], took_s: dict[str, float]) -> tuple[dict[str, str], str]:
    """Return what is wrong with each row, by name, and what was told meanwhile. `took_s`: tests that have passed."""
    command, given = [sys.executable, "-c", CHECK], json.dumps({"rows": rows, "took_s": took_s})
    ended = subprocess.run(command, input=given, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    return json.loads(ended.stdout), ended.stderr


def test_test_that_has_just_passed_is_not_run_without_a_mutant() -> None:
    """Goal: a run of all mutants does not repeat the tests that were run just before, unless one took longer than a
    wait may take here. Method: a rule of a line, broken and unbroken, in a pytest of its own, with a test that is known
    to pass at once, or slowly; and with one that is not there, which is known to pass."""
    row = {"test": TEST, "file": "replica/raft/quorum.py"}
    rows = [
        row | {"name": text, "before": "return count // 2 + 1", "after": text}
        for text in ("return 0", "return 1 + count // 2")
    ]
    gone = row | {"name": "gone", "test": f"{TEST}_gone", "before": "return count // 2 + 1", "after": "return 0"}
    told, said = checked([*rows, gone], {TEST: 1.0, f"{TEST}_gone": 1.0})
    assert told["return 0"] == "" and "not noticed" in told["return 1 + count // 2"] and "status 4" in told["gone"]
    assert "without a mutant" not in said
    told, said = checked(rows[:1], {TEST: PATIENCE_S + 0.0})
    assert told["return 0"] == "" and "without a mutant" in said


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
    told, _ = checked(rows, {})
    expected = WRONG | {"red": "its test is red without it", "gone": "stands there 0 times"}
    assert told.keys() == expected.keys() and told["return count"] == ""
    assert {name: said for name, said in told.items() if expected[name] not in said} == {}


def test_rows_are_caught_in_place_by_red_tests_alone() -> None:
    """Goal: what is done quickly lets nothing pass for a proof: it takes a red test, and a program that is valid; what
    else there is, or is made at an import, is left to a pytest of its own. Method: a rule of a line with each change of
    it that proves nothing, with another signature, under a test that is gone; and one that is noticed."""
    row = {"test": TEST, "file": "replica/raft/quorum.py", "function": "majority"}
    rows = [Mutant(name=text, before="return count // 2 + 1", after=text, **row) for text in WRONG]
    rows += [
        Mutant(name="signature", before="count: int", after="count: int = 1 // 0", **row),
        Mutant(name="test is gone", before="return count", after="return 0 * count", **row | {"test": f"{TEST}_gone"}),
        Mutant(name="anywhere", before="return count // 2 + 1", after="return 0", **row | {"function": ""}),
    ]
    caught = {rows[pos].name for pos, _ in caught_in_place(rows, 2, PATIENCE_S)}
    assert caught == {"return count"} == {name for name, problem in WRONG.items() if not problem}


WITHOUT_VOTERS = TEST.replace("majority_any_group_size_is_more_than_half", "tally_without_voters_is_never_won")


@pytest.mark.parametrize(("test", "caught"), [(TEST, 6), (WITHOUT_VOTERS, 3)])
def test_generated_mutant_is_caught_if_its_test_notices(test: str, caught: int) -> None:
    """Goal: a run of generated mutants neither takes all for caught nor finds that no test runs them. Method: those of
    a rule of a line, with the test of that rule, and with one that runs the line and leaves three alive."""
    command = [sys.executable, "-m", "tests.mutants.generated", "replica/raft/quorum.py", "--function", "majority"]
    ended = subprocess.run([*command, "--tests", test], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert f"\n{caught} of 6 generated mutants caught" in ended.stdout, ended.stdout + ended.stderr
    assert ended.stdout.count("SURVIVED replica/raft/quorum.py:") == 6 - caught
    assert "run by no test: 0" in ended.stdout and ended.returncode == (caught < 6)
