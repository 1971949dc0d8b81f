"""The rate at which rows of a replica are applied, or read."""

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
        """Return the average of the last complete window, in rows a second. `count`: the counter's present value. If
        the counter begins at 0 again, because the replica was opened again, a new window begins."""
        if self._since is None or count < self._since[1]:
            self._since, self._per_s = (now_s, count), 0
        elif (elapsed_s := now_s - self._since[0]) >= WINDOW_S:
            self._per_s = round((count - self._since[1]) / elapsed_s)
            self._since = now_s, count
        return self._per_s
