"""Every planted bug is caught by its scenario, and every scenario is silent without it."""

from __future__ import annotations

import pytest

from tests.sim.planted import PLANTED, PLANTED_MIN, Planted, caught, swapped, told


@pytest.mark.parametrize("bug", PLANTED, ids=lambda bug: bug.name)
def test_planted_bug_is_caught(bug: Planted) -> None:
    """Goal: an oracle that stops watching turns this red. Method: swap the line; the tuned scenario must complain."""
    assert not bug.story or not told(bug.story), "the story is red without the bug"
    found = caught(bug, seeds=bug.within, tuned=bug.tuned or {})
    assert found is not None, f"{bug.name}: not caught within {bug.within} seeds"


def test_there_are_as_many_planted_bugs_as_promised() -> None:
    """Goal: none is dropped silently. Method: count distinct names."""
    assert len({bug.name for bug in PLANTED}) == len(PLANTED) >= PLANTED_MIN


def test_swap_of_a_line_that_is_gone_is_red() -> None:
    """Goal: a stale planted bug is noticed. Method: swap what does not occur; then the code is as it was."""
    with pytest.raises(AssertionError, match="stale"), swapped("raft.quorum:majority", "no such line", ""):
        pass
    with swapped("raft.quorum:majority", "count // 2 + 1", "7"):
        assert told("learner_ack_is_not_a_quorum")
    assert not told("learner_ack_is_not_a_quorum")
