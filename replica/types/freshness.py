"""Judges whether a replica's data is new enough for a read of bounded staleness. Pure.

Only data counts: a replica's safe time is the time of the last entry that it has applied. The data of a follower that
was restarted, cut off or copied is as old as that entry, even if it hears its leader.

A read returns every write that was acknowledged longer ago than the staleness, if no two servers' clocks differ by more
than `limits.CLOCK_DIFFERENCE_US_MAX`: by any of these clocks, the write's time is below now - staleness + difference.
This holds only while hybrid times move with the wall clock. While a server's hybrid time is ahead of its wall clock by
more than the difference, only a leader answers, by a barrier.
"""

from __future__ import annotations

from . import limits
from .errors import Code, Refused
from .time import hybrid_from_us, staleness_problem, us_of_hybrid


def lag_us(now: int, safe_time: int) -> int:
    """The highest age of data that is complete up to `safe_time`, in microseconds. `now`: this server's hybrid time."""
    return us_of_hybrid(now) - us_of_hybrid(safe_time) + limits.CLOCK_DIFFERENCE_US_MAX


def time_needed(now: int, staleness_us: int, seen: int) -> int:
    """The hybrid time up to which data must be complete. `seen`: the highest time that the caller has read or written.

    INVALID_ARGUMENT for a staleness at or below the difference of clocks, or above the longest one.
    """
    if problem := staleness_problem(staleness_us):
        raise Refused(Code.INVALID_ARGUMENT, problem, staleness_s=staleness_us / 1e6)
    oldest_us = us_of_hybrid(now) - staleness_us + limits.CLOCK_DIFFERENCE_US_MAX
    # Never 0, because the safe time of a replica that has applied nothing is 0.
    return max(1, seen, hybrid_from_us(max(0, oldest_us)))


def too_old(now: int, safe_time: int, asked_us: int) -> Refused:
    """The refusal of a replica whose data is older than `asked_us`, or lacks what the caller has seen."""
    if not safe_time:
        return Refused(Code.LAGGING, "this replica has no data yet")
    return Refused(
        Code.LAGGING,
        "this replica's data is older than asked for, or than what the caller has seen: ask another one, or allow more",
        lag_s=round(lag_us(now, safe_time) / 1e6, 3),
        asked_s=round(asked_us / 1e6, 3),
    )
