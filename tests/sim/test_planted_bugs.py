"""Every planted bug is caught by its scenario, and every scenario is silent without it."""

from __future__ import annotations

import pytest

from tests.sim.planted import PLANTED, PLANTED_MIN, TOLD, Planted, caught, false_alarm, one, stale, swapped, told


@pytest.mark.deep
@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug: Planted) -> None:
    """Goal: a verifier that stops comparing turns this red, and so does one that complains without cause, or a bug that
    merely crashes. Method: with the line replaced the tuned scenario must complain as stated; without the bug it is
    silent over the same seeds, or the same story."""
    tuned = bug.tuned or {}
    assert not bug.story or not told(bug.story), "the story is red without the bug"
    found = caught(bug, seeds=bug.within, tuned=tuned)
    assert found is not None, f"{bug.name}: nothing like {bug.says!r} within {bug.within} seeds"
    assert bug.story or not (alarm := false_alarm(bug.simulator, found[0], tuned)), f"red without the bug: {alarm}"


@pytest.mark.deep
def test_planted_line_that_only_crashes_is_not_caught() -> None:
    """Goal: a NameError proves nothing about the verifiers. Method: plant an unknown name, in seeds and a story."""
    typo = one("raft.quorum:majority", "count // 2 + 1", "no_such_name")
    assert caught(Planted("typo", typo), seeds=2, tuned={}) is None
    assert caught(Planted("typo", typo, story="learner_ack_is_not_a_quorum", says=TOLD), seeds=1, tuned={}) is None


def test_there_are_as_many_planted_bugs_as_promised() -> None:
    """Goal: no bug is dropped silently, and none has a story alone. Method: count distinct names; each states within
    how many seeds plain search finds it."""
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= PLANTED_MIN
    assert [bug.name for bug in PLANTED if not bug.plain] == []


def test_planted_bugs_still_fit_the_code() -> None:
    """Goal: the fast suite, not the deep one, reports a change that moves a line away from under a planted bug. Method:
    replace the lines of each bug, look up its story, and run nothing; then bugs that do not fit."""
    assert {bug.name: why for bug in PLANTED if (why := stale(bug))} == {}
    here, fits = "raft.quorum:majority", "count // 2 + 1"
    for target, old, new, story, why in (
        (here, "no such line", "", "", "stale"),
        ("raft.quorum:gone", fits, "7", "", "AttributeError"),
        ("raft.gone:majority", fits, "7", "", "ModuleNotFoundError"),
        (here, fits, "7 +", "", "SyntaxError"),
        (here, fits, "7", "no_such_script", "no script"),
        (here, fits, "7", "tests.paper.no_such_module:test_x", "ModuleNotFoundError"),
        (here, fits, "7", "tests.paper.test_raft_paper_section_5:test_gone", "AttributeError"),
    ):
        assert why in stale(Planted("x", one(target, old, new), story=story))


def test_swap_of_a_line_that_is_gone_is_red() -> None:
    """Goal: a stale planted bug is noticed. Method: replace a text that does not occur; the code is unchanged
    afterwards."""
    with pytest.raises(AssertionError, match="stale"), swapped("raft.quorum:majority", "no such line", ""):
        pass
    with swapped("raft.quorum:majority", "count // 2 + 1", "7"):
        assert told("learner_ack_is_not_a_quorum")
    assert not told("learner_ack_is_not_a_quorum")
