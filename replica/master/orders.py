"""What a server is told with its heartbeat's reply: create this new replica, delete that one. Re-derived each time."""

from __future__ import annotations

from nyala.replica.base import OpId
from nyala.replica.rpc import opid_from_pb, opid_to_pb, pb

from .catalog import Catalog
from .soft_state import LIVE, SoftState, newer
from .tables import TABLET, create_order

ORDERS_MAX = 200
"""In one reply; the rest follows with the next heartbeat."""


def orders_for(catalog: Catalog, soft: SoftState, server_uuid: str) -> list[pb.TabletOrder]:
    """Orders for the server, from the catalog and what was reported. Nothing follows from anything being unknown.

    Create: only tablets that never had a leader, at members of their first config that hold no replica. A tablet that
    was formed once is never created again: its own leader copies it to whoever lacks it.
    Delete: only replicas of tablets that the catalog knows as dropped, or that a committed config at or above the
    replica's own leaves out; the server checks that position again, so a late order misses a replica added anew.
    """
    server = soft.servers.get(server_uuid)
    if server is None or not server.reported or server.booting:
        return []
    orders: list[pb.TabletOrder] = []
    for tablet_id, tablet in catalog.items(TABLET):
        if tablet.get("formed") or "dropped_us" in tablet or tablet_id in server.replicas:
            continue
        if any(m["uuid"] == server_uuid for m in tablet["members"]):
            order = create_order(catalog, tablet_id, server_uuid)
            if order is not None:
                orders.append(pb.TabletOrder(create=order))
    for tablet_id in sorted(server.replicas):
        delete = _delete_order(catalog, soft, server_uuid, tablet_id)
        if delete is not None:
            orders.append(pb.TabletOrder(delete=delete))
    return orders[:ORDERS_MAX]


def _delete_order(catalog: Catalog, soft: SoftState, server_uuid: str, tablet_id: str) -> pb.DeleteTabletRequest | None:
    replica = soft.servers[server_uuid].replicas[tablet_id]
    if replica.data_state not in LIVE:
        return None
    record = catalog.get(TABLET + tablet_id)
    if record is None:
        return None
    if "dropped_us" in record:
        return pb.DeleteTabletRequest(dest_uuid=server_uuid, tablet_id=tablet_id, reason="the table was dropped")
    state = soft.tablets.get(tablet_id)
    if state is None or state.config is None or state.config.member(server_uuid) is not None:
        return None
    own = opid_from_pb(replica.committed_config.opid) if replica.HasField("committed_config") else OpId(0, 0)
    if newer(own, state.config.opid):
        return None
    return pb.DeleteTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        committed_config_id=opid_to_pb(state.config.opid),
        has_cas=True,
        reason=f"config {state.config.opid} leaves this server out",
    )
