"""Every planted bug is caught by its scenario, and every scenario is silent without it."""

from __future__ import annotations

import pytest

from tests.sim.planted import PLANTED, PLANTED_MIN, TOLD, Planted, caught, false_alarm, one, swapped, told

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug: Planted) -> None:
    """Goal: an oracle that stops watching turns this red, and so does one that always cries, or a bug that merely
    crashes. Method: swap the line; the tuned scenario must complain as stated; it is silent over the same seeds, or the
    same story, without the bug."""
    tuned = bug.tuned or {}
    assert not bug.story or not told(bug.story), "the story is red without the bug"
    found = caught(bug, seeds=bug.within, tuned=tuned)
    assert found is not None, f"{bug.name}: nothing like {bug.says!r} within {bug.within} seeds"
    assert bug.story or not (alarm := false_alarm(bug.simulator, found[0], tuned)), f"red without the bug: {alarm}"


def test_planted_line_that_only_crashes_is_not_caught() -> None:
    """Goal: a NameError proves nothing about the oracles. Method: plant an unknown name, in seeds and a story."""
    typo = one("raft.quorum:majority", "count // 2 + 1", "no_such_name")
    assert caught(Planted("typo", typo), seeds=2, tuned={}) is None
    assert caught(Planted("typo", typo, story="learner_ack_is_not_a_quorum", says=TOLD), seeds=1, tuned={}) is None


def test_there_are_as_many_planted_bugs_as_promised() -> None:
    """Goal: none is dropped silently, and none has a story alone. Method: count distinct names; each says within how
    many seeds plain search finds it."""
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= PLANTED_MIN
    assert [bug.name for bug in PLANTED if not bug.plain] == []


def test_swap_of_a_line_that_is_gone_is_red() -> None:
    """Goal: a stale planted bug is noticed. Method: swap what does not occur; then the code is as it was."""
    with pytest.raises(AssertionError, match="stale"), swapped("raft.quorum:majority", "no such line", ""):
        pass
    with swapped("raft.quorum:majority", "count // 2 + 1", "7"):
        assert told("learner_ack_is_not_a_quorum")
    assert not told("learner_ack_is_not_a_quorum")
