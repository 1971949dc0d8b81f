"""The reasons why a tablet server cannot serve now, for probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .heartbeats.heartbeat import Heartbeats
from .tablets.manager import TabletManager


@dataclass(frozen=True)
class Readiness:
    """The reasons why this server is not ready. Concurrency: any thread; values may be a tick old.

    A server that has registered once stays ready without its masters, because its tablets go on without them. Otherwise
    the loss or restart of the leading master would take all servers away from their clients at once. A tablet that
    failed does not count either: the others are served, and the masters replace it.
    """

    manager: TabletManager
    heartbeats: Heartbeats
    ending: Callable[[], bool]
    """Whether the process was asked to end."""

    def reasons(self) -> list[str]:
        """The reasons, one line each; empty if the server can serve."""
        manager, beats = self.manager, self.heartbeats
        if manager.stopping or self.ending():
            return ["the server is stopping"]
        found = []
        if beats.booting:
            tablets = list(manager.tablets.values())
            waiting = sum(hosted.opening for hosted in tablets)
            found.append(f"the server opens its tablets: {waiting} of {len(tablets)} are left")
        if manager.options.masters and not beats.registered:
            why = f"; the last refusal: {beats.refusal}" if beats.refusal else ""
            found.append(f"no leading master has registered this server yet{why}")
        if manager.quiescing:
            found.append("the server quiesces: its process is about to end")
        return found
