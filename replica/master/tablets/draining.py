"""Computes how far a server that is being retired is emptied, from the heartbeats of this leadership. Pure.

The cost grows with the tablets of that server, not with all tablets.
"""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.types import RaftConfig

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET
from ..heartbeats.soft_state import LIVE, SoftState
from .kept_view import KeptView


def config_of(soft: SoftState, tablet_id: str) -> RaftConfig | None:
    """The committed config of a tablet that this leadership believes; None before a member has reported."""
    known = soft.tablets.get(tablet_id)
    return known.config if known is not None else None


def tablets_on(catalog: Catalog, soft: SoftState, uuid: str) -> list[str]:
    """The sorted ids of the tablets that have the server in their known config, or a live replica on it."""
    found = []
    server = soft.servers.get(uuid)
    reported = server.replicas.keys() if server is not None else ()
    for tablet_id in sorted({*soft.member_of(uuid), *catalog.tablets_with(uuid), *reported}):
        tablet = catalog.get(TABLET, tablet_id)
        if tablet is None or tablet.dropped:
            continue
        config = config_of(soft, tablet_id) or (None if tablet.formed else tablet.known_config)
        replica = server.replicas.get(tablet_id) if server is not None else None
        live = replica is not None and replica.data_state in LIVE
        if live or (config is not None and config.member(uuid) is not None):
            found.append(tablet_id)
    return found


@dataclass(frozen=True)
class Drain:
    """How far a server is emptied. `unreported`: tablets whose config this master does not know yet."""

    left: int
    unreported: int
    heard: bool
    """Whether the server itself has reported its replicas."""

    @property
    def done(self) -> bool:
        """Whether the server is certainly empty. False while a new leading master still lacks reports."""
        return self.heard and self.left == 0 and self.unreported == 0


def drain_of(catalog: Catalog, soft: SoftState, kept: KeptView, uuid: str) -> Drain:
    """How far the server is emptied, by the heartbeats of this leadership."""
    server = soft.servers.get(uuid)
    heard = server is not None and server.reported and not server.last_report.booting
    return Drain(len(tablets_on(catalog, soft, uuid)), kept.unreported(), heard)
