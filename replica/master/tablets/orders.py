"""Computes the orders in a reply to a heartbeat: create a replica, delete one, copy one in place. They are derived anew
each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from nyala.replica.rpc import config_to_pb, opid_to_pb, pb
from nyala.replica.types import OpId

from ..catalog.catalog import Catalog
from ..catalog.records import TABLET, Tablet
from ..heartbeats.belief import newer
from ..heartbeats.soft_state import LIVE, SoftState
from .descriptions import Descriptions, creations
from .order_batch import CREATIONS_BYTES_MAX, CREATIONS_MAX, OrderBatch, around
from .proof import Proof
from .view import is_damaged


class Asked(Protocol):
    """The answers of tablets' members, as `Inquiries` has them."""

    def proof(self, tablet_id: str) -> Proof | None:
        """The proof from recent answers; None if there are none."""
        ...

    def request(self, tablet_id: str, reporter: str = "") -> None:
        """Ask the members soon, if there is room. `reporter`: the server whose replica needs the answer, if any."""
        ...


def orders_for(
    catalog: Catalog,
    soft: SoftState,
    inquiries: Asked,
    descriptions: Descriptions,
    server_uuid: str,
    now_us: int,
    copy_grace_us: int,
) -> list[pb.TabletOrder]:
    """The orders for the server, from the catalog and the reports. No order follows from a missing report or record.

    Create: a member of the first config of a tablet that never had a leader creates its replica if it has none. A
    tablet that was formed once is never created again: its own leader copies it to members that lack it. If
    `descriptions` lacks the table, the tablet and those after it wait: encoding the table here would delay all other
    work of the loop. Delete: a replica is deleted if the catalog has its tablet as dropped, or if a committed config at
    or above the replica's own leaves it out. A majority of that config's voters must confirm the config first
    (`tablets/proof.py`). Until then there is no order, and `inquiries` is asked to ask the members. The server checks
    the position again, so a late order does not delete a replica that was added anew. If its server was never seen as a
    member, the replica may have been copied there to be added next. It is deleted after it has been READY for
    `copy_grace_us` (CC-10). `now_us` is the monotonic clock's time. Renew: a replica is copied in place if the policy
    chose it, it is still reported as damaged, and enough of the other members answer that they are healthy.
    """
    server = soft.servers.get(server_uuid)
    if server is None or not server.reported or server.last_report.booting:
        return []
    batch = OrderBatch()

    def created() -> Iterator[tuple[str, pb.TabletOrder]]:
        for tablet_id, tablet, table in creations(catalog, soft, server_uuid):
            described = descriptions.get(tablet.table_id, table)
            if described is None:
                return  # the next heartbeat has it encoded, and goes on here
            yield tablet_id, pb.TabletOrder(create=create_order(tablet_id, tablet, described, server_uuid))

    def change(tablet_id: str) -> pb.TabletOrder | None:
        delete = _delete_order(catalog, soft, inquiries, server_uuid, tablet_id, now_us, copy_grace_us)
        if delete is not None:
            return pb.TabletOrder(delete=delete)
        elif (config := soft.copy_orders.get((server_uuid, tablet_id))) and is_damaged(soft, server_uuid, tablet_id):
            proof = inquiries.proof(tablet_id)
            if proof is not None and proof.can_spare(server_uuid, config):
                return pb.TabletOrder(renew=_copy_order(server_uuid, tablet_id, config))
            inquiries.request(tablet_id, server_uuid)
        return None

    def changed(tablet_ids: Iterable[str]) -> Iterator[tuple[str, pb.TabletOrder]]:
        return ((t, order) for t in tablet_ids if (order := change(t)) is not None)

    last = batch.fill(created(), CREATIONS_MAX, CREATIONS_BYTES_MAX)
    server.creations_after = last or server.creations_after
    damaged = sorted(t for uuid, t in soft.copy_orders if uuid == server_uuid and t in server.replicas)
    batch.fill(changed(damaged))
    others = sorted((server.strays | catalog.dropped_among(server.replicas.keys())).difference(damaged))
    last = batch.fill(changed(around(others, server.deletions_after)))
    server.deletions_after = last or server.deletions_after
    return batch.orders


def create_order(tablet_id: str, tablet: Tablet, described: bytes, server_uuid: str) -> pb.CreateTabletRequest:
    """The order by which a server creates its replica of a new tablet. `described`: its table,
    `encoded_for_servers`."""
    return pb.CreateTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        table=pb.TableInfo.FromString(described),
        bucket=tablet.bucket,
        range_pos=tablet.range_pos,
        config=config_to_pb(tablet.first_config),
        leader_hint=tablet.members[0].uuid,
    )


def _copy_order(server_uuid: str, tablet_id: str, config: OpId) -> pb.DeleteTabletRequest:
    return pb.DeleteTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        committed_config_id=opid_to_pb(config),
        has_cas=True,
        reason="it is damaged, no other server is free, and the others are healthy: it is copied anew",
    )


def copy_is_abandoned(*, was_member: bool, ready_us: int | None, now_us: int, grace_us: int) -> bool:
    """Whether a live replica whose server is not in the config may be deleted.

    If the server was a member, the replica may be deleted at once, because a config has left it out. Otherwise it may
    have been copied there to be added later. Then it stays for `grace_us` after `ready_us`, the time at which it was
    first seen complete; None: it is being copied.
    """
    return was_member or (ready_us is not None and now_us - ready_us >= grace_us)


def _delete_order(
    catalog: Catalog, soft: SoftState, inquiries: Asked, server_uuid: str, tablet_id: str, now_us: int, grace_us: int
) -> pb.DeleteTabletRequest | None:
    replica = soft.servers[server_uuid].replicas[tablet_id]
    if replica.data_state not in LIVE:
        return None
    tablet = catalog.get(TABLET, tablet_id)
    if tablet is None:
        return None
    if tablet.dropped:
        reason = f"replaced by {tablet.replaced_by}" if tablet.replaced_by else "the table was dropped"
        return pb.DeleteTabletRequest(dest_uuid=server_uuid, tablet_id=tablet_id, reason=reason)
    state = soft.tablets.get(tablet_id)
    if state is None or state.config is None or state.config.member(server_uuid) is not None:
        return None
    own = replica.config_opid
    if newer(own, state.config.opid):
        return None
    tells = replica.config is not None and replica.config.member(server_uuid) is not None
    was_member = server_uuid in state.left or tells
    ready_us = soft.servers[server_uuid].ready_us.get(tablet_id)
    if not copy_is_abandoned(was_member=was_member, ready_us=ready_us, now_us=now_us, grace_us=grace_us):
        return None
    proof = inquiries.proof(tablet_id)
    if proof is None or not proof.leaves_out(server_uuid, own):
        inquiries.request(tablet_id, server_uuid)
        return None
    return pb.DeleteTabletRequest(
        dest_uuid=server_uuid,
        tablet_id=tablet_id,
        committed_config_id=opid_to_pb(proof.config.opid),
        has_cas=True,
        committed=opid_to_pb(proof.committed),
        reason=f"config {proof.config.opid} leaves this server out, as a majority of its voters confirms",
    )
