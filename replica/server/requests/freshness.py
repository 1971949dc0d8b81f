"""Reads of bounded staleness: how fresh a replica's data must be for one, and how old it may be. Pure.

Judged by data: a replica's safe time is the time of the last entry that it has applied, whoever it heard from since. A
follower that was restarted, cut off or copied is as old as that entry, however lively it talks to its leader.
Every write acknowledged longer ago than the staleness is in what a read returns, if no two servers' clocks differ by
more than `limits.CLOCK_DIFFERENCE_US_MAX`: by any of them, its time is below now - staleness + that difference.
That needs times which move with the clock: while a server's hybrid time is ahead of its wall by more than the
difference, only a leader answers, by a barrier.
"""

from __future__ import annotations

from nyala.replica.types import Code, Refused, hybrid_from_us, limits, staleness_problem, us_of_hybrid


def lag_us(now: int, safe_time: int) -> int:
    """How old data may be that is complete up to `safe_time`, in microseconds. `now`: this server's hybrid time."""
    return us_of_hybrid(now) - us_of_hybrid(safe_time) + limits.CLOCK_DIFFERENCE_US_MAX


def time_needed(now: int, staleness_us: int, seen: int) -> int:
    """The hybrid time up to which data must be complete. `seen`: what the caller has seen is in it, its own writes too.

    INVALID_ARGUMENT for a staleness that the clocks cannot judge.
    """
    if problem := staleness_problem(staleness_us):
        raise Refused(Code.INVALID_ARGUMENT, problem, staleness_s=staleness_us / 1e6)
    oldest_us = us_of_hybrid(now) - staleness_us + limits.CLOCK_DIFFERENCE_US_MAX
    # Never 0: a replica that has applied nothing knows nothing.
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
