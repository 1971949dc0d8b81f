"""Decides which changes of the masters' group are allowed, one member at a time. Pure.

Raft itself decides the rest (`raft/membership.py`): one change at a time, compared with the config that the caller saw;
a new member votes once it has caught up; a leader hands over before it is removed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from nyala.replica.types import Address, Code, ConfigEdit, EditKind, Member, RaftConfig, Refused, limits

from .forming import MasterBuild

MEMBERS_MAX = max(limits.MASTERS) + 1
"""The most masters in one config, while one of five is replaced: the new one is added before the old one leaves."""
START_IT = (
    "start it on an empty directory with --join and the addresses of these masters, and repeat the command; nothing "
    "was changed"
)


class MembersSilent(Refused):
    """Too few of the members that would stay answer the leader. They may answer a moment later."""


def addition(config: RaftConfig, cluster_id: str, address: Address, found: MasterBuild) -> ConfigEdit | None:
    """The edit that adds the master found at `address`, without a vote until it has caught up; None if it is a member
    there already.

    Refused WRONG_CLUSTER for a master of another cluster, or one that waits to join another. ILLEGAL_STATE for one that
    does not wait, or whose uuid was a member before. INVALID_ARGUMENT if the master gives others another address.
    ALREADY_EXISTS for a member at another address, or if another member has this address. CHANGE_PENDING while another
    new master catches up.
    """
    member = config.member(found.uuid)
    if member is not None:
        if address in member.addresses:
            return None
        what = "this master is a member already, at another address; nothing was changed"
        raise Refused(Code.ALREADY_EXISTS, what, uuid=found.uuid, asked=address, member_at=_texts(member.addresses))
    for joins in (found.cluster_id, found.joins):
        if joins not in ("", cluster_id):
            what = f"the master there is of another cluster, or waits to join another; {START_IT}"
            raise Refused(Code.WRONG_CLUSTER, what, address=address, cluster=joins, own=cluster_id)
    if found.cluster_id:
        what = (
            "the master there has been a member of this cluster's masters: remove its directory with `nyala fs wipe`, "
            "and " + START_IT
        )
        raise Refused(Code.ILLEGAL_STATE, what, address=address, uuid=found.uuid)
    if not found.joins or found.advertised is None:
        raise Refused(Code.ILLEGAL_STATE, f"the master there does not wait to join: {START_IT}", address=address)
    if found.advertised != address:
        what = (
            "the master there has another address, by its --advertise or --listen: add it by that one; nothing "
            "was changed"
        )
        raise Refused(Code.INVALID_ARGUMENT, what, asked=address, advertised=found.advertised)
    holder = next((m for m in config.members if address in m.addresses), None)
    if holder is not None:
        what = "another master has this address in the group: remove that one first; nothing was changed"
        raise Refused(Code.ALREADY_EXISTS, what, address=address, member=holder.uuid)
    waiting = sorted(m.uuid for m in config.members if not m.votes)
    if waiting:
        what = "another new master does not vote yet: wait for it, or remove it; nothing was changed"
        raise Refused(Code.CHANGE_PENDING, what, waits=" ".join(waiting))
    if len(config.members) >= MEMBERS_MAX:
        what = "there are as many masters as can be: remove one first; nothing was changed"
        raise Refused(Code.INVALID_ARGUMENT, what, masters=len(config.members), max=MEMBERS_MAX)
    return ConfigEdit(EditKind.ADD, Member(found.uuid, (address,), votes=False, promote=True))


def removal(config: RaftConfig, uuid: str, living: Collection[str]) -> ConfigEdit | None:
    """The edit that removes a master; None if it is not a member. `living`: the leader, and the members that answer it.

    Refused ILLEGAL_STATE if no voter would be left. MembersSilent, whose code is ILLEGAL_STATE, too, if the living
    members are no majority of the remaining ones.
    """
    member = config.member(uuid)
    if member is None:
        return None
    rest = [other for other in config.voters if other != uuid]
    alive = [other for other in rest if other in living]
    if not rest:
        what = "this is the only master that votes: add another one first; nothing was changed"
        raise Refused(Code.ILLEGAL_STATE, what, uuid=uuid)
    if len(alive) <= len(rest) // 2:
        what = (
            "without this master, those that answer would be no majority: start the others, or remove first those that "
            "do not answer; nothing was changed"
        )
        silent = " ".join(other for other in rest if other not in alive)
        raise MembersSilent(Code.ILLEGAL_STATE, what, uuid=uuid, answer=len(alive), left=len(rest), silent=silent)
    return ConfigEdit(EditKind.REMOVE, member)


def refuse_older(builds: Mapping[str, MasterBuild | None]) -> None:
    """Raise Refused ILLEGAL_STATE if a member runs a build that does not follow such changes. `builds`: by uuid; None
    for a member that does not answer, which may be lost and does not count."""
    older = sorted(f"{u} ({b.version})" for u, b in builds.items() if b is not None and not b.takes_changes)
    if older:
        what = "masters of an earlier build cannot follow a change of their group: upgrade them; nothing was changed"
        raise Refused(Code.ILLEGAL_STATE, what, older=", ".join(older))


def _texts(addresses: Collection[Address]) -> str:
    return ",".join(map(str, addresses))
