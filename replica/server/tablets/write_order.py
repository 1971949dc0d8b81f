"""Writes of one tablet in their order of arrival, while some of them are looked at on another thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Arrival:
    """One write that has no index yet."""

    __slots__ = ("go", "gone")

    def __init__(self) -> None:
        self.go: Callable[[], None] | None = None
        """Gives it its index; None until it was found good. Must not raise."""
        self.gone = False


class WriteOrder:
    """Who arrived and may not go on yet: not found good, or behind one that is not.

    Invariant: a write goes on, once, when it is ready and all before it went on or left. Concurrency: the loop's
    thread. Bounded by those who write: each has one call, or one place of its link, under way.
    """

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self) -> Arrival:
        """A place behind all that are here."""
        arrival = Arrival()
        self._waiting.append(arrival)
        return arrival

    def ready(self, arrival: Arrival, go: Callable[[], None]) -> None:
        """It was found good: `go` when its turn comes, perhaps now."""
        arrival.go = go
        self._advance()

    def leave(self, arrival: Arrival) -> None:
        """It was refused or given up: unless it has gone on it never will, and those behind it need not wait for it."""
        arrival.gone = True
        self._advance()

    def _advance(self) -> None:
        waiting = self._waiting
        while waiting and (waiting[0].gone or waiting[0].go is not None):
            first = waiting.popleft()
            if first.go is not None and not first.gone:
                first.go()
