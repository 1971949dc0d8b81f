"""Turns admin requests and proposals into desired changes. The catalog keeps at most one for a tablet, until the change
holds, its deadline passes or it is cancelled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from nyala.replica.policy import ChangeKind, DesiredChange
from nyala.replica.types import (
    Code,
    Member,
    OpId,
    Proposal,
    RaftConfig,
    Refused,
    Wanted,
    check_id,
    check_text,
    check_token,
    limits,
    new_uuid,
)

from ..catalog.records import DESIRED_CHANGE, TABLET
from ..catalog.tables import Change, tablet_of
from ..state import MasterState
from ..tablets.view import wanted_voters

DESIRED_CHANGES_MAX = 10_000
ADMIN_DEADLINE_US = 30 * 60 * 1_000_000


class Seen(NamedTuple):
    """The tablet as a request's caller saw it: its committed config, and the number of its desired changes so far."""

    config: OpId
    wishes: int


@dataclass(frozen=True)
class Request:
    """An operator's request for a member of a tablet. `seen`: the tablet as the operator saw it; if it has changed
    since, the request is refused."""

    tablet_id: str
    server_uuid: str = ""
    role: str = ""
    seen: Seen | None = None


def _config_of(state: MasterState, tablet_id: str) -> RaftConfig:
    formed, known = tablet_of(state.catalog, tablet_id).formed, state.soft.tablets.get(tablet_id)
    if not formed or known is None or known.config is None:
        raise Refused(Code.NOT_READY, "no leader of this tablet has reported yet", tablet=tablet_id)
    return known.config


def _changes_so_far(state: MasterState, tablet_id: str) -> int:
    """The number of desired changes of a tablet so far."""
    tablet = state.catalog.get(TABLET, tablet_id)
    return tablet.wishes if tablet else 0


def _check_seen(state: MasterState, config: RaftConfig, tablet_id: str, seen: Seen) -> None:
    """Raise Refused(CAS_FAILED) if the tablet has changed since the caller saw it, for example if the request is a late
    repetition.

    Its config and the number of desired changes are compared, because a cancelled change may leave the same config.
    """
    wishes = _changes_so_far(state, tablet_id)
    if seen != (config.opid, wishes):
        raise Refused(
            Code.CAS_FAILED,
            "the tablet has changed since the caller read it: read it again (`nyala tablet list`), then repeat",
            detail=str(config.opid),
            tablet=tablet_id,
            config_seen=seen.config,
            config=config.opid,
            wishes_seen=seen.wishes,
            wishes=wishes,
        )


def _grant(
    state: MasterState, config: RaftConfig, tablet_id: str, desired: DesiredChange, seen: Seen | None = None
) -> Change:
    other = state.catalog.get(DESIRED_CHANGE, tablet_id)
    if other is not None:
        if other.cancelled or other.expired(state.clock.wall_us()):
            # A new request cannot join a change that is being taken back, even if they are equal: that change will not
            # be carried out.
            raise Refused(
                Code.CHANGE_PENDING,
                "an earlier change of this tablet was cancelled or is past its deadline, and is being taken back",
                tablet=tablet_id,
                kind=other.kind,
            )
        if not desired.proposal and _asks_for(other) == _asks_for(desired):
            return {}, [], "", other.wish_id  # the caller repeats its request after a lost answer
        raise Refused(
            Code.CHANGE_PENDING, "another change of this tablet is wanted already", tablet=tablet_id, kind=other.kind
        )
    if seen is not None:
        _check_seen(state, config, tablet_id, seen)
    if state.catalog.count(DESIRED_CHANGE) >= DESIRED_CHANGES_MAX:
        raise Refused(Code.OVERLOADED, "too many wanted changes", max=DESIRED_CHANGES_MAX)
    tablet = tablet_of(state.catalog, tablet_id)
    counted = replace(tablet, wishes=tablet.wishes + 1)
    return {TABLET + tablet_id: counted, DESIRED_CHANGE + tablet_id: desired}, [], "", desired.wish_id


def _asks_for(desired: DesiredChange) -> tuple[str, str, str, bool, bool]:
    """A key that is equal for two requests with the same effect; caller, time and reason do not count."""
    return desired.kind, desired.from_uuid, desired.to_uuid, desired.votes, desired.witness


def _may_join(state: MasterState, uuid: str) -> None:
    """Raise Refused if the server cannot be a tablet's new member: it is unknown, silent, being retired, in maintenance
    or full.

    Clients do not retry these codes, so an operator gets the answer at once.
    """
    view = next((s for s in state.servers() if s.uuid == uuid), None)
    if view is None:
        raise Refused(Code.NOT_FOUND, "no such tablet server; see `nyala server list`", server=uuid)
    if not view.alive:
        raise Refused(Code.ILLEGAL_STATE, "this tablet server is not alive", server=uuid)
    if view.draining:
        raise Refused(Code.INVALID_ARGUMENT, "this tablet server is being retired", server=uuid)
    if view.maintenance:
        what = "this tablet server is in maintenance: name another one, or wait until it is over"
        raise Refused(Code.INVALID_ARGUMENT, what, server=uuid)
    held = state.replica_load().get(uuid, 0)
    if not view.has_room(held):
        what = "this tablet server holds as many replicas as it may (--tablets-max): name another one, or add servers"
        raise Refused(Code.ILLEGAL_STATE, what, server=uuid, held=held, max=view.tablets_max)


def _deadline(state: MasterState, deadline_us: int) -> int:
    now_us = state.clock.wall_us()
    if deadline_us < 0 or deadline_us > now_us + limits.CHANGE_DEADLINE_US_MAX:
        days = limits.CHANGE_DEADLINE_US_MAX // 86_400_000_000
        what = f"a deadline lies at most {days} days ahead, because the tablet takes no other change before that"
        raise Refused(Code.INVALID_ARGUMENT, what, deadline_us=deadline_us, now_us=now_us)
    if 0 < deadline_us <= now_us:
        raise Refused(Code.DEADLINE_PASSED, "the deadline has passed", deadline_us=deadline_us, now_us=now_us)
    return deadline_us or now_us + ADMIN_DEADLINE_US


def move(state: MasterState, asked: Proposal, seen: Seen | None = None) -> Change:
    """The change that makes a move of a replica desired, whatever config is in force; its result is the desired
    change's id."""
    config = _config_of(state, asked.tablet_id)
    return _grant(state, config, asked.tablet_id, _move(state, config, asked), seen)


def _move(state: MasterState, config: RaftConfig, asked: Proposal) -> DesiredChange:
    deadline_us = _deadline(state, asked.deadline_us)
    transfer = asked.wanted is Wanted.TRANSFER_LEADERSHIP
    if not transfer:
        _check_move(state, config, asked)
    else:
        target = config.member(asked.to_uuid)
        if target is None or not target.votes or not target.holds_data:
            raise Refused(Code.INVALID_ARGUMENT, "only a voter can lead", server=asked.to_uuid, config=config.opid)
        server = state.soft.servers.get(asked.to_uuid)
        if server is not None and server.last_report.quiescing:
            what = (
                "this tablet server quiesces and takes no leadership: name another one, or wait until it is restarted"
            )
            raise Refused(Code.INVALID_ARGUMENT, what, server=asked.to_uuid)
    return DesiredChange(
        kind=ChangeKind.TRANSFER if transfer else ChangeKind.MOVE,
        wish_id=asked.proposal_id,
        from_uuid="" if transfer else asked.from_uuid,
        to_uuid=asked.to_uuid,
        plan_id=asked.plan_id,
        deadline_us=deadline_us,
        reason=asked.reason or "move wanted",
    )


def _check_move(state: MasterState, config: RaftConfig, asked: Proposal) -> None:
    if config.member(asked.from_uuid) is None:
        raise Refused(Code.INVALID_ARGUMENT, "the source is no member", server=asked.from_uuid, config=config.opid)
    if config.member(asked.to_uuid) is not None:
        raise Refused(Code.INVALID_ARGUMENT, "the target is a member already", server=asked.to_uuid)
    _may_join(state, asked.to_uuid)


def add(state: MasterState, request: Request) -> Change:
    """The change that makes one more member desired, with role VOTER or PRE_VOTER (default), NON_VOTER or WITNESS."""
    config = _config_of(state, request.tablet_id)
    role = request.role or "PRE_VOTER"
    if role not in ("VOTER", "PRE_VOTER", "NON_VOTER", "WITNESS"):
        raise Refused(Code.INVALID_ARGUMENT, "the role is VOTER, PRE_VOTER, NON_VOTER or WITNESS", role=role)
    if config.member(request.server_uuid) is not None:
        raise Refused(Code.ALREADY_EXISTS, "this server is a member already", server=request.server_uuid)
    _may_join(state, request.server_uuid)
    desired = DesiredChange(
        kind=ChangeKind.ADD,
        wish_id=new_uuid(),
        to_uuid=request.server_uuid,
        votes=role != "NON_VOTER",
        witness=role == "WITNESS",
        deadline_us=_deadline(state, 0),
        reason="replica wanted by an operator",
    )
    return _grant(state, config, request.tablet_id, desired, request.seen)


def remove(state: MasterState, request: Request) -> Change:
    """The change that makes the removal of a member desired."""
    config = _config_of(state, request.tablet_id)
    member = _member(config, request.server_uuid)
    if member.votes:
        _replaceable(state, request.tablet_id, config)
    desired = DesiredChange(
        kind=ChangeKind.REMOVE,
        wish_id=new_uuid(),
        from_uuid=request.server_uuid,
        deadline_us=_deadline(state, 0),
        reason="removal wanted by an operator",
    )
    return _grant(state, config, request.tablet_id, desired, request.seen)


def _member(config: RaftConfig, uuid: str) -> Member:
    member = config.member(uuid)
    if member is None:
        raise Refused(Code.NOT_FOUND, "this server is no member", server=uuid, config=config.opid)
    return member


def _replaceable(state: MasterState, tablet_id: str, config: RaftConfig) -> None:
    """Refuse a removal that would wait for ever: a voter should leave, the tablet has no voter too many, and no other
    server could take its place."""
    wanted = wanted_voters(state.catalog, tablet_id)
    free = [s for s in state.servers() if s.takes_replicas and config.member(s.uuid) is None]
    load = state.replica_load()
    if len(config.voters) <= wanted and not any(s.has_room(load.get(s.uuid, 0)) for s in free):
        full = ": the others hold as many replicas as they may (--tablets-max)" if free else ""
        raise Refused(
            Code.INVALID_ARGUMENT,
            f"no other server could take its place, and no voter goes before its replacement votes{full}",
            voters=len(config.voters),
            wanted=wanted,
        )


def change_role(state: MasterState, request: Request) -> Change:
    """The change by which a member is wanted to vote (role VOTER), or no longer to vote (NON_VOTER)."""
    config = _config_of(state, request.tablet_id)
    member = _member(config, request.server_uuid)
    if request.role not in ("VOTER", "NON_VOTER"):
        raise Refused(Code.INVALID_ARGUMENT, "the role is VOTER or NON_VOTER", role=request.role)
    promote = request.role == "VOTER"
    if member.votes == promote:
        raise Refused(Code.INVALID_ARGUMENT, "it has this role already", server=member.uuid, role=request.role)
    if not promote:
        _replaceable(state, request.tablet_id, config)
    desired = DesiredChange(
        kind=ChangeKind.PROMOTE if promote else ChangeKind.DEMOTE,
        wish_id=new_uuid(),
        from_uuid="" if promote else member.uuid,
        to_uuid=member.uuid if promote else "",
        deadline_us=_deadline(state, 0),
        reason=f"{request.role} wanted by an operator",
    )
    return _grant(state, config, request.tablet_id, desired, request.seen)


def cancel(state: MasterState, request: Request) -> Change:
    """The change that gives up a tablet's desired change: it expires now, so its effects are taken back.

    Refused(NOT_FOUND) if there is none. CAS_FAILED if it is not the one that the caller saw; the config is not
    compared, because a desired change alters it while it is carried out. ILLEGAL_STATE if a move's new replica votes
    already: that move goes on to its end.
    """
    tablet_id = request.tablet_id
    desired = state.catalog.get(DESIRED_CHANGE, tablet_id)
    if desired is None:
        raise Refused(Code.NOT_FOUND, "nothing is wanted of this tablet", tablet=tablet_id)
    if request.seen is not None and request.seen.wishes != _changes_so_far(state, tablet_id):
        raise Refused(
            Code.CAS_FAILED,
            "another change is wanted than the caller saw: read it again (`nyala tablet list`), then repeat",
            tablet=tablet_id,
            kind=desired.kind,
            wishes_seen=request.seen.wishes,
            wishes=_changes_so_far(state, tablet_id),
        )
    known = state.soft.tablets.get(tablet_id)
    target = known.config.member(desired.to_uuid) if known is not None and known.config is not None else None
    if desired.kind is ChangeKind.MOVE and target is not None and target.votes:
        raise Refused(Code.ILLEGAL_STATE, "too late: the new replica votes, and the old one leaves", to=target.uuid)
    return {DESIRED_CHANGE + tablet_id: replace(desired, deadline_us=1, cancelled=True)}, [], "", desired.wish_id


def propose(state: MasterState, proposal: Proposal) -> Change:
    """The change that accepts a proposal from the topic. If it is not accepted, Refused has the reason."""
    config = _config_of(state, proposal.tablet_id)
    if proposal.config_opid != config.opid:
        raise Refused(
            Code.CAS_FAILED,
            "the proposal was computed from another config",
            seen=proposal.config_opid,
            committed=config.opid,
        )
    if proposal.wanted is Wanted.MOVE_REPLICA and not proposal.from_uuid:
        raise Refused(Code.INVALID_ARGUMENT, "a move names its source", proposal=proposal.proposal_id)
    for uuid in filter(None, (proposal.from_uuid, proposal.to_uuid)):
        check_id(uuid, "a server's uuid")
    if proposal.plan_id:
        check_token(proposal.plan_id, "plan_id")
    check_text(proposal.reason, "reason")
    desired = replace(_move(state, config, proposal), proposal=True)
    return _grant(state, config, proposal.tablet_id, desired)
