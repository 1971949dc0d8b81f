"""Keeps the writes of one tablet in their order of arrival, while some of them are validated on another thread.

Most writes are validated beside one another. A check that depends on the writes before begins when these have gone on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Arrival:
    """One write that has no index yet."""

    __slots__ = ("go", "gone", "look")

    def __init__(self) -> None:
        self.look: Callable[[], None] | None = None
        """Begins such a check, once. Must not raise."""
        self.go: Callable[[], None] | None = None
        """Gives the write its index; None until it is validated. Must not raise."""
        self.gone = False


class WriteOrder:
    """Writes that arrived and wait: they are not validated yet, or an earlier one is not.

    Invariant: a write goes on, once, when it is ready and all before it went on or left. Concurrency: the loop's
    thread. Bounded by the callers: each write is one call, or one place of a link.
    """

    def __init__(self) -> None:
        self._waiting: deque[Arrival] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self) -> Arrival:
        """A place behind all writes that wait."""
        arrival = Arrival()
        self._waiting.append(arrival)
        return arrival

    def when_first(self, arrival: Arrival, look: Callable[[], None]) -> None:
        """Call `look` once all before it went on or left, perhaps now. Later ones wait until it is ready or leaves."""
        arrival.look = look
        self._advance()

    def ready(self, arrival: Arrival, go: Callable[[], None]) -> None:
        """The write is validated: call `go` once all before it went on or left, perhaps now."""
        arrival.go = go
        self._advance()

    def leave(self, arrival: Arrival) -> None:
        """The write was refused or given up. If it has not gone on yet it never will, and later ones do not wait."""
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
