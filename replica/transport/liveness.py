"""Finds which other servers are alive, by the batches from them. It replaces the heartbeats of quiet groups.

Time is counted in ticks of this server. After a pause, ticks do not come in a burst. So a server does not count its own
pause as the silence of all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LivenessChange:
    """The server `uuid` has been silent for `silent_ticks`; or (`up`) it is heard again, or is another process."""

    uuid: str
    up: bool
    silent_ticks: int = 0


@dataclass
class _Watched:
    heard_tick: int
    process: int = 0
    up: bool = True
    reported: bool = True


class PeerLiveness:
    """The liveness of the watched servers.

    Invariants: `tick` returns each change once; a server that was never heard counts as heard when its watch began.
    Concurrency: one thread. Memory: one record for each watched server.
    """

    def __init__(self, silent_ticks_max: int) -> None:
        """`silent_ticks_max`: a server without a batch for this many ticks counts as lost."""
        self._silent_max = silent_ticks_max
        self._now = 0
        self._peers: dict[str, _Watched] = {}

    def watch(self, uuids: Iterable[str]) -> None:
        """Watch these servers and no others. `tick` reports a new one as up, because it may have been lost before."""
        self._peers = {uuid: self._peers.get(uuid) or _Watched(self._now, reported=False) for uuid in sorted(uuids)}

    @property
    def watched(self) -> list[str]:
        """The watched servers, sorted."""
        return list(self._peers)

    @property
    def silent(self) -> list[str]:
        """The servers that `tick` has reported as silent; sorted."""
        return [uuid for uuid, peer in self._peers.items() if not peer.up]

    def heard(self, uuid: str, process: int) -> None:
        """Note a batch from that server. `process`: the number that its process drew at its start; 0 if it has none."""
        peer = self._peers.get(uuid)
        if peer is None:
            return
        peer.heard_tick = self._now
        if peer.process != process:
            peer.reported = peer.reported and peer.process == 0
            peer.process = process

    def tick(self) -> list[LivenessChange]:
        """Count one tick; returns the changes since the last one, sorted by uuid."""
        self._now += 1
        changes = []
        for uuid, peer in self._peers.items():
            silent = self._now - peer.heard_tick
            if peer.up and silent >= self._silent_max:
                peer.up = False
                changes.append(LivenessChange(uuid, False, silent))
            elif silent < self._silent_max and not (peer.up and peer.reported):
                peer.up = True
                changes.append(LivenessChange(uuid, True))
            peer.reported = True
        return changes
