"""Arithmetic of majorities over the voters of one config. Pure; tests compare it with a slow version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum


class VoteResult(Enum):
    """The result of an election so far."""

    PENDING = "pending"
    WON = "won"
    LOST = "lost"


def majority(count: int) -> int:
    """Votes needed among `count` voters; 1 if there are none, so that no election is won."""
    return count // 2 + 1


def tally(voters: Sequence[str], votes: Mapping[str, bool]) -> VoteResult:
    """Result of `votes` (uuid -> granted). Only votes of `voters` count, never those of learners or of other
    servers."""
    granted = sum(1 for uuid in voters if votes.get(uuid) is True)
    denied = sum(1 for uuid in voters if votes.get(uuid) is False)
    needed = majority(len(voters))
    if granted >= needed:
        return VoteResult.WON
    return VoteResult.LOST if len(voters) - denied < needed else VoteResult.PENDING


def reached(voters: Sequence[str], marks: Mapping[str, int]) -> int:
    """The highest value that a majority of voters has reached. A voter without a mark has 0; without voters the result
    is 0."""
    if not voters:
        return 0
    standing = sorted((marks.get(uuid, 0) for uuid in voters), reverse=True)
    return standing[majority(len(voters)) - 1]
