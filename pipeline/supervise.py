"""Starts a query again after a temporary error, with back-off and a limit."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.types import check

from .errors import QueryInterrupted, QueryRefused

PATIENCE_S = 24 * 3600.0
PATIENCE_TO_CATCH_UP_S = 600.0
"""The longest streak of failures for a run that ends by itself when it has caught up. It is short, because a person or
a schedule waits for the run."""
CALM_S = 300.0


@dataclass(frozen=True, kw_only=True)
class RestartOptions:
    """The bounds after which a failed query is given up. A run that made progress, or lasted longer than `calm_s`, ends
    a streak of failures."""

    patience_s: float = PATIENCE_S
    """The seconds that a streak may last: long enough for an outage of hours."""
    restarts_max: int | None = None
    """The restarts that one streak may have, besides the bound on its time; None: only its time is bounded."""
    backoff_s_min: float = 1.0
    backoff_s_max: float = 30.0
    calm_s: float = CALM_S

    def __post_init__(self) -> None:
        check(self.patience_s > 0, "patience_s is positive", patience_s=self.patience_s)
        check(self.restarts_max is None or self.restarts_max >= 0, "restarts_max is not negative")
        check(0 < self.backoff_s_min <= self.backoff_s_max, "back-off grows")

    def pause_s(self, restarts: int) -> float:
        """Return the seconds before restart number `restarts`, the first being 1."""
        return min(self.backoff_s_max, self.backoff_s_min * 2.0 ** min(restarts - 1, 30))


@dataclass(frozen=True)
class FailureStreak:
    """Runs that failed in a row without progress: the time of the first failure (seconds), and the number of the next
    start."""

    since_s: float
    start: int

    def given_up(self, now_s: float, options: RestartOptions) -> bool:
        """Whether the query is not started again."""
        too_often = options.restarts_max is not None and self.start > options.restarts_max
        return too_often or now_s - self.since_s >= options.patience_s


def streak_after(
    before: FailureStreak | None, began_s: float, ended_s: float, *, made_progress: bool, options: RestartOptions
) -> FailureStreak:
    """Return the streak after a run from `began_s` to `ended_s` that failed, from the one before it. Pure."""
    if made_progress or ended_s - began_s > options.calm_s:
        return FailureStreak(ended_s, 1)
    return FailureStreak(began_s, 1) if before is None else FailureStreak(before.since_s, before.start + 1)


def restart_options(patience_s: float | None, restarts_max: int | None, *, catches_up: bool) -> RestartOptions:
    """Return the options of a command line; `catches_up`: the run ends when it has read what is there."""
    usual = PATIENCE_TO_CATCH_UP_S if catches_up else PATIENCE_S
    patience_s = usual if patience_s is None else patience_s
    # Such a run ends when it has caught up. So a long run without an end made no progress: its writer may have waited
    # for a leader.
    calm_s = max(CALM_S, patience_s) if catches_up else CALM_S
    return RestartOptions(patience_s=patience_s, restarts_max=restarts_max, calm_s=calm_s)


class ProgressCounter:
    """Counts the steps that a query completed. `beat` may be called by any thread; it ignores its arguments."""

    def __init__(self) -> None:
        self.beats = 0

    def beat(self, *_: object) -> None:
        """Count one completed step."""
        self.beats += 1


def run_with_restarts(
    run: Callable[[], None],
    options: RestartOptions,
    tell: Callable[[str], None],
    *,
    counter: ProgressCounter | None = None,
    sleep: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Call `run` until it returns. After a QueryInterrupted, call it again. Any other error is raised, and so is the
    last QueryInterrupted.

    `counter` shows whether a run made progress.
    """
    counter = counter or ProgressCounter()
    streak: FailureStreak | None = None
    while True:
        began, beats = now(), counter.beats
        try:
            return run()
        except QueryInterrupted as error:
            ended = now()
            streak = streak_after(streak, began, ended, made_progress=counter.beats != beats, options=options)
            waited = ended - streak.since_s
            if streak.given_up(ended, options):
                raise QueryInterrupted(
                    f"{error}; given up after {waited:.0f} s without progress and {streak.start} runs: start the job "
                    "again when the cause is gone; it goes on where it was"
                ) from error
            pause = options.pause_s(streak.start)
            left = options.patience_s - waited
            tell(f"the query ended: {error}; start {streak.start} in {pause:g} s; given up in {left:.0f} s")
            sleep(pause)


def run_two_queries(
    main: Callable[[], None], end_main: Callable[[], None], other: Callable[[], None], name: str
) -> None:
    """Run `main` here and `other` on a thread of its own; returns when `main` does.

    If `other` ends first, even without an error, `end_main` is called, which must make `main` return or raise. Then
    QueryRefused is raised, with the name of the query that ended, and why. Without it, no operator would notice that
    end.
    """
    ended: list[QueryRefused] = []

    def run_other() -> None:
        why = ""
        try:
            other()
        except Exception as error:  # noqa: BLE001 - the thread's root; the main thread raises it
            why = f": {error}"
        ended.append(QueryRefused(f"the {name} query ended{why}"))
        end_main()

    threading.Thread(target=run_other, name=name, daemon=True).start()
    try:
        main()
    except Exception as error:
        if ended:
            raise ended[0] from error
        raise
    if ended:
        raise ended[0]
