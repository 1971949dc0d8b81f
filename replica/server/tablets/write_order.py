"""Keeps the writes of one tablet in their order of arrival, while some of them are validated on another thread.

Most writes are validated at the same time. A check that depends on earlier writes begins when these have got their
index.
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
    """The writes that wait: they are not validated yet, or an earlier one is not.

    Invariant: a write gets its index, once, when it is ready and all earlier ones have theirs or left. Concurrency: the
    loop's thread. Bounded by the callers: each write is one call, or one place of a link.
    """

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self) -> Arrival:
        """Return a place after all waiting writes."""
        arrival = Arrival()
        self._waiting.append(arrival)
        return arrival

    def when_first(self, arrival: Arrival, look: Callable[[], None]) -> None:
        """Call `look` when all earlier writes have their index or left, perhaps now. Later ones wait until it is ready
        or leaves."""
        arrival.look = look
        self._advance()

    def ready(self, arrival: Arrival, go: Callable[[], None]) -> None:
        """The write is validated: call `go` when all earlier ones have their index or left, perhaps now."""
        arrival.go = go
        self._advance()

    def leave(self, arrival: Arrival) -> None:
        """The write was refused or given up. If it has no index yet, it never gets one, and later ones do not wait for
        it."""
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
