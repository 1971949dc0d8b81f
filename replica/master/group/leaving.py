"""A master that was away learns its group's later config, or notices that the group has removed it.

The group sends nothing to a removed master, so the master asks the others once it hears of no leader. It is harmless
until then: the others have a leader, and refuse its pre-votes.
"""

from __future__ import annotations

from collections.abc import Sequence

from nyala.replica.types import Address, RaftConfig

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


def is_later(own: RaftConfig, cluster_id: str, asked: str, seen: MasterSeen) -> bool:
    """Whether the answer of the member `asked` of `own` has a later committed config of the same cluster. An empty
    `asked`: of any master, at an address of the command line. Pure."""
    return asked in ("", seen.uuid) and seen.cluster_id == cluster_id and seen.config.opid > own.opid


async def later_config(
    group: CatalogGroup, uuid: str, cluster_id: str, told: Sequence[Address]
) -> tuple[RaftConfig | None, bool]:
    """A later committed config of the group, and whether the group has removed this master by it; None as far as it
    knows. It asks if it hears of no leader: the leader may be a master that this one does not know yet.

    It asks the other members, and `told`, the masters of its command line. Only a member's answer removes it.
    """
    own = group.replica.committed_config
    if own.member(uuid) is None:
        return own, True
    if group.replica.leader_uuid:
        return None, False
    found = None
    members = [(m.uuid, m.addresses[0]) for m in own.members if m.uuid != uuid and m.addresses]
    for asked, address in (*members, *(("", address) for address in told)):
        seen = await look_at(address)
        if seen is None or not is_later(own, cluster_id, asked, seen):
            continue
        if asked and leaves_out(own, uuid, cluster_id, asked, seen):
            return seen.config, True
        if found is None or seen.config.opid > found.opid:
            found = seen.config
    return found, False
