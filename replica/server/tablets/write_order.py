"""Keeps the writes of one tablet in their order of arrival, while some of them are validated on another thread.

Most writes are validated concurrently. A check that depends on earlier writes begins after these have got their index.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Arrival:
    """One write that has no index yet."""

    __slots__ = ("go", "gone", "look")

    def __init__(self) -> None:
        self.look: Callable[[], None] | None = None
        """Begins a check that depends on earlier writes, once. Must not raise."""
        self.go: Callable[[], None] | None = None
        """Gives the write its index; None until it is validated. Must not raise."""
        self.gone = False


class WriteOrder:
    """The writes that wait for their index, because they, or earlier ones, are not validated yet.

    Invariant: a write gets its index exactly once, after it is ready and each earlier write has its index or has left.
    Concurrency: the loop's thread. Bounded by the callers: each write is one call, or one place of a link.
    """

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self) -> Arrival:
        """Add a write after all waiting ones; returns its place."""
        arrival = Arrival()
        self._waiting.append(arrival)
        return arrival

    def when_first(self, arrival: Arrival, look: Callable[[], None]) -> None:
        """Call `look` as soon as each earlier write has its index or has left, perhaps now. Later writes wait until
        this one is ready or leaves."""
        arrival.look = look
        self._advance()

    def ready(self, arrival: Arrival, go: Callable[[], None]) -> None:
        """Note that the write is validated: call `go` as soon as each earlier write has its index or has left, perhaps
        now."""
        arrival.go = go
        self._advance()

    def leave(self, arrival: Arrival) -> None:
        """Note that the write was refused or given up. If it has no index yet, it never gets one, and later writes no
        longer wait for it."""
        arrival.gone = True
        self._advance()

    def _advance(self) -> None:
        waiting = self._waiting
        while waiting:
            first = waiting[0]
            if first.look is not None and not first.gone:
                look, first.look = first.look, None
                look()
            elif first.gone or first.go is not None:
                waiting.popleft()
                if first.go is not None and not first.gone:
                    first.go()
            else:
                return
