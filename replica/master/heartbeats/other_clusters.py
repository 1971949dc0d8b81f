"""Tablet servers of another cluster that send heartbeats here: told off, shown, and forgotten again."""

from __future__ import annotations

import logging

from nyala.replica.rpc import pb

_log = logging.getLogger("nyala.master")


class OtherClustersServers:
    """Tablet servers of another cluster that send heartbeats here. They are told off and shown, and nothing else.

    A master that lost its catalog is of a new cluster: then these are all its servers, with all the data.
    Concurrency: the loop's thread.
    """

    MAX = 1000
    AWAY_US = 60_000_000

    def __init__(self) -> None:
        self._heard: dict[str, tuple[pb.ServerInfo, int]] = {}

    def note(self, request: pb.HeartbeatRequest, now_us: int) -> None:
        """One of them was heard."""
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
        """Those heard lately."""
        self._heard = {u: held for u, held in self._heard.items() if now_us - held[1] < self.AWAY_US}
        return [info for info, _ in self._heard.values()]
