"""How far a term may lie above the own one."""

from __future__ import annotations

import pytest

from nyala.replica.raft import Role, TimeoutNow, VoteRequest, too_far
from nyala.replica.types import OpId, limits, next_generation
from tests.harness.raft_solo import Solo, entry

HALF = limits.RAFT_TERMS_HONEST_MAX
STEP = limits.RAFT_TERM_JUMP_MAX
LAST = next_generation(0) - 1


@pytest.mark.parametrize(
    ("own", "term", "refused"),
    [
        (0, STEP + 1, False),
        (0, HALF, False),
        (0, HALF + 1, True),
        (3, HALF, False),
        (3, LAST, True),
        (HALF, HALF + STEP, False),
        (HALF, HALF + STEP + 1, True),
        (HALF, LAST, True),
        (HALF + 9, 5, False),
        (3, next_generation(3) + HALF, False),
        (HALF + 9, next_generation(3) + HALF + 1, True),
        (3, (limits.RAFT_GENERATION_JUMP_MAX << 32) + 1, False),
        (3, (limits.RAFT_GENERATION_JUMP_MAX + 1) << 32, True),
        (next_generation(3), LAST, False),
    ],
)
def test_any_term_that_a_group_can_have_come_to_is_taken(own: int, term: int, refused: bool) -> None:
    """IN-50. Goal: a replica accepts any term of the first half of a generation, and behind that only one step at a
    time. Method: both sides of each bound; in this generation, an earlier one and later ones."""
    assert too_far(own, term) is refused


def test_replica_that_knows_nothing_follows_the_leader_of_an_old_group() -> None:
    """IN-50. Goal: a new replica accepts the term of a group that has had many elections, and refuses the last term of
    a generation. Method: a replica in term 0 hears from the leader, and from a candidate, of a group that has held more
    elections than one step: taken; the last term of the generation is refused in both."""
    term = STEP + 7
    for message in (
        Solo().append(term, OpId(0, 0), entry(term, 1)),
        VoteRequest(to_uuid="a", from_uuid="b", term=term, last=OpId(term - 1, 9), pre_vote=False),
    ):
        solo = Solo()
        assert solo.core.refusal(message) == ""
        solo.step(message)
        assert solo.core.term == term
    for message in (
        Solo().append(LAST, OpId(0, 0)),
        VoteRequest(to_uuid="a", from_uuid="b", term=LAST, last=OpId(term - 1, 9), pre_vote=False),
    ):
        assert "too far" in Solo().core.refusal(message)


@pytest.mark.parametrize("own", [limits.RAFT_TERM_MAX - 1, limits.RAFT_TERM_MAX])
def test_no_election_begins_in_the_last_term_that_the_metadata_hold(own: int) -> None:
    """IN-50. Goal: no overflow ends a replica whose term is the last. Method: the only voter, which wins at once, is
    asked to campaign by hand and by its timer: it leads only if a term is left. A follower is asked by its leader."""
    solo = Solo("a", term=own)
    solo.core.campaign()
    solo.persist()
    for _ in range(100):
        solo.core.tick()
        solo.persist()
    assert solo.core.term == limits.RAFT_TERM_MAX
    assert (solo.core.role is Role.LEADER) is (own < limits.RAFT_TERM_MAX)
    follower = Solo(term=limits.RAFT_TERM_MAX)
    told = TimeoutNow(to_uuid="a", from_uuid="b", term=limits.RAFT_TERM_MAX, last=OpId(0, 0))
    assert follower.step(told) == [] and follower.core.term == limits.RAFT_TERM_MAX
