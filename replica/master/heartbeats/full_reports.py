"""Chooses the servers that may send their full reports now, a few at a time. Sans-IO."""

from __future__ import annotations

from nyala.replica.types import limits

IDLE_US = 5_000_000
"""A server that has not been heard for this time loses its place. A living one waits at most 3 s for a reply, and then
sends another heartbeat."""
BUSY_US = 1_000_000
"""If no slice has come for this time, no full report is under way, because a server sends the next slice at once."""
WAIT_FORGOTTEN_US = 30_000_000
"""A waiting server that has not been heard for this time no longer waits."""


class FullReports:
    """The servers whose full reports are under way, and those that wait.

    Invariant: at most FULL_REPORTS_MAX servers have a place. Fairness: a server that asks for the first time gets no
    place while others wait, so servers that start again and again cannot keep the others out.
    Concurrency: the loop's thread.
    """

    def __init__(self) -> None:
        self._under_way: dict[str, int] = {}
        self._waiting: dict[str, int] = {}
        """By server, the time of its last request."""

    @property
    def under_way(self) -> int:
        """The servers that have a place."""
        return len(self._under_way)

    def is_busy(self, now_us: int) -> bool:
        """Whether a slice of a full report came a moment ago and others follow, or a server waits for a place."""
        comes = any(now_us - at < BUSY_US for at in self._under_way.values())
        return comes or any(now_us - at < IDLE_US for at in self._waiting.values())

    def may_send(self, uuid: str, now_us: int) -> bool:
        """Whether the server, whose full report is missing, may send it now; otherwise it waits and asks again."""
        if uuid not in self._under_way and not self._has_place(uuid, now_us):
            self._waiting[uuid] = now_us
            return False
        self._waiting.pop(uuid, None)
        self._under_way[uuid] = now_us
        return True

    def end(self, uuid: str) -> None:
        """Give up the server's place: its report is complete."""
        self._under_way.pop(uuid, None)
        self._waiting.pop(uuid, None)

    def _has_place(self, uuid: str, now_us: int) -> bool:
        if len(self._under_way) >= limits.FULL_REPORTS_MAX:
            self._under_way = {u: at for u, at in self._under_way.items() if now_us - at < IDLE_US}
        if len(self._under_way) >= limits.FULL_REPORTS_MAX:
            return False
        if self._waiting and uuid not in self._waiting:
            self._waiting = {u: at for u, at in self._waiting.items() if now_us - at < WAIT_FORGOTTEN_US}
        return not self._waiting or uuid in self._waiting
