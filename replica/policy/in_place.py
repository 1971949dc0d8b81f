"""Chooses the damaged replicas that are copied anew in place, because no other server is free. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from nyala.replica.types import OpId

from .placement import replacements_for, replica_load
from .views import Caps, ClusterView, Health, TabletView

ORDER_REPEATED_US = 10_000_000
"""The masters repeat the order of one copy in place for this time."""
ORDER_AGAIN_US = 120_000_000
"""The shortest time between two such orders for one replica, from the first sending of each."""
_NEVER_US = 1 << 62


@dataclass(frozen=True)
class CopyInPlace:
    """An order: the replica of `uuid` becomes a tombstone, if it is still damaged and its server knows no config after
    this one.

    The config stays the same: the replica is a voter all the time, and its leader copies to it as to any tombstone.
    """

    tablet_id: str
    uuid: str
    config_opid: OpId


def copies_in_place(
    view: ClusterView,
    caps: Caps | None = None,
    ages_us: Mapping[tuple[str, str], int] | None = None,
    load: Mapping[str, int] | None = None,
) -> list[CopyInPlace]:
    """Return the copies in place that `view` needs, at most one a tablet; none if another member than the damaged one
    may have failed.

    A server gets as many at a time as copies of moves, and none while copies into it fail. So a bad folder of blocks
    costs it the files of a few replicas, not of all, and its quarantine stays small. `ages_us`: by server and tablet,
    the time since the last order of a copy in place was first sent. A copy that did not help holds a slot of its own
    server only, until ORDER_AGAIN_US; then it comes after the waiting ones. `load`: the replicas of each server, if the
    view lacks tablets that are neither `damaged` nor `without_replica`.
    """
    caps, ages_us = caps or Caps(), ages_us or {}
    load = replica_load(view) if load is None else load
    under_way = Counter(u for t in view.tablets for u in t.without_replica)
    total = under_way.total()
    due = []
    for tablet in view.tablets:
        uuid = _damaged_alone(tablet)
        server = view.server(uuid)
        if server is None or not server.alive or server.avoided:
            continue
        if any(not s.avoided for s in replacements_for(view, tablet, load)):
            continue
        age_us = ages_us.get((uuid, tablet.tablet_id), _NEVER_US)
        if ORDER_REPEATED_US <= age_us < ORDER_AGAIN_US:
            under_way[uuid] += 1
        else:
            due.append((age_us >= ORDER_AGAIN_US, -age_us, tablet.tablet_id, uuid, tablet.config.opid))
    found = []
    for *_, tablet_id, uuid, config_opid in sorted(due):
        if under_way[uuid] >= caps.moves_per_server_max or total >= caps.moves_max:
            continue
        under_way[uuid] += 1
        total += 1
        found.append(CopyInPlace(tablet_id, uuid, config_opid))
    return found


def _damaged_alone(tablet: TabletView) -> str:
    """Return the damaged voter, if it is the only one and the other voters are healthy and a majority; otherwise an
    empty text."""
    voters = tablet.config.voters
    damaged = [u for u in voters if u in tablet.damaged]
    undamaged = [u for u in voters if u not in tablet.damaged]
    whole = [u for u in undamaged if tablet.health_of(u) is Health.HEALTHY and u in tablet.caught_up]
    replaced = any(m.promote and not tablet.health_of(m.uuid).failed for m in tablet.config.members)
    if not tablet.leader_uuid or tablet.pending or replaced or len(voters) > tablet.replication_factor:
        return ""
    if any(m.votes and not m.holds_data for m in tablet.config.members):
        return ""  # a witness is no source of rows
    alone = len(damaged) == 1 and len(whole) == len(voters) - 1 >= tablet.config.majority
    return damaged[0] if alone and damaged[0] != tablet.leader_uuid else ""
