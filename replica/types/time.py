"""Hybrid time: physical microseconds in the upper bits, a counter in the lower twelve.

One int64 orders events across servers as [hybrid logical clocks] do: it is close to the wall clock, never goes back on
one server, and is pushed forward by every timestamp that is received.
"""

from __future__ import annotations

import datetime as dt
import threading
import time

from . import limits
from .protocols import Clock

LOGICAL_BITS = 12
MAX_HYBRID_TIME = (1 << 63) - 1
_EPOCH = dt.datetime(1970, 1, 1)


def hybrid_from_us(wall_us: int) -> int:
    """The first hybrid time of a wall-clock microsecond."""
    return wall_us << LOGICAL_BITS


def us_of_hybrid(hybrid_time: int) -> int:
    """Wall-clock microseconds of a hybrid time."""
    return hybrid_time >> LOGICAL_BITS


def utc_text(hybrid_time: int) -> str:
    """A hybrid time as people read it, such as 2026-01-31T12:00:00.250000Z."""
    return f"{_EPOCH + dt.timedelta(microseconds=us_of_hybrid(hybrid_time)):%Y-%m-%dT%H:%M:%S.%fZ}"


class SystemClock:
    """`Clock` of the machine. Concurrency: any thread."""

    def wall_us(self) -> int:
        """Microseconds since 1970."""
        return time.time_ns() // 1000

    def monotonic_us(self) -> int:
        """Microseconds that never go back and count suspends."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def staleness_problem(staleness_us: float) -> str:
    """Says why no read can have this bound on its staleness, in microseconds; empty if a read can have it."""
    if limits.CLOCK_DIFFERENCE_US_MAX < staleness_us <= limits.STALENESS_US_MAX:
        return ""
    least_s, most_s = limits.CLOCK_DIFFERENCE_US_MAX / 1e6, limits.STALENESS_US_MAX / 1e6
    return f"a staleness is above {least_s:g} s, by which servers' clocks may differ, and at most {most_s:g} s"


class HybridClock:
    """Issues hybrid times that never go back.

    Invariant: `ahead_us` compares with what this process knows by itself: the wall clock, and times that grow with the
    monotonic clock from the wall clock at an earlier moment, and from this process's own logs. What others send moves
    it by nothing, or many small steps would push a clock by days. Concurrency: any thread.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 0
        self._lock = threading.Lock()
        self._own_us = clock.wall_us()
        self._own_at_us = clock.monotonic_us()
        self._opens_logs = True

    def now(self) -> int:
        """Return a time above every time issued or observed before."""
        with self._lock:
            self._last = max(self._last + 1, hybrid_from_us(self._clock.wall_us()))
            return self._last

    def ahead_us(self, hybrid_time: int) -> int:
        """Return the microseconds by which observing a time would push this clock above its own times; not above 0 if
        it would not push the clock at all.

        If a wall clock is set back by an hour, the times in all logs lie an hour ahead of it, and must not look like
        those of a wrong clock."""
        with self._lock:
            mono_us = self._clock.monotonic_us()
            self._own_us = max(self._clock.wall_us(), self._own_us + mono_us - self._own_at_us)
            self._own_at_us = mono_us
            if hybrid_time <= self._last:
                return us_of_hybrid(hybrid_time - self._last)
            return us_of_hybrid(hybrid_time) - self._own_us

    def observe_own(self, hybrid_time: int) -> None:
        """Observe the last time of a log that is opened. When this process starts, it is a time of its own."""
        with self._lock:
            if self._opens_logs:
                self._own_us = max(self._own_us, us_of_hybrid(hybrid_time))
            self._last = max(self._last, hybrid_time)

    def logs_are_open(self) -> None:
        """Note that this process has started: logs that are opened later may be copies of others' logs."""
        with self._lock:
            self._opens_logs = False

    def ahead_of_wall_us(self, hybrid_time: int = 0) -> int:
        """Return the microseconds by which a time, by default this clock's latest one, is ahead of the server's wall
        clock."""
        with self._lock:
            return us_of_hybrid(hybrid_time or self._last) - self._clock.wall_us()

    def observe(self, hybrid_time: int) -> None:
        """Issue only times above this one from now on. A caller that received the time bounds it first: see
        `ahead_us`."""
        with self._lock:
            self._last = max(self._last, hybrid_time)
