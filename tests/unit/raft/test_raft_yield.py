"""A voter that yields: others lead as long as one of them can."""

from __future__ import annotations

from nyala.replica.raft import Role, TimeoutNow, VoteRequest
from nyala.replica.raft.election import YIELD_TIMEOUTS
from nyala.replica.types import OpId
from tests.harness.raft_net import OPTIONS
from tests.harness.raft_solo import Solo

LAST_RESORT = YIELD_TIMEOUTS * OPTIONS.election_ticks_max


def yielding(voters: str = "abc") -> tuple[Solo, list[bool]]:
    """A voter, and a list whose only item is whether it yields."""
    state = [True]
    return Solo(voters, term=1, yields=lambda: state[0]), state


def ticks_until_it_stands(solo: Solo) -> int:
    for tick in range(1, 2 * LAST_RESORT):
        solo.core.tick()
        if any(isinstance(m, VoteRequest) for m in solo.persist()) or solo.core.role is Role.LEADER:
            return tick
    return 0


def test_voter_that_yields_stands_only_when_nobody_else_was_elected() -> None:
    """OP-03. Goal: another voter is elected first, but a tablet is not without a leader for ever, because only this
    voter may have the newest entries. Method: ticks without a leader, twice; a voter that does not yield any more; one
    that hears a leader meanwhile."""
    solo, state = yielding()
    assert ticks_until_it_stands(solo) == LAST_RESORT
    assert ticks_until_it_stands(solo) == LAST_RESORT
    state[0] = False
    assert 0 < ticks_until_it_stands(solo) <= OPTIONS.election_ticks_max
    solo, _ = yielding()
    for _ in range(LAST_RESORT - 1):
        solo.core.tick()
    solo.step(solo.append(2, OpId(0, 0)))
    assert ticks_until_it_stands(solo) == LAST_RESORT


def test_only_voter_yields_to_nobody() -> None:
    """OP-03. Goal: a tablet of one replica keeps its leader. Method: it starts on a server that quiesces; one of two
    voters there leaves the lead to the other."""
    solo, _ = yielding("a")
    assert 0 < ticks_until_it_stands(solo) <= OPTIONS.election_ticks_max
    one_of_two, _ = yielding("ab")
    assert ticks_until_it_stands(one_of_two) == LAST_RESORT


def test_voter_that_yields_takes_over_from_no_leader_and_is_no_first_leader() -> None:
    """OP-03. Goal: no leadership comes to a server that quiesces. Method: a leader that hands over, and the hint of a
    new tablet; both work when it does not yield any more."""
    for yields in (True, False):
        solo, state = yielding()
        state[0] = yields
        solo.step(solo.append(1, OpId(0, 0)))
        sent = solo.step(TimeoutNow(to_uuid="a", from_uuid="b", term=1, last=OpId(0, 0)))
        assert any(isinstance(m, VoteRequest) for m in sent) is not yields
        hinted, state = yielding()
        state[0] = yields
        for _ in range(OPTIONS.election_ticks_min + 1):
            hinted.core.tick()
            hinted.persist()
        hinted.core.campaign()
        assert any(isinstance(m, VoteRequest) for m in hinted.persist()) is not yields
