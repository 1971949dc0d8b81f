"""What counts as a mutant caught."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutants.__main__ import head, judge, red_unpatched


def test_mutant_is_caught_by_a_red_test_and_by_nothing_else() -> None:
    """Goal: neither a slow machine nor a test that is not found passes for a proof. Method: every end of pytest; time
    that runs out counts only where the patch says so."""
    assert judge(1, "", "t", hangs=False) is judge(1, "", "t", hangs=True) is judge(None, "", "t", hangs=True) is None
    assert "did not end within" in (judge(None, "", "t", hangs=False) or "")
    assert "not noticed" in (judge(0, "", "t", hangs=True) or "")
    assert all("ended with status" in (judge(status, "", "t", hangs=False) or "") for status in (2, 3, 4, 5, -9))


def test_head_of_a_patch_has_a_test_and_may_say_that_it_hangs(tmp_path: Path) -> None:
    """Goal: a patch without its test is an error. Method: heads with and without."""
    patch = tmp_path / "x.patch"
    patch.write_text("# rows: A\n# test: tests/a.py::b\n# hangs: yes\n")
    assert (head(patch, "test"), head(patch, "hangs", "no")) == ("tests/a.py::b", "yes")
    patch.write_text("# rows: A\n")
    assert head(patch, "hangs", "no") == "no"
    with pytest.raises(SystemExit, match="has no `# test:` line"):
        head(patch, "test")


def test_named_test_that_is_red_without_a_mutant_is_told_and_the_others_are_not() -> None:
    """Goal: a test that is red anyway proves nothing of its mutants. Method: one that is not there beside one that is
    green, in a copy."""
    gone = "tests/formats/no_such_test.py::test_gone"
    good = "tests/mutants/test_mutants_runner.py::test_mutant_is_caught_by_a_red_test_and_by_nothing_else"
    assert red_unpatched([good]) == {}
    assert list(red_unpatched([gone, good])) == [gone]
