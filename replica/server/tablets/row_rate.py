"""How many rows of a replica are applied, or read, in a second."""

from __future__ import annotations

WINDOW_S = 10.0
"""The least time over which a rate is an average, so that one batch is no load."""


class RowRate:
    """The rate of a counter that only grows. Concurrency: the loop's thread."""

    def __init__(self) -> None:
        self._since: tuple[float, int] | None = None
        """The time and the count at the beginning of the present window."""
        self._per_s = 0

    def sample(self, count: int, now_s: float) -> int:
        """The average of the last window that has ended, in rows a second; `count`: what the counter says now. A
        counter that begins anew, as of a replica that was opened again, begins a window."""
        if self._since is None or count < self._since[1]:
            self._since, self._per_s = (now_s, count), 0
        elif (elapsed_s := now_s - self._since[0]) >= WINDOW_S:
            self._per_s = round((count - self._since[1]) / elapsed_s)
            self._since = now_s, count
        return self._per_s
