"""The list of generated mutants that no test can distinguish from the code is of today's code."""

from __future__ import annotations

import ast
from collections import Counter

from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.generated import FINISHED, files_of, near
from tests.mutants.mutant import ROOT, source_of
from tests.mutants.operators import changes_of

SOURCE = '''
def first(a: int) -> bool:
    """Text."""
    check(a < 9, "texts and checks of invariants stay")
    if a < 1 and a:
        raise ValueError(1)
    return a == 2
'''


def test_what_counts_as_finished_is_there() -> None:
    """Goal: a renamed module stays in the run of the finished ones. Method: each name in the list, and its tests,
    exist."""
    files = files_of(FINISHED)
    assert len(files) >= len(FINISHED)
    assert [test for test in near(files) if not (ROOT / test).exists()] == []


def test_each_equivalent_mutant_is_one_that_is_generated_and_says_why() -> None:
    """Goal: a row that the code has left behind excuses nothing. Method: all rows against the generated mutants."""
    generated = {
        change.key for file in {row.file for row in EQUIVALENT} for change in changes_of(file, source_of(file))
    }
    assert [row.key for row in EQUIVALENT if row.key not in generated or not row.reason] == []
    assert [key for key, times in Counter(row.key for row in EQUIVALENT).items() if times > 1] == []


def test_operators_change_decisions_and_leave_texts_and_invariants_alone() -> None:
    """Goal: it is known which mutants there are. Method: those of a function with one of each; each compiles, and
    leaves the source's own tree as it was."""
    changes = changes_of("x.py", SOURCE)
    assert [change.after for change in changes] == [
        "if True:", "if False:", "if a:", "if (a < 1):", "if a <= 1 and a:", "if a < 2 and a:", "if a < 0 and a:",
        "return True", "return False", "return a == 3",
    ]  # fmt: skip
    codes = [code for change in changes for code in change.codes(lambda file: file).values()]
    assert len(codes) == len(changes)
    assert len({code.co_code + repr(code.co_consts).encode() for code in codes}) > 5
    assert ast.dump(changes[0].tree) == ast.dump(ast.parse(SOURCE))
