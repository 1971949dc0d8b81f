"""The add/evict table: computes what one tablet's membership needs, from the health and the marks of its members.

It departs from [kudu quorum_util] where guarantee 7 demands more: a voter is never removed before its replacement
votes, not even a lost one (D-20 to D-23 of `replica/raft/DIVERGENCES.md`).
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum

from nyala.replica.types import Member

from .views import Health, TabletView
from .witnesses import heals_by_witness, is_demoted, is_lost, stand_in, stands_in


class Need(StrEnum):
    """The kind of change that a tablet's membership needs next."""

    NOTHING = "NOTHING"
    ADD = "ADD"
    EVICT = "EVICT"
    TRANSFER = "TRANSFER"
    """The member to be evicted leads, so leadership goes to `uuid` first."""
    DEMOTE = "DEMOTE"
    """A witness votes in the place of this lost voter, which loses its vote and stays."""
    RESTORE = "RESTORE"
    """A demoted voter is back before it was replaced, and shall vote again."""
    DEMOTE_AGAIN = "DEMOTE_AGAIN"
    """A demoted voter that should vote again was lost before it did."""


@dataclass(frozen=True)
class Advice:
    """The next step. `uuid`: the member that it concerns; for a TRANSFER, the member that shall lead; empty for ADD."""

    need: Need
    uuid: str = ""
    reason: str = ""


_NOTHING = Advice(Need.NOTHING)


def is_under_replicated(tablet: TabletView) -> bool:
    """Whether the tablet needs another replica: too few voters and learners are viable, that is neither failed nor
    marked `replace`. UNKNOWN counts as viable."""
    viable = 0
    for member in tablet.config.members:
        lost = tablet.health_of(member.uuid).failed
        if member.votes or member.promote:
            viable += not (lost or member.replace)
    return viable < tablet.replication_factor


def is_at_rest(tablet: TabletView, draining: Set[str]) -> bool:
    """Whether no decision about `tablet` is possible, whatever the state of the other tablets and servers is. The
    tablet has no desired change; it has exactly RF members; all vote, and none is marked, failed or on a server in
    `draining`."""
    members = tablet.config.members
    return (
        tablet.desired is None
        and len(members) == tablet.replication_factor
        and all(m.votes and not m.promote and not m.replace and m.uuid not in draining for m in members)
        and not any(tablet.health_of(m.uuid).failed for m in members)
    )


def healthy_voters(tablet: TabletView, without: str = "") -> int:
    """Return how many voters other than `without` are HEALTHY."""
    voters = tablet.config.voters
    return sum(tablet.health_of(u) is Health.HEALTHY for u in voters if u != without)


def can_commit(tablet: TabletView, without: str = "") -> bool:
    """Whether the HEALTHY voters can commit a change in the config without the voter `without`.

    A config is in force from its append on, so the voters that stay commit the removal of a voter by their own
    majority.
    """
    voters = [u for u in tablet.config.voters if u != without]
    return healthy_voters(tablet, without) >= len(voters) // 2 + 1


def evict_rank(member: Member, health: Health) -> int:
    """Return the order in which members leave, lowest first.

    Unrecoverable and marked, unrecoverable, failed and marked, failed, marked, unknown, other.
    """
    if health is Health.FAILED_UNRECOVERABLE:
        return 0 if member.replace else 1
    if health is Health.FAILED:
        return 2 if member.replace else 3
    if member.replace:
        return 4
    return 5 if health is Health.UNKNOWN else 6


def transfer_target(tablet: TabletView, load: Mapping[str, int], quiescing: Set[str] = frozenset()) -> str:
    """Return the healthy voter with data that should lead next; empty if each is on a quiescing server or there is
    none. Unmarked voters come before marked ones, and among these the least loaded comes first."""
    fit = [
        (m.replace, load.get(m.uuid, 0), m.uuid)
        for m in tablet.config.members
        if m.votes and m.holds_data and m.uuid != tablet.leader_uuid and tablet.health_of(m.uuid) is Health.HEALTHY
        if m.uuid not in quiescing
    ]
    return min(fit)[2] if fit else ""


def advise(
    tablet: TabletView,
    *,
    keep: frozenset[str] = frozenset(),
    leaving: Set[str] = frozenset(),
    load: Mapping[str, int] | None = None,
    quiescing: Set[str] = frozenset(),
) -> Advice:
    """Return what `tablet` needs next, or NOTHING. Pure, total, and safe to follow at any time.

    `keep`: members that leave last, because a desired change has just added them. `leaving`: members that count as
    marked, because their server retires, or a desired change removes or demotes them; none of them is restored. `load`:
    the number of replicas of each server. Among equal members, the most loaded leaves first, and the least loaded
    leads. `quiescing`: the servers that take no leadership.
    """
    if not tablet.leader_uuid or tablet.pending:
        return _NOTHING
    evict = _evict(tablet, keep, leaving, load or {}, quiescing)
    if evict.need is not Need.NOTHING:
        return evict
    if is_under_replicated(tablet) and can_commit(tablet):
        return Advice(Need.ADD, reason=_why_add(tablet))
    return _NOTHING


def _evict(
    tablet: TabletView, keep: frozenset[str], leaving: Set[str], load: Mapping[str, int], quiescing: Set[str]
) -> Advice:
    def order(member: Member) -> tuple[bool, int, bool, bool, int, str]:
        rank = evict_rank(member, tablet.health_of(member.uuid))
        leads = member.uuid == tablet.leader_uuid
        whole = not stands_in(member)
        return (member.uuid in keep and rank > 4, rank, whole, leads, -load.get(member.uuid, 0), member.uuid)

    for member in sorted((m for m in tablet.config.members if not m.votes), key=order):
        if member.uuid not in leaving and (kept := _of_demoted(tablet, member)) is not None:
            if kept.need is not Need.NOTHING and can_commit(tablet):
                return kept
            continue
        why = _why_evict_non_voter(tablet, member, member.uuid in keep)
        if why and can_commit(tablet):
            return Advice(Need.EVICT, member.uuid, why)
    if len(tablet.config.voters) <= tablet.replication_factor:
        return _NOTHING
    for member in sorted((m for m in tablet.config.members if m.votes), key=order):
        if not may_leave(tablet, member) or (member.uuid in keep and _is_awaited(tablet, member)):
            continue
        if is_lost(tablet, member) and stand_in(tablet) is not None:
            return Advice(Need.DEMOTE, member.uuid, "it is lost, and a witness votes in its place")
        why = f"{len(tablet.config.voters)} voters of {tablet.replication_factor} wanted; {_condition(tablet, member)}"
        if member.uuid != tablet.leader_uuid:
            return Advice(Need.EVICT, member.uuid, why)
        target = transfer_target(tablet, load, quiescing)
        return Advice(Need.TRANSFER, target, f"the leader {member.uuid} is to leave: {why}") if target else _NOTHING
    return _NOTHING


def _is_awaited(tablet: TabletView, member: Member) -> bool:
    """Whether a kept member waits for its data, or is UNKNOWN, as after a restart. Then it does not leave. Until it is
    healthy, the others may be too few without it; once it is healthy, another member may leave instead."""
    return stands_in(member) or (tablet.health_of(member.uuid) is Health.UNKNOWN and not member.replace)


def _why_evict_non_voter(tablet: TabletView, member: Member, kept: bool) -> str:
    if tablet.health_of(member.uuid).failed:
        return f"non-voter {_condition(tablet, member)}"
    if kept:
        return ""
    spare = spare_voters(tablet)
    if (member.promote or member.replace) and spare >= tablet.replication_factor:
        return f"{spare} healthy voters suffice, so the non-voter is not needed"
    return ""


def spare_voters(tablet: TabletView) -> int:
    """Return how many voters are HEALTHY and not marked `replace`. A stand-in witness is not counted."""
    voters = [m for m in tablet.config.members if m.votes and not m.replace and not stands_in(m)]
    return sum(tablet.health_of(m.uuid) is Health.HEALTHY for m in voters)


def _of_demoted(tablet: TabletView, member: Member) -> Advice | None:
    """Return the next step for a member that is a demoted lost voter, or on its way back; None if it is neither.
    CC-52."""
    health = tablet.health_of(member.uuid)
    if member.promote and member.holds_data:
        if health.failed and stand_in(tablet, leaving=True) is not None:
            return Advice(Need.DEMOTE_AGAIN, member.uuid, "it was lost again before it voted")
        return None
    if not is_demoted(member) or not heals_by_witness(tablet) or spare_voters(tablet) >= tablet.replication_factor:
        return None
    if health is Health.HEALTHY:
        return Advice(Need.RESTORE, member.uuid, "it is back before its replacement has its data")
    return Advice(Need.NOTHING, member.uuid)


def may_leave(tablet: TabletView, member: Member) -> bool:
    """Whether the voter may leave: the other voters can commit, and either it has failed or RF healthy voters stay.

    An unmarked voter leaves only if RF healthy unmarked voters stay. A stand-in witness is not counted among them.
    """
    if not can_commit(tablet, member.uuid):
        return False
    if tablet.health_of(member.uuid).failed:
        return True
    staying = [
        m
        for m in tablet.config.members
        if m.votes and m.uuid != member.uuid and (member.replace or not m.replace) and not stands_in(m)
    ]
    healthy = sum(tablet.health_of(m.uuid) is Health.HEALTHY for m in staying)
    return healthy >= tablet.replication_factor


def _condition(tablet: TabletView, member: Member) -> str:
    return f"{tablet.health_of(member.uuid).name}{', marked for replacement' if member.replace else ''}"


def _why_add(tablet: TabletView) -> str:
    voters = [m for m in tablet.config.members if m.votes]
    lost = sum(tablet.health_of(m.uuid).failed for m in voters)
    marked = sum(m.replace for m in voters)
    wanted = tablet.replication_factor
    return f"{wanted} replicas wanted, {len(voters)} voters of which {lost} failed and {marked} marked"
