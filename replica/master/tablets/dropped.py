"""Decides when the catalog may forget a dropped tablet: a while after every replica has become a tombstone.

The masters never delete a replica because its tablet is unknown. So a replica that comes back late is deleted only
while the catalog still has its tablet as dropped. Forgetting a tablet too early costs disk space on one server, but
never data.
"""

from __future__ import annotations

from dataclasses import replace

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET, Record, Tablet
from ..heartbeats.soft_state import LIVE, SoftState

CHANGES_MAX = 500
"""The most tablets in one catalog change; the others follow with the next one."""


def holders_of(tablet: Tablet, soft: SoftState, tablet_id: str) -> list[str]:
    """The servers that may have a replica: members of the first, the last proven and the believed config, and servers
    that report one."""
    found = {m.uuid for m in (*tablet.members, *tablet.known_config.members)}
    state = soft.tablets.get(tablet_id)
    if state is not None and state.config is not None:
        found |= {m.uuid for m in state.config.members}
    return sorted(found | _reporting(soft, tablet_id))


def settle_dropped(
    catalog: Catalog, soft: SoftState, now_us: int, retention_us: int
) -> tuple[dict[str, Record], list[str]]:
    """(records to put, keys to delete) for the tablets that were dropped, by the reports since the last call.

    When a server's full report has no live replica of the tablet, the server is removed from `holders`, durably; after
    that it may be lost for good. If a server reports a replica later, it is added again: a leader that did not know of
    the drop may have copied to a tombstone. `gone_us` is the wall-clock time since which `holders` is empty. The record
    is deleted `retention_us` after that.
    """
    puts: dict[str, Record] = {}
    deletes: list[str] = []
    for tablet_id, tablet in catalog.dropped():
        if len(puts) + len(deletes) >= CHANGES_MAX:
            break
        known = set(tablet.holders or (() if tablet.gone_us is not None else holders_of(tablet, soft, tablet_id)))
        left = {u for u in known if not _confirmed(soft, u, tablet_id)} | _reporting(soft, tablet_id)
        if left:
            after = replace(tablet, gone_us=None, holders=tuple(sorted(left)))
        elif tablet.gone_us is None:
            after = replace(tablet, holders=(), gone_us=now_us)
        elif now_us - tablet.gone_us >= retention_us:
            deletes.append(TABLET + tablet_id)
            continue
        else:
            continue
        if after != tablet:
            puts[TABLET + tablet_id] = after
    return puts, deletes


def _reporting(soft: SoftState, tablet_id: str) -> set[str]:
    return {s.uuid for s in soft.reporters(tablet_id) if s.replicas[tablet_id].data_state in LIVE}


def _confirmed(soft: SoftState, uuid: str, tablet_id: str) -> bool:
    """Whether the server has reported in full, without a live replica of the tablet."""
    server = soft.servers.get(uuid)
    if server is None or not server.reported or server.last_report.booting:
        return False
    replica = server.replicas.get(tablet_id)
    return replica is None or replica.data_state not in LIVE
