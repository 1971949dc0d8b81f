"""A master notices that its group has removed it.

The group sends nothing to a removed master, so the master asks the others once it hears of no leader. It is harmless
until then: the others have a leader, and refuse its pre-votes.
"""

from __future__ import annotations

from nyala.replica.types import RaftConfig

from .catalog_group import CatalogGroup
from .joining import MasterSeen, look_at

ASK_PERIOD_S = 1.0


def leaves_out(own: RaftConfig, uuid: str, cluster_id: str, asked: str, seen: MasterSeen) -> bool:
    """Whether the answer of the member `asked` of `own` proves that the group has removed `uuid`. Pure.

    It does if that very master answers, in the same cluster, and has a later committed config without `uuid`. A later
    config than that one cannot bring the uuid back: a master that was a member is not added again.
    """
    same = seen.uuid == asked and seen.cluster_id == cluster_id
    return same and seen.config.opid > own.opid and seen.config.member(uuid) is None


async def removed_by(group: CatalogGroup, uuid: str, cluster_id: str) -> RaftConfig | None:
    """The committed config of the group that leaves this master out; None as far as it knows. It asks the other members
    if it hears of no leader."""
    own = group.replica.committed_config
    if own.member(uuid) is None:
        return own
    if group.replica.leader_uuid:
        return None
    for member in own.members:
        if member.uuid == uuid or not member.addresses:
            continue
        seen = await look_at(member.addresses[0])
        if seen is not None and leaves_out(own, uuid, cluster_id, member.uuid, seen):
            return seen.config
    return None
