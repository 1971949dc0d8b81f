"""A master that was stopped or cut off learns its group's later config, or that the group has removed it.

The group sends nothing to a removed master. So a master that hears of no leader asks the others. Until then a removed
master does no harm: the others have a leader, and refuse its pre-votes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nyala.replica.types import Address, RaftConfig

from .catalog_group import CatalogGroup
from .joining import MasterSeen, ask_master

ASK_PERIOD_S = 1.0


def leaves_out(own: RaftConfig, uuid: str, cluster_id: str, asked: str, seen: MasterSeen) -> bool:
    """Whether the answer of the member `asked` of `own` proves that the group has removed `uuid`. Pure.

    It does if the answering master is `asked`, belongs to the same cluster, and has a later committed config without
    `uuid`. No config after that one has the uuid: a master that was a member is never added again.
    """
    same = seen.uuid == asked and seen.cluster_id == cluster_id
    return same and seen.config.opid > own.opid and seen.config.member(uuid) is None


def learned(
    own: RaftConfig, uuid: str, cluster_id: str, answers: Iterable[tuple[str, MasterSeen]]
) -> tuple[RaftConfig | None, bool]:
    """The latest committed config of the group that the answers have, and whether it removes this master; None if none
    is later than `own`. Pure.

    `answers`: with the member of `own` that was asked, or an empty text for a master of the command line. Only a
    member's answer removes this master.
    """
    found = None
    for asked, seen in answers:
        if asked and leaves_out(own, uuid, cluster_id, asked, seen):
            return seen.config, True
        ours = asked in ("", seen.uuid) and seen.cluster_id == cluster_id
        if ours and seen.config.opid > (found or own).opid:
            found = seen.config
    return found, False


async def later_config(
    group: CatalogGroup, uuid: str, cluster_id: str, told: Sequence[Address]
) -> tuple[RaftConfig | None, bool]:
    """As `learned`, with the answers of the other members and of `told`, the masters of the command line. They are
    asked only if this master hears of no leader. Those of the command line are asked because the leader may be a master
    that it does not know yet."""
    own = group.replica.committed_config
    if own.member(uuid) is None:
        return own, True
    if group.replica.leader_uuid:
        return None, False
    members = [(m.uuid, m.addresses[0]) for m in own.members if m.uuid != uuid and m.addresses]
    places = (*members, *(("", address) for address in told))
    answers = [(asked, await ask_master(address)) for asked, address in places]
    return learned(own, uuid, cluster_id, [(asked, seen) for asked, seen in answers if seen is not None])
