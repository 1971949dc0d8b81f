"""Majority arithmetic against slow obvious twins."""

from __future__ import annotations

import itertools
import random

import pytest

from nyala.replica.raft.quorum import VoteResult, majority, reached, tally


def slow_reached(voters: tuple[str, ...], marks: dict[str, int]) -> int:
    """The highest value which more than half of the voters have reached, by trying all of them."""
    best = 0
    for value in sorted({0, *marks.values()}):
        if voters and sum(marks.get(v, 0) >= value for v in voters) * 2 > len(voters):
            best = value
    return best


def slow_tally(voters: tuple[str, ...], votes: dict[str, bool]) -> VoteResult:
    """By every way in which the missing votes could fall."""
    missing = [v for v in voters if v not in votes]
    outcomes = set()
    for fill in itertools.product([True, False], repeat=len(missing)):
        final = {**votes, **dict(zip(missing, fill, strict=True))}
        outcomes.add(sum(final[v] for v in voters) * 2 > len(voters))
    if len(outcomes) == 2:
        return VoteResult.PENDING
    return VoteResult.WON if outcomes == {True} else VoteResult.LOST


@pytest.mark.parametrize(("voters", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_majority_any_group_size_is_more_than_half(voters: int, needed: int) -> None:
    """Goal: CN-23's table. Method: small sizes by hand."""
    assert majority(voters) == needed


def test_reached_random_marks_equals_brute_force() -> None:
    """Goal: scenario 20, the commit arithmetic: one set of voters, since changes go one by one. Method: 3,000 random
    vectors of none to seven voters, with strangers and with gaps."""
    rng = random.Random(1)
    for _ in range(3000):
        voters = tuple("abcdefg"[: rng.randint(0, 7)])
        marks = {name: rng.randint(0, 9) for name in "abcdefghij" if rng.random() < 0.8}
        assert reached(voters, marks) == slow_reached(voters, marks), (voters, marks)


def test_tally_random_votes_equals_brute_force() -> None:
    """Goal: CN-28, CN-29, CC-11, scenario 20: only voters count. Method: every reply pattern of up to five voters, plus
    two strangers."""
    for count in range(1, 6):
        voters = tuple("abcde"[:count])
        for votes in itertools.product([None, True, False], repeat=count):
            given = {v: vote for v, vote in zip(voters, votes, strict=True) if vote is not None}
            assert tally(voters, {**given, "x": True, "y": False}) is slow_tally(voters, given)


def test_tally_without_voters_is_never_won() -> None:
    """Goal: an election in a config without voters is never won. Method: strangers vote."""
    assert tally((), {"x": True}) is VoteResult.LOST
