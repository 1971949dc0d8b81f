"""Which damaged replicas are to be copied anew where they stand, as no other server is free. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from nyala.replica.base import OpId

from .placement import replacements_for, replica_load
from .views import Caps, ClusterView, Health, TabletView


@dataclass(frozen=True)
class Renewal:
    """The replica of `uuid` becomes a tombstone, if it is still damaged and no config after this one is known there.

    The config stays: it is a voter all the time, and its leader copies to it as to any tombstone.
    """

    tablet_id: str
    uuid: str
    config_opid: OpId


def renewals(view: ClusterView, caps: Caps | None = None) -> list[Renewal]:
    """What `view` needs of this, at most one a tablet; nothing where anybody but the damaged one may be in trouble.

    A server takes as many at a time as copies of moves, and none while copies into it fail: a bad folder of blocks
    costs it a few replicas' remains, not all of them, and what it has put aside does not grow.
    """
    caps = caps or Caps()
    load = replica_load(view)
    under_way = Counter(u for t in view.tablets for u in t.unmade)
    found = []
    for tablet in sorted(view.tablets, key=lambda t: t.tablet_id):
        uuid = _damaged_alone(tablet)
        server = view.server(uuid) if uuid else None
        if server is None or not server.alive or server.avoided:
            continue
        if under_way[uuid] >= caps.moves_per_server_max or under_way.total() >= caps.moves_max:
            continue
        if any(not s.avoided for s in replacements_for(view, tablet, load)):
            continue
        under_way[uuid] += 1
        found.append(Renewal(tablet.tablet_id, uuid, tablet.config.opid))
    return found


def _damaged_alone(tablet: TabletView) -> str:
    """The one damaged voter of a tablet whose others are whole, and a majority; empty if there is none such."""
    voters = tablet.config.voters
    damaged = [u for u in voters if u in tablet.damaged]
    whole = [u for u in voters if tablet.health_of(u) is Health.HEALTHY and u in tablet.caught_up]
    replaced = any(m.promote and not tablet.health_of(m.uuid).failed for m in tablet.config.members)
    if not tablet.leader_uuid or tablet.pending or replaced or len(voters) > tablet.replication_factor:
        return ""
    if any(m.votes and not m.holds_data for m in tablet.config.members):
        return ""  # a witness is no source of rows
    alone = len(damaged) == 1 and len(whole) == len(voters) - 1 >= tablet.config.majority
    return damaged[0] if alone and damaged[0] != tablet.leader_uuid else ""
