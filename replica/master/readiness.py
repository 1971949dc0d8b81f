"""The reasons why a master cannot serve now, for probes."""

from __future__ import annotations

import time
from collections.abc import Callable

from .state import MasterState

LEADERLESS_S_MAX = 30.0
"""A master that knew a leader stays ready for this time without one. During an election, which takes a few seconds, no
master knows a leader. If all became unready then, probes would take all of them away from servers and clients at
once."""


class Readiness:
    """The reasons why this master is not ready. Concurrency: any thread; values may be a tick old.

    Kafka does not count: without it, masters serve everything but their topics, and its loss would make all masters
    unready at once.
    """

    def __init__(self, ending: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        """`ending()`: whether the process was asked to end."""
        self.state: MasterState | None = None
        """None before this master has opened its catalog."""
        self._ending = ending
        self._clock = clock
        self._leader_s: float | None = None
        """When this master last knew a leader; None: not in this process."""

    def observe(self) -> None:
        """Note whether there is a leader; the owner calls it every tick."""
        group = self.state.group if self.state is not None else None
        if group is not None and (group.is_leader or group.replica.leader_hint):
            self._leader_s = self._clock()

    def reasons(self) -> list[str]:
        """The reasons, one line each; empty if the master can serve."""
        if self._ending():
            return ["the master is stopping"]
        if self.state is None:
            return ["the master has no catalog yet: it waits until all masters of a new group answer, or add it"]
        if self._leader_s is None:
            return ["the master knows no leading master yet"]
        silent_s = self._clock() - self._leader_s
        if silent_s <= LEADERLESS_S_MAX:
            return []
        return [f"the master has known no leading master for {silent_s:.0f} s: most masters may be lost"]
