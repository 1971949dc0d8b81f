"""Refuses and lists tablet servers of another cluster that send heartbeats here, and forgets them after a while."""

from __future__ import annotations

import logging

from nyala.replica.rpc import pb

_log = logging.getLogger("nyala.master")


class OtherClustersServers:
    """Tablet servers of another cluster that send heartbeats here. The master refuses them and lists them, no more.

    A master that lost its catalog is of a new cluster: then all its servers, with all the data, are among these.
    Concurrency: the loop's thread.
    """

    MAX = 1000
    AWAY_US = 60_000_000

    def __init__(self) -> None:
        self._heard: dict[str, tuple[pb.ServerInfo, int]] = {}

    def note(self, request: pb.HeartbeatRequest, now_us: int) -> None:
        """Note a heartbeat of one of them."""
        if request.server_uuid not in self._heard:
            _log.error(
                "tablet server %s belongs to cluster %s and is refused; if this master has lost its data, stop it and "
                "bring its directory back",
                request.server_uuid,
                request.cluster_id,
            )
            if len(self._heard) >= self.MAX:
                self._heard.pop(next(iter(self._heard)))
        info = pb.ServerInfo(
            uuid=request.server_uuid,
            addresses=request.addresses,
            alive=True,
            location=request.location,
            version=request.version,
            cluster_id=request.cluster_id,
        )
        self._heard[request.server_uuid] = (info, now_us)

    def infos(self, now_us: int) -> list[pb.ServerInfo]:
        """The servers that have sent heartbeats lately."""
        self._heard = {u: held for u, held in self._heard.items() if now_us - held[1] < self.AWAY_US}
        return [info for info, _ in self._heard.values()]
