"""The largest of recent observations, within a time that the caller chooses."""

from __future__ import annotations

import time
from collections import deque

KEPT_S = 1800
"""The time for which observations are kept, in seconds."""


class RecentMaximum:
    """The largest observation of each second, for half an hour. Concurrency: one thread notes, any thread reads."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=KEPT_S)

    def note(self, value: float, now_s: float | None = None) -> None:
        """Note one observation of this second."""
        second = int(time.monotonic() if now_s is None else now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, max(value, self._seconds[-1][1]))
        else:
            self._seconds.append((second, value))

    def within(self, last_s: float, now_s: float | None = None) -> float:
        """The largest of the last `last_s` seconds, to a second; 0 if there was none."""
        first = int((time.monotonic() if now_s is None else now_s) - last_s)
        return max((value for second, value in list(self._seconds) if second >= first), default=0.0)
