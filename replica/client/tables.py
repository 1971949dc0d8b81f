"""Tables and tablets as clients know them."""

from __future__ import annotations

from dataclasses import dataclass

from nyala.replica.rows import TableDescription
from nyala.replica.rpc import addresses_from_pb, description_from_pb, pb
from nyala.replica.types import Address


@dataclass(frozen=True)
class TabletHandle:
    """One tablet of a table; `pos` is its tablet position as `rows.route` computes it."""

    tablet_id: str
    pos: int
    bucket: int
    range_pos: int
    config_term: int = 0
    """The term of its config in the catalog; 0 in lists of tables, and from masters of an older build."""


@dataclass(frozen=True)
class TableHandle(TableDescription):
    """One table as the catalog described it at one moment. Picklable: Spark tasks get it from the driver."""

    tablets: tuple[TabletHandle, ...] = ()
    """The tablets in order of position; empty in lists of tables."""
    cluster_id: str = ""
    """The cluster of the masters that described it; empty in lists of tables, and from masters of an older build."""

    def tablet(self, tablet_id: str) -> TabletHandle | None:
        """Return the tablet of that id, or None."""
        return next((t for t in self.tablets if t.tablet_id == tablet_id), None)


def table_from_pb(info: pb.TableInfo, tablets: list[pb.TabletInfo] | None = None, cluster_id: str = "") -> TableHandle:
    """Decode a table from the wire."""
    described = description_from_pb(info)
    buckets = described.partition.buckets
    handles = [
        TabletHandle(t.tablet_id, t.range_pos * buckets + t.bucket, t.bucket, t.range_pos, t.config.opid.term)
        for t in tablets or []
    ]
    return TableHandle(**vars(described), tablets=tuple(sorted(handles, key=lambda t: t.pos)), cluster_id=cluster_id)


@dataclass(frozen=True)
class Location:
    """The addresses of one tablet's replicas, and the replica that the masters believe leads."""

    tablet_id: str
    table_name: str
    members: dict[str, Address]
    leader_uuid: str = ""


def locations_from_pb(reply: pb.TableReply) -> list[Location]:
    """Return the locations of all tablets of a reply. A server's reported address replaces that in the config, because
    servers may move."""
    servers = {s.uuid: addresses_from_pb(s.addresses) for s in reply.servers}
    found = []
    for tablet in reply.tablets:
        members = {}
        for member in tablet.config.members:
            addresses = servers.get(member.uuid) or addresses_from_pb(member.addresses)
            if addresses and member.holds_data:
                members[member.uuid] = addresses[0]
        leader = tablet.leader_uuid if tablet.leader_uuid in members else ""
        found.append(Location(tablet.tablet_id, reply.table.name, members, leader))
    return found
