"""Chooses the servers whose addresses to ask a master for: those that this one does not reach, with back-off."""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.types import limits

PAUSE_FIRST_S = 0.5
PAUSE_MAX_S = 8.0


class Seeker:
    """The requests to one master, with their times. Memory: one record for each server that is not reached."""

    def __init__(self) -> None:
        self._next: dict[str, tuple[float, float]] = {}
        """The time of the next request and the pause after it, by uuid."""

    def due(self, unreachable: Iterable[str], now_s: float) -> list[str]:
        """The unreachable servers to ask for in this heartbeat; the one that waits longest comes first.

        `now_s`: seconds of a monotonic clock.
        """
        self._next = {uuid: self._next.get(uuid, (now_s, PAUSE_FIRST_S)) for uuid in unreachable}
        ready = sorted((at, uuid) for uuid, (at, _) in self._next.items() if at <= now_s)
        chosen = [uuid for _, uuid in ready[: limits.PEERS_SOUGHT_MAX]]
        for uuid in chosen:
            pause = self._next[uuid][1]
            self._next[uuid] = now_s + pause, min(2 * pause, PAUSE_MAX_S)
        return chosen
