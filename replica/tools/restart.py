"""Judges whether a tablet server's process may end without an interruption, by what the masters know.

Pure: the same answer for the same lists of tablets and servers.
"""

from __future__ import annotations

from collections.abc import Iterable

from nyala.replica.rpc import config_from_pb, pb
from nyala.replica.types import RaftConfig

HEALTHY = "HEALTHY"


def at_risk(tablets: Iterable[pb.TabletInfo], servers: Iterable[pb.ServerInfo], uuid: str) -> list[str]:
    """Return a line for each tablet that would be interrupted if the server ended; none: it may end.

    A tablet goes on if more than half of its voters are healthy without the server, one of them with data. Voters on
    servers that are silent, quiesce or are in maintenance do not count, because these may end, too.
    """
    servers = list(servers)
    may_end = {s.uuid for s in servers if not s.alive or s.quiescing or s.maintenance_until_us} | {uuid}
    known = {s.uuid for s in servers}
    found = []
    for tablet in tablets:
        config = config_from_pb(tablet.config)
        if uuid not in config.voters:
            continue
        fit = [v for v in config.voters if v in known - may_end and tablet.health.get(v) == HEALTHY]
        if not tablet.running:
            found.append(f"tablet {tablet.tablet_id} has no leader that the masters know")
        elif len(fit) <= len(config.voters) // 2:
            what = f"{len(fit)} of {len(config.voters)} voters would be healthy without the server, too few to commit"
            found.append(f"tablet {tablet.tablet_id}: {what}")
        elif not _holds_data(config, fit):
            found.append(f"tablet {tablet.tablet_id}: no healthy voter with data would be left to lead")
    return found


def _holds_data(config: RaftConfig, uuids: Iterable[str]) -> bool:
    return any(m.holds_data for m in config.members if m.uuid in set(uuids))
