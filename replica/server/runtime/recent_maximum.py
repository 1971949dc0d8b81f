"""The longest of what was observed lately, for whoever says how far back to look."""

from __future__ import annotations

import time
from collections import deque

KEPT_S = 1800
"""How far back anybody can look."""


class RecentMaximum:
    """The longest observation of each second, for half an hour. Concurrency: one thread notes, any reads."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, float]] = deque(maxlen=KEPT_S)

    def note(self, value: float, now_s: float | None = None) -> None:
        """One observation, of this second."""
        second = int(time.monotonic() if now_s is None else now_s)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = (second, max(value, self._seconds[-1][1]))
        else:
            self._seconds.append((second, value))

    def within(self, last_s: float, now_s: float | None = None) -> float:
        """The longest of the last `last_s` seconds, to a second; 0 if there was none."""
        first = int((time.monotonic() if now_s is None else now_s) - last_s)
        return max((value for second, value in list(self._seconds) if second >= first), default=0.0)
