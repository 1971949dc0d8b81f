"""Carries one decision out at its tablet's leader: finds the leader, sends one compare-and-swap, and returns the
outcome.

The Spark query and the masters both call it. It holds no state: the leader refuses what is out of date, so a decision
may be carried out twice, late, out of order, or by two callers at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from nyala.replica.client import Client, leader_hint
from nyala.replica.rpc import config_from_pb, decision_to_pb, pb
from nyala.replica.types import (
    Action,
    Address,
    Applied,
    Code,
    ConfigEdit,
    Decision,
    EditKind,
    Member,
    Outcome,
    Refused,
    ReplicaError,
)

from .outcome import outcome_of

HOPS_MAX = 4
"""Bounds the servers called for one decision: hints of leaders may be stale, and may name each other."""
ATTEMPT_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class _Server:
    uuid: str
    address: Address


def execute(decision: Decision, client: Client, *, now_us: Callable[[], int] | None = None) -> Outcome:
    """Carry `decision` out once and return its outcome; never raises Refused. Makes at most nine
    calls, of ATTEMPT_TIMEOUT_S each.

    `now_us` is the wall clock by which the deadline is judged; the leader checks it again by its own.
    """
    wall_us = now_us or _wall_us
    if 0 < decision.deadline_us <= wall_us():
        return outcome_of(decision, Refused(Code.DEADLINE_PASSED, "the decision's deadline has passed"))
    try:
        at = _named_leader(decision) or _ask_masters(decision, client)
        error, at = _send_to_leader(decision, client, at)
    except Refused as refusal:
        return outcome_of(decision, refusal)
    if error is None:
        return outcome_of(decision, None)
    if _may_hold_already(error) and _holds(decision, client, at):
        return outcome_of(decision, None, "it holds already")
    return outcome_of(decision, error)


def _wall_us() -> int:
    return time.time_ns() // 1000


def _send_to_leader(decision: Decision, client: Client, at: _Server) -> tuple[Refused | None, _Server]:
    """Send the decision to the leader. Returns (None, or the leader's refusal; the server that was called last).
    Follows hints, then asks the masters once.

    A server that cannot be reached may have received the decision. It is sent to another one all the same, because the
    leader compares.
    """
    asked: set[str] = set()
    looked_up = False
    for _ in range(HOPS_MAX):
        asked.add(at.uuid)
        try:
            _send(decision, client, at)
        except Refused as error:
            if error.code not in (Code.NOT_LEADER, Code.INVALID_NAME, Code.UNAVAILABLE, Code.TABLET_NOT_FOUND):
                return error, at
            next_at = _hinted(error)
            if next_at is None or next_at.uuid in asked:
                if looked_up:
                    return error, at
                looked_up = True
                next_at = _ask_masters(decision, client)
                if next_at.uuid in asked and next_at == at:
                    return error, at
            at = next_at
        else:
            return None, at
    return Refused(Code.NOT_LEADER, "no server that was asked leads the tablet", asked=sorted(asked)), at


def _send(decision: Decision, client: Client, at: _Server) -> None:
    transfer = decision.action is Action.TRANSFER_LEADERSHIP
    if transfer and at.uuid == decision.target_uuid and _leads(decision, client, at):
        return
    call = "TransferLeadership" if transfer else "ChangeConfig"
    request = decision_to_pb(decision, at.uuid)
    client.calls.at_server(at.address, at.uuid, call, request, timeout_s=ATTEMPT_TIMEOUT_S)


def _named_leader(decision: Decision) -> _Server | None:
    if not decision.leader_uuid or not decision.leader_address:
        return None
    return _Server(decision.leader_uuid, Address.parse(decision.leader_address))


def _hinted(error: Refused) -> _Server | None:
    """Return the leader that a NOT_LEADER names."""
    uuid, address = leader_hint(error.detail)
    return _Server(uuid, address) if error.code is Code.NOT_LEADER and uuid and address is not None else None


def _ask_masters(decision: Decision, client: Client) -> _Server:
    """Return the leader that the masters know; Refused(NOT_LEADER) if they know none, TABLET_NOT_FOUND if it was
    dropped."""
    table = client.get_table(table_id=decision.table_id, timeout_s=ATTEMPT_TIMEOUT_S)
    location = client.locator.location(decision.tablet_id) if table.tablet(decision.tablet_id) else None
    if location is None:
        raise Refused(Code.TABLET_NOT_FOUND, "the masters know no such tablet", tablet=decision.tablet_id)
    if location.leader_uuid not in location.members:
        raise Refused(Code.NOT_LEADER, "the masters know no leader of this tablet", tablet=decision.tablet_id)
    return _Server(location.leader_uuid, location.members[location.leader_uuid])


def _may_hold_already(error: Refused) -> bool:
    """Whether the refusal, or a missing answer, may mean that an earlier sending took effect."""
    codes = (Code.CAS_FAILED, Code.STALE_DECISION, Code.INVALID_ARGUMENT, Code.ALREADY_EXISTS, Code.NOT_LEADER)
    return error.applied is Applied.UNKNOWN or error.code in codes


def _leads(decision: Decision, client: Client, at: _Server) -> bool:
    status = _status(decision, client, at)
    return status is not None and status.role == "LEADER"


def _status(decision: Decision, client: Client, at: _Server) -> pb.ReplicaStatus | None:
    request = pb.ListTabletsRequest(dest_uuid=at.uuid, tablet_ids=[decision.tablet_id])
    try:
        reply = client.calls.at_server(at.address, at.uuid, "ListTablets", request, timeout_s=ATTEMPT_TIMEOUT_S)
    except ReplicaError:
        return None
    return next((r for r in reply.replicas if r.tablet_id == decision.tablet_id), None)


def _holds(decision: Decision, client: Client, at: _Server) -> bool:
    """Whether the change is in the committed config of the server called last, or the target of the transfer leads."""
    status = _status(decision, client, at)
    if status is None:
        return False
    if decision.action is Action.TRANSFER_LEADERSHIP:
        return bool(status.leader_uuid == decision.target_uuid)
    committed = config_from_pb(status.committed_config)
    if committed.opid.index <= decision.config_opid.index:
        return False
    return all(_edit_holds(edit, committed.member(edit.member.uuid)) for edit in decision.edits)


def _edit_holds(edit: ConfigEdit, member: Member | None) -> bool:
    wanted = edit.member
    if edit.kind is EditKind.REMOVE:
        return member is None
    if member is None or member.replace != wanted.replace:
        return False
    promoted = member.votes and wanted.promote
    return promoted or (member.votes == wanted.votes and member.promote == wanted.promote)
