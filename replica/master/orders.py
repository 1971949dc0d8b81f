"""What a server is told with its heartbeat's reply: create this new replica, delete that one. Re-derived each time."""

from __future__ import annotations

from nyala.replica.base import ZERO_OPID, OpId
from nyala.replica.rpc import opid_from_pb, opid_to_pb, pb

from .catalog import Catalog
from .soft_state import LIVE, SoftState, newer
from .tables import TABLET, create_order
from .view import is_damaged

ORDERS_MAX = 200
"""In one reply; the rest follows with the next heartbeat."""


def orders_for(
    catalog: Catalog, soft: SoftState, server_uuid: str, now_us: int, copy_grace_us: int
) -> list[pb.TabletOrder]:
    """Orders for the server, from the catalog and what was reported. Nothing follows from anything being unknown.

    Create: only tablets that never had a leader, at members of their first config that hold no replica. A tablet that
    was formed once is never created again: its own leader copies it to whoever lacks it.
    Delete: only replicas of tablets that the catalog knows as dropped, or that a committed config at or above the
    replica's own leaves out; the server checks that position again, so a late order misses a replica added anew.
    One that was never seen as a member may have been copied there first, to be added next: it goes when it has been
    READY for `copy_grace_us` (CC-10). `now_us` is of the monotonic clock.
    Renew: only replicas of which the policy said so, and that are reported as damaged still.
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
        delete = _delete_order(catalog, soft, server_uuid, tablet_id, now_us, copy_grace_us)
        if delete is not None:
            orders.append(pb.TabletOrder(delete=delete))
        elif (config := soft.renewals.get((server_uuid, tablet_id))) and is_damaged(soft, server_uuid, tablet_id):
            orders.append(pb.TabletOrder(renew=_renewal(server_uuid, tablet_id, config)))
    return orders[:ORDERS_MAX]


def _renewal(server_uuid: str, tablet_id: str, config: OpId) -> pb.DeleteTabletRequest:
    return pb.DeleteTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        committed_config_id=opid_to_pb(config),
        has_cas=True,
        reason="it is damaged, no other server is free, and the others are whole: they copy it anew",
    )


def copy_is_abandoned(*, was_member: bool, ready_us: int | None, now_us: int, grace_us: int) -> bool:
    """Whether a live replica whose server is in no config may go.

    Who was a member may at once: another config has left it out. Anything else was copied there by somebody who may
    still add it, and waits from `ready_us` on, since when it is known as complete; None while it is being copied.
    """
    return was_member or (ready_us is not None and now_us - ready_us >= grace_us)


def _committed(leader: pb.ReplicaStatus | None, config: OpId) -> OpId:
    """How far the leader's log is committed with `config` as its last committed config; ZERO_OPID if it did not say.

    What it said of another config tells nothing about this one.
    """
    if leader is None or not leader.commit_term or opid_from_pb(leader.committed_config.opid) != config:
        return ZERO_OPID
    return OpId(leader.commit_term, leader.commit_index)


def _delete_order(
    catalog: Catalog, soft: SoftState, server_uuid: str, tablet_id: str, now_us: int, grace_us: int
) -> pb.DeleteTabletRequest | None:
    replica = soft.servers[server_uuid].replicas[tablet_id]
    if replica.data_state not in LIVE:
        return None
    record = catalog.get(TABLET + tablet_id)
    if record is None:
        return None
    if "dropped_us" in record:
        reason = f"replaced by {record['replaced_by']}" if "replaced_by" in record else "the table was dropped"
        return pb.DeleteTabletRequest(dest_uuid=server_uuid, tablet_id=tablet_id, reason=reason)
    state = soft.tablets.get(tablet_id)
    if state is None or state.config is None or state.config.member(server_uuid) is not None:
        return None
    own = opid_from_pb(replica.committed_config.opid) if replica.HasField("committed_config") else OpId(0, 0)
    if newer(own, state.config.opid):
        return None
    was_member = server_uuid in state.left or any(m.uuid == server_uuid for m in replica.committed_config.members)
    ready_us = soft.servers[server_uuid].ready_us.get(tablet_id)
    if not copy_is_abandoned(was_member=was_member, ready_us=ready_us, now_us=now_us, grace_us=grace_us):
        return None
    return pb.DeleteTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        committed_config_id=opid_to_pb(state.config.opid),
        has_cas=True,
        committed=opid_to_pb(_committed(state.leader_status, state.config.opid)),
        reason=f"config {state.config.opid} leaves this server out",
    )
