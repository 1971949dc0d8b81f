"""Which other servers are alive, as what arrives from them tells. Stands in for the heartbeats of quiet groups.

Counted in ticks of this server, which come one after another however late: a server that stood still itself does not
take its own pause for the silence of all others.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class LivenessChange:
    """The server `uuid` fell silent, for `silent_ticks` now; or (`up`) is heard again, or is another process."""

    uuid: str
    up: bool
    silent_ticks: int = 0


@dataclass
class _Watched:
    heard_tick: int
    process: int = 0
    up: bool = True
    told: bool = True


class PeerLiveness:
    """Liveness of the servers that are watched.

    Invariants: a change is told once, by `tick`; a server that was never heard counts as heard when its watch began.
    Concurrency: one thread. Memory: one record for each watched server.
    """

    def __init__(self, silent_ticks_max: int) -> None:
        """`silent_ticks_max`: so many ticks without a word, and a server counts as lost."""
        self._silent_max = silent_ticks_max
        self._now = 0
        self._peers: dict[str, _Watched] = {}

    def watch(self, uuids: Iterable[str]) -> None:
        """These from now on, and no others. One that is new is told as up: it may have been lost when last watched."""
        self._peers = {uuid: self._peers.get(uuid) or _Watched(self._now, told=False) for uuid in sorted(uuids)}

    @property
    def watched(self) -> list[str]:
        """Sorted."""
        return list(self._peers)

    @property
    def lost(self) -> list[str]:
        """Those that are silent, as told; sorted."""
        return [uuid for uuid, peer in self._peers.items() if not peer.up]

    def heard(self, uuid: str, process: int) -> None:
        """Something came from that server's process, drawn at its start; 0 if it does not say."""
        peer = self._peers.get(uuid)
        if peer is None:
            return
        peer.heard_tick = self._now
        if peer.process != process:
            peer.told = peer.told and peer.process == 0
            peer.process = process

    def tick(self) -> list[LivenessChange]:
        """One tick; what changed since the last one, by uuid."""
        self._now += 1
        changes = []
        for uuid, peer in self._peers.items():
            silent = self._now - peer.heard_tick
            if peer.up and silent >= self._silent_max:
                peer.up = False
                changes.append(LivenessChange(uuid, False, silent))
            elif silent < self._silent_max and not (peer.up and peer.told):
                peer.up = True
                changes.append(LivenessChange(uuid, True))
            peer.told = True
        return changes
